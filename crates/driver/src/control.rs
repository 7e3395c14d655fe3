//! The control device: what `ndkctl` asks and sets (`control::provider_device`).
//!
//! It exists from the first adapter to the last: a control device keeps its driver loaded, so it has to go before.

use control::provider_device::{
    DEVICE_NAME, FAULT_PLAN_BYTES, Faults, LINK_NAME, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_FAULT_PLAN, QUERY_INFO,
    QUERY_RECORDING, QUERY_SETTINGS, READ_RECORDING, Recording, RecordingFrom, RecordingPart, SDDL, SET_FAULT_PLAN,
    SET_FAULTS, SET_RECORDING, SET_SETTINGS, Settings,
};
use driver_common::{faults, report};
use fallible::Arc;
use kernel::{
    context,
    wdf::{ControlDevice, Names, Request},
    wide,
};
use ndkpi::NtStatus;
use wdk_sys::{ULONG, WDFQUEUE, WDFREQUEST};

use crate::{device::Adapter, driver::Driver, nd::NdDevice};

/// The control device and how many adapters want it.
#[derive(Default)]
pub struct Control {
    device: Option<ControlDevice>,
    nd: Option<NdDevice>,
    users: u32,
}

context!(Driver, c"softndk control");

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
            // SAFETY: the driver object is live as long as an adapter is, and `device_control` completes each request.
            let device = unsafe {
                ControlDevice::try_new(driver.handle(), &names, &CONTEXT, driver.clone(), Some(device_control), None)
            };
            let device = device?;
            control.nd = Some(NdDevice::try_new(driver)?);
            control.device = Some(device);
        }
        control.users += 1;
        Ok(())
    })
}

/// One adapter less wants it.
pub fn release(driver: &Driver) {
    let last = driver.control.with(|control| {
        control.users = control.users.saturating_sub(1);
        if control.users == 0 { (control.device.take(), control.nd.take()) } else { (None, None) }
    });
    // Deleted outside of the lock.
    drop(last);
}

unsafe extern "C" fn device_control(
    queue: WDFQUEUE,
    request: WDFREQUEST,
    _output_length: usize,
    _input_length: usize,
    code: ULONG,
) {
    // SAFETY: the framework hands the request over, and every code that is served is `METHOD_BUFFERED`; the queue's device is the
    // control device, which was created with a context of this kind.
    if let Some((driver, request)) = unsafe { Request::take(&CONTEXT, queue, request) } {
        serve(&driver, request, code);
    }
}

fn serve(driver: &Driver, request: Request, code: u32) {
    let adapters = driver.adapters();
    let adapters = || adapters.iter().flatten();
    let providers = || adapters().map(|adapter| adapter.provider());
    match code {
        QUERY_INFO => request.answer(&report::info(adapters().map(|adapter| Adapter::consumers(adapter))).to_bytes()),
        QUERY_COUNTERS => request.answer(&report::counters(providers())),
        QUERY_CONNECTIONS => match report::connections(providers()) {
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
            let bytes = if faults::AVAILABLE { Faults::BYTES } else { 0 };
            let set = request.input(bytes).and_then(|input| faults::set(providers(), input));
            request.finish(set);
        }
        QUERY_FAULT_PLAN => request.answer(&driver.faults().answer()),
        SET_FAULT_PLAN => {
            let set = request.input(FAULT_PLAN_BYTES).and_then(|input| driver.faults().set(input));
            request.finish(set);
        }
        SET_RECORDING => {
            let wanted = request.input(Recording::BYTES).map(Recording::from_bytes);
            let set = wanted.and_then(|wanted| driver.recordings().set(&wanted.ok_or(NtStatus::INVALID_PARAMETER)?));
            request.finish(set);
        }
        QUERY_RECORDING => request.answer(&driver.recordings().state().to_bytes()),
        READ_RECORDING => read_recording(driver, request),
        _ => request.finish(Err(NtStatus::INVALID_DEVICE_REQUEST)),
    }
}

fn read_recording(driver: &Driver, mut request: Request) {
    let from = request.input(RecordingFrom::BYTES).map(RecordingFrom::from_bytes);
    let from = from.and_then(|from| from.ok_or(NtStatus::INVALID_PARAMETER));
    let read = from.and_then(|from| driver.recordings().read(&from, request.output(RecordingPart::BYTES)?));
    match read {
        Ok(length) => request.complete(NtStatus::SUCCESS, length),
        Err(status) => request.finish(Err(status)),
    }
}
