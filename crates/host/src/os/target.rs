//! How a reference to a routine's target travels through the machine's queues.

use std::{any::type_name, ptr};

use engine::os::Routine;
use fallible::{AllocError, Shared};

use crate::machine::{Arguments, Dpc, MachineRef};

/// Packs a reference, to be unpacked once by [`from_arguments`].
pub fn into_arguments<T>(target: Shared<T>) -> Arguments {
    Arguments { first: Shared::into_raw(target).cast_mut().cast(), second: ptr::null_mut() }
}

/// Unpacks a reference.
///
/// # Safety
///
/// `arguments` came from [`into_arguments`] for the same `T`, and are unpacked only once.
pub const unsafe fn from_arguments<T>(arguments: Arguments) -> Shared<T> {
    // SAFETY: `first` came from `Shared::into_raw` and is taken back once (the caller's promise).
    unsafe { Shared::from_raw(arguments.first.cast_const().cast()) }
}

/// A DPC that runs `R` on the target in its arguments, then gives the reference back.
///
/// Whoever queues it must pass what [`into_arguments`] made of a `Shared<R::Target>`.
pub fn dpc<R: Routine>(machine: &MachineRef) -> Result<Dpc, AllocError> {
    Dpc::try_new(machine, type_name::<R>(), |arguments| {
        // SAFETY: the arguments were made for an `R::Target` (the rule of this function), and a DPC runs once for each time
        // that it took arguments.
        let target = unsafe { from_arguments::<R::Target>(arguments) };
        R::run(&target);
    })
}
