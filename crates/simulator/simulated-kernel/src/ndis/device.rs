//! Control devices of miniport drivers.

use std::{ffi::c_void, sync::Mutex};

use litemap::LiteMap;
use ndis::{DEVICE_OBJECT, DRIVER_DISPATCH, NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_STATUS};
use ndkpi::{NDIS_HANDLE, NtStatus, status::NDIS_STATUS_SUCCESS};
use wdk_bindings::{PDRIVER_DISPATCH, UNICODE_STRING};

use super::structure::{ndis_routine, pointer, read};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    text,
    wdm::io::device::{Functions, NDIS_EXTENSION},
};

/// A control device.
pub struct ControlDevice {
    pub owner: DriverId,
    /// The address of the device object.
    pub object: usize,
    /// Who may open it.
    pub access: String,
    /// The driver has a part of the device object.
    has_extension: bool,
}

/// The control devices, by their handles.
#[derive(Default)]
pub struct ControlDevices(pub LiteMap<usize, ControlDevice>);

impl Part for Mutex<ControlDevices> {}

impl State {
    /// Who may open the control device behind a symbolic link, as its driver has said. `None` if there is none.
    pub fn ndis_device_access(&self, link: &str) -> Option<String> {
        let object = self.linked_device(link)?;
        let devices = self.locked::<ControlDevices>();
        devices.0.values().find(|device| device.object == object).map(|device| device.access.clone())
    }
}

/// The same function as the I/O manager has it.
fn of_wdm(function: DRIVER_DISPATCH) -> PDRIVER_DISPATCH {
    // SAFETY: pointers to opaque structures, a status of the same size, and one calling convention on a machine of 64 bits.
    unsafe { std::mem::transmute::<Option<DRIVER_DISPATCH>, PDRIVER_DISPATCH>(Some(function)) }
}

/// The names of a device of NDIS end with a zero, which is not counted (`NDIS_DEVICE_OBJECT_ATTRIBUTES`).
fn check_terminated(string: *const UNICODE_STRING) {
    // SAFETY: null, or the driver's string, which lives until the call returns.
    let Some(string) = (unsafe { string.as_ref() }) else { return };
    let units = usize::from(string.Length) / 2;
    let has_room = usize::from(string.MaximumLength) / 2 > units;
    // SAFETY: the buffer has as many bytes as the string says that it has room for.
    if !has_room || unsafe { string.Buffer.wrapping_add(units).read() } != 0 {
        bug_check(Rule::BadArgument, format_args!("the name of a device without a zero at its end"));
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisRegisterDeviceEx(
    handle: NDIS_HANDLE,
    attributes: *const NDIS_DEVICE_OBJECT_ATTRIBUTES,
    device: *mut *mut DEVICE_OBJECT,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisRegisterDeviceEx", PASSIVE_LEVEL, |state| {
        let owner = context::caller();
        let is_miniport = state.miniport(owner).is_some_and(|miniport| miniport.handle == handle.addr());
        if !is_miniport && !state.is_filter(owner, handle.addr()) {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration of the driver"));
        }
        let expected = NDIS_DEVICE_OBJECT_ATTRIBUTES::HEADER;
        // SAFETY: the driver's structure, which lives until the call returns.
        let attributes = unsafe { read(attributes, expected, "NDIS_DEVICE_OBJECT_ATTRIBUTES") };
        for name in [attributes.DeviceName, attributes.SymbolicName] {
            check_terminated(name.cast());
        }
        let (name, link) = (text::text(attributes.DeviceName.cast()), text::text(attributes.SymbolicName.cast()));
        let is_whole = !attributes.MajorFunctions.is_null() && !device.is_null() && !place.is_null();
        if !is_whole || name.is_empty() || link.is_empty() {
            bug_check(Rule::BadArgument, format_args!("a control device without a name, functions or a place"));
        }
        // SAFETY: the driver's table, which has a place for each kind of request.
        let functions = unsafe { attributes.MajorFunctions.cast::<[Option<DRIVER_DISPATCH>; 28]>().read() };
        let functions: Functions = functions.map(|function| function.and_then(of_wdm));
        let extension = attributes.ExtensionSize as usize;
        let object = match state.create_ndis_device(owner, (name, link), functions, extension) {
            Ok(object) => object,
            Err(status) => return NtStatus(status),
        };
        let new = state.new_handle();
        let access = text::text(attributes.DefaultSDDLString.cast());
        state
            .locked::<ControlDevices>()
            .0
            .insert(new, ControlDevice { owner, object, access, has_extension: extension > 0 });
        // SAFETY: the driver's places, which live until the call returns.
        unsafe {
            device.write(std::ptr::with_exposed_provenance_mut(object));
            place.write(pointer(new));
        }
        NDIS_STATUS_SUCCESS
    })
}

/// The driver's part of the device object; null if it has asked for none.
#[unsafe(no_mangle)]
extern "system" fn NdisGetDeviceReservedExtension(device: *mut DEVICE_OBJECT) -> *mut c_void {
    ndis_routine!("NdisGetDeviceReservedExtension", HIGH_LEVEL, |state| {
        let devices = state.locked::<ControlDevices>();
        let found = devices.0.values().find(|one| one.object == device.addr()).map(|one| one.has_extension);
        drop(devices);
        match found {
            Some(true) => device.cast::<u8>().wrapping_add(NDIS_EXTENSION).cast(),
            Some(false) => std::ptr::null_mut(),
            None => bug_check(Rule::BadHandle, format_args!("{device:p} is no control device of NDIS, or was one")),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisDeregisterDeviceEx(handle: NDIS_HANDLE) {
    ndis_routine!("NdisDeregisterDeviceEx", PASSIVE_LEVEL, |state| {
        let Some(gone) = state.locked::<ControlDevices>().0.remove(&handle.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no control device, or was one"));
        };
        state.delete_ndis_device(gone.object);
    });
}
