//! The host's memory descriptor list.

use ndkpi::NtStatus;

/// A chain with more descriptors than this is taken for a circle.
const LONGEST_CHAIN: usize = 65_536;

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

/// A piece of a chain that was checked.
#[derive(Clone, Copy)]
pub struct Piece {
    pub pointer: *mut u8,
    pub length: usize,
}

// SAFETY: a piece names bytes, as a descriptor does.
unsafe impl Send for Piece {}
// SAFETY: as for `Send`.
unsafe impl Sync for Piece {}

/// What a chain describes, as far as it is asked for.
pub struct Walk {
    /// The address of the first descriptor, which is that of the first byte.
    pub base: *mut u8,
    /// The number of pieces with bytes.
    pub pieces: usize,
}

/// Walks the chain as far as `length` bytes, and gives every piece with bytes to `each`, cut to what is asked for.
///
/// The whole chain must be virtually contiguous, also beyond `length` (`NDKPI 7.4`).
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if `mdl` is null, `length` is zero or more than the chain describes, a piece does not begin
/// where the one before ends or lies at address zero or beyond the end of the address space, or the chain does not end.
///
/// # Safety
///
/// `mdl` is null or points to a chain of valid descriptors that nobody changes meanwhile.
pub unsafe fn walk(mdl: *const HostMdl, length: usize, mut each: impl FnMut(Piece)) -> Result<Walk, NtStatus> {
    if length == 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut walk = None;
    let mut left = length;
    let mut end = 0_usize;
    let mut next = mdl;
    for _ in 0..LONGEST_CHAIN {
        if next.is_null() {
            return walk.filter(|_| left == 0).ok_or(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: `next` is not null, so it points to a valid descriptor of the chain (the caller's promise).
        let mdl = unsafe { &*next };
        let begin = mdl.address.addr();
        let follows = walk.is_none() || begin == end;
        if begin == 0 || !follows {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        end = begin.checked_add(mdl.length).ok_or(NtStatus::INVALID_PARAMETER)?;
        let walk = walk.get_or_insert(Walk { base: mdl.address, pieces: 0 });
        let length = mdl.length.min(left);
        if length > 0 {
            walk.pieces += 1;
            left -= length;
            each(Piece { pointer: mdl.address, length });
        }
        next = mdl.next;
    }
    Err(NtStatus::INVALID_PARAMETER)
}
