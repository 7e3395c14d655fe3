//! The host's memory descriptor list.

use std::ptr::NonNull;

use ndkpi::NtStatus;
use provider::chain::{self, Link, Walk};

/// Describes pinned bytes, as an `MDL` does in the kernel: a piece, and a pointer to the description of the next piece.
#[derive(Debug)]
#[repr(C)]
pub struct HostMdl {
    /// The next piece, or null.
    pub next: *mut Self,
    /// The first byte of this piece.
    pub address: *mut u8,
    /// The number of bytes of this piece.
    pub length: usize,
}

// SAFETY: a descriptor owns nothing: it names bytes, and those who use the names must say why they may.
unsafe impl Send for HostMdl {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostMdl {}

/// A segment of a chain that was checked.
#[derive(Clone, Copy)]
pub struct Segment {
    pub pointer: *mut u8,
    pub length: usize,
}

// SAFETY: a segment names bytes, as a descriptor does.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`.
unsafe impl Sync for Segment {}

/// Walks the chain ([`chain::walk`]) as far as `length` bytes, and gives every piece with bytes to `each`, cut to what is asked
/// for.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if `mdl` is null, `length` is zero or more than the chain describes, the chain is not virtually
/// contiguous, a piece lies at address zero or beyond the end of the address space, or the chain does not end.
///
/// # Safety
///
/// `mdl` is null or points to a chain of valid descriptors that nobody changes meanwhile.
pub unsafe fn walk(mdl: *const HostMdl, length: usize, mut each: impl FnMut(Segment)) -> Result<Walk, NtStatus> {
    let describe = |mdl: NonNull<HostMdl>| {
        // SAFETY: not null, so it points to a valid descriptor of the chain (`# Safety`).
        let mdl = unsafe { mdl.as_ref() };
        if mdl.address.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Link { address: mdl.address.addr() as u64, length: mdl.length, next: NonNull::new(mdl.next) })
    };
    chain::walk(NonNull::new(mdl.cast_mut()), length, describe, |mdl, length| {
        // SAFETY: the walk passes on what `describe` has read: a valid descriptor of the chain (`# Safety`).
        each(Segment { pointer: unsafe { mdl.as_ref() }.address, length });
        Ok(())
    })
}
