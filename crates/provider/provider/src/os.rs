//! What this layer needs of an operating system, beyond what the engine needs.

use engine::os::Os;
use ndkpi::{MDL, NtStatus};

use crate::Note;

/// What uses memory that a consumer has lent: a number that no other user in this kernel has as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A region that is registered, by the address of its object.
    Region(usize),
    /// A logical address mapping, by the address of its device and its key.
    Mapping(usize, u64),
}

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

    /// A consumer has lent the first `length` bytes of a chain of MDLs: it may free or unlock them only after
    /// [`NdkOs::give_back`] (`NDKPI 7.4`, `NDKPI 7.5`). For whoever watches it; called before the consumer knows that the request is
    /// complete, at `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn borrow(&self, holder: Holder, mdl: *mut MDL, length: usize) {
        let _ = (holder, mdl, length);
    }

    /// The bytes are the consumer's again. Called before it knows, at `IRQL <= DISPATCH_LEVEL`, possibly with locks of the engine
    /// held. A holder that has borrowed nothing is left alone.
    fn give_back(&self, holder: Holder) {
        let _ = holder;
    }

    /// Traces an event. Called at `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn note(&self, note: Note) {
        let _ = note;
    }
}
