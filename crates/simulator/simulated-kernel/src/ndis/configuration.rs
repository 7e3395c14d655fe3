//! The keywords of an adapter in the registry.

use std::{ffi::c_void, sync::Mutex};

use litemap::LiteMap;
use ndis::{
    NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER, NDIS_CONFIGURATION_PARAMETER_DATA, NDIS_PARAMETER_TYPE,
    NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STRING,
};
use ndkpi::{
    NDIS_HANDLE,
    status::{NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::UNICODE_STRING;

use super::{
    owner::Owner,
    structure::{ndis_routine, pointer, read},
};
use crate::{
    ndis::adapter::Adapters,
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    text,
};

/// The tag of values that drivers read.
const TAG: u32 = u32::from_ne_bytes(*b"NDcf");

/// A configuration that a driver has open.
pub struct Configuration {
    pub owner: Owner,
    keywords: LiteMap<String, String>,
    /// Blocks with values, which go when it is closed.
    values: Vec<usize>,
}

fn with<R>(state: &State, handle: NDIS_HANDLE, work: impl FnOnce(&mut Configuration) -> R) -> R {
    let mut configurations = state.locked::<Configurations>();
    let Some(configuration) = configurations.0.get_mut(&handle.addr()) else {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no configuration, or was one"));
    };
    work(configuration)
}

/// Those that are open.
#[derive(Default)]
pub struct Configurations(pub LiteMap<usize, Configuration>);

impl Part for Mutex<Configurations> {}

/// A keyword's value.
#[derive(Clone)]
enum Setting {
    /// As an installation has it.
    Text(String),
    /// As drivers write it.
    Number(u32),
}

/// What drivers have written: by whose keyword it is and its name in small letters.
#[derive(Default)]
pub struct Written(LiteMap<(usize, String), Setting>);

impl Part for Mutex<Written> {}

/// The value of a keyword of the adapter, whatever its case.
fn value(state: &State, handle: NDIS_HANDLE, name: &str) -> Option<Setting> {
    let (owner, installed) = with(state, handle, |configuration| {
        let found = configuration.keywords.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(name));
        (configuration.owner, found.map(|(_, value)| Setting::Text(value.clone())))
    });
    let written = state.locked::<Written>().0.get(&(owner.handle, name.to_ascii_lowercase())).cloned();
    written.or(installed)
}

/// The number that a value is, or says in digits of that radix.
fn number(value: Setting, radix: u32) -> Option<u32> {
    match value {
        Setting::Number(number) => Some(number),
        Setting::Text(text) => u32::from_str_radix(&text, radix).ok(),
    }
}

/// Memory of the configuration, which goes when it is closed.
fn allocate(state: &State, handle: NDIS_HANDLE, size: usize) -> Option<usize> {
    if state.strikes() {
        return None;
    }
    // Nobody's: the driver does not free it.
    let place = pool::allocate(crate::context::NOBODY, size, TAG, true)?;
    with(state, handle, |configuration| configuration.values.push(place));
    Some(place)
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisOpenConfigurationEx(
    object: *const NDIS_CONFIGURATION_OBJECT,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisOpenConfigurationEx", PASSIVE_LEVEL, |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let object = unsafe { read(object, NDIS_CONFIGURATION_OBJECT::HEADER, "NDIS_CONFIGURATION_OBJECT") };
        if object.Flags != 0 {
            bug_check(Rule::BadArgument, format_args!("a configuration with the flags {:#x}", object.Flags));
        }
        let owner = state.owner_of(object.NdisHandle);
        let adapter = state.locked::<Adapters>().live.get(&owner.handle).cloned();
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let keywords = adapter.map(|adapter| adapter.keywords.clone()).unwrap_or_default();
        let handle = state.new_handle();
        state.locked::<Configurations>().0.insert(handle, Configuration { owner, keywords, values: Vec::new() });
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(pointer(handle)) };
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisCloseConfiguration(handle: NDIS_HANDLE) {
    ndis_routine!("NdisCloseConfiguration", PASSIVE_LEVEL, |state| {
        let closed = state.locked::<Configurations>().0.remove(&handle.addr());
        let Some(closed) = closed else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no configuration, or was one"));
        };
        closed.values.into_iter().for_each(|value| pool::free(value, Some(TAG)));
    });
}

/// The value as the driver wants it. `None` if it is not there, not such a value, or if there is no memory.
fn parameter(
    state: &State,
    handle: NDIS_HANDLE,
    name: &str,
    kind: NDIS_PARAMETER_TYPE,
) -> Result<*mut NDIS_CONFIGURATION_PARAMETER, NDIS_STATUS> {
    let value = value(state, handle, name).ok_or(NDIS_STATUS_FAILURE)?;
    let size = size_of::<NDIS_CONFIGURATION_PARAMETER>();
    let data = match kind {
        NDIS_PARAMETER_TYPE::INTEGER => {
            let number = number(value, 10).ok_or(NDIS_STATUS_FAILURE)?;
            NDIS_CONFIGURATION_PARAMETER_DATA { IntegerData: number }
        }
        NDIS_PARAMETER_TYPE::HEX_INTEGER => {
            let number = number(value, 16).ok_or(NDIS_STATUS_FAILURE)?;
            NDIS_CONFIGURATION_PARAMETER_DATA { IntegerData: number }
        }
        NDIS_PARAMETER_TYPE::STRING => {
            let Setting::Text(value) = value else { return Err(NDIS_STATUS_FAILURE) };
            let units: Vec<u16> = value.encode_utf16().collect();
            let bytes = size_of_val(&*units);
            let place = allocate(state, handle, bytes.max(1)).ok_or(NDIS_STATUS_RESOURCES)?;
            let buffer: *mut u16 = std::ptr::with_exposed_provenance_mut(place);
            // SAFETY: a new block of as many bytes.
            unsafe { buffer.copy_from_nonoverlapping(units.as_ptr(), units.len()) };
            let length = u16::try_from(bytes).map_err(|_| NDIS_STATUS_FAILURE)?;
            let string = NDIS_STRING { Length: length, MaximumLength: length, Buffer: buffer };
            NDIS_CONFIGURATION_PARAMETER_DATA { StringData: string }
        }
        other => bug_check(Rule::NotSimulated, format_args!("a keyword of the type {other:?}")),
    };
    let place = allocate(state, handle, size).ok_or(NDIS_STATUS_RESOURCES)?;
    let parameter: *mut NDIS_CONFIGURATION_PARAMETER = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: a new block of that size.
    unsafe { parameter.write(NDIS_CONFIGURATION_PARAMETER { ParameterType: kind, ParameterData: data }) };
    Ok(parameter)
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisReadConfiguration(
    status: *mut NDIS_STATUS,
    place: *mut *mut NDIS_CONFIGURATION_PARAMETER,
    handle: NDIS_HANDLE,
    keyword: *const NDIS_STRING,
    kind: NDIS_PARAMETER_TYPE,
) {
    ndis_routine!("NdisReadConfiguration", PASSIVE_LEVEL, |state| {
        // Both kinds of strings have one layout.
        let name = text::text(keyword.cast::<UNICODE_STRING>());
        let (outcome, value) = match parameter(state, handle, &name, kind) {
            Ok(parameter) => (NDIS_STATUS_SUCCESS, parameter),
            Err(status) => (status, std::ptr::null_mut()),
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe {
            status.write(outcome);
            place.write(value);
        }
    });
}

/// What a driver writes.
fn setting(parameter: &NDIS_CONFIGURATION_PARAMETER) -> Result<Setting, NDIS_STATUS> {
    match parameter.ParameterType {
        NDIS_PARAMETER_TYPE::INTEGER | NDIS_PARAMETER_TYPE::HEX_INTEGER => {
            // SAFETY: the driver says that it is a number.
            Ok(Setting::Number(unsafe { parameter.ParameterData.IntegerData }))
        }
        NDIS_PARAMETER_TYPE::STRING => {
            // SAFETY: the driver says that it is a string.
            let string = unsafe { parameter.ParameterData.StringData };
            Ok(Setting::Text(text::text((&raw const string).cast::<UNICODE_STRING>())))
        }
        kind @ (NDIS_PARAMETER_TYPE::MULTI_STRING | NDIS_PARAMETER_TYPE::BINARY) => {
            bug_check(Rule::NotSimulated, format_args!("a keyword of the type {kind:?}"))
        }
        _ => Err(NDIS_STATUS_NOT_SUPPORTED),
    }
}

/// The value stays when the configuration is closed.
#[unsafe(no_mangle)]
extern "system" fn NdisWriteConfiguration(
    status: *mut NDIS_STATUS,
    handle: NDIS_HANDLE,
    keyword: *const NDIS_STRING,
    parameter: *const NDIS_CONFIGURATION_PARAMETER,
) {
    ndis_routine!("NdisWriteConfiguration", PASSIVE_LEVEL, |state| {
        // Both kinds of strings have one layout.
        let name = text::text(keyword.cast::<UNICODE_STRING>()).to_ascii_lowercase();
        let owner = with(state, handle, |configuration| configuration.owner);
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let Some(parameter) = (unsafe { parameter.as_ref() }) else {
            bug_check(Rule::BadArgument, format_args!("a keyword is written without a value"));
        };
        let outcome = if state.strikes() { Err(NDIS_STATUS_RESOURCES) } else { setting(parameter) };
        let said = outcome.map(|setting| state.locked::<Written>().0.insert((owner.handle, name), setting));
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { status.write(said.err().unwrap_or(NDIS_STATUS_SUCCESS)) };
    });
}

/// The bytes of an address such as `02-00-5E-00-00-01`, with or without what separates them.
fn address(value: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        value.chars().filter(|letter| *letter != '-').map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok());
    pairs.collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty())
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisReadNetworkAddress(
    status: *mut NDIS_STATUS,
    place: *mut *mut c_void,
    length: *mut u32,
    handle: NDIS_HANDLE,
) {
    ndis_routine!("NdisReadNetworkAddress", PASSIVE_LEVEL, |state| {
        let chosen = value(state, handle, "NetworkAddress");
        let bytes = chosen.and_then(|value| if let Setting::Text(text) = value { address(&text) } else { None });
        let outcome = bytes.ok_or(NDIS_STATUS_FAILURE).and_then(|bytes| {
            let block = allocate(state, handle, bytes.len()).ok_or(NDIS_STATUS_RESOURCES)?;
            Ok((block, bytes))
        });
        let (said, buffer, bytes) = match &outcome {
            Ok((block, bytes)) => (NDIS_STATUS_SUCCESS, std::ptr::with_exposed_provenance_mut::<u8>(*block), &**bytes),
            Err(said) => (*said, std::ptr::null_mut(), [].as_slice()),
        };
        if !buffer.is_null() {
            // SAFETY: a new block of as many bytes.
            unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe {
            status.write(said);
            place.write(buffer.cast());
            length.write(u32::try_from(bytes.len()).unwrap_or(0));
        }
    });
}
