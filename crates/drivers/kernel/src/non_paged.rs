//! Non-paged memory, and the MDLs that describe it.

use core::ptr;

use ndkpi::NtStatus;
use wdk_sys::{
    MDL, PAGE_SIZE, PMDL, POOL_FLAG_NON_PAGED, ULONG,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool},
};

const PAGE: usize = PAGE_SIZE as usize;

/// A buffer in non-paged pool and the chain of MDLs that describes it. At first the chain is empty.
///
/// The memory stays where it is, anybody can use it at any `IRQL`, and there are no references to it: it is used through
/// [`NonPaged::address`].
///
/// # Invariants
///
/// `bytes` is page-aligned memory of the pool of at least `length` bytes, and `first` a chain of MDLs for parts of it; both
/// belong to this value.
pub struct NonPaged {
    bytes: *mut u8,
    length: usize,
    first: PMDL,
    tag: ULONG,
}

// SAFETY: the memory is the kernel's, the same on every processor; nobody makes references to it.
unsafe impl Send for NonPaged {}
// SAFETY: as for `Send`.
unsafe impl Sync for NonPaged {}

impl NonPaged {
    /// Zeroed memory that begins on a page, under a tag of the pool. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` if nothing is that long.
    pub fn try_new(length: usize, tag: ULONG) -> Result<Self, NtStatus> {
        // An allocation of a page or more begins on a page.
        let size = length.max(1).checked_next_multiple_of(PAGE).ok_or(NtStatus::INVALID_PARAMETER)?;
        // SAFETY: `IRQL <= DISPATCH_LEVEL` (the caller's), and the size is not zero.
        let bytes = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size as wdk_sys::SIZE_T, tag) };
        if bytes.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(Self { bytes: bytes.cast(), length, first: ptr::null_mut(), tag })
    }

    /// Puts an MDL for a part of the memory in front of the chain. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` for a part that is not in the memory, or longer than an MDL.
    pub fn describe(&mut self, begin: usize, length: usize) -> Result<(), NtStatus> {
        let count = ULONG::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        if begin > self.length || length > self.length - begin {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: within the memory, as was checked.
        let address = unsafe { self.bytes.add(begin) };
        // SAFETY: the range is ours (invariant); the MDL belongs to no request.
        let mdl = unsafe { IoAllocateMdl(address.cast(), count, 0, 0, ptr::null_mut()) };
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

    /// The first MDL of the chain; null if there is none.
    #[must_use]
    pub const fn mdl(&self) -> PMDL {
        self.first
    }

    /// Where the memory begins.
    #[must_use]
    pub const fn address(&self) -> *mut u8 {
        self.bytes
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for NonPaged {
    fn drop(&mut self) {
        while !self.first.is_null() {
            // SAFETY: an MDL of the chain, which is ours (invariant). It is not used again.
            let next = unsafe {
                let next: *mut MDL = (*self.first).Next;
                IoFreeMdl(self.first);
                next
            };
            self.first = next;
        }
        // SAFETY: the memory is ours (invariant) and not used again.
        unsafe { ExFreePoolWithTag(self.bytes.cast(), self.tag) };
    }
}
