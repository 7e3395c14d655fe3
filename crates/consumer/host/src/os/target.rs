//! How a reference to a routine's target travels through the machine's queues.

use std::{any::type_name, ptr};

use engine::os::Routine;
use fallible::{AllocError, Arc};

use crate::machine::{Arguments, Dpc, MachineRef, PlainDpc};

/// Packs a reference, to be unpacked once by [`from_arguments`].
pub fn into_arguments<T>(target: Arc<T>) -> Arguments {
    Arguments { first: Arc::into_raw(target).cast_mut().cast(), second: ptr::null_mut() }
}

/// Unpacks a reference.
///
/// # Safety
///
/// `arguments` came from [`into_arguments`] for the same `T`, and are unpacked only once.
pub const unsafe fn from_arguments<T>(arguments: Arguments) -> Arc<T> {
    // SAFETY: `first` came from `Arc::into_raw` and is taken back once (`# Safety`).
    unsafe { Arc::from_raw(arguments.first.cast_const().cast()) }
}

/// Runs `R` on the target in `arguments`, then gives the reference back.
fn run<R: Routine>(arguments: Arguments) {
    // SAFETY: the arguments were made for an `R::Target` (the rule of the two functions below), and a DPC runs once for each time
    // that it took arguments.
    let target = unsafe { from_arguments::<R::Target>(arguments) };
    R::run(&target);
}

/// A DPC that runs `R` on the target in its arguments, then gives the reference back.
///
/// Whoever queues it must pass what [`into_arguments`] made of an `Arc<R::Target>`.
pub fn dpc<R: Routine>(machine: &MachineRef) -> Result<Dpc, AllocError> {
    Dpc::try_new(machine, type_name::<R>(), run::<R>)
}

/// As [`dpc`].
pub fn plain_dpc<R: Routine>(machine: &MachineRef) -> Result<PlainDpc, AllocError> {
    PlainDpc::try_new(machine, type_name::<R>(), run::<R>)
}
