//! Pinned memory on a host.

use crate::platform::{PinnedMemory, Shape};
use host::PinnedBuffer;
use ndkpi::{MDL, NtStatus};

/// A buffer of the host in the shape that the suite wants.
pub struct HostPinned(PinnedBuffer);

impl HostPinned {
    /// Allocates it.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, or `STATUS_INVALID_PARAMETER` for a shape that such a length cannot have.
    pub fn new(shape: Shape, length: usize) -> Result<Self, NtStatus> {
        Ok(Self(match shape {
            Shape::Whole => PinnedBuffer::new(length)?,
            Shape::Chained(piece) => PinnedBuffer::split(length, piece)?,
            Shape::Gap => PinnedBuffer::discontiguous(length)?,
        }))
    }
}

// SAFETY: the chain of a `PinnedBuffer` is what the provider's host side takes for an MDL and describes the buffer as the
// shape says; its bytes are page-aligned, do not move, and are used by copying only.
unsafe impl PinnedMemory for HostPinned {
    fn mdl(&self) -> *mut MDL {
        self.0.mdl().cast()
    }

    fn address(&self) -> *mut u8 {
        self.0.pointer(0)
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}
