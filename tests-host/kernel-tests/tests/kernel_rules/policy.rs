//! Who decides about the power of a device, and devices that are to wake the system.

use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    NTSTATUS, PWDFDEVICE_INIT, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, UNICODE_STRING, WDFDEVICE,
    call_unsafe_wdf_function_binding,
};

use crate::{
    made::{Made, device, with_device},
    rules,
    sent::framework,
    skeleton::{Loaded, Wrong, run},
};

const STATUS_INFO_LENGTH_MISMATCH: NTSTATUS = 0xC000_0004_u32.cast_signed();
const STATUS_POWER_STATE_INVALID: NTSTATUS = 0xC000_02D3_u32.cast_signed();

type Routine = unsafe extern "C" fn(WDFDEVICE) -> NTSTATUS;

/// `WDF_POWER_POLICY_EVENT_CALLBACKS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Callbacks {
    size: u32,
    from_s0: [Option<Routine>; 3],
    from_sx: [Option<Routine>; 3],
    with_reason: Option<Routine>,
}

const CALLBACKS: Callbacks =
    Callbacks { size: 64, from_s0: [Some(armed), None, None], from_sx: [Some(armed), None, None], with_reason: None };

/// `WDF_DEVICE_POWER_POLICY_WAKE_SETTINGS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wakes {
    size: u32,
    state: i32,
    user_control: i32,
    enabled: i32,
    children: [u8; 2],
}

const WAKES: Wakes = Wakes { size: 20, state: 5, user_control: 1, enabled: 1, children: [0; 2] };

/// No device of the bus can wake the system, so none is armed.
unsafe extern "C" fn armed(_: WDFDEVICE) -> NTSTATUS {
    unreachable!("a device is armed that cannot wake the system")
}

fn set_callbacks(init: PWDFDEVICE_INIT, callbacks: Callbacks) {
    let place = &raw const callbacks;
    framework!(WdfDeviceInitSetPowerPolicyEventCallbacks(init => PWDFDEVICE_INIT, place => *const Callbacks));
}

fn set_owner(init: PWDFDEVICE_INIT, decides: u8) {
    framework!(WdfDeviceInitSetPowerPolicyOwnership(init => PWDFDEVICE_INIT, decides => u8));
}

fn assign(wakes: Wakes) -> NTSTATUS {
    let place = &raw const wakes;
    framework!(WdfDeviceAssignSxWakeSettings(device() => WDFDEVICE, place => *const Wakes) -> NTSTATUS)
}

/// What a device is told that is made as `init` says.
fn assigned(init: fn(PWDFDEVICE_INIT)) -> NTSTATUS {
    let mut status = 0;
    with_device(Made { init, ..Made::default() }, |_, driver, _| driver.run(|| status = assign(WAKES)));
    status
}

#[test]
fn settings_to_wake_the_system_are_looked_at_and_no_device_can() {
    let init = |init| {
        set_callbacks(init, CALLBACKS);
        set_callbacks(init, Callbacks { size: 56, with_reason: Some(armed), ..CALLBACKS });
    };
    with_device(Made { init, ..Made::default() }, |_, driver, device| {
        driver.run(|| {
            assert_eq!(assign(WAKES), STATUS_POWER_STATE_INVALID);
            assert_eq!(assign(Wakes { size: 16, state: 2, ..WAKES }), STATUS_POWER_STATE_INVALID);
            assert_eq!(assign(Wakes { size: 24, ..WAKES }), STATUS_INFO_LENGTH_MISMATCH);
            for wrong in [
                Wakes { state: 1, ..WAKES },
                Wakes { state: 6, ..WAKES },
                Wakes { user_control: 0, ..WAKES },
                Wakes { enabled: 3, ..WAKES },
            ] {
                assert_eq!(assign(wrong), STATUS_INVALID_PARAMETER);
            }
        });
        device.sleep();
        device.wake();
    });
}

#[test]
fn a_driver_that_does_not_decide_about_power_is_told_so() {
    fn filter(init: PWDFDEVICE_INIT) {
        framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
    }
    assert_eq!(assigned(|_| ()), STATUS_POWER_STATE_INVALID);
    assert_eq!(assigned(|init| set_owner(init, 0)), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(assigned(filter), STATUS_INVALID_DEVICE_REQUEST);
    let filter_that_decides = |init| {
        filter(init);
        set_owner(init, 1);
    };
    assert_eq!(assigned(filter_that_decides), STATUS_POWER_STATE_INVALID);
}

fn of_control_device(loaded: &Loaded) {
    let access: Vec<u16> = "D:P(A;;GA;;;SY)".encode_utf16().collect();
    let bytes = u16::try_from(size_of_val(&access[..])).expect("a short string");
    let access = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: access.as_ptr().cast_mut() };
    // SAFETY: the driver is live, and the string lives until the call returns.
    let init =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, loaded.driver, &raw const access) };
    set_callbacks(init, CALLBACKS);
}

rules! {
    callbacks_of_power_for_a_control_device breaks BadArgument by of_control_device;
}

/// Tests of devices that are made as no driver may.
macro_rules! wrong_inits {
    ($($name:ident breaks $rule:ident by $init:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                let made = Made { init: $init, ..Made::default() };
                caught(test, Rule::$rule, || with_device(made, |_, _, _| ()));
            }
        )+
    };
}

wrong_inits! {
    callbacks_of_power_of_no_version breaks BadArgument by |init| {
        set_callbacks(init, Callbacks { size: 60, ..CALLBACKS });
    };
    two_callbacks_that_arm_a_device breaks BadArgument by |init| {
        set_callbacks(init, Callbacks { with_reason: Some(armed), ..CALLBACKS });
    };
}

static INIT: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

#[test]
fn who_decides_is_said_before_the_device_is_made() {
    let test = concat!(module_path!(), "::who_decides_is_said_before_the_device_is_made");
    let init = |init: PWDFDEVICE_INIT| INIT.store(init.addr(), SeqCst);
    let device = |_| set_owner(ptr::without_provenance_mut(INIT.load(SeqCst)), 1);
    caught(test, Rule::BadHandle, || with_device(Made { init, device }, |_, _, _| ()));
}
