//! The registry, as far as drivers open it by its path: the keys of their services, `Parameters` in them, and what they create below.

use std::sync::Mutex;

use litemap::LiteMap;
use wdk_bindings::{
    _KEY_VALUE_INFORMATION_CLASS, ACCESS_MASK, HANDLE, KEY_VALUE_FULL_INFORMATION, KEY_VALUE_INFORMATION_CLASS,
    KEY_VALUE_PARTIAL_INFORMATION, NTSTATUS, OBJECT_ATTRIBUTES, PHANDLE, POBJECT_ATTRIBUTES, PULONG, PUNICODE_STRING,
    PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    ULONG,
};

use super::{handles, registry_keys::give};
use crate::{
    argument::check_size,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
    value::Value,
};

/// Where the keys of services are.
pub const SERVICES: &str = r"\Registry\Machine\System\CurrentControlSet\Services\";

/// `REG_CREATED_NEW_KEY` and `REG_OPENED_EXISTING_KEY`: what became of a creation.
const CREATED_NEW_KEY: ULONG = 1;
const OPENED_EXISTING_KEY: ULONG = 2;

/// A key that a driver has opened.
#[derive(Clone)]
pub struct Key {
    owner: DriverId,
    path: String,
}

/// Those that are open, by their handles.
#[derive(Default)]
pub struct Keys(LiteMap<usize, Key>);

impl Part for Mutex<Keys> {}

/// Values of a key.
pub type Values = LiteMap<String, Value>;

/// What drivers have created, keys of devices, and values of services' own keys: by the path in small letters.
#[derive(Default)]
pub struct Hive {
    values: LiteMap<String, Values>,
    /// Their names as they were spelled when they were created.
    names: LiteMap<String, String>,
}

impl Part for Mutex<Hive> {}

/// Which kind a key is of.
enum KeyKind {
    /// `Parameters` of a driver that is loaded.
    Parameters(DriverId),
    /// A service's own key.
    Service,
    /// Below.
    Created,
}

impl State {
    /// A driver is unloaded: its keys must be closed.
    pub fn check_keys(&self, owner: DriverId, name: &str) {
        if let Some(key) = self.locked::<Keys>().0.values().find(|key| key.owner == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a handle of the key {} open", key.path));
        }
    }

    /// Closes a handle, if it is one of a key.
    pub fn close_key(&self, handle: usize) -> bool {
        self.locked::<Keys>().0.remove(&handle).is_some()
    }

    fn place(&self, path: &str) -> Option<KeyKind> {
        let (start, rest) = path.split_at_checked(SERVICES.len())?;
        let (service, below) = rest.split_once('\\').map_or((rest, None), |(service, below)| (service, Some(below)));
        let drivers = self.drivers();
        let (id, _) = drivers.iter().find(|(_, driver)| driver.name.eq_ignore_ascii_case(service))?;
        match below {
            _ if !start.eq_ignore_ascii_case(SERVICES) => None,
            None => Some(KeyKind::Service),
            Some(below) if below.eq_ignore_ascii_case("Parameters") => Some(KeyKind::Parameters(*id)),
            Some(_) => Some(KeyKind::Created),
        }
    }

    /// The values of the key with that path. `None` if there is no such key.
    pub fn key(&self, path: &str) -> Option<Values> {
        let created = self.locked::<Hive>().values.get(&path.to_ascii_lowercase()).cloned();
        match self.place(path) {
            Some(KeyKind::Parameters(driver)) => self.drivers().get(&driver).map(|driver| driver.parameters.clone()),
            Some(KeyKind::Service) => Some(created.unwrap_or_default()),
            Some(KeyKind::Created) | None => created,
        }
    }

    /// A key that the system has made is there, if it was not before.
    pub(super) fn found_key(&self, path: &str) {
        self.locked::<Hive>().values.entry(path.to_ascii_lowercase()).or_default();
    }

    /// Has `work` change the values of the key with that path, which exists.
    pub fn change_key<R>(&self, path: &str, work: impl FnOnce(&mut Values) -> R) -> R {
        if let Some(KeyKind::Parameters(driver)) = self.place(path)
            && let Some(driver) = self.drivers().get_mut(&driver)
        {
            return work(&mut driver.parameters);
        }
        work(self.locked::<Hive>().values.entry(path.to_ascii_lowercase()).or_default())
    }

    /// Creates a key below one that exists. Whether it is new; `None` if there is nothing that it could be below.
    pub fn create_key(&self, path: &str) -> Option<bool> {
        if self.key(path).is_some() {
            return Some(false);
        }
        let (above, name) = path.rsplit_once('\\')?;
        self.key(above)?;
        let mut hive = self.locked::<Hive>();
        hive.values.insert(path.to_ascii_lowercase(), Values::new());
        hive.names.insert(path.to_ascii_lowercase(), name.to_owned());
        Some(true)
    }

    /// The names of the keys that are right below that with this path, in their order.
    pub fn subkeys(&self, path: &str) -> Vec<String> {
        let parameters = matches!(self.place(path), Some(KeyKind::Service)).then(|| "Parameters".to_owned());
        let start = format!("{}\\", path.to_ascii_lowercase());
        let hive = self.locked::<Hive>();
        let below =
            hive.names.iter().filter(|(path, _)| path.strip_prefix(&start).is_some_and(|rest| !rest.contains('\\')));
        let mut names: Vec<String> = below.map(|(_, name)| name.clone()).chain(parameters).collect();
        names.sort_by_key(|name| name.to_ascii_lowercase());
        names
    }

    /// The name of the key with that path, as it was spelled when it was created.
    pub(super) fn key_name(&self, path: &str) -> String {
        let created = self.locked::<Hive>().names.get(&path.to_ascii_lowercase()).cloned();
        created.unwrap_or_else(|| path.rsplit('\\').next().unwrap_or(path).to_owned())
    }

    /// Deletes a key that a driver has created. Returns false if it was none.
    pub fn delete_key(&self, path: &str) -> bool {
        let (mut hive, path) = (self.locked::<Hive>(), path.to_ascii_lowercase());
        hive.values.remove(&path);
        hive.names.remove(&path).is_some()
    }
}

/// The name under which a value is, or is to be: names are the same in small and in large letters.
pub fn name_in(values: &Values, wanted: &str) -> String {
    values.keys().find(|name| name.eq_ignore_ascii_case(wanted)).cloned().unwrap_or_else(|| wanted.to_owned())
}

/// The path that a driver's structure says.
fn path_of(state: &State, attributes: &OBJECT_ATTRIBUTES) -> String {
    let name = text::text(attributes.ObjectName);
    if attributes.RootDirectory.is_null() {
        return name;
    }
    let root = state.locked::<Keys>().0.get(&attributes.RootDirectory.addr()).cloned();
    let Some(root) = root else {
        bug_check(Rule::BadHandle, format_args!("{:p} is no key that is open", attributes.RootDirectory));
    };
    format!("{}\\{name}", root.path)
}

/// Opens a key, or creates it if the driver gives a place to say which.
fn open(state: &State, handle: PHANDLE, attributes: POBJECT_ATTRIBUTES, creates: Option<PULONG>) -> NTSTATUS {
    // SAFETY: null or the driver's structure, which lives until the call returns.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return STATUS_INVALID_PARAMETER };
    check_size::<OBJECT_ATTRIBUTES>(attributes.Length, "OBJECT_ATTRIBUTES");
    let path = path_of(state, attributes);
    if creates.is_none() && state.key(&path).is_none() {
        return STATUS_OBJECT_NAME_NOT_FOUND;
    }
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    if let Some(disposition) = creates {
        let status = create(state, &path, disposition);
        if status != STATUS_SUCCESS {
            return status;
        }
    }
    let key = open_at(state, path, attributes.Attributes);
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { handle.write(key) };
    STATUS_SUCCESS
}

/// Creates a key unless it is there, and says in the driver's place, if it gives one, which of the two.
pub fn create(state: &State, path: &str, disposition: PULONG) -> NTSTATUS {
    let Some(is_new) = state.create_key(path) else { return STATUS_OBJECT_NAME_NOT_FOUND };
    // SAFETY: null or the driver's place, which lives until the call returns.
    if let Some(disposition) = unsafe { disposition.as_mut() } {
        *disposition = if is_new { CREATED_NEW_KEY } else { OPENED_EXISTING_KEY };
    }
    STATUS_SUCCESS
}

/// A new handle of the caller's for the key with that path.
pub(super) fn open_at(state: &State, path: String, attributes: ULONG) -> HANDLE {
    let handle = handles::new_handle(state, attributes, "a key");
    state.locked::<Keys>().0.insert(handle, Key { owner: context::caller(), path });
    std::ptr::without_provenance_mut(handle)
}

#[unsafe(no_mangle)]
extern "C" fn ZwOpenKey(handle: PHANDLE, _access: ACCESS_MASK, attributes: POBJECT_ATTRIBUTES) -> NTSTATUS {
    routine!("ZwOpenKey", |state| open(state, handle, attributes, None))
}

#[unsafe(no_mangle)]
extern "C" fn ZwCreateKey(
    handle: PHANDLE,
    _access: ACCESS_MASK,
    attributes: POBJECT_ATTRIBUTES,
    _title: ULONG,
    _class: PUNICODE_STRING,
    _options: ULONG,
    disposition: PULONG,
) -> NTSTATUS {
    routine!("ZwCreateKey", |state| open(state, handle, attributes, Some(disposition)))
}

/// The path of a key that is open.
pub(super) fn path_of_handle(state: &State, handle: HANDLE) -> String {
    handles::check_handle(state, handle.addr());
    let found = state.locked::<Keys>().0.get(&handle.addr()).cloned();
    let Some(key) = found else { bug_check(Rule::BadHandle, format_args!("{handle:p} is no key that is open")) };
    if state.key(&key.path).is_none() {
        bug_check(Rule::BadHandle, format_args!("the key {} was deleted: its handle {handle:p} is invalid", key.path));
    }
    key.path
}

/// Gives a key a value.
pub fn set_value(state: &State, path: &str, name: &str, (kind, data): (ULONG, &[u8])) -> NTSTATUS {
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    state.change_key(path, |values| values.insert(name_in(values, name), Value::of(kind, data)));
    STATUS_SUCCESS
}

/// Takes a value out of a key.
pub fn delete_value(state: &State, path: &str, name: &str) -> NTSTATUS {
    let gone = state.change_key(path, |values| values.remove(&name_in(values, name)));
    if gone.is_some() { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }
}

/// The bytes that a driver passes.
pub(super) fn bytes_of(data: PVOID, length: ULONG) -> Vec<u8> {
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: the driver's data has as many bytes as it says.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length as usize) }.to_vec()
}

/// `REG_SZ`, `REG_EXPAND_SZ` and `REG_MULTI_SZ`, whose bytes end with a zero.
const STRINGS: [ULONG; 3] = [1, 2, 7];

#[unsafe(no_mangle)]
extern "C" fn ZwSetValueKey(
    handle: HANDLE,
    name: PUNICODE_STRING,
    _title: ULONG,
    kind: ULONG,
    data: PVOID,
    length: ULONG,
) -> NTSTATUS {
    routine!("ZwSetValueKey", |state| {
        let (path, bytes) = (path_of_handle(state, handle), bytes_of(data, length));
        if STRINGS.contains(&kind) && !bytes.ends_with(&[0, 0]) {
            let words = format_args!("ZwSetValueKey of a string of {length} bytes, of which the last two are no zero");
            bug_check(Rule::BadArgument, words);
        }
        set_value(state, &path, &text::text(name), (kind, &bytes))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwDeleteValueKey(handle: HANDLE, name: PUNICODE_STRING) -> NTSTATUS {
    routine!("ZwDeleteValueKey", |state| {
        let path = path_of_handle(state, handle);
        delete_value(state, &path, &text::text(name))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwQueryValueKey(
    handle: HANDLE,
    name: PUNICODE_STRING,
    class: KEY_VALUE_INFORMATION_CLASS,
    place: PVOID,
    length: ULONG,
    needed: PULONG,
) -> NTSTATUS {
    routine!("ZwQueryValueKey", |state| {
        let path = path_of_handle(state, handle);
        let (wanted, values) = (text::text(name), state.key(&path).unwrap_or_default());
        let value = values.iter().find(|(name, _)| name.eq_ignore_ascii_case(&wanted));
        let Some((name, value)) = value else { return STATUS_OBJECT_NAME_NOT_FOUND };
        let Some(answer) = information(class, name, value) else { return STATUS_INVALID_PARAMETER };
        give(state, &answer, place, length, needed)
    })
}

/// A value in that form, and how many bytes of it have to fit. `None` for other forms.
pub(super) fn information(class: KEY_VALUE_INFORMATION_CLASS, name: &str, value: &Value) -> Option<(usize, Vec<u8>)> {
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
