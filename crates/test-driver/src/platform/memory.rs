//! Non-paged memory with MDLs in the shapes that the suite wants.

use core::ptr;

use conformance::platform::{PinnedMemory, Shape};
use ndkpi::NtStatus;
use wdk_sys::{
    MDL, PAGE_SIZE, PMDL, POOL_FLAG_NON_PAGED, ULONG,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool},
};

const TAG: ULONG = u32::from_le_bytes(*b"Ntmm");

const PAGE: usize = PAGE_SIZE as usize;

/// A buffer in non-paged pool and the chain of MDLs that describes it.
///
/// # Invariants
///
/// `bytes` is page-aligned memory of the pool of at least `length` bytes, and `first` a chain of MDLs for parts of it; both
/// belong to this value.
pub struct Pinned {
    bytes: *mut u8,
    length: usize,
    first: PMDL,
}

// SAFETY: the memory is the kernel's, the same on every processor; nobody makes references to it.
unsafe impl Send for Pinned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates and describes memory.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` for a shape that such a length cannot have.
    pub fn try_new(shape: Shape, length: usize) -> Result<Self, NtStatus> {
        // An allocation of a page or more begins on a page.
        let size = length.max(1).checked_next_multiple_of(PAGE).ok_or(NtStatus::INVALID_PARAMETER)?;
        // SAFETY: the caller is below `DISPATCH_LEVEL`, and the size is not zero.
        let bytes = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size as wdk_sys::SIZE_T, TAG) };
        if bytes.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let mut this = Self { bytes: bytes.cast(), length, first: ptr::null_mut() };
        // From the end: each MDL is put in front of the others.
        match shape {
            Shape::Whole => this.describe(0, length)?,
            Shape::Chained(piece) if piece > 0 => {
                for begin in (0..length).step_by(piece).rev() {
                    this.describe(begin, piece.min(length - begin))?;
                }
            }
            Shape::Gap if length >= 3 * PAGE => {
                this.describe(2 * PAGE, length - 2 * PAGE)?;
                this.describe(0, PAGE)?;
            }
            Shape::Chained(_) | Shape::Gap => return Err(NtStatus::INVALID_PARAMETER),
        }
        Ok(this)
    }

    fn describe(&mut self, begin: usize, length: usize) -> Result<(), NtStatus> {
        let length = ULONG::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        // SAFETY: the callers stay within the memory.
        let address = unsafe { self.bytes.add(begin) };
        // SAFETY: the range is ours (invariant); the MDL belongs to no request.
        let mdl = unsafe { IoAllocateMdl(address.cast(), length, 0, 0, ptr::null_mut()) };
        if mdl.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        // SAFETY: the MDL was made for this range, which is non-paged pool.
        unsafe { MmBuildMdlForNonPagedPool(mdl) };
        // SAFETY: the MDL is ours and nobody else knows it yet.
        unsafe { (*mdl).Next = self.first };
        self.first = mdl;
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        while !self.first.is_null() {
            // SAFETY: an MDL of the chain, which is ours (invariant).
            let next: *mut MDL = unsafe { (*self.first).Next };
            // SAFETY: as above; it is not used again.
            unsafe { IoFreeMdl(self.first) };
            self.first = next;
        }
        // SAFETY: the memory is ours (invariant) and not used again.
        unsafe { ExFreePoolWithTag(self.bytes.cast(), TAG) };
    }
}

// SAFETY: the chain describes the memory as the shape says and lives as long as the value; the memory is non-paged, so it stays
// where it is and can be used by anybody at any level, and it begins on a page (invariant).
unsafe impl PinnedMemory for Pinned {
    fn mdl(&self) -> *mut ndkpi::MDL {
        self.first.cast()
    }

    fn address(&self) -> *mut u8 {
        self.bytes
    }

    fn length(&self) -> usize {
        self.length
    }
}
