//! The deletion of device objects.

use std::sync::atomic::Ordering::Acquire;

use wdk_bindings::{DEVICE_OBJECT, PDEVICE_OBJECT};

use super::{
    device::{Devices, TAG},
    power,
};
use crate::{pool, report::bug_check, routine::routine, rule::Rule};

#[unsafe(no_mangle)]
extern "C" fn IoDeleteDevice(device: PDEVICE_OBJECT) {
    routine!("IoDeleteDevice", |state| {
        let Some(gone) = state.locked::<Devices>().remove(device.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{device:p} is no device object, or was one"));
        };
        if let Some(words) = state.is_attached(&gone) {
            bug_check(Rule::DeviceAttached, format_args!("a device is deleted {words}"));
        }
        let users = gone.users.load(Acquire);
        if users > 0 {
            bug_check(Rule::DeviceInUse, format_args!("a device is deleted with {users} files and requests"));
        }
        // SAFETY: the device object was live until now.
        let DEVICE_OBJECT { DriverObject: driver, NextDevice: next, .. } = unsafe { device.read() };
        // SAFETY: driver objects outlive their devices.
        let mut place = unsafe { &raw mut (*driver).DeviceObject };
        loop {
            // SAFETY: the head of the list, or the link of one of its devices.
            let here = unsafe { place.read() };
            if here == device {
                break;
            }
            // SAFETY: the device is in the list, so the list does not end before it.
            place = unsafe { &raw mut (*here).NextDevice };
        }
        // SAFETY: the link that leads to the device.
        unsafe { place.write(next) };
        power::forget_device(state, device.addr());
        state.delete_device_timer(device.addr());
        state.forget_start(device.addr());
        pool::free(device.expose_provenance(), Some(TAG));
    });
}
