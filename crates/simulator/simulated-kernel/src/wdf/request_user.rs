//! The buffers of `METHOD_NEITHER`: a program's own, which the driver looks at in the program's context and locks there.

use std::{
    ptr,
    sync::{Arc, atomic::Ordering::Acquire},
};

use wdk_bindings::{
    NTSTATUS, PVOID, PWDF_DRIVER_GLOBALS, STATUS_ACCESS_VIOLATION, STATUS_BUFFER_TOO_SMALL,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_USER_BUFFER, STATUS_SUCCESS,
    WDF_OBJECT_ATTRIBUTES, WDFMEMORY, WDFREQUEST,
};

use super::{
    function::entry,
    memory::MemoryObject,
    request::{Asks, Outside, RequestObject, at_hand},
};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
};

/// Returns true if the driver looks at the request in the context of who asks: nowhere else has it the program's memory.
fn is_looked_at(request: &RequestObject) -> bool {
    lock(&request.progress).outside == Outside::LookedAt
}

/// Gives a driver one of the program's own buffers.
fn give(
    state: &State,
    handle: WDFREQUEST,
    of_input: bool,
    minimum: usize,
    buffer: *mut PVOID,
    place: *mut usize,
) -> NTSTATUS {
    let request = at_hand(state, handle);
    let write = |(address, length): (usize, usize)| {
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { buffer.write(ptr::with_exposed_provenance_mut(address)) };
        if !place.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { place.write(length) };
        }
    };
    write((0, 0));
    if !is_looked_at(&request) || !request.has_own_buffers() || request.is_one_sided(of_input) {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let own = request.own_buffer(of_input);
    if own.1 < minimum || own.1 == 0 {
        return STATUS_BUFFER_TOO_SMALL;
    }
    write(own);
    STATUS_SUCCESS
}

pub extern "C" fn WdfRequestRetrieveUnsafeUserInputBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    minimum: usize,
    buffer: *mut PVOID,
    length: *mut usize,
) -> NTSTATUS {
    routine!("WdfRequestRetrieveUnsafeUserInputBuffer", PASSIVE_LEVEL, |state| {
        give(state, handle, true, minimum, buffer, length)
    })
}

pub extern "C" fn WdfRequestRetrieveUnsafeUserOutputBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    minimum: usize,
    buffer: *mut PVOID,
    length: *mut usize,
) -> NTSTATUS {
    routine!("WdfRequestRetrieveUnsafeUserOutputBuffer", PASSIVE_LEVEL, |state| {
        give(state, handle, false, minimum, buffer, length)
    })
}

/// Locks a part of a program's own buffers, until the request is complete. The memory object is the request's.
fn probe(state: &Arc<State>, handle: WDFREQUEST, buffer: PVOID, length: usize, place: *mut WDFMEMORY) -> NTSTATUS {
    let request = at_hand(state, handle);
    if place.is_null() {
        bug_check(
            Rule::BadArgument,
            format_args!("a program's buffer is locked without a place for its memory object"),
        );
    }
    if !is_looked_at(&request) || request.asks == Asks::Create {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    if length == 0 {
        return STATUS_INVALID_USER_BUFFER;
    }
    let is_in = |(own, whole): (usize, usize)| {
        let offset = buffer.addr().checked_sub(own).filter(|_| own != 0);
        offset.is_some_and(|offset| offset.checked_add(length).is_some_and(|end| end <= whole))
    };
    // What a program has besides its two buffers nobody knows here, nor what of it is only for reading.
    if ![true, false].into_iter().any(|of_input| is_in(request.own_buffer(of_input))) {
        return STATUS_ACCESS_VIOLATION;
    }
    let kind = Arc::new(MemoryObject::of_program((buffer.expose_provenance(), length)));
    let parent = Some(request.handle.load(Acquire));
    let attributes = WDF_OBJECT_ATTRIBUTES::default();
    let Some(made) = state.create_object_of(context::caller(), kind, &attributes, parent) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    // SAFETY: not null, so the driver's place, which lives until the call returns.
    unsafe { place.write(made.pointer()) };
    STATUS_SUCCESS
}

pub extern "C" fn WdfRequestProbeAndLockUserBufferForRead(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    buffer: PVOID,
    length: usize,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfRequestProbeAndLockUserBufferForRead", PASSIVE_LEVEL, |state| {
        probe(state, handle, buffer, length, place)
    })
}

pub extern "C" fn WdfRequestProbeAndLockUserBufferForWrite(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    buffer: PVOID,
    length: usize,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfRequestProbeAndLockUserBufferForWrite", PASSIVE_LEVEL, |state| {
        probe(state, handle, buffer, length, place)
    })
}

/// A request goes back into the manual queue that its driver has it from, as the first there.
pub extern "C" fn WdfRequestRequeue(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> NTSTATUS {
    routine!("WdfRequestRequeue", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        let (of, is_cancelable) = {
            let progress = lock(&request.progress);
            (progress.queue.clone(), progress.cancel.is_some())
        };
        if is_cancelable {
            bug_check(Rule::RequestCancelable, format_args!("a cancelable request is put back into its queue"));
        }
        let Some(of) = of else { return STATUS_INVALID_DEVICE_REQUEST };
        state.put_back(&of, &request)
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 5] {
    [
        entry!(WdfRequestRetrieveUnsafeUserInputBuffer),
        entry!(WdfRequestRetrieveUnsafeUserOutputBuffer),
        entry!(WdfRequestProbeAndLockUserBufferForRead),
        entry!(WdfRequestProbeAndLockUserBufferForWrite),
        entry!(WdfRequestRequeue),
    ]
}
