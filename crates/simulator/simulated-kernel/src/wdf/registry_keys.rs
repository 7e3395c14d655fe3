//! Keys of the registry that a driver opens and creates by name, or of a device, and what it writes there.

use std::sync::{Arc, atomic::Ordering::Acquire};

use wdk_bindings::{
    ACCESS_MASK, NTSTATUS, PCUNICODE_STRING, PULONG, PUNICODE_STRING, PVOID, PWDF_DRIVER_GLOBALS,
    PWDF_OBJECT_ATTRIBUTES, STATUS_ACCESS_DENIED, STATUS_BUFFER_OVERFLOW, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, ULONG, USHORT,
    WDFDEVICE, WDFKEY, WDFSTRING,
};

use super::{
    collection::StringObject,
    device::device,
    function::entry,
    registry::{Key, key_object, open, value},
};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    text,
    value::Value,
    wdm::{
        registry::{create, delete_value, set_value},
        registry_keys::delete,
    },
};

/// `REG_SZ` and `REG_DWORD`.
const TEXT: ULONG = 1;
const NUMBER: ULONG = 4;

/// The path of a key by its name, below another one unless that is null. With it the object that is the new one's parent.
fn path_below(state: &State, parent: WDFKEY, name: PCUNICODE_STRING) -> (String, Option<usize>) {
    let name = text::text(name);
    if parent.is_null() {
        return (name, None);
    }
    let (object, key) = key_object(state, parent);
    (format!(r"{}\{name}", key.path), Some(object.handle))
}

/// A key that a driver may write, or the status that it gets instead.
fn writable(state: &State, key: WDFKEY) -> Result<Arc<Key>, NTSTATUS> {
    let (_, key) = key_object(state, key);
    if key.is_writable { Ok(key) } else { Err(STATUS_ACCESS_DENIED) }
}

/// Gives a key a value.
fn assign(state: &State, key: WDFKEY, name: PCUNICODE_STRING, (kind, bytes): (ULONG, &[u8])) -> NTSTATUS {
    match writable(state, key) {
        Ok(key) => set_value(state, &key.path, &text::text(name), (kind, bytes)),
        Err(status) => status,
    }
}

pub extern "C" fn WdfRegistryOpenKey(
    _globals: PWDF_DRIVER_GLOBALS,
    parent: WDFKEY,
    name: PCUNICODE_STRING,
    access: ACCESS_MASK,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFKEY,
) -> NTSTATUS {
    routine!("WdfRegistryOpenKey", PASSIVE_LEVEL, |state| {
        let (path, parent) = path_below(state, parent, name);
        if state.key(&path).is_none() {
            return STATUS_OBJECT_NAME_NOT_FOUND;
        }
        open(state, (path, access), attributes, parent, place)
    })
}

pub extern "C" fn WdfRegistryCreateKey(
    _globals: PWDF_DRIVER_GLOBALS,
    parent: WDFKEY,
    name: PCUNICODE_STRING,
    access: ACCESS_MASK,
    _options: ULONG,
    disposition: PULONG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFKEY,
) -> NTSTATUS {
    routine!("WdfRegistryCreateKey", PASSIVE_LEVEL, |state| {
        let (path, parent) = path_below(state, parent, name);
        match create(state, &path, disposition) {
            STATUS_SUCCESS => open(state, (path, access), attributes, parent, place),
            status => status,
        }
    })
}

/// A key of a device: the one for what is known of it, or the driver's own.
pub extern "C" fn WdfDeviceOpenRegistryKey(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    kind: ULONG,
    access: ACCESS_MASK,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFKEY,
) -> NTSTATUS {
    routine!("WdfDeviceOpenRegistryKey", PASSIVE_LEVEL, |state| {
        let (_, device) = device(state, handle);
        if device.is_of_miniport() {
            bug_check(Rule::NotSimulated, format_args!("a key of a miniport's device"));
        }
        let Some(physical) = state.physical_device(&device) else { return STATUS_INVALID_PARAMETER };
        let Some(path) = state.device_key(physical.address, kind) else { return STATUS_INVALID_PARAMETER };
        open(state, (path, access), attributes, Some(device.handle.load(Acquire)), place)
    })
}

pub extern "C" fn WdfRegistryAssignULong(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    number: ULONG,
) -> NTSTATUS {
    routine!("WdfRegistryAssignULong", PASSIVE_LEVEL, |state| {
        assign(state, key, name, (NUMBER, &number.to_le_bytes()))
    })
}

pub extern "C" fn WdfRegistryAssignValue(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    kind: ULONG,
    length: ULONG,
    bytes: PVOID,
) -> NTSTATUS {
    routine!("WdfRegistryAssignValue", PASSIVE_LEVEL, |state| {
        if bytes.is_null() {
            bug_check(Rule::BadArgument, format_args!("a value of the registry without its bytes"));
        }
        // SAFETY: the driver's value has as many bytes as it says.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) };
        assign(state, key, name, (kind, bytes))
    })
}

pub extern "C" fn WdfRegistryAssignUnicodeString(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    string: PCUNICODE_STRING,
) -> NTSTATUS {
    routine!("WdfRegistryAssignUnicodeString", PASSIVE_LEVEL, |state| {
        let units = text::units(string).into_iter().chain([0]);
        let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
        assign(state, key, name, (TEXT, &bytes))
    })
}

/// The text of a value, without its terminator.
fn units_of(state: &State, key: WDFKEY, name: PCUNICODE_STRING) -> Result<Vec<u16>, NTSTATUS> {
    match value(state, key, name) {
        None => Err(STATUS_OBJECT_NAME_NOT_FOUND),
        Some(_) if state.strikes() => Err(STATUS_INSUFFICIENT_RESOURCES),
        Some(Value::Text(units)) => Ok(units.into_iter().take_while(|&unit| unit != 0).collect()),
        Some(_) => Err(STATUS_OBJECT_TYPE_MISMATCH),
    }
}

/// The string in the driver's own buffer has a terminator, which is not counted. Without room for it the driver is told how many bytes it
/// needs.
pub extern "C" fn WdfRegistryQueryUnicodeString(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    needed: *mut USHORT,
    string: PUNICODE_STRING,
) -> NTSTATUS {
    routine!("WdfRegistryQueryUnicodeString", PASSIVE_LEVEL, |state| {
        let units = match units_of(state, key, name) {
            Ok(units) => units,
            Err(status) => return status,
        };
        let bytes = USHORT::try_from(2 * (units.len() + 1)).unwrap_or(USHORT::MAX);
        if !needed.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { needed.write(bytes) };
        }
        // SAFETY: null or the driver's string, which lives until the call returns.
        let Some(string) = (unsafe { string.as_mut() }).filter(|string| string.MaximumLength >= bytes) else {
            return STATUS_BUFFER_OVERFLOW;
        };
        for (place, &unit) in units.iter().chain(&[0]).enumerate() {
            // SAFETY: the driver's buffer has as many bytes as its maximal length says.
            unsafe { string.Buffer.wrapping_add(place).write(unit) };
        }
        string.Length = bytes - 2;
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfRegistryQueryString(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    string: WDFSTRING,
) -> NTSTATUS {
    routine!("WdfRegistryQueryString", PASSIVE_LEVEL, |state| {
        let (_, string): (_, Arc<StringObject>) = state.given_as(string);
        match units_of(state, key, name) {
            Ok(units) => {
                string.set(context::caller(), &units).map_or(STATUS_INSUFFICIENT_RESOURCES, |()| STATUS_SUCCESS)
            }
            Err(status) => status,
        }
    })
}

pub extern "C" fn WdfRegistryRemoveValue(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
) -> NTSTATUS {
    routine!("WdfRegistryRemoveValue", PASSIVE_LEVEL, |state| match writable(state, key) {
        Ok(key) => delete_value(state, &key.path, &text::text(name)),
        Err(status) => status,
    })
}

/// The object goes with its key, and stays if the key does.
pub extern "C" fn WdfRegistryRemoveKey(_globals: PWDF_DRIVER_GLOBALS, key: WDFKEY) -> NTSTATUS {
    routine!("WdfRegistryRemoveKey", PASSIVE_LEVEL, |state| {
        let (object, key) = key_object(state, key);
        if !key.is_deletable {
            return STATUS_ACCESS_DENIED;
        }
        let status = delete(state, &key.path);
        if status == STATUS_SUCCESS {
            state.delete_object(object.handle);
        }
        status
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 10] {
    [
        entry!(WdfRegistryOpenKey),
        entry!(WdfRegistryCreateKey),
        entry!(WdfDeviceOpenRegistryKey),
        entry!(WdfRegistryAssignULong),
        entry!(WdfRegistryAssignValue),
        entry!(WdfRegistryAssignUnicodeString),
        entry!(WdfRegistryQueryUnicodeString),
        entry!(WdfRegistryQueryString),
        entry!(WdfRegistryRemoveValue),
        entry!(WdfRegistryRemoveKey),
    ]
}
