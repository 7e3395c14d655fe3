//! What is behind a handle: a thread or an event, to be waited for or referred to.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
};

use wdk_bindings::{
    ACCESS_MASK, BOOLEAN, HANDLE, KPROCESSOR_MODE, LARGE_INTEGER, NTSTATUS, PKEVENT, POBJECT_HANDLE_INFORMATION,
    POBJECT_TYPE, PVOID, STATUS_INVALID_HANDLE, STATUS_SUCCESS, STATUS_TIMEOUT, ULONG,
};

use super::{
    event, handles,
    system_thread::{Thread, Threads},
    timeout,
};
use crate::{report::bug_check, routine::routine, rule::Rule, state::State, waiting};

fn by_handle(state: &State, handle: HANDLE) -> Option<Arc<Thread>> {
    handles::check_handle(state, handle.addr());
    state.locked::<Threads>().handles.get(&handle.addr()).cloned()
}

/// A file has no object here that could be referred to or waited for.
fn check_no_file(state: &State, handle: HANDLE, routine: &str) {
    if state.is_file(handle.addr()) {
        bug_check(Rule::NotSimulated, format_args!("{routine} of a file"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn ZwWaitForSingleObject(handle: HANDLE, _alertable: BOOLEAN, timeout: *mut LARGE_INTEGER) -> NTSTATUS {
    routine!("ZwWaitForSingleObject", |state| {
        let end = timeout::end(state, timeout);
        check_no_file(state, handle, "ZwWaitForSingleObject");
        if let Some(place) = event_of(state, handle) {
            let is_set = event::wait(state, "ZwWaitForSingleObject", place, end);
            return if is_set { STATUS_SUCCESS } else { STATUS_TIMEOUT };
        }
        let Some(thread) = by_handle(state, handle) else { return STATUS_INVALID_HANDLE };
        let ended = waiting::until(state, end, "ZwWaitForSingleObject", || thread.ended.load(Acquire));
        if ended { STATUS_SUCCESS } else { STATUS_TIMEOUT }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectByHandle(
    handle: HANDLE,
    _access: ACCESS_MASK,
    _kind: POBJECT_TYPE,
    _mode: KPROCESSOR_MODE,
    object: *mut PVOID,
    _information: POBJECT_HANDLE_INFORMATION,
) -> NTSTATUS {
    routine!("ObReferenceObjectByHandle", |state| {
        refer_by_handle(state, handle, object, "ObReferenceObjectByHandle")
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectByHandleWithTag(
    handle: HANDLE,
    _access: ACCESS_MASK,
    _kind: POBJECT_TYPE,
    _mode: KPROCESSOR_MODE,
    _tag: ULONG,
    object: *mut PVOID,
    _information: POBJECT_HANDLE_INFORMATION,
) -> NTSTATUS {
    routine!("ObReferenceObjectByHandleWithTag", PASSIVE_LEVEL, |state| {
        refer_by_handle(state, handle, object, "ObReferenceObjectByHandleWithTag")
    })
}

/// Takes a reference to the thread or event behind a handle.
fn refer_by_handle(state: &State, handle: HANDLE, object: *mut PVOID, routine: &str) -> NTSTATUS {
    check_no_file(state, handle, routine);
    let address = if let Some(place) = event_of(state, handle) {
        state.count_event(place.addr(), 1);
        place.addr()
    } else {
        let Some(thread) = by_handle(state, handle) else { return STATUS_INVALID_HANDLE };
        thread.references.fetch_add(1, AcqRel);
        let address = Arc::as_ptr(&thread).addr();
        state.locked::<Threads>().objects.insert(address, thread);
        address
    };
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { object.write(ptr::with_exposed_provenance_mut(address)) };
    STATUS_SUCCESS
}

/// The event behind a handle.
fn event_of(state: &State, handle: HANDLE) -> Option<PKEVENT> {
    handles::check_handle(state, handle.addr());
    state.event_of_handle(handle.addr())
}
