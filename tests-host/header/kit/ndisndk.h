/* In place of the kit's ndisndk.h and what it includes: see ndis.h beside this file. */
#ifndef STAND_IN_NDISNDK_H
#define STAND_IN_NDISNDK_H

#if NDIS_SUPPORT_NDIS630
typedef struct _NDK_VERSION {
    USHORT Major;
    USHORT Minor;
} NDK_VERSION;

typedef struct _NDK_ADAPTER NDK_ADAPTER;

/* As for a driver of NDIS before 6.50: the rest that there is later is not read. */
typedef struct _NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    NDK_VERSION Version;
} NDIS_OPEN_NDK_ADAPTER_PARAMETERS, *PNDIS_OPEN_NDK_ADAPTER_PARAMETERS;

typedef NDIS_STATUS (*OPEN_NDK_ADAPTER_HANDLER)(
    NDIS_HANDLE MiniportAdapterContext, PNDIS_OPEN_NDK_ADAPTER_PARAMETERS Parameters, NDK_ADAPTER **ppNdkAdapter);

typedef VOID (*CLOSE_NDK_ADAPTER_HANDLER)(NDIS_HANDLE MiniportAdapterContext, NDK_ADAPTER *pNdkAdapter);
#endif

#endif
