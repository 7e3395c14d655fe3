//! Failures for tests of consumers: `SET_FAULTS`, in test builds only (the feature `faults`).

use kernel::wdf::Request;
use ndkpi::NtStatus;

use crate::driver::Driver;

/// Whether this is a test build.
pub const AVAILABLE: bool = cfg!(feature = "faults");

/// Does what the request asks for.
///
/// # Errors
///
/// `STATUS_BUFFER_TOO_SMALL`, `STATUS_INVALID_PARAMETER` for a request of another length.
#[cfg(feature = "faults")]
pub fn set(driver: &Driver, request: &Request) -> Result<(), NtStatus> {
    use control::provider_device::Faults;

    let faults = Faults::from_bytes(request.input(Faults::BYTES)?).ok_or(NtStatus::INVALID_PARAMETER)?;
    if faults.lose_connections != 0 {
        for adapter in driver.adapters().iter().flatten() {
            adapter.provider().port().lose_connections();
        }
    }
    kernel::faults::fail_every_allocation(faults.fail_every_allocation);
    Ok(())
}

/// Refuses.
///
/// # Errors
///
/// `STATUS_NOT_SUPPORTED`: this is no test build.
#[cfg(not(feature = "faults"))]
pub const fn set(_: &Driver, _: &Request) -> Result<(), NtStatus> {
    Err(NtStatus::NOT_SUPPORTED)
}

/// Nothing fails any more on purpose: the driver begins, or ends.
pub fn reset() {
    #[cfg(feature = "faults")]
    kernel::faults::fail_every_allocation(0);
}
