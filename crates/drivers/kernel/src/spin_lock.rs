//! The kernel's in-stack queued spin locks.

use core::{
    cell::UnsafeCell,
    pin::{Pin, pin},
};

use wdk_sys::{
    KLOCK_QUEUE_HANDLE, KSPIN_LOCK,
    ntddk::{KeAcquireInStackQueuedSpinLock, KeInitializeSpinLock, KeReleaseInStackQueuedSpinLock},
};

use crate::Fixed;

/// A lock whose waiters spin on memory of their own and get it in the order in which they came.
///
/// The kernel makes a queue of the waiters' handles: the lock's word has the address of the last handle, and each handle that of
/// the next one. Who releases looks whether the word still has the address of *its* handle. If not, somebody waits, and it spins
/// until that one has linked itself to the handle. So the release must be given the very handle of the acquisition, at its place:
/// with a copy it spins for ever, at `DISPATCH_LEVEL`, although nobody waits.
///
/// # Invariants
///
/// `word` was initialised, and is only acquired as a queued lock, with `self` borrowed.
pub struct QueuedSpinLock {
    word: UnsafeCell<KSPIN_LOCK>,
}

// SAFETY: the kernel's routines may be called for one lock by any number of threads at a time; nothing else touches the cell.
unsafe impl Sync for QueuedSpinLock {}

impl QueuedSpinLock {
    /// A lock that nobody holds. As long as that is so it may be moved: the word is zero, and no handle names its address.
    #[must_use]
    pub fn new() -> Self {
        let mut word = 0;
        // SAFETY: `word` is memory for a lock.
        unsafe { KeInitializeSpinLock(&raw mut word) };
        Self { word: UnsafeCell::new(word) }
    }

    /// Carries out `work` with the lock held, at `DISPATCH_LEVEL`. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// Locking again from inside `work` is a deadlock.
    #[inline]
    pub fn locked<U>(&self, work: impl FnOnce() -> U) -> U {
        // In this frame, outside of what holds the lock: that may be moved, this not.
        let handle = pin!(Fixed::new(KLOCK_QUEUE_HANDLE::default()));
        let _held = Guard::acquire(self, handle.as_ref());
        work()
    }
}

impl Default for QueuedSpinLock {
    fn default() -> Self {
        Self::new()
    }
}

/// The lock, held. Dropping it releases, also when a test that runs this off Windows panics under the lock.
///
/// # Invariants
///
/// A lock, which is borrowed, was acquired with the handle and has not been released.
struct Guard<'frame> {
    handle: Pin<&'frame Fixed<KLOCK_QUEUE_HANDLE>>,
}

impl<'frame> Guard<'frame> {
    /// Acquires the lock. `handle` is in no queue, and the result is dropped, not forgotten: both are seen to by the only caller.
    #[expect(clippy::inline_always, reason = "driver_pe sees one function at a time, and wants both calls in it")]
    #[inline(always)]
    fn acquire(lock: &'frame QueuedSpinLock, handle: Pin<&'frame Fixed<KLOCK_QUEUE_HANDLE>>) -> Self {
        // SAFETY: the lock is initialised (invariant) and does not move, because it is borrowed longer than the result lives. The
        // handle is pinned: it is at this address until it is dropped, which is after the result.
        unsafe { KeAcquireInStackQueuedSpinLock(lock.word.get(), handle.get()) };
        Self { handle }
    }
}

impl Drop for Guard<'_> {
    #[expect(clippy::inline_always, reason = "as the acquisition")]
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the lock is held by this handle (invariant), which is pinned and so has the address that it was acquired with.
        unsafe { KeReleaseInStackQueuedSpinLock(self.handle.get()) };
    }
}
