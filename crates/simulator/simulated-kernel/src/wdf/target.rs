//! I/O targets: what is below a device in its stack, and other drivers' devices, opened.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use wdk_bindings::{
    _WDF_IO_TARGET_OPEN_TYPE,
    _WDF_IO_TARGET_STATE::{self, Type as TargetState},
    NTSTATUS, PFN_WDF_IO_TARGET_QUERY_REMOVE, PFN_WDF_IO_TARGET_REMOVE_CANCELED, PFN_WDF_IO_TARGET_REMOVE_COMPLETE,
    PWDF_DRIVER_GLOBALS, PWDF_IO_TARGET_OPEN_PARAMS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_STATE, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, WDF_IO_TARGET_OPEN_PARAMS,
    WDF_OBJECT_ATTRIBUTES, WDFDEVICE, WDFIOTARGET,
};

use super::{
    device::{DeviceObject, device},
    file::FileObject,
    function::{entry, function},
    object::{Kind, Object, Part},
    request::Below,
};
use crate::{
    argument::check_size,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    text, waiting,
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
    /// That file.
    file: Option<Arc<FileObject>>,
    /// The device that it was opened on, also when it was closed because that one goes.
    of: Option<Arc<DeviceObject>>,
    /// What opens it again: the interface, with what happens when its device goes.
    name: Vec<u16>,
    callbacks: Callbacks,
}

/// A target.
pub struct TargetObject {
    pub owner: DriverId,
    pub handle: AtomicUsize,
    /// The device whose target it is.
    pub device: Arc<DeviceObject>,
    /// It is for what is below that device, and so always open.
    pub local: bool,
    opened: Mutex<Opened>,
    pub flow: Mutex<Flow>,
}

/// What a target does with requests.
pub struct Flow {
    pub state: TargetState,
    /// Those that were sent and have not come back.
    pub sent: Vec<Arc<dyn OnItsWay>>,
    /// Those that wait for the target to be started.
    pub waiting: VecDeque<Arc<dyn OnItsWay>>,
}

/// A device, and the file by which requests come there.
type Place = (Arc<DeviceObject>, Option<Arc<FileObject>>);

/// A request that was sent to a target.
pub trait OnItsWay: Below {
    /// It goes down now.
    fn go(self: Arc<Self>, state: &Arc<State>);

    /// The target's state does not matter for it: a stop does not wait for it.
    fn ignores_the_state(&self) -> bool;

    /// Its driver.
    fn place(&self) -> *const ();
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
        if self.local {
            object.refuse_to_delete();
        }
        object.require_passive_level();
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        self.empty(state, _WDF_IO_TARGET_STATE::WdfIoTargetDeleted, "the deletion of an I/O target");
        state.close_target(self);
    }
}

impl TargetObject {
    fn new(device: &Arc<DeviceObject>, local: bool) -> Self {
        let state =
            if local { _WDF_IO_TARGET_STATE::WdfIoTargetStarted } else { _WDF_IO_TARGET_STATE::WdfIoTargetClosed };
        Self {
            owner: device.owner,
            handle: AtomicUsize::new(0),
            device: device.clone(),
            local,
            opened: Mutex::default(),
            flow: Mutex::new(Flow { state, sent: Vec::new(), waiting: VecDeque::new() }),
        }
    }

    /// Where requests go, with the file by which they come there: of a local target the device below, which is the bus's if it is
    /// `None`. `Err` if it is not open.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_STATE`.
    pub fn leads_to(&self) -> Result<Option<Place>, NTSTATUS> {
        if self.local {
            return Ok(self.device.lower.get().map(|lower| (lower.clone(), None)));
        }
        let opened = lock(&self.opened);
        let device = opened.device.clone().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        Ok(Some((device.top(), opened.file.clone())))
    }

    /// From here on it is in that state. What was sent is cancelled.
    pub fn cancel_all(&self, state: &Arc<State>, next: TargetState, and_waiting: bool) {
        let mut flow = lock(&self.flow);
        flow.state = next;
        let mut meant: Vec<Arc<dyn OnItsWay>> = flow.sent.clone();
        if and_waiting {
            meant.extend(flow.waiting.iter().cloned());
        }
        drop(flow);
        for one in meant {
            one.cancel(state);
        }
    }

    fn refuse_if_local(&self, what: &str) {
        if self.local {
            bug_check(
                Rule::BadHandle,
                format_args!("the I/O target of what is below a device is {what} by its driver"),
            );
        }
    }

    /// Waits until what was sent, and is counted, has come back.
    pub fn until_all_are_back(&self, state: &Arc<State>, what: &str, with_all: bool) {
        let is_empty = || !lock(&self.flow).sent.iter().any(|one| with_all || !one.ignores_the_state());
        if !is_empty() {
            waiting::until(state, None, what, is_empty);
        }
    }

    /// It is closed: what is there is cancelled, and waited for.
    fn empty(&self, state: &Arc<State>, next: TargetState, what: &str) {
        self.cancel_all(state, next, true);
        self.until_all_are_back(state, what, true);
    }
}

pub fn target(state: &State, handle: WDFIOTARGET) -> Arc<TargetObject> {
    state.given_as(handle).1
}

impl State {
    /// Closes the file, if one is open, and forgets the device.
    fn close_target(self: &Arc<Self>, target: &TargetObject) {
        lock(&target.opened).of = None;
        self.let_target_go(target);
    }

    /// Closes the file, if one is open.
    fn let_target_go(self: &Arc<Self>, target: &TargetObject) {
        let file = {
            let mut opened = lock(&target.opened);
            opened.device = None;
            opened.file.take()
        };
        if let Some(file) = file {
            self.end_file(&file);
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
                target.empty(self, _WDF_IO_TARGET_STATE::WdfIoTargetClosedForQueryRemove, "a target whose device goes");
                self.let_target_go(&target);
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
                None if gone => {
                    target.empty(self, _WDF_IO_TARGET_STATE::WdfIoTargetClosed, "a target whose device is gone");
                    self.close_target(&target);
                }
                // A remote target that closed by itself opens by itself.
                None if callbacks.query_remove.is_none() => {
                    let _ = self.open_target(&target);
                }
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
        let target = Arc::new(TargetObject::new(&device, false));
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
        let again = match parameters.Type {
            _WDF_IO_TARGET_OPEN_TYPE::WdfIoTargetOpenByName => false,
            _WDF_IO_TARGET_OPEN_TYPE::WdfIoTargetOpenReopen => true,
            _ => bug_check(Rule::NotSimulated, format_args!("a target that is not opened by name")),
        };
        if target.local {
            bug_check(Rule::BadHandle, format_args!("the I/O target of what is below a device is opened"));
        }
        {
            let mut opened = lock(&target.opened);
            if opened.device.is_some() || again && opened.name.is_empty() {
                return STATUS_INVALID_DEVICE_STATE;
            }
            if !again {
                opened.name = text::of(&parameters.TargetDeviceName);
                opened.callbacks = Callbacks {
                    query_remove: parameters.EvtIoTargetQueryRemove,
                    cancelled: parameters.EvtIoTargetRemoveCanceled,
                    complete: parameters.EvtIoTargetRemoveComplete,
                };
            }
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        match state.open_target(&target) {
            Ok(()) => STATUS_SUCCESS,
            Err(status) => status,
        }
    })
}

impl State {
    /// Opens the device by the name that the target has; the device's driver is told of the file.
    fn open_target(self: &Arc<Self>, target: &Arc<TargetObject>) -> Result<(), NTSTATUS> {
        let name = lock(&target.opened).name.clone();
        let (device, reference) = self.device_of_interface(&name).ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?;
        device.open_file().map_err(|_| STATUS_OBJECT_NAME_NOT_FOUND)?;
        let file = self.create_file(&device, &reference).inspect_err(|_| self.close_file(&device))?;
        {
            let mut opened = lock(&target.opened);
            (opened.of, opened.device, opened.file) = (Some(device.clone()), Some(device), Some(file));
        }
        lock(&target.flow).state = _WDF_IO_TARGET_STATE::WdfIoTargetStarted;
        Ok(())
    }
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 1] {
    [entry!(WdfDeviceGetIoTarget)]
}

/// The target for what is below a device; null for one that is in no stack. It is the framework's, and goes with the device.
pub extern "C" fn WdfDeviceGetIoTarget(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> WDFIOTARGET {
    routine!("WdfDeviceGetIoTarget", DISPATCH_LEVEL, |state| {
        let (object, device) = device(state, handle);
        if device.control || device.is_of_miniport() {
            return std::ptr::null_mut();
        }
        let mut known = lock(&device.target);
        while *known == 0 {
            // The framework has it in the device: this does not fail.
            let target = Arc::new(TargetObject::new(&device, true));
            let attributes = WDF_OBJECT_ATTRIBUTES::default();
            let made = state.create_object_of(device.owner, target.clone(), &attributes, Some(object.handle));
            if let Some(made) = made {
                target.handle.store(made.handle, Release);
                *known = made.handle;
            }
        }
        std::ptr::without_provenance_mut(*known)
    })
}

pub extern "C" fn WdfIoTargetClose(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) {
    function!("WdfIoTargetClose", |state| {
        let target = target(state, handle);
        target.refuse_if_local("closed");
        target.empty(state, _WDF_IO_TARGET_STATE::WdfIoTargetClosed, "WdfIoTargetClose");
        state.close_target(&target);
    });
}

pub extern "C" fn WdfIoTargetCloseForQueryRemove(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) {
    function!("WdfIoTargetCloseForQueryRemove", |state| {
        let target = target(state, handle);
        target.refuse_if_local("closed");
        target.empty(state, _WDF_IO_TARGET_STATE::WdfIoTargetClosedForQueryRemove, "WdfIoTargetCloseForQueryRemove");
        state.let_target_go(&target);
    });
}
