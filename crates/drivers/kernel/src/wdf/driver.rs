//! The framework's driver object.

use core::ptr;

use ndkpi::NtStatus;
use wdk_sys::{
    PCUNICODE_STRING, PDRIVER_OBJECT, WDF_DRIVER_CONFIG, WDF_OBJECT_ATTRIBUTES, WDFDRIVER,
    call_unsafe_wdf_function_binding,
};

use super::size;
use crate::check;

/// Registers a driver with the framework. `config` needs no size.
///
/// # Errors
///
/// What the framework says.
///
/// # Safety
///
/// `driver` and `registry_path` are the arguments of `DriverEntry`, which calls this once. The routines of `config` and
/// `attributes` are what the framework takes them for.
pub unsafe fn create_driver(
    driver: PDRIVER_OBJECT,
    registry_path: PCUNICODE_STRING,
    config: WDF_DRIVER_CONFIG,
    mut attributes: WDF_OBJECT_ATTRIBUTES,
) -> Result<WDFDRIVER, NtStatus> {
    let mut config = WDF_DRIVER_CONFIG { Size: size::<WDF_DRIVER_CONFIG>(), ..config };
    let mut handle = ptr::null_mut();
    // SAFETY: the arguments of `DriverEntry`, and routines for their use (`# Safety`); the structures live until the call returns.
    check(unsafe {
        call_unsafe_wdf_function_binding!(
            WdfDriverCreate,
            driver,
            registry_path,
            &raw mut attributes,
            &raw mut config,
            &raw mut handle
        )
    })?;
    Ok(handle)
}
