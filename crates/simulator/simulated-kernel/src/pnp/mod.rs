//! Plug and play: drivers that are loaded, and their devices from arrival to removal.

#[cfg(windows)]
mod image;

use std::sync::{
    Arc, Weak,
    atomic::Ordering::{Acquire, Release},
};

use wdk_bindings::{
    _WDF_POWER_DEVICE_STATE, DRIVER_EXTENSION, DRIVER_OBJECT, GUID, NTSTATUS, PDRIVER_OBJECT, PDRIVER_UNLOAD,
    STATUS_DEVICE_BUSY, WDF_POWER_DEVICE_STATE, WDFDEVICE,
};

use crate::{
    context::{self, DriverId},
    drivers::{Brought, Driver, Drivers, Entry, Loaded},
    kernel::Kernel,
    pool,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    text,
    value::Value,
    waiting,
    wdf::{
        device::{DeviceObject, Nodes},
        device_init::Inits,
        query_interface::Query,
        resources::{Hardware, List, Resources},
    },
    wdm::{io::plug::add_device_of, io_space::Range, registry::SERVICES},
};

impl State {
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
        self.interfaces_change(&changed, enable);
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

/// A device of plug and play, of a driver that is loaded.
#[expect(clippy::struct_field_names, reason = "the framework's device of a device")]
pub struct Device {
    state: Arc<State>,
    device: Arc<DeviceObject>,
    node: u64,
    /// The filters above it, the lowest first.
    filters: Vec<Self>,
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
        self.load_from(name, parameters, |_| Brought { entry, image: 0..0 })
    }

    /// Loads a driver that is brought in when it is known who it is.
    pub(crate) fn load_from(
        &self,
        name: &str,
        parameters: &[(&str, Value)],
        bring: impl FnOnce(DriverId) -> Brought,
    ) -> Result<Driver, NTSTATUS> {
        let state = &self.state;
        let id = state.part::<Drivers>().new_id();
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
            non_pnp: false,
            object: object.expose_provenance(),
            #[cfg(windows)]
            bound: None,
            parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        };
        state.drivers().insert(id, loaded);
        let Brought { entry, image } = bring(id);
        // SAFETY: the object was just made, and nobody else knows of it.
        let fields = unsafe { &mut *object };
        fields.DriverStart = std::ptr::with_exposed_provenance_mut(image.start);
        fields.DriverSize = u32::try_from(image.len()).unwrap_or(u32::MAX);
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
        } else if state.drivers()[&id].add.is_some() {
            Takes::Devices
        } else if add_device_of(state.drivers()[&id].object).is_some() {
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
        self.add_device_under(&[])
    }

    /// As [`Driver::add_device`], with drivers whose devices are attached above it, the lowest first: upper filters. Each is asked to take
    /// the device before any is started; one that makes no device leaves it alone.
    ///
    /// # Errors
    ///
    /// What one of the drivers says.
    pub fn add_device_under(&self, filters: &[&Self]) -> Result<Device, NTSTATUS> {
        self.add_device_with(&Resources::default(), filters)
    }

    /// As [`Driver::add_device_under`], with what the bus gives the device.
    ///
    /// # Errors
    ///
    /// What one of the drivers says.
    pub fn add_device_with(&self, resources: &Resources, filters: &[&Self]) -> Result<Device, NTSTATUS> {
        let mut device = self.make_device(None)?.ok_or(STATUS_DEVICE_BUSY)?;
        let mut top = device.device.clone();
        for filter in filters {
            match filter.make_device(Some(top.handle.load(Acquire))) {
                Ok(Some(made)) => {
                    top = made.device.clone();
                    device.filters.push(made);
                }
                Ok(None) => {}
                Err(status) => {
                    device.delete();
                    return Err(status);
                }
            }
        }
        if !device.filters.is_empty() {
            *lock(&device.device.highest) = Arc::downgrade(&top);
        }
        let hardware = Arc::new(Hardware::new(&self.state, resources));
        for one in device.upwards() {
            let _ = one.hardware.set(hardware.clone());
        }
        if let Err(status) = device.start() {
            device.power_down();
            device.clean_up();
            device.finish();
            return Err(status);
        }
        Ok(device)
    }

    /// Asks the driver to take a device, above that of another one or as the first. `None` if it makes none.
    fn make_device(&self, below: Option<usize>) -> Result<Option<Device>, NTSTATUS> {
        let state = &self.state;
        let (handle, add) = {
            let drivers = state.drivers();
            let loaded = &drivers[&self.id];
            (loaded.handle.unwrap_or(0), loaded.add)
        };
        let Some(add) = add else { bug_check(Rule::BadArgument, format_args!("a driver without EvtDriverDeviceAdd")) };
        let node = state.next();
        state.locked::<Nodes>().0.insert(node, None);
        let init = state.create_init(self.id, node, below);
        let status = context::call(self.id, "EvtDriverDeviceAdd", || {
            // SAFETY: the driver's own callback, with the framework's structure.
            unsafe { add(std::ptr::without_provenance_mut(handle), init) }
        });
        let unused = state.locked::<Inits>().0.remove(&init.addr());
        if let Some(physical) = unused.and_then(|init| init.physical) {
            state.delete_physical_device(&physical);
        }
        let made = state.locked::<Nodes>().0.get(&node).copied().flatten();
        let Some(made) = made else {
            state.locked::<Nodes>().0.remove(&node);
            return if status < 0 { Err(status) } else { Ok(None) };
        };
        let Some(device) = state.object(made).part() else { unreachable!("it was made as a device") };
        let device = Device { state: state.clone(), device, node, filters: Vec::new() };
        if status < 0 {
            device.delete();
            return Err(status);
        }
        Ok(Some(device))
    }

    /// Unloads the driver, and checks that nothing of it is left.
    ///
    /// # Panics
    ///
    /// If the driver has a device still, which is the test's fault.
    pub fn unload(self) {
        let (state, id) = (&self.state, self.id);
        let devices = state
            .all_of::<DeviceObject>()
            .iter()
            .filter(|device| device.owner == id && !device.control && !device.is_of_miniport())
            .count();
        assert_eq!(devices, 0, "driver {} is unloaded while it has devices", self.name);
        assert!(!state.has_adapters(id), "driver {} is unloaded while it has adapters", self.name);
        // Plug and play unloads a driver with its last device. Another one the system unloads when nobody has its devices open.
        let by_devices = !state.drivers()[&id].non_pnp;
        let control = state.all_of::<DeviceObject>().iter().any(|device| device.owner == id && device.control);
        if control && by_devices {
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {} keeps itself loaded by a control device", self.name),
            );
        }
        let (handle, unload) = {
            let drivers = state.drivers();
            let loaded = &drivers[&id];
            (loaded.handle.unwrap_or(0), loaded.unload)
        };
        let object = state.drivers()[&id].object;
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
            let drivers = state.drivers();
            drivers.get(&id).map_or((None, false), |driver| (driver.handle, driver.miniport_mode))
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
        state.check_inits(id, name);
        state.check_notifications(id, name);
        state.check_callbacks(id, name);
        state.check_system_callbacks(id, name);
        state.check_resolution(id, name);
        state.check_extended_state(id, name);
        state.check_providers(id, name);
        state.check_keys(id, name);
        state.check_files(id, name);
        state.check_ex_timers(id, name);
        state.check_bug_check_callbacks(id, name);
        state.check_rundowns(id, name);
        state.check_threads(id, name);
        state.check_references(id, name);
        state.check_events(id, name);
        state.check_power_settings(id, name);
        state.check_processor_changes(id, name);
        state.check_netio(id, name);
        state.check_wsk(id, name);
        state.check_running_dpcs(id, name);
        state.forget_driver(id, name);
        state.check_mdls(id, name);
        let object = state.drivers().get(&id).map_or(0, |driver| driver.object);
        state.free_extensions(object);
        let heir = {
            let mut drivers = state.drivers();
            drivers.remove(&id);
            drivers.keys().next().copied()
        };
        pool::check_leaks(id, name, heir);
        pool::check_poison();
        #[cfg(windows)]
        crate::sites::images::unload(id);
    }
}

/// What a driver of plain WDM has put into its object.
fn unload_of(object: usize) -> PDRIVER_UNLOAD {
    let object: PDRIVER_OBJECT = std::ptr::with_exposed_provenance_mut(object);
    // SAFETY: driver objects are never freed.
    unsafe { (*object).DriverUnload }
}

fn check(status: Option<NTSTATUS>) -> Result<(), NTSTATUS> {
    status.filter(|&status| status < 0).map_or(Ok(()), Err)
}

impl Device {
    /// Its devices, the lowest first.
    fn upwards(&self) -> impl Iterator<Item = &Arc<DeviceObject>> {
        std::iter::once(&self.device).chain(self.filters.iter().map(|filter| &filter.device))
    }

    /// Its devices, the highest first.
    fn downwards(&self) -> impl Iterator<Item = &Arc<DeviceObject>> {
        self.filters.iter().rev().map(|filter| &filter.device).chain(std::iter::once(&self.device))
    }

    /// Has the driver take what the bus has given the device.
    fn prepare(&self, device: &DeviceObject) -> Result<(), NTSTATUS> {
        let (raw, translated) = (device.resources(List::Raw), device.resources(List::Translated));
        self.state.assign_interrupts(device);
        device.prepares(true);
        let outcome = check(callback!(device, EvtDevicePrepareHardware, raw, translated));
        device.prepares(false);
        outcome
    }

    /// The device has its power, comes to its interrupts, and its queues hand out requests.
    fn enter_d0(&self, device: &DeviceObject, before: WDF_POWER_DEVICE_STATE) -> Result<(), NTSTATUS> {
        check(callback!(device, EvtDeviceD0Entry, before))?;
        check(Some(self.state.connect_interrupts(device)))?;
        check(callback!(device, EvtDeviceD0EntryPostInterruptsEnabled, before))?;
        self.state.release_queues(device);
        Ok(())
    }

    /// The device is about to lose its power: requests are held, and it does not interrupt any more.
    fn leave_d0(&self, device: &DeviceObject, next: WDF_POWER_DEVICE_STATE) {
        self.state.hold_queues(device);
        callback!(device, EvtDeviceD0ExitPreInterruptsDisabled, next);
        self.state.disconnect_interrupts(device);
        callback!(device, EvtDeviceD0Exit, next);
    }

    fn start(&self) -> Result<(), NTSTATUS> {
        for device in self.upwards() {
            self.prepare(device)?;
            self.enter_d0(device, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final)?;
            check(callback!(device, EvtDeviceSelfManagedIoInit))?;
        }
        for device in self.upwards() {
            device.finished.store(true, Release);
        }
        for device in self.upwards() {
            self.state.enable_interfaces(device, true);
        }
        Ok(())
    }

    /// The device loses its power for good, and its hardware. One that sleeps has been told of the first.
    fn power_down(&self) {
        for device in self.downwards() {
            let sleeps = device.finished.load(Acquire) && !device.powered.load(Acquire);
            if !sleeps {
                callback!(device, EvtDeviceSelfManagedIoSuspend);
                self.leave_d0(device, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final);
            }
            callback!(device, EvtDeviceReleaseHardware, device.resources(List::Translated));
            device.release_resources();
            self.state.release_interrupts(device);
        }
        self.state.check_unmapped(self.memory_ranges());
    }

    /// What the framework does both when a device is removed and when it has been removed by surprise.
    fn clean_up(&self) {
        for device in self.downwards() {
            self.state.enable_interfaces(device, false);
            self.state.purge_queues(device, true);
            callback!(device, EvtDeviceSelfManagedIoFlush);
        }
    }

    /// The end of a removal.
    fn finish(self) {
        for device in self.downwards() {
            self.state.purge_queues(device, false);
            callback!(device, EvtDeviceSelfManagedIoCleanup);
        }
        self.delete();
    }

    /// What its bus has given it of memory.
    fn memory_ranges(&self) -> &[Range] {
        self.device.hardware.get().map_or(&[], |hardware| &hardware.memory)
    }

    fn delete(self) {
        self.state.take_memory(self.memory_ranges());
        let Self { state, device, node, filters } = self;
        *lock(&device.highest) = Weak::new();
        for filter in filters.into_iter().rev() {
            filter.delete();
        }
        state.locked::<Nodes>().0.remove(&node);
        state.delete_object(device.handle.load(Acquire));
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
        for device in self.downwards() {
            if status == 0 {
                status = callback!(device, EvtDeviceQueryRemove).unwrap_or(0);
            }
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

    /// Returns true if the driver, or that of a filter, has said that the device failed for good.
    ///
    /// Plug and play removes such a device by surprise, which is left to the test.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.upwards().any(|device| device.failed.load(Acquire))
    }

    /// The device is gone, and nobody was asked.
    pub fn surprise_remove(self) {
        for device in self.downwards() {
            callback!(device, EvtDeviceSurpriseRemoval);
        }
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
        for device in self.downwards() {
            check(callback!(device, EvtDeviceQueryStop))?;
        }
        self.power_down();
        for device in self.upwards() {
            self.prepare(device)?;
            self.enter_d0(device, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final)?;
            check(callback!(device, EvtDeviceSelfManagedIoRestart))?;
        }
        Ok(())
    }

    /// The system sleeps, and the device with it.
    pub fn sleep(&self) {
        for device in self.downwards() {
            callback!(device, EvtDeviceSelfManagedIoSuspend);
            self.leave_d0(device, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3);
        }
    }

    /// The system is awake again.
    pub fn wake(&self) {
        for device in self.upwards() {
            if self.enter_d0(device, _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3).is_ok() {
                callback!(device, EvtDeviceSelfManagedIoRestart);
            }
        }
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
        let query = Query { kind: *kind, place: place.cast(), size, version, specific: std::ptr::null_mut() };
        let status = self.state.query_interface(&self.device, &query);
        if status < 0 { Err(status) } else { Ok(()) }
    }

    /// The symbolic links of its device interfaces that are enabled.
    #[must_use]
    pub fn links(&self) -> Vec<String> {
        let interfaces = lock(&self.device.interfaces);
        let enabled = interfaces.iter().filter(|interface| interface.enabled);
        enabled.map(|interface| String::from_utf16_lossy(&interface.link)).collect()
    }

    /// The device sends one of its messages, an interrupt. What its driver says, which is true if it was its own; `None` if nobody
    /// listens.
    #[must_use]
    pub fn interrupt(&self, message: u32) -> Option<bool> {
        self.upwards().find_map(|device| self.state.fire_interrupt(device, message))
    }

    /// What a range of its memory holds, as the device sees it.
    #[must_use]
    pub fn memory(&self, range: usize) -> Vec<u8> {
        self.memory_ranges().get(range).map_or_else(Vec::new, |&range| self.state.device_memory(range))
    }

    /// The device changes a range of its memory, from an offset on.
    pub fn set_memory(&self, range: usize, offset: usize, bytes: &[u8]) {
        if let Some(&range) = self.memory_ranges().get(range) {
            self.state.set_device_memory(range, offset, bytes);
        }
    }

    /// How many files are open on the device.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.device.files()
    }
}
