//! The registry by `RtlQueryRegistryValues` and its like: a path, relative to something, and a table of what to do with values.

use wdk_bindings::{
    NTSTATUS, PCWSTR, PRTL_QUERY_REGISTRY_TABLE, PVOID, PWSTR, RTL_QUERY_REGISTRY_DELETE, RTL_QUERY_REGISTRY_DIRECT,
    RTL_QUERY_REGISTRY_NOEXPAND, RTL_QUERY_REGISTRY_NOVALUE, RTL_QUERY_REGISTRY_REQUIRED, RTL_QUERY_REGISTRY_SUBKEY,
    RTL_QUERY_REGISTRY_TABLE, RTL_QUERY_REGISTRY_TOPKEY, RTL_QUERY_REGISTRY_TYPECHECK,
    RTL_QUERY_REGISTRY_TYPECHECK_SHIFT, RTL_REGISTRY_ABSOLUTE, RTL_REGISTRY_HANDLE, RTL_REGISTRY_OPTIONAL,
    RTL_REGISTRY_SERVICES, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, ULONG, UNICODE_STRING,
};

use super::registry::{SERVICES, Values, bytes_of, delete_value, name_in, path_of_handle, set_value};
use crate::{context, pool, report::bug_check, routine::routine, rule::Rule, state::State, text, value::Value};

/// `REG_SZ` and `REG_MULTI_SZ`.
const TEXT: ULONG = 1;
const LIST: ULONG = 7;
/// What the strings that are made for a driver are tagged with.
const TAG: u32 = u32::from_ne_bytes(*b"Rqrv");

/// The key that a path leads to. `None` if there is none.
fn find(state: &State, relative: ULONG, path: PCWSTR) -> Option<String> {
    path_of(state, relative, path).filter(|path| state.key(path).is_some())
}

/// Where a path leads, whether there is a key or not.
fn path_of(state: &State, relative: ULONG, path: PCWSTR) -> Option<String> {
    if relative & RTL_REGISTRY_HANDLE != 0 {
        return Some(path_of_handle(state, path.cast_mut().cast()));
    }
    match relative & !RTL_REGISTRY_OPTIONAL {
        RTL_REGISTRY_ABSOLUTE => Some(text::wide(path)),
        RTL_REGISTRY_SERVICES => Some(format!("{SERVICES}{}", text::wide(path))),
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "C" fn RtlCheckRegistryKey(relative: ULONG, path: PWSTR) -> NTSTATUS {
    routine!("RtlCheckRegistryKey", |state| {
        if find(state, relative, path).is_some() { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlWriteRegistryValue(
    relative: ULONG,
    path: PCWSTR,
    name: PCWSTR,
    kind: ULONG,
    data: PVOID,
    length: ULONG,
) -> NTSTATUS {
    routine!("RtlWriteRegistryValue", |state| {
        // A key that is not there is made, if the one above it is.
        let path = path_of(state, relative, path).filter(|path| state.create_key(path).is_some());
        let Some(path) = path else { return STATUS_OBJECT_NAME_NOT_FOUND };
        set_value(state, &path, &text::wide(name), (kind, &bytes_of(data, length)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlDeleteRegistryValue(relative: ULONG, path: PCWSTR, name: PCWSTR) -> NTSTATUS {
    routine!("RtlDeleteRegistryValue", |state| {
        let Some(path) = find(state, relative, path) else { return STATUS_OBJECT_NAME_NOT_FOUND };
        delete_value(state, &path, &text::wide(name))
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlQueryRegistryValues(
    relative: ULONG,
    path: PCWSTR,
    table: PRTL_QUERY_REGISTRY_TABLE,
    argument: PVOID,
    _environment: PVOID,
) -> NTSTATUS {
    routine!("RtlQueryRegistryValues", |state| {
        let missing = if relative & RTL_REGISTRY_OPTIONAL == 0 { STATUS_OBJECT_NAME_NOT_FOUND } else { STATUS_SUCCESS };
        let Some(top) = find(state, relative, path) else { return missing };
        let (mut here, mut entry) = (top.clone(), table);
        loop {
            // SAFETY: the driver's table, which ends with an entry without routine and name.
            let row = unsafe { entry.read() };
            if row.QueryRoutine.is_none() && row.Flags & (RTL_QUERY_REGISTRY_SUBKEY | RTL_QUERY_REGISTRY_DIRECT) == 0 {
                return STATUS_SUCCESS;
            }
            if row.Flags & RTL_QUERY_REGISTRY_TOPKEY != 0 {
                here.clone_from(&top);
            }
            let status = if row.Flags & RTL_QUERY_REGISTRY_SUBKEY != 0 {
                here = format!("{top}\\{}", text::wide(row.Name));
                if state.key(&here).is_some() { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }
            } else {
                carry_out(state, &here, &row, argument)
            };
            if status < 0 {
                return status;
            }
            entry = entry.wrapping_add(1);
        }
    })
}

/// One row of a table.
fn carry_out(state: &State, path: &str, row: &RTL_QUERY_REGISTRY_TABLE, argument: PVOID) -> NTSTATUS {
    let is_direct = row.Flags & RTL_QUERY_REGISTRY_DIRECT != 0;
    if is_direct && (row.QueryRoutine.is_some() || row.Name.is_null()) {
        return STATUS_INVALID_PARAMETER;
    }
    if row.Flags & RTL_QUERY_REGISTRY_NOVALUE != 0 {
        return call(row, "", (0, &[]), argument);
    }
    let values = state.key(path).unwrap_or_default();
    if row.Name.is_null() {
        return values
            .iter()
            .map(|(name, value)| give(row, name, value, argument))
            .find(|&status| status < 0)
            .unwrap_or(0);
    }
    let wanted = text::wide(row.Name);
    let name = name_in(&values, &wanted);
    let Some(value) = found(&values, &name, row) else {
        let is_required = row.Flags & RTL_QUERY_REGISTRY_REQUIRED != 0;
        return if is_required { STATUS_OBJECT_NAME_NOT_FOUND } else { STATUS_SUCCESS };
    };
    let status = if is_direct { store(state, row, &value) } else { give(row, &name, &value, argument) };
    if status >= 0 && row.Flags & RTL_QUERY_REGISTRY_DELETE != 0 && values.contains_key(&name) {
        return delete_value(state, path, &name);
    }
    status
}

/// The value, or what the table has in its place.
fn found(values: &Values, name: &str, row: &RTL_QUERY_REGISTRY_TABLE) -> Option<Value> {
    if let Some(value) = values.get(name) {
        return Some(value.clone());
    }
    let kind = row.DefaultType & !(0xFF << RTL_QUERY_REGISTRY_TYPECHECK_SHIFT);
    if kind == 0 || row.Flags & RTL_QUERY_REGISTRY_REQUIRED != 0 {
        return None;
    }
    let length = if row.DefaultLength == 0 && kind == TEXT {
        let units = text::wide(row.DefaultData.cast()).encode_utf16().count() + 1;
        ULONG::try_from(2 * units).unwrap_or(0)
    } else {
        row.DefaultLength
    };
    Some(Value::of(kind, &bytes_of(row.DefaultData, length)))
}

/// Stores a value where the table says.
fn store(state: &State, row: &RTL_QUERY_REGISTRY_TABLE, value: &Value) -> NTSTATUS {
    let expected = row.DefaultType >> RTL_QUERY_REGISTRY_TYPECHECK_SHIFT;
    if row.Flags & RTL_QUERY_REGISTRY_TYPECHECK != 0 && expected != value.kind() {
        return STATUS_OBJECT_TYPE_MISMATCH;
    }
    let bytes = value.bytes();
    if [TEXT, LIST].contains(&value.kind()) {
        // SAFETY: the driver's string, which lives until the call returns.
        let string = unsafe { &mut *row.EntryContext.cast::<UNICODE_STRING>() };
        return store_text(state, string, &bytes);
    }
    if bytes.len() > size_of::<ULONG>() && value.kind() != 11 {
        bug_check(Rule::NotSimulated, format_args!("a value of {} bytes by RTL_QUERY_REGISTRY_DIRECT", bytes.len()));
    }
    // SAFETY: the driver's place, which has room for a value of the type that it expects.
    unsafe { row.EntryContext.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    STATUS_SUCCESS
}

/// Stores a string in the driver's buffer, or in one that it gets and has to free.
fn store_text(state: &State, string: &mut UNICODE_STRING, bytes: &[u8]) -> NTSTATUS {
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    if string.Buffer.is_null() {
        if state.strikes() {
            return STATUS_NO_MEMORY;
        }
        let Some(block) = pool::allocate(context::caller(), bytes.len(), TAG, false) else { return STATUS_NO_MEMORY };
        string.Buffer = std::ptr::with_exposed_provenance_mut(block);
        string.MaximumLength = size;
    }
    if string.MaximumLength < size {
        return STATUS_BUFFER_TOO_SMALL;
    }
    // The length of a string does not count its terminator.
    string.Length = size.saturating_sub(2);
    // SAFETY: the driver's buffer has at least as many bytes as it says.
    unsafe { string.Buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    STATUS_SUCCESS
}

/// Gives a value to the driver's routine: a list string by string, unless the table says otherwise.
fn give(row: &RTL_QUERY_REGISTRY_TABLE, name: &str, value: &Value, argument: PVOID) -> NTSTATUS {
    let bytes = value.bytes();
    if value.kind() != LIST || row.Flags & RTL_QUERY_REGISTRY_NOEXPAND != 0 {
        return call(row, name, (value.kind(), &bytes), argument);
    }
    let units: Vec<u16> = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let strings = units.split_inclusive(|&unit| unit == 0).filter(|string| string.len() > 1);
    let statuses = strings.map(|string| {
        let bytes: Vec<u8> = string.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        call(row, name, (TEXT, &bytes), argument)
    });
    statuses.into_iter().find(|&status| status < 0).unwrap_or(STATUS_SUCCESS)
}

fn call(row: &RTL_QUERY_REGISTRY_TABLE, name: &str, (kind, bytes): (ULONG, &[u8]), argument: PVOID) -> NTSTATUS {
    let Some(routine) = row.QueryRoutine else { return STATUS_INVALID_PARAMETER };
    let (mut name, mut bytes): (Vec<u16>, Vec<u8>) = (name.encode_utf16().chain([0]).collect(), bytes.to_vec());
    let length = ULONG::try_from(bytes.len()).unwrap_or(0);
    let status = context::call(context::caller(), "a query routine for the registry", || {
        // SAFETY: the driver's own routine and contexts, and places that live until the call returns.
        unsafe { routine(name.as_mut_ptr(), kind, bytes.as_mut_ptr().cast(), length, argument, row.EntryContext) }
    });
    // A routine that has no room for a value does not end the query.
    if status == STATUS_BUFFER_TOO_SMALL { STATUS_SUCCESS } else { status }
}
