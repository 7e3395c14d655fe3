//! What drivers ask of I/O targets: the forms of requests, requests that are waited for, and the target's state.

use std::{ptr, sync::Arc};

use wdk_bindings::{
    _WDF_IO_TARGET_STATE, NTSTATUS, POOL_TYPE, PULONG, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_STATE, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG,
    WDF_IO_TARGET_STATE, WDFIOTARGET, WDFMEMORY, WDFREQUEST,
};

use super::{
    function::entry,
    object::check_level,
    request::{Asks, RequestObject, at_hand},
    sent::{Form, MemoryOffset, Options, Piece, SendOptions, format, send},
    target::target,
};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
};

/// What becomes of what was sent when a target is stopped: cancelled and waited for, waited for, left.
const CANCEL_SENT_IO: i32 = 1;
const WAIT_FOR_SENT_IO: i32 = 2;
const LEAVE_SENT_IO: i32 = 3;
/// Whether a purge waits.
const PURGE_AND_WAIT: i32 = 1;
const PURGE: i32 = 2;

/// `WDF_MEMORY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryDescriptor {
    /// A buffer, an MDL or a memory object.
    kind: i32,
    /// The buffer or the object.
    what: PVOID,
    /// The buffer's length, or where the part of the object is (`WDFMEMORY_OFFSET`).
    length: usize,
}

const _: () = assert!(size_of::<MemoryDescriptor>() == 24);

/// The buffer that a driver describes, if it does.
///
/// # Safety
///
/// The structure is null or the driver's.
pub unsafe fn described(state: &State, descriptor: *const MemoryDescriptor) -> Result<Option<Piece>, NTSTATUS> {
    // SAFETY: null or the driver's structure (`# Safety`).
    let Some(descriptor) = (unsafe { descriptor.as_ref() }) else { return Ok(None) };
    Ok(Some(match descriptor.kind {
        // The length has 32 bits; behind it the structure has whatever was there.
        1 => Piece::of_driver(descriptor.what, descriptor.length & 0xFFFF_FFFF),
        3 => {
            let offset = ptr::with_exposed_provenance(descriptor.length);
            // SAFETY: null or the driver's structure.
            unsafe { Piece::of_memory(state, descriptor.what.cast(), offset) }?
        }
        2 => Piece::of_mdl(state, descriptor.what.cast(), descriptor.length & 0xFFFF_FFFF),
        kind => bug_check(Rule::BadArgument, format_args!("a memory descriptor of the type {kind}")),
    }))
}

/// The part of a memory object, if there is one.
///
/// # Safety
///
/// The offset is null or the driver's.
pub unsafe fn of_memory(
    state: &State,
    memory: WDFMEMORY,
    offset: *const MemoryOffset,
) -> Result<Option<Piece>, NTSTATUS> {
    if memory.is_null() {
        return Ok(None);
    }
    // SAFETY: null or the driver's structure (`# Safety`).
    unsafe { Piece::of_memory(state, memory, offset) }.map(Some)
}

/// Where a read or write begins.
///
/// # Safety
///
/// The number is null or the driver's.
unsafe fn begins(offset: *const i64) -> i64 {
    // SAFETY: null or the driver's number (`# Safety`).
    unsafe { offset.as_ref() }.copied().unwrap_or(0)
}

pub extern "C" fn WdfIoTargetFormatRequestForRead(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    output: WDFMEMORY,
    part: *const MemoryOffset,
    offset: *const i64,
) -> NTSTATUS {
    routine!("WdfIoTargetFormatRequestForRead", DISPATCH_LEVEL, |state| {
        format(state, to, request, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let (output, offset) = unsafe { (of_memory(state, output, part)?, begins(offset)) };
            Ok(Form::Of { asks: Asks::Read, code: 0, offset, input: None, output })
        })
    })
}

pub extern "C" fn WdfIoTargetFormatRequestForWrite(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    input: WDFMEMORY,
    part: *const MemoryOffset,
    offset: *const i64,
) -> NTSTATUS {
    routine!("WdfIoTargetFormatRequestForWrite", DISPATCH_LEVEL, |state| {
        format(state, to, request, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let (input, offset) = unsafe { (of_memory(state, input, part)?, begins(offset)) };
            Ok(Form::Of { asks: Asks::Write, code: 0, offset, input, output: None })
        })
    })
}

/// A control code: for whoever opens the device, or for a driver.
///
/// # Safety
///
/// The offsets are null or the driver's.
pub unsafe fn format_control(
    state: &Arc<State>,
    (to, request): (WDFIOTARGET, WDFREQUEST),
    (asks, code): (Asks, ULONG),
    (input, of_input): (WDFMEMORY, *const MemoryOffset),
    (output, of_output): (WDFMEMORY, *const MemoryOffset),
) -> NTSTATUS {
    format(state, to, request, || {
        // SAFETY: null or the driver's (`# Safety`).
        let (input, output) = unsafe { (of_memory(state, input, of_input)?, of_memory(state, output, of_output)?) };
        Ok(Form::Of { asks, code, offset: 0, input, output })
    })
}

/// The same, sent and waited for.
///
/// # Safety
///
/// The descriptors and the options are null or the driver's.
pub unsafe fn send_control(
    state: &Arc<State>,
    (to, request): (WDFIOTARGET, WDFREQUEST),
    (asks, code): (Asks, ULONG),
    (input, output): (*const MemoryDescriptor, *const MemoryDescriptor),
    options: *const SendOptions,
) -> Result<usize, NTSTATUS> {
    wait_for(state, to, request, options, || {
        // SAFETY: null or the driver's (`# Safety`).
        let (input, output) = unsafe { (described(state, input)?, described(state, output)?) };
        Ok(Form::Of { asks, code, offset: 0, input, output })
    })
}

pub extern "C" fn WdfIoTargetFormatRequestForIoctl(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    input: WDFMEMORY,
    of_input: *const MemoryOffset,
    output: WDFMEMORY,
    of_output: *const MemoryOffset,
) -> NTSTATUS {
    routine!("WdfIoTargetFormatRequestForIoctl", DISPATCH_LEVEL, |state| {
        // SAFETY: null or the driver's, and live until the call returns.
        unsafe { format_control(state, (to, request), (Asks::Control, code), (input, of_input), (output, of_output)) }
    })
}

/// Sends a request and waits for it: the driver's, or one of the framework's.
pub fn wait_for(
    state: &Arc<State>,
    to: WDFIOTARGET,
    handle: WDFREQUEST,
    options: *const SendOptions,
    form: impl FnOnce() -> Result<Form, NTSTATUS>,
) -> Result<usize, NTSTATUS> {
    let target = target(state, to);
    // SAFETY: null or the driver's structure, which lives until the call returns.
    let options = unsafe { Options::read(options) }.waiting();
    let request = if handle.is_null() { Arc::new(RequestObject::made()) } else { at_hand(state, handle) };
    if state.strikes() {
        return Err(STATUS_INSUFFICIENT_RESOURCES);
    }
    send(state, &target, &request, form()?, options)?;
    let progress = lock(&request.progress);
    if progress.status < 0 { Err(progress.status) } else { Ok(progress.information) }
}

/// What a driver is told of a request that it has waited for.
pub fn told(result: Result<usize, NTSTATUS>, place: *mut usize) -> NTSTATUS {
    if !place.is_null() {
        // SAFETY: not null, so the driver's place, which lives until the call returns.
        unsafe { place.write(result.unwrap_or(0)) };
    }
    result.err().unwrap_or(STATUS_SUCCESS)
}

pub extern "C" fn WdfIoTargetSendReadSynchronously(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    output: *const MemoryDescriptor,
    offset: *const i64,
    options: *const SendOptions,
    read: *mut usize,
) -> NTSTATUS {
    routine!("WdfIoTargetSendReadSynchronously", PASSIVE_LEVEL, |state| {
        let result = wait_for(state, to, request, options, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let (output, offset) = unsafe { (described(state, output)?, begins(offset)) };
            Ok(Form::Of { asks: Asks::Read, code: 0, offset, input: None, output })
        });
        told(result, read)
    })
}

pub extern "C" fn WdfIoTargetSendWriteSynchronously(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    input: *const MemoryDescriptor,
    offset: *const i64,
    options: *const SendOptions,
    written: *mut usize,
) -> NTSTATUS {
    routine!("WdfIoTargetSendWriteSynchronously", PASSIVE_LEVEL, |state| {
        let result = wait_for(state, to, request, options, || {
            // SAFETY: null or the driver's, and live until the call returns.
            let (input, offset) = unsafe { (described(state, input)?, begins(offset)) };
            Ok(Form::Of { asks: Asks::Write, code: 0, offset, input, output: None })
        });
        told(result, written)
    })
}

pub extern "C" fn WdfIoTargetSendIoctlSynchronously(
    _globals: PWDF_DRIVER_GLOBALS,
    to: WDFIOTARGET,
    request: WDFREQUEST,
    code: ULONG,
    input: *const MemoryDescriptor,
    output: *const MemoryDescriptor,
    options: *const SendOptions,
    returned: *mut usize,
) -> NTSTATUS {
    routine!("WdfIoTargetSendIoctlSynchronously", PASSIVE_LEVEL, |state| {
        // SAFETY: null or the driver's, and live until the call returns.
        let result = unsafe { send_control(state, (to, request), (Asks::Control, code), (input, output), options) };
        told(result, returned)
    })
}

/// What has waited goes.
pub extern "C" fn WdfIoTargetStart(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) -> NTSTATUS {
    routine!("WdfIoTargetStart", DISPATCH_LEVEL, |state| {
        let target = target(state, handle);
        if target.leads_to().is_err() || !can_start(lock(&target.flow).state) {
            return STATUS_INVALID_DEVICE_STATE;
        }
        lock(&target.flow).state = _WDF_IO_TARGET_STATE::WdfIoTargetStarted;
        loop {
            let next = {
                let mut flow = lock(&target.flow);
                if flow.state != _WDF_IO_TARGET_STATE::WdfIoTargetStarted {
                    break;
                }
                let Some(next) = flow.waiting.pop_front() else { break };
                flow.sent.push(next.clone());
                next
            };
            next.go(state);
        }
        STATUS_SUCCESS
    })
}

const fn can_start(state: WDF_IO_TARGET_STATE) -> bool {
    matches!(
        state,
        _WDF_IO_TARGET_STATE::WdfIoTargetStarted
            | _WDF_IO_TARGET_STATE::WdfIoTargetStopped
            | _WDF_IO_TARGET_STATE::WdfIoTargetPurged
    )
}

/// What is sent waits from now on.
pub extern "C" fn WdfIoTargetStop(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET, action: i32) {
    routine!("WdfIoTargetStop", DISPATCH_LEVEL, |state| {
        let target = target(state, handle);
        check_level("WdfIoTargetStop", action != LEAVE_SENT_IO);
        let stopped = _WDF_IO_TARGET_STATE::WdfIoTargetStopped;
        match action {
            CANCEL_SENT_IO => target.cancel_all(state, stopped, false),
            WAIT_FOR_SENT_IO | LEAVE_SENT_IO => lock(&target.flow).state = stopped,
            _ => bug_check(Rule::BadArgument, format_args!("WdfIoTargetStop with the action {action}")),
        }
        if action != LEAVE_SENT_IO {
            target.until_all_are_back(state, "WdfIoTargetStop", false);
        }
    });
}

/// What is there is cancelled, and what comes is refused, until the target is started.
pub extern "C" fn WdfIoTargetPurge(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET, action: i32) {
    routine!("WdfIoTargetPurge", DISPATCH_LEVEL, |state| {
        let target = target(state, handle);
        check_level("WdfIoTargetPurge", action == PURGE_AND_WAIT);
        if ![PURGE, PURGE_AND_WAIT].contains(&action) {
            bug_check(Rule::BadArgument, format_args!("WdfIoTargetPurge with the action {action}"));
        }
        target.cancel_all(state, _WDF_IO_TARGET_STATE::WdfIoTargetPurged, true);
        if action == PURGE_AND_WAIT {
            target.until_all_are_back(state, "WdfIoTargetPurge", false);
        }
    });
}

pub extern "C" fn WdfIoTargetGetState(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) -> WDF_IO_TARGET_STATE {
    routine!("WdfIoTargetGetState", DISPATCH_LEVEL, |state| lock(&target(state, handle).flow).state)
}

/// The bus driver of this kernel says nothing of its devices.
pub extern "C" fn WdfIoTargetQueryTargetProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
    _property: i32,
    length: ULONG,
    buffer: PVOID,
    result: PULONG,
) -> NTSTATUS {
    routine!("WdfIoTargetQueryTargetProperty", PASSIVE_LEVEL, |state| {
        if result.is_null() || length != 0 && buffer.is_null() {
            bug_check(Rule::BadArgument, format_args!("a property without a place for it, or for its length"));
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { result.write(0) };
        no_property(state, handle)
    })
}

/// As `WdfIoTargetQueryTargetProperty`.
pub extern "C" fn WdfIoTargetAllocAndQueryTargetProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
    _property: i32,
    _pool: POOL_TYPE,
    _attributes: PWDF_OBJECT_ATTRIBUTES,
    memory: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfIoTargetAllocAndQueryTargetProperty", PASSIVE_LEVEL, |state| {
        if memory.is_null() {
            bug_check(Rule::BadArgument, format_args!("a property without a place for its memory object"));
        }
        no_property(state, handle)
    })
}

fn no_property(state: &State, handle: WDFIOTARGET) -> NTSTATUS {
    target(state, handle).leads_to().err().unwrap_or(STATUS_OBJECT_NAME_NOT_FOUND)
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 12] {
    [
        entry!(WdfIoTargetFormatRequestForRead),
        entry!(WdfIoTargetFormatRequestForWrite),
        entry!(WdfIoTargetFormatRequestForIoctl),
        entry!(WdfIoTargetSendReadSynchronously),
        entry!(WdfIoTargetSendWriteSynchronously),
        entry!(WdfIoTargetSendIoctlSynchronously),
        entry!(WdfIoTargetStart),
        entry!(WdfIoTargetStop),
        entry!(WdfIoTargetPurge),
        entry!(WdfIoTargetGetState),
        entry!(WdfIoTargetQueryTargetProperty),
        entry!(WdfIoTargetAllocAndQueryTargetProperty),
    ]
}
