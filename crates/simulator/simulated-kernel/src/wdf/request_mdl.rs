//! MDLs of a request's buffers. They are the request's, and go with its completion.

use std::ptr;

use wdk_bindings::{
    MDL, NTSTATUS, PWDF_DRIVER_GLOBALS, STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_SUCCESS, ULONG, WDFREQUEST,
};

use super::{
    function::entry,
    request::{RequestObject, at_hand},
};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    wdm::mdl,
};

/// Gives the driver the MDL of the input or of the output: the same one each time.
fn retrieve(state: &State, handle: WDFREQUEST, of_input: bool, place: *mut *mut MDL) -> NTSTATUS {
    let request = at_hand(state, handle);
    if place.is_null() {
        bug_check(Rule::BadArgument, format_args!("the MDL of a request without a place for it"));
    }
    if request.is_one_sided(of_input) || request.has_own_buffers() {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let (address, length) = if of_input { request.input_buffer() } else { request.output_buffer() };
    if length == 0 {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let mut known = lock(&request.mdls[usize::from(of_input)]);
    if *known == 0 {
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let length = ULONG::try_from(length).unwrap_or(ULONG::MAX);
        // What the system has copied is in its non-paged pool; pages of the program are locked.
        let is_copy = of_input || request.is_buffered();
        let made = if is_copy { mdl::make_built } else { mdl::allocate_locked }(state, address, length);
        *known = made.expose_provenance();
    }
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { place.write(ptr::with_exposed_provenance_mut(*known)) };
    STATUS_SUCCESS
}

impl State {
    /// The request is complete, and its MDLs are gone.
    pub fn free_mdls(&self, request: &RequestObject) {
        for known in &request.mdls {
            let known = std::mem::take(&mut *lock(known));
            mdl::free_chain(self, ptr::with_exposed_provenance_mut(known));
        }
    }
}

pub extern "C" fn WdfRequestRetrieveInputWdmMdl(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: *mut *mut MDL,
) -> NTSTATUS {
    routine!("WdfRequestRetrieveInputWdmMdl", DISPATCH_LEVEL, |state| retrieve(state, handle, true, place))
}

pub extern "C" fn WdfRequestRetrieveOutputWdmMdl(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: *mut *mut MDL,
) -> NTSTATUS {
    routine!("WdfRequestRetrieveOutputWdmMdl", DISPATCH_LEVEL, |state| retrieve(state, handle, false, place))
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfRequestRetrieveInputWdmMdl), entry!(WdfRequestRetrieveOutputWdmMdl)]
}
