//! Exceptions that routines raise in a driver, which handles them: `__except` in an image. In a driver that is linked in nothing can.

use std::ptr;

use wdk_bindings::{NTSTATUS, PVOID};

#[cfg(not(windows))]
use crate::{report::bug_check, rule::Rule};

/// Raises an exception in the driver. Outside of a routine: nothing of this crate is on the stack any more that has to be put in order.
pub fn raise(name: &str, status: NTSTATUS) {
    #[cfg(windows)]
    {
        unsafe extern "system-unwind" {
            fn RtlRaiseStatus(status: NTSTATUS) -> !;
        }
        let _ = name;
        // SAFETY: any status may be raised; what is on the stack of this crate has nothing to drop.
        unsafe { RtlRaiseStatus(status) }
    }
    #[cfg(not(windows))]
    bug_check(
        Rule::UnhandledException,
        format_args!("{name} raises {status:#x}, and a driver that is linked in handles none"),
    );
}

/// What a routine gives back, or the exception that it raises instead. Called outside of the routine, as [`raise`].
pub fn or_raise(name: &str, outcome: Result<PVOID, NTSTATUS>) -> PVOID {
    outcome.unwrap_or_else(|status| {
        raise(name, status);
        ptr::null_mut()
    })
}
