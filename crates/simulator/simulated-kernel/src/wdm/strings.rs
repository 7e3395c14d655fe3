//! Strings that are converted: from and to the code page of programs, to capitals, from an identifier.
//!
//! A string that a routine allocates is the driver's, in paged pool, and goes with `RtlFreeUnicodeString` or `RtlFreeAnsiString`.

use std::ptr;

use wdk_bindings::{
    ANSI_STRING, BOOLEAN, GUID, NTSTATUS, PCUNICODE_STRING, STATUS_BUFFER_OVERFLOW, STATUS_INVALID_PARAMETER,
    STATUS_INVALID_PARAMETER_2, STATUS_NO_MEMORY, STATUS_SUCCESS, ULONG, UNICODE_STRING,
};

use super::memory;
use crate::{context, pool, report::bug_check, routine::routine, rule::Rule, state::State, text};

/// The tag of strings that the system allocates.
const TAG: u32 = u32::from_ne_bytes(*b"Strg");
/// What a character becomes that the code page does not have.
const UNKNOWN: u8 = b'?';
/// The characters from 0x80 on of the code page 1252. The rest of it are the first of Unicode; so are five of these, which are not used.
const FROM_80: [u16; 32] = [
    0x20AC, 0x81, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D, 0x017D,
    0x8F, 0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,
    0x017E, 0x0178,
];

fn unit_of(byte: u8) -> u16 {
    byte.checked_sub(0x80).and_then(|index| FROM_80.get(usize::from(index)).copied()).unwrap_or_else(|| byte.into())
}

fn byte_of(unit: u16) -> u8 {
    if let Some(index) = FROM_80.iter().position(|&one| one == unit) {
        return 0x80 + u8::try_from(index).unwrap_or(0);
    }
    u8::try_from(unit).ok().filter(|byte| !(0x80..0xA0).contains(byte)).unwrap_or(UNKNOWN)
}

/// The bytes of a driver's string.
fn bytes_of(string: *const ANSI_STRING) -> Vec<u8> {
    // SAFETY: the driver's string, which lives until the call returns.
    let string = unsafe { string.read() };
    if string.Length > string.MaximumLength {
        bug_check(Rule::BadArgument, format_args!("a string of {} of {} bytes", string.Length, string.MaximumLength));
    }
    if string.Length == 0 {
        return Vec::new();
    }
    // SAFETY: the string says that it has as many bytes.
    unsafe { std::slice::from_raw_parts(string.Buffer.cast::<u8>(), usize::from(string.Length)) }.to_vec()
}

/// Memory for so many bytes of a string.
fn allocate(state: &State, size: u16) -> Option<usize> {
    if state.strikes() { None } else { pool::allocate_paged(context::caller(), usize::from(size), TAG) }
}

/// Stores a string of which so many bytes count and the rest is a terminator: in memory of its own, or in that of the driver's string.
fn store(
    state: &State,
    bytes: &[u8],
    length: usize,
    (buffer, maximum): (*mut u8, u16),
    allocates: bool,
) -> Result<(*mut u8, u16, u16), NTSTATUS> {
    let Ok(size) = u16::try_from(bytes.len()) else { return Err(STATUS_INVALID_PARAMETER_2) };
    let (buffer, maximum) = if allocates {
        let Some(block) = allocate(state, size) else { return Err(STATUS_NO_MEMORY) };
        (ptr::with_exposed_provenance_mut(block), size)
    } else if size > maximum {
        return Err(STATUS_BUFFER_OVERFLOW);
    } else {
        (buffer, maximum)
    };
    // SAFETY: the buffer is new, or the driver's, and has as many bytes.
    unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok((buffer, u16::try_from(length).unwrap_or(0), maximum))
}

/// Stores units, and a terminator if there is to be one.
fn store_units(
    state: &State,
    target: *mut UNICODE_STRING,
    units: &[u16],
    terminator: bool,
    allocates: bool,
) -> NTSTATUS {
    let end = usize::from(terminator);
    let bytes: Vec<u8> = units.iter().chain(&[0][..end]).flat_map(|unit| unit.to_ne_bytes()).collect();
    // SAFETY: the driver's string, which lives until the call returns.
    let target = unsafe { &mut *target };
    match store(state, &bytes, 2 * units.len(), (target.Buffer.cast(), target.MaximumLength), allocates) {
        Ok((buffer, length, maximum)) => {
            *target = UNICODE_STRING { Length: length, MaximumLength: maximum, Buffer: buffer.cast() };
            STATUS_SUCCESS
        }
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
extern "C" fn RtlAnsiStringToUnicodeString(
    target: *mut UNICODE_STRING,
    source: *const ANSI_STRING,
    allocates: BOOLEAN,
) -> NTSTATUS {
    routine!("RtlAnsiStringToUnicodeString", PASSIVE_LEVEL, |state| {
        let units: Vec<u16> = bytes_of(source).into_iter().map(unit_of).collect();
        store_units(state, target, &units, true, allocates != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlUnicodeStringToAnsiString(
    target: *mut ANSI_STRING,
    source: PCUNICODE_STRING,
    allocates: BOOLEAN,
) -> NTSTATUS {
    routine!("RtlUnicodeStringToAnsiString", PASSIVE_LEVEL, |state| {
        let mut bytes: Vec<u8> = text::units(source).into_iter().map(byte_of).collect();
        let length = bytes.len();
        bytes.push(0);
        // SAFETY: the driver's string, which lives until the call returns.
        let target = unsafe { &mut *target };
        match store(state, &bytes, length, (target.Buffer.cast(), target.MaximumLength), allocates != 0) {
            Ok((buffer, length, maximum)) => {
                *target = ANSI_STRING { Length: length, MaximumLength: maximum, Buffer: buffer.cast() };
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// One unit in another case, if that is one unit too.
fn in_case<Letters: Iterator<Item = char>>(unit: u16, change: impl Fn(char) -> Letters) -> u16 {
    let Some(letter) = char::from_u32(unit.into()) else { return unit };
    let mut changed = change(letter);
    match (changed.next(), changed.next()) {
        (Some(one), None) => u16::try_from(u32::from(one)).unwrap_or(unit),
        _ => unit,
    }
}

#[unsafe(no_mangle)]
extern "C" fn RtlUpcaseUnicodeString(
    target: *mut UNICODE_STRING,
    source: PCUNICODE_STRING,
    allocates: BOOLEAN,
) -> NTSTATUS {
    routine!("RtlUpcaseUnicodeString", APC_LEVEL, |state| {
        let units: Vec<u16> = text::units(source).into_iter().map(|unit| in_case(unit, char::to_uppercase)).collect();
        store_units(state, target, &units, false, allocates != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlDowncaseUnicodeString(
    target: *mut UNICODE_STRING,
    source: PCUNICODE_STRING,
    allocates: BOOLEAN,
) -> NTSTATUS {
    routine!("RtlDowncaseUnicodeString", PASSIVE_LEVEL, |state| {
        let units: Vec<u16> = text::units(source).into_iter().map(|unit| in_case(unit, char::to_lowercase)).collect();
        store_units(state, target, &units, false, allocates != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlDuplicateUnicodeString(
    flags: ULONG,
    source: PCUNICODE_STRING,
    target: *mut UNICODE_STRING,
) -> NTSTATUS {
    /// `RTL_DUPLICATE_UNICODE_STRING_NULL_TERMINATE` and `RTL_DUPLICATE_UNICODE_STRING_ALLOCATE_NULL_STRING`.
    const TERMINATED: ULONG = 1;
    const ALSO_EMPTY: ULONG = 2;
    routine!("RtlDuplicateUnicodeString", PASSIVE_LEVEL, |state| {
        // The second is for those that want a terminator only.
        if flags & !(TERMINATED | ALSO_EMPTY) != 0 || flags == ALSO_EMPTY {
            return STATUS_INVALID_PARAMETER;
        }
        let units = text::units(source);
        if units.is_empty() && flags & ALSO_EMPTY == 0 {
            // SAFETY: the driver's string, which lives until the call returns.
            unsafe { target.write(UNICODE_STRING::default()) };
            return STATUS_SUCCESS;
        }
        store_units(state, target, &units, flags & TERMINATED != 0, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlStringFromGUID(guid: *const GUID, target: *mut UNICODE_STRING) -> NTSTATUS {
    routine!("RtlStringFromGUID", PASSIVE_LEVEL, |state| {
        // SAFETY: the driver's identifier, which lives until the call returns.
        let GUID { Data1, Data2, Data3, Data4 } = unsafe { guid.read() };
        // The last eight bytes are in the order in which they are said, and so one number.
        let (last, node) = (u64::from_be_bytes(Data4), (1 << 48) - 1);
        let words = format!("{{{Data1:08X}-{Data2:04X}-{Data3:04X}-{:04X}-{:012X}}}", last >> 48, last & node);
        store_units(state, target, &words.encode_utf16().collect::<Vec<u16>>(), true, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlFreeUnicodeString(string: *mut UNICODE_STRING) {
    routine!("RtlFreeUnicodeString", APC_LEVEL, |_| {
        // SAFETY: the driver's string, which lives until the call returns.
        let buffer = std::mem::take(unsafe { &mut *string }).Buffer;
        if !buffer.is_null() {
            memory::free(buffer.cast(), None);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn RtlFreeAnsiString(string: *mut ANSI_STRING) {
    routine!("RtlFreeAnsiString", APC_LEVEL, |_| {
        // SAFETY: the driver's string, which lives until the call returns.
        let buffer = std::mem::take(unsafe { &mut *string }).Buffer;
        if !buffer.is_null() {
            memory::free(buffer.cast(), None);
        }
    });
}
