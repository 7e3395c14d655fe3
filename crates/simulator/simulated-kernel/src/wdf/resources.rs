//! The hardware resources of a device, as `EvtDevicePrepareHardware` gets them. The bus of this kernel gives its devices none.

use std::ptr;

use wdk_bindings::{PVOID, PWDF_DRIVER_GLOBALS, ULONG, WDFCMRESLIST};

use super::{device::DeviceObject, function::entry};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
};

/// Which of its two lists a device has.
#[derive(Clone, Copy)]
pub enum List {
    Raw = 1,
    Translated = 2,
}

/// How far the handles of objects are from each other: those of lists lie between.
const DISTANCE: usize = 16;

impl DeviceObject {
    /// The handle of a list, which is one from the start of the device until its hardware is released.
    pub fn resources(&self, list: List) -> WDFCMRESLIST {
        *lock(&self.prepared) = true;
        ptr::without_provenance_mut(self.handle.load(std::sync::atomic::Ordering::Acquire) + list as usize)
    }

    /// Its hardware is released: the lists are gone.
    pub fn release_resources(&self) {
        *lock(&self.prepared) = false;
    }
}

/// Ends the test if that is no list of a device with hardware.
fn check(state: &State, list: WDFCMRESLIST) {
    let (of_device, which) = (list.addr() / DISTANCE * DISTANCE, list.addr() % DISTANCE);
    let device = state.if_there::<DeviceObject>(of_device);
    let is_there = device.is_some_and(|(_, device)| *lock(&device.prepared));
    if !is_there || ![List::Raw as usize, List::Translated as usize].contains(&which) {
        bug_check(Rule::BadHandle, format_args!("{list:p} is no resource list, or was one"));
    }
}

pub extern "C" fn WdfCmResourceListGetCount(_globals: PWDF_DRIVER_GLOBALS, list: WDFCMRESLIST) -> ULONG {
    routine!("WdfCmResourceListGetCount", DISPATCH_LEVEL, |state| {
        check(state, list);
        0
    })
}

/// Null behind the last one.
pub extern "C" fn WdfCmResourceListGetDescriptor(
    _globals: PWDF_DRIVER_GLOBALS,
    list: WDFCMRESLIST,
    _index: ULONG,
) -> PVOID {
    routine!("WdfCmResourceListGetDescriptor", DISPATCH_LEVEL, |state| {
        check(state, list);
        ptr::null_mut()
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfCmResourceListGetCount), entry!(WdfCmResourceListGetDescriptor)]
}
