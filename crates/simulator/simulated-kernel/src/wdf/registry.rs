//! Keys of the registry as objects of the framework: the `Parameters` of a driver's service, those of a device, and what is below.

use std::sync::Arc;

use wdk_bindings::{
    ACCESS_MASK, NTSTATUS, PCUNICODE_STRING, PULONG, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_BUFFER_OVERFLOW, STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH,
    STATUS_SUCCESS, ULONG, WDFDRIVER, WDFKEY,
};

use super::{
    function::function,
    object::{Kind, Object, Part},
};
use crate::{state::State, text, value::Value, wdm::registry::SERVICES};

/// A key that is open.
pub struct Key {
    pub path: String,
    /// It was opened to be written.
    pub is_writable: bool,
    /// It was opened to be deleted.
    pub is_deletable: bool,
}

impl Part for Key {
    const NAME: &'static str = "registry key";
}

impl Kind for Key {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        object.require_passive_level();
    }
}

pub fn key_object(state: &State, key: WDFKEY) -> (Arc<Object>, Arc<Key>) {
    state.given_as(key)
}

pub fn value(state: &State, key: WDFKEY, name: PCUNICODE_STRING) -> Option<Value> {
    let (_, key) = key_object(state, key);
    let (values, name) = (state.key(&key.path)?, text::text(name));
    // Names of the registry are the same in any case.
    values.iter().find_map(|(one, value)| one.eq_ignore_ascii_case(&name).then(|| value.clone()))
}

/// Opens a key with that path, which is there.
pub fn open(
    state: &Arc<State>,
    (path, access): (String, ACCESS_MASK),
    attributes: PWDF_OBJECT_ATTRIBUTES,
    parent: Option<usize>,
    place: *mut WDFKEY,
) -> NTSTATUS {
    /// `MAXIMUM_ALLOWED` and `GENERIC_ALL`.
    const ALL: ACCESS_MASK = 1 << 25 | 1 << 28;
    /// `KEY_SET_VALUE` and `GENERIC_WRITE`.
    const WRITES: ACCESS_MASK = ALL | 2 | 1 << 30;
    /// `DELETE`.
    const DELETES: ACCESS_MASK = ALL | 1 << 16;
    let (is_writable, is_deletable) = (access & WRITES != 0, access & DELETES != 0);
    let key = Arc::new(Key { path, is_writable, is_deletable });
    let Some(object) = state.create_object(key, attributes, parent) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { place.write(object.pointer()) };
    STATUS_SUCCESS
}

pub extern "C" fn WdfDriverOpenParametersRegistryKey(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    access: ACCESS_MASK,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    key: *mut WDFKEY,
) -> NTSTATUS {
    function!("WdfDriverOpenParametersRegistryKey", |state| {
        let object = state.given(driver);
        let name = state.drivers().get(&object.owner).map(|driver| driver.name.clone()).unwrap_or_default();
        open(state, (format!(r"{SERVICES}{name}\Parameters"), access), attributes, Some(object.handle), key)
    })
}

pub extern "C" fn WdfRegistryClose(_globals: PWDF_DRIVER_GLOBALS, key: WDFKEY) {
    function!("WdfRegistryClose", |state| {
        state.delete_object(key_object(state, key).0.handle);
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
