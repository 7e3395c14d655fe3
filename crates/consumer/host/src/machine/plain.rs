//! DPCs that a thread queues to itself with no lock.
//!
//! What a thread queues to the processor that it is, at `DISPATCH_LEVEL`, nobody but the thread itself has to see: it runs the
//! call when its level drops. That is so if nobody takes calls out of the queue, and if a running call needs nothing of its DPC:
//! as in a kernel, the routine is a function, and function and arguments are copied before it runs. Then queueing costs one
//! exchange, which says that the DPC is queued, and running it another.

use std::{fmt, mem, ptr::NonNull};

use fallible::{AllocError, Arc};

use super::{
    core::MachineRef,
    dpc::{Arguments, Dpc, DpcInner, Importance},
    queue::Entry,
};

/// A [`Dpc`] whose routine is a function, and which is not removed once it is queued. Its owner may not drop it while it is
/// queued; it may be dropped while its routine runs.
pub struct PlainDpc {
    dpc: Dpc,
    routine: fn(Arguments),
}

impl fmt::Debug for PlainDpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlainDpc").field(&self.dpc.inner.name).finish()
    }
}

impl PlainDpc {
    /// A DPC that runs `routine` at `DISPATCH_LEVEL`: `KeInitializeDpc`. `name` appears in messages.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory. Queueing needs none.
    pub fn try_new(machine: &MachineRef, name: &'static str, routine: fn(Arguments)) -> Result<Self, AllocError> {
        Ok(Self { dpc: Dpc::try_new(machine, name, routine)?, routine })
    }

    /// As [`Dpc::set_target`].
    ///
    /// # Panics
    ///
    /// If the machine has no such processor.
    pub fn set_target(&self, processor: Option<u32>) {
        self.dpc.set_target(processor);
    }

    /// As [`Dpc::set_importance`].
    pub fn set_importance(&self, importance: Importance) {
        self.dpc.set_importance(importance);
    }

    /// As [`Dpc::queue_with`].
    pub fn queue_with(&self, arguments: impl FnOnce() -> Arguments) -> bool {
        let machine = &self.dpc.inner.machine;
        machine.preempt();
        let queued = self.insert(true, arguments);
        machine.preempt();
        queued
    }

    /// As [`Dpc::queue_unraised_with`].
    pub fn queue_unraised_with(&self, arguments: impl FnOnce() -> Arguments) -> bool {
        self.insert(false, arguments)
    }

    #[inline]
    fn insert(&self, raises: bool, arguments: impl FnOnce() -> Arguments) -> bool {
        let dpc = &self.dpc.inner;
        if !dpc.claim() {
            return false;
        }
        let (machine, processor, importance, arguments) =
            (&dpc.machine, dpc.processor(), dpc.importance(), arguments());
        let call = || Call { dpc: NonNull::from(&**dpc), routine: self.routine, arguments };
        // Calls of these go to the end of the queue, and are begun with.
        let is_next = matches!(importance, Importance::Medium | Importance::MediumHigh);
        if !(is_next && machine.insert_own(processor, raises, call)) {
            machine.insert(processor, Entry::new(dpc.clone(), arguments), importance, raises);
        }
        true
    }
}

impl Drop for PlainDpc {
    fn drop(&mut self) {
        // Nobody can queue it any more. If it is queued, a `Call` still refers to it, and this is a broken rule, as the drop of the
        // inner value says: the DPC is lost.
        if self.dpc.is_queued() {
            mem::forget(self.dpc.inner.clone());
        }
    }
}

/// A call of a [`PlainDpc`] that is in no queue that others could see.
///
/// # Invariants
///
/// `dpc` is the DPC's own, in an [`Arc`], and [claimed](DpcInner::claim) for this value: it is queued until
/// [`DpcInner::clear_place`] says otherwise. So it is alive: the [`PlainDpc`] keeps it, and if that is dropped while it is queued it
/// leaves a reference behind.
pub struct Call {
    dpc: NonNull<DpcInner>,
    routine: fn(Arguments),
    arguments: Arguments,
}

impl Call {
    /// Says that the DPC is not queued any more. Gives its name, and what is to be run.
    #[inline]
    pub fn begin(self) -> (&'static str, fn(Arguments), Arguments) {
        // SAFETY: alive while it is queued (invariant). The reference is not used after `clear_place`.
        let dpc = unsafe { self.dpc.as_ref() };
        let name = dpc.name;
        dpc.clear_place();
        (name, self.routine, self.arguments)
    }

    /// The same call for the queue of a processor.
    pub fn into_entry(self) -> Entry {
        // SAFETY: from an `Arc` that is alive (invariant). It is not this reference, so it is not dropped.
        let owners = mem::ManuallyDrop::new(unsafe { Arc::from_raw(self.dpc.as_ptr()) });
        Entry::new(Arc::clone(&owners), self.arguments)
    }
}
