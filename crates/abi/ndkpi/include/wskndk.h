/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a kernel consumer of NDKPI opens an adapter through Winsock Kernel, in the spellings of the kit's
 * header of this name. Made from the crate ndkpi by the test ndkpi_header; do not edit. Include wsk.h and
 * ndkpi.h first.
 */
#ifndef WSKNDK_H
#define WSKNDK_H

/*
 * The control code that asks for WSK_PROVIDER_NDK_DISPATCH: the letters NDKD. The output buffer is the table
 * itself, all sixteen bytes of it.
 */
#define WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH 0x4e444b44

/* Opens the adapter of a network interface, given by its index. IRQL: PASSIVE_LEVEL (NDIS-NDK 8). */
typedef NTSTATUS (*PFN_WSK_NDK_OPEN_ADAPTER)(
    _In_ PWSK_CLIENT Client,
    _In_ NDK_VERSION NdkVersion,
    _In_ NET_IFINDEX IfIndex,
    _Out_ NDK_ADAPTER **ppNdkAdapter);

/*
 * Closes an adapter and blocks until it is closed, so never from a callback. IRQL: PASSIVE_LEVEL (NDIS-NDK
 * 8).
 */
typedef VOID (*PFN_WSK_NDK_CLOSE_ADAPTER)(
    _In_ PWSK_CLIENT Client,
    _In_ NDK_ADAPTER *pNdkAdapter);

/* The functions that open and close an adapter (NDIS-NDK 8). */
typedef struct _WSK_PROVIDER_NDK_DISPATCH {
    PFN_WSK_NDK_OPEN_ADAPTER WskOpenNdkAdapter; /* Opens an adapter. */
    PFN_WSK_NDK_CLOSE_ADAPTER WskCloseNdkAdapter; /* Closes it. */
} WSK_PROVIDER_NDK_DISPATCH;

#endif
