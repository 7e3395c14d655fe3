/* Includes softndk.h as its first lines say, and uses all that it declares. C and C++. */
#define NDIS630 1
#include <ndis.h>
#include <ndisndk.h>
#include <initguid.h>
#include <softndk.h>

/* Sizes, offsets and numbers of the Rust crate `control`, written by the test driver_header. */
#include "expected.h"

typedef struct _USE {
    NDK_ADAPTER *Adapter;
    SOCKADDR_INET Addresses[4];
    ULONG Count;
} USE;

/* Types of the callbacks are compared where they are assigned. */
NTSTATUS use(SOFTNDK_INTERFACE *softndk, USE *use)
{
    NTSTATUS (*query)(NDIS_HANDLE, SOCKADDR_INET *, ULONG *) = softndk->QueryNdkAddresses;
    NDIS_STATUS (*open)(NDIS_HANDLE, NDIS_OPEN_NDK_ADAPTER_PARAMETERS *, NDK_ADAPTER **) = softndk->OpenNdkAdapter;
    VOID (*close)(NDIS_HANDLE, NDK_ADAPTER *) = softndk->CloseNdkAdapter;
    NDIS_OPEN_NDK_ADAPTER_PARAMETERS parameters = { { 2, 0 } };
    INTERFACE *header = &softndk->InterfaceHeader;
    NTSTATUS status;

    if (header->Version < SOFTNDK_INTERFACE_VERSION)
        return STATUS_NOT_SUPPORTED;
    use->Count = 4;
    status = query(softndk->AdapterContext, use->Addresses, &use->Count);
    if (!NT_SUCCESS(status))
        return status;
    status = open(softndk->AdapterContext, &parameters, &use->Adapter);
    if (NT_SUCCESS(status))
        close(softndk->AdapterContext, use->Adapter);
    header->InterfaceDereference(header->Context);
    return status;
}

const GUID *identifiers[] = { &GUID_DEVINTERFACE_SOFTNDK, &GUID_SOFTNDK_INTERFACE };
