//! Device objects and their names.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, CSHORT, DEVICE_OBJECT, DO_DEVICE_INITIALIZING, DRIVER_OBJECT, IRP_MJ_MAXIMUM_FUNCTION, NTSTATUS,
    PDEVICE_OBJECT, PDRIVER_DISPATCH, PDRIVER_OBJECT, PUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG, USHORT,
};

use super::{block, device_queue};
use crate::{
    context::{self, DriverId, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
};

/// The tag of device objects.
pub const TAG: u32 = u32::from_ne_bytes(*b"Devi");
/// `IO_TYPE_DEVICE`.
const TYPE: CSHORT = 3;

/// How far behind the beginning of a device of NDIS its driver's extension lies.
pub const NDIS_EXTENSION: usize = size_of::<DEVICE_OBJECT>().next_multiple_of(16);

/// The routines of a driver or of a device, by the kind of request.
pub type Functions = [PDRIVER_DISPATCH; IRP_MJ_MAXIMUM_FUNCTION as usize + 1];

/// A device object.
pub struct Device {
    pub owner: DriverId,
    pub address: usize,
    name: String,
    /// Routines of its own, and not the driver's: a device of NDIS.
    functions: Option<Functions>,
    /// It is deleted when nobody uses it any more.
    condemned: AtomicBool,
    /// Files that are open, and requests that are not complete.
    pub users: AtomicU32,
}

impl Device {
    const fn new(owner: DriverId, address: usize, name: String, functions: Option<Functions>) -> Self {
        let (condemned, users) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { owner, address, name, functions, condemned, users }
    }

    /// The structure as the driver has it.
    pub const fn pointer(&self) -> PDEVICE_OBJECT {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// The driver's routine for a kind of request.
    pub fn dispatch(&self, major: u32) -> PDRIVER_DISPATCH {
        if let Some(functions) = &self.functions {
            return functions[major as usize];
        }
        // SAFETY: the device object lives as long as it is in the table that this one came from. Driver objects outlive their
        // devices.
        unsafe { (*(*self.pointer()).DriverObject).MajorFunction[major as usize] }
    }

    /// How many stack locations a request for it has.
    pub fn locations(&self) -> u8 {
        // SAFETY: the device object lives as long as it is in the table that this one came from.
        let size = unsafe { (*self.pointer()).StackSize };
        u8::try_from(size).unwrap_or(1)
    }

    /// How reads and writes pass their buffer, in the numbers of a control code's method: copied, by an MDL, or as an address.
    pub fn method(&self) -> ULONG {
        /// `DO_BUFFERED_IO` and `DO_DIRECT_IO`.
        const BUFFERED: ULONG = 4;
        const DIRECT: ULONG = 16;
        match self.flags() {
            flags if flags & BUFFERED != 0 => 0,
            flags if flags & DIRECT != 0 => 1,
            _ => 3,
        }
    }

    pub fn flags(&self) -> ULONG {
        // SAFETY: the device object lives as long as it is in the table that this one came from.
        unsafe { (*self.pointer()).Flags }
    }
}

/// Device objects, their names, and references to them.
#[derive(Default)]
pub struct Devices {
    /// By the address of the device object.
    all: LiteMap<usize, Arc<Device>>,
    /// Names for programs: who made each, and of which device.
    links: LiteMap<String, (DriverId, String)>,
    /// References of drivers to device and driver objects, and whose they are.
    references: LiteMap<usize, (DriverId, i64)>,
}

impl Part for Mutex<Devices> {}

impl Devices {
    /// Returns true if a device object lies there.
    pub fn has(&self, address: usize) -> bool {
        self.all.contains_key(&address)
    }

    /// How many files and requests the devices of a driver have.
    pub fn users_of(&self, owner: DriverId) -> u32 {
        let own = self.all.values().filter(|device| device.owner == owner);
        own.map(|device| device.users.load(Acquire)).sum()
    }

    /// A device object is deleted. `None` if it is none.
    pub fn remove(&mut self, address: usize) -> Option<Arc<Device>> {
        self.all.remove(&address)
    }

    /// What a driver has left of these, in words.
    pub fn left_by(&self, owner: DriverId) -> Option<&'static str> {
        if self.all.values().any(|device| device.owner == owner) {
            Some("a device object")
        } else if self.links.values().any(|(one, _)| *one == owner) {
            Some("a symbolic link")
        } else {
            None
        }
    }

    /// Returns true if a driver refers to a device or driver object.
    pub fn are_referred_to_by(&self, owner: DriverId) -> bool {
        self.references.values().any(|&(one, _)| one == owner)
    }
}

/// How the object manager knows a symbolic link: it has three names for the folder, and letters are the same in small and in large.
pub fn link_name(link: &str) -> String {
    let link = link.to_ascii_lowercase();
    let folders = [r"\dosdevices\global\", r"\dosdevices\", r"\??\", r"\global??\"];
    let below = folders.iter().find_map(|folder| link.strip_prefix(folder));
    below.map_or_else(|| link.clone(), |name| format!(r"\??\{name}"))
}

impl State {
    /// Returns true if a device or driver object lies there.
    pub fn is_device_or_driver(&self, object: usize) -> bool {
        self.locked::<Devices>().has(object) || self.drivers().values().any(|driver| driver.object == object)
    }

    /// A driver refers to a device or driver object, or gives a reference up. How many it has then; `None` if it is none of these.
    pub fn count_object(&self, object: usize, by: i64) -> Option<i64> {
        if !self.is_device_or_driver(object) {
            return None;
        }
        let mut devices = self.locked::<Devices>();
        let left = devices.references.entry(object).or_insert_with(|| (context::caller(), 0));
        left.1 += by;
        let left = left.1;
        if left == 0 {
            devices.references.remove(&object);
        }
        drop(devices);
        if left < 0 {
            bug_check(
                Rule::ReferenceUnderflow,
                format_args!("a device or driver object is dereferenced once too often"),
            );
        }
        Some(left)
    }

    /// `DriverEntry` has returned: the devices that it made can be opened.
    pub fn devices_are_initialised(&self, owner: DriverId) {
        for device in self.locked::<Devices>().all.values().filter(|device| device.owner == owner) {
            // SAFETY: a live device object, which nobody else uses before it can be opened.
            unsafe { (*device.pointer()).Flags &= !DO_DEVICE_INITIALIZING };
        }
    }

    /// The device that a driver means.
    pub fn device_at(&self, device: PDEVICE_OBJECT) -> Arc<Device> {
        let found = self.locked::<Devices>().all.get(&device.addr()).cloned();
        found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{device:p} is no device object, or was one")))
    }

    /// The device behind a device interface or a symbolic link, or with that name, if it can be opened.
    pub fn wdm_device(&self, link: &str) -> Option<Arc<Device>> {
        let behind = self.device_behind_interface(link);
        if let Some((physical, _)) = behind {
            return self.locked::<Devices>().all.get(&physical).cloned();
        }
        let devices = self.locked::<Devices>();
        let name = devices.links.get(&link_name(link)).map_or(link, |(_, name)| name);
        let device = devices.all.values().find(|device| !name.is_empty() && device.name.eq_ignore_ascii_case(name))?;
        (device.flags() & DO_DEVICE_INITIALIZING == 0).then(|| device.clone())
    }

    /// Makes a device of the system's own, which has no name, and requests to which go to `functions`.
    pub fn create_physical_device(&self, driver: PDRIVER_OBJECT, functions: Functions) -> Arc<Device> {
        self.create_device_object(NOBODY, driver, functions)
    }

    /// As [`State::create_physical_device`], of a driver.
    pub fn create_device_object(&self, owner: DriverId, driver: PDRIVER_OBJECT, functions: Functions) -> Arc<Device> {
        let address = block::allocate(size_of::<DEVICE_OBJECT>(), true);
        let device = Arc::new(Device::new(owner, address, String::new(), Some(functions)));
        let object = DEVICE_OBJECT { Type: TYPE, DriverObject: driver, StackSize: 1, ..DEVICE_OBJECT::default() };
        // SAFETY: a new block with room for it.
        unsafe { device.pointer().write(object) };
        self.locked::<Devices>().all.insert(address, device.clone());
        device
    }

    /// Deletes it.
    pub fn delete_physical_device(&self, device: &Device) {
        self.locked::<Devices>().all.remove(&device.address);
        self.forget_instance(device.address);
        block::free(device.address);
    }

    /// Makes a device of NDIS with a name for programs, whose requests go to routines of its own, with so many zeroed bytes for its driver
    /// behind it. Returns its address.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_COLLISION`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn create_ndis_device(
        &self,
        owner: DriverId,
        (name, link): (String, String),
        functions: Functions,
        extension: usize,
    ) -> Result<usize, NTSTATUS> {
        let devices = self.locked::<Devices>();
        let link = link_name(&link);
        let is_taken = devices.all.values().any(|device| device.name.eq_ignore_ascii_case(&name))
            || devices.links.contains_key(&link);
        drop(devices);
        if is_taken {
            return Err(STATUS_OBJECT_NAME_COLLISION);
        }
        let size = NDIS_EXTENSION.checked_add(extension).filter(|_| !self.strikes());
        let address = size.and_then(|size| pool::allocate(NOBODY, size, TAG, true));
        let address = address.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let device = Device::new(owner, address, name.clone(), Some(functions));
        let object = DEVICE_OBJECT { Type: TYPE, StackSize: 1, ..DEVICE_OBJECT::default() };
        // SAFETY: a new block with room for it.
        unsafe { device.pointer().write(object) };
        let mut devices = self.locked::<Devices>();
        devices.all.insert(address, Arc::new(device));
        devices.links.insert(link, (owner, name));
        Ok(address)
    }

    /// Deletes a device of NDIS and its name for programs.
    ///
    /// At once, or when the last file on it is closed. Nobody finds it any more.
    pub fn delete_ndis_device(&self, address: usize) {
        let mut devices = self.locked::<Devices>();
        let Some(device) = devices.all.get(&address).cloned() else { return };
        devices.links.retain(|_, (_, name)| *name != device.name);
        drop(devices);
        // One user more, so that the last one sees the mark.
        device.users.fetch_add(1, AcqRel);
        device.condemned.store(true, Release);
        self.leave_device(&device);
    }

    /// Makes a symbolic link.
    ///
    /// `STATUS_OBJECT_NAME_COLLISION` if there is one of that name.
    pub fn link(&self, link: &str, owner: DriverId, name: &str) -> NTSTATUS {
        let mut devices = self.locked::<Devices>();
        let link = link_name(link);
        if devices.links.contains_key(&link) {
            return STATUS_OBJECT_NAME_COLLISION;
        }
        devices.links.insert(link, (owner, name.to_owned()));
        STATUS_SUCCESS
    }

    /// Deletes a symbolic link. False if there is none.
    pub fn unlink(&self, link: &str) -> bool {
        self.locked::<Devices>().links.remove(&link_name(link)).is_some()
    }

    /// The name that a symbolic link leads to.
    pub fn link_target(&self, link: &str) -> Option<String> {
        self.locked::<Devices>().links.get(&link_name(link)).map(|(_, name)| name.clone())
    }

    /// The address of the device behind a symbolic link.
    pub fn linked_device(&self, link: &str) -> Option<usize> {
        let devices = self.locked::<Devices>();
        let (_, name) = devices.links.get(&link_name(link))?;
        devices.all.values().find(|device| device.name.eq_ignore_ascii_case(name)).map(|device| device.address)
    }

    /// A file or request of a device less.
    pub fn leave_device(&self, device: &Device) {
        if device.users.fetch_sub(1, AcqRel) == 1 && device.condemned.load(Acquire) {
            self.locked::<Devices>().all.remove(&device.address);
            pool::free(device.address, Some(TAG));
        }
    }
}

/// What a driver wants of a new device.
pub struct Wanted {
    pub driver: PDRIVER_OBJECT,
    pub extension: ULONG,
    pub name: String,
    pub kind: ULONG,
    pub characteristics: ULONG,
}

/// Makes a device of a driver.
pub fn create(state: &State, wanted: Wanted, place: *mut PDEVICE_OBJECT) -> NTSTATUS {
    let Wanted { driver, extension, name, kind, characteristics } = wanted;
    let owner = context::caller();
    let is_own = state.drivers().get(&owner).is_some_and(|loaded| loaded.object == driver.addr());
    if !is_own {
        bug_check(Rule::BadArgument, format_args!("a device of another driver's object"));
    }
    if !name.is_empty() && !name.starts_with('\\') {
        bug_check(Rule::BadArgument, format_args!("a device with the name {name}, which is no whole path"));
    }
    if !name.is_empty() && state.locked::<Devices>().all.values().any(|device| device.name.eq_ignore_ascii_case(&name))
    {
        return STATUS_OBJECT_NAME_COLLISION;
    }
    let size = size_of::<DEVICE_OBJECT>() + extension as usize;
    let address = if state.strikes() { None } else { pool::allocate(NOBODY, size, TAG, true) };
    let Some(address) = address else { return STATUS_INSUFFICIENT_RESOURCES };
    let device: PDEVICE_OBJECT = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the driver's own object.
    let driver: &mut DRIVER_OBJECT = unsafe { &mut *driver };
    let new = DEVICE_OBJECT {
        Type: TYPE,
        Size: USHORT::try_from(size).unwrap_or(USHORT::MAX),
        DriverObject: driver,
        NextDevice: driver.DeviceObject,
        Flags: DO_DEVICE_INITIALIZING,
        Characteristics: characteristics,
        DeviceExtension: device.wrapping_add(1).cast(),
        DeviceType: kind,
        StackSize: 1,
        ..DEVICE_OBJECT::default()
    };
    // SAFETY: a new block with room for it.
    unsafe { device.write(new) };
    // SAFETY: the queue of the new device object; only an address is taken.
    device_queue::initialise(state, unsafe { &raw mut (*device).DeviceQueue });
    driver.DeviceObject = device;
    state.locked::<Devices>().all.insert(address, Arc::new(Device::new(owner, address, name, None)));
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { place.write(device) };
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn IoCreateDevice(
    driver: PDRIVER_OBJECT,
    extension: ULONG,
    name: PUNICODE_STRING,
    kind: ULONG,
    characteristics: ULONG,
    _exclusive: BOOLEAN,
    place: *mut PDEVICE_OBJECT,
) -> NTSTATUS {
    routine!("IoCreateDevice", |state| {
        create(state, Wanted { driver, extension, name: text::text(name), kind, characteristics }, place)
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoCreateSymbolicLink(link: PUNICODE_STRING, name: PUNICODE_STRING) -> NTSTATUS {
    routine!("IoCreateSymbolicLink", |state| {
        let (link, name) = (link_name(&text::text(link)), text::text(name));
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        state.link(&link, context::caller(), &name)
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoDeleteSymbolicLink(link: PUNICODE_STRING) -> NTSTATUS {
    routine!("IoDeleteSymbolicLink", |state| {
        let link = text::text(link);
        if state.unlink(&link) { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }
    })
}
