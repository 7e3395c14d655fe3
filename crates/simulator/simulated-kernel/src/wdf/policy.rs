//! Who decides about the power of a device, and devices that wake the system. The bus of this kernel has none of those, so nobody is asked
//! to arm one.

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PWDF_DRIVER_GLOBALS, PWDFDEVICE_INIT, STATUS_INFO_LENGTH_MISMATCH,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, ULONG, WDFDEVICE,
};

use super::{
    device::{DeviceObject, device},
    function::{Function, entry},
};
use crate::{report::bug_check, routine::routine, rule::Rule};

pub const STATUS_POWER_STATE_INVALID: NTSTATUS = 0xC000_02D3_u32.cast_signed();

/// `WDF_POWER_POLICY_EVENT_CALLBACKS`. Up to version 1.5 it ends before the last one.
#[repr(C)]
pub struct PolicyCallbacks {
    size: ULONG,
    /// Arm, disarm and hear of a wake-up, first while the system works, then while it sleeps.
    routines: [Option<Function>; 6],
    arm_with_reason: Option<Function>,
}

/// How long that structure is in the versions of the framework.
const CALLBACK_SIZES: [ULONG; 2] = [56, 64];
/// Which of the six arms a device to wake a system that sleeps.
const ARM_FROM_SX: usize = 3;

/// `WDF_DEVICE_POWER_POLICY_WAKE_SETTINGS`, as far as it has had its fields from the beginning.
#[repr(C)]
pub struct WakeSettings {
    size: ULONG,
    state: i32,
    user_control: i32,
    enabled: i32,
}

/// How long that structure is in the versions of the framework.
const SETTING_SIZES: [ULONG; 2] = [16, 20];

/// Returns true if the driver decides when the device sleeps: as it has said, or because it is no filter's and no control device.
pub fn decides(device: &DeviceObject) -> bool {
    device.node.is_some() && device.with.decides.unwrap_or(!device.with.filter)
}

pub extern "C" fn WdfDeviceInitSetPowerPolicyOwnership(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    decides: BOOLEAN,
) {
    routine!("WdfDeviceInitSetPowerPolicyOwnership", |state| {
        state.with_init(init, |init| init.with.decides = Some(decides != 0));
    });
}

/// They are looked at, and that is all.
pub extern "C" fn WdfDeviceInitSetPowerPolicyEventCallbacks(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    callbacks: *const PolicyCallbacks,
) {
    routine!("WdfDeviceInitSetPowerPolicyEventCallbacks", |state| {
        // SAFETY: the driver's structure, which lives until the call returns; each version begins with its size.
        let size = unsafe { (*callbacks).size };
        if !CALLBACK_SIZES.contains(&size) {
            let words = format_args!("WDF_POWER_POLICY_EVENT_CALLBACKS with the size {size}");
            bug_check(Rule::BadArgument, words);
        }
        // SAFETY: as above; each version has these six.
        let arms = unsafe { (*callbacks).routines[ARM_FROM_SX] }.is_some();
        // SAFETY: as above, of the version that has it.
        if arms && size > CALLBACK_SIZES[0] && unsafe { (*callbacks).arm_with_reason }.is_some() {
            bug_check(Rule::BadArgument, format_args!("two routines that arm a device to wake the system"));
        }
        if state.with_init(init, |init| init.node.is_none()) {
            bug_check(Rule::BadArgument, format_args!("callbacks of the power policy for a control device"));
        }
    });
}

/// No device here can wake the system, in whichever state it is.
pub extern "C" fn WdfDeviceAssignSxWakeSettings(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    settings: *const WakeSettings,
) -> NTSTATUS {
    routine!("WdfDeviceAssignSxWakeSettings", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns; each version has these fields.
        let settings = unsafe { &*settings };
        if !decides(&device) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        if !SETTING_SIZES.contains(&settings.size) {
            return STATUS_INFO_LENGTH_MISMATCH;
        }
        let is_known = (2..=5).contains(&settings.state)
            && (1..=2).contains(&settings.user_control)
            && (0..=2).contains(&settings.enabled);
        if is_known { STATUS_POWER_STATE_INVALID } else { STATUS_INVALID_PARAMETER }
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 3] {
    [
        entry!(WdfDeviceInitSetPowerPolicyOwnership),
        entry!(WdfDeviceInitSetPowerPolicyEventCallbacks),
        entry!(WdfDeviceAssignSxWakeSettings),
    ]
}
