/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The Network Direct Kernel Provider Interface up to version 2.1, in the spellings of the kit's header of
 * this name. Made from the crate ndkpi by the test ndkpi_header; do not edit. Include ntddk.h (or wdm.h,
 * ntifs.h, ndis.h) first.
 */
#ifndef NDKPI_H
#define NDKPI_H

#include <wsk.h>

typedef struct _NDK_ADAPTER NDK_ADAPTER;
typedef struct _NDK_CQ NDK_CQ;
typedef struct _NDK_QP NDK_QP;
typedef struct _NDK_SRQ NDK_SRQ;
typedef struct _NDK_PD NDK_PD;
typedef struct _NDK_MR NDK_MR;
typedef struct _NDK_MW NDK_MW;
typedef struct _NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT;
typedef struct _NDK_CONNECTOR NDK_CONNECTOR;
typedef struct _NDK_LISTENER NDK_LISTENER;

/* The type of an object (NDKPI 2.1). It lets people recognise objects in a memory dump. */
typedef enum _NDK_OBJECT_TYPE {
    NdkObjectTypeUndefined = 0, /* No object has this type. */
    NdkObjectTypeAdapter = 1, /* An NDK_ADAPTER. */
    NdkObjectTypeQp = 2, /* An NDK_QP. */
    NdkObjectTypeCq = 3, /* An NDK_CQ. */
    NdkObjectTypeMr = 4, /* An NDK_MR. */
    NdkObjectTypeMw = 5, /* An NDK_MW. */
    NdkObjectTypePd = 6, /* An NDK_PD. */
    NdkObjectTypeSharedEndpoint = 7, /* An NDK_SHARED_ENDPOINT. */
    NdkObjectTypeConnector = 8, /* An NDK_CONNECTOR. */
    NdkObjectTypeListener = 9, /* An NDK_LISTENER. */
    NdkObjectTypeSrq = 10, /* An NDK_SRQ. */
    NdkObjectTypeMax = 11, /* One more than the greatest type. */
} NDK_OBJECT_TYPE;

/*
 * The protocol below the interface (NDKPI 2.7). The INF keyword *NetworkDirectTechnology has the same
 * numbers.
 */
typedef enum _NDK_RDMA_TECHNOLOGY {
    NdkUndefined = 0, /* Not said. */
    NdkiWarp = 1, /* iWARP. */
    NdkInfiniBand = 2, /* InfiniBand. */
    NdkRoCE = 3, /* RDMA over Converged Ethernet, version 1. */
    NdkRoCEv2 = 4, /* RDMA over Converged Ethernet, version 2. */
    NdkMaxTechnology = 5, /* One more than the greatest technology. */
} NDK_RDMA_TECHNOLOGY;

/* The kind of work request that completed (NDKPI 2.2). The values are like bits and not sequential. */
typedef enum _NDK_OPERATION_TYPE {
    NdkOperationTypeReceive = 1, /* A receive, on the receiver's side. */
    /*
     * A receive whose send also invalidated a token of the receiver. The sender's side completes as a send.
     */
    NdkOperationTypeReceiveAndInvalidate = 0x8001,
    NdkOperationTypeSend = 2, /* A send, or a send-and-invalidate. */
    NdkOperationTypeFastRegister = 4, /* A fast registration. */
    NdkOperationTypeBind = 8, /* A bind of a memory window. */
    NdkOperationTypeInvalidate = 16, /* A local invalidation. */
    NdkOperationTypeRead = 32, /* A read of remote memory. */
    NdkOperationTypeWrite = 64, /* A write to remote memory. */
} NDK_OPERATION_TYPE;

/* What an adapter can do: AdapterFlags of NDK_ADAPTER_INFO. */
/*
 * Incoming bytes land in the consumer's buffer in order: the last byte never changes before an earlier one.
 */
#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED 0x00000001
/* The target of a read needs no special right, and may be named with the privileged token. */
#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED 0x00000002
/* NdkControlCqInterruptModeration may be called. */
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 0x00000004
/* Several connections in parallel can be faster than one. */
#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED 0x00000008
/* A read can invalidate the token of its first entry; from NDKPI 1.2. */
#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 0x00000010
/* NdkResizeCq may be called. */
#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED 0x00000100
/* An address of the adapter may connect to an address of the same adapter. */
#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED 0x00010000

/* What a completion queue is armed for. */
/* Errors of the completion queue itself. */
#define NDK_CQ_NOTIFY_ERRORS 0x00000000
/* Any completion. */
#define NDK_CQ_NOTIFY_ANY 0x00000001
/* Receives of a solicited send, and requests that fail. */
#define NDK_CQ_NOTIFY_SOLICITED 0x00000002

/* Flags of work requests. */
/* A success leaves no entry in the completion queue; a failure does (NDKPI 7.3). */
#define NDK_OP_FLAG_SILENT_SUCCESS 0x00000001
/* The request does not begin before all earlier reads on the queue pair are complete (NDKPI 7.3). */
#define NDK_OP_FLAG_READ_FENCE 0x00000002
/* The receive that takes this send satisfies an arm for solicited completions (NDKPI 7.1.5). */
#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x00000004
/* The peer may read. */
#define NDK_OP_FLAG_ALLOW_REMOTE_READ 0x00000008
/* Incoming data may be written. */
#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE 0x00000010
/*
 * The peer may write. Two bits, one of which is NDK_OP_FLAG_ALLOW_LOCAL_WRITE: test it with
 * allows_remote_write.
 */
#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE 0x00000030
/* The data is taken before the call returns, from memory that need not be registered (NDKPI 7.3). */
#define NDK_OP_FLAG_INLINE 0x00000040
/* The region may be the target of a read. */
#define NDK_OP_FLAG_RDMA_READ_SINK 0x00000080
/* The read also invalidates the token of its first entry, if the adapter can; from NDKPI 1.2 (NDKPI 7.3). */
#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 0x00000100
/* More requests follow, so the adapter need not begin yet; from NDKPI 1.2 (NDKPI 7.3). */
#define NDK_OP_FLAG_DEFER 0x00000200

/* Rights of a memory region. */
/* The owner may read: always granted, so no bit stands for it. */
#define NDK_MR_FLAG_ALLOW_LOCAL_READ 0x00000000
/* Incoming data may be written. */
#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 0x00000001
/* The peer may read. */
#define NDK_MR_FLAG_ALLOW_REMOTE_READ 0x00000002
/*
 * The peer may write. Two bits, one of which is NDK_MR_FLAG_ALLOW_LOCAL_WRITE: test it with
 * allows_remote_write.
 */
#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 0x00000005
/* The region may be the target of a read. */
#define NDK_MR_FLAG_RDMA_READ_SINK 0x00000008

/* An address that the adapter uses. */
typedef PHYSICAL_ADDRESS NDK_LOGICAL_ADDRESS;

/* A version of the interface (NDKPI 3.1), ordered by major and then minor number. */
typedef struct _NDK_VERSION {
    USHORT Major; /* The major version; different ones are different interfaces. */
    USHORT Minor; /* The minor version. */
} NDK_VERSION;

/*
 * The logical pages of a buffer, in memory of the caller (NDKPI 3.8). Its length varies: the last field is
 * the first element of an array.
 */
typedef struct _NDK_LOGICAL_ADDRESS_MAPPING {
    PVOID AdapterContext; /* Belongs to the provider; the consumer must not change it. */
    ULONG AdapterPageCount; /* The number of elements in the array. */
    /* The first of AdapterPageCount addresses, each of a whole page; see pages. */
    NDK_LOGICAL_ADDRESS AdapterPageArray[1];
} NDK_LOGICAL_ADDRESS_MAPPING;

/* The part of an object that belongs to the operating system (NDKPI 3.2, NDKPI 7.10). */
typedef struct _NDK_OBJECT_HEADER_RESERVED_BLOCK {
    PVOID rf[4]; /* State that the layer between provider and consumer keeps. */
} NDK_OBJECT_HEADER_RESERVED_BLOCK;

/* The header of every object (NDKPI 3.3). */
typedef struct _NDK_OBJECT_HEADER {
    NDK_VERSION Version; /* The version in force, which tells how long the dispatch table is. */
    NDK_OBJECT_TYPE ObjectType; /* The type of the object. */
    /* Zeroed by the provider at creation and not touched by it again until the object is closed. */
    NDK_OBJECT_HEADER_RESERVED_BLOCK NdkReserved;
} NDK_OBJECT_HEADER;

/* The limits and abilities of an adapter (NDKPI 3.11). Queried at PASSIVE_LEVEL. */
typedef struct _NDK_ADAPTER_INFO {
    NDK_VERSION Version; /* The version in force. */
    UINT32 VendorId; /* The organisationally unique identifier of the vendor. */
    UINT32 DeviceId; /* A number of the vendor's choice. */
    SIZE_T MaxRegistrationSize; /* The greatest length of a memory region, in bytes. */
    SIZE_T MaxWindowSize; /* The greatest length of a memory window, in bytes. */
    /*
     * The size of a fast registration, in pages, at which the adapter supports the most regions; at least 16.
     */
    ULONG FRMRPageCount;
    ULONG MaxInitiatorRequestSge; /* Scatter/gather entries of a request on the initiator queue. */
    ULONG MaxReceiveRequestSge; /* Scatter/gather entries of a receive. */
    ULONG MaxReadRequestSge; /* Scatter/gather entries of a read, in place of MaxInitiatorRequestSge. */
    ULONG MaxTransferLength; /* Bytes in all entries of one send, receive, read or write together. */
    ULONG MaxInlineDataSize; /* Bytes that one send or write may carry inline. */
    ULONG MaxInboundReadLimit; /* Reads of the peer in progress on one queue pair. */
    ULONG MaxOutboundReadLimit; /* Own reads in progress on one queue pair. */
    ULONG MaxReceiveQueueDepth; /* Depth of a receive queue. */
    ULONG MaxInitiatorQueueDepth; /* Depth of an initiator queue. */
    ULONG MaxSrqDepth; /* Depth of a shared receive queue; 0 if the adapter has none. */
    ULONG MaxCqDepth; /* Depth of a completion queue. */
    /* A hint: for more bytes than this, read and write are better than send and receive. */
    ULONG LargeRequestThreshold;
    ULONG MaxCallerData; /* Bytes of private data in a connect. */
    ULONG MaxCalleeData; /* Bytes of private data in an accept or reject. */
    ULONG AdapterFlags; /* A combination of the NDK_ADAPTER_FLAG_ constants; see adapter_flags. */
    /* The protocol below the interface. Not there in versions before 2.0. */
    NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;

/* A piece of memory of a work request (NDKPI 3.9). */
typedef struct _NDK_SGE {
    union {
        PVOID VirtualAddress;
        NDK_LOGICAL_ADDRESS LogicalAddress;
    };
    ULONG Length; /* The number of bytes. */
    UINT32 MemoryRegionToken; /* The token of the memory region, or the privileged token. */
} NDK_SGE;

/* A completion (NDKPI 3.5). */
typedef struct _NDK_RESULT {
    NTSTATUS Status; /* The outcome of the request. */
    ULONG BytesTransferred; /* The bytes received. Undefined unless the request was a receive. */
    PVOID QPContext; /* The value given when the queue pair was created. */
    PVOID RequestContext; /* The value given when the request was posted. */
} NDK_RESULT;

/* A completion with its kind (NDKPI 3.6); from NDKPI 1.2. */
typedef struct _NDK_RESULT_EX {
    NTSTATUS Status; /* The outcome of the request. */
    /* The bytes received. Undefined unless the request was a receive; see bytes_received. */
    ULONG BytesTransferred;
    PVOID QPContext; /* The value given when the queue pair was created. */
    PVOID RequestContext; /* The value given when the request was posted. */
    NDK_OPERATION_TYPE Type; /* The kind of request. */
    /*
     * From NDKPI 2.1 the provider's own code for a failure, 0 for a success; before that unused bytes with
     * any content. A provider of any version should write 0 or its code; a consumer asks provider_error_code.
     */
    ULONG ProviderErrorCode;
    ULONG_PTR TypeSpecificCompletionOutput; /* Depends on the kind of request; see invalidated_token. */
} NDK_RESULT_EX;

/* Where a provider stores the table of an extension (NDKPI 3.10). */
typedef struct _NDK_EXTENSION_INTERFACE {
    /* The table, whose type follows from the identifier and version that were asked for. */
    const void *Dispatch;
} NDK_EXTENSION_INTERFACE;

/*
 * Completion of a creation. The object is there if the status is a success; otherwise the pointer means
 * nothing. IRQL <= DISPATCH_LEVEL (NDKPI 6).
 */
typedef VOID (*NDK_FN_CREATE_COMPLETION)(
    _In_opt_ PVOID Context,
    _In_ NTSTATUS Status,
    _In_ NDK_OBJECT_HEADER *pNdkObject);

/* Completion of any other request but a close. IRQL <= DISPATCH_LEVEL (NDKPI 6). */
typedef VOID (*NDK_FN_REQUEST_COMPLETION)(
    _In_opt_ PVOID Context,
    _In_ NTSTATUS Status);

/*
 * Completion of a close, which cannot fail and so has no status. It is the last callback of its object. IRQL
 * <= DISPATCH_LEVEL (NDKPI 6, NDKPI 7.9).
 */
typedef VOID (*NDK_FN_CLOSE_COMPLETION)(
    _In_opt_ PVOID Context);

/*
 * Event: what a completion queue was armed for has happened. The status is a success, STATUS_BUFFER_OVERFLOW
 * for an overrun, or STATUS_INTERNAL_ERROR. Two of one queue never run at the same time. IRQL <=
 * DISPATCH_LEVEL (NDKPI 6, NDKPI 7.1.7).
 */
typedef VOID (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(
    _In_opt_ PVOID CqNotificationContext,
    _In_ NTSTATUS CqStatus);

/*
 * Event: the receives in a shared receive queue fell below the threshold, or the queue failed with
 * STATUS_INTERNAL_ERROR. IRQL <= DISPATCH_LEVEL (NDKPI 6, NDKPI 7.12).
 */
typedef VOID (*NDK_FN_SRQ_NOTIFICATION_CALLBACK)(
    _In_opt_ PVOID SrqNotificationContext,
    _In_ NTSTATUS SrqStatus);

/*
 * Event: a connection came in. The connector belongs to the consumer from now on. IRQL <= DISPATCH_LEVEL
 * (NDKPI 6, NDKPI 7.7.2).
 */
typedef VOID (*NDK_FN_CONNECT_EVENT_CALLBACK)(
    _In_opt_ PVOID ConnectEventContext,
    _In_ NDK_CONNECTOR *pNdkConnector);

/*
 * Event: the peer disconnected, or the connection is lost. Once for each connection. IRQL <= DISPATCH_LEVEL
 * (NDKPI 6, NDKPI 7.7.6).
 */
typedef VOID (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(
    _In_opt_ PVOID DisconnectEventContext);

/*
 * The same event with a reason of the provider's own, 0 if it gives none; from NDKPI 2.1. IRQL <=
 * DISPATCH_LEVEL (NDKPI 6).
 */
typedef VOID (*NDK_FN_DISCONNECT_EVENT_CALLBACK_EX)(
    _In_opt_ PVOID DisconnectEventContext,
    _In_ ULONG ProviderDisconnectReason);

/*
 * Closes an object: a request that can only succeed or pend. The consumer must not use the object after the
 * call. It pends while objects that depend on this one are open. IRQL <= DISPATCH_LEVEL (NDKPI 5.1, NDKPI
 * 7.9).
 */
typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(
    _In_ NDK_OBJECT_HEADER *pNdkObject,
    _In_ NDK_FN_CLOSE_COMPLETION CloseCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * Asks an object for the table of an extension; immediate. STATUS_NOT_SUPPORTED if the provider does not have
 * it in this version. IRQL <= DISPATCH_LEVEL (NDKPI 5.1).
 */
typedef NTSTATUS (*NDK_FN_QUERY_EXTENSION_INTERFACE)(
    _In_ NDK_OBJECT_HEADER *pNdkObject,
    _In_ GUID *ExtensionInterfaceID,
    _In_ NDK_VERSION ExtensionInterfaceVersion,
    _Out_ NDK_EXTENSION_INTERFACE *pExtensionInterface);

/*
 * NdkQueryAdapterInfo: immediate, may block. *pBufferSize is the size of the buffer in bytes on entry and the
 * bytes written, or those needed with STATUS_BUFFER_TOO_SMALL, on return. IRQL: PASSIVE_LEVEL (NDKPI 5.2).
 */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _Out_opt_ NDK_ADAPTER_INFO *pInfo,
    _Inout_ ULONG *pBufferSize);

/*
 * Declared in the header, but in no table: NDK_FN_QUERY_ADAPTER_INFO of a version. IRQL: PASSIVE_LEVEL (NDKPI
 * 1).
 */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO_EX)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ NDK_VERSION Version,
    _Out_opt_ NDK_ADAPTER_INFO *pInfo,
    _Inout_ ULONG *pBufferSize);

/*
 * NdkCreateCq: creates a completion queue of CqDepth entries, unarmed and not moderated. The affinity, which
 * may be null, says where the notification had best run. IRQL <= DISPATCH_LEVEL (NDKPI 5.2, NDKPI 7.1.1).
 */
typedef NTSTATUS (*NDK_FN_CREATE_CQ)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ ULONG CqDepth,
    _In_ NDK_FN_CQ_NOTIFICATION_CALLBACK CqNotification,
    _In_opt_ PVOID CqNotificationContext,
    _In_opt_ GROUP_AFFINITY *Affinity,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_CQ **ppNdkCq);

/* NdkCreatePd: creates a protection domain. IRQL <= DISPATCH_LEVEL (NDKPI 5.2). */
typedef NTSTATUS (*NDK_FN_CREATE_PD)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_PD **ppNdkPd);

/*
 * NdkCreateSharedEndpoint: creates a shared endpoint on a local address. Port 0 is replaced by a free one.
 * The length is in bytes. IRQL <= DISPATCH_LEVEL (NDKPI 5.2, NDKPI 7.8).
 */
typedef NTSTATUS (*NDK_FN_CREATE_SHARED_ENDPOINT)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ const PSOCKADDR pAddress,
    _In_ ULONG AddressLength,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint);

/* NdkCreateConnector: creates a connector for an outgoing connection. IRQL <= DISPATCH_LEVEL (NDKPI 5.2). */
typedef NTSTATUS (*NDK_FN_CREATE_CONNECTOR)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_CONNECTOR **ppNdkConnector);

/*
 * NdkCreateListener: creates a listener, which does not listen before NdkListen. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.2).
 */
typedef NTSTATUS (*NDK_FN_CREATE_LISTENER)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ NDK_FN_CONNECT_EVENT_CALLBACK ConnectEvent,
    _In_opt_ PVOID ConnectEventContext,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_LISTENER **ppNdkListener);

/*
 * NdkBuildLAM: a request that maps Length bytes of a pinned, virtually contiguous buffer. *pLAMSize is the
 * size of the caller's memory in bytes on entry and the size needed with STATUS_BUFFER_TOO_SMALL; *pFBO
 * becomes the offset of the first byte in the first page. IRQL <= DISPATCH_LEVEL (NDKPI 5.2, NDKPI 7.5).
 */
typedef NTSTATUS (*NDK_FN_BUILD_LAM)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ MDL *Mdl,
    _In_ SIZE_T Length,
    _In_opt_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_opt_ NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM,
    _Inout_ ULONG *pLAMSize,
    _Out_ ULONG *pFBO);

/*
 * NdkReleaseLAM: undoes a mapping when no request uses it any more; immediate. IRQL <= DISPATCH_LEVEL (NDKPI
 * 5.2, NDKPI 7.5).
 */
typedef VOID (*NDK_FN_RELEASE_LAM)(
    _In_ NDK_ADAPTER *pNdkAdapter,
    _In_ NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

/*
 * NdkConnect: a request that connects a queue pair from a local to a remote address. Local port 0 is replaced
 * by a free one. Success means that the peer accepted; NdkCompleteConnect is the next step. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.8, NDKPI 7.7.1).
 */
typedef NTSTATUS (*NDK_FN_CONNECT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ NDK_QP *pNdkQp,
    _In_ const PSOCKADDR pSrcAddress,
    _In_ ULONG SrcAddressLength,
    _In_ const PSOCKADDR pDestAddress,
    _In_ ULONG DestAddressLength,
    _In_ ULONG InboundReadLimit,
    _In_ ULONG OutboundReadLimit,
    _In_opt_ const PVOID pPrivateData,
    _In_ ULONG PrivateDataLength,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkConnectWithSharedEndpoint: NDK_FN_CONNECT from the address of a shared endpoint. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.8, NDKPI 7.8).
 */
typedef NTSTATUS (*NDK_FN_CONNECT_WITH_SHARED_ENDPOINT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ NDK_QP *pNdkQp,
    _In_ NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
    _In_ const PSOCKADDR pDestAddress,
    _In_ ULONG DestAddressLength,
    _In_ ULONG InboundReadLimit,
    _In_ ULONG OutboundReadLimit,
    _In_opt_ const PVOID pPrivateData,
    _In_ ULONG PrivateDataLength,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkCompleteConnect: a request that takes the last step of an outgoing connection. The disconnect event is
 * optional. IRQL <= DISPATCH_LEVEL (NDKPI 5.8, NDKPI 7.7.1).
 */
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_opt_ NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
    _In_opt_ PVOID DisconnectEventContext,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT with the event that has a reason; from NDKPI 2.1. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.8).
 */
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT_EX)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_opt_ NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
    _In_opt_ PVOID DisconnectEventContext,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkAccept: a request that accepts an incoming connection with a queue pair. It completes when the peer has
 * taken its last step. The disconnect event is optional. IRQL <= DISPATCH_LEVEL (NDKPI 5.8, NDKPI 7.7.2).
 */
typedef NTSTATUS (*NDK_FN_ACCEPT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ NDK_QP *pNdkQp,
    _In_ ULONG InboundReadLimit,
    _In_ ULONG OutboundReadLimit,
    _In_opt_ const PVOID pPrivateData,
    _In_ ULONG PrivateDataLength,
    _In_opt_ NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
    _In_opt_ PVOID DisconnectEventContext,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkAcceptEx: NDK_FN_ACCEPT with the event that has a reason; from NDKPI 2.1. IRQL <= DISPATCH_LEVEL (NDKPI
 * 5.8).
 */
typedef NTSTATUS (*NDK_FN_ACCEPT_EX)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ NDK_QP *pNdkQp,
    _In_ ULONG InboundReadLimit,
    _In_ ULONG OutboundReadLimit,
    _In_opt_ const PVOID pPrivateData,
    _In_ ULONG PrivateDataLength,
    _In_opt_ NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
    _In_opt_ PVOID DisconnectEventContext,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkReject: refuses an incoming connection, or gives up an outgoing one instead of its last step; immediate.
 * IRQL <= DISPATCH_LEVEL (NDKPI 5.8).
 */
typedef NTSTATUS (*NDK_FN_REJECT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_opt_ const PVOID pPrivateData,
    _In_ ULONG PrivateDataLength);

/*
 * NdkGetConnectionData: the effective read limits and the private data of the peer, each of which may be
 * null; immediate. *pPrivateDataLength is the size of the buffer on entry and the size of the data on return.
 * IRQL <= DISPATCH_LEVEL (NDKPI 5.8, NDKPI 7.7.4).
 */
typedef NTSTATUS (*NDK_FN_GET_CONNECTION_DATA)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _Out_opt_ ULONG *pInboundReadLimit,
    _Out_opt_ ULONG *pOutboundReadLimit,
    _Out_opt_ PVOID pPrivateData,
    _Inout_ ULONG *pPrivateDataLength);

/*
 * NdkGetLocalAddress of a connector: immediate. *pAddressLength is the size of the buffer on entry and the
 * bytes written, or those needed with STATUS_BUFFER_TOO_SMALL, on return. IRQL <= DISPATCH_LEVEL (NDKPI 5.8).
 */
typedef NTSTATUS (*NDK_FN_GET_LOCAL_ADDRESS)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _Out_opt_ PSOCKADDR pAddress,
    _Inout_ ULONG *pAddressLength);

/* NdkGetPeerAddress: immediate, like NDK_FN_GET_LOCAL_ADDRESS. IRQL <= DISPATCH_LEVEL (NDKPI 5.8). */
typedef NTSTATUS (*NDK_FN_GET_PEER_ADDRESS)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _Out_opt_ PSOCKADDR pAddress,
    _Inout_ ULONG *pAddressLength);

/*
 * NdkDisconnect: a request that ends the connection gracefully and then flushes the queue pair. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.8, NDKPI 7.7.5).
 */
typedef NTSTATUS (*NDK_FN_DISCONNECT)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * Declared in the header, but in no table: NDK_FN_DISCONNECT with a choice. IRQL <= DISPATCH_LEVEL (NDKPI 1).
 */
typedef NTSTATUS (*NDK_FN_DISCONNECT_EX)(
    _In_ NDK_CONNECTOR *pNdkConnector,
    _In_ BOOLEAN Abortive,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkResizeCq: a request that changes the depth to CqDepth entries. Only for adapters with
 * NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED. IRQL <= DISPATCH_LEVEL (NDKPI 5.4, NDKPI 7.1.11).
 */
typedef NTSTATUS (*NDK_FN_RESIZE_CQ)(
    _In_ NDK_CQ *pNdkCq,
    _In_ ULONG CqDepth,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkArmCq: asks for one notification of a type in notify. Never fails. IRQL <= DISPATCH_LEVEL (NDKPI 5.4,
 * NDKPI 7.1.3).
 */
typedef VOID (*NDK_FN_ARM_CQ)(
    _In_ NDK_CQ *pNdkCq,
    _In_ ULONG Type);

/*
 * NdkGetCqResults: moves at most nResults completions to the array and returns how many. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.4, NDKPI 7.1.8).
 */
typedef ULONG (*NDK_FN_GET_CQ_RESULTS)(
    _In_ NDK_CQ *pNdkCq,
    _Out_ NDK_RESULT Results[],
    _In_ ULONG nResults);

/*
 * NdkGetCqResultsEx: moves at most nResults completions to the array and returns how many; from NDKPI 1.2.
 * IRQL <= DISPATCH_LEVEL (NDKPI 5.4, NDKPI 7.1.9).
 */
typedef ULONG (*NDK_FN_GET_CQ_RESULTS_EX)(
    _In_ NDK_CQ *pNdkCq,
    _Out_ NDK_RESULT_EX Results[],
    _In_ ULONG nResults);

/*
 * NdkControlCqInterruptModeration: a notification may be put off by at most ModerationInterval microseconds
 * or until ModerationCount completions are there; immediate. Only for adapters with
 * NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED. IRQL <= DISPATCH_LEVEL (NDKPI 5.4, NDKPI 7.1.6).
 */
typedef NTSTATUS (*NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION)(
    _In_ NDK_CQ *pNdkCq,
    _In_ ULONG ModerationInterval,
    _In_ ULONG ModerationCount);

/*
 * NdkListen: a request that begins to listen on a local address. Port 0 is replaced by a free one. The length
 * is in bytes. IRQL <= DISPATCH_LEVEL (NDKPI 5.9, NDKPI 7.7.2).
 */
typedef NTSTATUS (*NDK_FN_LISTEN)(
    _In_ NDK_LISTENER *pNdkListener,
    _In_ const PSOCKADDR pAddress,
    _In_ ULONG AddressLength,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkGetLocalAddress of a listener: immediate. *pAddressLength is the size of the buffer in bytes on entry
 * and the bytes written, or those needed with STATUS_BUFFER_TOO_SMALL, on return. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.9).
 */
typedef NTSTATUS (*NDK_FN_GET_LISTENER_LOCAL_ADDRESS)(
    _In_ NDK_LISTENER *pNdkListener,
    _Out_opt_ PSOCKADDR pAddress,
    _Inout_ ULONG *pAddressLength);

/*
 * NdkControlConnectEvents: while paused, connections are refused as if nobody listened; immediate. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.9, NDKPI 7.7.8).
 */
typedef VOID (*NDK_FN_CONTROL_CONNECT_EVENTS)(
    _In_ NDK_LISTENER *pNdkListener,
    _In_ BOOLEAN Pause);

/*
 * NdkRegisterMr: a request that registers Length bytes of a pinned, virtually contiguous buffer with the
 * rights of mr_flags. IRQL <= DISPATCH_LEVEL (NDKPI 5.5, NDKPI 7.4).
 */
typedef NTSTATUS (*NDK_FN_REGISTER_MR)(
    _In_ NDK_MR *pNdkMr,
    _In_ MDL *Mdl,
    _In_ SIZE_T Length,
    _In_ ULONG Flags,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/* NdkDeregisterMr: a request that undoes the registration. IRQL <= DISPATCH_LEVEL (NDKPI 5.5, NDKPI 7.4). */
typedef NTSTATUS (*NDK_FN_DEREGISTER_MR)(
    _In_ NDK_MR *pNdkMr,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkInitializeFastRegisterMr: a request that prepares the region for fast registrations of at most
 * AdapterPageCount pages, for the peer as well if RemoteAccess is true. IRQL <= DISPATCH_LEVEL (NDKPI 5.5,
 * NDKPI 7.4).
 */
typedef NTSTATUS (*NDK_FN_INITIALIZE_FAST_REGISTER_MR)(
    _In_ NDK_MR *pNdkMr,
    _In_ ULONG AdapterPageCount,
    _In_ BOOLEAN RemoteAccess,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkGetRemoteTokenFromMr: the token with which the peer names this region; immediate. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.5, NDKPI 7.4).
 */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MR)(
    _In_ NDK_MR *pNdkMr);

/*
 * NdkGetLocalTokenFromMr: the token with which entries name this region; immediate. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.5, NDKPI 7.4).
 */
typedef UINT32 (*NDK_FN_GET_LOCAL_TOKEN_FROM_MR)(
    _In_ NDK_MR *pNdkMr);

/*
 * NdkGetRemoteTokenFromMw: the token with which the peer names this window; immediate. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.5, NDKPI 7.6).
 */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MW)(
    _In_ NDK_MW *pNdkMw);

/*
 * NdkCreateMr: creates a memory region. FastRegister decides for good whether it is for fast registrations or
 * for plain ones. IRQL <= DISPATCH_LEVEL (NDKPI 5.3, NDKPI 7.4).
 */
typedef NTSTATUS (*NDK_FN_CREATE_MR)(
    _In_ NDK_PD *pNdkPd,
    _In_ BOOLEAN FastRegister,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_MR **ppNdkMr);

/* NdkCreateMw: creates a memory window. IRQL <= DISPATCH_LEVEL (NDKPI 5.3). */
typedef NTSTATUS (*NDK_FN_CREATE_MW)(
    _In_ NDK_PD *pNdkPd,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_MW **ppNdkMw);

/*
 * NdkCreateSrq: creates a shared receive queue of SrqDepth receives, with an optional notification when fewer
 * than NotifyThreshold are left. The affinity, which may be null, says where it had best run. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.3, NDKPI 7.12).
 */
typedef NTSTATUS (*NDK_FN_CREATE_SRQ)(
    _In_ NDK_PD *pNdkPd,
    _In_ ULONG SrqDepth,
    _In_ ULONG MaxReceiveRequestSge,
    _In_ ULONG NotifyThreshold,
    _In_opt_ NDK_FN_SRQ_NOTIFICATION_CALLBACK SrqNotification,
    _In_opt_ PVOID SrqNotificationContext,
    _In_opt_ GROUP_AFFINITY *Affinity,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_SRQ **ppNdkSrq);

/*
 * NdkCreateQp: creates a queue pair on two completion queues, which may be the same one. Depths are in
 * requests, limits in entries per request, InlineDataSize in bytes. IRQL <= DISPATCH_LEVEL (NDKPI 5.3, NDKPI
 * 7.2).
 */
typedef NTSTATUS (*NDK_FN_CREATE_QP)(
    _In_ NDK_PD *pNdkPd,
    _In_ NDK_CQ *pReceiveCq,
    _In_ NDK_CQ *pInitiatorCq,
    _In_opt_ PVOID QPContext,
    _In_ ULONG ReceiveQueueDepth,
    _In_ ULONG InitiatorQueueDepth,
    _In_ ULONG MaxReceiveRequestSge,
    _In_ ULONG MaxInitiatorRequestSge,
    _In_ ULONG InlineDataSize,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_QP **ppNdkQp);

/*
 * NdkCreateQpWithSrq: creates a queue pair that takes its receives from a shared receive queue. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.3, NDKPI 7.12).
 */
typedef NTSTATUS (*NDK_FN_CREATE_QP_WITH_SRQ)(
    _In_ NDK_PD *pNdkPd,
    _In_ NDK_CQ *pReceiveCq,
    _In_ NDK_CQ *pInitiatorCq,
    _In_ NDK_SRQ *pSrq,
    _In_opt_ PVOID QPContext,
    _In_ ULONG InitiatorQueueDepth,
    _In_ ULONG MaxInitiatorRequestSge,
    _In_ ULONG InlineDataSize,
    _In_ NDK_FN_CREATE_COMPLETION CreateCompletion,
    _In_opt_ PVOID RequestContext,
    _Out_ NDK_QP **ppNdkQp);

/*
 * NdkGetPrivilegedMemoryRegionToken: stores the token with which logical addresses are used in entries;
 * immediate. IRQL <= DISPATCH_LEVEL (NDKPI 5.3, NDKPI 7.5).
 */
typedef VOID (*NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN)(
    _In_ NDK_PD *pNdkPd,
    _Out_ UINT32 *pToken);

/*
 * NdkFlush: begins to cancel everything in both queues. The requests complete with STATUS_CANCELLED. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.7, NDKPI 7.2).
 */
typedef VOID (*NDK_FN_FLUSH)(
    _In_ NDK_QP *pNdkQp);

/*
 * NdkSend: a post on the initiator queue, with flags of op_flags::SEND. IRQL <= DISPATCH_LEVEL (NDKPI 5.7).
 */
typedef NTSTATUS (*NDK_FN_SEND)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge,
    _In_ ULONG Flags);

/*
 * NdkReceive: a post on the receive queue, allowed before the connection is made. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.7).
 */
typedef NTSTATUS (*NDK_FN_RECEIVE)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge);

/*
 * NdkBind: a post on the initiator queue that makes pMw a window to Length bytes at VirtualAddress of pMr,
 * with flags of op_flags::BIND. IRQL <= DISPATCH_LEVEL (NDKPI 5.7, NDKPI 7.6).
 */
typedef NTSTATUS (*NDK_FN_BIND)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ NDK_MR *pMr,
    _In_ NDK_MW *pMw,
    _In_ PVOID VirtualAddress,
    _In_ SIZE_T Length,
    _In_ ULONG Flags);

/*
 * NdkFastRegister: a post on the initiator queue that registers pages of the adapter's address space. The
 * region is Length bytes from byte FBO of the first page on, and is addressed from BaseVirtualAddress on. The
 * flags are of op_flags::FAST_REGISTER. IRQL <= DISPATCH_LEVEL (NDKPI 5.7, NDKPI 7.4).
 */
typedef NTSTATUS (*NDK_FN_FAST_REGISTER)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ NDK_MR *pMr,
    _In_ ULONG AdapterPageCount,
    _In_ const NDK_LOGICAL_ADDRESS *AdapterPageArray,
    _In_ ULONG FBO,
    _In_ SIZE_T Length,
    _In_ PVOID BaseVirtualAddress,
    _In_ ULONG Flags);

/*
 * NdkInvalidate: a post on the initiator queue that invalidates a fast-registered region or a window, given
 * as its header, with flags of op_flags::INVALIDATE. IRQL <= DISPATCH_LEVEL (NDKPI 5.7, NDKPI 7.6).
 */
typedef NTSTATUS (*NDK_FN_INVALIDATE)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ NDK_OBJECT_HEADER *pNdkMrOrMw,
    _In_ ULONG Flags);

/*
 * NdkRead: a post on the initiator queue that reads remote memory into the entries, with flags of
 * op_flags::READ. IRQL <= DISPATCH_LEVEL (NDKPI 5.7).
 */
typedef NTSTATUS (*NDK_FN_READ)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge,
    _In_ UINT64 RemoteAddress,
    _In_ UINT32 RemoteToken,
    _In_ ULONG Flags);

/*
 * NdkWrite: a post on the initiator queue that writes the entries to remote memory, with flags of
 * op_flags::WRITE. IRQL <= DISPATCH_LEVEL (NDKPI 5.7).
 */
typedef NTSTATUS (*NDK_FN_WRITE)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge,
    _In_ UINT64 RemoteAddress,
    _In_ UINT32 RemoteToken,
    _In_ ULONG Flags);

/*
 * NdkSendAndInvalidate: a send that also invalidates a token of the peer, before the peer sees its receive;
 * from NDKPI 1.2. Unlike in a read or write the flags come before the token. IRQL <= DISPATCH_LEVEL (NDKPI
 * 5.7, NDKPI 7.6).
 */
typedef NTSTATUS (*NDK_FN_SEND_AND_INVALIDATE)(
    _In_ NDK_QP *pNdkQp,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge,
    _In_ ULONG Flags,
    _In_ UINT32 RemoteToken);

/*
 * NdkGetLocalAddress of a shared endpoint: immediate. *pAddressLength is the size of the buffer in bytes on
 * entry and the bytes written, or those needed with STATUS_BUFFER_TOO_SMALL, on return. IRQL <=
 * DISPATCH_LEVEL (NDKPI 5.9).
 */
typedef NTSTATUS (*NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS)(
    _In_ NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
    _Out_opt_ PSOCKADDR pAddress,
    _Inout_ ULONG *pAddressLength);

/*
 * NdkModifySrq: a request that changes the depth and the threshold, both in receives. 0 leaves the one or the
 * other as it is; any other threshold also arms the notification. IRQL <= DISPATCH_LEVEL (NDKPI 5.6, NDKPI
 * 7.12).
 */
typedef NTSTATUS (*NDK_FN_MODIFY_SRQ)(
    _In_ NDK_SRQ *pNdkSrq,
    _In_ ULONG SrqDepth,
    _In_ ULONG NotifyThreshold,
    _In_ NDK_FN_REQUEST_COMPLETION RequestCompletion,
    _In_opt_ PVOID RequestContext);

/*
 * NdkSrqReceive: a post for whichever queue pair of the shared queue receives next. IRQL <= DISPATCH_LEVEL
 * (NDKPI 5.6).
 */
typedef NTSTATUS (*NDK_FN_SRQ_RECEIVE)(
    _In_ NDK_SRQ *pNdkSrq,
    _In_opt_ PVOID RequestContext,
    _In_ const NDK_SGE *pSgl,
    _In_ ULONG nSge);

/*
 * The table of an adapter (NDKPI 4). The only one without a close: an adapter is closed through
 * CLOSE_NDK_ADAPTER_HANDLER.
 */
typedef struct _NDK_ADAPTER_DISPATCH {
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_QUERY_ADAPTER_INFO NdkQueryAdapterInfo; /* Tells the limits and abilities of the adapter. */
    NDK_FN_CREATE_CQ NdkCreateCq; /* Creates a completion queue. */
    NDK_FN_CREATE_PD NdkCreatePd; /* Creates a protection domain. */
    NDK_FN_CREATE_SHARED_ENDPOINT NdkCreateSharedEndpoint; /* Creates a shared endpoint. */
    NDK_FN_CREATE_CONNECTOR NdkCreateConnector; /* Creates a connector. */
    NDK_FN_CREATE_LISTENER NdkCreateListener; /* Creates a listener. */
    NDK_FN_BUILD_LAM NdkBuildLAM; /* Maps a buffer to logical addresses. */
    NDK_FN_RELEASE_LAM NdkReleaseLAM; /* Undoes a mapping. */
} NDK_ADAPTER_DISPATCH;

/* The table of a connector (NDKPI 4). */
typedef struct _NDK_CONNECTOR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseConnector; /* Closes the connector, and so aborts its connection. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_CONNECT NdkConnect; /* Connects to a remote address. */
    /* Connects to a remote address from the address of a shared endpoint. */
    NDK_FN_CONNECT_WITH_SHARED_ENDPOINT NdkConnectWithSharedEndpoint;
    NDK_FN_COMPLETE_CONNECT NdkCompleteConnect; /* Takes the last step of an outgoing connection. */
    NDK_FN_ACCEPT NdkAccept; /* Accepts an incoming connection. */
    /* Refuses an incoming connection, or gives up an outgoing one that the peer accepted. */
    NDK_FN_REJECT NdkReject;
    /* Tells the read limits and the private data of the peer. */
    NDK_FN_GET_CONNECTION_DATA NdkGetConnectionData;
    NDK_FN_GET_LOCAL_ADDRESS NdkGetLocalAddress; /* Tells the local address. */
    NDK_FN_GET_PEER_ADDRESS NdkGetPeerAddress; /* Tells the remote address. */
    NDK_FN_DISCONNECT NdkDisconnect; /* Ends the connection. */
    /* NdkCompleteConnect with a reason in the disconnect event; from NDKPI 2.1. */
    NDK_FN_COMPLETE_CONNECT_EX NdkCompleteConnectEx;
    NDK_FN_ACCEPT_EX NdkAcceptEx; /* NdkAccept with a reason in the disconnect event; from NDKPI 2.1. */
} NDK_CONNECTOR_DISPATCH;

/* The table of a completion queue (NDKPI 4). */
typedef struct _NDK_CQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseCq; /* Closes the queue. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_RESIZE_CQ NdkResizeCq; /* Changes the depth. */
    NDK_FN_ARM_CQ NdkArmCq; /* Asks for one notification. */
    NDK_FN_GET_CQ_RESULTS NdkGetCqResults; /* Removes completions. */
    /* Sets how long a notification may be put off. */
    NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NdkControlCqInterruptModeration;
    /* Removes completions and tells their kinds; from NDKPI 1.2. */
    NDK_FN_GET_CQ_RESULTS_EX NdkGetCqResultsEx;
} NDK_CQ_DISPATCH;

/* The table of a listener (NDKPI 4). */
typedef struct _NDK_LISTENER_DISPATCH {
    /* Closes the listener. It refuses connections from then on, even while the close pends. */
    NDK_FN_CLOSE_OBJECT NdkCloseListener;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_LISTEN NdkListen; /* Begins to listen. */
    NDK_FN_GET_LISTENER_LOCAL_ADDRESS NdkGetLocalAddress; /* Tells the local address. */
    NDK_FN_CONTROL_CONNECT_EVENTS NdkControlConnectEvents; /* Pauses or resumes the connect events. */
} NDK_LISTENER_DISPATCH;

/* The table of a memory region (NDKPI 4). */
typedef struct _NDK_MR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMr; /* Closes the region. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_REGISTER_MR NdkRegisterMr; /* Registers a buffer. */
    NDK_FN_DEREGISTER_MR NdkDeregisterMr; /* Undoes the registration. */
    /* Prepares the region for fast registrations. */
    NDK_FN_INITIALIZE_FAST_REGISTER_MR NdkInitializeFastRegisterMr;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MR NdkGetRemoteTokenFromMr; /* Tells the token for the peer. */
    NDK_FN_GET_LOCAL_TOKEN_FROM_MR NdkGetLocalTokenFromMr; /* Tells the token for own requests. */
} NDK_MR_DISPATCH;

/* The table of a memory window (NDKPI 4). */
typedef struct _NDK_MW_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMw; /* Closes the window. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_GET_REMOTE_TOKEN_FROM_MW NdkGetRemoteTokenFromMw; /* Tells the token for the peer. */
} NDK_MW_DISPATCH;

/* The table of a protection domain (NDKPI 4). */
typedef struct _NDK_PD_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkClosePd; /* Closes the protection domain. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_CREATE_MR NdkCreateMr; /* Creates a memory region. */
    NDK_FN_CREATE_MW NdkCreateMw; /* Creates a memory window. */
    NDK_FN_CREATE_SRQ NdkCreateSrq; /* Creates a shared receive queue. */
    NDK_FN_CREATE_QP NdkCreateQp; /* Creates a queue pair. */
    /* Creates a queue pair that takes its receives from a shared receive queue. */
    NDK_FN_CREATE_QP_WITH_SRQ NdkCreateQpWithSrq;
    /* Tells the token with which logical addresses are used. */
    NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NdkGetPrivilegedMemoryRegionToken;
} NDK_PD_DISPATCH;

/* The table of a queue pair (NDKPI 4). */
typedef struct _NDK_QP_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseQp; /* Closes the queue pair. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_FLUSH NdkFlush; /* Cancels everything that is posted. */
    NDK_FN_SEND NdkSend; /* Posts a send. */
    NDK_FN_RECEIVE NdkReceive; /* Posts a receive. */
    NDK_FN_BIND NdkBind; /* Posts the bind of a memory window. */
    NDK_FN_FAST_REGISTER NdkFastRegister; /* Posts a fast registration. */
    NDK_FN_INVALIDATE NdkInvalidate; /* Posts the invalidation of a memory region or window. */
    NDK_FN_READ NdkRead; /* Posts a read of remote memory. */
    NDK_FN_WRITE NdkWrite; /* Posts a write to remote memory. */
    /* Posts a send that invalidates a token of the peer; from NDKPI 1.2. */
    NDK_FN_SEND_AND_INVALIDATE NdkSendAndInvalidate;
} NDK_QP_DISPATCH;

/* The table of a shared endpoint (NDKPI 4). */
typedef struct _NDK_SHARED_ENDPOINT_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSharedEndpoint; /* Closes the shared endpoint. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NdkGetLocalAddress; /* Tells the local address. */
} NDK_SHARED_ENDPOINT_DISPATCH;

/* The table of a shared receive queue (NDKPI 4). */
typedef struct _NDK_SRQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSrq; /* Closes the queue. */
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension; /* Asks for an extension. */
    NDK_FN_MODIFY_SRQ NdkModifySrq; /* Changes the depth, the threshold or both. */
    NDK_FN_SRQ_RECEIVE NdkSrqReceive; /* Posts a receive. */
} NDK_SRQ_DISPATCH;

/* An adapter opened by one consumer: the parent of all its other objects (NDKPI 3.4, NDKPI 7.9). */
struct _NDK_ADAPTER {
    NDK_OBJECT_HEADER Header;
    const NDK_ADAPTER_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A completion queue (NDKPI 3.4, NDKPI 7.1). */
struct _NDK_CQ {
    NDK_OBJECT_HEADER Header;
    const NDK_CQ_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A queue pair (NDKPI 3.4, NDKPI 7.2). */
struct _NDK_QP {
    NDK_OBJECT_HEADER Header;
    const NDK_QP_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A shared receive queue (NDKPI 3.4, NDKPI 7.12). */
struct _NDK_SRQ {
    NDK_OBJECT_HEADER Header;
    const NDK_SRQ_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/*
 * A protection domain: the parent of memory regions, memory windows and queue pairs (NDKPI 3.4, NDKPI 7.9).
 */
struct _NDK_PD {
    NDK_OBJECT_HEADER Header;
    const NDK_PD_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A memory region (NDKPI 3.4, NDKPI 7.4). */
struct _NDK_MR {
    NDK_OBJECT_HEADER Header;
    const NDK_MR_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A memory window (NDKPI 3.4, NDKPI 7.6). */
struct _NDK_MW {
    NDK_OBJECT_HEADER Header;
    const NDK_MW_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A local address that several outgoing connections share (NDKPI 3.4, NDKPI 7.8). */
struct _NDK_SHARED_ENDPOINT {
    NDK_OBJECT_HEADER Header;
    const NDK_SHARED_ENDPOINT_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* One end of a connection (NDKPI 3.4, NDKPI 7.7). */
struct _NDK_CONNECTOR {
    NDK_OBJECT_HEADER Header;
    const NDK_CONNECTOR_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

/* A listener for incoming connections (NDKPI 3.4, NDKPI 7.7). */
struct _NDK_LISTENER {
    NDK_OBJECT_HEADER Header;
    const NDK_LISTENER_DISPATCH *Dispatch; /* Set by the provider; its functions. */
};

#endif
