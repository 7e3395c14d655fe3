//! The order in which a device's callbacks come, as the framework's documentation has it for each scenario of plug and play.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PVOID, PWDFDEVICE_INIT, STATUS_SUCCESS, UNICODE_STRING,
    WDF_OBJECT_ATTRIBUTES, WDF_PNPPOWER_EVENT_CALLBACKS, WDF_POWER_DEVICE_STATE, WDFCMRESLIST, WDFCMRESLIST__,
    WDFDEVICE, WDFDRIVER, WDFIOTARGET, WDFOBJECT, call_unsafe_wdf_function_binding,
};

use crate::{
    sent::framework,
    small_driver::{attributes, create_device, create_driver, open_target, size},
};

static CALLS: DuringRun<Mutex<Vec<&str>>> = DuringRun::new(Mutex::new(Vec::new()));
/// What the consumer opens.
static LINK: DuringRun<Mutex<String>> = DuringRun::new(Mutex::new(String::new()));
static CLASS: GUID = GUID { Data1: 0x0DD0_C1A5, Data2: 1, Data3: 2, Data4: [3; 8] };

fn note(what: &'static str) {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// What was called since the last time this was asked.
fn calls() -> Vec<&'static str> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    // A driver that notes something must not allocate.
    std::mem::replace(&mut *calls, Vec::with_capacity(64))
}

/// Callbacks that note that they were called.
macro_rules! callbacks {
    ($($name:ident($($type:ty),*) $(-> $status:ident)?: $what:literal;)+) => {
        $(unsafe extern "C" fn $name($(_: $type),*) $(-> callbacks!(@ $status))? {
            note($what);
            $($status)?
        })+
    };
    (@ $status:ident) => { NTSTATUS };
}

callbacks! {
    init(WDFDEVICE) -> STATUS_SUCCESS: "init";
    suspend(WDFDEVICE) -> STATUS_SUCCESS: "suspend";
    restart(WDFDEVICE) -> STATUS_SUCCESS: "restart";
    flush(WDFDEVICE): "flush";
    cleanup(WDFDEVICE): "cleanup";
    surprise(WDFDEVICE): "surprise";
    query_remove(WDFDEVICE) -> STATUS_SUCCESS: "query remove";
    query_stop(WDFDEVICE) -> STATUS_SUCCESS: "query stop";
    power_up(WDFDEVICE, WDF_POWER_DEVICE_STATE) -> STATUS_SUCCESS: "D0 entry";
    power_down(WDFDEVICE, WDF_POWER_DEVICE_STATE) -> STATUS_SUCCESS: "D0 exit";
    object_cleanup(WDFOBJECT): "object cleanup";
    object_destroy(WDFOBJECT): "object destroy";
}

/// The translated list of the last start.
static LIST: DuringRun<AtomicPtr<WDFCMRESLIST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

fn resources(list: WDFCMRESLIST) -> (u32, PVOID) {
    (
        framework!(WdfCmResourceListGetCount(list => WDFCMRESLIST) -> u32),
        framework!(WdfCmResourceListGetDescriptor(list => WDFCMRESLIST, 0 => u32) -> PVOID),
    )
}

/// The device has no resources.
unsafe extern "C" fn prepare(_: WDFDEVICE, raw: WDFCMRESLIST, translated: WDFCMRESLIST) -> NTSTATUS {
    note("prepare");
    assert_ne!(raw, translated);
    assert_eq!([resources(raw), resources(translated)], [(0, ptr::null_mut()); 2]);
    LIST.store(translated, SeqCst);
    STATUS_SUCCESS
}

unsafe extern "C" fn release(_: WDFDEVICE, translated: WDFCMRESLIST) -> NTSTATUS {
    note("release");
    assert_eq!((translated, resources(translated).0), (LIST.load(SeqCst), 0));
    STATUS_SUCCESS
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

unsafe extern "C" fn add(_: WDFDRIVER, new: PWDFDEVICE_INIT) -> NTSTATUS {
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        Size: size::<WDF_PNPPOWER_EVENT_CALLBACKS>(),
        EvtDeviceD0Entry: Some(power_up),
        EvtDeviceD0Exit: Some(power_down),
        EvtDevicePrepareHardware: Some(prepare),
        EvtDeviceReleaseHardware: Some(release),
        EvtDeviceSelfManagedIoInit: Some(init),
        EvtDeviceSelfManagedIoSuspend: Some(suspend),
        EvtDeviceSelfManagedIoRestart: Some(restart),
        EvtDeviceSelfManagedIoFlush: Some(flush),
        EvtDeviceSelfManagedIoCleanup: Some(cleanup),
        EvtDeviceSurpriseRemoval: Some(surprise),
        EvtDeviceQueryRemove: Some(query_remove),
        EvtDeviceQueryStop: Some(query_stop),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    // SAFETY: the framework's structure, before the device is made of it; the callbacks live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetPnpPowerEventCallbacks, new, &raw mut callbacks);
    }
    let device = create_device(
        new,
        WDF_OBJECT_ATTRIBUTES {
            EvtCleanupCallback: Some(object_cleanup),
            EvtDestroyCallback: Some(object_destroy),
            ..attributes()
        },
    );
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "C" fn add_and_finish(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    // SAFETY: as wrong as the test wants it.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
    STATUS_SUCCESS
}

unsafe extern "C" fn add_with_a_path(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    let mut units = [u16::from(b'a'), u16::from(b'\\'), u16::from(b'b')];
    let reference = UNICODE_STRING { Length: 6, MaximumLength: 6, Buffer: units.as_mut_ptr() };
    // SAFETY: the device is live, and the rest lives until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfDeviceCreateDeviceInterface,
            device,
            &raw const CLASS,
            &raw const reference
        )
    }
}

unsafe extern "system" fn finishing_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add_and_finish)
}

unsafe extern "system" fn path_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add_with_a_path)
}

/// A driver that adds its device in a wrong way.
macro_rules! adds {
    ($($name:ident breaks $rule:ident by $entry:ident;)+) => {
        $(
            #[test]
            fn $name() {
                simulated_kernel::caught(concat!(module_path!(), "::", stringify!($name)), simulated_kernel::Rule::$rule, || {
                    let kernel = Kernel::seeded(3).preemption(0).start();
                    let driver = kernel.load("order", $entry).expect("the driver loads");
                    drop(driver.add_device());
                });
            }
        )+
    };
}

adds! {
    a_device_of_plug_and_play_finished_as_a_control_device breaks BadHandle by finishing_entry;
    a_device_interface_whose_reference_is_a_path breaks BadArgument by path_entry;
}

unsafe extern "system" fn consumer_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, consumer_add)
}

/// Opens the other driver's device at once, and is told when that goes.
unsafe extern "C" fn consumer_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    let link = LINK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    open_target(device, &link, let_go, told).map_or_else(|status| status, |_| STATUS_SUCCESS)
}

unsafe extern "C" fn let_go(target: WDFIOTARGET) -> NTSTATUS {
    note("consumer asked");
    // SAFETY: the framework's own argument.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetCloseForQueryRemove, target) };
    STATUS_SUCCESS
}

unsafe extern "C" fn told(target: WDFIOTARGET) {
    note("consumer told");
    // SAFETY: the framework's own argument.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetClose, target) };
}

/// Starts a device, has a consumer open it, lets `work` happen to it, and says what was called from then on.
fn scenario(work: impl FnOnce(simulated_kernel::Device)) -> Vec<&'static str> {
    let kernel = Kernel::seeded(3).preemption(0).start();
    calls();
    let driver = kernel.load("order", entry).expect("the driver loads");
    let device = driver.add_device().expect("the device starts");
    assert_eq!(calls(), ["prepare", "D0 entry", "init"]);
    *LINK.lock().unwrap_or_else(PoisonError::into_inner) = device.links().remove(0);
    let consumer = kernel.load("consumer", consumer_entry).expect("the consumer loads");
    let its = consumer.add_device().expect("the consumer opens the device");
    assert_eq!(device.files(), 1);
    work(device);
    let seen = calls();
    assert!(its.remove().is_ok());
    consumer.unload();
    driver.unload();
    seen
}

const GOING: [&str; 7] = ["suspend", "D0 exit", "release", "flush", "cleanup", "object cleanup", "object destroy"];

/// One after the other: what is noted is everybody's, and only one kernel runs at a time.
#[test]
fn callbacks_of_plug_and_play_come_in_the_documented_order() {
    let removed = scenario(|device| assert!(device.remove().is_ok()));
    assert_eq!(removed[..3], ["consumer asked", "query remove", "consumer told"]);
    assert_eq!(removed[3..], GOING);

    // A consumer is told when the driver has handled the surprise removal, which ends with the flush; and the device goes
    // when the consumer has closed it. So a driver that waits for consumers in the flush waits in vain.
    let surprised = scenario(simulated_kernel::Device::surprise_remove);
    assert_eq!(surprised[0], "surprise");
    assert_eq!(surprised[1..5], GOING[..4]);
    assert_eq!(surprised[5], "consumer told");
    assert_eq!(surprised[6..], GOING[4..]);

    let stopped = scenario(|device| {
        assert_eq!(device.stop_and_start(), Ok(()));
        assert!(device.remove().is_ok());
    });
    assert_eq!(stopped[..7], ["query stop", "suspend", "D0 exit", "release", "prepare", "D0 entry", "restart"]);
}

#[test]
fn a_resource_list_used_after_the_hardware_is_released() {
    caught(concat!(module_path!(), "::a_resource_list_used_after_the_hardware_is_released"), Rule::BadHandle, || {
        scenario(|device| {
            assert!(device.remove().is_ok());
            resources(LIST.load(SeqCst));
        });
    });
}
