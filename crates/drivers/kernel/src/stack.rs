//! The callers of a function.

use core::ptr;

use wdk_sys::{PVOID, ULONG, ntddk::RtlCaptureStackBackTrace};

/// As many frames are looked at.
const MOST: usize = 32;

/// Stores the addresses to which the callers return, the innermost first. Returns how many. `IRQL <= DISPATCH_LEVEL`.
///
/// Those in front of the first one of which `is_left_out` says no are left out.
///
/// Best effort: the kernel leaves out what it cannot unwind without a page fault.
pub fn callers(frames: &mut [usize], is_left_out: impl Fn(usize) -> bool) -> usize {
    let mut all: [PVOID; MOST] = [ptr::null_mut(); MOST];
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    // SAFETY: as many places as are said, which live until the call returns; nobody asks for the hash.
    let count = unsafe { RtlCaptureStackBackTrace(0, MOST as ULONG, all.as_mut_ptr(), ptr::null_mut()) };
    let found = all.iter().take(count.into()).map(|frame| frame.addr()).skip_while(|&frame| is_left_out(frame));
    let mut stored = 0;
    for (place, frame) in frames.iter_mut().zip(found) {
        *place = frame;
        stored += 1;
    }
    stored
}
