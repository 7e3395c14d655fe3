//! Tracing: events of providers, and text for a debugger.

use std::{
    ffi::{CStr, c_char},
    ptr,
    sync::Mutex,
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, GUID, NTSTATUS, PETWENABLECALLBACK, PVOID, REGHANDLE, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS, UCHAR, ULONG,
};

use super::trace_fields;
use crate::{
    context::{self, DriverId},
    findings::{Field, Findings},
    kernel::Kernel,
    ndk_steps::NdkSteps,
    report::bug_check,
    routine::{self, routine},
    rule::Rule,
    state::{Part, State},
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
    /// `EVENT_DATA_DESCRIPTOR_TYPE_NONE`: a value.
    const VALUE: ULONG = 0;
    /// `EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA`: an event of `TraceLogging` describes itself.
    const METADATA: ULONG = 1;

    fn bytes(&self) -> Vec<u8> {
        let first = usize::try_from(self.address).unwrap_or(0);
        // SAFETY: the driver says that there are as many bytes.
        let byte = |offset| unsafe { ptr::with_exposed_provenance::<u8>(first + offset).read_volatile() };
        (0..self.size as usize).map(byte).collect()
    }
}

/// Registered providers of events.
#[derive(Default)]
pub struct Providers(LiteMap<u64, DriverId>);

impl Part for Mutex<Providers> {}

/// What was written of an event.
#[derive(Default)]
struct Written {
    count: u32,
    /// The sum of each field that is a number.
    sums: LiteMap<String, u64>,
}

/// What was written, by the name that each event says of itself.
#[derive(Default)]
pub struct Events(LiteMap<String, Written>);

impl Events {
    fn hear(&mut self, name: &str, fields: &[(String, Field)]) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Written::default());
        }
        let Some(written) = self.0.get_mut(name) else { return };
        written.count += 1;
        for (field, value) in fields {
            let &Field::Number(value) = value else { continue };
            if let Some(sum) = written.sums.get_mut(field) {
                *sum = sum.wrapping_add(value);
            } else {
                written.sums.insert(field.clone(), value);
            }
        }
    }
}

impl Part for Mutex<Events> {}

/// The caller has a new provider of events. Its number.
pub fn register(state: &State) -> u64 {
    let number = state.next();
    state.locked::<Providers>().0.insert(number, context::caller());
    number
}

impl State {
    /// A driver is unloaded: it must have deregistered its providers.
    pub fn check_providers(&self, owner: DriverId, name: &str) {
        if self.locked::<Providers>().0.values().any(|&one| one == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a provider of events registered"));
        }
    }
}

impl Kernel {
    /// How often each event of `TraceLogging` was written, by its name.
    #[must_use]
    pub fn events(&self) -> LiteMap<String, u32> {
        let events = self.state.locked::<Events>();
        events.0.iter().map(|(name, written)| (name.clone(), written.count)).collect()
    }

    /// The sum of a field, which is a number, over all events with that name; zero if none was written.
    #[must_use]
    pub fn event_sum(&self, event: &str, field: &str) -> u64 {
        let events = self.state.locked::<Events>();
        events.0.get(event).and_then(|written| written.sums.get(field)).copied().unwrap_or(0)
    }
}

/// A provider whose registration has failed has the handle zero, and may go on to use it.
fn is_registered(state: &State, handle: REGHANDLE) -> bool {
    if handle != 0 && !state.locked::<Providers>().0.contains_key(&handle) {
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
        let number = register(state);
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
        if state.locked::<Providers>().0.remove(&handle).is_none() {
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
    let (mut description, mut values) = (Vec::new(), Vec::new());
    for index in 0..count as usize {
        // SAFETY: the driver says that there are as many parts.
        let part = unsafe { data.add(index).read_unaligned() };
        let bytes = part.bytes();
        match part.kind & 0xFF {
            EventData::METADATA => description.extend(bytes),
            EventData::VALUE => values.extend(bytes),
            _ => {}
        }
    }
    if let Some((name, fields)) = trace_fields::read(&description, &values) {
        state.part::<NdkSteps>().hear(&name, &fields);
        state.hear_of_memory(&name, &fields);
        if name == "Finding" {
            state.part::<Findings>().hear(&fields);
        }
        state.locked::<Events>().hear(&name, &fields);
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

/// The arguments are a list that the driver has made.
#[unsafe(no_mangle)]
extern "C" fn vDbgPrintEx(_component: ULONG, _level: ULONG, format: *const c_char, _arguments: *const u8) -> ULONG {
    print("vDbgPrintEx", format)
}

#[unsafe(no_mangle)]
extern "C" fn vDbgPrintExWithPrefix(
    _prefix: *const c_char,
    _component: ULONG,
    _level: ULONG,
    format: *const c_char,
    _arguments: *const u8,
) -> ULONG {
    print("vDbgPrintExWithPrefix", format)
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
    routine::carry_out(name, &routine::Limit::at(Irql::HIGH_LEVEL), |_| {
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
        if routine::trace() {
            eprintln!("{name}: {}", text.to_string_lossy().trim_end());
        }
        0
    })
}
