//! Objects of the kernel of every kind: their handles are closed, and references to them counted.

use std::sync::Arc;

use wdk_bindings::{
    ACCESS_MASK, BOOLEAN, HANDLE, KPROCESSOR_MODE, LONG_PTR, NTSTATUS, POBJECT_TYPE, PVOID, STATUS_SUCCESS, ULONG,
};

use super::handles;
use crate::{report::bug_check, routine::routine, rule::Rule, state::State};

#[unsafe(no_mangle)]
extern "C" fn ZwClose(handle: HANDLE) -> NTSTATUS {
    routine!("ZwClose", |state| close(state, handle))
}

/// As [`ZwClose`], for a handle of a driver's. A program's are not the driver's to close here.
#[unsafe(no_mangle)]
extern "C" fn ObCloseHandle(handle: HANDLE, mode: KPROCESSOR_MODE) -> NTSTATUS {
    routine!("ObCloseHandle", APC_LEVEL, |state| {
        if mode != 0 {
            bug_check(Rule::NotSimulated, format_args!("a handle of a program that a driver closes"));
        }
        close(state, handle)
    })
}

fn close(state: &Arc<State>, handle: HANDLE) -> NTSTATUS {
    handles::check_handle(state, handle.addr());
    let number = handle.addr();
    let closed = state.close_thread(number)
        || state.close_key(number)
        || state.close_opened(number)
        || state.close_event(number);
    handles::forget_process(state, handle.addr());
    if !closed {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is closed and is not open"));
    }
    STATUS_SUCCESS
}

/// A chance for others.
#[unsafe(no_mangle)]
extern "C" fn ZwYieldExecution() -> NTSTATUS {
    routine!("ZwYieldExecution", PASSIVE_LEVEL, |state| {
        state.preempt();
        STATUS_SUCCESS
    })
}

/// Counts references to an object of any kind. How many there are then.
pub fn count(state: &State, object: PVOID, by: i64) -> LONG_PTR {
    if let Some(left) = state.count_file(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_object(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_callback(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_process(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_event(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_data_block(object.addr(), by) {
        return left as LONG_PTR;
    }
    let Some(left) = state.count_thread(object.addr(), by) else {
        bug_check(Rule::BadHandle, format_args!("{object:p} is no object"));
    };
    left as LONG_PTR
}

#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectByPointer(
    object: PVOID,
    _access: ACCESS_MASK,
    _kind: POBJECT_TYPE,
    _mode: KPROCESSOR_MODE,
) -> NTSTATUS {
    routine!("ObReferenceObjectByPointer", DISPATCH_LEVEL, |state| {
        count(state, object, 1);
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectByPointerWithTag(
    object: PVOID,
    _access: ACCESS_MASK,
    _kind: POBJECT_TYPE,
    _mode: KPROCESSOR_MODE,
    _tag: ULONG,
) -> NTSTATUS {
    routine!("ObReferenceObjectByPointerWithTag", DISPATCH_LEVEL, |state| {
        count(state, object, 1);
        STATUS_SUCCESS
    })
}

/// On Windows the last reference deletes the object later, in a thread of the system; what goes here goes at once.
#[unsafe(no_mangle)]
extern "C" fn ObDereferenceObjectDeferDelete(object: PVOID) {
    routine!("ObDereferenceObjectDeferDelete", DISPATCH_LEVEL, |state| {
        count(state, object, -1);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ObfReferenceObject(object: PVOID) -> LONG_PTR {
    routine!("ObfReferenceObject", |state| count(state, object, 1))
}

#[unsafe(no_mangle)]
extern "C" fn ObfReferenceObjectWithTag(object: PVOID, _tag: ULONG) -> LONG_PTR {
    routine!("ObfReferenceObjectWithTag", DISPATCH_LEVEL, |state| count(state, object, 1))
}

/// Here an object that is given up is gone, so that one that is there can always be referred to.
#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectSafe(object: PVOID) -> BOOLEAN {
    routine!("ObReferenceObjectSafe", DISPATCH_LEVEL, |state| {
        count(state, object, 1);
        1
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObfDereferenceObjectWithTag(object: PVOID, _tag: ULONG) -> LONG_PTR {
    routine!("ObfDereferenceObjectWithTag", DISPATCH_LEVEL, |state| count(state, object, -1))
}

#[unsafe(no_mangle)]
extern "C" fn ObfDereferenceObject(object: PVOID) -> LONG_PTR {
    routine!("ObfDereferenceObject", |state| count(state, object, -1))
}
