//! Locks for code that may wait.

use core::{cell::UnsafeCell, ptr};

use ndkpi::NtStatus;
use wdk_sys::{WDFOBJECT, WDFWAITLOCK, call_unsafe_wdf_function_binding};

use super::attributes;
use crate::check;

/// A wait lock around a `T`. The framework deletes it with its parent.
///
/// # Invariants
///
/// `lock` is live as long as this value. `value` is touched only by who holds it.
pub struct WaitLock<T> {
    lock: WDFWAITLOCK,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out its value to one thread at a time, on whichever thread that is.
unsafe impl<T: Send> Send for WaitLock<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for WaitLock<T> {}

impl<T: Send> WaitLock<T> {
    /// A lock that nobody holds.
    ///
    /// # Errors
    ///
    /// What the framework says; `value` is dropped.
    ///
    /// # Safety
    ///
    /// `parent` is a live framework object, and is not deleted before this value is dropped for the last time.
    pub unsafe fn try_new(parent: WDFOBJECT, value: T) -> Result<Self, NtStatus> {
        let mut attributes = attributes();
        attributes.ParentObject = parent;
        let mut lock = ptr::null_mut();
        // SAFETY: the parent is live (the caller's promise); the attributes and the place live until the call returns.
        check(unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockCreate, &raw mut attributes, &raw mut lock) })?;
        Ok(Self { lock, value: UnsafeCell::new(value) })
    }

    /// Runs `work` on the value while nobody else can.
    pub fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        // SAFETY: the lock is live (invariant); a null timeout waits as long as it takes, which is never in vain.
        let _ = unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockAcquire, self.lock, ptr::null_mut()) };
        let held = Held(self.lock);
        // SAFETY: this thread holds the lock, so nobody else has a reference to the value (invariant).
        let result = work(unsafe { &mut *self.value.get() });
        drop(held);
        result
    }
}

/// The lock, held.
struct Held(WDFWAITLOCK);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the only maker has just acquired the lock on this thread.
        unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockRelease, self.0) };
    }
}
