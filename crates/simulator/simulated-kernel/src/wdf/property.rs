//! What a driver asks of its device, and says of it, that nothing here depends on.

use std::sync::Arc;

use wdk_bindings::{
    NTSTATUS, PCUNICODE_STRING, POOL_TYPE, PULONG, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG,
    WDFDEVICE, WDFMEMORY, WDFSTRING,
};

use super::{
    collection::StringObject, device::device, device_init::check_access, function::entry, memory::MemoryObject,
};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    text,
    wdm::{io::property, memory::is_paged},
};

/// `WDF_DEVICE_PNP_CAPABILITIES`.
#[repr(C)]
pub struct Capabilities {
    size: ULONG,
    /// Each is false, true, or what the bus says.
    choices: [i32; 9],
    address: ULONG,
    number: ULONG,
}

pub extern "C" fn WdfDeviceQueryProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    property: i32,
    length: ULONG,
    buffer: PVOID,
    result: PULONG,
) -> NTSTATUS {
    routine!("WdfDeviceQueryProperty", PASSIVE_LEVEL, |state| {
        let (_, device) = device(state, handle);
        if device.node.is_none() {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        property::answer(property, length, buffer, result)
    })
}

pub extern "C" fn WdfDeviceAllocAndQueryProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    property: i32,
    pool: POOL_TYPE,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfDeviceAllocAndQueryProperty", PASSIVE_LEVEL, |state| {
        let (_, device) = device(state, handle);
        if device.node.is_none() {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        in_memory(state, property, pool, attributes, place)
    })
}

/// Gives a driver a property, in a memory object that is made for it.
pub fn in_memory(
    state: &Arc<State>,
    property: i32,
    pool: POOL_TYPE,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    let paged = is_paged(pool);
    if place.is_null() {
        bug_check(Rule::BadArgument, format_args!("a property without a place for its memory object"));
    }
    let bytes = match property::value(property) {
        Ok(bytes) => bytes,
        Err(status) => return status,
    };
    let owner = context::caller();
    let Some(memory) = MemoryObject::allocated(owner, bytes.len(), 0, paged) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    let buffer: *mut u8 = std::ptr::with_exposed_provenance_mut(memory.whole().0);
    // SAFETY: a new block with room for as many bytes.
    unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let Some(object) = state.create_object(Arc::new(memory), attributes, state.driver_object(owner)) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    // SAFETY: not null, so the driver's place, which lives until the call returns.
    unsafe { place.write(object.pointer()) };
    STATUS_SUCCESS
}

/// They are looked at, and that is all.
pub extern "C" fn WdfDeviceSetPnpCapabilities(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    capabilities: *const Capabilities,
) {
    routine!("WdfDeviceSetPnpCapabilities", |state| {
        let (_, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns; it begins with its size.
        let size = unsafe { (*capabilities).size };
        if size as usize != size_of::<Capabilities>() {
            bug_check(Rule::BadArgument, format_args!("WDF_DEVICE_PNP_CAPABILITIES with the size {size}"));
        }
        // SAFETY: the driver's structure, which lives until the call returns; it begins with its size.
        let choices = unsafe { (*capabilities).choices };
        if choices.iter().any(|choice| !(0..=2).contains(choice)) {
            bug_check(Rule::BadArgument, format_args!("a capability that is neither true, false nor the bus's"));
        }
        if device.node.is_none() {
            bug_check(Rule::BadArgument, format_args!("capabilities of a control device"));
        }
    });
}

pub extern "C" fn WdfDeviceRetrieveDeviceName(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    string: WDFSTRING,
) -> NTSTATUS {
    routine!("WdfDeviceRetrieveDeviceName", PASSIVE_LEVEL, |state| {
        let (_, device) = device(state, handle);
        let (_, string): (_, Arc<StringObject>) = state.given_as(string);
        if device.name.is_empty() {
            return STATUS_INVALID_PARAMETER;
        }
        let units: Vec<u16> = device.name.encode_utf16().collect();
        string.set(context::caller(), &units).map_or(STATUS_INSUFFICIENT_RESOURCES, |()| STATUS_SUCCESS)
    })
}

/// Without a string nobody has said it; of a control device somebody always has.
pub extern "C" fn WdfDeviceInitAssignSDDLString(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    sddl: PCUNICODE_STRING,
) -> NTSTATUS {
    routine!("WdfDeviceInitAssignSDDLString", PASSIVE_LEVEL, |state| {
        if sddl.is_null() && state.with_init(init, |init| init.node.is_none()) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        let access = text::text(sddl);
        if !sddl.is_null() {
            check_access(&access);
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        state.with_init(init, |init| init.access = access);
        STATUS_SUCCESS
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 5] {
    [
        entry!(WdfDeviceQueryProperty),
        entry!(WdfDeviceAllocAndQueryProperty),
        entry!(WdfDeviceSetPnpCapabilities),
        entry!(WdfDeviceRetrieveDeviceName),
        entry!(WdfDeviceInitAssignSDDLString),
    ]
}
