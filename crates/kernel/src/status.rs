//! The kernel's status codes as results.

use ndkpi::NtStatus;
use wdk_sys::{NT_SUCCESS, NTSTATUS};

/// The outcome of a routine that has no value besides its status.
///
/// # Errors
///
/// The status, if it is neither a success nor informational.
pub const fn check(status: NTSTATUS) -> Result<(), NtStatus> {
    if NT_SUCCESS(status) { Ok(()) } else { Err(NtStatus(status)) }
}
