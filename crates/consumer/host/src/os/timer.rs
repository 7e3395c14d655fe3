//! [`Timer`] of the engine.

use std::{any::type_name, marker::PhantomData};

use engine::os::{Routine, Timer};
use fallible::{AllocError, Arc};

use super::target;
use crate::machine::{self, Arguments, Importance, MachineRef};

/// A one-shot timer that runs the routine `R`.
///
/// # Invariants
///
/// Both fields are private, so that the arguments of the timer and of the DPC always hold a reference to an `R::Target`.
pub struct HostTimer<R> {
    timer: machine::Timer,
    /// Owned so that it is freed with the timer; the timer's expiry queues it.
    _dpc: machine::Dpc,
    routine: PhantomData<fn() -> R>,
}

impl<R: Routine> HostTimer<R> {
    pub(super) fn try_new(machine: &MachineRef) -> Result<Self, AllocError> {
        let dpc = target::dpc::<R>(machine)?;
        dpc.set_importance(Importance::MediumHigh);
        let handle = dpc.handle();
        let timer = machine::Timer::try_new(machine, type_name::<R>(), move |arguments| {
            if !handle.queue(arguments) {
                // The call of an earlier expiry has not begun yet and stands for this one too.
                release::<R>(arguments);
            }
        })?;
        Ok(Self { timer, _dpc: dpc, routine: PhantomData })
    }
}

/// Gives back the reference in arguments that nobody else will use.
fn release<R: Routine>(arguments: Arguments) {
    // SAFETY: the arguments of a timer hold a reference to an `R::Target` (invariant of `HostTimer`), and the caller is the
    // only one to have got them from the machine.
    drop(unsafe { target::from_arguments::<R::Target>(arguments) });
}

impl<R: Routine> Timer<R> for HostTimer<R> {
    #[track_caller]
    fn set(&self, delay: u64, target: &Arc<R::Target>) {
        if let Some(before) = self.timer.set(delay, 0, target::into_arguments(target.clone())) {
            release::<R>(before);
        }
    }

    #[track_caller]
    fn cancel(&self) -> bool {
        self.timer.cancel().map(release::<R>).is_some()
    }
}
