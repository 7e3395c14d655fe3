//! Failures for tests of consumers: `SET_FAULTS`, in test builds only (the feature `faults`).

use fallible::Arc;
use ndkpi::NtStatus;

use crate::os::Kernel;

/// True in a test build.
pub const AVAILABLE: bool = cfg!(feature = "faults");

/// Does what the input of a request asks for, to these adapters.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` for an input of another length.
#[cfg(feature = "faults")]
pub fn set<'a>(
    adapters: impl Iterator<Item = &'a Arc<provider::Device<Kernel>>>,
    input: &[u8],
) -> Result<(), NtStatus> {
    let faults = control::provider_device::Faults::from_bytes(input).ok_or(NtStatus::INVALID_PARAMETER)?;
    if faults.lose_connections != 0 {
        adapters.for_each(|adapter| adapter.port().lose_connections());
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
pub fn set<'a>(_: impl Iterator<Item = &'a Arc<provider::Device<Kernel>>>, _: &[u8]) -> Result<(), NtStatus> {
    Err(NtStatus::NOT_SUPPORTED)
}

/// Nothing fails any more on purpose: the driver begins, or ends.
pub fn reset() {
    #[cfg(feature = "faults")]
    kernel::faults::fail_every_allocation(0);
}
