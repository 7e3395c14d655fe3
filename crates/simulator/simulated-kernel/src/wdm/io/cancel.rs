//! Cancellation of IRPs: the cancel spin lock, and the routine that a driver has set.

use std::cell::Cell;

use host::machine::{Irql, LockName, RawSpinLock};
use wdk_bindings::{BOOLEAN, KIRQL, NTSTATUS, PIRP, PKIRQL, STATUS_CANCELLED};

use super::request::{Request, Requests};
use crate::{
    context::{self, NOBODY},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    wdm::lock as spin_lock,
};

/// What the lock of the system is called.
const NAME: LockName = LockName { class: "the cancel spin lock", instance: 0 };

/// The lock of the system under which IRPs are cancelled.
#[derive(Default)]
pub struct CancelLock(RawSpinLock);

impl Part for CancelLock {}

thread_local! {
    /// The IRP whose cancel routine runs.
    static CANCELLING: Cell<usize> = const { Cell::new(0) };
}

/// A cancel routine says of the IRP that it completes that it was cancelled.
pub fn check_status(irp: PIRP, status: NTSTATUS) {
    let is_cancelled = CANCELLING.get() == irp.addr();
    if is_cancelled && status != STATUS_CANCELLED {
        let words = format_args!("a cancel routine completes its IRP with {status:#x}, and not STATUS_CANCELLED");
        bug_check(Rule::IrpStatus, words);
    }
}

/// The cancel spin lock is held.
pub struct Held<'state>(&'state State, Irql);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        spin_lock::let_go(self.0, &self.0.part::<CancelLock>().0, self.1);
    }
}

impl State {
    /// Acquires the cancel spin lock until the result is dropped.
    pub fn hold_cancellation(&self) -> Held<'_> {
        Held(self, spin_lock::hold(self, &self.part::<CancelLock>().0, NAME))
    }

    /// Cancels a request: marks it, and calls the routine that its driver has set, which releases the cancel spin lock. Whether there was
    /// one.
    pub fn cancel_irp(&self, request: &Request) -> bool {
        let holder = request.holder();
        let owner = holder.as_ref().map_or(NOBODY, |device| device.owner);
        context::call(owner, "a cancel routine", || {
            let routine = {
                let _inside = context::Inside::new("IoCancelIrp");
                let before = spin_lock::hold(self, &self.part::<CancelLock>().0, NAME);
                let is_live = self.locked::<Requests>().has(request);
                let routine = is_live.then(|| {
                    // SAFETY: the IRP is not complete, and who completes it takes the routine away first.
                    let irp = unsafe { &mut *request.pointer() };
                    (irp.Cancel, irp.CancelIrql) = (1, before.0);
                    irp.CancelRoutine.take()
                });
                if routine.flatten().is_none() {
                    spin_lock::let_go(self, &self.part::<CancelLock>().0, before);
                }
                routine.flatten()
            };
            if let Some(routine) = routine {
                let before = CANCELLING.replace(request.address);
                let device = holder.map_or(std::ptr::null_mut(), |device| device.pointer());
                // SAFETY: the driver's own routine, with its own device and IRP, and with the lock that it releases.
                unsafe { routine(device, request.pointer()) };
                CANCELLING.set(before);
            }
            routine.is_some()
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoCancelIrp(irp: PIRP) -> BOOLEAN {
    routine!("IoCancelIrp", |state| {
        let Some(request) = state.irp(irp) else {
            bug_check(Rule::BadHandle, format_args!("{irp:p} is cancelled and is no IRP, or was one"));
        };
        state.cancel_irp(&request).into()
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoAcquireCancelSpinLock(place: PKIRQL) {
    routine!("IoAcquireCancelSpinLock", |state| {
        let before = spin_lock::hold(state, &state.part::<CancelLock>().0, NAME);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(before.0) };
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn IoReleaseCancelSpinLock(before: KIRQL) {
    routine!("IoReleaseCancelSpinLock", |state| {
        spin_lock::let_go(state, &state.part::<CancelLock>().0, Irql(before));
    });
}
