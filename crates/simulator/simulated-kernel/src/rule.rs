//! The rules that the kernel watches beyond those of the machine.

use std::fmt;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A rule that a driver can break. The message of the bug check contains its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl fmt::Display for Rule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)+ })
            }
        }
    };
}

rules! {
    /// Called at an IRQL above the one that the routine allows.
    IrqlTooHigh = "irql-too-high",
    /// Called below the IRQL that the routine needs, or raised downwards.
    IrqlNotRaised = "irql-not-raised",
    /// Lowered upwards, or below `DISPATCH_LEVEL` with a spin lock held.
    IrqlNotLowered = "irql-not-lowered",
    /// A callback returned at another IRQL than it was called at.
    IrqlNotRestored = "irql-not-restored",
    /// A spin lock was acquired by the thread that holds it.
    RecursiveLock = "recursive-lock",
    /// Two spin locks are acquired in both orders.
    LockOrder = "lock-order",
    /// A spin lock was released by a thread that does not hold it, or with another lock's handle.
    LockNotHeld = "lock-not-held",
    /// A lock was released by another routine than the one that belongs to its acquisition, or a spin lock is acquired both as a queued
    /// one and as another one.
    LockPrimitive = "lock-primitive",
    /// A spin lock was held where none may be.
    LockHeld = "lock-held",
    /// A critical region was not left, or left without being entered.
    CriticalRegion = "critical-region",
    /// Memory was allocated without a tag, or freed with another one.
    PoolTag = "pool-tag",
    /// Flags or a size that the pool does not know.
    PoolFlags = "pool-flags",
    /// A driver was unloaded and left memory behind.
    PoolLeak = "pool-leak",
    /// Memory was freed twice.
    DoubleFree = "double-free",
    /// Something was freed that is not an allocation.
    BadFree = "bad-free",
    /// Bytes beyond the end, or before the beginning, of an allocation were written.
    Overrun = "buffer-overrun",
    /// Memory was used after it had been freed.
    UseAfterFree = "use-after-free",
    /// An event or another object of the kernel was used that lay on the stack of a function that has returned.
    StackObject = "stack-object",
    /// A structure that the kernel links, waits on or finds again by its address was used at another address than the one where it was
    /// initialised: moved or copied.
    MovedObject = "moved-object",
    /// An address was touched where there is no memory, such as that of a null pointer.
    AccessViolation = "access-violation",
    /// Pageable memory was touched at `DISPATCH_LEVEL`.
    PagedAtDispatch = "paged-at-dispatch",
    /// A DPC, timer, event or lock was used without being initialised, or initialised while in use.
    Uninitialised = "not-initialised",
    /// A DPC was freed, or initialised again, while it was queued.
    DpcFreedWhileQueued = "dpc-freed-while-queued",
    /// A DPC ran longer than the limit.
    DpcTooLong = "dpc-too-long",
    /// DPCs kept a processor at `DISPATCH_LEVEL` longer than the limit (bug check 0x133, first parameter 1).
    DpcWatchdog = "dpc-watchdog",
    /// A timer was freed, or initialised again, while it was set.
    TimerFreedWhileSet = "timer-freed-while-set",
    /// A processor was held up for too long in one call.
    StallTooLong = "stall-too-long",
    /// A driver was unloaded while one of its DPCs was queued or running.
    DpcAtUnload = "dpc-at-unload",
    /// A driver was unloaded while one of its timers was set.
    TimerAtUnload = "timer-at-unload",
    /// A driver was unloaded while one of its threads was running.
    ThreadAtUnload = "thread-at-unload",
    /// A driver was unloaded and left a reference, handle or registration behind.
    ReferenceLeak = "reference-leak",
    /// A framework's object was used after it had been deleted, or with the wrong kind of handle.
    BadHandle = "bad-handle",
    /// A reference was given back that was never taken.
    ReferenceUnderflow = "reference-underflow",
    /// A request was completed twice.
    RequestCompletedTwice = "request-completed-twice",
    /// A request was never completed.
    RequestNeverCompleted = "request-never-completed",
    /// A request was completed with more bytes than its buffer has, or as pending.
    RequestInformation = "request-information",
    /// A request was completed while it could be cancelled, or used by somebody who does not own it.
    RequestCancelable = "request-cancelable",
    /// A process ended while pages of it were locked (bug check 0x76).
    LockedPages = "process-has-locked-pages",
    /// A structure of NDIS has another type, revision or size than it has to have.
    NdisHeader = "ndis-header",
    /// A handler that a miniport driver owes is missing.
    NdisHandler = "ndis-handler",
    /// A routine of NDIS was called where it may not be called, such as optional handlers outside of `MiniportSetOptions`.
    NdisPlace = "ndis-place",
    /// A miniport used its adapter's handle after the adapter had been halted.
    AdapterHalted = "adapter-halted",
    /// Attributes were set out of their order, twice, or not at all.
    AttributeOrder = "attribute-order",
    /// A net buffer list was completed or returned that its user does not have.
    NblCompletedTwice = "nbl-completed-twice",
    /// A net buffer list that was sent was never completed.
    NblNeverCompleted = "nbl-never-completed",
    /// A net buffer list was given to somebody while somebody else has it, or comes back changed.
    NblNotOwned = "nbl-not-owned",
    /// A pool of net buffer lists was freed while lists of it were in use.
    NblPoolInUse = "nbl-pool-in-use",
    /// A frame was sent by a miniport that is paused.
    SentWhilePaused = "sent-while-paused",
    /// A frame was received by a miniport that is paused.
    ReceivedWhilePaused = "received-while-paused",
    /// A list that came back was indicated again with what the drivers above had left in it.
    NblLeftover = "nbl-leftover",
    /// A frame was sent by a miniport in a state of low power.
    SentInLowPower = "sent-in-low-power",
    /// A frame was received by a miniport in a state of low power.
    ReceivedInLowPower = "received-in-low-power",
    /// A miniport says that it has gone to low power while it has frames to send, or indicates some.
    LowPowerTooEarly = "low-power-too-early",
    /// A pause was never completed.
    PauseNeverCompleted = "pause-never-completed",
    /// A pause was completed while frames were on their way, or without having been begun.
    PauseTooEarly = "pause-too-early",
    /// An OID request pended that must not pend.
    OidPended = "oid-pended",
    /// An OID request was completed twice.
    OidCompletedTwice = "oid-completed-twice",
    /// An OID request was never completed.
    OidNeverCompleted = "oid-never-completed",
    /// An OID request was answered with lengths or a status that cannot be.
    OidAnswer = "oid-answer",
    /// `NdisMNetPnPEvent` was called in an OID handler, where it deadlocks.
    PnpEventInOid = "pnp-event-in-oid",
    /// An IRP was completed twice, or something that is none.
    IrpCompletedTwice = "irp-completed-twice",
    /// An IRP was never completed.
    IrpNeverCompleted = "irp-never-completed",
    /// An IRP was completed with its cancel routine set.
    IrpCancelRoutine = "irp-cancel-routine",
    /// What a dispatch routine returned is not what it did with its IRP: pending and marked, or the status of the completion.
    IrpStatus = "irp-status",
    /// An IRP was passed on that has no stack location for another driver.
    IrpStackLocations = "irp-stack-locations",
    /// An IRP was completed by a driver that had passed it to another one.
    IrpNotOwned = "irp-not-owned",
    /// An IRP that a driver allocated came back, and no completion routine of the driver kept it.
    IrpNotTaken = "irp-not-taken",
    /// An IRP was freed, or used again, while a driver had it, or although the system frees it.
    IrpFreed = "irp-freed",
    /// A request of plug and play or power ended without the driver below having had it.
    IrpNotPassedDown = "irp-not-passed-down",
    /// A device was deleted while it was attached to another one, or another one to it; or detached and not attached.
    DeviceAttached = "device-attached",
    /// `AddDevice` left `DO_DEVICE_INITIALIZING` set.
    DeviceInitializing = "device-initializing",
    /// A device was deleted while it had files open or requests.
    DeviceInUse = "device-in-use",
    /// A remove lock was released by somebody who does not hold it, or its memory freed while somebody does.
    RemoveLock = "remove-lock",
    /// A work item was queued or freed while it was queued.
    WorkItemQueued = "work-item-queued",
    /// An adapter was opened for NDK while NDK was not enabled on it.
    NdkNotEnabled = "ndk-not-enabled",
    /// An adapter is to be halted, and consumers of NDK have it open.
    NdkOpenAtHalt = "ndk-open-at-halt",
    /// What a miniport opened is no adapter of NDK.
    NdkAdapter = "ndk-adapter",
    /// Run-down protection was released by somebody who did not acquire it.
    RundownUnderflow = "rundown-underflow",
    /// Run-down protection was freed, or said to have run down, while somebody was inside.
    RundownInUse = "rundown-in-use",
    /// A structure has a wrong size, or an argument a value that is not allowed.
    BadArgument = "bad-argument",
    /// An MDL was used in a state in which that is not allowed.
    BadMdl = "bad-mdl",
    /// The driver called something that this kernel does not simulate.
    NotSimulated = "not-simulated",
    /// An image calls an import that nobody has.
    MissingImport = "missing-import",
    /// An instruction that only a kernel may carry out, and that this one does not do for it.
    PrivilegedInstruction = "privileged-instruction",
    /// A processor exception that nobody handles: an access to memory that is not there, a division by zero.
    UnhandledException = "unhandled-exception",
    /// Code of a driver runs that has been unloaded.
    UnloadedCode = "unloaded-code",
    /// The driver panicked.
    DriverPanicked = "driver-panicked",
    /// Winsock Kernel's provider was released while adapters that were opened through it were open.
    WskAdaptersOpen = "wsk-adapters-open",
    /// An event was initialised again although somebody waited for it, or although it was set and nobody had seen it: the wait does not
    /// end.
    EventReinitialised = "event-reinitialised",
    /// Winsock Kernel's provider is never released, and a deregistration waits for that.
    WskNotReleased = "wsk-not-released",
    /// A socket of Winsock Kernel is never closed, and a deregistration waits for that.
    WskSocketsOpen = "wsk-sockets-open",
    /// A socket was used in a state in which that is not allowed: before it is bound, in the middle of another call, or after its close.
    WskSocketState = "wsk-socket-state",
    /// An IRP was given to Winsock Kernel, or none, that it cannot complete.
    WskIrp = "wsk-irp",
    /// A `WSK_BUF` describes bytes that its MDLs do not have, or MDLs whose memory may go.
    WskBuffer = "wsk-buffer",
    /// Memory of a request with Winsock Kernel was freed, unlocked or changed before its IRP was complete.
    WskMemoryInUse = "wsk-memory-in-use",
    /// Datagrams that a callback has kept were not released, or something that it has not kept; or its answer is none.
    WskIndication = "wsk-indication",
    /// A thread waits, and nothing is left that could end the wait.
    Deadlock = "deadlock",
    /// The work does not come to an end.
    Livelock = "livelock",
    /// A thread has waited longer than the limit.
    Hang = "hang",
}
