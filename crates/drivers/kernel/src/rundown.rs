//! Run-down protection: a gate that counts who is inside, and can be shut until the last has left.

use alloc::boxed::Box;
use core::pin::Pin;

use ndkpi::NtStatus;
use wdk_sys::{
    EX_RUNDOWN_REF,
    ntddk::{
        ExAcquireRundownProtection, ExInitializeRundownProtection, ExReleaseRundownProtection,
        ExWaitForRundownProtectionRelease,
    },
};

use crate::Fixed;

/// A gate that can be shut for good.
///
/// # Invariants
///
/// `reference` was initialised.
pub struct Rundown {
    reference: Pin<Box<Fixed<EX_RUNDOWN_REF>>>,
}

// SAFETY: the kernel's routines may be called for one reference by any number of threads at a time.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointer in it is the kernel's")]
unsafe impl Send for Rundown {}
// SAFETY: as for `Send`; nothing else touches it.
unsafe impl Sync for Rundown {}

impl Rundown {
    /// An open gate.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let reference = Fixed::try_boxed(EX_RUNDOWN_REF::default())?;
        // SAFETY: memory for a reference, pinned, which nobody else knows yet.
        unsafe { ExInitializeRundownProtection(reference.as_ref().get()) };
        Ok(Self { reference })
    }

    /// Enters. `None` if the gate is shut. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn enter(&self) -> Option<Permit<'_>> {
        // SAFETY: the reference is initialised (invariant).
        let inside = unsafe { ExAcquireRundownProtection(self.reference.as_ref().get()) };
        // Not `then_some`: a permit that nobody has would be dropped, and leave.
        (inside != 0).then(|| Permit { rundown: self })
    }

    /// Shuts the gate and waits until everybody has left. Calling it again does nothing.
    pub fn shut(&self) {
        // SAFETY: the reference is initialised (invariant) and the caller is at `PASSIVE_LEVEL`.
        unsafe { ExWaitForRundownProtectionRelease(self.reference.as_ref().get()) };
    }

    /// Leaves on behalf of a [`Permit`] that was [kept](Permit::keep). `IRQL <= DISPATCH_LEVEL`.
    pub fn leave(&self) {
        // SAFETY: the reference is initialised (invariant); the caller came in and gives up that permit here.
        unsafe { ExReleaseRundownProtection(self.reference.as_ref().get()) };
    }
}

/// The right to be inside. Dropping it leaves.
#[must_use = "dropped at once, it protects nothing"]
pub struct Permit<'rundown> {
    rundown: &'rundown Rundown,
}

impl Permit<'_> {
    /// Stays inside until [`Rundown::leave`] is called.
    pub const fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.rundown.leave();
    }
}
