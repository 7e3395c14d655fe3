//! SoftNDK's adapters on a machine.
//!
//! The provider is generic over its operating system, and each crate that opens an adapter would compile all of it again. What is here
//! compiles it once, and programs without optimisation share it.

use engine::{
    connection::Fabric,
    wire::{Cable, WireConfig},
};
use fallible::Arc;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use provider::{Config, Device};

use crate::HostOs;

/// An adapter of SoftNDK on a machine, before somebody opens it.
pub type HostDevice = Device<HostOs>;

/// Makes an adapter on a fabric that it shares with others: [`Device::try_new_on`].
///
/// # Errors
///
/// As there.
pub fn on_fabric(os: &HostOs, fabric: &Arc<Fabric<HostOs>>, config: Config) -> Result<Arc<HostDevice>, NtStatus> {
    Device::try_new_on(os, fabric, config)
}

/// Makes an adapter with a wire: [`Device::try_new_with_cable`].
///
/// # Errors
///
/// As there.
pub fn with_cable(
    os: &HostOs,
    fabric: &Arc<Fabric<HostOs>>,
    config: Config,
    wire: WireConfig,
    cable: Box<dyn Cable>,
) -> Result<Arc<HostDevice>, NtStatus> {
    Device::try_new_with_cable(os, fabric, config, wire, cable)
}

/// Opens an `NDK_ADAPTER`: [`Device::open`]. `PASSIVE_LEVEL`.
///
/// # Errors
///
/// As there.
pub fn open(device: &Arc<HostDevice>, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
    Device::open(device, version)
}

/// Closes an `NDK_ADAPTER`: [`Device::close`]. `PASSIVE_LEVEL`, and never from a callback.
///
/// # Safety
///
/// `adapter` came from [`open`] and is not used after this call.
pub unsafe fn close(adapter: *mut NDK_ADAPTER) {
    // SAFETY: `adapter` came from `Device::open` in `open`, and is not used after this call (`# Safety`).
    unsafe { HostDevice::close(adapter) }
}
