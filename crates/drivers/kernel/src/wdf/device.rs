//! The framework's device objects of plug and play.

use core::ptr;

use ndkpi::NtStatus;
use wdk_sys::{
    FILE_DEVICE_NETWORK, FILE_DEVICE_SECURE_OPEN, PWDFDEVICE_INIT, WDF_OBJECT_ATTRIBUTES, WDF_PNPPOWER_EVENT_CALLBACKS,
    WDFDEVICE, call_unsafe_wdf_function_binding,
};

use super::size;
use crate::check;

/// Makes the device that plug and play has found. `callbacks` needs no size.
///
/// Once the device exists, the framework deletes it if the driver's routine fails.
///
/// # Errors
///
/// What the framework says.
///
/// # Safety
///
/// `init` is the argument of `EvtDriverDeviceAdd`, of which no device was made. The routines of `callbacks` and `attributes`
/// are what the framework takes them for.
pub unsafe fn create_device(
    mut init: PWDFDEVICE_INIT,
    callbacks: WDF_PNPPOWER_EVENT_CALLBACKS,
    mut attributes: WDF_OBJECT_ATTRIBUTES,
) -> Result<WDFDEVICE, NtStatus> {
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS { Size: size::<WDF_PNPPOWER_EVENT_CALLBACKS>(), ..callbacks };
    // SAFETY: the framework's structure (`# Safety`); the callbacks live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetPnpPowerEventCallbacks, init, &raw mut callbacks);
    }
    // SAFETY: the framework's structure (`# Safety`).
    unsafe { describe_device(init) };
    let mut device = ptr::null_mut();
    // SAFETY: the framework's structure (`# Safety`), and structures that live until the call returns.
    check(unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    })?;
    Ok(device)
}

/// Says of a device that it is one of a network, and that the system checks access also when a name below the device's is
/// opened.
///
/// # Safety
///
/// `init` is the framework's structure, before a device is made of it.
pub(super) unsafe fn describe_device(init: PWDFDEVICE_INIT) {
    // SAFETY: `init` is the framework's, and no device is made of it yet (`# Safety`).
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetDeviceType, init, FILE_DEVICE_NETWORK);
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetCharacteristics, init, FILE_DEVICE_SECURE_OPEN, 1);
    }
}
