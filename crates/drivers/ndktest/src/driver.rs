//! The driver as a whole.

use kernel::wdf::{attributes, create_driver};
use ndkpi::NtStatus;
use wdk_sys::{PCUNICODE_STRING, PDRIVER_OBJECT, ULONG, WDF_DRIVER_CONFIG, WDFDRIVER};

use crate::{device, trace};

/// The tag of what the framework allocates for the driver; the driver's own allocations have that of `wdk-alloc`.
const POOL_TAG: ULONG = u32::from_le_bytes(*b"Ntst");

/// Registers the driver with the framework.
///
/// # Errors
///
/// What the framework says.
///
/// # Safety
///
/// The arguments are those of `DriverEntry`, which calls this once.
pub unsafe fn create(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<(), NtStatus> {
    trace::start();
    let config = WDF_DRIVER_CONFIG {
        EvtDriverDeviceAdd: Some(device::add),
        EvtDriverUnload: Some(unload),
        DriverPoolTag: POOL_TAG,
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), which has not returned.
    let created = unsafe { create_driver(driver, registry_path, config, attributes()) };
    created.map(drop).inspect_err(|_| trace::stop())
}

unsafe extern "C" fn unload(_driver: WDFDRIVER) {
    // Everything else belongs to the device, which is gone.
    trace::stop();
}
