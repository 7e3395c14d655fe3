//! Logical address mappings (`NDKPI 3.8`, `NDKPI 7.5`).

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use fallible::try_slice;
use ndkpi::{NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_SGE};

use super::{adapter::Adapter, memory::PAGE};
use crate::case::{Check, Stop};

/// The memory of a mapping.
struct LamBuffer(Box<[UnsafeCell<u64>]>);

// SAFETY: the provider writes it while the request pends, the case reads it after that.
unsafe impl Send for LamBuffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for LamBuffer {}

/// A mapping, or the buffer for one.
pub struct Mapping<'s> {
    adapter: Adapter<'s>,
    buffer: &'s LamBuffer,
    reserved: u32,
    size: AtomicU32,
    offset: AtomicU32,
    /// There is nothing to release: not built yet, or released.
    released: AtomicBool,
    /// The one that was reserved before it.
    older: AtomicPtr<Self>,
}

impl<'s> Mapping<'s> {
    /// Room for a mapping of that many pages.
    pub(super) fn reserve(adapter: Adapter<'s>, pages: u32) -> Check<&'s Self> {
        let session = adapter.session();
        let bytes = NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages);
        // Never less than the declared structure, so that its fields can be looked at.
        let words = bytes.max(size_of::<NDK_LOGICAL_ADDRESS_MAPPING>()).div_ceil(8);
        let words = try_slice(words, |_| UnsafeCell::new(0_u64))
            .map_err(|_| Stop::inconclusive(format_args!("no memory for a mapping of {pages} pages")))?;
        let buffer = session.own(LamBuffer(words))?;
        let mapping = session.keep(Self {
            adapter,
            buffer,
            reserved: pages,
            size: AtomicU32::new(u32::try_from(bytes).unwrap_or(u32::MAX)),
            offset: AtomicU32::new(u32::MAX),
            released: AtomicBool::new(true),
            older: AtomicPtr::new(ptr::null_mut()),
        })?;
        session.remember(mapping);
        Ok(mapping)
    }

    /// The mapping was built: it is to be released.
    pub(super) fn built(&self) {
        self.released.store(false, Release);
    }

    /// Releases it, if it was built and is not released yet: a mapping keeps its adapter open.
    pub(super) fn release_at_last(&self) {
        if !self.released.swap(true, AcqRel) {
            self.adapter.session().note(self.adapter.release_lam(self.raw()));
        }
    }

    /// Where the one before it is noted.
    pub(super) const fn older(&self) -> &AtomicPtr<Self> {
        &self.older
    }

    /// What the call takes: the mapping, its size, and the buffer for the offset.
    pub(super) const fn places(&self) -> (*mut NDK_LOGICAL_ADDRESS_MAPPING, *mut u32, *mut u32) {
        (self.raw(), self.size.as_ptr(), self.offset.as_ptr())
    }

    const fn raw(&self) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        UnsafeCell::raw_get(self.buffer.0.as_ptr()).cast()
    }

    /// The size that the provider stored.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size.load(Acquire)
    }

    /// The offset of the first byte in the first page.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset.load(Acquire)
    }

    /// The pages, after a success.
    ///
    /// # Errors
    ///
    /// There are more than there is room for.
    pub fn pages(&self) -> Check<&[NDK_LOGICAL_ADDRESS]> {
        // SAFETY: the buffer is at least as large as the structure, and the provider is done with it.
        let count = unsafe { (*self.raw()).AdapterPageCount };
        ensure!(count <= self.reserved, "the mapping has {count} pages in a buffer for {} (NDKPI 3.8)", self.reserved);
        // SAFETY: the mapping lies in memory for `reserved` pages.
        let first = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(self.raw()) };
        // SAFETY: `count` pages are in that memory, and the provider is done with it.
        Ok(unsafe { core::slice::from_raw_parts(first, count as usize) })
    }

    /// An element for bytes from `offset` on, counted from the first byte of the mapping, all in one page.
    ///
    /// # Errors
    ///
    /// The page is not in the mapping.
    pub fn element(&self, offset: usize, length: u32, privileged: u32) -> Check<NDK_SGE> {
        let position = self.offset() as usize + offset;
        let pages = self.pages()?;
        let Some(page) = pages.get(position / PAGE) else { fail!("byte {offset} is not in the mapping") };
        let address = NDK_LOGICAL_ADDRESS::from_bits(page.to_bits() + (position % PAGE) as u64);
        Ok(NDK_SGE::logical(address, length, privileged))
    }

    /// `NdkReleaseLAM`, after a success and once.
    ///
    /// # Errors
    ///
    /// It was released: the case is wrong.
    pub fn release(&self) -> Check {
        ensure!(!self.released.swap(true, AcqRel), "the case releases a mapping that is not built");
        self.adapter.release_lam(self.raw())
    }
}
