//! Keys of the registry as such: what is in one, item by item, and its deletion.

use wdk_bindings::{
    HANDLE, KEY_VALUE_INFORMATION_CLASS, NTSTATUS, PULONG, PVOID, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES, STATUS_SUCCESS, ULONG,
};

use super::registry::{information, path_of_handle};
use crate::{routine::routine, state::State};

/// `STATUS_CANNOT_DELETE`.
const CANNOT_DELETE: NTSTATUS = 0xC000_0121_u32.cast_signed();

/// The forms of `KEY_INFORMATION_CLASS`.
const BASIC: i32 = 0;
const NODE: i32 = 1;
const FULL: i32 = 2;
const NAME: i32 = 3;

/// The bytes of an answer, and how many of them have to fit.
type Answer = (usize, Vec<u8>);

/// Gives an answer to the driver: as much of it as there is room for.
pub(super) fn give(state: &State, (fixed, bytes): &Answer, place: PVOID, length: ULONG, needed: PULONG) -> NTSTATUS {
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { needed.write(ULONG::try_from(bytes.len()).unwrap_or(ULONG::MAX)) };
    let length = length as usize;
    if length < *fixed {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let place: *mut u8 = place.cast();
    // SAFETY: the driver's buffer has as many bytes as it says.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), length.min(bytes.len())) };
    if length < bytes.len() { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Numbers, and a name behind them.
fn in_bytes(numbers: &[u32], name: &str) -> Vec<u8> {
    let units = name.encode_utf16().flat_map(u16::to_le_bytes);
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain(units).collect()
}

/// The length of a name, in bytes.
fn length(name: &str) -> usize {
    2 * name.encode_utf16().count()
}

/// What is in a key: its subkeys, its values, and the longest of each.
fn full(state: &State, path: &str) -> Answer {
    /// Where the name of the class begins, which no key has.
    const CLASS: usize = 44;
    let (keys, values) = (state.subkeys(path), state.key(path).unwrap_or_default());
    let longest = |lengths: &mut dyn Iterator<Item = usize>| number(lengths.max().unwrap_or(0));
    let key = longest(&mut keys.iter().map(|name| length(name)));
    let name = longest(&mut values.keys().map(|name| length(name)));
    let data = longest(&mut values.values().map(|value| value.bytes().len()));
    let count = (number(keys.len()), number(values.len()));
    // The time of the last change and the index of a title, of which there are none here.
    let numbers = [0, 0, 0, u32::MAX, 0, count.0, key, 0, count.1, name, data];
    let bytes = in_bytes(&numbers, "");
    debug_assert!(bytes.len() == CLASS, "the fixed part");
    (CLASS, bytes)
}

/// A key in that form. `None` for other forms.
fn describe(state: &State, path: &str, class: i32) -> Option<Answer> {
    let name = state.key_name(path);
    let bytes = number(length(&name));
    match class {
        BASIC => Some((16, in_bytes(&[0, 0, 0, bytes], &name))),
        NODE => Some((24, in_bytes(&[0, 0, 0, u32::MAX, 0, bytes], &name))),
        FULL => Some(full(state, path)),
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ZwEnumerateKey(
    handle: HANDLE,
    index: ULONG,
    class: i32,
    place: PVOID,
    length: ULONG,
    needed: PULONG,
) -> NTSTATUS {
    routine!("ZwEnumerateKey", PASSIVE_LEVEL, |state| {
        let path = path_of_handle(state, handle);
        let keys = state.subkeys(&path);
        let Some(name) = keys.get(index as usize) else { return STATUS_NO_MORE_ENTRIES };
        let Some(answer) = describe(state, &format!("{path}\\{name}"), class) else { return STATUS_INVALID_PARAMETER };
        give(state, &answer, place, length, needed)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwQueryKey(handle: HANDLE, class: i32, place: PVOID, length: ULONG, needed: PULONG) -> NTSTATUS {
    routine!("ZwQueryKey", PASSIVE_LEVEL, |state| {
        let path = path_of_handle(state, handle);
        let answer = if class == NAME {
            Some((4, in_bytes(&[number(self::length(&path))], &path)))
        } else {
            describe(state, &path, class)
        };
        let Some(answer) = answer else { return STATUS_INVALID_PARAMETER };
        give(state, &answer, place, length, needed)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwEnumerateValueKey(
    handle: HANDLE,
    index: ULONG,
    class: KEY_VALUE_INFORMATION_CLASS,
    place: PVOID,
    length: ULONG,
    needed: PULONG,
) -> NTSTATUS {
    routine!("ZwEnumerateValueKey", PASSIVE_LEVEL, |state| {
        let path = path_of_handle(state, handle);
        let values = state.key(&path).unwrap_or_default();
        let Some((name, value)) = values.iter().nth(index as usize) else { return STATUS_NO_MORE_ENTRIES };
        let Some(answer) = information(class, name, value) else { return STATUS_INVALID_PARAMETER };
        give(state, &answer, place, length, needed)
    })
}

/// Deletes a key, which may have none below it.
pub fn delete(state: &State, path: &str) -> NTSTATUS {
    if state.subkeys(path).is_empty() && state.delete_key(path) { STATUS_SUCCESS } else { CANNOT_DELETE }
}

/// Its handles lead to nothing any more, and have to be closed.
#[unsafe(no_mangle)]
extern "C" fn ZwDeleteKey(handle: HANDLE) -> NTSTATUS {
    routine!("ZwDeleteKey", PASSIVE_LEVEL, |state| {
        let path = path_of_handle(state, handle);
        delete(state, &path)
    })
}
