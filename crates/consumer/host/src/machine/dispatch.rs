//! DPCs that interrupt a thread, as a kernel's do.
//!
//! A thread that [`MachineRef::run_on`] has put on a processor is what that processor runs. While it is below `DISPATCH_LEVEL`
//! a DPC may interrupt it: one that it queues itself runs at once, or as soon as it lowers its IRQL, on the thread
//! itself and with no other thread in between. At `DISPATCH_LEVEL` the thread has its processor for itself, and calls that
//! others queue there wait. Below, these run on the processor's own thread: code on a host cannot be interrupted.

use std::{
    array,
    cell::Cell,
    fmt, iter,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use super::{
    core::MachineRef,
    dpc::{run_entry, watch},
    irql::{Irql, assert_irql_at_most, current_irql},
    plain::Call,
    queue::Processor,
    rules::{Rule, broken_at_drop},
    thread::{self, ThreadState},
    threads::report,
};

/// A thread queues this many calls to itself; more go to the queue of its processor.
const OWN_CALLS: usize = 64;

/// What DPCs of a processor need to interrupt a thread.
///
/// # Invariants
///
/// `own` is empty while the thread is below `DISPATCH_LEVEL`. Its calls are older than those in the processor's queue, except those
/// that go ahead of all.
struct Site {
    machine: MachineRef,
    index: u32,
    /// What the thread has queued to itself.
    own: OwnCalls,
}

/// The calls that a thread has queued to itself.
///
/// # Invariants
///
/// Those that have not run are in the slots of the numbers from `head` up to `tail`, at most [`OWN_CALLS`] of them. All other slots
/// are empty.
struct OwnCalls {
    slots: [Cell<Option<Call>>; OWN_CALLS],
    head: Cell<usize>,
    tail: Cell<usize>,
}

impl OwnCalls {
    fn new() -> Self {
        Self { slots: array::from_fn(|_| Cell::new(None)), head: Cell::new(0), tail: Cell::new(0) }
    }

    #[inline]
    const fn len(&self) -> usize {
        self.tail.get().wrapping_sub(self.head.get())
    }

    /// Queues a call. There is room for it.
    #[inline]
    fn push(&self, call: Call) {
        let tail = self.tail.get();
        self.slots[tail % OWN_CALLS].set(Some(call));
        self.tail.set(tail.wrapping_add(1));
    }

    /// Takes the oldest call.
    #[inline]
    fn pop(&self) -> Option<Call> {
        let head = self.head.get();
        if head == self.tail.get() {
            return None;
        }
        self.head.set(head.wrapping_add(1));
        self.slots[head % OWN_CALLS].take()
    }
}

/// The processor whose DPCs interrupt a thread, if there is one.
///
/// # Invariants
///
/// The pointer is null, or of a [`Site`] that an [`OnProcessor`] of this thread owns.
pub struct Interrupted(Cell<*const Site>);

impl Interrupted {
    /// No processor.
    pub const fn none() -> Self {
        Self(Cell::new(ptr::null()))
    }

    #[inline]
    fn site(&self) -> Option<&Site> {
        let site = self.0.get();
        // SAFETY: null, or of a live value (invariant), which is only taken away by its owner on this thread: that is
        // `OnProcessor::drop`, which nothing calls that has this reference.
        unsafe { site.as_ref() }
    }

    /// Returns true if calls of this processor interrupt the thread.
    #[inline]
    pub fn is(&self, processor: &Processor) -> bool {
        self.site().is_some_and(|site| ptr::eq(site.processor(), processor))
    }

    /// Lets no DPC interrupt the thread.
    #[inline]
    pub fn mask(&self) {
        if let Some(site) = self.site() {
            site.processor().take();
        }
    }

    /// Runs what is queued and lets DPCs interrupt the thread again, whose `state` this is. After
    /// [`Interrupted::mask`], at `DISPATCH_LEVEL`.
    #[inline]
    pub fn unmask(&self, state: &ThreadState) {
        if let Some(site) = self.site() {
            let processor = site.processor();
            if site.own.len() > 0 || processor.pending() {
                site.run_queued(processor, state);
            }
            processor.give();
        }
    }

    /// [`Interrupted::unmask`] for a thread that unwinds: what is queued is left to the processor's own thread.
    pub fn unmask_in_panic(&self) {
        if let Some(site) = self.site() {
            let own = iter::from_fn(|| site.own.pop()).map(Call::into_entry);
            site.processor().insert_own(site.index, own);
            site.processor().give();
            site.processor().begin();
        }
    }
}

impl Site {
    #[inline]
    fn processor(&self) -> &Processor {
        &self.machine.core.processors[self.index as usize]
    }

    /// Queues a call to the thread itself, which is at `DISPATCH_LEVEL` on `processor`. Returns false if it has to queue behind the calls of others,
    /// or there is no room.
    #[inline]
    fn queue(&self, processor: &Processor, call: impl FnOnce() -> Call) -> bool {
        let length = self.own.len() + 1;
        let is_next = processor.is_quiet() && length <= OWN_CALLS;
        if is_next {
            self.own.push(call());
            processor.count_own(length);
        }
        is_next
    }

    /// Runs what is queued, also what is queued meanwhile.
    #[inline(never)]
    fn run_queued(&self, processor: &Processor, state: &ThreadState) {
        loop {
            if processor.pending()
                && let Some(entry) = processor.next_here(self.own.len() > 0)
            {
                self.run(state, entry.dpc.name, || run_entry(&self.machine, entry, self.index));
                processor.end_here();
                continue;
            }
            let Some(call) = self.own.pop() else { return };
            let (name, routine, arguments) = call.begin();
            self.run(state, name, || watch(state, &self.machine, name, || routine(arguments)));
            processor.end_own();
        }
    }

    /// Runs a call on the current thread, which is on the processor at `DISPATCH_LEVEL`, and holds no lock. A panic is written down
    /// as if it had run on the processor's thread: who has queued the call has not failed.
    #[inline]
    fn run(&self, state: &ThreadState, name: &'static str, call: impl FnOnce()) {
        let outcome = catch_unwind(AssertUnwindSafe(call));
        if outcome.is_err() {
            state.irql.set(Irql::DISPATCH_LEVEL);
            state.locks.set(0);
            report(&self.machine, self.index, name, outcome);
        }
    }
}

/// The current thread is what a processor runs, as long as this lives.
pub struct OnProcessor {
    site: *const Site,
    /// The pointer is that of a box, and belongs to the thread that made it.
    own: PhantomData<*const Box<Site>>,
}

impl fmt::Debug for OnProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProcessor")
    }
}

impl MachineRef {
    /// Makes the current thread what `processor` runs: DPCs that it queues there run as in a kernel, on the thread
    /// itself, at once or when its IRQL drops below `DISPATCH_LEVEL`. At `DISPATCH_LEVEL` nothing else runs on the processor;
    /// several threads on one take turns.
    ///
    /// A routine that panics is a [`Failure`](super::Failure) of the processor, as on its own thread.
    ///
    /// # Panics
    ///
    /// If the machine is seeded or has no such processor, or the thread is on a processor already;
    /// [`Rule::IrqlTooHigh`](super::Rule::IrqlTooHigh) above `PASSIVE_LEVEL`.
    #[track_caller]
    #[must_use = "dropping it ends it"]
    pub fn run_on(&self, processor: u32) -> OnProcessor {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert!(self.core.seeded.is_none(), "a seeded machine runs everything on one thread already");
        thread::with(|state| assert!(state.interrupted.site().is_none(), "the thread is on a processor already"));
        self.bind_current_thread(processor);
        let site = Site { machine: self.clone(), index: processor, own: OwnCalls::new() };
        let site: *const Site = Box::into_raw(Box::new(site));
        thread::with(|state| state.interrupted.0.set(site));
        OnProcessor { site, own: PhantomData }
    }

    /// Queues a call that the current thread runs itself, when it is below `DISPATCH_LEVEL`, or at once if it is that already and
    /// `raises` says that no lock can be held then. Returns false if the call is not for this thread alone.
    #[inline]
    pub(super) fn insert_own(&self, index: u32, raises: bool, call: impl FnOnce() -> Call) -> bool {
        let processor = &self.core.processors[index as usize];
        thread::with(|state| {
            let Some(site) = state.interrupted.site().filter(|site| ptr::eq(site.processor(), processor)) else {
                return false;
            };
            if !state.is_interruptible() {
                return site.queue(processor, call);
            }
            if !raises {
                return false;
            }
            let before = state.raise(Irql::DISPATCH_LEVEL);
            let is_queued = site.queue(processor, call);
            state.lower(before);
            is_queued
        })
    }
}

impl Drop for OnProcessor {
    fn drop(&mut self) {
        let level = current_irql();
        thread::with(|state| {
            state.lower_in_panic(Irql::PASSIVE_LEVEL);
            state.interrupted.0.set(ptr::null());
        });
        if level > Irql::PASSIVE_LEVEL {
            // A DPC may be what drops this, and its caller still has the box: it is lost.
            return broken_at_drop(Rule::IrqlNotRestored, format_args!("a thread leaves its processor at {level}"));
        }
        // SAFETY: from `Box::into_raw`. The thread's pointer to it is gone, and below `DISPATCH_LEVEL` nobody uses what was
        // behind that: `mask` and `unmask` run at `DISPATCH_LEVEL`.
        drop(unsafe { Box::from_raw(self.site.cast_mut()) });
    }
}
