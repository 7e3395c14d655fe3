//! Devices, their names, interfaces and the interfaces they can be queried for.

use std::{
    ptr,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use litemap::LiteMap;
use ndkpi::NtStatus;
use wdk_bindings::{
    _WDF_DEVICE_FAILED_ACTION::{self, Type as FailedAction},
    GUID, NTSTATUS, PCUNICODE_STRING, PFN_WDF_DEVICE_PROCESS_QUERY_INTERFACE_REQUEST, PWDF_DRIVER_GLOBALS,
    PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT, STATUS_ACCESS_DENIED, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    WDF_PNPPOWER_EVENT_CALLBACKS, WDFDEVICE,
};

use super::{
    device_init::{With, method_of_transfers},
    first::First,
    function::function,
    object::{Kind, Object, Part, STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED, has_parent, read_attributes},
    resources::Hardware,
    wdm_devices::WdmDevices,
};
use crate::{
    context::DriverId,
    report::bug_check,
    rule::Rule,
    state::{self, State, lock},
    text, waiting,
    wdf::device_init::Inits,
    wdm::io::interface::{behind, link_of},
};

/// An interface that a device can be queried for.
#[derive(Clone)]
pub struct QueryInterface {
    pub kind: GUID,
    /// A copy of what the driver registered, and how long it is in bytes; `None` if only its callback knows.
    pub exposed: Option<(Vec<u64>, usize)>,
    /// The driver looks at what is handed out.
    pub process: PFN_WDF_DEVICE_PROCESS_QUERY_INTERFACE_REQUEST,
    /// It wants to see what the caller's structure holds, and fills it in itself.
    pub imports: bool,
}

/// A device interface.
pub struct DeviceInterface {
    pub class: GUID,
    pub link: Vec<u16>,
    /// The driver's reference string, with a backslash in front; empty without one.
    reference: String,
    pub enabled: bool,
}

/// A device.
pub struct DeviceObject {
    pub owner: DriverId,
    pub handle: AtomicUsize,
    pub control: bool,
    /// The functional device object of a miniport's, which deletes it itself; zero for any other.
    pub functional: usize,
    pub node: Option<u64>,
    pub name: String,
    pub callbacks: WDF_PNPPOWER_EVENT_CALLBACKS,
    pub with: With,
    /// The IRPs that its driver sees before the framework.
    pub first: First,
    /// Who may open it; empty for a device of plug and play.
    pub access: String,
    /// The symbolic link that the framework has made. It goes with the device, not with its name.
    link: Mutex<Option<String>>,
    pub interfaces: Mutex<Vec<DeviceInterface>>,
    pub queries: Mutex<Vec<QueryInterface>>,
    /// The driver has said that it failed for good, and plug and play has to remove it.
    pub failed: AtomicBool,
    /// True if the device can be opened.
    pub finished: AtomicBool,
    /// It is in D0, and its queues hand out requests.
    pub powered: AtomicBool,
    /// It has its resource lists.
    pub prepared: Mutex<bool>,
    /// Its driver is in `EvtDevicePrepareHardware`.
    pub preparing: AtomicBool,
    /// What its bus has given it; the devices of a stack share that.
    pub hardware: OnceLock<Arc<Hardware>>,
    /// How often its driver has said that it may not sleep while the system works.
    pub kept_awake: Mutex<u32>,
    files: Mutex<Files>,
    /// Requests that were handed to the driver and are not completed, and those in queues.
    pub requests: AtomicU32,
    pub queues: Mutex<Vec<usize>>,
    pub default_queue: AtomicUsize,
    /// The queues for one kind of requests each, by the kind; zero without one.
    pub dispatching: Mutex<[usize; 5]>,
    /// The device below it in its stack, if a driver has that; without one there is the bus's.
    pub lower: OnceLock<Arc<Self>>,
    /// The highest device of the stack that it is the lowest of, if that is another one.
    pub highest: Mutex<Weak<Self>>,
    /// Its I/O target for what is below; zero until the driver has asked for it.
    pub target: Mutex<usize>,
    /// Its device objects, when a driver has asked for one of its stack.
    pub wdm: Mutex<WdmDevices>,
}

/// The files of a device.
#[derive(Default)]
struct Files {
    open: u32,
    /// The driver has deleted the device, whose last file is awaited: it has no name any more, and nobody opens it.
    condemned: bool,
}

// SAFETY: the callbacks are functions, and the pointers in copied interfaces are only handed out again.
unsafe impl Send for DeviceObject {}
// SAFETY: as for `Send`; what changes is behind locks.
unsafe impl Sync for DeviceObject {}

impl DeviceObject {
    fn new(owner: DriverId, node: Option<u64>, name: String, callbacks: WDF_PNPPOWER_EVENT_CALLBACKS) -> Self {
        Self {
            owner,
            handle: AtomicUsize::new(0),
            control: node.is_none(),
            functional: 0,
            node,
            name,
            callbacks,
            with: With::default(),
            first: First::default(),
            access: String::new(),
            link: Mutex::default(),
            interfaces: Mutex::default(),
            queries: Mutex::default(),
            failed: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            powered: AtomicBool::new(false),
            prepared: Mutex::default(),
            preparing: AtomicBool::new(false),
            hardware: OnceLock::new(),
            kept_awake: Mutex::default(),
            files: Mutex::default(),
            requests: AtomicU32::new(0),
            queues: Mutex::default(),
            default_queue: AtomicUsize::new(0),
            dispatching: Mutex::default(),
            lower: OnceLock::new(),
            highest: Mutex::default(),
            target: Mutex::default(),
            wdm: Mutex::default(),
        }
    }

    /// The device of a driver in miniport mode.
    pub fn of_miniport(owner: DriverId, functional: usize) -> Self {
        let device = Self::new(owner, None, String::new(), WDF_PNPPOWER_EVENT_CALLBACKS::default());
        Self { control: false, functional, ..device }
    }

    /// Returns true if it is a miniport's, which NDIS has the device of.
    pub const fn is_of_miniport(&self) -> bool {
        self.functional != 0
    }

    /// How its reads and writes pass their buffer, in the numbers of a control code's method: of a filter as those of what is below.
    pub fn method_of_transfers(&self, writes: bool) -> u32 {
        let mut device = self;
        while device.with.filter
            && let Some(lower) = device.lower.get()
        {
            device = lower;
        }
        method_of_transfers(&device.with, writes)
    }

    /// The highest device of its stack, to which requests go.
    pub fn top(self: &Arc<Self>) -> Arc<Self> {
        lock(&self.highest).upgrade().unwrap_or_else(|| self.clone())
    }

    /// The highest device of the stack that it belongs to.
    pub fn stack_top(self: &Arc<Self>) -> Arc<Self> {
        let mut lowest = self.clone();
        while let Some(lower) = lowest.lower.get().cloned() {
            lowest = lower;
        }
        lowest.top()
    }

    /// How many files are open on it.
    pub fn files(&self) -> u32 {
        lock(&self.files).open
    }

    /// Returns true if its name leads to it, which it does until the driver deletes it.
    pub fn has_its_name(&self) -> bool {
        !lock(&self.files).condemned
    }

    /// One more file.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if the device is deleted; `STATUS_ACCESS_DENIED` if it is for one file, and there is one.
    pub fn open_file(&self) -> Result<(), NTSTATUS> {
        let mut files = lock(&self.files);
        if files.condemned {
            return Err(STATUS_OBJECT_NAME_NOT_FOUND);
        }
        if self.with.exclusive && files.open > 0 {
            return Err(STATUS_ACCESS_DENIED);
        }
        files.open += 1;
        Ok(())
    }
}

impl Part for DeviceObject {
    const NAME: &'static str = "device";
}

impl Kind for DeviceObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        if !self.control && !self.is_of_miniport() {
            bug_check(Rule::BadHandle, format_args!("a driver may not delete a device of plug and play"));
        }
        object.require_passive_level();
    }

    fn delete(&self, state: &Arc<State>, object: &Object) {
        if self.control {
            state.delete_control_device(self);
        } else {
            state.delete_object(object.handle);
        }
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        state.stop_device(self);
    }

    /// With it go its device objects and the symbolic link, whatever that leads to by now.
    fn freed(&self, state: &State) {
        let below = self.lower.get().and_then(|lower| lock(&lower.wdm).own.clone());
        std::mem::take(&mut *lock(&self.wdm)).delete(state, below.as_deref());
        let link = lock(&self.link).take();
        if let Some(link) = link {
            state.unlink(&link);
        }
    }
}

/// Devices of plug and play that drivers are asked to take, with the handle of the framework's device, when it is made.
#[derive(Default)]
pub struct Nodes(pub LiteMap<u64, Option<usize>>);

impl state::Part for Mutex<Nodes> {}

/// Whether the parent that the attributes name is a device, or leads to one, as timers and work items need it.
pub fn check_parent(state: &State, attributes: PWDF_OBJECT_ATTRIBUTES) -> Result<(), NTSTATUS> {
    /// `STATUS_WDF_PARENT_NOT_SPECIFIED` of wdfstatus.h.
    const NO_PARENT: NTSTATUS = 0xC020_0212_u32.cast_signed();
    let mut next = Some(read_attributes(attributes).ParentObject.addr()).filter(|&parent| parent != 0);
    if next.is_none() {
        return Err(NO_PARENT);
    }
    while let Some(parent) = next {
        let object = state.object(parent);
        if object.part::<DeviceObject>().is_some() {
            return Ok(());
        }
        next = object.parent;
    }
    Err(STATUS_INVALID_DEVICE_REQUEST)
}

/// The device with a handle that a driver passes.
pub fn device<T>(state: &State, handle: *mut T) -> (Arc<Object>, Arc<DeviceObject>) {
    state.given_as(handle)
}

impl State {
    /// An adapter is gone: the framework's device of it must be, too.
    pub fn check_no_device(&self, functional: usize, name: &str) {
        if self.all_of::<DeviceObject>().iter().any(|device| device.functional == functional) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left its device of the framework"));
        }
    }

    /// The device of that name.
    pub fn device_named(&self, name: &str) -> Option<Arc<DeviceObject>> {
        self.all_of::<DeviceObject>().into_iter().find(|device| device.name == name && device.has_its_name())
    }

    /// The device behind a symbolic link: the one that has by now the name that the link leads to.
    pub fn device_linked(&self, link: &str) -> Option<Arc<DeviceObject>> {
        let name = self.link_target(link)?;
        self.device_named(&name)
    }

    /// The device with an enabled interface of that name, and the interface's reference string, with a backslash in front.
    pub fn device_of_interface(&self, link: &[u16]) -> Option<(Arc<DeviceObject>, String)> {
        self.all_of::<DeviceObject>().into_iter().find_map(|device| {
            let reference = {
                let interfaces = lock(&device.interfaces);
                let found = interfaces.iter().find(|interface| interface.enabled && interface.link == link);
                found.map(|interface| interface.reference.clone())
            };
            Some((device, reference?))
        })
    }

    /// A driver has made a device for a node of plug and play.
    pub fn device_created(&self, node: u64, handle: usize) {
        self.locked::<Nodes>().0.insert(node, Some(handle));
    }

    /// The device is being deleted: lets nobody open it, and waits for requests that are being served.
    fn stop_device(self: &Arc<Self>, device: &DeviceObject) {
        device.finished.store(false, Release);
        let queues = lock(&device.queues).clone();
        for queue in queues {
            let queue = self.object(queue);
            queue.kind.device_stops(self, &queue);
        }
        if device.requests.load(Acquire) > 0 {
            waiting::until(self, None, "the deletion of a device", || device.requests.load(Acquire) == 0);
        }
    }

    /// The driver deletes a control device. Its name goes at once, and with it every way to open it; the device itself, with its
    /// context, its queues and its symbolic link, when the last file on it is closed, which the driver serves until then. So the
    /// framework's published source has it (`FxDevice::DeleteObject`, `FxDevice::Destroy`).
    fn delete_control_device(self: &Arc<Self>, device: &DeviceObject) {
        let last = {
            let mut files = lock(&device.files);
            if files.condemned {
                bug_check(Rule::BadHandle, format_args!("a device is deleted twice"));
            }
            files.condemned = true;
            files.open == 0
        };
        if last {
            self.delete_object(device.handle.load(Acquire));
        }
    }

    /// A file of a device is closed.
    pub fn close_file(self: &Arc<Self>, device: &DeviceObject) {
        let last = {
            let mut files = lock(&device.files);
            files.open -= 1;
            files.open == 0 && files.condemned
        };
        if last {
            self.delete_object(device.handle.load(Acquire));
        }
        self.dispatcher.signal();
    }
}

pub extern "C" fn WdfDeviceCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    init: *mut PWDFDEVICE_INIT,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFDEVICE,
) -> NTSTATUS {
    function!("WdfDeviceCreate", |state| {
        // SAFETY: the driver's place, which lives until the call returns.
        let given = unsafe { init.read() };
        let Some((owner, node, name, callbacks, with, first, access, below)) = ({
            let inits = state.locked::<Inits>();
            let init = inits.0.get(&given.addr());
            init.map(|init| {
                let (name, access, below) = (init.name.clone(), init.access.clone(), init.below);
                (init.owner, init.node, name, init.callbacks, init.with, init.first.clone(), access, below)
            })
        }) else {
            bug_check(Rule::BadHandle, format_args!("{given:p} is no WDFDEVICE_INIT, or was one"));
        };
        // The device of that name may be deleted and have files open: then it is not found any more.
        if !name.is_empty() && state.device_named(&name).is_some() {
            return STATUS_OBJECT_NAME_COLLISION;
        }
        if has_parent(attributes) {
            return STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED;
        }
        let device = Arc::new(DeviceObject { with, first, access, ..DeviceObject::new(owner, node, name, callbacks) });
        if let Some(below) = below.and_then(|below| state.object(below).part()) {
            let _ = device.lower.set(below);
        }
        let parent = state.driver_object(owner);
        let Some(object) = state.create_object(device.clone(), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        device.handle.store(object.handle, Release);
        if let Some(node) = node {
            state.device_created(node, object.handle);
        }
        let init_of = state.locked::<Inits>().0.remove(&given.addr());
        lock(&device.wdm).physical = init_of.and_then(|init| init.physical);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe {
            init.write(ptr::null_mut());
            place.write(object.pointer());
        }
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfControlFinishInitializing(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) {
    function!("WdfControlFinishInitializing", |state| {
        let (_, device) = device(state, handle);
        if !device.control {
            bug_check(Rule::BadHandle, format_args!("WdfControlFinishInitializing of a device of plug and play"));
        }
        device.finished.store(true, Release);
    });
}

pub extern "C" fn WdfDeviceCreateSymbolicLink(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    name: PCUNICODE_STRING,
) -> NTSTATUS {
    function!("WdfDeviceCreateSymbolicLink", |state| {
        let (_, device) = device(state, handle);
        let name = text::text(name);
        // A device of plug and play has the name of its physical device.
        if device.control && device.name.is_empty() {
            return NtStatus::INVALID_DEVICE_STATE.0;
        }
        if lock(&device.link).is_some() {
            bug_check(
                Rule::NotSimulated,
                format_args!("a second symbolic link of a device, which takes the place of the first"),
            );
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let status = state.link(&name, device.owner, &device.name);
        if status == STATUS_SUCCESS {
            *lock(&device.link) = Some(name);
        }
        status
    })
}

pub extern "C" fn WdfDeviceCreateDeviceInterface(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    class: *const GUID,
    reference: PCUNICODE_STRING,
) -> NTSTATUS {
    function!("WdfDeviceCreateDeviceInterface", |state| {
        let (_, device) = device(state, handle);
        let Some(node) = device.node else {
            bug_check(Rule::BadArgument, format_args!("a device interface of a control device"));
        };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the driver's identifier, which lives until the call returns.
        let class = unsafe { class.read() };
        let reference = text::text(reference);
        if reference.contains(['/', '\\']) {
            bug_check(Rule::BadArgument, format_args!("a device interface with the reference string {reference}"));
        }
        let reference = behind(&reference);
        let link = link_of("DEVICE", node, &class, &reference);
        lock(&device.interfaces).push(DeviceInterface { class, link, reference, enabled: false });
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfDeviceSetFailed(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE, action: FailedAction) {
    function!("WdfDeviceSetFailed", |state| {
        let (_, device) = device(state, handle);
        if device.node.is_none() {
            bug_check(Rule::BadArgument, format_args!("a control device fails"));
        }
        if action != _WDF_DEVICE_FAILED_ACTION::WdfDeviceFailedNoRestart {
            bug_check(Rule::NotSimulated, format_args!("a device that fails and is to be started again"));
        }
        device.failed.store(true, Release);
    });
}
