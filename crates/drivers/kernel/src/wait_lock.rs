//! Locks for code that may wait.

use alloc::boxed::Box;
use core::{cell::UnsafeCell, pin::Pin, ptr};

use ndkpi::NtStatus;
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, IO_NO_INCREMENT, KEVENT,
    ntddk::{KeEnterCriticalRegion, KeInitializeEvent, KeLeaveCriticalRegion, KeSetEvent, KeWaitForSingleObject},
};

use crate::{Fixed, KERNEL_MODE};

/// A lock around a `T` whose holder may wait.
///
/// # Invariants
///
/// `free` is an initialised synchronisation event. It is set while nobody holds the lock, and wakes one thread
/// each time. Only that thread touches `value`.
pub struct WaitLock<T> {
    free: Pin<Box<Fixed<KEVENT>>>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out its value to one thread at a time, on whichever thread that is.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in the event are the kernel's")]
unsafe impl<T: Send> Send for WaitLock<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for WaitLock<T> {}

impl<T: Send> WaitLock<T> {
    /// Makes a lock that nobody holds.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, NtStatus> {
        let free = Fixed::try_boxed(KEVENT::default())?;
        // SAFETY: memory for an event, pinned, which nobody else knows yet.
        unsafe { KeInitializeEvent(free.as_ref().get(), _EVENT_TYPE::SynchronizationEvent, 1) };
        Ok(Self { free, value: UnsafeCell::new(value) })
    }

    /// Runs `work` on the value while nobody else can. Locking again from inside `work` is a deadlock.
    pub fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        // A thread that is suspended while it holds the lock would hold up all others.
        // SAFETY: left again when `held` is dropped, on this thread.
        unsafe { KeEnterCriticalRegion() };
        let (event, reason) = (self.free.as_ref().get(), _KWAIT_REASON::Executive);
        // SAFETY: the event is initialised (invariant), the caller is at `PASSIVE_LEVEL`, and without a timeout the wait
        // ends only when the event lets this thread go.
        let _ = unsafe { KeWaitForSingleObject(event.cast(), reason, KERNEL_MODE, 0, ptr::null_mut()) };
        let held = Guard(event);
        // SAFETY: this thread holds the lock, so nobody else has a reference to the value (invariant).
        let result = work(unsafe { &mut *self.value.get() });
        drop(held);
        result
    }
}

/// The lock, held.
struct Guard(*mut KEVENT);

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: the event of a lock that this thread holds and that is borrowed as long as this value lives.
        unsafe { KeSetEvent(self.0, IO_NO_INCREMENT.cast_signed(), 0) };
        // SAFETY: the only maker has entered it on this thread.
        unsafe { KeLeaveCriticalRegion() };
    }
}
