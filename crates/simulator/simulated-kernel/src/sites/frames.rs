//! The stack, as far as it is of images.

use std::{ffi::c_void, ptr};

use windows_sys::Win32::System::Diagnostics::Debug::{RtlCaptureStackBackTrace, RtlLookupFunctionEntry};

use super::images::{describe, with_image};

/// As many frames are looked at.
const MOST: usize = 62;

/// The places of images on the stack, the innermost first.
pub fn stack() -> Vec<String> {
    frames().iter().filter_map(|&address| describe(address)).collect()
}

/// Addresses to which the functions on the stack return. What lies above a function of an image without a table for unwinding is not
/// known: the system takes such a function for a leaf, and whatever is on the stack for return addresses.
fn frames() -> Vec<usize> {
    let mut frames = captured();
    let can_unwind = |address: usize| {
        let mut base = 0;
        // The call is before the address that it returns to.
        // SAFETY: a place that lives until the call returns, and no table of what was asked before.
        !unsafe { RtlLookupFunctionEntry(address as u64 - 1, &raw mut base, ptr::null_mut()) }.is_null()
    };
    if let Some(last) = frames.iter().position(|&address| with_image(address, |_| ()).is_some() && !can_unwind(address))
    {
        frames.truncate(last + 1);
    }
    frames
}

/// The same as the system has it.
fn captured() -> Vec<usize> {
    let mut frames = [ptr::null_mut::<c_void>(); MOST];
    // SAFETY: the array has as many places, and no hash is asked for.
    let count = unsafe { RtlCaptureStackBackTrace(0, MOST as u32, frames.as_mut_ptr(), ptr::null_mut()) };
    frames[..usize::from(count)].iter().map(|frame| frame.addr()).collect()
}

/// Goes up the stack, from frame to frame of code of images, until `look` has seen enough. It gets a number for the place, the same in
/// each run, and the name of the image.
pub fn walk(mut look: impl FnMut(usize, &str) -> bool) {
    for address in frames() {
        let go_on = with_image(address, |image| {
            // The image's name takes part: two images have code at the same offset.
            let name = image.name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            look((address - image.base) ^ (name << 32), &image.name)
        });
        if go_on == Some(false) {
            return;
        }
    }
}
