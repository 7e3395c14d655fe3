//! Processors, DPCs, timers, spin locks and events with the contracts of the Windows kernel.
//!
//! The names follow the kernel's: [`Dpc::queue`] is `KeInsertQueueDpc`, [`Timer::set`] is `KeSetTimerEx`,
//! [`RawSpinLock::acquire`] is `KeAcquireSpinLockRaiseToDpc`. A caller that breaks a rule gets a panic that names the
//! [`Rule`], in every build; only the order of locks, which costs more to watch, needs the feature `checked` (on by
//! default) or debug assertions.
//!
//! The IRQL belongs to the operating-system thread: `PASSIVE_LEVEL` unless it was raised, `DISPATCH_LEVEL` in a DPC
//!. So a thread of a test stands for a thread of the kernel, and a processor for what interrupts it. By default a processor
//! is a thread of its own, and a DPC is handed to it. A thread that [`MachineRef::run_on`] has put on a processor is
//! interrupted as in a kernel: what it queues there runs on itself when its IRQL drops below `DISPATCH_LEVEL`.

mod config;
mod core;
mod dispatch;
mod dpc;
mod event;
mod failure;
mod irql;
mod lock_order;
mod outside;
mod plain;
mod queue;
mod queued_lock;
mod random;
mod rules;
mod seeded;
mod spin_lock;
mod statistics;
mod step_threads;
mod thread;
mod threads;
mod timer;
mod timer_queue;

pub(crate) use self::thread::count_copied;
pub use self::{
    config::Builder,
    core::{Machine, MachineRef},
    dispatch::OnProcessor,
    dpc::{Arguments, Dpc, DpcHandle, Importance},
    event::{Event, EventKind},
    failure::Failure,
    irql::{Irql, assert_irql_at_most, assert_no_locks_held, current_irql, locks_held, lower, no_locks_held, raise},
    lock_order::forget as forget_lock_order,
    outside::Outside,
    plain::PlainDpc,
    queued_lock::LockQueue,
    rules::Rule,
    spin_lock::{LockName, RawSpinLock},
    statistics::{ProcessorStatistics, Statistics},
    timer::Timer,
};
