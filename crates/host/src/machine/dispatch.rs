//! Deferred calls that interrupt a thread, as a kernel's do.
//!
//! A thread that [`MachineRef::run_on`] has put on a processor is what that processor runs. While it is below `DISPATCH_LEVEL`
//! a deferred call may interrupt it: one that it queues itself runs at once, or as soon as it lowers its IRQL, on the thread
//! itself and with no other thread in between. At `DISPATCH_LEVEL` the thread has its processor for itself, and calls that
//! others queue there wait. Below, these run on the processor's own thread: code on a host cannot be interrupted.

use std::{cell::Cell, fmt, marker::PhantomData, panic::AssertUnwindSafe, panic::catch_unwind, ptr};

use super::{
    core::MachineRef,
    dpc::run_entry,
    irql::{Irql, assert_irql_at_most, current_irql},
    queue::Processor,
    rules::{Rule, broken_at_drop},
    thread,
    threads::report,
};

/// What deferred calls of a processor need to interrupt a thread.
struct Site {
    machine: MachineRef,
    index: u32,
}

/// The processor whose deferred calls interrupt a thread, if there is one.
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

    /// Lets no deferred call interrupt the thread.
    #[inline]
    pub fn mask(&self) {
        if let Some(site) = self.site() {
            site.processor().take();
        }
    }

    /// Runs what is queued and lets deferred calls interrupt the thread again. After [`Interrupted::mask`], at
    /// `DISPATCH_LEVEL`.
    #[inline]
    pub fn unmask(&self) {
        if let Some(site) = self.site() {
            if site.processor().pending() {
                site.run_queued();
            }
            site.processor().give();
        }
    }

    /// [`Interrupted::unmask`] for a thread that unwinds: what is queued is left to the processor's own thread.
    pub fn unmask_in_panic(&self) {
        if let Some(site) = self.site() {
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

    /// Runs what is queued, also what is queued meanwhile.
    #[inline(never)]
    fn run_queued(&self) {
        let processor = self.processor();
        while processor.pending()
            && let Some(entry) = processor.next_here()
        {
            let name = entry.dpc.name;
            let outcome = catch_unwind(AssertUnwindSafe(|| run_entry(entry, self.index)));
            processor.end_here();
            // Written down as if it had run on the processor's thread: who has queued the call has not failed.
            if outcome.is_err() {
                report(&self.machine, self.index, name, outcome);
            }
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
    /// Makes the current thread what `processor` runs: deferred calls that it queues there run as in a kernel, on the thread
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
        let site: *const Site = Box::into_raw(Box::new(Site { machine: self.clone(), index: processor }));
        thread::with(|state| state.interrupted.0.set(site));
        OnProcessor { site, own: PhantomData }
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
            // A deferred call may be what drops this, and its caller still has the box: it is lost.
            return broken_at_drop(Rule::IrqlNotRestored, format_args!("a thread leaves its processor at {level}"));
        }
        // SAFETY: from `Box::into_raw`. The thread's pointer to it is gone, and below `DISPATCH_LEVEL` nobody uses what was
        // behind that: `mask` and `unmask` run at `DISPATCH_LEVEL`.
        drop(unsafe { Box::from_raw(self.site.cast_mut()) });
    }
}
