//! The control device: what `ndkctl` asks and sets (`control::provider_device`).
//!
//! It exists from the first adapter to the last: a control device keeps its driver loaded, so it has to go before.

use control::provider_device::{DEVICE_NAME, LINK_NAME, SDDL, Wire};
use fallible::Arc;
use kernel::{
    context,
    wdf::{ControlDevice, Names, Request},
    wide,
};
use ndkpi::NtStatus;
use wdk_sys::{ULONG, WDFQUEUE, WDFREQUEST};

use crate::{driver::Driver, nd::NdDevice};

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
        let adapters = driver.adapters();
        let consumers = adapters.iter().flatten().map(|adapter| adapter.consumers());
        // Its adapters have no wires.
        let none = core::iter::empty::<fn() -> Wire>();
        driver.controls().serve(consumers, none, request, code);
    }
}
