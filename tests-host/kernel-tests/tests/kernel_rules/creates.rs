//! Queues of the framework for requests that create files.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, File, Kernel, Rule, caught};
use wdk_sys::{
    _WDF_FILEOBJECT_CLASS, _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_REQUEST_TYPE as request_type, _WDF_TRI_STATE, GUID,
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDFDEVICE_INIT, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, WDF_FILEOBJECT_CONFIG, WDF_IO_QUEUE_CONFIG,
    WDFDEVICE, WDFDRIVER, WDFFILEOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
};

use crate::{
    internal::{dispatch, parameters, queue},
    skeleton::complete,
    small_driver::{attributes, create_device, create_driver, size},
};

static CLASS: GUID = GUID { Data1: 0x5E17_0005, Data2: 1, Data3: 2, Data4: [3; 8] };
/// `FILE_OPENED`: what became of the creation.
const OPENED: usize = 1;

/// What the driver does with a request that creates a file.
const SUCCEEDS: u32 = 0;
const REFUSES: u32 = 1;
const KEEPS: u32 = 2;
static DOES: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(SUCCEEDS));
/// How many files were closed.
static CLOSED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// The default queue has the files, and no other.
static BY_DEFAULT: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn create(_: WDFQUEUE, request: WDFREQUEST) {
    assert_eq!(parameters(request).Type, request_type::WdfRequestTypeCreate);
    // SAFETY: the driver has the request.
    let file = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetFileObject, request) };
    assert!(!file.is_null());
    match DOES.load(SeqCst) {
        SUCCEEDS => complete(request, STATUS_SUCCESS, OPENED),
        REFUSES => complete(request, STATUS_OBJECT_NAME_NOT_FOUND, 0),
        _ => {}
    }
}

unsafe extern "C" fn nobody_calls_it(_: WDFDEVICE, _: WDFREQUEST, _: WDFFILEOBJECT) {
    unreachable!("files are created in a queue");
}

unsafe extern "C" fn close(_: WDFFILEOBJECT) {
    CLOSED.fetch_add(1, SeqCst);
}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, _: usize, _: usize, _: u32) {
    complete(request, STATUS_SUCCESS, 0);
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let mut files = WDF_FILEOBJECT_CONFIG {
        Size: size::<WDF_FILEOBJECT_CONFIG>(),
        EvtDeviceFileCreate: Some(nobody_calls_it),
        EvtFileClose: Some(close),
        EvtFileCleanup: None,
        AutoForwardCleanupClose: _WDF_TRI_STATE::WdfUseDefault,
        FileObjectClass: _WDF_FILEOBJECT_CLASS::WdfFileObjectWdfCannotUseFsContexts,
    };
    let mut of_files = attributes();
    // SAFETY: the structures live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetFileObjectConfig, init, &raw mut files, &raw mut of_files);
    }
    let device = create_device(init, attributes());
    let by_default = BY_DEFAULT.load(SeqCst) != 0;
    let codes = queue(device, !by_default, |config| config.EvtIoDeviceControl = Some(control));
    let files = queue(device, by_default, |config: &mut WDF_IO_QUEUE_CONFIG| {
        config.DispatchType = _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel;
        config.Settings.Parallel.NumberOfPresentedRequests = u32::MAX;
        config.EvtIoDefault = Some(create);
    });
    let kind = request_type::WdfRequestTypeCreate;
    assert_eq!(dispatch(device, codes, kind), STATUS_INVALID_DEVICE_REQUEST, "no callback for it");
    assert_eq!(
        [dispatch(device, files, kind), dispatch(device, files, kind)],
        [STATUS_SUCCESS, STATUS_INVALID_PARAMETER]
    );
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

/// Loads the driver with a device, lets `work` open it, and ends both. How many files were closed.
fn with(does: u32, by_default: bool, work: impl Fn(&dyn Fn() -> Result<File, NTSTATUS>)) -> u32 {
    let kernel = Kernel::seeded(1).hang_limit(std::time::Duration::from_secs(2)).start();
    DOES.store(does, SeqCst);
    CLOSED.store(0, SeqCst);
    BY_DEFAULT.store(by_default.into(), SeqCst);
    let driver = kernel.load("creates", entry).expect("the driver loads");
    let device = driver.add_device().expect("the device starts");
    let link = device.links().pop().expect("an interface");
    work(&|| kernel.open(&link));
    assert!(device.remove().is_ok());
    driver.unload();
    CLOSED.load(SeqCst)
}

#[test]
fn files_are_created_in_a_queue() {
    for by_default in [false, true] {
        let closed = with(SUCCEEDS, by_default, |open| {
            let (first, second) = (open().expect("a file"), open().expect("another one"));
            assert!(by_default || first.control(0x22_2000, &[], 0).is_success());
            drop((first, second));
        });
        assert_eq!(closed, 2);
    }
}

#[test]
fn a_file_that_is_refused_in_a_queue_has_no_end() {
    let closed = with(REFUSES, false, |open| assert_eq!(open().err(), Some(STATUS_OBJECT_NAME_NOT_FOUND)));
    assert_eq!(closed, 0);
}

#[test]
fn a_request_for_a_file_that_is_kept() {
    let test = concat!(module_path!(), "::a_request_for_a_file_that_is_kept");
    caught(test, Rule::RequestNeverCompleted, || {
        with(KEEPS, false, |open| drop(open()));
    });
}
