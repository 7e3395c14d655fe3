//! Tracing: events of providers, and text for a debugger.

use std::{ffi::CStr, ffi::c_char, ptr};

use host::machine::Irql;
use wdk_bindings::{BOOLEAN, NTSTATUS, PVOID, REGHANDLE, STATUS_INVALID_HANDLE, STATUS_SUCCESS, UCHAR, ULONG};

use super::routine;
use crate::{
    kernel::{self, State, lock},
    report::bug_check,
    rule::Rule,
};

/// `EVENT_DATA_DESCRIPTOR`: a part of an event.
#[repr(C)]
struct EventData {
    address: u64,
    size: ULONG,
    reserved: ULONG,
}

/// A provider whose registration has failed has the handle zero, and may go on to use it.
fn is_registered(state: &State, handle: REGHANDLE) -> bool {
    if handle != 0 && !lock(&state.wdm.etw).contains_key(&handle) {
        bug_check(Rule::BadHandle, format_args!("{handle} is no registered provider of events"));
    }
    handle != 0
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
    if !is_registered(state, handle) {
        return STATUS_INVALID_HANDLE;
    }
    touch(descriptor.expose_provenance(), DESCRIPTOR);
    for index in 0..count as usize {
        // SAFETY: the driver says that there are as many parts.
        let part = unsafe { data.add(index) };
        // SAFETY: as above.
        let part = unsafe { part.read_unaligned() };
        touch(usize::try_from(part.address).unwrap_or(0), part.size);
    }
    STATUS_SUCCESS
}

/// Everybody listens, so that what a driver says is looked at.
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

/// The arguments behind the format are not looked at: the text is the format itself, and shown with the trace of calls only.
#[unsafe(no_mangle)]
extern "C" fn DbgPrint(format: *const c_char) -> ULONG {
    print("DbgPrint", format)
}

#[unsafe(no_mangle)]
extern "C" fn DbgPrintEx(_component: ULONG, _level: ULONG, format: *const c_char) -> ULONG {
    print("DbgPrintEx", format)
}

fn print(name: &'static str, format: *const c_char) -> ULONG {
    // The reference allows any level at which the format's arguments can be read.
    kernel::routine(
        name,
        || Irql::HIGH_LEVEL,
        |_| {
            if kernel::trace() && !format.is_null() {
                // SAFETY: the driver's text ends with a zero.
                let text = unsafe { CStr::from_ptr(format) };
                eprintln!("{name}: {}", text.to_string_lossy().trim_end());
            }
            0
        },
    )
}
