//! Completion routines that keep their driver loaded.

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PDEVICE_OBJECT, PIO_COMPLETION_ROUTINE, PIRP, PVOID, SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR,
    SL_INVOKE_ON_SUCCESS, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, UCHAR,
};

use super::request::current;
use crate::{context, report::bug_check, routine::routine, rule::Rule};

#[unsafe(no_mangle)]
extern "C" fn IoSetCompletionRoutineEx(
    device: PDEVICE_OBJECT,
    irp: PIRP,
    completion: PIO_COMPLETION_ROUTINE,
    argument: PVOID,
    on_success: BOOLEAN,
    on_error: BOOLEAN,
    on_cancel: BOOLEAN,
) -> NTSTATUS {
    routine!("IoSetCompletionRoutineEx", DISPATCH_LEVEL, |state| {
        if state.device_at(device).owner != context::caller() {
            bug_check(Rule::BadHandle, format_args!("IoSetCompletionRoutineEx with the device of another driver"));
        }
        if completion.is_none() && (on_success | on_error | on_cancel) != 0 {
            bug_check(Rule::BadArgument, format_args!("IoSetCompletionRoutineEx without a routine"));
        }
        // SAFETY: an IRP that the driver has.
        if unsafe { (*irp).CurrentLocation } <= 1 {
            bug_check(Rule::IrpStackLocations, format_args!("a completion routine in an IRP without another location"));
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let wanted =
            [(on_success, SL_INVOKE_ON_SUCCESS), (on_error, SL_INVOKE_ON_ERROR), (on_cancel, SL_INVOKE_ON_CANCEL)];
        let control = wanted.iter().filter(|(is_wanted, _)| *is_wanted != 0).fold(0, |all, (_, bit)| all | bit);
        // SAFETY: the next location of the IRP, which is the driver's until it passes the IRP on.
        let next = unsafe { &mut *current(irp).wrapping_sub(1) };
        (next.CompletionRoutine, next.Context) = (completion, argument);
        next.Control = UCHAR::try_from(control).unwrap_or(0);
        STATUS_SUCCESS
    })
}
