//! DPCs that go on in a system thread, so that they do not keep their processor at `DISPATCH_LEVEL`.
//!
//! Windows ends with bug check 0x133 (`DPC_WATCHDOG_VIOLATION`, first parameter 1) when DPCs have kept a processor at
//! `DISPATCH_LEVEL` for two minutes, however short each call is. Under sustained load calls that queue themselves, or each other,
//! would do that: a queue pair that is never idle, a callback whose posts complete and lead to the next callback. Long before that no
//! thread of that processor gets on.
//!
//! So each processor has a worker: a thread that stays on it. When [`BUDGET`] calls have run there since the worker last had
//! nothing to do, further calls wait for the worker, which runs them one after the other, each raised to `DISPATCH_LEVEL`, and at
//! `PASSIVE_LEVEL` in between. That the worker runs at all proves that the processor has been below `DISPATCH_LEVEL`. When no call
//! waits any more they run as DPCs again.
//!
//! Everything is allocated before it is needed: the threads when the driver is loaded, a call's entry in the queue with the call.

use alloc::{boxed::Box, vec::Vec};
use core::{
    cell::UnsafeCell,
    mem, ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use engine::os::SpinLock;
use fallible::{Arc, try_box};
use kernel::{Bound, Event, Thread, WaitLock, at_dispatch_level};
use ndkpi::NtStatus;
use wdk_sys::PVOID;

use super::{KernelLock, dpc, processor};

/// DPCs that a processor runs before further ones wait for its worker: a fifth of a second, at the 100 microseconds that
/// the DDI reference allows a DPC. Quanta of queue pairs are bounded accordingly.
const BUDGET: u32 = 2048;

/// The entry of a call in the queue of a worker.
pub struct QueueEntry {
    /// Touched with the worker's lock held, and only by the worker of one processor.
    waiting: UnsafeCell<QueuedCall>,
}

/// A call that waits, if `target` is not null.
struct QueuedCall {
    run: unsafe fn(PVOID),
    target: PVOID,
    next: *const QueueEntry,
}

// SAFETY: what is in it is touched only with the worker's lock held; the pointers are those of places and of counted references,
// which may be used on any thread.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in it may be used on any thread")]
unsafe impl Send for QueueEntry {}
// SAFETY: as for `Send`.
unsafe impl Sync for QueueEntry {}

/// What the entry of a call that does not wait would run.
const unsafe fn nothing(_: PVOID) {}

impl QueueEntry {
    /// The entry of a call that does not wait.
    pub const fn new() -> Self {
        Self { waiting: UnsafeCell::new(QueuedCall { run: nothing, target: ptr::null_mut(), next: ptr::null() }) }
    }
}

/// Calls that wait, first in, first out.
///
/// # Invariants
///
/// From `first` on the places are linked by `next`; `last` is the last one if `first` is not null. Each of them lives, and has a
/// target that is not null.
struct Queue {
    first: *const QueueEntry,
    last: *const QueueEntry,
    /// No more calls are taken, and the thread ends when those that wait have run.
    closed: bool,
}

// SAFETY: as for `QueueEntry`.
unsafe impl Send for Queue {}

/// How a call runs that is about to.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs now.
    Runs,
    /// The worker runs it.
    Waits,
    /// It waited already: the worker runs it once, for the first target.
    WaitedAlready,
}

/// What the thread does next.
enum Next {
    Run(unsafe fn(PVOID), PVOID),
    Sleep,
    End,
}

/// The worker of one processor.
pub struct Worker {
    queue: KernelLock<Queue>,
    /// Calls that have run as DPCs since the worker last had nothing to do.
    spent: AtomicU32,
    /// Set when a call waits, or the queue is closed.
    wake: Event,
}

impl Worker {
    fn try_new() -> Result<Arc<Self>, NtStatus> {
        Arc::try_new(Self {
            queue: KernelLock::new(Queue { first: ptr::null(), last: ptr::null(), closed: false }),
            spent: AtomicU32::new(0),
            wake: Event::try_new()?,
        })
        .map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// A DPC of this worker's processor is about to run. At `DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// `target` is not null, and `run` may be called with it once, at `DISPATCH_LEVEL`, on any thread, now or later. `entry` is
    /// used with this worker only, and lives until `run` is called if the call waits.
    pub unsafe fn admit(&self, entry: &QueueEntry, run: unsafe fn(PVOID), target: PVOID) -> Fate {
        if self.spent.load(Relaxed) < BUDGET {
            self.spent.fetch_add(1, Relaxed);
            return Fate::Runs;
        }
        let fate = self.queue.with(|queue| {
            if queue.closed {
                return Fate::Runs;
            }
            // SAFETY: the lock of the one worker that uses the entry is held.
            let waiting = unsafe { &mut *entry.waiting.get() };
            if !waiting.target.is_null() {
                return Fate::WaitedAlready;
            }
            *waiting = QueuedCall { run, target, next: ptr::null() };
            if queue.first.is_null() {
                queue.first = entry;
            } else {
                // SAFETY: there is a first entry, so there is a last one, which lives (invariant).
                let last = unsafe { &*queue.last };
                // SAFETY: the lock is held. It is not the entry above, which did not wait.
                unsafe { (*last.waiting.get()).next = entry };
            }
            queue.last = entry;
            Fate::Waits
        });
        if fate == Fate::Waits {
            self.wake.set();
        }
        fate
    }

    /// Takes the call out that has waited longest. If there is none, calls run as DPCs again.
    fn next(&self) -> Next {
        self.queue.with(|queue| {
            // SAFETY: null, or an entry in the queue, which lives (invariant).
            let Some(entry) = (unsafe { queue.first.as_ref() }) else {
                self.spent.store(0, Relaxed);
                return if queue.closed { Next::End } else { Next::Sleep };
            };
            // SAFETY: the lock is held.
            let waiting = unsafe { &mut *entry.waiting.get() };
            queue.first = waiting.next;
            Next::Run(waiting.run, mem::replace(&mut waiting.target, ptr::null_mut()))
        })
    }

    /// The thread.
    fn serve(&self, processor: u32) {
        let _bound = Bound::to(processor);
        loop {
            match self.next() {
                // SAFETY: who had the call wait has promised that it may run, and it is taken out once.
                Next::Run(run, target) => at_dispatch_level(|| unsafe { run(target) }),
                Next::Sleep => {
                    self.wake.wait();
                    // What is put into the queue before this is found by the next look, and what comes later sets it again.
                    self.wake.clear();
                }
                Next::End => return,
            }
        }
    }

    /// Lets no more calls wait, and has the thread end.
    fn close(&self) {
        self.queue.with(|queue| queue.closed = true);
        self.wake.set();
    }
}

/// The workers, one for each processor, and their threads. Dropped, it waits until all calls that wait have run.
struct Workers {
    workers: Vec<Arc<Worker>>,
    threads: WaitLock<Vec<Thread>>,
}

impl Workers {
    fn try_new() -> Result<Self, NtStatus> {
        let count = processor::known() as usize;
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        workers.try_reserve_exact(count).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        threads.try_reserve_exact(count).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut this = Self { workers, threads: WaitLock::try_new(threads)? };
        for processor in 0..processor::known() {
            let worker = Worker::try_new()?;
            this.workers.push(worker.clone());
            let thread = Thread::try_spawn(move || worker.serve(processor))?;
            this.threads.with(|threads| threads.push(thread));
        }
        Ok(this)
    }

    /// Ends the threads, which first run what waits.
    fn close(&self) {
        self.workers.iter().for_each(|worker| worker.close());
        drop(self.threads.with(mem::take));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

/// The workers; null before [`start`] and after [`stop`].
static WORKERS: AtomicPtr<Workers> = AtomicPtr::new(ptr::null_mut());

/// The worker of a processor, for DPCs; `None` if the driver has none.
pub fn of(processor: u32) -> Option<&'static Worker> {
    // SAFETY: null, or what `start` has put there, which `stop` frees after the last DPC has run.
    let workers = unsafe { WORKERS.load(Acquire).as_ref() }?;
    workers.workers.get(processor as usize).map(|worker| &**worker)
}

/// Starts the workers. `PASSIVE_LEVEL`, after the processors were counted.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES` or what the kernel says of a thread; then there are none.
pub fn start() -> Result<(), NtStatus> {
    let workers = try_box(Workers::try_new()?).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    WORKERS.store(Box::into_raw(workers), Release);
    Ok(())
}

/// Waits until every call has run that waits or is queued, and ends the workers. `PASSIVE_LEVEL`; nobody but calls that run now
/// queues calls any more. Does nothing but wait if there are no workers.
pub fn stop() {
    // SAFETY: null, or what `start` has put there and only this function frees.
    if let Some(workers) = unsafe { WORKERS.load(Acquire).as_ref() } {
        workers.close();
    }
    // What the workers still had to run may have queued calls.
    dpc::drain();
    let workers = WORKERS.swap(ptr::null_mut(), AcqRel);
    if !workers.is_null() {
        // SAFETY: `start` made it of a box, and the last DPC has run.
        drop(unsafe { Box::from_raw(workers) });
    }
}
