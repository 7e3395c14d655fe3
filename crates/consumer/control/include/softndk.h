/*
 * How an NDK consumer written in C finds the SoftNDK provider. The same in Rust: the crate `control`, whose
 * documentation has the sequence of steps.
 *
 * Define NDIS630 (or a later version) before the first include. Then include, in this order: ndis.h, ndisndk.h (which ndis.h does
 * not include), initguid.h (in one file of the driver), and this header.
 */
#ifndef SOFTNDK_H
#define SOFTNDK_H

/* The device interface class of every SoftNDK adapter. */
DEFINE_GUID(GUID_DEVINTERFACE_SOFTNDK,
    0x0f3a9a70, 0x5d7c, 0x4b52, 0x9b, 0x1e, 0x6d, 0x6f, 0x8f, 0x0c, 0x2a, 0x11);

/* The interface type of IRP_MN_QUERY_INTERFACE. */
DEFINE_GUID(GUID_SOFTNDK_INTERFACE,
    0x5a1f6c02, 0x93be, 0x4d0f, 0x8a, 0x57, 0xc1, 0xd2, 0x44, 0xe9, 0x7b, 0x30);

/*
 * A query for a later version succeeds with the latest one that the provider has, a query for an earlier one is refused. So look
 * at InterfaceHeader.Version. Later versions only add at the end; another layout gets another interface type.
 */
#define SOFTNDK_INTERFACE_VERSION 1

/*
 * Copies the adapter's addresses, with port 0, to the array. Count is the length of the array, and then the number of
 * addresses. STATUS_BUFFER_TOO_SMALL, and nothing copied, if there are more than there is room for.
 */
typedef NTSTATUS (*QUERY_NDK_ADDRESSES)(
    _In_ NDIS_HANDLE AdapterContext,
    _Out_writes_to_(*Count, *Count) SOCKADDR_INET *Addresses,
    _Inout_ ULONG *Count);

/*
 * Everything is for PASSIVE_LEVEL. Keep the device open as long as you have the interface, close every NDK_ADAPTER before
 * you dereference it, and do both when the device is to be removed.
 */
typedef struct _SOFTNDK_INTERFACE {
    INTERFACE InterfaceHeader;                 /* Size, Version, Context, InterfaceReference, InterfaceDereference */
    NDIS_HANDLE AdapterContext;                /* first argument of the two handlers */
    OPEN_NDK_ADAPTER_HANDLER OpenNdkAdapter;   /* of the parameters only Version is read */
    CLOSE_NDK_ADAPTER_HANDLER CloseNdkAdapter; /* blocks until everything created from the adapter is closed */
    QUERY_NDK_ADDRESSES QueryNdkAddresses;
} SOFTNDK_INTERFACE, *PSOFTNDK_INTERFACE;

C_ASSERT(sizeof(SOFTNDK_INTERFACE) == 64);
C_ASSERT(FIELD_OFFSET(SOFTNDK_INTERFACE, AdapterContext) == 32);
C_ASSERT(FIELD_OFFSET(SOFTNDK_INTERFACE, OpenNdkAdapter) == 40);
C_ASSERT(FIELD_OFFSET(SOFTNDK_INTERFACE, CloseNdkAdapter) == 48);
C_ASSERT(FIELD_OFFSET(SOFTNDK_INTERFACE, QueryNdkAddresses) == 56);

#endif
