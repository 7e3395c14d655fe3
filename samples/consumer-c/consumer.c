/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A small consumer of NDKPI: a driver of plain WDM that connects two adapters and moves bytes between them.
 *
 * DriverEntry makes a device and registers with Winsock Kernel. IOCTL_CONSUMER_RUN opens both adapters by the index of their
 * interface, connects them, makes rounds of send, write and read, and takes everything down again. IOCTL_CONSUMER_PING has one adapter
 * here and its peer on another machine (ping.c).
 *
 * Three habits keep it simple:
 * - A call of the provider that may pend has a REQUEST, and is waited for: Finish(). So a REQUEST may lie on the stack.
 * - What is opened is noted in the SIDE at once, and CloseSide() closes what is there. So there is one way out.
 * - A side waits for completions in one place, WaitForResults(), which polls, arms and waits, in this order.
 */
#include <ntddk.h>
#include <wsk.h>
#include <ndkpi.h>
#include <wskndk.h>
#include "consumer.h"

#define CONSUMER_TAG 'skdN'
#define MESSAGE_SIZE 4096
#define QUEUE_DEPTH 4
#define CAPTURE_TIMEOUT 1000 /* milliseconds */

/* The parts of a side's buffer. */
#define SEND_OFFSET 0
#define RECEIVE_OFFSET MESSAGE_SIZE
#define READ_OFFSET (2 * MESSAGE_SIZE)
#define BUFFER_SIZE (3 * MESSAGE_SIZE)

/* A call of the provider that may pend. */
typedef struct _REQUEST {
    KEVENT Done;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object; /* what was created */
} REQUEST;

/* What the passive side tells the active one when it accepts: where to write to and read from. */
typedef struct _PEER_MEMORY {
    UINT64 Address;
    UINT32 Token;
} PEER_MEMORY;

/* One of the two adapters, and what was made of it. */
typedef struct _SIDE {
    NDK_ADAPTER *Adapter;
    NDK_CQ *Cq;
    NDK_PD *Pd;
    NDK_MR *Mr;
    BOOLEAN Registered; /* the region */
    NDK_QP *Qp;
    NDK_LISTENER *Listener;   /* of the passive side */
    NDK_CONNECTOR *Connector; /* of the passive side: from the connect event, under Lock */
    ULONG Size; /* of Buffer */
    PUCHAR Buffer;
    PMDL Mdl;
    KEVENT Incoming;  /* a connection came in */
    KEVENT Completed; /* the completion queue has notified, or the connection is gone */
    KSPIN_LOCK Lock;
    NTSTATUS Failure; /* under Lock: why no more completions will come */
    ULONG Notifications;
} SIDE;

typedef struct _RUN {
    WSK_PROVIDER_NPI Wsk;
    WSK_PROVIDER_NDK_DISPATCH Ndk;
    SIDE Passive;
    SIDE Active;
    PEER_MEMORY Peer; /* of the passive side, as the active one was told */
} RUN;

/* What a control code asks for: opens adapters, and closes each one that it has opened. */
typedef NTSTATUS WORK(RUN *Run, const VOID *Input, CONSUMER_RESULT *Result);

static WSK_REGISTRATION Registration;
static const WSK_CLIENT_DISPATCH ClientDispatch = { MAKE_WSK_VERSION(1, 0), 0, NULL };

DRIVER_INITIALIZE DriverEntry;

/* ---- Requests that may pend ---- */

static VOID Begin(REQUEST *Request)
{
    KeInitializeEvent(&Request->Done, NotificationEvent, FALSE);
    Request->Status = STATUS_PENDING;
    Request->Object = NULL;
}

/* NDK_FN_REQUEST_COMPLETION: comes only for a call that returns STATUS_PENDING, maybe before it has returned. */
static VOID RequestCompletion(PVOID Context, NTSTATUS Status)
{
    REQUEST *Request = Context;

    Request->Status = Status;
    KeSetEvent(&Request->Done, IO_NO_INCREMENT, FALSE);
}

/* NDK_FN_CREATE_COMPLETION */
static VOID CreateCompletion(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    REQUEST *Request = Context;

    Request->Object = Object;
    RequestCompletion(Request, Status);
}

/* NDK_FN_CLOSE_COMPLETION */
static VOID CloseCompletion(PVOID Context)
{
    RequestCompletion(Context, STATUS_SUCCESS);
}

/* The outcome of a call that returned Status. IRQL: PASSIVE_LEVEL. */
static NTSTATUS Finish(REQUEST *Request, NTSTATUS Status)
{
    if (Status != STATUS_PENDING)
        return Status;
    KeWaitForSingleObject(&Request->Done, Executive, KernelMode, FALSE, NULL);
    return Request->Status;
}

static VOID Close(NDK_OBJECT_HEADER *Object, NDK_FN_CLOSE_OBJECT CloseObject)
{
    REQUEST Request;

    Begin(&Request);
    (VOID)Finish(&Request, CloseObject(Object, CloseCompletion, &Request));
}

/* ---- Events ---- */

/* NDK_FN_CQ_NOTIFICATION_CALLBACK. Two of one queue never run at the same time. */
static VOID CqNotification(PVOID Context, NTSTATUS Status)
{
    SIDE *Side = Context;
    KIRQL Irql;

    KeAcquireSpinLock(&Side->Lock, &Irql);
    Side->Notifications++;
    if (!NT_SUCCESS(Status))
        Side->Failure = Status;
    KeReleaseSpinLock(&Side->Lock, Irql);
    KeSetEvent(&Side->Completed, IO_NO_INCREMENT, FALSE);
}

/* NDK_FN_DISCONNECT_EVENT_CALLBACK: what is posted need not complete any more. */
static VOID DisconnectEvent(PVOID Context)
{
    SIDE *Side = Context;
    KIRQL Irql;

    KeAcquireSpinLock(&Side->Lock, &Irql);
    Side->Failure = STATUS_CONNECTION_DISCONNECTED;
    KeReleaseSpinLock(&Side->Lock, Irql);
    KeSetEvent(&Side->Completed, IO_NO_INCREMENT, FALSE);
}

/* NDK_FN_CLOSE_COMPLETION of a connector that nobody wants. */
static VOID RefusalCompletion(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
}

/* NDK_FN_CONNECT_EVENT_CALLBACK: the connector is ours from now on. One is wanted; to close another is to reject it. */
static VOID ConnectEvent(PVOID Context, NDK_CONNECTOR *Connector)
{
    SIDE *Side = Context;
    BOOLEAN Wanted;
    KIRQL Irql;

    KeAcquireSpinLock(&Side->Lock, &Irql);
    Wanted = Side->Connector == NULL;
    if (Wanted)
        Side->Connector = Connector;
    KeReleaseSpinLock(&Side->Lock, Irql);

    if (Wanted)
        KeSetEvent(&Side->Incoming, IO_NO_INCREMENT, FALSE);
    else
        (VOID)Connector->Dispatch->NdkCloseConnector(&Connector->Header, RefusalCompletion, NULL);
}

/* ---- A side, from its adapter to its queue pair ---- */

static NTSTATUS RegisterBuffer(SIDE *Side)
{
    const ULONG Rights = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE |
                         NDK_MR_FLAG_RDMA_READ_SINK;
    REQUEST Request;
    NTSTATUS Status;

    Side->Buffer = ExAllocatePool2(POOL_FLAG_NON_PAGED, Side->Size, CONSUMER_TAG);
    if (Side->Buffer == NULL)
        return STATUS_INSUFFICIENT_RESOURCES;
    Side->Mdl = IoAllocateMdl(Side->Buffer, Side->Size, FALSE, FALSE, NULL);
    if (Side->Mdl == NULL)
        return STATUS_INSUFFICIENT_RESOURCES;
    MmBuildMdlForNonPagedPool(Side->Mdl);

    Begin(&Request);
    Status = Finish(&Request, Side->Mr->Dispatch->NdkRegisterMr(
                                  Side->Mr, Side->Mdl, Side->Size, Rights, RequestCompletion, &Request));
    Side->Registered = NT_SUCCESS(Status);
    return Status;
}

static NTSTATUS OpenSide(RUN *Run, SIDE *Side, ULONG IfIndex)
{
    const NDK_VERSION Version = { 1, 2 };
    REQUEST Request;
    NTSTATUS Status;

    Status = Run->Ndk.WskOpenNdkAdapter(Run->Wsk.Client, Version, IfIndex, &Side->Adapter);
    if (!NT_SUCCESS(Status)) {
        Side->Adapter = NULL;
        return Status;
    }

    Begin(&Request);
    Status = Finish(&Request, Side->Adapter->Dispatch->NdkCreateCq(
                                  Side->Adapter, 2 * QUEUE_DEPTH, CqNotification, Side, NULL, CreateCompletion, &Request,
                                  (NDK_CQ **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Side->Cq = CONTAINING_RECORD(Request.Object, NDK_CQ, Header);

    Begin(&Request);
    Status = Finish(&Request, Side->Adapter->Dispatch->NdkCreatePd(
                                  Side->Adapter, CreateCompletion, &Request, (NDK_PD **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Side->Pd = CONTAINING_RECORD(Request.Object, NDK_PD, Header);

    Begin(&Request);
    Status = Finish(&Request, Side->Pd->Dispatch->NdkCreateMr(
                                  Side->Pd, FALSE, CreateCompletion, &Request, (NDK_MR **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Side->Mr = CONTAINING_RECORD(Request.Object, NDK_MR, Header);

    Status = RegisterBuffer(Side);
    if (!NT_SUCCESS(Status))
        return Status;

    Begin(&Request);
    Status = Finish(&Request, Side->Pd->Dispatch->NdkCreateQp(
                                  Side->Pd, Side->Cq, Side->Cq, Side, QUEUE_DEPTH, QUEUE_DEPTH, 1, 1, 0, CreateCompletion,
                                  &Request, (NDK_QP **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Side->Qp = CONTAINING_RECORD(Request.Object, NDK_QP, Header);
    return STATUS_SUCCESS;
}

/*
 * Successors before antecedents: connector, listener, queue pair, region, completion queue, protection domain, adapter, and then the
 * memory. A listener refuses connections from its close on, which ends with the close of its last connector: so it is begun first
 * and waited for behind that. The close of a queue pair flushes it, so the provider does not touch the buffer after that.
 */
static VOID CloseSide(RUN *Run, SIDE *Side)
{
    NTSTATUS Status = STATUS_SUCCESS;
    REQUEST Request, Closing;

    Begin(&Closing);
    if (Side->Listener != NULL)
        Status = Side->Listener->Dispatch->NdkCloseListener(&Side->Listener->Header, CloseCompletion, &Closing);
    if (Side->Connector != NULL)
        Close(&Side->Connector->Header, Side->Connector->Dispatch->NdkCloseConnector);
    (VOID)Finish(&Closing, Status);
    if (Side->Qp != NULL)
        Close(&Side->Qp->Header, Side->Qp->Dispatch->NdkCloseQp);
    if (Side->Registered) {
        Begin(&Request);
        (VOID)Finish(&Request, Side->Mr->Dispatch->NdkDeregisterMr(Side->Mr, RequestCompletion, &Request));
    }
    if (Side->Mr != NULL)
        Close(&Side->Mr->Header, Side->Mr->Dispatch->NdkCloseMr);
    if (Side->Cq != NULL)
        Close(&Side->Cq->Header, Side->Cq->Dispatch->NdkCloseCq);
    if (Side->Pd != NULL)
        Close(&Side->Pd->Header, Side->Pd->Dispatch->NdkClosePd);
    if (Side->Adapter != NULL)
        Run->Ndk.WskCloseNdkAdapter(Run->Wsk.Client, Side->Adapter);
    if (Side->Mdl != NULL)
        IoFreeMdl(Side->Mdl);
    if (Side->Buffer != NULL)
        ExFreePoolWithTag(Side->Buffer, CONSUMER_TAG);
}

/* ---- The connection ---- */

static ULONG AddressLength(const SOCKADDR_INET *Address)
{
    return Address->si_family == AF_INET6 ? sizeof(SOCKADDR_IN6) : sizeof(SOCKADDR_IN);
}

static NTSTATUS Listen(SIDE *Side, SOCKADDR_INET *Address)
{
    REQUEST Request;
    NTSTATUS Status;

    Begin(&Request);
    Status = Finish(&Request, Side->Adapter->Dispatch->NdkCreateListener(
                                  Side->Adapter, ConnectEvent, Side, CreateCompletion, &Request,
                                  (NDK_LISTENER **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Side->Listener = CONTAINING_RECORD(Request.Object, NDK_LISTENER, Header);

    Begin(&Request);
    return Finish(&Request, Side->Listener->Dispatch->NdkListen(
                                Side->Listener, (PSOCKADDR)Address, AddressLength(Address), RequestCompletion, &Request));
}

/*
 * Connect cannot complete before Accept is posted, and Accept not before CompleteConnect. So both are begun before one of them is
 * waited for, and whatever fails in between, both are waited for: closing a connector ends what is pending on the other one.
 */
static NTSTATUS Connect(RUN *Run, const CONSUMER_RUN *Input)
{
    SIDE *Passive = &Run->Passive, *Active = &Run->Active;
    SOCKADDR_INET To = Input->PassiveAddress, From = Input->ActiveAddress;
    LARGE_INTEGER Timeout = { .QuadPart = -10LL * 1000 * 1000 }; /* one second */
    PEER_MEMORY Memory = { (ULONG_PTR)Passive->Buffer, Passive->Mr->Dispatch->NdkGetRemoteTokenFromMr(Passive->Mr) };
    REQUEST Request, Connecting, Accepting;
    PVOID Either[] = { &Passive->Incoming, &Connecting.Done };
    NTSTATUS Status, Connected, Accepted;
    ULONG Length = sizeof(Run->Peer);

    Begin(&Request);
    Status = Finish(&Request, Active->Adapter->Dispatch->NdkCreateConnector(
                                  Active->Adapter, CreateCompletion, &Request, (NDK_CONNECTOR **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Active->Connector = CONTAINING_RECORD(Request.Object, NDK_CONNECTOR, Header);

    Begin(&Connecting);
    Begin(&Accepting);
    Connected = Active->Connector->Dispatch->NdkConnect(
        Active->Connector, Active->Qp, (PSOCKADDR)&From, AddressLength(&From), (PSOCKADDR)&To, AddressLength(&To), 1, 1, NULL, 0,
        RequestCompletion, &Connecting);
    if (!NT_SUCCESS(Connected))
        return Connected;

    /* It comes in, or has failed before that. */
    Status = KeWaitForMultipleObjects(2, Either, WaitAny, Executive, KernelMode, FALSE, &Timeout, NULL);
    Accepted = Status == STATUS_WAIT_1 ? Connecting.Status : STATUS_IO_TIMEOUT;
    if (Status == STATUS_WAIT_0)
        Accepted = Passive->Connector->Dispatch->NdkAccept(
            Passive->Connector, Passive->Qp, 1, 1, &Memory, sizeof(Memory), DisconnectEvent, Passive, RequestCompletion,
            &Accepting);
    if (!NT_SUCCESS(Accepted)) {
        Close(&Active->Connector->Header, Active->Connector->Dispatch->NdkCloseConnector);
        Active->Connector = NULL;
        (VOID)Finish(&Connecting, Connected);
        return Accepted;
    }

    Status = Finish(&Connecting, Connected);
    if (NT_SUCCESS(Status)) {
        Status = Active->Connector->Dispatch->NdkGetConnectionData(Active->Connector, NULL, NULL, &Run->Peer, &Length);
        /* What the provider has room for may be more than what the peer sent. */
        if (Status == STATUS_BUFFER_TOO_SMALL)
            Status = STATUS_SUCCESS;
    }
    if (NT_SUCCESS(Status)) {
        Begin(&Request);
        Status = Finish(&Request, Active->Connector->Dispatch->NdkCompleteConnect(
                                      Active->Connector, DisconnectEvent, Active, RequestCompletion, &Request));
    }
    if (!NT_SUCCESS(Status)) {
        Close(&Active->Connector->Header, Active->Connector->Dispatch->NdkCloseConnector);
        Active->Connector = NULL;
    }
    Accepted = Finish(&Accepting, Accepted);
    return NT_SUCCESS(Status) ? Accepted : Status;
}

/* A disconnect completes when the peer has disconnected too. So both are begun before one of them is waited for. */
static VOID Disconnect(NDK_CONNECTOR *One, NDK_CONNECTOR *Other)
{
    REQUEST Requests[2];
    NTSTATUS Statuses[2];

    Begin(&Requests[0]);
    Begin(&Requests[1]);
    Statuses[0] = One->Dispatch->NdkDisconnect(One, RequestCompletion, &Requests[0]);
    Statuses[1] = Other->Dispatch->NdkDisconnect(Other, RequestCompletion, &Requests[1]);
    (VOID)Finish(&Requests[0], Statuses[0]);
    (VOID)Finish(&Requests[1], Statuses[1]);
}

/* ---- Work requests ---- */

static NDK_SGE Piece(SIDE *Side, ULONG Offset)
{
    NDK_SGE Sge;

    Sge.VirtualAddress = Side->Buffer + Offset;
    Sge.Length = MESSAGE_SIZE;
    Sge.MemoryRegionToken = Side->Mr->Dispatch->NdkGetLocalTokenFromMr(Side->Mr);
    return Sge;
}

static NTSTATUS FailureOf(SIDE *Side)
{
    NTSTATUS Failure;
    KIRQL Irql;

    KeAcquireSpinLock(&Side->Lock, &Irql);
    Failure = Side->Failure;
    KeReleaseSpinLock(&Side->Lock, Irql);
    return Failure;
}

/*
 * Waits until Wanted requests of the side are complete. An arm is for one notification, and the queue is empty when it is armed: what
 * comes between the poll and the arm satisfies the arm at once.
 */
static NTSTATUS WaitForResults(SIDE *Side, ULONG Wanted)
{
    NTSTATUS Status = STATUS_SUCCESS;
    NDK_RESULT Result;

    while (Wanted > 0) {
        if (Side->Cq->Dispatch->NdkGetCqResults(Side->Cq, &Result, 1) == 1) {
            if (NT_SUCCESS(Status))
                Status = Result.Status;
            Wanted--;
            continue;
        }
        if (!NT_SUCCESS(FailureOf(Side)))
            return FailureOf(Side);
        Side->Cq->Dispatch->NdkArmCq(Side->Cq, NDK_CQ_NOTIFY_ANY);
        KeWaitForSingleObject(&Side->Completed, Executive, KernelMode, FALSE, NULL);
    }
    return Status;
}

static BOOLEAN IsFilled(const UCHAR *Bytes, UCHAR Value)
{
    ULONG Index;

    for (Index = 0; Index < MESSAGE_SIZE; Index++)
        if (Bytes[Index] != Value)
            return FALSE;
    return TRUE;
}

/* A send, a write over what was received, and a read of that. */
static NTSTATUS Round(RUN *Run, UCHAR Value)
{
    SIDE *Passive = &Run->Passive, *Active = &Run->Active;
    NDK_QP *Qp = Active->Qp;
    NDK_SGE Receive = Piece(Passive, RECEIVE_OFFSET), Send = Piece(Active, SEND_OFFSET), Read = Piece(Active, READ_OFFSET);
    const UINT64 Remote = Run->Peer.Address + RECEIVE_OFFSET;
    NTSTATUS Status;

    RtlFillMemory(Active->Buffer + SEND_OFFSET, MESSAGE_SIZE, Value);
    Status = Passive->Qp->Dispatch->NdkReceive(Passive->Qp, NULL, &Receive, 1);
    if (!NT_SUCCESS(Status))
        return Status;
    Status = Qp->Dispatch->NdkSend(Qp, NULL, &Send, 1, 0);
    if (!NT_SUCCESS(Status))
        return Status;
    Status = WaitForResults(Active, 1);
    if (NT_SUCCESS(Status))
        Status = WaitForResults(Passive, 1);
    if (!NT_SUCCESS(Status))
        return Status;
    if (!IsFilled(Passive->Buffer + RECEIVE_OFFSET, Value))
        return STATUS_DATA_ERROR;

    RtlFillMemory(Active->Buffer + SEND_OFFSET, MESSAGE_SIZE, (UCHAR)~Value);
    Status = Qp->Dispatch->NdkWrite(Qp, NULL, &Send, 1, Remote, Run->Peer.Token, 0);
    if (!NT_SUCCESS(Status))
        return Status;
    /* Behind the write in the same queue, so it reads what was written. */
    Status = Qp->Dispatch->NdkRead(Qp, NULL, &Read, 1, Remote, Run->Peer.Token, 0);
    if (NT_SUCCESS(Status))
        Status = WaitForResults(Active, 2);
    else
        (VOID)WaitForResults(Active, 1);
    if (!NT_SUCCESS(Status))
        return Status;
    return IsFilled(Active->Buffer + READ_OFFSET, (UCHAR)~Value) ? STATUS_SUCCESS : STATUS_DATA_ERROR;
}

/* ---- A run ---- */

static VOID InitializeSide(SIDE *Side)
{
    Side->Size = BUFFER_SIZE;
    KeInitializeEvent(&Side->Incoming, SynchronizationEvent, FALSE);
    KeInitializeEvent(&Side->Completed, SynchronizationEvent, FALSE);
    KeInitializeSpinLock(&Side->Lock);
}

/* One translation unit: what the two files share stays static, so that several variants of the sample can be linked into one program. */
#include "ping.c"

static NTSTATUS RunOnAdapters(RUN *Run, const VOID *What, CONSUMER_RESULT *Result)
{
    const CONSUMER_RUN *Input = What;
    SOCKADDR_INET ListenAddress = Input->PassiveAddress;
    NTSTATUS Status;

    Status = OpenSide(Run, &Run->Passive, Input->PassiveIfIndex);
    if (NT_SUCCESS(Status))
        Status = OpenSide(Run, &Run->Active, Input->ActiveIfIndex);
    if (NT_SUCCESS(Status))
        Status = Listen(&Run->Passive, &ListenAddress);
    if (NT_SUCCESS(Status))
        Status = Connect(Run, Input);
    while (NT_SUCCESS(Status) && Result->Rounds < Input->Rounds) {
        Status = Round(Run, (UCHAR)Result->Rounds);
        if (NT_SUCCESS(Status)) {
            Result->Rounds++;
            Result->Bytes += 3 * MESSAGE_SIZE;
        }
    }
    if (NT_SUCCESS(Status))
        Disconnect(Run->Active.Connector, Run->Passive.Connector);
    CloseSide(Run, &Run->Active);
    CloseSide(Run, &Run->Passive);
    Result->Notifications = Run->Passive.Notifications + Run->Active.Notifications;
    return Status;
}

static NTSTATUS RunOnce(WORK *Work, const VOID *Input, CONSUMER_RESULT *Result)
{
    NTSTATUS Status;
    RUN *Run;

    RtlZeroMemory(Result, sizeof(*Result));
    Run = ExAllocatePool2(POOL_FLAG_NON_PAGED, sizeof(*Run), CONSUMER_TAG);
    if (Run == NULL)
        return STATUS_INSUFFICIENT_RESOURCES;
    InitializeSide(&Run->Passive);
    InitializeSide(&Run->Active);

    Status = WskCaptureProviderNPI(&Registration, CAPTURE_TIMEOUT, &Run->Wsk);
    if (NT_SUCCESS(Status)) {
        Status = Run->Wsk.Dispatch->WskControlClient(Run->Wsk.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0, NULL,
                                                     sizeof(Run->Ndk), &Run->Ndk, NULL, NULL);
        if (NT_SUCCESS(Status))
            Status = Work(Run, Input, Result);
        /* Every adapter is closed by now. */
        WskReleaseProviderNPI(&Registration);
    }
    ExFreePoolWithTag(Run, CONSUMER_TAG);
    return Status;
}

/* ---- The driver ---- */

static NTSTATUS Complete(PIRP Irp, NTSTATUS Status, ULONG_PTR Information)
{
    Irp->IoStatus.Status = Status;
    Irp->IoStatus.Information = Information;
    IoCompleteRequest(Irp, IO_NO_INCREMENT);
    return Status;
}

static NTSTATUS NTAPI CreateClose(PDEVICE_OBJECT DeviceObject, PIRP Irp)
{
    UNREFERENCED_PARAMETER(DeviceObject);
    return Complete(Irp, STATUS_SUCCESS, 0);
}

static NTSTATUS NTAPI DeviceControl(PDEVICE_OBJECT DeviceObject, PIRP Irp)
{
    PIO_STACK_LOCATION Location = IoGetCurrentIrpStackLocation(Irp);
    union {
        CONSUMER_RUN Run;
        CONSUMER_PING Ping;
    } Input;
    CONSUMER_RESULT Result;
    NTSTATUS Status;
    WORK *Work;
    ULONG Size;

    UNREFERENCED_PARAMETER(DeviceObject);
    switch (Location->Parameters.DeviceIoControl.IoControlCode) {
    case IOCTL_CONSUMER_RUN:
        Work = RunOnAdapters;
        Size = sizeof(Input.Run);
        break;
    case IOCTL_CONSUMER_PING:
        Work = RunPings;
        Size = sizeof(Input.Ping);
        break;
    default:
        return Complete(Irp, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
    if (Location->Parameters.DeviceIoControl.InputBufferLength < Size ||
        Location->Parameters.DeviceIoControl.OutputBufferLength < sizeof(Result))
        return Complete(Irp, STATUS_BUFFER_TOO_SMALL, 0);
    /* Input and output share the buffer. */
    RtlCopyMemory(&Input, Irp->AssociatedIrp.SystemBuffer, Size);
    Status = RunOnce(Work, &Input, &Result);
    if (!NT_SUCCESS(Status))
        return Complete(Irp, Status, 0);
    RtlCopyMemory(Irp->AssociatedIrp.SystemBuffer, &Result, sizeof(Result));
    return Complete(Irp, STATUS_SUCCESS, sizeof(Result));
}

static VOID NTAPI Unload(PDRIVER_OBJECT DriverObject)
{
    UNICODE_STRING Link;

    RtlInitUnicodeString(&Link, CONSUMER_LINK_NAME);
    IoDeleteSymbolicLink(&Link);
    WskDeregister(&Registration);
    IoDeleteDevice(DriverObject->DeviceObject);
}

NTSTATUS NTAPI DriverEntry(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath)
{
    WSK_CLIENT_NPI Client = { NULL, &ClientDispatch };
    UNICODE_STRING Name, Link;
    PDEVICE_OBJECT Device;
    NTSTATUS Status;

    UNREFERENCED_PARAMETER(RegistryPath);
    RtlInitUnicodeString(&Name, CONSUMER_DEVICE_NAME);
    RtlInitUnicodeString(&Link, CONSUMER_LINK_NAME);
    Status = IoCreateDevice(DriverObject, 0, &Name, FILE_DEVICE_UNKNOWN, FILE_DEVICE_SECURE_OPEN, FALSE, &Device);
    if (!NT_SUCCESS(Status))
        return Status;
    Status = WskRegister(&Client, &Registration);
    if (!NT_SUCCESS(Status)) {
        IoDeleteDevice(Device);
        return Status;
    }
    Status = IoCreateSymbolicLink(&Link, &Name);
    if (!NT_SUCCESS(Status)) {
        WskDeregister(&Registration);
        IoDeleteDevice(Device);
        return Status;
    }
    DriverObject->DriverUnload = Unload;
    DriverObject->MajorFunction[IRP_MJ_CREATE] = CreateClose;
    DriverObject->MajorFunction[IRP_MJ_CLOSE] = CreateClose;
    DriverObject->MajorFunction[IRP_MJ_DEVICE_CONTROL] = DeviceControl;
    return STATUS_SUCCESS;
}
