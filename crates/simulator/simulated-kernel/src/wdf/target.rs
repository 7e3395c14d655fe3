//! Remote I/O targets: another driver's device, opened.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use wdk_bindings::{
    _WDF_IO_TARGET_OPEN_TYPE, LPCGUID, NTSTATUS, PFN_WDF_IO_TARGET_QUERY_REMOVE, PFN_WDF_IO_TARGET_REMOVE_CANCELED,
    PFN_WDF_IO_TARGET_REMOVE_COMPLETE, PINTERFACE, PVOID, PWDF_DRIVER_GLOBALS, PWDF_IO_TARGET_OPEN_PARAMS,
    PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_STATE, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS, USHORT, WDF_IO_TARGET_OPEN_PARAMS, WDFDEVICE, WDFIOTARGET,
};

use super::{
    device::{DeviceObject, device},
    function::function,
    object::{Kind, Object, Part},
};
use crate::{
    argument::check_size,
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    text,
};

/// What a target does when its device goes.
#[derive(Clone, Copy, Default)]
struct Callbacks {
    query_remove: PFN_WDF_IO_TARGET_QUERY_REMOVE,
    cancelled: PFN_WDF_IO_TARGET_REMOVE_CANCELED,
    complete: PFN_WDF_IO_TARGET_REMOVE_COMPLETE,
}

#[derive(Default)]
struct Opened {
    /// The device, while a file is open on it.
    device: Option<Arc<DeviceObject>>,
    /// The device that it was opened on, also when it was closed because that one goes.
    of: Option<Arc<DeviceObject>>,
    callbacks: Callbacks,
}

/// A target.
pub struct TargetObject {
    owner: DriverId,
    handle: AtomicUsize,
    opened: Mutex<Opened>,
}

// SAFETY: the callbacks are functions, which any thread may call.
unsafe impl Send for TargetObject {}
// SAFETY: as for `Send`; what changes is behind a lock.
unsafe impl Sync for TargetObject {}

impl Part for TargetObject {
    const NAME: &'static str = "I/O target";
}

impl Kind for TargetObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        object.require_passive_level();
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        state.close_target(self);
    }
}

fn target(state: &State, handle: WDFIOTARGET) -> Arc<TargetObject> {
    state.given_as(handle).1
}

impl State {
    /// Closes the file, if one is open.
    pub fn close_target(self: &Arc<Self>, target: &TargetObject) {
        let device = {
            let mut opened = lock(&target.opened);
            opened.of = None;
            opened.device.take()
        };
        if let Some(device) = device {
            self.close_file(&device);
        }
    }

    fn targets_of(&self, device: &Arc<DeviceObject>) -> Vec<Arc<TargetObject>> {
        let mut targets = self.all_of::<TargetObject>();
        targets.retain(|target| lock(&target.opened).of.as_ref().is_some_and(|of| Arc::ptr_eq(of, device)));
        targets
    }

    /// Asks everybody who has the device open to let it go. Their answer.
    pub fn ask_targets(self: &Arc<Self>, device: &Arc<DeviceObject>) -> NTSTATUS {
        for target in self.targets_of(device) {
            let (callbacks, handle) = (lock(&target.opened).callbacks, target.handle.load(Acquire));
            let Some(query_remove) = callbacks.query_remove else {
                // What the framework does by itself.
                let device = lock(&target.opened).device.take();
                if let Some(device) = device {
                    self.close_file(&device);
                }
                continue;
            };
            let status = context::call(target.owner, "EvtIoTargetQueryRemove", || {
                // SAFETY: the driver's own callback, with a live handle.
                unsafe { query_remove(std::ptr::without_provenance_mut(handle)) }
            });
            if status < 0 {
                return status;
            }
        }
        STATUS_SUCCESS
    }

    /// Tells everybody who had the device open that it stays, or that it is gone.
    pub fn tell_targets(self: &Arc<Self>, device: &Arc<DeviceObject>, gone: bool) {
        for target in self.targets_of(device) {
            let (callbacks, handle) = (lock(&target.opened).callbacks, target.handle.load(Acquire));
            let callback = if gone { callbacks.complete } else { callbacks.cancelled };
            match callback {
                Some(callback) => {
                    let what = if gone { "EvtIoTargetRemoveComplete" } else { "EvtIoTargetRemoveCanceled" };
                    context::call(target.owner, what, || {
                        // SAFETY: the driver's own callback, with a live handle.
                        unsafe { callback(std::ptr::without_provenance_mut(handle)) };
                    });
                }
                None if gone => self.close_target(&target),
                None => {}
            }
        }
    }
}

pub extern "C" fn WdfIoTargetCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFIOTARGET,
) -> NTSTATUS {
    function!("WdfIoTargetCreate", |state| {
        let (object, device) = device(state, handle);
        let target =
            Arc::new(TargetObject { owner: device.owner, handle: AtomicUsize::new(0), opened: Mutex::default() });
        let Some(new) = state.create_object(target.clone(), attributes, Some(object.handle)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        target.handle.store(new.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(new.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfIoTargetOpen(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
    parameters: PWDF_IO_TARGET_OPEN_PARAMS,
) -> NTSTATUS {
    function!("WdfIoTargetOpen", |state| {
        let target = target(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let parameters = unsafe { parameters.read() };
        check_size::<WDF_IO_TARGET_OPEN_PARAMS>(parameters.Size, "WDF_IO_TARGET_OPEN_PARAMS");
        if parameters.Type != _WDF_IO_TARGET_OPEN_TYPE::WdfIoTargetOpenByName {
            bug_check(Rule::NotSimulated, format_args!("a target that is not opened by name"));
        }
        if lock(&target.opened).device.is_some() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let link = text::of(&parameters.TargetDeviceName);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let device = state.device_of_interface(&link).map(|(device, _)| device);
        let device = device.filter(|device| device.open_file().is_ok());
        let Some(device) = device else { return STATUS_OBJECT_NAME_NOT_FOUND };
        let callbacks = Callbacks {
            query_remove: parameters.EvtIoTargetQueryRemove,
            cancelled: parameters.EvtIoTargetRemoveCanceled,
            complete: parameters.EvtIoTargetRemoveComplete,
        };
        *lock(&target.opened) = Opened { of: Some(device.clone()), device: Some(device), callbacks };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfIoTargetClose(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) {
    function!("WdfIoTargetClose", |state| {
        let target = target(state, handle);
        state.close_target(&target);
    });
}

pub extern "C" fn WdfIoTargetCloseForQueryRemove(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) {
    function!("WdfIoTargetCloseForQueryRemove", |state| {
        let device = lock(&target(state, handle).opened).device.take();
        if let Some(device) = device {
            state.close_file(&device);
        }
    });
}

pub extern "C" fn WdfIoTargetQueryForInterface(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
    kind: LPCGUID,
    place: PINTERFACE,
    size: USHORT,
    version: USHORT,
    _specific: PVOID,
) -> NTSTATUS {
    function!("WdfIoTargetQueryForInterface", |state| {
        let device = lock(&target(state, handle).opened).device.clone();
        let Some(device) = device else { return STATUS_INVALID_DEVICE_STATE };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the driver's identifier, which lives until the call returns.
        let kind = unsafe { kind.read() };
        state.query_interface(&device, &kind, place, size, version)
    })
}
