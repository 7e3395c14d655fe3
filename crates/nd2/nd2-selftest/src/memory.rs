//! Bytes that a client registers.

use std::{any::Any, ptr::NonNull};

use host::PinnedBuffer;
use ndkpi::NtStatus;

/// Bytes of the client's process. They may be registered, and so change at any time: they are read and written by copying only.
///
/// # Invariants
///
/// `bytes` points to `length` bytes, which stay where they are as long as `owner` lives.
pub struct Memory {
    bytes: NonNull<u8>,
    length: usize,
    #[expect(dead_code, reason = "gives the bytes back when it is dropped")]
    owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the value owns its bytes, which belong to no thread.
unsafe impl Send for Memory {}
// SAFETY: the bytes are copied only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed bytes of the host's.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(length: usize) -> Result<Self, NtStatus> {
        let buffer = PinnedBuffer::new(length)?;
        let bytes = NonNull::new(buffer.pointer(0)).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(Self { bytes, length, owner: Box::new(buffer) })
    }

    /// Bytes that somebody else has, until `owner` is dropped.
    ///
    /// # Safety
    ///
    /// From `bytes` on there are `length` bytes as long as `owner` lives, and nobody makes references to them.
    #[must_use]
    pub unsafe fn of(bytes: NonNull<u8>, length: usize, owner: impl Any + Send + Sync) -> Self {
        Self { bytes, length, owner: Box::new(owner) }
    }

    /// The address of the byte at `offset`.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        self.bytes.addr().get() as u64 + offset as u64
    }

    /// A pointer to the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is beyond the end.
    #[must_use]
    pub fn pointer(&self, offset: usize) -> *mut u8 {
        self.check(offset, 0);
        // SAFETY: there are `length` bytes (invariant), and `offset` is not beyond.
        unsafe { self.bytes.as_ptr().add(offset) }
    }

    /// `length` of the bytes.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.check(offset, length);
        let mut bytes = vec![0; length];
        // SAFETY: there are that many bytes from there on (checked), and the vector is memory of its own.
        unsafe { self.pointer(offset).copy_to(bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Copies bytes into them.
    ///
    /// # Panics
    ///
    /// If they do not all fit.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: there are that many bytes from there on (checked), and `from` is memory of its own.
        unsafe { self.pointer(offset).copy_from(from.as_ptr(), from.len()) };
    }

    /// Sets every byte to `value`.
    pub const fn fill(&self, value: u8) {
        // SAFETY: there are `length` bytes (invariant).
        unsafe { self.bytes.as_ptr().write_bytes(value, self.length) };
    }

    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "bytes {offset}+{length} of {}", self.length);
    }
}
