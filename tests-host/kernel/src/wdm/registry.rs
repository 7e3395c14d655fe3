//! The registry, as far as drivers open it by its path: the keys of their services, and `Parameters` in them.

use std::collections::BTreeMap;

use wdk_bindings::{
    _KEY_VALUE_INFORMATION_CLASS, ACCESS_MASK, KEY_VALUE_FULL_INFORMATION, KEY_VALUE_INFORMATION_CLASS,
    KEY_VALUE_PARTIAL_INFORMATION, NTSTATUS, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES, PHANDLE, POBJECT_ATTRIBUTES, PULONG,
    PUNICODE_STRING, PVOID, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG,
};

use super::{routine, thread};
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    pnp::Value,
    report::bug_check,
    rule::Rule,
    text,
};

/// Where the keys of services are.
pub const SERVICES: &str = r"\Registry\Machine\System\CurrentControlSet\Services\";

/// A key that a driver has opened.
#[derive(Clone)]
pub struct Key {
    owner: DriverId,
    path: String,
}

/// Those that are open, by their handles.
pub type Keys = BTreeMap<usize, Key>;

impl State {
    /// A driver is unloaded: its keys must be closed.
    pub fn check_keys(&self, owner: DriverId, name: &str) {
        if let Some(key) = lock(&self.wdm.keys).values().find(|key| key.owner == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a handle of the key {} open", key.path));
        }
    }

    /// The values of the key with that path. `None` if there is no such key.
    fn key(&self, path: &str) -> Option<BTreeMap<String, Value>> {
        let (start, rest) = path.split_at_checked(SERVICES.len())?;
        let (service, below) = rest.split_once('\\').map_or((rest, None), |(service, below)| (service, Some(below)));
        let pnp = lock(&self.pnp);
        let driver = pnp.drivers.values().find(|driver| driver.name.eq_ignore_ascii_case(service))?;
        match below {
            _ if !start.eq_ignore_ascii_case(SERVICES) => None,
            None => Some(BTreeMap::new()),
            Some(below) if below.eq_ignore_ascii_case("Parameters") => Some(driver.parameters.clone()),
            Some(_) => None,
        }
    }
}

/// The path that a driver's structure says.
fn path_of(state: &State, attributes: &OBJECT_ATTRIBUTES) -> String {
    let name = text::text(attributes.ObjectName);
    if attributes.RootDirectory.is_null() {
        return name;
    }
    let root = lock(&state.wdm.keys).get(&attributes.RootDirectory.addr()).cloned();
    let Some(root) = root else {
        bug_check(Rule::BadHandle, format_args!("{:p} is no key that is open", attributes.RootDirectory));
    };
    format!("{}\\{name}", root.path)
}

#[unsafe(no_mangle)]
extern "C" fn ZwOpenKey(handle: PHANDLE, _access: ACCESS_MASK, attributes: POBJECT_ATTRIBUTES) -> NTSTATUS {
    routine!("ZwOpenKey", |state| {
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let Some(attributes) = (unsafe { attributes.as_ref() }) else { return STATUS_INVALID_PARAMETER };
        if attributes.Attributes & OBJ_KERNEL_HANDLE == 0 {
            bug_check(Rule::BadArgument, format_args!("a key whose handle is not a kernel handle"));
        }
        let path = path_of(state, attributes);
        if state.key(&path).is_none() {
            return STATUS_OBJECT_NAME_NOT_FOUND;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let place = thread::new_handle();
        lock(&state.wdm.keys).insert(place, Key { owner: context::caller(), path });
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(std::ptr::without_provenance_mut(place)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwQueryValueKey(
    handle: wdk_bindings::HANDLE,
    name: PUNICODE_STRING,
    class: KEY_VALUE_INFORMATION_CLASS,
    place: PVOID,
    length: ULONG,
    needed: PULONG,
) -> NTSTATUS {
    routine!("ZwQueryValueKey", |state| {
        let Some(key) = lock(&state.wdm.keys).get(&handle.addr()).cloned() else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no key that is open"));
        };
        let (wanted, values) = (text::text(name), state.key(&key.path).unwrap_or_default());
        let value = values.iter().find(|(name, _)| name.eq_ignore_ascii_case(&wanted));
        let Some((name, value)) = value else { return STATUS_OBJECT_NAME_NOT_FOUND };
        let Some((fixed, bytes)) = information(class, name, value) else { return STATUS_INVALID_PARAMETER };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { needed.write(ULONG::try_from(bytes.len()).unwrap_or(ULONG::MAX)) };
        let length = length as usize;
        if length < fixed {
            return STATUS_BUFFER_TOO_SMALL;
        }
        let place: *mut u8 = place.cast();
        // SAFETY: the driver's buffer has as many bytes as it says.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), length.min(bytes.len())) };
        if length < bytes.len() { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS }
    })
}

/// A value in that form, and how many bytes of it have to fit. `None` for other forms.
fn information(class: KEY_VALUE_INFORMATION_CLASS, name: &str, value: &Value) -> Option<(usize, Vec<u8>)> {
    let (name, data) = (name.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>(), value.bytes());
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let of = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    match class {
        _KEY_VALUE_INFORMATION_CLASS::KeyValueFullInformation => {
            let fixed = std::mem::offset_of!(KEY_VALUE_FULL_INFORMATION, Name);
            let start = (fixed + name.len()).next_multiple_of(align_of::<u64>());
            let mut bytes = of(&[0, value.kind(), number(start), number(data.len()), number(name.len())]);
            bytes.extend(name);
            bytes.resize(start, 0);
            bytes.extend(data);
            Some((fixed, bytes))
        }
        _KEY_VALUE_INFORMATION_CLASS::KeyValuePartialInformation => {
            let mut bytes = of(&[0, value.kind(), number(data.len())]);
            bytes.extend(data);
            Some((std::mem::offset_of!(KEY_VALUE_PARTIAL_INFORMATION, Data), bytes))
        }
        _ => None,
    }
}
