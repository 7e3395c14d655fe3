//! Non-paged memory with MDLs in the shapes that the suite wants.

use conformance::platform::{PinnedMemory, Shape};
use kernel::NonPaged;
use ndkpi::NtStatus;
use wdk_sys::{PAGE_SIZE, ULONG};

const TAG: ULONG = u32::from_le_bytes(*b"Ntmm");

const PAGE: usize = PAGE_SIZE as usize;

/// A buffer in non-paged pool and the chain of MDLs that describes it.
pub struct Pinned(NonPaged);

impl Pinned {
    /// Allocates and describes memory.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` for a shape that such a length cannot have.
    pub fn try_new(shape: Shape, length: usize) -> Result<Self, NtStatus> {
        let mut memory = NonPaged::try_new(length, TAG)?;
        // From the end: each MDL is put in front of the others.
        match shape {
            Shape::Whole => memory.describe(0, length)?,
            Shape::Chained(piece) if piece > 0 => {
                for begin in (0..length).step_by(piece).rev() {
                    memory.describe(begin, piece.min(length - begin))?;
                }
            }
            Shape::Gap if length >= 3 * PAGE => {
                memory.describe(2 * PAGE, length - 2 * PAGE)?;
                memory.describe(0, PAGE)?;
            }
            Shape::Chained(_) | Shape::Gap => return Err(NtStatus::INVALID_PARAMETER),
        }
        Ok(Self(memory))
    }
}

// SAFETY: the chain describes the memory as the shape says and lives as long as the value; the memory is non-paged, so it stays
// where it is and can be used by anybody at any level, and it begins on a page.
unsafe impl PinnedMemory for Pinned {
    fn mdl(&self) -> *mut ndkpi::MDL {
        self.0.mdl().cast()
    }

    fn address(&self) -> *mut u8 {
        self.0.address()
    }

    fn length(&self) -> usize {
        self.0.length()
    }
}
