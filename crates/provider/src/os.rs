//! What this layer asks of an operating system besides what the engine asks.

use engine::os::Os;
use ndkpi::{MDL, NtStatus};

use crate::Note;

/// An operating system that has MDLs.
pub trait NdkOs: Os {
    /// The first `length` bytes that a chain of MDLs describes, mapped for as long as the value lives.
    ///
    /// The chain has to describe one virtually contiguous range; the addresses in it are compared, never used
    /// (`NDKPI 7.4`). It must not be looked at after the call.
    ///
    /// Callable at `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range is not contiguous or shorter than `length`;
    /// `STATUS_INSUFFICIENT_RESOURCES` if it cannot be mapped.
    ///
    /// # Safety
    ///
    /// `mdl` is null or points to a chain of MDLs whose pages are locked, and stay locked until the value is dropped.
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<Self::Memory, NtStatus>;

    /// Something has happened, for whoever collects traces. `IRQL <= DISPATCH_LEVEL`, no lock held.
    fn note(&self, note: Note) {
        let _ = note;
    }
}
