//! The kernel's status codes as results.

use ndkpi::NtStatus;
use wdk_sys::{NT_SUCCESS, NTSTATUS};

/// Makes a result of a status: `Ok` for a success or an informational code.
///
/// # Errors
///
/// The status, if it is a warning or an error.
pub const fn check(status: NTSTATUS) -> Result<(), NtStatus> {
    if NT_SUCCESS(status) { Ok(()) } else { Err(NtStatus(status)) }
}
