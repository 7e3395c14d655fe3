//! Events.

use alloc::boxed::Box;
use core::{pin::Pin, ptr};

use ndkpi::NtStatus;
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, IO_NO_INCREMENT, KEVENT, LARGE_INTEGER, PVOID, STATUS_TIMEOUT,
    ntddk::{KeClearEvent, KeInitializeEvent, KeSetEvent, KeWaitForSingleObject},
};

use crate::{Fixed, KERNEL_MODE};

/// A notification event: while it is set nobody waits for it.
///
/// # Invariants
///
/// `event` was initialised. The kernel links waiting threads to it.
pub struct Event {
    event: Pin<Box<Fixed<KEVENT>>>,
}

// SAFETY: the kernel's routines may be called for one event by any number of threads at a time.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in it are the kernel's")]
unsafe impl Send for Event {}
// SAFETY: as for `Send`; nothing else touches it.
unsafe impl Sync for Event {}

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let event = Fixed::try_boxed(KEVENT::default())?;
        // SAFETY: memory for an event, pinned, which nobody else knows yet.
        unsafe { KeInitializeEvent(event.as_ref().get(), _EVENT_TYPE::NotificationEvent, 0) };
        Ok(Self { event })
    }

    /// Sets the event: wakes every waiter. `IRQL <= DISPATCH_LEVEL`.
    pub fn set(&self) {
        // SAFETY: the event is initialised (invariant), and without `Wait` the routine may be called at `DISPATCH_LEVEL`.
        let _ = unsafe { KeSetEvent(self.event.as_ref().get(), IO_NO_INCREMENT.cast_signed(), 0) };
    }

    /// Clears the event. `IRQL <= DISPATCH_LEVEL`.
    pub fn clear(&self) {
        // SAFETY: the event is initialised (invariant).
        unsafe { KeClearEvent(self.event.as_ref().get()) };
    }

    /// Waits until the event is set.
    pub fn wait(&self) {
        self.wait_until(ptr::null_mut());
    }

    /// Returns true if the event is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.wait_micros(0)
    }

    /// Waits until the event is set, for at most this many microseconds. Returns false if the time ran out.
    #[must_use]
    pub fn wait_micros(&self, micros: u64) -> bool {
        // Negative: counted from now, in units of 100 nanoseconds.
        let units = i64::try_from(micros.saturating_mul(10)).unwrap_or(i64::MAX);
        let mut timeout = LARGE_INTEGER { QuadPart: -units };
        self.wait_until(&raw mut timeout)
    }

    fn wait_until(&self, timeout: *mut LARGE_INTEGER) -> bool {
        let object: PVOID = self.event.as_ref().get().cast();
        // SAFETY: the event is initialised (invariant) and lives as long as the borrow of `self`; the caller is at
        // `PASSIVE_LEVEL`, where waiting is allowed; the timeout is null or lives until the call returns.
        let status = unsafe { KeWaitForSingleObject(object, _KWAIT_REASON::Executive, KERNEL_MODE, 0, timeout) };
        status != STATUS_TIMEOUT
    }
}
