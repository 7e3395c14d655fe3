//! The driver as a whole.

use core::ptr;

use kernel::{check, wdf::size};
use ndkpi::NtStatus;
use wdk_sys::{
    PCUNICODE_STRING, PDRIVER_OBJECT, ULONG, WDF_DRIVER_CONFIG, WDFDRIVER, call_unsafe_wdf_function_binding,
};

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
    let mut config = WDF_DRIVER_CONFIG {
        Size: size::<WDF_DRIVER_CONFIG>(),
        EvtDriverDeviceAdd: Some(device::add),
        EvtDriverUnload: Some(unload),
        DriverPoolTag: POOL_TAG,
        ..WDF_DRIVER_CONFIG::default()
    };
    let (attributes, handle) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the arguments of `DriverEntry` (the caller's promise), and a configuration that lives until the call returns;
    // the framework's default attributes are right, and nobody wants the handle.
    let created = check(unsafe {
        call_unsafe_wdf_function_binding!(WdfDriverCreate, driver, registry_path, attributes, &raw mut config, handle)
    });
    created.inspect_err(|_| trace::stop())
}

unsafe extern "C" fn unload(_driver: WDFDRIVER) {
    // Everything else belongs to the device, which is gone.
    trace::stop();
}
