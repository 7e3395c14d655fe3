//! Spin locks: the kernel's queued ones, whose waiters spin on memory of their own and get the lock in the order in which
//! they came. The choice is open to figures: what is measured so far, that it does not speak for a queue, and what has to be
//! measured on Windows, is in `docs/tests.md`.

use core::cell::UnsafeCell;

use engine::os::SpinLock;
use kernel::QueuedSpinLock;

/// A spin lock around a `T`.
///
/// # Invariants
///
/// `value` is touched only by who holds `lock`.
pub struct KernelLock<T> {
    lock: QueuedSpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out its value to one thread at a time, on whichever thread that is.
unsafe impl<T: Send> Sync for KernelLock<T> {}

impl<T> KernelLock<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self { lock: QueuedSpinLock::new(), value: UnsafeCell::new(value) }
    }
}

impl<T: Send> SpinLock<T> for KernelLock<T> {
    #[inline]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        self.lock.locked(|| {
            // SAFETY: this processor holds the lock, so nobody else has a reference to the value (invariant).
            let value = unsafe { &mut *self.value.get() };
            work(value)
        })
    }
}
