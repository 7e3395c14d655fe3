//! The rules that the simulated kernel watches beyond those of the machine: what a driver did, and what Windows says of it.

use std::fmt;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal windows $windows:literal,)+) => {
        /// A rule that a driver can break. The message of the bug check contains its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name, as findings have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What the driver did.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+),)+ }
            }

            /// What Windows documents of it, or does.
            #[must_use]
            pub const fn windows(self) -> &'static str {
                match self { $(Self::$name => $windows,)+ }
            }
        }
    };
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

rules! {
    /// Called at an IRQL above the one that the routine allows.
    IrqlTooHigh = "irql-too-high"
        windows "Each routine's page names its highest IRQL. Above it Windows stops with IRQL_NOT_LESS_OR_EQUAL (0xA) or DRIVER_IRQL_NOT_LESS_OR_EQUAL (0xD1), or does not notice; Driver Verifier does (IRQL checking).",
    /// Called below the IRQL that the routine needs, or raised downwards.
    IrqlNotRaised = "irql-not-raised"
        windows "KeRaiseIrql raises only: a lower IRQL is IRQL_NOT_GREATER_OR_EQUAL (0x9). A page that demands DISPATCH_LEVEL, such as that of a routine AtDpcLevel, leaves it to the caller.",
    /// Lowered upwards, or below `DISPATCH_LEVEL` with a spin lock held.
    IrqlNotLowered = "irql-not-lowered"
        windows "KeLowerIrql goes back to the IRQL before KeRaiseIrql, with no spin lock held: IRQL_NOT_LESS_OR_EQUAL (0xA) otherwise, at best.",
    /// A callback returned at another IRQL than it was called at.
    IrqlNotRestored = "irql-not-restored"
        windows "A callback returns at the IRQL at which it was called: IRQL_UNEXPECTED_VALUE (0xC8), and for a work item WORKER_THREAD_RETURNED_AT_BAD_IRQL (0xE1).",
    /// A spin lock was acquired by the thread that holds it.
    RecursiveLock = "recursive-lock"
        windows "A spin lock is not recursive: the processor hangs for ever. SPIN_LOCK_ALREADY_OWNED (0xF) where it is noticed, 0xC4 under Driver Verifier's Deadlock Detection.",
    /// Two spin locks are acquired in both orders.
    LockOrder = "lock-order"
        windows "Two locks that are taken in both orders deadlock when two processors meet. Driver Verifier's Deadlock Detection stops with 0xC4 (0x1001).",
    /// A spin lock was released by a thread that does not hold it, or with another lock's handle.
    LockNotHeld = "lock-not-held"
        windows "Only who has acquired a spin lock releases it: SPIN_LOCK_NOT_OWNED (0x10) in checked builds, a broken lock otherwise.",
    /// A lock was released by another routine than the one that belongs to its acquisition, or a spin lock is acquired both as a queued
    /// one and as another one.
    LockPrimitive = "lock-primitive"
        windows "A lock is released by the routine that belongs to its acquisition, and a queued lock is never acquired as an ordinary one: both are said on the pages of KeAcquireInStackQueuedSpinLock and KeAcquireSpinLock.",
    /// A spin lock was held where none may be.
    LockHeld = "lock-held"
        windows "Whoever holds a spin lock is at DISPATCH_LEVEL and keeps every other processor waiting that wants it: no call that completes, indicates or calls back is made with one.",
    /// A critical region was not left, or left without being entered.
    CriticalRegion = "critical-region"
        windows "KeEnterCriticalRegion and KeLeaveCriticalRegion are a pair before a thread returns to the system: APC_INDEX_MISMATCH (0x1).",
    /// Memory was allocated without a tag, or freed with another one.
    PoolTag = "pool-tag"
        windows "A tag has one to four characters, and a block is freed with its own: BAD_POOL_CALLER (0xC2, first parameter 0xA) where it is noticed.",
    /// Flags or a size that the pool does not know.
    PoolFlags = "pool-flags"
        windows "ExAllocatePool2 returns NULL for flags that it does not know; older routines raise an exception or stop with BAD_POOL_CALLER (0xC2). No allocation has zero bytes.",
    /// A driver was unloaded and left memory behind.
    PoolLeak = "pool-leak"
        windows "Windows never frees what a driver leaves. Driver Verifier's Pool Tracking stops at the unload with 0xC4 (0x62).",
    /// Memory was freed twice.
    DoubleFree = "double-free"
        windows "BAD_POOL_CALLER (0xC2, first parameter 0x7): the block has been freed already.",
    /// Something was freed that is not an allocation.
    BadFree = "bad-free"
        windows "BAD_POOL_CALLER (0xC2): the address is of no allocation.",
    /// Bytes beyond the end, or before the beginning, of an allocation were written.
    Overrun = "buffer-overrun"
        windows "BAD_POOL_HEADER (0x19) or DRIVER_CORRUPTED_EXPOOL (0xC5), long after it; with Driver Verifier's Special Pool at once or at the free.",
    /// Memory was used after it had been freed.
    UseAfterFree = "use-after-free"
        windows "Whatever is there by then. With Driver Verifier's Special Pool PAGE_FAULT_IN_FREED_SPECIAL_POOL (0xCC), at once.",
    /// An event or another object of the kernel was used that lay on the stack of a function that has returned.
    StackObject = "stack-object"
        windows "The memory of an object that others may touch lives as long as they may: a wait that ends early, or none, leaves an object on a stack that is gone. Windows does not notice; what lies there by then is overwritten.",
    /// A structure that the kernel links, waits on or finds again by its address was used at another address than the one where it was
    /// initialised: moved or copied.
    MovedObject = "moved-object"
        windows "The address of a structure that the kernel links is its identity: a copy is another one, and the lists still lead to the first. Its page says where it is initialised, and that it stays there.",
    /// An address was touched where there is no memory, such as that of a null pointer.
    AccessViolation = "access-violation"
        windows "SYSTEM_THREAD_EXCEPTION_NOT_HANDLED (0x7E) or PAGE_FAULT_IN_NONPAGED_AREA (0x50).",
    /// Pageable memory was touched at `DISPATCH_LEVEL`.
    PagedAtDispatch = "paged-at-dispatch"
        windows "DRIVER_IRQL_NOT_LESS_OR_EQUAL (0xD1) if the page is out, and nothing if it is in. Driver Verifier trims pages so that it is out.",
    /// A DPC, timer, event or lock was used without being initialised, or initialised while in use.
    Uninitialised = "not-initialised"
        windows "Each of these structures has a routine that initialises it, called once before all others and never while it is in use. Windows does not look.",
    /// A DPC was freed, or initialised again, while it was queued.
    DpcFreedWhileQueued = "dpc-freed-while-queued"
        windows "The queue of the processor leads into the free memory: TIMER_OR_DPC_INVALID (0xC7) if somebody notices.",
    /// A DPC ran longer than the limit.
    DpcTooLong = "dpc-too-long"
        windows "The reference asks that a DPC runs for 100 microseconds at most; DPC_WATCHDOG_VIOLATION (0x133, first parameter 0) comes after seconds.",
    /// DPCs kept a processor at `DISPATCH_LEVEL` longer than the limit (bug check 0x133, first parameter 1).
    DpcWatchdog = "dpc-watchdog"
        windows "DPC_WATCHDOG_VIOLATION (0x133, first parameter 1): the processor was at DISPATCH_LEVEL or above for too long in all.",
    /// A timer was freed, or initialised again, while it was set.
    TimerFreedWhileSet = "timer-freed-while-set"
        windows "TIMER_OR_DPC_INVALID (0xC7) if somebody notices: cancel a timer, and wait for its DPC, before its memory goes.",
    /// A processor was held up for too long in one call.
    StallTooLong = "stall-too-long"
        windows "KeStallExecutionProcessor is for 50 microseconds at most by its page: nothing else runs on the processor.",
    /// A driver was unloaded while one of its DPCs was queued or running.
    DpcAtUnload = "dpc-at-unload"
        windows "DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS (0xCE): KeFlushQueuedDpcs waits for them.",
    /// A driver was unloaded while one of its timers was set.
    TimerAtUnload = "timer-at-unload"
        windows "TIMER_OR_DPC_INVALID (0xC7) or 0xCE when it expires: cancel it, and wait for its DPC.",
    /// A driver was unloaded while one of its threads was running.
    ThreadAtUnload = "thread-at-unload"
        windows "DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS (0xCE): a driver waits for the thread's object before it returns from its unload.",
    /// A driver was unloaded and left a reference, handle or registration behind.
    ReferenceLeak = "reference-leak"
        windows "What is registered, referenced or opened is given back before the unload: a callback into a driver that has gone is 0xCE, a reference that is left keeps its object for ever.",
    /// A framework's object was used after it had been deleted, or with the wrong kind of handle.
    BadHandle = "bad-handle"
        windows "The framework and Winsock Kernel do not check every handle: WDF_VIOLATION (0x10D) where they do, the memory of somebody else where they do not.",
    /// A reference was given back that was never taken.
    ReferenceUnderflow = "reference-underflow"
        windows "REFERENCE_BY_POINTER (0x18): the count of an object has gone below what it may be.",
    /// A request was completed twice.
    RequestCompletedTwice = "request-completed-twice"
        windows "WDF_VIOLATION (0x10D), or MULTIPLE_IRP_COMPLETE_REQUESTS (0x44).",
    /// A request was never completed.
    RequestNeverCompleted = "request-never-completed"
        windows "The program waits for ever, and its process cannot end; the removal of the device waits for the request.",
    /// A request was completed with more bytes than its buffer has, or as pending.
    RequestInformation = "request-information"
        windows "The I/O manager copies as many bytes to the program as the information says: more than the buffer has leaks the pool, or overwrites it. STATUS_PENDING is never a status of a completion.",
    /// A request was completed while it could be cancelled, or used by somebody who does not own it.
    RequestCancelable = "request-cancelable"
        windows "A request that can be cancelled is made so no more, by WdfRequestUnmarkCancelable, before it is completed: otherwise both complete it (WDF_VIOLATION, 0x10D).",
    /// A request was acknowledged (`WdfRequestStopAcknowledge`) that is not being stopped, outside of `EvtIoStop` for it, or twice.
    RequestStop = "request-stop"
        windows "WdfRequestStopAcknowledge is called in EvtIoStop, for its request: the framework looks at it when the callback has returned, and not later, so the device stays in D0 and the power transition never ends (0x9F).",
    /// A process ended while pages of it were locked (bug check 0x76).
    LockedPages = "process-has-locked-pages"
        windows "PROCESS_HAS_LOCKED_PAGES (0x76): pages that are locked for a process are unlocked before it ends.",
    /// A structure of NDIS has another type, revision or size than it has to have.
    NdisHeader = "ndis-header"
        windows "NDIS_OBJECT_HEADER says type, revision and size of its structure; NDIS refuses another one with NDIS_STATUS_BAD_VERSION, or reads what is behind it.",
    /// A handler that a miniport driver owes is missing.
    NdisHandler = "ndis-handler"
        windows "NdisMRegisterMiniportDriver fails with NDIS_STATUS_BAD_CHARACTERISTICS without the handlers that its page lists.",
    /// A routine of NDIS was called where it may not be called, such as optional handlers outside of `MiniportSetOptions`.
    NdisPlace = "ndis-place"
        windows "The page of each routine names the handler in which it is called: optional handlers are set in MiniportSetOptions, attributes in MiniportInitializeEx.",
    /// A miniport used its adapter's handle after the adapter had been halted.
    AdapterHalted = "adapter-halted"
        windows "After MiniportHaltEx the handle of the adapter is gone: BUGCODE_NDIS_DRIVER (0x7C), or the memory of somebody else.",
    /// Attributes were set out of their order, twice, or not at all.
    AttributeOrder = "attribute-order"
        windows "Registration attributes come first, general ones next, the others after them and before MiniportInitializeEx returns.",
    /// A net buffer list was completed or returned that its user does not have.
    NblCompletedTwice = "nbl-completed-twice"
        windows "The protocol has freed the list after the first completion: BUGCODE_NDIS_DRIVER (0x7C) at best.",
    /// A net buffer list that was sent was never completed.
    NblNeverCompleted = "nbl-never-completed"
        windows "The pause of the adapter and the unload of the driver above wait for it for ever.",
    /// A net buffer list was given to somebody while somebody else has it, or comes back changed.
    NblNotOwned = "nbl-not-owned"
        windows "A list belongs to one at a time: to NDIS from the indication until MiniportReturnNetBufferLists, to the miniport from the send until its completion.",
    /// A pool of net buffer lists was freed while lists of it were in use.
    NblPoolInUse = "nbl-pool-in-use"
        windows "NdisFreeNetBufferListPool wants every list of the pool back: BUGCODE_NDIS_DRIVER (0x7C) otherwise.",
    /// A frame was sent by a miniport, or by a protocol's binding, that is paused.
    SentWhilePaused = "sent-while-paused"
        windows "A miniport that is paused completes sends with NDIS_STATUS_PAUSED, and a protocol begins none before NetEventRestart.",
    /// A protocol closed an adapter with sends or requests that are not complete, or received lists that it has not returned.
    BindingInUse = "binding-in-use"
        windows "NdisCloseAdapterEx pends until what is on its way is over, and what comes then finds a context that the protocol may have freed. Its page wants sends and requests complete, and lists returned, before the call.",
    /// A frame was received by a miniport that is paused.
    ReceivedWhilePaused = "received-while-paused"
        windows "A miniport indicates nothing from the moment in which its pause is complete until it is restarted.",
    /// A list that came back was indicated again with what the drivers above had left in it.
    NblLeftover = "nbl-leftover"
        windows "Whoever allocates a list puts back what others may have changed before it is used again: chains, statuses, flags, out-of-band data.",
    /// A frame was sent by a miniport in a state of low power.
    SentInLowPower = "sent-in-low-power"
        windows "Below D0 a miniport completes sends with NDIS_STATUS_LOW_POWER_STATE.",
    /// A frame was received by a miniport in a state of low power.
    ReceivedInLowPower = "received-in-low-power"
        windows "Below D0 a miniport indicates nothing.",
    /// A miniport says that it has gone to low power while it has frames to send, or indicates some.
    LowPowerTooEarly = "low-power-too-early"
        windows "OID_PNP_SET_POWER is answered when the transition is over: frames on their way have ended, and no indication runs.",
    /// A pause was never completed.
    PauseNeverCompleted = "pause-never-completed"
        windows "NDIS waits for it: no removal and no reconfiguration of the adapter goes on, and 0x9F follows.",
    /// A pause was completed while frames were on their way, or without having been begun.
    PauseTooEarly = "pause-too-early"
        windows "A pause is complete when every list that was indicated has come back and every send has ended.",
    /// An OID request pended that must not pend.
    OidPended = "oid-pended"
        windows "The page of OID_NDK_SET_STATE, as that of every synchronous request, has no pending answer.",
    /// An OID request was completed twice.
    OidCompletedTwice = "oid-completed-twice"
        windows "BUGCODE_NDIS_DRIVER (0x7C): the request is somebody else's after its completion.",
    /// An OID request was never completed.
    OidNeverCompleted = "oid-never-completed"
        windows "NDIS sends one request at a time: every later one waits for ever, and so does the halt.",
    /// An OID request was answered with lengths or a status that cannot be.
    OidAnswer = "oid-answer"
        windows "BytesWritten and BytesNeeded tell a caller what to do next: no more is written than there is room for, and NDIS_STATUS_BUFFER_TOO_SHORT says how much is needed.",
    /// `NdisMNetPnPEvent` was called in an OID handler, where it deadlocks.
    PnpEventInOid = "pnp-event-in-oid"
        windows "NdisMNetPnPEvent waits for consumers of NDK, who may wait for the request: NDIS-NDK 5.",
    /// An IRP was completed twice, or something that is none.
    IrpCompletedTwice = "irp-completed-twice"
        windows "MULTIPLE_IRP_COMPLETE_REQUESTS (0x44).",
    /// An IRP was never completed.
    IrpNeverCompleted = "irp-never-completed"
        windows "The program waits for ever, and its thread cannot end; for power requests DRIVER_POWER_STATE_FAILURE (0x9F).",
    /// An IRP was completed with its cancel routine set.
    IrpCancelRoutine = "irp-cancel-routine"
        windows "CANCEL_STATE_IN_COMPLETED_IRP (0x48): IoSetCancelRoutine(Irp, NULL) comes before IoCompleteRequest.",
    /// What a dispatch routine returned is not what it did with its IRP: pending and marked, or the status of the completion.
    IrpStatus = "irp-status"
        windows "A dispatch routine returns STATUS_PENDING if and only if it has marked the IRP, and else the status with which it completed it. Driver Verifier's I/O Verification says so (0xC9).",
    /// An IRP was passed on that has no stack location for another driver.
    IrpStackLocations = "irp-stack-locations"
        windows "NO_MORE_IRP_STACK_LOCATIONS (0x35).",
    /// An IRP was completed by a driver that had passed it to another one.
    IrpNotOwned = "irp-not-owned"
        windows "An IRP that was passed down belongs to the driver below until a completion routine has it back with STATUS_MORE_PROCESSING_REQUIRED.",
    /// An IRP that a driver allocated came back, and no completion routine of the driver kept it.
    IrpNotTaken = "irp-not-taken"
        windows "The completion routine of a driver's own IRP returns STATUS_MORE_PROCESSING_REQUIRED: nobody else frees it.",
    /// An IRP was freed, or used again, while a driver had it, or although the system frees it.
    IrpFreed = "irp-freed"
        windows "IoFreeIrp is for what IoAllocateIrp has made, once nobody has it; what IoBuildDeviceIoControlRequest has made the system frees.",
    /// A request of plug and play or power ended without the driver below having had it.
    IrpNotPassedDown = "irp-not-passed-down"
        windows "A function or filter driver passes requests of plug and play and power down that it does not handle, and those that it does handle too, by the rules of each minor code.",
    /// A device was deleted while it was attached to another one, or another one to it; or detached and not attached.
    DeviceAttached = "device-attached"
        windows "A device is detached before it is deleted, the highest first.",
    /// `AddDevice` left `DO_DEVICE_INITIALIZING` set.
    DeviceInitializing = "device-initializing"
        windows "AddDevice clears DO_DEVICE_INITIALIZING: nobody can open or attach to the device before.",
    /// A device was deleted while it had files open or requests.
    DeviceInUse = "device-in-use"
        windows "IoDeleteDevice puts the deletion off while there are references; a driver that takes its extension for gone uses it all the same.",
    /// A remove lock was released by somebody who does not hold it, or its memory freed while somebody does.
    RemoveLock = "remove-lock"
        windows "IoReleaseRemoveLockAndWaitEx waits for all who hold the lock; it lies in the device's extension and goes with that.",
    /// A work item was queued or freed while it was queued.
    WorkItemQueued = "work-item-queued"
        windows "A work item is queued once at a time, and freed when its routine has begun: WORKER_INVALID (0xE4).",
    /// A device queue, or an entry of one, was freed, inserted or initialised again while it was in use, or the next entry was taken of one
    /// that is not busy.
    DeviceQueue = "device-queue"
        windows "An entry is in one device queue at a time, and links it by its address; the next one is taken out while the queue is busy, which is when the request before is done.",
    /// An adapter was opened for NDK while NDK was not enabled on it.
    NdkNotEnabled = "ndk-not-enabled"
        windows "A miniport serves OPEN_NDK_ADAPTER_HANDLER only after OID_NDK_SET_STATE has enabled NDK: NDIS-NDK 4.",
    /// An adapter is to be halted, and consumers of NDK have it open.
    NdkOpenAtHalt = "ndk-open-at-halt"
        windows "Consumers close their adapters when plug and play tells them to; the close of a miniport's NDK waits for them: NDIS-NDK 4.",
    /// What a miniport opened is no adapter of NDK.
    NdkAdapter = "ndk-adapter"
        windows "The handler stores an NDK_ADAPTER with the version that was asked for, and succeeds, or it fails: NDIS-NDK 4.",
    /// Run-down protection was released by somebody who did not acquire it.
    RundownUnderflow = "rundown-underflow"
        windows "ExReleaseRundownProtection follows an ExAcquireRundownProtection that returned TRUE. Windows does not look: the run-down then ends too early.",
    /// Run-down protection was freed, or said to have run down, while somebody was inside.
    RundownInUse = "rundown-in-use"
        windows "The structure of a run-down stays until ExWaitForRundownProtectionRelease has returned and everybody has left.",
    /// A structure has a wrong size, or an argument a value that is not allowed.
    BadArgument = "bad-argument"
        windows "The page of the routine says which values an argument has. Windows refuses some, and takes others as they are.",
    /// A structure was used by two at the same time whose users have to keep each other out.
    Unsynchronised = "unsynchronised"
        windows "Generic tables have no lock of their own: their pages leave it to the callers to let one in at a time. Windows does not look, and the links of the table break. Look-ups in an AVL table, which change nothing, may be several at once here.",
    /// An MDL was used in a state in which that is not allowed.
    BadMdl = "bad-mdl"
        windows "MmProbeAndLockPages, MmMapLockedPagesSpecifyCache and their opposites come in order, and an MDL is freed unlocked. Driver Verifier stops with 0xC4.",
    /// The driver called something that this kernel does not simulate.
    NotSimulated = "not-simulated"
        windows "Nothing: Windows has it, and this kernel does not. docs/simulated-kernel.md says what it has.",
    /// An image calls an import that nobody has.
    MissingImport = "missing-import"
        windows "The loader of Windows refuses an image with an import that nobody exports (STATUS_DRIVER_ENTRYPOINT_NOT_FOUND). Here it is loaded, and stops where it makes the call: Windows may well have that routine.",
    /// An instruction that only a kernel may carry out, and that this one does not do for it.
    PrivilegedInstruction = "privileged-instruction"
        windows "Windows carries it out: this kernel runs drivers as programs and does not do it for them.",
    /// A processor exception that nobody handles: an access to memory that is not there, a division by zero.
    UnhandledException = "unhandled-exception"
        windows "KMODE_EXCEPTION_NOT_HANDLED (0x1E) or SYSTEM_THREAD_EXCEPTION_NOT_HANDLED (0x7E). A breakpoint without a debugger is one.",
    /// Code of a driver runs that has been unloaded.
    UnloadedCode = "unloaded-code"
        windows "DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS (0xCE).",
    /// The driver panicked.
    DriverPanicked = "driver-panicked"
        windows "A panic in the kernel is whatever the driver's handler of panics does; with wdk-panic the processor stops for ever.",
    /// Winsock Kernel's provider was released while adapters that were opened through it were open.
    WskAdaptersOpen = "wsk-adapters-open"
        windows "The provider is released when everything that was opened through it is closed (WskReleaseProviderNPI).",
    /// An event was initialised again although somebody waited for it, or although it was set and nobody had seen it: the wait does not
    /// end.
    EventReinitialised = "event-reinitialised"
        windows "KeInitializeEvent makes a new event of the memory: who waits on the old one waits for ever, and a signal that nobody has seen is lost.",
    /// Winsock Kernel's provider is never released, and a deregistration waits for that.
    WskNotReleased = "wsk-not-released"
        windows "WskDeregister waits until every capture has been released.",
    /// A socket of Winsock Kernel is never closed, and a deregistration waits for that.
    WskSocketsOpen = "wsk-sockets-open"
        windows "WskDeregister waits until every socket is closed.",
    /// A socket was used in a state in which that is not allowed: before it is bound or connected, in the middle of another call, or after its close.
    WskSocketState = "wsk-socket-state"
        windows "A socket is bound before it is used, and connected before it sends, has one control request at a time, and is closed last: WSK fails the call, or its IRP, with STATUS_INVALID_DEVICE_STATE or does not look.",
    /// An IRP was given to Winsock Kernel, or none, that it cannot complete.
    WskIrp = "wsk-irp"
        windows "Each call of WSK takes an IRP with one stack location at least, which the caller has allocated or reused, and a completion routine that keeps it.",
    /// A `WSK_BUF` describes bytes that its MDLs do not have, or MDLs whose memory may go.
    WskBuffer = "wsk-buffer"
        windows "The MDLs of a WSK_BUF are locked, and offset and length lie within them, until the IRP is complete.",
    /// Memory of a request with Winsock Kernel was freed, unlocked or changed before its IRP was complete.
    WskMemoryInUse = "wsk-memory-in-use"
        windows "Buffers, addresses and the IRP of a request stay as they are until it is complete.",
    /// Memory of a region of NDK that is registered, or of a mapping that is built, was freed, or its pages were unlocked; or the MDL of the region was freed.
    NdkMemoryInUse = "ndk-memory-in-use"
        windows "The pages stay locked until the region is deregistered or closed, or the mapping released, and no request uses them any more (NDKPI 7.4, 7.5): the adapter reads and writes them by their physical addresses, whoever has them by then. Whether the MDL of a region may go is not documented.",
    /// Datagrams or data that a callback has kept were not released, or something that it has not kept; or its answer is none.
    WskIndication = "wsk-indication"
        windows "Datagrams that WskReceiveFromEvent has kept, and data that WskReceiveEvent has, by STATUS_PENDING, are released by WskRelease; others are WSK's again when it returns.",
    /// A thread waits, and nothing is left that could end the wait.
    Deadlock = "deadlock"
        windows "Windows waits for ever. Driver Verifier's Deadlock Detection knows of locks only, and 0x9F of power requests.",
    /// The work does not come to an end.
    Livelock = "livelock"
        windows "Windows goes on working for ever.",
    /// A thread has waited longer than the limit.
    Hang = "hang"
        windows "Windows waits for ever.",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Rule;

    #[test]
    fn each_rule_has_a_name_of_its_own_and_words() {
        let names: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert_eq!(names.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            assert!(is_name(rule.name()), "{rule}");
            for words in [rule.about().trim(), rule.windows()] {
                assert!(words.contains(' ') && words.ends_with(['.', ')']), "{rule}: {words}");
            }
        }
    }
}
