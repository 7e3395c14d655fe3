//! The `Parameters` key of a driver's service.

use std::sync::Arc;

use wdk_bindings::{
    ACCESS_MASK, NTSTATUS, PCUNICODE_STRING, PULONG, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_BUFFER_OVERFLOW, STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH,
    STATUS_SUCCESS, ULONG, WDFDRIVER, WDFKEY,
};

use super::{
    function::function,
    object::{Key, Object},
};
use crate::{report::bug_check, rule::Rule, state::State, text, value::Value};

fn key_object(state: &State, key: WDFKEY) -> Arc<Object> {
    let object = state.given(key);
    if object.part::<Key>().is_none() {
        bug_check(Rule::BadHandle, format_args!("a {} where a registry key is wanted", object.kind.name()));
    }
    object
}

fn value(state: &State, key: WDFKEY, name: PCUNICODE_STRING) -> Option<Value> {
    let object = key_object(state, key);
    let name = text::text(name);
    let drivers = state.drivers();
    let parameters = &drivers.get(&object.owner)?.parameters;
    // Names of the registry are the same in any case.
    parameters.iter().find_map(|(one, value)| one.eq_ignore_ascii_case(&name).then(|| value.clone()))
}

pub extern "C" fn WdfDriverOpenParametersRegistryKey(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    _access: ACCESS_MASK,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    key: *mut WDFKEY,
) -> NTSTATUS {
    function!("WdfDriverOpenParametersRegistryKey", |state| {
        let parent = state.given(driver).handle;
        let Some(object) = state.create_object(Arc::new(Key), attributes, Some(parent)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { key.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfRegistryClose(_globals: PWDF_DRIVER_GLOBALS, key: WDFKEY) {
    function!("WdfRegistryClose", |state| {
        state.delete_object(key_object(state, key).handle);
    });
}

pub extern "C" fn WdfRegistryQueryULong(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    place: PULONG,
) -> NTSTATUS {
    function!("WdfRegistryQueryULong", |state| match value(state, key, name) {
        None => STATUS_OBJECT_NAME_NOT_FOUND,
        Some(_) if state.strikes() => STATUS_INSUFFICIENT_RESOURCES,
        Some(Value::Number(number)) => {
            // SAFETY: the driver's place, which lives until the call returns.
            unsafe { place.write(number) };
            STATUS_SUCCESS
        }
        Some(_) => STATUS_OBJECT_TYPE_MISMATCH,
    })
}

pub extern "C" fn WdfRegistryQueryValue(
    _globals: PWDF_DRIVER_GLOBALS,
    key: WDFKEY,
    name: PCUNICODE_STRING,
    length: ULONG,
    room: PVOID,
    queried: PULONG,
    kind: PULONG,
) -> NTSTATUS {
    function!("WdfRegistryQueryValue", |state| {
        let Some(value) = value(state, key, name) else { return STATUS_OBJECT_NAME_NOT_FOUND };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let bytes = value.bytes();
        let number = ULONG::try_from(bytes.len()).unwrap_or(ULONG::MAX);
        for (place, what) in [(queried, number), (kind, value.kind())] {
            if !place.is_null() {
                // SAFETY: not null, so the driver's place, which lives until the call returns.
                unsafe { place.write(what) };
            }
        }
        if number > length {
            return STATUS_BUFFER_OVERFLOW;
        }
        // SAFETY: the driver's buffer has as many bytes as it says, which are not fewer than those copied.
        unsafe { room.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        STATUS_SUCCESS
    })
}
