//! [`SpinLock`] of the engine.

use std::{any::type_name, cell::UnsafeCell};

use engine::os::SpinLock;

use crate::machine::{Irql, LockName, MachineRef, RawSpinLock};

/// A spin lock around a value.
///
/// Its class, for the order of locks, is the type of the value.
pub struct HostLock<T> {
    raw: RawSpinLock,
    /// Tells the locks of one class apart.
    instance: u64,
    /// The machine, if it wants to get in between (a seeded one).
    preempts: Option<MachineRef>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for HostLock<T> {}

impl<T> HostLock<T> {
    pub(super) fn new(machine: &MachineRef, value: T) -> Self {
        Self {
            raw: RawSpinLock::new(),
            instance: machine.next_number(),
            preempts: machine.preempts().then(|| machine.clone()),
            value: UnsafeCell::new(value),
        }
    }

    fn name(&self) -> LockName {
        LockName { class: type_name::<T>(), instance: self.instance }
    }

    fn preempt(&self) {
        if let Some(machine) = &self.preempts {
            machine.preempt();
        }
    }
}

/// Releases the lock if the work panics.
struct Unwinding<'lock> {
    raw: &'lock RawSpinLock,
    before: Irql,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        self.raw.release_in_panic(self.before);
    }
}

impl<T: Send> SpinLock<T> for HostLock<T> {
    #[inline]
    #[track_caller]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        self.preempt();
        let before = self.raw.acquire(self.name());
        let unwinding = Unwinding { raw: &self.raw, before };
        // SAFETY: this thread holds the lock, and acquiring it again from inside `work` panics, so nobody else has a
        // reference to the value.
        let value = unsafe { &mut *self.value.get() };
        let result = work(value);
        std::mem::forget(unwinding);
        self.raw.release(before);
        self.preempt();
        result
    }
}
