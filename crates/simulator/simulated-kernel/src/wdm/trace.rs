//! Tracing: events of providers, and text for a debugger.

use std::{ffi::CStr, ffi::c_char, ptr};

use host::machine::{self, Irql};
use wdk_bindings::{
    BOOLEAN, GUID, NTSTATUS, PETWENABLECALLBACK, PVOID, REGHANDLE, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS, UCHAR, ULONG,
};

use super::routine;
use crate::{
    context,
    kernel::{self, State, lock},
    report::bug_check,
    rule::Rule,
};

/// `EVENT_DATA_DESCRIPTOR`: a part of an event.
#[repr(C)]
struct EventData {
    address: u64,
    size: ULONG,
    /// The lowest byte is the part's type.
    kind: ULONG,
}

impl EventData {
    /// `EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA`: an event of `TraceLogging` describes itself.
    const METADATA: ULONG = 1;

    fn bytes(&self) -> Vec<u8> {
        let first = usize::try_from(self.address).unwrap_or(0);
        // SAFETY: the driver says that there are as many bytes.
        let byte = |offset| unsafe { ptr::with_exposed_provenance::<u8>(first + offset).read_volatile() };
        (0..self.size as usize).map(byte).collect()
    }

    /// The name that an event says of itself: behind the size and the tags, of which the last byte has its highest bit clear.
    fn name(&self) -> Option<String> {
        let bytes = self.bytes();
        let tags = bytes.get(2..)?;
        let name = &tags[tags.iter().position(|tag| tag & 0x80 == 0)? + 1..];
        let name = CStr::from_bytes_until_nul(name).ok()?;
        Some(name.to_string_lossy().into_owned())
    }
}

/// A provider whose registration has failed has the handle zero, and may go on to use it.
fn is_registered(state: &State, handle: REGHANDLE) -> bool {
    if handle != 0 && !lock(&state.wdm.etw).contains_key(&handle) {
        bug_check(Rule::BadHandle, format_args!("{handle} is no registered provider of events"));
    }
    handle != 0
}

/// A session listens to every provider, at every level: the driver is told so before it has its handle, as Windows may do.
#[unsafe(no_mangle)]
extern "C" fn EtwRegister(
    provider: *const GUID,
    callback: PETWENABLECALLBACK,
    argument: PVOID,
    handle: *mut REGHANDLE,
) -> NTSTATUS {
    /// `EVENT_CONTROL_CODE_ENABLE_PROVIDER`.
    const ENABLE: ULONG = 1;
    routine!("EtwRegister", |state| {
        let number = state.next();
        lock(&state.wdm.etw).insert(number, context::caller());
        if let Some(callback) = callback {
            context::call(context::caller(), "the enable callback of a provider of events", || {
                // SAFETY: the driver's own callback with its context; the identifier lives until EtwRegister returns.
                unsafe { callback(provider, ENABLE, UCHAR::MAX, u64::MAX, 0, ptr::null_mut(), argument) };
            });
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(number) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn EtwUnregister(handle: REGHANDLE) -> NTSTATUS {
    routine!("EtwUnregister", |state| {
        if lock(&state.wdm.etw).remove(&handle).is_none() {
            bug_check(Rule::BadHandle, format_args!("{handle} is no registered provider of events"));
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn EtwSetInformation(handle: REGHANDLE, _class: u32, information: PVOID, length: ULONG) -> NTSTATUS {
    routine!("EtwSetInformation", |state| {
        if !is_registered(state, handle) {
            return STATUS_INVALID_HANDLE;
        }
        touch(information.expose_provenance(), length);
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn EtwWriteTransfer(
    handle: REGHANDLE,
    descriptor: *const u8,
    _activity: *const u8,
    _related: *const u8,
    count: ULONG,
    data: *const EventData,
) -> NTSTATUS {
    routine!("EtwWriteTransfer", |state| write(state, handle, descriptor, count, data))
}

#[unsafe(no_mangle)]
extern "C" fn EtwWrite(
    handle: REGHANDLE,
    descriptor: *const u8,
    _activity: *const u8,
    count: ULONG,
    data: *const EventData,
) -> NTSTATUS {
    routine!("EtwWrite", |state| write(state, handle, descriptor, count, data))
}

fn write(state: &State, handle: REGHANDLE, descriptor: *const u8, count: ULONG, data: *const EventData) -> NTSTATUS {
    /// Bytes of `EVENT_DESCRIPTOR`.
    const DESCRIPTOR: ULONG = 16;
    /// `MAX_EVENT_DATA_DESCRIPTORS`.
    const MOST: ULONG = 128;
    if !is_registered(state, handle) {
        return STATUS_INVALID_HANDLE;
    }
    touch(descriptor.expose_provenance(), DESCRIPTOR);
    if count > MOST {
        return STATUS_INVALID_PARAMETER;
    }
    for index in 0..count as usize {
        // SAFETY: the driver says that there are as many parts.
        let part = unsafe { data.add(index) };
        // SAFETY: as above.
        let part = unsafe { part.read_unaligned() };
        touch(usize::try_from(part.address).unwrap_or(0), part.size);
        if part.kind & 0xFF == EventData::METADATA
            && let Some(name) = part.name()
        {
            *lock(&state.wdm.events).entry(name).or_default() += 1;
        }
    }
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn EtwEventEnabled(handle: REGHANDLE, _descriptor: *const u8) -> BOOLEAN {
    routine!("EtwEventEnabled", |state| BOOLEAN::from(is_registered(state, handle)))
}

#[unsafe(no_mangle)]
extern "C" fn EtwProviderEnabled(handle: REGHANDLE, _level: UCHAR, _keyword: u64) -> BOOLEAN {
    routine!("EtwProviderEnabled", |state| BOOLEAN::from(is_registered(state, handle)))
}

/// Reads what an event is made of, as whoever records it does: memory that is paged out or not there is found here.
fn touch(address: usize, length: ULONG) {
    for offset in 0..length as usize {
        let place = ptr::with_exposed_provenance::<u8>(address + offset);
        // SAFETY: the driver says that there are as many bytes.
        unsafe { place.read_volatile() };
    }
}

/// The arguments behind the format are not looked at, but for what kind they are: the text is the format itself, and shown with the trace of calls only.
#[unsafe(no_mangle)]
extern "C" fn DbgPrint(format: *const c_char) -> ULONG {
    print("DbgPrint", format)
}

#[unsafe(no_mangle)]
extern "C" fn DbgPrintEx(_component: ULONG, _level: ULONG, format: *const c_char) -> ULONG {
    print("DbgPrintEx", format)
}

/// Returns true if a format has an argument of wide characters.
fn is_wide(format: &[u8]) -> bool {
    let mut conversions = format.split(|&byte| byte == b'%').skip(1);
    while let Some(conversion) = conversions.next() {
        if conversion.is_empty() {
            // A percent sign, and what is behind it is text.
            conversions.next();
            continue;
        }
        let width = conversion.iter().take_while(|byte| b"-+ #0123456789.*".contains(byte)).count();
        if matches!(&conversion[width..], [b'S' | b'C', ..] | [b'l' | b'w', b's' | b'c', ..] | [b'w', b'Z', ..]) {
            return true;
        }
    }
    false
}

fn print(name: &'static str, format: *const c_char) -> ULONG {
    // The reference allows any level at which the format's arguments can be read.
    kernel::routine(
        name,
        || Irql::HIGH_LEVEL,
        |_| {
            if format.is_null() {
                return 0;
            }
            // SAFETY: the driver's text ends with a zero.
            let text = unsafe { CStr::from_ptr(format) };
            let level = machine::current_irql();
            if level > Irql::PASSIVE_LEVEL && is_wide(text.to_bytes()) {
                let words = format_args!("{name} of wide characters, whose tables are pageable, at {level}: {text:?}");
                bug_check(Rule::IrqlTooHigh, words);
            }
            if kernel::trace() {
                eprintln!("{name}: {}", text.to_string_lossy().trim_end());
            }
            0
        },
    )
}
