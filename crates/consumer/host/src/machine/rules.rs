//! The rules that the machine watches, and what happens to those who break one.

use std::fmt;

/// A rule of the kernel that a caller can break. The panic message contains its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Called at an IRQL above the one that the routine allows.
    IrqlTooHigh,
    /// The IRQL was raised to a lower level than the current one.
    IrqlNotRaised,
    /// The IRQL was lowered to a higher level than the current one, or while a spin lock was held.
    IrqlNotLowered,
    /// A DPC or a critical section ended at another IRQL than it began.
    IrqlNotRestored,
    /// A spin lock was acquired by the thread that holds it.
    RecursiveLock,
    /// Two spin locks are acquired in both orders.
    LockOrder,
    /// A spin lock was released by a thread that does not hold it.
    LockNotHeld,
    /// A spin lock was released by another routine than the one that belongs to its acquisition, or is acquired in two ways.
    LockPrimitive,
    /// A spin lock was held where none may be: at a consumer's callback, at a wait, at the end of a DPC.
    LockHeld,
    /// A DPC object was freed while it was queued.
    DpcFreedWhileQueued,
    /// A DPC ran longer than the machine's limit, or copied more bytes.
    DpcTooLong,
    /// A timer object was freed while it was set.
    TimerFreedWhileSet,
    /// A thread waits, and nothing is left that could end the wait.
    Deadlock,
    /// The work does not come to an end.
    Livelock,
    /// A thread has waited or spun longer than the machine's limit.
    Hang,
    /// Something was still queued or set when the machine was shut down.
    Leak,
    /// A routine panicked on a processor.
    RoutinePanicked,
    /// A machine was used after it had been shut down.
    MachineStopped,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IrqlTooHigh => "irql-too-high",
            Self::IrqlNotRaised => "irql-not-raised",
            Self::IrqlNotLowered => "irql-not-lowered",
            Self::IrqlNotRestored => "irql-not-restored",
            Self::RecursiveLock => "recursive-lock",
            Self::LockOrder => "lock-order",
            Self::LockNotHeld => "lock-not-held",
            Self::LockPrimitive => "lock-primitive",
            Self::LockHeld => "lock-held",
            Self::DpcFreedWhileQueued => "dpc-freed-while-queued",
            Self::DpcTooLong => "dpc-too-long",
            Self::TimerFreedWhileSet => "timer-freed-while-set",
            Self::Deadlock => "deadlock",
            Self::Livelock => "livelock",
            Self::Hang => "hang",
            Self::Leak => "leak",
            Self::RoutinePanicked => "routine-panicked",
            Self::MachineStopped => "machine-stopped",
        })
    }
}

/// Ends the thread that broke `rule`.
#[cold]
#[track_caller]
pub fn broken(rule: Rule, details: fmt::Arguments<'_>) -> ! {
    panic!("rule broken: {rule}: {details}")
}

/// [`broken`], unless the thread unwinds already: then the first panic is the one to read.
#[cold]
#[track_caller]
pub fn broken_at_drop(rule: Rule, details: fmt::Arguments<'_>) {
    if std::thread::panicking() {
        eprintln!("rule broken, during another panic: {rule}: {details}");
    } else {
        broken(rule, details);
    }
}
