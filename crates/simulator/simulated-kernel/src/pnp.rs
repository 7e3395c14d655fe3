//! Plug and play: drivers that are loaded, and their devices from arrival to removal.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
};

use wdk_bindings::{
    _WDF_POWER_DEVICE_STATE, DRIVER_EXTENSION, DRIVER_OBJECT, GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT,
    PDRIVER_UNLOAD, PFN_WDF_DRIVER_DEVICE_ADD, PFN_WDF_DRIVER_UNLOAD, STATUS_DEVICE_BUSY, WDFDEVICE,
};

use crate::{
    context::{self, DriverId},
    kernel::{Kernel, State, lock},
    pool,
    report::bug_check,
    rule::Rule,
    text, waiting,
    wdf::{DeviceObject, Kind, RequestObject},
    wdm::{SERVICES, add_device_of},
};

/// `DriverEntry`.
pub type Entry = unsafe extern "system" fn(PDRIVER_OBJECT, PCUNICODE_STRING) -> NTSTATUS;

/// A value in the registry.
#[derive(Clone, Debug)]
pub enum Value {
    /// `REG_DWORD`.
    Number(u32),
    /// `REG_QWORD`.
    Long(u64),
    /// `REG_SZ`: the code units with their terminator.
    Text(Vec<u16>),
    /// `REG_BINARY`.
    Binary(Vec<u8>),
    /// `REG_MULTI_SZ`: the code units of each string with its terminator, and one more terminator at the end.
    List(Vec<u16>),
    /// Of any other type: its number.
    Other(u32, Vec<u8>),
}

impl Value {
    /// A list of these strings.
    #[must_use]
    pub fn list(strings: &[&str]) -> Self {
        let units = strings.iter().flat_map(|string| string.encode_utf16().chain([0]));
        Self::List(units.chain([0]).collect())
    }

    /// A string.
    #[must_use]
    pub fn text(string: &str) -> Self {
        Self::Text(string.encode_utf16().chain([0]).collect())
    }

    /// The value of that type with these bytes. A number or string of another length than its type has is of no type that drivers are
    /// given as a number or string, and keeps its bytes.
    pub(crate) fn of(kind: u32, bytes: &[u8]) -> Self {
        let units = || bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let is_even = bytes.len().is_multiple_of(2);
        match (kind, <[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
            (1, ..) if is_even => Self::Text(units()),
            (3, ..) => Self::Binary(bytes.to_vec()),
            (4, Ok(number), _) => Self::Number(u32::from_le_bytes(number)),
            (7, ..) if is_even => Self::List(units()),
            (11, _, Ok(number)) => Self::Long(u64::from_le_bytes(number)),
            _ => Self::Other(kind, bytes.to_vec()),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_le_bytes().to_vec(),
            Self::Long(number) => number.to_le_bytes().to_vec(),
            Self::Binary(bytes) | Self::Other(_, bytes) => bytes.clone(),
            Self::Text(units) | Self::List(units) => units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        }
    }

    pub(crate) const fn kind(&self) -> u32 {
        match self {
            Self::Text(_) => 1,
            Self::Binary(_) => 3,
            Self::Number(_) => 4,
            Self::List(_) => 7,
            Self::Long(_) => 11,
            Self::Other(kind, _) => *kind,
        }
    }
}

/// A driver that is loaded.
pub struct Loaded {
    pub name: String,
    pub handle: Option<usize>,
    pub add: PFN_WDF_DRIVER_DEVICE_ADD,
    pub unload: PFN_WDF_DRIVER_UNLOAD,
    /// The framework leaves the dispatch table to NDIS.
    pub miniport_mode: bool,
    /// The address of its `DRIVER_OBJECT`.
    pub object: usize,
    /// The address of its globals, if it is an image that is bound to the framework.
    #[cfg(windows)]
    pub bound: Option<usize>,
    pub parameters: BTreeMap<String, Value>,
}

/// Everything that plug and play knows.
#[derive(Default)]
pub struct Pnp {
    pub drivers: BTreeMap<DriverId, Loaded>,
    nodes: BTreeMap<u64, Option<usize>>,
    /// Handles of requests that are complete.
    completed: BTreeSet<usize>,
}

// SAFETY: the pointers are functions, which any thread may call.
unsafe impl Send for Pnp {}

/// Returns true if two identifiers are the same.
pub fn same(one: &GUID, other: &GUID) -> bool {
    (one.Data1, one.Data2, one.Data3, one.Data4) == (other.Data1, other.Data2, other.Data3, other.Data4)
}

impl State {
    fn devices(&self) -> Vec<Arc<DeviceObject>> {
        self.objects_of(|object| match &object.kind {
            Kind::Device(device) => Some(device.clone()),
            _ => None,
        })
    }

    /// An adapter is gone: the framework's device of it must be, too.
    pub fn check_no_device(&self, functional: usize, name: &str) {
        if self.devices().iter().any(|device| device.functional == functional) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left its device of the framework"));
        }
    }

    pub fn device_named(&self, name: &str) -> Option<Arc<DeviceObject>> {
        self.devices().into_iter().find(|device| device.name == name && device.has_its_name())
    }

    /// The device behind a symbolic link: the one that has by now the name that the link leads to.
    pub fn device_linked(&self, link: &str) -> Option<Arc<DeviceObject>> {
        let name = self.link_target(link)?;
        self.device_named(&name)
    }

    /// The device with an enabled interface of that name.
    pub fn device_of_interface(&self, link: &[u16]) -> Option<Arc<DeviceObject>> {
        let has = |device: &Arc<DeviceObject>| {
            lock(&device.interfaces).iter().any(|interface| interface.enabled && interface.link == link)
        };
        self.devices().into_iter().find(has)
    }

    pub fn enabled_interfaces(&self, class: &GUID) -> Vec<Vec<u16>> {
        let links = |device: Arc<DeviceObject>| {
            let interfaces = lock(&device.interfaces);
            let enabled = interfaces.iter().filter(|interface| interface.enabled && same(&interface.class, class));
            enabled.map(|interface| interface.link.clone()).collect::<Vec<_>>()
        };
        self.devices().into_iter().flat_map(links).collect()
    }

    pub fn device_created(&self, node: u64, handle: usize) {
        lock(&self.pnp).nodes.insert(node, Some(handle));
    }

    pub fn was_request(&self, handle: usize) -> bool {
        lock(&self.pnp).completed.contains(&handle)
    }

    pub fn forget_request(&self, handle: usize) {
        lock(&self.pnp).completed.insert(handle);
    }

    pub fn register_request(self: &Arc<Self>, device: &DeviceObject, request: &Arc<RequestObject>) {
        let parent = Some(device.handle.load(Acquire));
        let attributes = device.with.requests.unwrap_or_default();
        // The framework has requests in reserve: this does not fail.
        let made = loop {
            let kind = Kind::Request(request.clone());
            if let Some(made) = self.create_object_of(device.owner, kind, &attributes, parent) {
                break made;
            }
        };
        request.handle.store(made.handle, Release);
    }

    /// How long, in microseconds, a request may take.
    pub fn request_limit(&self) -> u64 {
        u64::try_from(self.hang_limit.as_micros()).unwrap_or(u64::MAX)
    }

    /// Enables or disables the interfaces of a device, and tells everybody.
    fn enable_interfaces(self: &Arc<Self>, device: &DeviceObject, enable: bool) {
        let changed: Vec<(GUID, Vec<u16>)> = {
            let mut interfaces = lock(&device.interfaces);
            let changing = interfaces.iter_mut().filter(|interface| interface.enabled != enable);
            changing
                .map(|interface| {
                    interface.enabled = enable;
                    (interface.class, interface.link.clone())
                })
                .collect()
        };
        for (class, link) in changed {
            self.notify(&class, &link, enable);
        }
    }

    pub fn pnp_is_empty(&self) {
        let loaded: Vec<String> = lock(&self.pnp).drivers.values().map(|driver| driver.name.clone()).collect();
        assert!(loaded.is_empty(), "the kernel ends while drivers are loaded: {loaded:?}");
    }
}

/// Calls one of a device's callbacks that has no arguments besides the device.
macro_rules! callback {
    ($device:expr, $name:ident $(, $argument:expr)*) => {
        $device.callbacks.$name.map(|callback| {
            let handle: WDFDEVICE = std::ptr::without_provenance_mut($device.handle.load(Acquire));
            context::call($device.owner, stringify!($name), || {
                // SAFETY: the driver's own callback, with a live handle, at `PASSIVE_LEVEL`.
                unsafe { callback(handle $(, $argument)*) }
            })
        })
    };
}

/// A driver that is loaded. It has to be unloaded by [`Driver::unload`].
pub struct Driver {
    state: Arc<State>,
    id: DriverId,
    name: String,
}

/// What a driver has asked for when it was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Network adapters: it is a miniport driver of NDIS.
    Adapters,
    /// Devices of plug and play.
    Devices,
    /// Devices of plug and play, without a framework.
    PlainDevices,
    /// Neither.
    Nothing,
}

/// Who a driver is, for a test that calls it.
#[derive(Clone, Copy, Debug)]
pub struct Identity(DriverId);

impl Identity {
    /// Runs `work` as code of the driver: its allocations come from the pool, and are the driver's.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        context::call(self.0, "the test, as the driver", work)
    }
}

/// A device of plug and play, of a driver that is loaded.
#[expect(clippy::struct_field_names, reason = "the framework's device of a device")]
pub struct Device {
    state: Arc<State>,
    device: Arc<DeviceObject>,
    node: u64,
}

impl Kernel {
    /// Loads a driver: calls its `DriverEntry`.
    ///
    /// # Errors
    ///
    /// What the driver says. Then nothing of it may be left.
    pub fn load(&self, name: &str, entry: Entry) -> Result<Driver, NTSTATUS> {
        self.load_with(name, entry, &[])
    }

    /// Loads a driver with values in its `Parameters` key.
    ///
    /// # Errors
    ///
    /// As [`Kernel::load`].
    pub fn load_with(&self, name: &str, entry: Entry, parameters: &[(&str, Value)]) -> Result<Driver, NTSTATUS> {
        self.load_from(name, parameters, |_| entry)
    }

    /// Loads a driver that is brought in when it is known who it is.
    pub(crate) fn load_from(
        &self,
        name: &str,
        parameters: &[(&str, Value)],
        bring: impl FnOnce(DriverId) -> Entry,
    ) -> Result<Driver, NTSTATUS> {
        let state = &self.state;
        let id = DriverId(state.drivers.fetch_add(1, AcqRel) + 1);
        let object: &'static mut DRIVER_OBJECT = Box::leak(Box::new(DRIVER_OBJECT::default()));
        let extension: &'static mut DRIVER_EXTENSION = Box::leak(Box::new(DRIVER_EXTENSION::default()));
        let object: PDRIVER_OBJECT = object;
        extension.DriverObject = object;
        // SAFETY: the object was just made.
        unsafe { (*object).DriverExtension = extension };
        let loaded = Loaded {
            name: name.to_owned(),
            handle: None,
            add: None,
            unload: None,
            miniport_mode: false,
            object: object.expose_provenance(),
            #[cfg(windows)]
            bound: None,
            parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        };
        lock(&state.pnp).drivers.insert(id, loaded);
        let entry = bring(id);
        let path = format!("{SERVICES}{name}");
        let path: Vec<u16> = path.encode_utf16().collect();
        let path = text::unicode(&path);
        let status = context::call(id, "DriverEntry", || {
            // SAFETY: the driver's own entry, with a driver object and the path of its service key.
            unsafe { entry(object, &raw const path) }
        });
        let driver = Driver { state: state.clone(), id, name: name.to_owned() };
        if status < 0 {
            // Without a call of EvtDriverUnload: only the framework's own object goes.
            driver.gone();
            return Err(status);
        }
        state.devices_are_initialised(id);
        Ok(driver)
    }
}

impl Driver {
    /// What the driver has asked for.
    #[must_use]
    pub fn takes(&self) -> Takes {
        let (state, id) = (&self.state, self.id);
        if state.miniport(id).is_some() {
            Takes::Adapters
        } else if lock(&state.pnp).drivers[&id].add.is_some() {
            Takes::Devices
        } else if add_device_of(lock(&state.pnp).drivers[&id].object).is_some() {
            Takes::PlainDevices
        } else {
            Takes::Nothing
        }
    }

    /// Plug and play finds a device for the driver, and starts it.
    ///
    /// # Errors
    ///
    /// What the driver says. Then nothing of the device may be left.
    pub fn add_device(&self) -> Result<Device, NTSTATUS> {
        let state = &self.state;
        let (handle, add) = {
            let pnp = lock(&state.pnp);
            let loaded = &pnp.drivers[&self.id];
            (loaded.handle.unwrap_or(0), loaded.add)
        };
        let Some(add) = add else { bug_check(Rule::BadArgument, format_args!("a driver without EvtDriverDeviceAdd")) };
        let node = state.next();
        lock(&state.pnp).nodes.insert(node, None);
        let init = state.create_init(self.id, Some(node));
        let status = context::call(self.id, "EvtDriverDeviceAdd", || {
            // SAFETY: the driver's own callback, with the framework's structure.
            unsafe { add(std::ptr::without_provenance_mut(handle), init) }
        });
        lock(&state.framework).inits.remove(&init.addr());
        let made = lock(&state.pnp).nodes.get(&node).copied().flatten();
        let Some(made) = made else {
            lock(&state.pnp).nodes.remove(&node);
            return Err(if status < 0 { status } else { STATUS_DEVICE_BUSY });
        };
        let Kind::Device(device) = state.object(made).kind.clone() else { unreachable!("it was made as a device") };
        let device = Device { state: state.clone(), device, node };
        if status < 0 {
            device.delete();
            return Err(status);
        }
        if let Err(status) = device.start() {
            device.power_down();
            device.clean_up();
            device.finish();
            return Err(status);
        }
        Ok(device)
    }

    /// Unloads the driver, and checks that nothing of it is left.
    ///
    /// # Panics
    ///
    /// If the driver has a device still, which is the test's fault.
    pub fn unload(self) {
        let (state, id) = (&self.state, self.id);
        let devices = state
            .devices()
            .iter()
            .filter(|device| device.owner == id && !device.control && !device.is_of_miniport())
            .count();
        assert_eq!(devices, 0, "driver {} is unloaded while it has devices", self.name);
        assert!(!state.has_adapters(id), "driver {} is unloaded while it has adapters", self.name);
        let control = state.devices().iter().any(|device| device.owner == id && device.control);
        if control {
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {} keeps itself loaded by a control device", self.name),
            );
        }
        let (handle, unload) = {
            let pnp = lock(&state.pnp);
            let loaded = &pnp.drivers[&id];
            (loaded.handle.unwrap_or(0), loaded.unload)
        };
        let object = lock(&state.pnp).drivers[&id].object;
        state.wait_for_work_items(id);
        if state.unload_miniport(id, object) {
            // NDIS has taken the place of the driver's own routine.
        } else if let Some(unload) = unload_of(object) {
            context::call(id, "DriverUnload", || {
                // SAFETY: the driver's own routine, with its own object.
                unsafe { unload(std::ptr::with_exposed_provenance_mut(object)) };
            });
        } else if let Some(unload) = unload {
            context::call(id, "EvtDriverUnload", || {
                // SAFETY: the driver's own callback, with its live object.
                unsafe { unload(std::ptr::without_provenance_mut(handle)) };
            });
        }
        self.gone();
    }

    /// Deletes the framework's object, and checks that nothing is left.
    fn gone(self) {
        let (state, id, name) = (&self.state, self.id, self.name.as_str());
        let (handle, miniport_mode) = {
            let pnp = lock(&state.pnp);
            pnp.drivers.get(&id).map_or((None, false), |driver| (driver.handle, driver.miniport_mode))
        };
        if let Some(handle) = handle {
            if miniport_mode {
                bug_check(Rule::ReferenceLeak, format_args!("driver {name} did not call WdfDriverMiniportUnload"));
            }
            state.delete_object(handle);
        }
        // A driver without plug and play is asked to unload although a work item runs; its image stays until that has returned.
        state.wait_for_work_items(id);
        #[cfg(windows)]
        state.check_bound(id, name);
        state.check_ndis(id, name);
        state.check_io(id, name);
        state.check_objects(id, name);
        state.check_notifications(id, name);
        state.check_callbacks(id, name);
        state.check_registrations(id, name);
        state.check_keys(id, name);
        state.check_ex_timers(id, name);
        state.check_rundowns(id, name);
        state.check_threads(id, name);
        state.check_netio(id, name);
        state.check_wsk(id, name);
        let running = lock(&state.wdm.running).get(&id).copied().unwrap_or(0);
        if running > 0 {
            bug_check(Rule::DpcAtUnload, format_args!("a DPC of driver {name} runs at its unload"));
        }
        state.forget_driver(id, name);
        state.check_mdls(id, name);
        let heir = {
            let mut pnp = lock(&state.pnp);
            pnp.drivers.remove(&id);
            pnp.drivers.keys().next().copied()
        };
        pool::check_leaks(id, name, heir);
        pool::check_poison();
        #[cfg(windows)]
        crate::image::unload(id);
    }

    pub(crate) const fn id(&self) -> DriverId {
        self.id
    }

    pub(crate) const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The number of blocks and bytes of the pool that the driver has now.
    #[must_use]
    pub fn pool_usage(&self) -> (usize, usize) {
        pool::usage(self.id)
    }

    /// Who the driver is.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        Identity(self.id)
    }

    /// Runs `work` as code of the driver: its allocations come from the pool, and are the driver's.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.identity().run(work)
    }
}

/// What a driver of plain WDM has put into its object.
fn unload_of(object: usize) -> PDRIVER_UNLOAD {
    let object: PDRIVER_OBJECT = std::ptr::with_exposed_provenance_mut(object);
    // SAFETY: driver objects are never freed.
    unsafe { (*object).DriverUnload }
}

impl Device {
    fn start(&self) -> Result<(), NTSTATUS> {
        let check = |status: Option<NTSTATUS>| status.filter(|&status| status < 0).map_or(Ok(()), Err);
        check(callback!(self.device, EvtDevicePrepareHardware, std::ptr::null_mut(), std::ptr::null_mut()))?;
        check(callback!(self.device, EvtDeviceD0Entry, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final))?;
        check(callback!(self.device, EvtDeviceSelfManagedIoInit))?;
        self.device.finished.store(true, Release);
        self.state.enable_interfaces(&self.device, true);
        Ok(())
    }

    fn power_down(&self) {
        callback!(self.device, EvtDeviceSelfManagedIoSuspend);
        callback!(self.device, EvtDeviceD0Exit, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final);
        callback!(self.device, EvtDeviceReleaseHardware, std::ptr::null_mut());
    }

    /// What the framework does both when a device is removed and when it has been removed by surprise.
    fn clean_up(&self) {
        self.state.enable_interfaces(&self.device, false);
        callback!(self.device, EvtDeviceSelfManagedIoFlush);
    }

    /// The end of a removal.
    fn finish(self) {
        callback!(self.device, EvtDeviceSelfManagedIoCleanup);
        self.delete();
    }

    fn delete(self) {
        lock(&self.state.pnp).nodes.remove(&self.node);
        self.state.delete_object(self.device.handle.load(Acquire));
    }

    /// Removes the device, as the device manager does: asks, and gives it back if somebody says no.
    ///
    /// # Errors
    ///
    /// The device again, and who said no: the status of a consumer or of the driver, or `STATUS_DEVICE_BUSY` if somebody has
    /// it open.
    pub fn remove(self) -> Result<(), (Self, NTSTATUS)> {
        let asked = self.state.ask_targets(&self.device);
        let open = if self.device.files() > 0 { STATUS_DEVICE_BUSY } else { 0 };
        let mut status = if asked < 0 { asked } else { open };
        if status == 0 {
            status = callback!(self.device, EvtDeviceQueryRemove).unwrap_or(0);
        }
        if status < 0 {
            self.state.tell_targets(&self.device, false);
            return Err((self, status));
        }
        // The system tells those who have let go before the removal itself.
        self.state.tell_targets(&self.device, true);
        self.power_down();
        self.clean_up();
        self.finish();
        Ok(())
    }

    /// Returns true if the driver has said that the device failed for good.
    ///
    /// Plug and play removes such a device by surprise, which is left to the test.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.device.failed.load(Acquire)
    }

    /// The device is gone, and nobody was asked.
    pub fn surprise_remove(self) {
        callback!(self.device, EvtDeviceSurpriseRemoval);
        self.power_down();
        self.clean_up();
        // The system tells consumers when the drivers have heard of it.
        self.state.tell_targets(&self.device, true);
        let files = || self.device.files() == 0;
        waiting::until(&self.state, None, "a removal, for consumers to close the device", files);
        self.finish();
    }

    /// Stops the device and starts it again, as a change of resources does.
    ///
    /// # Errors
    ///
    /// What the driver says: to the question, or at the start.
    pub fn stop_and_start(&self) -> Result<(), NTSTATUS> {
        let check = |status: Option<NTSTATUS>| status.filter(|&status| status < 0).map_or(Ok(()), Err);
        check(callback!(self.device, EvtDeviceQueryStop))?;
        self.power_down();
        check(callback!(self.device, EvtDevicePrepareHardware, std::ptr::null_mut(), std::ptr::null_mut()))?;
        check(callback!(self.device, EvtDeviceD0Entry, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final))?;
        check(callback!(self.device, EvtDeviceSelfManagedIoRestart))
    }

    /// The system sleeps, and the device with it.
    pub fn sleep(&self) {
        callback!(self.device, EvtDeviceSelfManagedIoSuspend);
        callback!(self.device, EvtDeviceD0Exit, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3);
    }

    /// The system is awake again.
    pub fn wake(&self) {
        callback!(self.device, EvtDeviceD0Entry, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3);
        callback!(self.device, EvtDeviceSelfManagedIoRestart);
    }

    /// Queries for an interface, as a consumer's driver does, into `place`. A success counts a user.
    ///
    /// # Errors
    ///
    /// What the framework says.
    ///
    /// # Safety
    ///
    /// `place` is room for `size` bytes.
    pub unsafe fn query_interface(&self, kind: &GUID, place: *mut u8, size: u16, version: u16) -> Result<(), NTSTATUS> {
        let status = self.state.query_interface(&self.device, kind, place.cast(), size, version);
        if status < 0 { Err(status) } else { Ok(()) }
    }

    /// The symbolic links of its device interfaces that are enabled.
    #[must_use]
    pub fn links(&self) -> Vec<String> {
        let interfaces = lock(&self.device.interfaces);
        let enabled = interfaces.iter().filter(|interface| interface.enabled);
        enabled.map(|interface| String::from_utf16_lossy(&interface.link)).collect()
    }

    /// How many files are open on the device.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.device.files()
    }
}
