//! The control device: what `ndkctl` asks and sets (`ndk_interface::control`).
//!
//! It exists from the first adapter to the last: a control device keeps its driver loaded, so it has to go before.

use core::ptr;

use engine::os::Os;
use fallible::Shared;
use kernel::{
    check, unicode,
    wdf::{ContextType, Request, attributes, size},
    wide,
};
use ndk_interface::control::{
    DEVICE_NAME, Info, LINK_NAME, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_INFO, QUERY_SETTINGS, SDDL, SET_FAULTS,
    SET_SETTINGS, Settings,
};
use ndkpi::NtStatus;
use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_IO_QUEUE_DISPATCH_TYPE, FILE_DEVICE_NETWORK, FILE_DEVICE_SECURE_OPEN, ULONG,
    WDF_IO_QUEUE_CONFIG, WDFDEVICE, WDFOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
};

use crate::{driver::Driver, os::Kernel};

/// The control device and how many adapters want it.
#[derive(Default)]
pub struct Control {
    device: Option<Handle>,
    users: u32,
}

struct Handle(WDFDEVICE);

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for Handle {}

// SAFETY: the address is that of this static.
static CONTEXT: ContextType<Driver> = unsafe { ContextType::new(c"softndk control", &raw const CONTEXT) };

/// One more adapter wants the control device.
///
/// # Errors
///
/// What the framework says when it makes the device.
pub fn acquire(driver: &Shared<Driver>) -> Result<(), NtStatus> {
    driver.control.with(|control| {
        if control.device.is_none() {
            control.device = Some(create(driver)?);
        }
        control.users += 1;
        Ok(())
    })
}

/// One adapter less wants it.
pub fn release(driver: &Driver) {
    driver.control.with(|control| {
        control.users = control.users.saturating_sub(1);
        if control.users == 0
            && let Some(device) = control.device.take()
        {
            delete(device);
        }
    });
}

fn delete(Handle(device): Handle) {
    // SAFETY: the device is live, and its handle is not used after this.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, device.cast()) };
}

fn create(driver: &Shared<Driver>) -> Result<Handle, NtStatus> {
    const ACCESS: [u16; SDDL.len()] = wide(SDDL);
    const NAME: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
    const LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);
    let (access, name, link) = (unicode(&ACCESS), unicode(&NAME), unicode(&LINK));

    // SAFETY: the driver object is live, and the string lives until the call returns.
    let mut init =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver.handle(), &raw const access) };
    if init.is_null() {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    // SAFETY: the structure was just allocated, and the name lives until the call returns.
    let named = check(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, init, &raw const name) });
    if let Err(status) = named {
        // SAFETY: no device was made of the structure, and it is not used after this.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, init) };
        return Err(status);
    }
    // SAFETY: the structure was just allocated.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetDeviceType, init, FILE_DEVICE_NETWORK) };
    // SAFETY: as above.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetCharacteristics, init, FILE_DEVICE_SECURE_OPEN, 1) };

    let mut attributes = attributes();
    CONTEXT.describe(&mut attributes, destroy);
    // Requests are served by code that may wait.
    attributes.ExecutionLevel = _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive;
    let mut device = ptr::null_mut();
    // SAFETY: the structure becomes the device, or is freed by the framework only if that fails for want of one.
    let created = check(unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    });
    if let Err(status) = created {
        if !init.is_null() {
            // SAFETY: no device was made of the structure, and it is not used after this.
            unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, init) };
        }
        return Err(status);
    }
    let device = Handle(device);
    // SAFETY: the device is live and was created with a context of this kind.
    unsafe { CONTEXT.put(device.0.cast(), driver.clone()) };
    // SAFETY: the device is live, and the name lives until the call returns.
    let linked =
        check(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateSymbolicLink, device.0, &raw const link) });
    match linked.and_then(|()| create_queue(&device)) {
        Ok(()) => {}
        Err(status) => {
            delete(device);
            return Err(status);
        }
    }
    // SAFETY: the device is live and complete; from here on it can be opened.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device.0) };
    Ok(device)
}

fn create_queue(device: &Handle) -> Result<(), NtStatus> {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel,
        DefaultQueue: 1,
        EvtIoDeviceControl: Some(device_control),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    // `WDF_IO_QUEUE_CONFIG_INIT`: as many requests at a time as there are.
    config.Settings.Parallel.NumberOfPresentedRequests = ULONG::MAX;
    // SAFETY: the device is live, and the configuration lives until the call returns; nobody wants the handle.
    check(unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device.0, &raw mut config, ptr::null_mut(), ptr::null_mut())
    })
}

unsafe extern "C" fn destroy(object: WDFOBJECT) {
    // SAFETY: the framework calls this for a device that was created with a context of this kind.
    unsafe { CONTEXT.take(object) };
}

unsafe extern "C" fn device_control(
    queue: WDFQUEUE,
    request: WDFREQUEST,
    _output_length: usize,
    _input_length: usize,
    code: ULONG,
) {
    // SAFETY: the framework hands the request over, and every code that is served is `METHOD_BUFFERED`.
    let request = unsafe { Request::new(request) };
    // SAFETY: the framework's own argument.
    let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
    // SAFETY: the queue's device is a control device, which was created with a context of this kind.
    match unsafe { CONTEXT.get(device.cast()) } {
        Some(driver) => serve(&driver, request, code),
        None => request.finish(Err(NtStatus::DEVICE_NOT_READY)),
    }
}

fn serve(driver: &Driver, request: Request, code: u32) {
    match code {
        QUERY_INFO => request.answer(&info(driver).to_bytes()),
        QUERY_COUNTERS => request.answer(&counters(driver)),
        QUERY_CONNECTIONS => request.answer_cut(&connections()),
        QUERY_SETTINGS => request.answer(&driver.settings().wire().to_bytes()),
        SET_SETTINGS => {
            let new = request.input(Settings::BYTES).map(Settings::from_bytes);
            let set = new.and_then(|new| driver.set(&new.ok_or(NtStatus::INVALID_PARAMETER)?));
            request.finish(set);
        }
        SET_FAULTS => request.finish(Err(NtStatus::NOT_SUPPORTED)),
        _ => request.finish(Err(NtStatus::INVALID_DEVICE_REQUEST)),
    }
}

fn info(driver: &Driver) -> Info {
    const fn part(text: &str) -> u32 {
        let (bytes, mut number, mut index) = (text.as_bytes(), 0, 0);
        while index < bytes.len() {
            number = number * 10 + (bytes[index] - b'0') as u32;
            index += 1;
        }
        number
    }
    const VERSION: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 20
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 10
        | part(env!("CARGO_PKG_VERSION_PATCH"));
    let adapters = driver.adapters();
    let adapters = || adapters.iter().flatten();
    let highest = ndkpi::NDK_VERSION::V2_1;
    Info {
        interface_version: u32::from(ndk_interface::SOFTNDK_INTERFACE_VERSION),
        driver_version: VERSION,
        ndk_version: u32::from(highest.Major) << 16 | u32::from(highest.Minor),
        flags: 0,
        adapters: adapters().map(|adapter| u32::from(adapter.is_started())).sum(),
        open_adapters: adapters().map(|adapter| adapter.open_count()).sum(),
        processors: Kernel.processors(),
        reserved: 0,
    }
}

/// `NDIS_NDK_PERFORMANCE_COUNTERS`: thirty numbers, the sum over the adapters.
fn counters(driver: &Driver) -> [u8; 240] {
    use core::sync::atomic::Ordering::Relaxed;
    let mut numbers = [0_u64; 30];
    for adapter in driver.adapters().iter().flatten() {
        let provider = adapter.provider();
        let traffic = provider.nic().traffic();
        numbers[25] += u64::from(provider.events.cq_errors.load(Relaxed));
        numbers[26] += traffic.in_octets;
        numbers[27] += traffic.out_octets;
        numbers[28] += traffic.in_frames;
        numbers[29] += traffic.out_frames;
    }
    let mut bytes = [0; 240];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// `NDIS_NDK_CONNECTIONS` without entries: the provider does not list its connections yet.
fn connections() -> [u8; 16] {
    let mut bytes = [0; 16];
    // NDIS_OBJECT_HEADER: type, revision, size.
    bytes[..4].copy_from_slice(&[ndkpi::NDIS_OBJECT_TYPE_DEFAULT, 1, 16, 0]);
    bytes
}
