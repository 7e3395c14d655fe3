//! Devices that may sleep while the system works. Here none does by itself: what keeps a device awake is counted, and that is all.

use std::sync::{Arc, atomic::Ordering::Acquire};

use wdk_bindings::{
    BOOLEAN, LONG, NTSTATUS, PCHAR, PVOID, PWDF_DRIVER_GLOBALS, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, ULONG, WDFDEVICE,
};

use super::{
    device::device,
    function::entry,
    object::check_level,
    policy::{STATUS_POWER_STATE_INVALID, decides},
};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    waiting,
};

/// `WDF_DEVICE_POWER_POLICY_IDLE_SETTINGS`, as far as it has had its fields from the beginning.
#[repr(C)]
pub struct IdleSettings {
    size: ULONG,
    capabilities: i32,
    state: i32,
    timeout: ULONG,
    user_control: i32,
    enabled: i32,
}

/// How long the structure is in the versions of the framework.
const SIZES: [ULONG; 4] = [24, 28, 32, 36];
/// `IdleCannotWakeFromS0`: the device does not wake itself.
const CANNOT_WAKE: i32 = 1;

fn stop_idle(state: &Arc<State>, handle: WDFDEVICE, waits: bool) -> NTSTATUS {
    check_level("WdfDeviceStopIdle", waits);
    let (_, device) = device(state, handle);
    if !decides(&device) {
        return STATUS_INVALID_DEVICE_STATE;
    }
    if !device.finished.load(Acquire) {
        return STATUS_POWER_STATE_INVALID;
    }
    *lock(&device.kept_awake) += 1;
    let is_awake = || device.powered.load(Acquire);
    if is_awake() {
        STATUS_SUCCESS
    } else if waits {
        waiting::until(state, None, "WdfDeviceStopIdle, for D0,", is_awake);
        STATUS_SUCCESS
    } else {
        STATUS_PENDING
    }
}

fn resume_idle(state: &State, handle: WDFDEVICE) {
    let (_, device) = device(state, handle);
    if !decides(&device) {
        return;
    }
    let mut kept_awake = lock(&device.kept_awake);
    let Some(less) = kept_awake.checked_sub(1) else {
        drop(kept_awake);
        bug_check(Rule::ReferenceUnderflow, format_args!("WdfDeviceResumeIdle without WdfDeviceStopIdle"));
    };
    *kept_awake = less;
}

pub extern "C" fn WdfDeviceStopIdleNoTrack(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    waits: BOOLEAN,
) -> NTSTATUS {
    routine!("WdfDeviceStopIdleNoTrack", DISPATCH_LEVEL, |state| stop_idle(state, handle, waits != 0))
}

pub extern "C" fn WdfDeviceResumeIdleNoTrack(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) {
    routine!("WdfDeviceResumeIdleNoTrack", DISPATCH_LEVEL, |state| resume_idle(state, handle));
}

pub extern "C" fn WdfDeviceStopIdleActual(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    waits: BOOLEAN,
    _tag: PVOID,
    _line: LONG,
    _file: PCHAR,
) -> NTSTATUS {
    routine!("WdfDeviceStopIdleActual", DISPATCH_LEVEL, |state| stop_idle(state, handle, waits != 0))
}

pub extern "C" fn WdfDeviceResumeIdleActual(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    _tag: PVOID,
    _line: LONG,
    _file: PCHAR,
) {
    routine!("WdfDeviceResumeIdleActual", DISPATCH_LEVEL, |state| resume_idle(state, handle));
}

/// The bus of this kernel has no device that wakes itself.
pub extern "C" fn WdfDeviceAssignS0IdleSettings(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    settings: *const IdleSettings,
) -> NTSTATUS {
    routine!("WdfDeviceAssignS0IdleSettings", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns; each version has these fields.
        let settings = unsafe { &*settings };
        if !SIZES.contains(&settings.size) {
            let words = format_args!("WDF_DEVICE_POWER_POLICY_IDLE_SETTINGS with the size {}", settings.size);
            bug_check(Rule::BadArgument, words);
        }
        if !decides(&device) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        let is_known = (CANNOT_WAKE..=3).contains(&settings.capabilities)
            && (2..=5).contains(&settings.state)
            && (1..=2).contains(&settings.user_control)
            && (0..=2).contains(&settings.enabled);
        if !is_known {
            return STATUS_INVALID_PARAMETER;
        }
        if settings.capabilities == CANNOT_WAKE { STATUS_SUCCESS } else { STATUS_POWER_STATE_INVALID }
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 5] {
    [
        entry!(WdfDeviceStopIdleNoTrack),
        entry!(WdfDeviceResumeIdleNoTrack),
        entry!(WdfDeviceStopIdleActual),
        entry!(WdfDeviceResumeIdleActual),
        entry!(WdfDeviceAssignS0IdleSettings),
    ]
}
