//! KMDF in miniport mode: the framework lends its objects, NDIS has the device.

use std::{
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kernel::wdf::{attributes, create_driver};
use miniport::{Handlers, with};
use ndis::NdisMGetDeviceProperty;
use ndkpi::NDIS_HANDLE;
use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    _WDF_DRIVER_INIT_FLAGS, _WDF_IO_QUEUE_DISPATCH_TYPE, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT,
    PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, WDF_DRIVER_CONFIG, WDF_IO_QUEUE_CONFIG, WDFDEVICE, WDFDRIVER,
    WdfDriverGlobals, WdfFunctions, call_unsafe_wdf_function_binding,
};

use crate::miniport;

/// `PFN_WDFDEVICEMINIPORTCREATE`, which has the place 200 in the table.
type Create = unsafe extern "C" fn(
    PWDF_DRIVER_GLOBALS,
    WDFDRIVER,
    PWDF_OBJECT_ATTRIBUTES,
    PDEVICE_OBJECT,
    PDEVICE_OBJECT,
    PDEVICE_OBJECT,
    *mut WDFDEVICE,
) -> NTSTATUS;
const CREATE: usize = 200;

unsafe extern "C" {
    static WdfDriverMiniportUnloadOverride: Option<unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER)>;
}

/// The framework's objects, by their handles.
static DRIVER: DuringRun<std::sync::atomic::AtomicUsize> = DuringRun::new(std::sync::atomic::AtomicUsize::new(0));
static DEVICE: DuringRun<std::sync::atomic::AtomicUsize> = DuringRun::new(std::sync::atomic::AtomicUsize::new(0));
/// True if the driver forgets to give the framework back.
static FORGETS: AtomicBool = AtomicBool::new(false);

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let config = WDF_DRIVER_CONFIG {
        DriverInitFlags: _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNoDispatchOverride.cast_unsigned(),
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments of this call.
    let handle = unsafe { create_driver(driver, path, config, attributes()) }.expect("a driver object");
    DRIVER.store(handle.addr(), Relaxed);
    // SAFETY: the arguments of this call.
    unsafe { miniport::driver_entry(driver, path) }
}

fn create_device(adapter: NDIS_HANDLE) {
    let (mut physical, mut functional, mut next) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let none = ptr::null_mut();
    // SAFETY: the adapter is live, and the places live until the call returns.
    unsafe {
        NdisMGetDeviceProperty(adapter, &raw mut physical, &raw mut functional, &raw mut next, none, none);
    }
    // SAFETY: the table lives as long as the framework.
    let table = unsafe { WdfFunctions };
    // SAFETY: the table is longer than that.
    let place = unsafe { table.add(CREATE) };
    // SAFETY: the table is longer than that.
    let function = unsafe { place.read() }.expect("a function");
    // SAFETY: the function at that place has this type.
    let create = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Create>(function) };
    let (driver, mut device) = (ptr::without_provenance_mut(DRIVER.load(Relaxed)), ptr::null_mut());
    // SAFETY: a variable that is written before the driver is loaded.
    let globals = unsafe { WdfDriverGlobals };
    let (functional, next, physical) = (functional.cast(), next.cast(), physical.cast());
    // SAFETY: the driver and the device objects are live.
    let status = unsafe { create(globals, driver, ptr::null_mut(), functional, next, physical, &raw mut device) };
    assert_eq!(status, 0);
    DEVICE.store(device.addr(), Relaxed);
}

fn delete_device() {
    let device = ptr::without_provenance_mut(DEVICE.load(Relaxed));
    // SAFETY: the device is live, and not used again.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, device) };
}

fn unload() {
    if FORGETS.load(Relaxed) {
        return;
    }
    // SAFETY: the framework's stub library sets it before the driver is entered.
    let unload = unsafe { WdfDriverMiniportUnloadOverride }.expect("a function");
    // SAFETY: a variable that is written before the driver is loaded.
    let globals = unsafe { WdfDriverGlobals };
    // SAFETY: the driver is live, and not used again.
    unsafe { unload(globals, ptr::without_provenance_mut(DRIVER.load(Relaxed))) };
}

fn run(handlers: Handlers) {
    let kernel = Kernel::seeded(1).start();
    miniport::prepare(handlers);
    let driver = kernel.load("mini", entry).expect("the driver loads");
    let nic = driver.add_nic(&[]).expect("the adapter starts");
    assert!(!with(|world| world.adapter).is_null());
    nic.remove();
    driver.unload();
}

const RIGHT: fn() -> Handlers =
    || Handlers { initialise: create_device, halt: delete_device, unload, ..Handlers::default() };

#[test]
fn a_driver_in_miniport_mode_has_the_framework() {
    run(RIGHT());
}

#[test]
fn a_driver_in_miniport_mode_gives_the_framework_back() {
    let name = concat!(module_path!(), "::a_driver_in_miniport_mode_gives_the_framework_back");
    caught(name, Rule::ReferenceLeak, || {
        FORGETS.store(true, Relaxed);
        run(RIGHT());
    });
}

fn create_device_with_a_queue(adapter: NDIS_HANDLE) {
    create_device(adapter);
    let device: WDFDEVICE = ptr::without_provenance_mut(DEVICE.load(Relaxed));
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: u32::try_from(size_of::<WDF_IO_QUEUE_CONFIG>()).expect("a small structure"),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual,
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    let (nobody, nowhere) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: as wrong as the test wants it.
    let status =
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, nobody, nowhere) };
    assert_eq!(status, 0);
}

#[test]
fn a_queue_of_a_device_whose_requests_are_ndis() {
    let name = concat!(module_path!(), "::a_queue_of_a_device_whose_requests_are_ndis");
    caught(name, Rule::BadHandle, || run(Handlers { initialise: create_device_with_a_queue, ..RIGHT() }));
}

#[test]
fn a_device_of_miniport_mode_is_deleted_at_the_halt() {
    let name = concat!(module_path!(), "::a_device_of_miniport_mode_is_deleted_at_the_halt");
    caught(name, Rule::ReferenceLeak, || run(Handlers { halt: || (), ..RIGHT() }));
}
