//! Requests that can be cancelled, and requests that move to another queue.

use std::sync::{Arc, atomic::Ordering::Acquire};

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PFN_WDF_REQUEST_CANCEL, PWDF_DRIVER_GLOBALS, STATUS_CANCELLED, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDFQUEUE, WDFREQUEST,
};

use super::{
    function::function,
    power::is_shown_here,
    queue::{STATUS_WDF_BUSY, queue},
    request::{Had, RequestObject, at_hand, owned},
};
use crate::{report::bug_check, rule::Rule, state::lock};

pub extern "C" fn WdfRequestMarkCancelableEx(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    cancel: PFN_WDF_REQUEST_CANCEL,
) -> NTSTATUS {
    function!("WdfRequestMarkCancelableEx", |state| {
        let request = at_hand(state, handle);
        if cancel.is_none() {
            bug_check(Rule::BadArgument, format_args!("a request is made cancelable without a routine"));
        }
        let mut progress = lock(&request.progress);
        if progress.cancel.is_some() {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        if request.cancelled.load(Acquire) {
            return STATUS_CANCELLED;
        }
        progress.cancel = cancel;
        drop(progress);
        state.preempt();
        STATUS_SUCCESS
    })
}

/// A request that was cancelled already is given to the routine at once.
pub extern "C" fn WdfRequestMarkCancelable(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    cancel: PFN_WDF_REQUEST_CANCEL,
) {
    function!("WdfRequestMarkCancelable", |state| {
        let request = at_hand(state, handle);
        if cancel.is_none() {
            bug_check(Rule::BadArgument, format_args!("a request is made cancelable without a routine"));
        }
        let before = std::mem::replace(&mut lock(&request.progress).cancel, cancel);
        if before.is_some() {
            bug_check(Rule::RequestCancelable, format_args!("a request is made cancelable that is so already"));
        }
        if request.cancelled.load(Acquire) {
            state.cancel_request(&request);
            return;
        }
        state.preempt();
    });
}

pub extern "C" fn WdfRequestUnmarkCancelable(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> NTSTATUS {
    function!("WdfRequestUnmarkCancelable", |state| {
        state.preempt();
        if state.was_request(handle.addr()) {
            let is_cancelled = || state.given_as::<_, RequestObject>(handle).1.cancelled.load(Acquire);
            if is_shown_here(handle) && is_cancelled() {
                return STATUS_CANCELLED;
            }
            // The cancel routine has run, and completed it: the handle would be gone but for a reference of the driver's.
            bug_check(Rule::RequestCompletedTwice, format_args!("a completed request is unmarked"));
        }
        let request = at_hand(state, handle);
        let taken = lock(&request.progress).cancel.take();
        if taken.is_some() {
            STATUS_SUCCESS
        } else if request.cancelled.load(Acquire) {
            STATUS_CANCELLED
        } else {
            STATUS_INVALID_PARAMETER
        }
    })
}

pub extern "C" fn WdfRequestIsCanceled(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> BOOLEAN {
    function!("WdfRequestIsCanceled", |state| {
        let request = owned(state, handle);
        if lock(&request.progress).cancel.is_some() {
            bug_check(Rule::RequestCancelable, format_args!("WdfRequestIsCanceled for a cancelable request"));
        }
        BOOLEAN::from(request.cancelled.load(Acquire))
    })
}

pub extern "C" fn WdfRequestForwardToIoQueue(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    target: WDFQUEUE,
) -> NTSTATUS {
    function!("WdfRequestForwardToIoQueue", |state| {
        let request = at_hand(state, handle);
        let target = queue(state, target);
        if lock(&request.progress).cancel.is_some() {
            bug_check(Rule::RequestCancelable, format_args!("a cancelable request is forwarded"));
        }
        if lock(&request.progress).had == Had::CancelledOnQueue {
            let words = format_args!("a request is forwarded that was given to EvtIoCanceledOnQueue");
            bug_check(Rule::RequestCancelable, words);
        }
        let is_elsewhere =
            lock(&request.progress).queue.as_ref().is_none_or(|from| !Arc::ptr_eq(&from.device, &target.device));
        if request.is_of(&target) || is_elsewhere {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        if !state.accept(&target, &request) {
            // Then the driver has it still.
            return STATUS_WDF_BUSY;
        }
        STATUS_SUCCESS
    })
}
