//! The device and file objects behind the framework's: made when a driver asks for one, to be looked at and compared.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Release},
};

use wdk_bindings::{
    CSHORT, FILE_OBJECT, HANDLE, IRP_MJ_MAXIMUM_FUNCTION, NTSTATUS, PDEVICE_OBJECT, PFILE_OBJECT, PIRP,
    PWDF_DRIVER_GLOBALS, WDFDEVICE, WDFFILEOBJECT, WDFIOTARGET,
};

use super::{
    device::{DeviceObject, device},
    device_init::{Transfers, With},
    file::FileObject,
    function::entry,
    target::{TargetObject, target},
};
use crate::{
    context::{self, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{self, State, lock},
    wdm::io::{
        device::{Device, Functions},
        request::current,
    },
};

/// `IO_TYPE_FILE`.
const TYPE: CSHORT = 5;

/// What is sent to the device object of a framework's device.
unsafe extern "C" fn dispatch(object: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    let state = state::current();
    let devices = state.all_of::<DeviceObject>();
    let found =
        devices.into_iter().find(|device| lock(&device.wdm).own.as_ref().is_some_and(|own| own.pointer() == object));
    // SAFETY: the location of a request that is not complete.
    let (major, minor) = unsafe { ((*current(irp)).MajorFunction, (*current(irp)).MinorFunction) };
    let wanted = found.and_then(|device| Some((device.first.routine(major, minor)?, device)));
    let Some((routine, device)) = wanted else {
        bug_check(Rule::NotSimulated, format_args!("an IRP that is sent to the device object of a framework's device"));
    };
    let handle = device.handle.load(Acquire);
    context::call(device.owner, "EvtDeviceWdmIrpPreprocess", || {
        // SAFETY: the driver's own callback, with its live device and an IRP that lives until it is complete.
        unsafe { routine(std::ptr::without_provenance_mut(handle), irp) }
    })
}

const FUNCTIONS: Functions = [Some(dispatch); IRP_MJ_MAXIMUM_FUNCTION as usize + 1];

/// `DO_BUFFERED_IO` and `DO_DIRECT_IO`.
const fn flags(with: &With) -> u32 {
    match with.transfers {
        Transfers::Buffered => 4,
        Transfers::Direct => 16,
        Transfers::Neither => 0,
    }
}

impl State {
    /// The device object of a device, in its stack.
    pub fn wdm_device_of(&self, device: &Arc<DeviceObject>) -> Arc<Device> {
        // Those above are attached to it, and are made with it.
        self.made(&device.stack_top());
        self.made(device)
    }

    /// The device object that a device is attached to: none of a control device.
    fn wdm_device_below(&self, device: &Arc<DeviceObject>) -> Option<Arc<Device>> {
        match device.lower.get() {
            Some(lower) => Some(self.made(lower)),
            None if device.control => None,
            None => {
                let mut devices = lock(&device.wdm);
                Some(devices.physical.get_or_insert_with(|| self.new_physical_device()).clone())
            }
        }
    }

    /// A device object of the bus driver.
    pub fn new_physical_device(&self) -> Arc<Device> {
        self.create_physical_device(std::ptr::null_mut(), FUNCTIONS)
    }

    /// The device object of a device, attached to the one below.
    fn made(&self, device: &Arc<DeviceObject>) -> Arc<Device> {
        let known = lock(&device.wdm).own.clone();
        if let Some(own) = known {
            return own;
        }
        let below = self.wdm_device_below(device);
        let driver = self.drivers().get(&device.owner).map_or(0, |driver| driver.object);
        let driver = std::ptr::with_exposed_provenance_mut(driver);
        let own = self.create_device_object(device.owner, driver, FUNCTIONS);
        // A driver that sees IRPs first has a stack location for its completion routine.
        let more = i8::from(device.first.is_wanted());
        // SAFETY: a new device object, which nobody else knows yet.
        unsafe {
            (*own.pointer()).Flags = flags(&device.with);
            (*own.pointer()).StackSize = 1 + more;
        }
        if let Some(below) = below {
            let size = i8::try_from(below.locations() + 1).unwrap_or(i8::MAX).saturating_add(more);
            // SAFETY: device objects that live.
            unsafe {
                (*own.pointer()).StackSize = size;
                (*below.pointer()).AttachedDevice = own.pointer();
            }
        }
        lock(&device.wdm).own = Some(own.clone());
        own
    }

    /// The bus driver's device object at the bottom of a stack.
    pub fn physical_device(&self, device: &Arc<DeviceObject>) -> Option<Arc<Device>> {
        let mut lowest = device.clone();
        while let Some(lower) = lowest.lower.get().cloned() {
            lowest = lower;
        }
        self.made(&lowest);
        self.wdm_device_below(&lowest)
    }

    /// The file object of a file.
    pub fn wdm_file_of(&self, file: &FileObject) -> PFILE_OBJECT {
        let known = file.wdm.load(Acquire);
        if known != 0 {
            return std::ptr::with_exposed_provenance_mut(known);
        }
        let Some(block) = pool::allocate(NOBODY, size_of::<FILE_OBJECT>(), FileObject::TAG, true) else {
            bug_check(Rule::NotSimulated, format_args!("no memory for a file object"));
        };
        let object: PFILE_OBJECT = std::ptr::with_exposed_provenance_mut(block);
        let size = CSHORT::try_from(size_of::<FILE_OBJECT>()).unwrap_or(CSHORT::MAX);
        // The file is the bus driver's device's, as its name is.
        let device = self.physical_device(&file.device).unwrap_or_else(|| self.made(&file.device));
        let new = FILE_OBJECT { Type: TYPE, Size: size, DeviceObject: device.pointer(), ..FILE_OBJECT::default() };
        // SAFETY: a new block with room for it.
        unsafe { object.write(new) };
        file.wdm.store(block, Release);
        object
    }
}

fn address(device: Option<Arc<Device>>) -> PDEVICE_OBJECT {
    device.map_or(std::ptr::null_mut(), |device| device.pointer())
}

fn refuse_miniport(device: &DeviceObject, what: &str) {
    if device.is_of_miniport() {
        bug_check(Rule::NotSimulated, format_args!("{what} of a miniport's device"));
    }
}

pub extern "C" fn WdfDeviceWdmGetDeviceObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> PDEVICE_OBJECT {
    routine!("WdfDeviceWdmGetDeviceObject", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        if device.is_of_miniport() {
            return std::ptr::with_exposed_provenance_mut(device.functional);
        }
        state.wdm_device_of(&device).pointer()
    })
}

/// The next lower device object; null of a control device.
pub extern "C" fn WdfDeviceWdmGetAttachedDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> PDEVICE_OBJECT {
    routine!("WdfDeviceWdmGetAttachedDevice", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        refuse_miniport(&device, "the attached device");
        state.wdm_device_of(&device);
        address(state.wdm_device_below(&device))
    })
}

/// The bus driver's device object; null of a control device.
pub extern "C" fn WdfDeviceWdmGetPhysicalDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> PDEVICE_OBJECT {
    routine!("WdfDeviceWdmGetPhysicalDevice", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        refuse_miniport(&device, "the physical device");
        state.wdm_device_of(&device);
        address(state.physical_device(&device))
    })
}

pub extern "C" fn WdfFileObjectWdmGetFileObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFFILEOBJECT) -> PFILE_OBJECT {
    routine!("WdfFileObjectWdmGetFileObject", DISPATCH_LEVEL, |state| {
        let (_, file): (_, Arc<FileObject>) = state.given_as(handle);
        state.wdm_file_of(&file)
    })
}

/// The device that an open target leads to, with the one whose stack that is.
fn leads_to(state: &State, target: &TargetObject) -> Option<(Arc<Device>, Arc<DeviceObject>)> {
    if let Some((device, _)) = target.leads_to().ok()? {
        return Some((state.wdm_device_of(&device), device));
    }
    state.wdm_device_of(&target.device);
    Some((state.wdm_device_below(&target.device)?, target.device.clone()))
}

/// The device object to which requests go; null of a target that is closed.
pub extern "C" fn WdfIoTargetWdmGetTargetDeviceObject(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
) -> PDEVICE_OBJECT {
    routine!("WdfIoTargetWdmGetTargetDeviceObject", DISPATCH_LEVEL, |state| {
        address(leads_to(state, &target(state, handle)).map(|(device, _)| device))
    })
}

/// The bus driver's device object below the target; null of a target that is closed.
pub extern "C" fn WdfIoTargetWdmGetTargetPhysicalDevice(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
) -> PDEVICE_OBJECT {
    routine!("WdfIoTargetWdmGetTargetPhysicalDevice", DISPATCH_LEVEL, |state| {
        let of = leads_to(state, &target(state, handle)).map(|(_, device)| device);
        address(of.and_then(|device| state.physical_device(&device)))
    })
}

/// The file that the target has open; null of one that is closed, and of the target of what is below a device.
pub extern "C" fn WdfIoTargetWdmGetTargetFileObject(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
) -> PFILE_OBJECT {
    routine!("WdfIoTargetWdmGetTargetFileObject", DISPATCH_LEVEL, |state| {
        let place = target(state, handle).leads_to().ok().flatten();
        place.and_then(|(_, file)| file).map_or(std::ptr::null_mut(), |file| state.wdm_file_of(&file))
    })
}

/// As the file object.
pub extern "C" fn WdfIoTargetWdmGetTargetFileHandle(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) -> HANDLE {
    routine!("WdfIoTargetWdmGetTargetFileHandle", DISPATCH_LEVEL, |state| {
        let place = target(state, handle).leads_to().ok().flatten();
        if place.and_then(|(_, file)| file).is_some() {
            bug_check(Rule::NotSimulated, format_args!("the handle of the file that a target has open"));
        }
        std::ptr::null_mut()
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 8] {
    [
        entry!(WdfDeviceWdmGetDeviceObject),
        entry!(WdfDeviceWdmGetAttachedDevice),
        entry!(WdfDeviceWdmGetPhysicalDevice),
        entry!(WdfFileObjectWdmGetFileObject),
        entry!(WdfIoTargetWdmGetTargetDeviceObject),
        entry!(WdfIoTargetWdmGetTargetPhysicalDevice),
        entry!(WdfIoTargetWdmGetTargetFileObject),
        entry!(WdfIoTargetWdmGetTargetFileHandle),
    ]
}
