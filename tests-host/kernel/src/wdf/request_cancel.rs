//! Requests that can be cancelled, and requests that move to another queue.

use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire};

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PFN_WDF_REQUEST_CANCEL, PWDF_DRIVER_GLOBALS, STATUS_CANCELLED, STATUS_SUCCESS, WDFQUEUE,
    WDFREQUEST,
};

use super::{function, queue::queue, request::owned};
use crate::{kernel::lock, report::bug_check, rule::Rule};

pub extern "C" fn WdfRequestMarkCancelableEx(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    cancel: PFN_WDF_REQUEST_CANCEL,
) -> NTSTATUS {
    function!("WdfRequestMarkCancelableEx", |state| {
        let request = owned(state, handle);
        let mut progress = lock(&request.progress);
        if progress.cancel.is_some() || cancel.is_none() {
            drop(progress);
            bug_check(
                Rule::RequestCancelable,
                format_args!("a request is made cancelable twice, or without a routine"),
            );
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

pub extern "C" fn WdfRequestUnmarkCancelable(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> NTSTATUS {
    function!("WdfRequestUnmarkCancelable", |state| {
        state.preempt();
        if state.was_request(handle.addr()) {
            // The cancel routine has run, and completed it: the handle would be gone but for a reference of the driver's.
            bug_check(Rule::RequestCompletedTwice, format_args!("a completed request is unmarked"));
        }
        let request = owned(state, handle);
        let taken = lock(&request.progress).cancel.take();
        if taken.is_some() {
            STATUS_SUCCESS
        } else if request.cancelled.load(Acquire) {
            STATUS_CANCELLED
        } else {
            bug_check(Rule::RequestCancelable, format_args!("a request is unmarked that could not be cancelled"))
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
        let request = owned(state, handle);
        let target = queue(state, target);
        let before = {
            let mut progress = lock(&request.progress);
            if progress.cancel.is_some() {
                drop(progress);
                bug_check(Rule::RequestCancelable, format_args!("a cancelable request is forwarded"));
            }
            progress.queue.take()
        };
        if let Some(before) = before {
            before.delivered.fetch_sub(1, AcqRel);
        }
        state.enqueue(&target, &request);
        STATUS_SUCCESS
    })
}
