//! The control device: what `ndkctl` asks and sets (`control::provider_device`).
//!
//! It exists from the first adapter to the last: a control device keeps its driver loaded, so it has to go before.

use alloc::vec::Vec;

use control::provider_device::{
    DEVICE_NAME, INFO_TEST_BUILD, Info, LINK_NAME, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_INFO, QUERY_SETTINGS, SDDL,
    SET_FAULTS, SET_SETTINGS, Settings,
};
use engine::os::Os;
use fallible::Arc;
use kernel::{
    wdf::{ContextType, ControlDevice, Names, Request},
    wide,
};
use ndkpi::{NDIS_NDK_CONNECTION_ENTRY, NtStatus};
use wdk_sys::{ULONG, WDFOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding};

use crate::{driver::Driver, faults, os::Kernel, socket};

/// The control device and how many adapters want it.
#[derive(Default)]
pub struct Control {
    device: Option<ControlDevice>,
    users: u32,
}

// SAFETY: the address is that of this static.
static CONTEXT: ContextType<Driver> = unsafe { ContextType::new(c"softndk control", &raw const CONTEXT) };

/// One more adapter wants the control device.
///
/// # Errors
///
/// What the framework says when it makes the device.
pub fn acquire(driver: &Arc<Driver>) -> Result<(), NtStatus> {
    const DEVICE: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
    const LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);
    const ACCESS: [u16; SDDL.len()] = wide(SDDL);
    let names = Names { device: &DEVICE, link: &LINK, access: &ACCESS };
    driver.control.with(|control| {
        if control.device.is_none() {
            let kind = (&CONTEXT, destroy as _);
            // SAFETY: the driver object is live as long as an adapter is; `destroy` takes this context away, and
            // `device_control` completes each request.
            let device =
                unsafe { ControlDevice::try_new(driver.handle(), &names, kind, driver.clone(), Some(device_control)) };
            control.device = Some(device?);
        }
        control.users += 1;
        Ok(())
    })
}

/// One adapter less wants it.
pub fn release(driver: &Driver) {
    let last = driver.control.with(|control| {
        control.users = control.users.saturating_sub(1);
        control.device.take_if(|_| control.users == 0)
    });
    // Deleted outside of the lock.
    drop(last);
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
        QUERY_CONNECTIONS => match connections(driver) {
            Ok(bytes) => request.answer_cut(&bytes),
            Err(status) => request.finish(Err(status)),
        },
        QUERY_SETTINGS => request.answer(&driver.settings().to_control().to_bytes()),
        SET_SETTINGS => {
            let new = request.input(Settings::BYTES).map(Settings::from_bytes);
            let set = new.and_then(|new| driver.set(&new.ok_or(NtStatus::INVALID_PARAMETER)?));
            request.finish(set);
        }
        SET_FAULTS => {
            let set = faults::set(driver, &request);
            request.finish(set);
        }
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
        interface_version: u32::from(control::SOFTNDK_INTERFACE_VERSION),
        driver_version: VERSION,
        ndk_version: u32::from(highest.Major) << 16 | u32::from(highest.Minor),
        flags: if faults::AVAILABLE { INFO_TEST_BUILD } else { 0 },
        adapters: adapters().map(|adapter| u32::from(adapter.is_started())).sum(),
        open_adapters: adapters().map(|adapter| adapter.open_count()).sum(),
        processors: Kernel.processors(),
        reserved: 0,
    }
}

/// `NDIS_NDK_PERFORMANCE_COUNTERS`: thirty numbers, the sum over the adapters.
fn counters(driver: &Driver) -> [u8; 240] {
    let mut sum = [0_u64; 30];
    for adapter in driver.adapters().iter().flatten() {
        let one = adapter.provider().counters();
        let known = [
            (0, one.Connect),
            (1, one.Accept),
            (2, one.ConnectFailure),
            (3, one.ConnectionError),
            (4, one.ActiveConnection),
            (25, one.CQError),
            (26, one.RDMAInOctets),
            (27, one.RDMAOutOctets),
            (28, one.RDMAInFrames),
            (29, one.RDMAOutFrames),
        ];
        for (index, count) in known {
            sum[index] += count;
        }
    }
    let mut bytes = [0; 240];
    for (place, number) in bytes.chunks_exact_mut(8).zip(sum) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// `NDIS_NDK_CONNECTIONS` of all adapters.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
fn connections(driver: &Driver) -> Result<Vec<u8>, NtStatus> {
    const HEADER: usize = 16;
    const ENTRY: usize = size_of::<NDIS_NDK_CONNECTION_ENTRY>();
    let mut bytes = Vec::new();
    let no_memory = |_| NtStatus::INSUFFICIENT_RESOURCES;
    bytes.try_reserve(HEADER).map_err(no_memory)?;
    bytes.resize(HEADER, 0);
    for adapter in driver.adapters().iter().flatten() {
        adapter.provider().port().connections(|connection| {
            bytes.try_reserve(ENTRY).map_err(no_memory)?;
            bytes.extend_from_slice(&socket::bytes(connection.local));
            bytes.extend_from_slice(&socket::bytes(connection.remote));
            // Neither a program's nor of a process: consumers of this driver are in the kernel.
            bytes.extend_from_slice(&[0; 8]);
            Ok::<_, NtStatus>(())
        })?;
    }
    let count = (bytes.len() - HEADER) / ENTRY;
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    bytes[0] = ndkpi::NDIS_OBJECT_TYPE_DEFAULT;
    bytes[1] = ndkpi::NDIS_NDK_CONNECTIONS_REVISION_1;
    bytes[2..4].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    Ok(bytes)
}
