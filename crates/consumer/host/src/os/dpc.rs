//! [`Dpc`] of the engine.

use std::marker::PhantomData;

use engine::os::{Dpc, Routine};
use fallible::{AllocError, Arc};

use super::target;
use crate::machine::{Importance, Irql, MachineRef, PlainDpc, assert_irql_at_most};

/// A DPC of the routine `R` on a chosen processor.
///
/// # Invariants
///
/// `dpc` is private, so that its arguments always hold a reference to an `R::Target`.
pub struct HostDpc<R> {
    dpc: PlainDpc,
    /// The locks of the operating system raise the IRQL.
    raises: bool,
    routine: PhantomData<fn() -> R>,
}

impl<R: Routine> HostDpc<R> {
    pub(super) fn try_new(machine: &MachineRef, processor: u32, raises: bool) -> Result<Self, AllocError> {
        let dpc = target::plain_dpc::<R>(machine)?;
        dpc.set_target(Some(processor));
        dpc.set_importance(Importance::MediumHigh);
        Ok(Self { dpc, raises, routine: PhantomData })
    }
}

impl<R: Routine> Dpc<R> for HostDpc<R> {
    #[track_caller]
    fn queue(&self, target: &Arc<R::Target>) -> bool {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        let arguments = || target::into_arguments(target.clone());
        if self.raises { self.dpc.queue_with(arguments) } else { self.dpc.queue_unraised_with(arguments) }
    }
}
