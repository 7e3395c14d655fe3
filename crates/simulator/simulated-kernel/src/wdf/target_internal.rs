//! Control codes that drivers send to each other, with buffers or with addresses (`Others`), and how a driver gets them.

use wdk_bindings::{NTSTATUS, PWDF_DRIVER_GLOBALS, ULONG, WDFIOTARGET, WDFMEMORY, WDFREQUEST};

use super::{
    function::entry,
    request::Asks,
    sent::{Form, MemoryOffset, SendOptions, format},
    target_io::{MemoryDescriptor, described, format_control, of_memory, send_control, told, wait_for},
};
use crate::routine::routine;

pub extern "C" fn WdfIoTargetFormatRequestForInternalIoctl(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    input: WDFMEMORY,
    of_input: *const MemoryOffset,
    output: WDFMEMORY,
    of_output: *const MemoryOffset,
) -> NTSTATUS {
    routine!("WdfIoTargetFormatRequestForInternalIoctl", DISPATCH_LEVEL, |state| {
        // SAFETY: null or the driver's, and live until the call returns.
        unsafe { format_control(state, (to, request), (Asks::Internal, code), (input, of_input), (output, of_output)) }
    })
}

pub extern "C" fn WdfIoTargetSendInternalIoctlSynchronously(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    input: *const MemoryDescriptor,
    output: *const MemoryDescriptor,
    options: *const SendOptions,
    returned: *mut usize,
) -> NTSTATUS {
    routine!("WdfIoTargetSendInternalIoctlSynchronously", PASSIVE_LEVEL, |state| {
        // SAFETY: null or the driver's, and live until the call returns.
        let result = unsafe { send_control(state, (to, request), (Asks::Internal, code), (input, output), options) };
        told(result, returned)
    })
}

pub extern "C" fn WdfIoTargetFormatRequestForInternalIoctlOthers(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    first: WDFMEMORY,
    of_first: *const MemoryOffset,
    second: WDFMEMORY,
    of_second: *const MemoryOffset,
    fourth: WDFMEMORY,
    of_fourth: *const MemoryOffset,
) -> NTSTATUS {
    routine!("WdfIoTargetFormatRequestForInternalIoctlOthers", DISPATCH_LEVEL, |state| {
        format(state, to, request, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let piece = |memory, offset| unsafe { of_memory(state, memory, offset) };
            let arguments = [piece(first, of_first)?, piece(second, of_second)?, piece(fourth, of_fourth)?];
            Ok(Form::Others { code, arguments })
        })
    })
}

pub extern "C" fn WdfIoTargetSendInternalIoctlOthersSynchronously(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    first: *const MemoryDescriptor,
    second: *const MemoryDescriptor,
    fourth: *const MemoryDescriptor,
    options: *const SendOptions,
    returned: *mut usize,
) -> NTSTATUS {
    routine!("WdfIoTargetSendInternalIoctlOthersSynchronously", PASSIVE_LEVEL, |state| {
        let result = wait_for(state, to, request, options, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let piece = |descriptor| unsafe { described(state, descriptor) };
            Ok(Form::Others { code, arguments: [piece(first)?, piece(second)?, piece(fourth)?] })
        });
        told(result, returned)
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 4] {
    [
        entry!(WdfIoTargetFormatRequestForInternalIoctl),
        entry!(WdfIoTargetSendInternalIoctlSynchronously),
        entry!(WdfIoTargetFormatRequestForInternalIoctlOthers),
        entry!(WdfIoTargetSendInternalIoctlOthersSynchronously),
    ]
}
