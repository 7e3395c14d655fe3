//! The stack of a driver's thread. Images have the routine from the library that the system has it from.

use wdk_bindings::{PULONG, PVOID, ULONG, USHORT};

use crate::{report::bug_check, routine::routine, rule::Rule, sites::symbols};

#[cfg_attr(unix, unsafe(no_mangle))]
extern "C" fn RtlCaptureStackBackTrace(skip: ULONG, count: ULONG, places: *mut PVOID, hash: PULONG) -> USHORT {
    routine!("RtlCaptureStackBackTrace", |_| {
        if !hash.is_null() {
            bug_check(Rule::NotSimulated, format_args!("the hash of a stack"));
        }
        let frames = symbols::frames_of_caller("RtlCaptureStackBackTrace", skip as usize, count as usize);
        // SAFETY: the driver's places, as many as it says, which live until the call returns.
        let places = unsafe { std::slice::from_raw_parts_mut(places, count as usize) };
        for (place, frame) in places.iter_mut().zip(&frames) {
            *place = std::ptr::without_provenance_mut(*frame);
        }
        USHORT::try_from(frames.len()).unwrap_or(USHORT::MAX)
    })
}
