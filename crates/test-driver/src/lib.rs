//! The driver's entry point.
#![no_std]

#[cfg(not(windows))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(windows)]
extern crate wdk_panic;

use wdk_sys::{call_unsafe_wdf_function_binding, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, ULONG, WDF_DRIVER_CONFIG};

/// Where the framework's stub enters the driver.
///
/// # Safety
///
/// Called once, by the system, with a driver object and the path of the service key.
#[cfg_attr(windows, unsafe(export_name = "DriverEntry"))]
pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> NTSTATUS {
    let mut config =
        WDF_DRIVER_CONFIG { Size: size_of::<WDF_DRIVER_CONFIG>() as ULONG, ..WDF_DRIVER_CONFIG::default() };
    // SAFETY: the arguments are the system's own, and the configuration lives until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfDriverCreate,
            driver,
            registry_path,
            core::ptr::null_mut(),
            &raw mut config,
            core::ptr::null_mut()
        )
    }
}
