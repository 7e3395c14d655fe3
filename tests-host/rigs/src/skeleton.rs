//! A small KMDF driver with a control device, whose callbacks a test supplies.

use std::{
    ptr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kernel::{
    unicode,
    wdf::{attributes, create_driver},
};
use simulated_kernel::{Builder, Driver, File, Kernel};
use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_IO_QUEUE_DISPATCH_TYPE, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, POOL_FLAG_NON_PAGED,
    PVOID, PWDFDEVICE_INIT, WDF_DRIVER_CONFIG, WDF_IO_QUEUE_CONFIG, WDF_IO_QUEUE_DISPATCH_TYPE, WDFDEVICE, WDFDRIVER,
    WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

/// What a callback of the driver is given.
pub struct Loaded {
    pub driver: WDFDRIVER,
}

/// What the driver does wrong, and where.
#[derive(Clone, Copy)]
pub struct Wrong {
    /// At the end of `DriverEntry`.
    pub load: fn(&Loaded),
    /// With a request; the second argument is the length of the output.
    pub control: fn(WDFREQUEST, usize),
    /// In `EvtDriverUnload`.
    pub unload: fn(&Loaded),
}

impl Default for Wrong {
    fn default() -> Self {
        Self { load: |_| (), control: |request, output| complete(request, 0, output), unload: |_| () }
    }
}

struct Device {
    driver: WDFDRIVER,
    /// Null after it is deleted.
    handle: WDFDEVICE,
    queue: WDFQUEUE,
    kept: Vec<PVOID>,
    wrong: Wrong,
}

// SAFETY: handles and addresses, used by one thread at a time.
unsafe impl Send for Device {}

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);
/// A control code of the driver.
pub const CODE: u32 = 0x22_2000;
static ONE: Mutex<()> = Mutex::new(());
const TAG: u32 = u32::from_ne_bytes(*b"Wrng");

fn with<R>(work: impl FnOnce(&mut Device) -> R) -> R {
    let mut device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    work(device.as_mut().expect("a scenario runs"))
}

/// Loads the driver, sends a control code, and unloads it, on a seeded kernel.
pub fn run(wrong: Wrong) {
    run_with(wrong, |_, file| assert!(file.control(CODE, &[1, 2, 3], 5).is_success()));
}

/// Loads the driver, lets `work` use it, and unloads it, on a seeded kernel.
pub fn run_with(wrong: Wrong, work: impl FnOnce(&Driver, &File)) {
    // The real limit of the DPC watchdog is a million calls.
    let limit = Duration::from_secs(2);
    run_on(Kernel::seeded(1).preemption(0).hang_limit(limit).dispatch_limit(limit), wrong, work);
}

/// Loads the driver, lets `work` use it, and unloads it.
pub fn run_on(kernel: Builder, wrong: Wrong, work: impl FnOnce(&Driver, &File)) {
    run_in(&kernel.start(), wrong, work);
}

/// Loads the driver in a kernel that runs, lets `work` use it, and unloads it.
pub fn run_in(kernel: &Kernel, wrong: Wrong, work: impl FnOnce(&Driver, &File)) {
    let only = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    *DEVICE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Device {
        driver: ptr::null_mut(),
        handle: ptr::null_mut(),
        queue: ptr::null_mut(),
        kept: Vec::with_capacity(8),
        wrong,
    });
    let driver = kernel.load("wrong", entry).expect("the driver loads");
    let file = kernel.open(r"\DosDevices\Wrong").expect("the driver has a control device");
    work(&driver, &file);
    drop(file);
    // What the removal of its last device would do.
    driver.run(delete_device);
    driver.unload();
    drop(only);
}

/// Memory of the driver.
pub fn allocate(size: usize) -> PVOID {
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size as u64, TAG) };
    assert!(!block.is_null());
    block
}

/// Has the driver free the block when it is unloaded.
pub fn keep(block: PVOID) -> PVOID {
    with(|device| device.kept.push(block));
    block
}

/// How many blocks it will free.
pub fn kept() -> usize {
    with(|device| device.kept.len())
}

/// Completes a request.
pub fn complete(request: WDFREQUEST, status: NTSTATUS, information: usize) {
    // SAFETY: as wrong as the test wants it.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfRequestCompleteWithInformation, request, status, information as u64);
    }
}

/// The place for the answer.
pub fn output_buffer(request: WDFREQUEST) -> *mut u8 {
    let mut buffer = ptr::null_mut();
    // SAFETY: the framework's own request.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfRequestRetrieveOutputBuffer, request, 1, &raw mut buffer, ptr::null_mut())
    };
    assert_eq!(status, 0);
    buffer.cast()
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let config = WDF_DRIVER_CONFIG { EvtDriverUnload: Some(unload), ..WDF_DRIVER_CONFIG::default() };
    // SAFETY: the arguments of this call.
    let handle = unsafe { create_driver(driver, path, config, attributes()) }.expect("a driver object");
    with(|device| device.driver = handle);
    assert_eq!(create_device(), 0);
    let load = with(|device| device.wrong.load);
    load(&Loaded { driver: handle });
    0
}

/// Makes the control device, with a symbolic link of the framework's. What that says of the link; if it is no success there is no device.
pub fn create_device() -> NTSTATUS {
    let driver = with(|place| place.driver);
    let (access, name, link) = (wide("D:P(A;;GA;;;SY)"), wide(r"\Device\Wrong"), wide(r"\DosDevices\Wrong"));
    let (access, name, link) = (unicode(&access), unicode(&name), unicode(&link));
    // SAFETY: the driver is live, and the string lives until the call returns.
    let mut init: PWDFDEVICE_INIT =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver, &raw const access) };
    // SAFETY: the structure was just made, and the string lives until the call returns.
    let named = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, init, &raw const name) };
    assert_eq!(named, 0);
    let mut attributes = attributes();
    attributes.ExecutionLevel = _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive;
    let mut device = ptr::null_mut();
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    };
    assert_eq!(made, 0);
    // SAFETY: the device is live.
    let linked = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateSymbolicLink, device, &raw const link) };
    if linked != 0 {
        // SAFETY: the device is live, and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, device.cast()) };
        return linked;
    }
    let queue = create_queue(device, _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential, true);
    // SAFETY: the device is complete.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
    with(|place| (place.handle, place.queue) = (device, queue));
    linked
}

fn create_queue(device: WDFDEVICE, dispatch: WDF_IO_QUEUE_DISPATCH_TYPE, default: bool) -> WDFQUEUE {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: u32::try_from(size_of::<WDF_IO_QUEUE_CONFIG>()).expect("a small structure"),
        DispatchType: dispatch,
        DefaultQueue: default.into(),
        EvtIoDeviceControl: default.then_some(control as _),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    let mut queue = ptr::null_mut();
    // SAFETY: the device is live, and the structures live until the call returns.
    let queued = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), &raw mut queue)
    };
    assert_eq!(queued, 0);
    queue
}

/// One more queue, from which the driver takes requests itself.
pub fn manual_queue() -> WDFQUEUE {
    create_queue(with(|device| device.handle), _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual, false)
}

/// The queue to which the control codes come, one at a time.
pub fn default_queue() -> WDFQUEUE {
    with(|device| device.queue)
}

/// Deletes the control device, if there is one.
pub fn delete_device() {
    let device = with(|place| std::mem::replace(&mut place.handle, ptr::null_mut()));
    if !device.is_null() {
        // SAFETY: the device is live, and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, device.cast()) };
    }
}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, output: usize, _: usize, _: u32) {
    let control = with(|device| device.wrong.control);
    control(request, output);
}

unsafe extern "C" fn unload(driver: WDFDRIVER) {
    let unload = with(|device| device.wrong.unload);
    unload(&Loaded { driver });
    let kept = with(|device| std::mem::take(&mut device.kept));
    for block in kept {
        // SAFETY: an allocation that is not used any more.
        unsafe { ExFreePoolWithTag(block, TAG) };
    }
}
