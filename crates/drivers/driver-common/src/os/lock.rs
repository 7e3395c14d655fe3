//! Spin locks: the kernel's queued ones, whose waiters spin on memory of their own and get the lock in the order in which
//! they came. The choice is open to figures: what is measured so far, that it does not speak for a queue, and what has to be
//! measured on Windows, is in `docs/tests.md`.

use core::cell::UnsafeCell;

use engine::os::SpinLock;
use wdk_sys::{
    KLOCK_QUEUE_HANDLE, KSPIN_LOCK,
    ntddk::{KeAcquireInStackQueuedSpinLock, KeInitializeSpinLock, KeReleaseInStackQueuedSpinLock},
};

/// A spin lock around a `T`.
///
/// # Invariants
///
/// `word` was initialised, and is only acquired as a queued lock. `value` is touched only by who holds it.
pub struct KernelLock<T> {
    word: UnsafeCell<KSPIN_LOCK>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out its value to one thread at a time, on whichever thread that is.
unsafe impl<T: Send> Send for KernelLock<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for KernelLock<T> {}

impl<T> KernelLock<T> {
    /// A lock that nobody holds. As long as that is so it may be moved: it is a number.
    pub fn new(value: T) -> Self {
        let mut word = 0;
        // SAFETY: `word` is memory for a lock.
        unsafe { KeInitializeSpinLock(&raw mut word) };
        Self { word: UnsafeCell::new(word), value: UnsafeCell::new(value) }
    }
}

impl<T: Send> SpinLock<T> for KernelLock<T> {
    #[inline]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        let mut held = Held(KLOCK_QUEUE_HANDLE::default());
        // SAFETY: the lock is initialised (invariant), and the handle stays where it is until the lock is released.
        unsafe { KeAcquireInStackQueuedSpinLock(self.word.get(), &raw mut held.0) };
        // SAFETY: this processor holds the lock, so nobody else has a reference to the value (invariant).
        let value = unsafe { &mut *self.value.get() };
        let result = work(value);
        drop(held);
        result
    }
}

/// The lock, held. Dropping it releases, also when a test that runs this off Windows panics under the lock.
struct Held(KLOCK_QUEUE_HANDLE);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the only maker acquires the lock with this handle before anything else can happen.
        unsafe { KeReleaseInStackQueuedSpinLock(&raw mut self.0) };
    }
}
