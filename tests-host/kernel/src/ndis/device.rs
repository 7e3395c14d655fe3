//! Control devices of miniport drivers: not simulated.

use ndis::{DEVICE_OBJECT, NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_STATUS};
use ndkpi::NDIS_HANDLE;

use super::ndis_routine;
use crate::{report::bug_check, rule::Rule};

#[unsafe(no_mangle)]
pub extern "system" fn NdisRegisterDeviceEx(
    _handle: NDIS_HANDLE,
    _attributes: *const NDIS_DEVICE_OBJECT_ATTRIBUTES,
    _device: *mut *mut DEVICE_OBJECT,
    _place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisRegisterDeviceEx", PASSIVE_LEVEL, |_| {
        bug_check(Rule::NotSimulated, format_args!("a control device of a miniport driver"))
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisDeregisterDeviceEx(handle: NDIS_HANDLE) {
    ndis_routine!("NdisDeregisterDeviceEx", PASSIVE_LEVEL, |_| {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no control device"))
    });
}
