//! Tracing by WPP: what its generated code imports, or looks up by name. Nobody listens, so no message is asked for; one that comes all the
//! same is for nobody.

use std::ffi::c_void;

use wdk_bindings::{
    NTSTATUS, PDEVICE_OBJECT, PULONG, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_HANDLE, STATUS_SUCCESS,
    ULONG,
};

use crate::{report::bug_check, routine::routine, rule::Rule, wdm::trace};

/// Registers the provider of a driver, whose routine would be called if somebody listened.
#[unsafe(no_mangle)]
extern "C" fn EtwRegisterClassicProvider(
    provider: *const c_void,
    _kind: ULONG,
    routine: *const c_void,
    _argument: PVOID,
    handle: *mut u64,
) -> NTSTATUS {
    routine!("EtwRegisterClassicProvider", APC_LEVEL, |state| {
        if provider.is_null() || routine.is_null() {
            bug_check(Rule::BadArgument, format_args!("a provider of events without identifier or routine"));
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let number = trace::register(state);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(number) };
        STATUS_SUCCESS
    })
}

/// Registers a device, or takes that back.
#[unsafe(no_mangle)]
extern "C" fn IoWMIRegistrationControl(device: PDEVICE_OBJECT, action: ULONG) -> NTSTATUS {
    routine!("IoWMIRegistrationControl", PASSIVE_LEVEL, |_| {
        if device.is_null() || !(1..=5).contains(&(action & 0xFFFF)) {
            bug_check(Rule::BadArgument, format_args!("IoWMIRegistrationControl with the action {action}"));
        }
        STATUS_SUCCESS
    })
}

/// No session has a handle that a driver could ask about.
#[unsafe(no_mangle)]
extern "C" fn WmiQueryTraceInformation(
    _class: ULONG,
    _information: PVOID,
    _length: ULONG,
    needed: PULONG,
    _buffer: PVOID,
) -> NTSTATUS {
    routine!("WmiQueryTraceInformation", HIGH_LEVEL, |_| {
        // SAFETY: null or the driver's place, which lives until the call returns.
        if let Some(needed) = unsafe { needed.as_mut() } {
            *needed = 0;
        }
        STATUS_INVALID_HANDLE
    })
}

/// There is no session that a message could be for. What comes after `number` are pointers and lengths, which are not read.
#[unsafe(no_mangle)]
extern "C" fn WmiTraceMessage(_session: u64, _flags: ULONG, _message: *const c_void, _number: u16) -> NTSTATUS {
    routine!("WmiTraceMessage", HIGH_LEVEL, |_| STATUS_INVALID_HANDLE)
}

/// The same, with a list of arguments.
#[unsafe(no_mangle)]
extern "C" fn WmiTraceMessageVa(
    _session: u64,
    _flags: ULONG,
    _message: *const c_void,
    _number: u16,
    _arguments: PVOID,
) -> NTSTATUS {
    routine!("WmiTraceMessageVa", HIGH_LEVEL, |_| STATUS_INVALID_HANDLE)
}
