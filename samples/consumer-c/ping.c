/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A part of consumer.c: one side here, the other one on another machine. They talk as rping of Linux' librdmacm does.
 *
 * The client sends the address, the key and the size of a buffer; the server reads it, and says so. Then the client sends those of a second
 * one; the server writes there what it has read, and says so. The client compares. Numbers are big-endian, and each message has 16 bytes.
 *
 * Nobody here can know whether the peer still lives, so every wait has an end: PATIENCE.
 */

/* The parts of the buffer: a message to send, one that came, the bytes of a ping, and what came back of them. */
#define OUT_OFFSET 0
#define IN_OFFSET 64
#define PING_OFFSET 128

#define PATIENCE (-30LL * 10 * 1000 * 1000) /* 30 seconds */
#define MOMENT (-2LL * 100 * 10 * 1000)     /* 200 milliseconds */
#define PAUSE (-25LL * 10 * 10 * 1000)      /* 250 milliseconds, until a peer that is not there is asked again */
#define PAUSES_PER_SECOND 4

/* What a client tells of its buffer; a server's word that it has read or written has the same size, and its content does not matter. */
typedef struct _PING_MESSAGE {
    UINT64 Address;
    UINT32 Token;
    UINT32 Size;
} PING_MESSAGE;

/* The context of a request: what has completed. Results of one queue come in the order of their queue pair's two queues only. */
typedef enum _PING_KIND { PingSend, PingReceive, PingMove, PingKinds } PING_KIND;

typedef struct _PINGS {
    SIDE *Side;
    const CONSUMER_PING *Input;
    ULONG Came[PingKinds]; /* completions that nobody has waited for yet */
} PINGS;

static UINT32 Swap32(UINT32 Value)
{
    return Value << 24 | (Value & 0xFF00) << 8 | (Value >> 8 & 0xFF00) | Value >> 24;
}

static UINT64 Swap64(UINT64 Value)
{
    return (UINT64)Swap32((UINT32)Value) << 32 | Swap32((UINT32)(Value >> 32));
}

static NDK_SGE PingPiece(PINGS *Pings, ULONG Offset, ULONG Length)
{
    SIDE *Side = Pings->Side;
    NDK_SGE Sge;

    Sge.VirtualAddress = Side->Buffer + Offset;
    Sge.Length = Length;
    Sge.MemoryRegionToken = Side->Mr->Dispatch->NdkGetLocalTokenFromMr(Side->Mr);
    return Sge;
}

/* Waits until one more request of that kind is complete: WaitForResults() for requests of several kinds, and a peer that may be dead. */
static NTSTATUS Await(PINGS *Pings, PING_KIND Kind)
{
    LARGE_INTEGER Patience = { .QuadPart = PATIENCE };
    SIDE *Side = Pings->Side;
    NDK_RESULT Result;

    while (Pings->Came[Kind] == 0) {
        if (Side->Cq->Dispatch->NdkGetCqResults(Side->Cq, &Result, 1) == 1) {
            if (!NT_SUCCESS(Result.Status))
                return Result.Status;
            Pings->Came[(ULONG_PTR)Result.RequestContext]++;
            continue;
        }
        if (!NT_SUCCESS(FailureOf(Side)))
            return FailureOf(Side);
        Side->Cq->Dispatch->NdkArmCq(Side->Cq, NDK_CQ_NOTIFY_ANY);
        if (KeWaitForSingleObject(&Side->Completed, Executive, KernelMode, FALSE, &Patience) == STATUS_TIMEOUT)
            return STATUS_IO_TIMEOUT;
    }
    Pings->Came[Kind]--;
    return STATUS_SUCCESS;
}

/* Waits until the connection has ended, or the time is over. The event of its end may come behind completions that tell of it. */
static BOOLEAN WaitForTheEnd(SIDE *Side, LONGLONG Time)
{
    LARGE_INTEGER Patience = { .QuadPart = Time };

    while (NT_SUCCESS(FailureOf(Side)))
        if (KeWaitForSingleObject(&Side->Completed, Executive, KernelMode, FALSE, &Patience) == STATUS_TIMEOUT)
            return FALSE;
    return TRUE;
}

/* Room for the peer's next message. It is there before the peer is told anything that has it send one. */
static NTSTATUS PostMessageRoom(PINGS *Pings)
{
    NDK_QP *Qp = Pings->Side->Qp;
    NDK_SGE Sge = PingPiece(Pings, IN_OFFSET, sizeof(PING_MESSAGE));

    return Qp->Dispatch->NdkReceive(Qp, (PVOID)PingReceive, &Sge, 1);
}

static NTSTATUS Tell(PINGS *Pings, const PING_MESSAGE *Message)
{
    NDK_QP *Qp = Pings->Side->Qp;
    NDK_SGE Sge = PingPiece(Pings, OUT_OFFSET, sizeof(*Message));

    RtlCopyMemory(Pings->Side->Buffer + OUT_OFFSET, Message, sizeof(*Message));
    return Qp->Dispatch->NdkSend(Qp, (PVOID)PingSend, &Sge, 1, 0);
}

/* Tells where the bytes at Offset are, and waits for the peer's word that it has read or written them. */
static NTSTATUS Offer(PINGS *Pings, ULONG Offset)
{
    SIDE *Side = Pings->Side;
    PING_MESSAGE Message;
    NTSTATUS Status;

    Message.Address = Swap64((ULONG_PTR)(Side->Buffer + Offset));
    Message.Token = Swap32(Side->Mr->Dispatch->NdkGetRemoteTokenFromMr(Side->Mr));
    Message.Size = Swap32(Pings->Input->Size);
    Status = PostMessageRoom(Pings);
    if (NT_SUCCESS(Status))
        Status = Tell(Pings, &Message);
    if (NT_SUCCESS(Status))
        Status = Await(Pings, PingSend);
    return NT_SUCCESS(Status) ? Await(Pings, PingReceive) : Status;
}

/* The byte at Index of a ping. rping's are letters, and the last one ends a string. */
static UCHAR PingByte(ULONG Ping, ULONG Index, ULONG Size)
{
    return Index + 1 == Size ? 0 : (UCHAR)('A' + (Index + Ping) % 58);
}

/* One ping of a client. */
static NTSTATUS Ping(PINGS *Pings, ULONG Number)
{
    const ULONG Size = Pings->Input->Size, Back = PING_OFFSET + Size;
    PUCHAR Bytes = Pings->Side->Buffer;
    NTSTATUS Status;
    ULONG Index;

    for (Index = 0; Index < Size; Index++)
        Bytes[PING_OFFSET + Index] = PingByte(Number, Index, Size);
    RtlFillMemory(Bytes + Back, Size, 0xEE);
    Status = Offer(Pings, PING_OFFSET);
    if (NT_SUCCESS(Status))
        Status = Offer(Pings, Back);
    if (!NT_SUCCESS(Status))
        return Status;
    for (Index = 0; Index < Size; Index++)
        if (Bytes[Back + Index] != PingByte(Number, Index, Size))
            return STATUS_DATA_ERROR;
    return STATUS_SUCCESS;
}

/* Waits for where the client's bytes are, and has room for what it says next. */
static NTSTATUS TakeOffer(PINGS *Pings, PING_MESSAGE *Message)
{
    NTSTATUS Status = Await(Pings, PingReceive);

    if (!NT_SUCCESS(Status))
        return Status;
    RtlCopyMemory(Message, Pings->Side->Buffer + IN_OFFSET, sizeof(*Message));
    Message->Address = Swap64(Message->Address);
    Message->Token = Swap32(Message->Token);
    Message->Size = Swap32(Message->Size);
    if (Message->Size != Pings->Input->Size)
        return STATUS_INVALID_BUFFER_SIZE;
    return PostMessageRoom(Pings);
}

/* Answers one ping. A client that has gone when it had the last word has lost nothing: whether that was acknowledged does not matter. */
static NTSTATUS Answer(PINGS *Pings, BOOLEAN IsLast)
{
    const PING_MESSAGE Word = { 0, 0, 0 };
    NDK_SGE Sge = PingPiece(Pings, PING_OFFSET, Pings->Input->Size);
    NDK_QP *Qp = Pings->Side->Qp;
    PING_MESSAGE Source, Sink;
    NTSTATUS Status;

    Status = TakeOffer(Pings, &Source);
    if (NT_SUCCESS(Status))
        Status = Qp->Dispatch->NdkRead(Qp, (PVOID)PingMove, &Sge, 1, Source.Address, Source.Token, 0);
    if (NT_SUCCESS(Status))
        Status = Await(Pings, PingMove);
    if (NT_SUCCESS(Status))
        Status = Tell(Pings, &Word);
    if (NT_SUCCESS(Status))
        Status = Await(Pings, PingSend);
    if (NT_SUCCESS(Status))
        Status = TakeOffer(Pings, &Sink);
    if (NT_SUCCESS(Status))
        Status = Qp->Dispatch->NdkWrite(Qp, (PVOID)PingMove, &Sge, 1, Sink.Address, Sink.Token, 0);
    if (NT_SUCCESS(Status))
        Status = Await(Pings, PingMove);
    if (NT_SUCCESS(Status))
        Status = Tell(Pings, &Word);
    if (!NT_SUCCESS(Status))
        return Status;
    Status = Await(Pings, PingSend);
    return !NT_SUCCESS(Status) && IsLast && WaitForTheEnd(Pings->Side, MOMENT) ? STATUS_SUCCESS : Status;
}

/* ---- The connection ---- */

/* Asks the peer once. */
static NTSTATUS ConnectToPeer(PINGS *Pings)
{
    const CONSUMER_PING *Input = Pings->Input;
    SOCKADDR_INET From = Input->Address, To = Input->Peer;
    SIDE *Side = Pings->Side;
    NDK_CONNECTOR *Connector;
    REQUEST Request;
    NTSTATUS Status;

    Begin(&Request);
    Status = Finish(&Request, Side->Adapter->Dispatch->NdkCreateConnector(
                                  Side->Adapter, CreateCompletion, &Request, (NDK_CONNECTOR **)&Request.Object));
    if (!NT_SUCCESS(Status))
        return Status;
    Connector = Side->Connector = CONTAINING_RECORD(Request.Object, NDK_CONNECTOR, Header);
    Begin(&Request);
    Status = Finish(&Request, Connector->Dispatch->NdkConnect(
                                  Connector, Side->Qp, (PSOCKADDR)&From, AddressLength(&From), (PSOCKADDR)&To, AddressLength(&To), 1, 1,
                                  NULL, 0, RequestCompletion, &Request));
    if (!NT_SUCCESS(Status))
        return Status;
    Begin(&Request);
    return Finish(&Request, Connector->Dispatch->NdkCompleteConnect(Connector, DisconnectEvent, Side, RequestCompletion, &Request));
}

/* Waits for a connection, and takes it. What the client says first has room before it can say it. */
static NTSTATUS AcceptPeer(PINGS *Pings)
{
    LARGE_INTEGER Patience = { .QuadPart = -10LL * 1000 * 1000 * Pings->Input->Seconds };
    SOCKADDR_INET Address = Pings->Input->Address;
    SIDE *Side = Pings->Side;
    REQUEST Request;
    NTSTATUS Status;

    Status = Listen(Side, &Address);
    if (NT_SUCCESS(Status))
        Status = PostMessageRoom(Pings);
    if (!NT_SUCCESS(Status))
        return Status;
    if (KeWaitForSingleObject(&Side->Incoming, Executive, KernelMode, FALSE, &Patience) == STATUS_TIMEOUT)
        return STATUS_IO_TIMEOUT;
    Begin(&Request);
    return Finish(&Request, Side->Connector->Dispatch->NdkAccept(
                                Side->Connector, Side->Qp, 1, 1, NULL, 0, DisconnectEvent, Side, RequestCompletion, &Request));
}

/*
 * A client ends the connection, a server waits for that: what it has said last may still be on its way. A message of the connection
 * manager that says so can be lost, so the server does not wait for ever.
 */
static VOID EndConnection(PINGS *Pings)
{
    SIDE *Side = Pings->Side;
    REQUEST Request;

    if (Pings->Input->Serves)
        (VOID)WaitForTheEnd(Side, PATIENCE);
    Begin(&Request);
    (VOID)Finish(&Request, Side->Connector->Dispatch->NdkDisconnect(Side->Connector, RequestCompletion, &Request));
}

static VOID InitializePingSide(PINGS *Pings)
{
    InitializeSide(Pings->Side);
    Pings->Side->Size = PING_OFFSET + 2 * Pings->Input->Size;
}

/* Whether a peer may not be there yet that gives this answer, or none. */
static BOOLEAN MayComeLater(NTSTATUS Status)
{
    return Status == STATUS_CONNECTION_REFUSED || Status == STATUS_HOST_UNREACHABLE || Status == STATUS_IO_TIMEOUT;
}

/* Opens one adapter, and connects it. A client asks again while the peer may come. */
static NTSTATUS OpenToPeer(RUN *Run, PINGS *Pings)
{
    LARGE_INTEGER Pause = { .QuadPart = PAUSE };
    const CONSUMER_PING *Input = Pings->Input;
    ULONG Pauses = 0;
    NTSTATUS Status;

    for (;;) {
        Status = OpenSide(Run, Pings->Side, Input->IfIndex);
        if (!NT_SUCCESS(Status))
            return Status;
        if (Input->Serves)
            return AcceptPeer(Pings);
        Status = ConnectToPeer(Pings);
        if (!MayComeLater(Status) || Pauses++ / PAUSES_PER_SECOND >= Input->Seconds)
            return Status;
        /* Everything anew: a queue pair belongs to one try. */
        CloseSide(Run, Pings->Side);
        RtlZeroMemory(Pings->Side, sizeof(*Pings->Side));
        InitializePingSide(Pings);
        KeDelayExecutionThread(KernelMode, FALSE, &Pause);
    }
}

/* WORK: the pings of a CONSUMER_PING. */
static NTSTATUS RunPings(RUN *Run, const VOID *What, CONSUMER_RESULT *Result)
{
    PINGS Pings = { &Run->Active, What, { 0 } };
    const CONSUMER_PING *Input = What;
    NTSTATUS Status;

    if (Input->Size == 0 || Input->Size > CONSUMER_PING_MOST)
        return STATUS_INVALID_PARAMETER;
    InitializePingSide(&Pings);
    Status = OpenToPeer(Run, &Pings);
    while (NT_SUCCESS(Status) && Result->Rounds < Input->Count) {
        if (Input->Serves)
            Status = Answer(&Pings, Result->Rounds + 1 == Input->Count);
        else
            Status = Ping(&Pings, Result->Rounds);
        if (NT_SUCCESS(Status)) {
            Result->Rounds++;
            Result->Bytes += Input->Size;
        }
    }
    if (NT_SUCCESS(Status))
        EndConnection(&Pings);
    CloseSide(Run, Pings.Side);
    Result->Notifications = Pings.Side->Notifications;
    return Status;
}
