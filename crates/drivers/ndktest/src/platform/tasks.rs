//! Tasks beside each other, each on a thread and, as far as there are enough, a processor of its own.

use alloc::vec::Vec;
use core::{
    hint,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use conformance::platform::{Step, Task};
use fallible::Arc;
use kernel::{Bound, Thread};
use ndkpi::NtStatus;
use wdk_sys::{ALL_PROCESSOR_GROUPS, USHORT, ntddk::KeQueryActiveProcessorCountEx};

use super::sleep;

/// Steps without work after which a task sleeps instead of asking again.
const EAGER: u32 = 1_000;

/// The number of processors.
pub fn processors() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the constant is the largest USHORT")]
    const ALL: USHORT = ALL_PROCESSOR_GROUPS as USHORT;
    // SAFETY: the routine has no conditions.
    unsafe { KeQueryActiveProcessorCountEx(ALL) }.max(1)
}

/// A task that outlives the thread that works on it.
struct Borrowed(*mut (dyn Task + 'static));

impl Borrowed {
    /// # Safety
    ///
    /// The task is not used in this way any more when its borrow ends.
    #[expect(clippy::transmute_ptr_to_ptr, reason = "a cast cannot make a lifetime longer")]
    const unsafe fn new(task: *mut (dyn Task + '_)) -> Self {
        // SAFETY: only the lifetime changes, for which the caller stands.
        Self(unsafe { core::mem::transmute::<*mut (dyn Task + '_), *mut (dyn Task + 'static)>(task) })
    }
}

// SAFETY: a task may be worked on by another thread (`Task: Send`), and only one has it.
unsafe impl Send for Borrowed {}

/// Runs every task on a thread and waits for all of them.
pub fn run(processors: u32, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
    let give_up = Arc::try_new(AtomicBool::new(false))?;
    let mut threads = Vec::new();
    threads.try_reserve_exact(tasks.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    let mut outcome = Ok(());
    for (task, processor) in tasks.iter_mut().zip((0..processors).cycle()) {
        let borrowed: *mut (dyn Task + '_) = &raw mut **task;
        // SAFETY: dropping a thread waits for it, and all are dropped before this function returns.
        let borrowed = unsafe { Borrowed::new(borrowed) };
        let give_up = give_up.clone();
        match Thread::try_spawn(move || work(borrowed, processor, &give_up)) {
            Ok(thread) => threads.push(thread),
            Err(status) => {
                outcome = Err(status);
                break;
            }
        }
    }
    if outcome.is_err() {
        // The tasks that run may wait for those that do not.
        give_up.store(true, Release);
    }
    drop(threads);
    outcome
}

/// Does something while a task runs on a thread of its own, on whichever processor, and waits for its end.
///
/// # Errors
///
/// There is no thread: nothing was done.
pub fn beside(task: &mut dyn Task, do_meanwhile: impl FnOnce()) -> Result<(), NtStatus> {
    let borrowed: *mut (dyn Task + '_) = &raw mut *task;
    // SAFETY: dropping the thread waits for it, and it is dropped before this function returns.
    let borrowed = unsafe { Borrowed::new(borrowed) };
    let thread = Thread::try_spawn(move || steps(borrowed, &AtomicBool::new(false)))?;
    do_meanwhile();
    drop(thread);
    Ok(())
}

fn work(borrowed: Borrowed, processor: u32, give_up: &AtomicBool) {
    let _bound = Bound::to(processor);
    steps(borrowed, give_up);
}

fn steps(Borrowed(task): Borrowed, give_up: &AtomicBool) {
    // SAFETY: the task lives as long as this thread, which is the only one that has it.
    let task = unsafe { &mut *task };
    let mut waited = 0;
    while !give_up.load(Acquire) {
        match task.step() {
            Step::Worked => waited = 0,
            Step::Waits if waited < EAGER => {
                waited += 1;
                hint::spin_loop();
            }
            Step::Waits => sleep(1_000),
            Step::Done => break,
        }
    }
}
