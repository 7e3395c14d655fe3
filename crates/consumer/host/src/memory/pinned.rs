//! Bytes for a consumer on the host.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::{self, NonNull},
};

use ndkpi::NtStatus;

use super::mdl::HostMdl;

/// The size of a page.
const PAGE: usize = 4096;

/// Page-aligned bytes, zeroed at first, with the chain of descriptors by which they are registered.
///
/// The bytes may be registered, and so change at any time: they are read and written by copying only. The owner keeps the
/// buffer as long as it is registered, as a consumer in the kernel keeps its pages pinned.
///
/// # Invariants
///
/// `bytes` points to an allocation of `layout`, which holds at least `length` bytes; `chain` is not empty, describes nothing
/// outside of the allocation, and its `next` pointers lead through it in order.
pub struct PinnedBuffer {
    bytes: NonNull<u8>,
    layout: Layout,
    length: usize,
    chain: Box<[HostMdl]>,
}

// SAFETY: the buffer owns its bytes and its chain, and neither belongs to a thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: through a shared reference the bytes are copied only; see the type's documentation.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// `length` bytes described by one descriptor.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` if no host could have so many.
    pub fn new(length: usize) -> Result<Self, NtStatus> {
        Self::with_pieces(length, &[length])
    }

    /// `length` bytes described by one descriptor for every `piece` of them.
    ///
    /// # Errors
    ///
    /// Like [`PinnedBuffer::new`]; `STATUS_INVALID_PARAMETER` if `piece` is zero.
    pub fn split(length: usize, piece: usize) -> Result<Self, NtStatus> {
        if piece == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let count = length.div_ceil(piece).max(1);
        let mut pieces = Vec::new();
        pieces.try_reserve_exact(count).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        pieces.extend((0..count).map(|index| piece.min(length - index * piece)));
        Self::with_pieces(length, &pieces)
    }

    /// `length` bytes described by descriptors of these sizes, one after the other. They may describe fewer bytes than there
    /// are.
    ///
    /// # Errors
    ///
    /// Like [`PinnedBuffer::new`]; `STATUS_INVALID_PARAMETER` if there is no piece or they are longer than the buffer.
    pub fn with_pieces(length: usize, pieces: &[usize]) -> Result<Self, NtStatus> {
        let mut begin = 0_usize;
        let offsets = pieces.iter().map(|&piece| {
            let at = begin;
            begin = begin.saturating_add(piece);
            (at, piece)
        });
        Self::describe(length, pieces.len(), offsets)
    }

    /// `length` bytes of which the descriptors leave out one page in the middle: not virtually contiguous, so registering
    /// must fail.
    ///
    /// # Errors
    ///
    /// Like [`PinnedBuffer::new`]; `STATUS_INVALID_PARAMETER` if there are fewer than three pages.
    pub fn discontiguous(length: usize) -> Result<Self, NtStatus> {
        if length < 3 * PAGE {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Self::describe(length, 2, [(0, PAGE), (2 * PAGE, length - 2 * PAGE)].into_iter())
    }

    fn describe(length: usize, count: usize, pieces: impl Iterator<Item = (usize, usize)>) -> Result<Self, NtStatus> {
        let size = length.max(1).checked_next_multiple_of(PAGE).ok_or(NtStatus::INVALID_PARAMETER)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let mut chain = Vec::new();
        chain.try_reserve_exact(count).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        // SAFETY: the layout's size is at least a page.
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut buffer = Self { bytes, layout, length, chain: Box::default() };
        for (begin, piece) in pieces {
            if begin.checked_add(piece).is_none_or(|end| end > length) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            chain.push(HostMdl { next: ptr::null_mut(), address: buffer.pointer(begin), length: piece });
        }
        if chain.is_empty() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        buffer.chain = chain.into_boxed_slice();
        let first = buffer.chain.as_mut_ptr();
        for index in 1..buffer.chain.len() {
            // SAFETY: both elements are in the chain, which is borrowed mutably and whose elements do not move.
            unsafe {
                let next = first.add(index);
                let mdl = first.add(index - 1);
                (*mdl).next = next;
            }
        }
        Ok(buffer)
    }

    /// The chain of descriptors, valid as long as the buffer is.
    #[must_use]
    pub fn mdl(&self) -> *mut HostMdl {
        self.chain.as_ptr().cast_mut()
    }

    /// The virtual address of the byte at `offset`: what goes into a scatter/gather element.
    #[must_use]
    #[inline]
    pub fn address(&self, offset: usize) -> u64 {
        self.bytes.addr().get() as u64 + offset as u64
    }

    /// A pointer to the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is beyond the end.
    #[must_use]
    #[inline]
    pub fn pointer(&self, offset: usize) -> *mut u8 {
        self.check(offset, 0);
        // SAFETY: the allocation holds at least `length` bytes (invariant), and `offset` is not beyond.
        unsafe { self.bytes.as_ptr().add(offset) }
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Panics
    ///
    /// If they are not all in the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        let from = self.pointer(offset);
        // SAFETY: the allocation holds that many bytes from there on (checked), and `into` is memory of its own.
        unsafe { from.copy_to(into.as_mut_ptr(), into.len()) };
    }

    /// `length` bytes of the buffer.
    ///
    /// # Panics
    ///
    /// If they are not all in the buffer.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Copies bytes into the buffer.
    ///
    /// # Panics
    ///
    /// If they do not all fit.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        let to = self.pointer(offset);
        // SAFETY: the allocation holds that many bytes from there on (checked), and `from` is memory of its own.
        unsafe { to.copy_from(from.as_ptr(), from.len()) };
    }

    /// Sets every byte to `value`.
    pub const fn fill(&self, value: u8) {
        // SAFETY: the allocation holds `length` bytes (invariant).
        unsafe { self.bytes.as_ptr().write_bytes(value, self.length) };
    }

    #[inline]
    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "bytes {offset}+{length} of a buffer of {}", self.length);
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the bytes were allocated with this layout (invariant) and nobody uses them any more: whoever registered
        // them had to keep the buffer.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}
