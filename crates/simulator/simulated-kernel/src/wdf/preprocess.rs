//! IRPs that a driver sees before the framework (`EvtDeviceWdmIrpPreprocess`): it completes them itself, later if it wants to, or gives
//! them to the framework, which makes requests of them. What is asked of the stack locations is that of the framework's published source
//! (`FxDevice::DispatchPreprocessedIrp`).

use std::sync::{
    Arc, Mutex,
    atomic::Ordering::{Acquire, Release},
};

use litemap::LiteMap;
use wdk_bindings::{
    IRP_MJ_MAXIMUM_FUNCTION, NTSTATUS, PIRP, PWDF_DRIVER_GLOBALS, PWDFDEVICE_INIT, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, UCHAR, ULONG, WDFDEVICE,
};

use super::{
    device::{DeviceObject, device},
    first::Preprocess,
    function::entry,
    request::RequestObject,
};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State, lock},
    wdm::io::request::{Maker, Request, current, mark, number, set_current, status_of},
};

/// IRPs that drivers have seen, and not given to the framework yet, and what they ask for.
#[derive(Default)]
pub struct Seen(LiteMap<usize, (usize, Arc<RequestObject>)>);

impl Part for Mutex<Seen> {}

impl State {
    /// A request comes to a device: as an IRP, if its driver wants to see that first.
    pub fn request_comes(self: &Arc<Self>, device: &Arc<DeviceObject>, request: &Arc<RequestObject>) {
        if device.first.sees(request.asks.major()) {
            self.show_irp(device, request);
        } else {
            self.register_request(device, request);
            self.request_arrives(device, request);
        }
    }

    fn show_irp(self: &Arc<Self>, device: &Arc<DeviceObject>, request: &Arc<RequestObject>) {
        let (of_state, of_request) = (self.clone(), request.clone());
        let end = Box::new(move |_: &Self, irp: PIRP| {
            // SAFETY: an IRP that is not freed yet.
            let information = usize::try_from(unsafe { (*irp).IoStatus.Information }).unwrap_or(usize::MAX);
            drop(lock(&of_request.irp).take());
            of_state.locked::<Seen>().0.remove(&irp.addr());
            of_state.finish_request(&of_request, status_of(irp), information);
        });
        let wdm = self.wdm_device_of(device);
        let made = self.fill_irp_of(request, &wdm, Maker::Preprocessed(end));
        *lock(&request.irp) = Some(made.clone());
        let of_device = device.handle.load(Acquire);
        self.locked::<Seen>().0.insert(made.address, (of_device, request.clone()));
        self.pass(&made, &wdm);
        self.preempt();
    }

    /// The framework gets an IRP from the driver of a device. What that returns for it.
    fn take_seen(self: &Arc<Self>, device: &Arc<DeviceObject>, irp: &Arc<Request>) -> NTSTATUS {
        let handle = device.handle.load(Acquire);
        let seen = self.locked::<Seen>().0.remove(&irp.address);
        let Some((_, request)) = seen.filter(|&(of_device, _)| of_device == handle) else {
            let words =
                format_args!("an IRP is given to the framework that came to no EvtDeviceWdmIrpPreprocess of it");
            bug_check(Rule::IrpNotOwned, words);
        };
        self.enter_next(device, irp);
        if self.passes_on(device, request.asks) {
            bug_check(Rule::NotSimulated, format_args!("an IRP that a filter has seen, and has no callback for"));
        }
        let is_known = device.with.looks_first.is_some() || self.queue_of(device, request.asks).is_some();
        if is_known {
            mark(current(irp.pointer()));
        }
        irp.is_with_framework.store(true, Release);
        self.register_request(device, &request);
        self.request_arrives(device, &request);
        if is_known { STATUS_PENDING } else { STATUS_INVALID_DEVICE_REQUEST }
    }

    /// The next stack location of an IRP becomes the framework's: the driver's own, which it has skipped, or the copy that it has made.
    fn enter_next(&self, device: &Arc<DeviceObject>, request: &Request) {
        let irp = request.pointer();
        let next = number(irp).saturating_sub(1);
        if !(1..=request.locations).contains(&next) {
            let words = format_args!("an IRP is given to the framework and has no stack location {next} for it");
            bug_check(Rule::IrpStackLocations, words);
        }
        set_current(irp, request.next_location(), next);
        // SAFETY: a location of the request's own block.
        let of = unsafe { (*current(irp)).DeviceObject };
        if of != self.wdm_device_of(device).pointer() {
            let words =
                format_args!("an IRP is given to the framework with its stack location neither skipped nor copied");
            bug_check(Rule::IrpStackLocations, words);
        }
        request.passed_on();
    }
}

pub extern "C" fn WdfDeviceInitAssignWdmIrpPreprocessCallback(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    callback: Option<Preprocess>,
    major: UCHAR,
    minors: *const UCHAR,
    count: ULONG,
) -> NTSTATUS {
    routine!("WdfDeviceInitAssignWdmIrpPreprocessCallback", DISPATCH_LEVEL, |state| {
        let Some(routine) = callback else {
            bug_check(Rule::BadArgument, format_args!("IRPs that are to be seen first, by no routine"));
        };
        if count > 0 && minors.is_null() {
            bug_check(Rule::BadArgument, format_args!("{count} minor functions that are not there"));
        }
        if u32::from(major) > IRP_MJ_MAXIMUM_FUNCTION {
            return STATUS_INVALID_PARAMETER;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let mut new = Vec::new();
        if count > 0 {
            // SAFETY: not null, so as many bytes of the driver's, which live until the call returns.
            new.extend_from_slice(unsafe { std::slice::from_raw_parts(minors, count as usize) });
        }
        state.with_init(init, |init| {
            if init.first.set(major, routine, new) { STATUS_SUCCESS } else { STATUS_INVALID_DEVICE_REQUEST }
        })
    })
}

pub extern "C" fn WdfDeviceWdmDispatchPreprocessedIrp(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    irp: PIRP,
) -> NTSTATUS {
    routine!("WdfDeviceWdmDispatchPreprocessedIrp", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        let Some(request) = state.irp(irp) else {
            let words = format_args!("{irp:p} is given to the framework and is no IRP, or was completed");
            bug_check(Rule::IrpCompletedTwice, words);
        };
        state.take_seen(&device, &request)
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfDeviceInitAssignWdmIrpPreprocessCallback), entry!(WdfDeviceWdmDispatchPreprocessedIrp)]
}
