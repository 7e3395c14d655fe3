//! What this layer needs of an operating system, beyond what the engine needs.

use engine::os::Os;
use ndkpi::{MDL, NtStatus};

use crate::Note;

/// An operating system that has MDLs.
pub trait NdkOs: Os {
    /// Maps the first `length` bytes that a chain of MDLs describes, as long as the value lives.
    ///
    /// The chain has to describe one virtually contiguous range; the addresses in it are compared, never used
    /// (`NDKPI 7.4`). The chain is not read after the call.
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

    /// Traces an event. Called at `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn note(&self, note: Note) {
        let _ = note;
    }
}
