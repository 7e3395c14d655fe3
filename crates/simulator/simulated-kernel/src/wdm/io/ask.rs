//! What plug and play and the power manager ask of a stack of devices.

use std::sync::{Arc, atomic::Ordering::Acquire};

use wdk_bindings::{NTSTATUS, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, UCHAR};

use super::{
    device::Device,
    request::{Maker, Request, set_status},
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    waiting,
};

/// Makes a request with that minor function, for the device that gets it first.
pub fn request(state: &State, top: &Device, (major, minor): (u32, u32), maker: Maker) -> Arc<Request> {
    let request = state.make_irp(top.locations(), minor, maker);
    set_status(request.pointer(), STATUS_NOT_SUPPORTED);
    // SAFETY: a location of the request's own block, which nobody else has yet.
    let location = unsafe { &mut *request.next_location() };
    location.MajorFunction = UCHAR::try_from(major).unwrap_or(0);
    location.MinorFunction = UCHAR::try_from(minor).unwrap_or(0);
    request
}

/// Sends a request down the stack, and waits for its end.
pub fn send(state: &Arc<State>, top: &Arc<Device>, request: &Arc<Request>, what: &str) -> NTSTATUS {
    state.pass(request, top);
    let end = state.machine.now().saturating_add(state.request_limit());
    if !waiting::until(state, Some(end), what, || lock(&request.outcome).is_some()) {
        state.dispatcher.stuck(Rule::IrpNeverCompleted, format_args!("{what} is not completed"));
    }
    let outcome = lock(&request.outcome).as_ref().map_or(STATUS_SUCCESS, |outcome| outcome.status);
    // Who does not know a request passes it on, and so does who has carried one out: the bus driver has to do its part.
    let owes = outcome >= 0 || outcome == STATUS_NOT_SUPPORTED;
    if owes && !request.reached_bottom.load(Acquire) {
        bug_check(Rule::IrpNotPassedDown, format_args!("{what} ended with {outcome:#x} without the bus driver"));
    }
    outcome
}
