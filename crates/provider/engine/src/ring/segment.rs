//! Segments: the memory of a ring.

use alloc::boxed::Box;
use core::mem::MaybeUninit;

use fallible::{AllocError, Arc, try_slice};

use super::low;
use crate::sync::UnsafeCell;

/// The place of an entry.
pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots, a power of two of them. Entry `n` lies in slot `n % capacity`.
///
/// # Invariants
///
/// - The number of `slots` is a power of two.
/// - `next` is written by the producer before it counts the segment as sealed, and belongs to the consumer afterwards.
pub(super) struct Segment<T> {
    slots: Box<[Slot<T>]>,
    pub next: UnsafeCell<Option<Link<T>>>,
}

/// The link from a segment to the next one.
pub(super) struct Link<T> {
    /// Number of the first entry in the next segment.
    pub end: u64,
    pub segment: Arc<Segment<T>>,
}

// SAFETY: the cells of a segment are used by one side at a time: a slot by the producer until its entry is published and
// by the consumer from then until `head` passes it, `next` as its invariant says. `T` moves between the two.
unsafe impl<T: Send> Send for Segment<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Segment<T> {}

impl<T> Segment<T> {
    /// A segment with room for `entries` entries.
    pub fn try_new(entries: u32) -> Result<Arc<Self>, AllocError> {
        // The largest queue of the engine is far below `1 << 31`.
        let slots = try_slice(entries.next_power_of_two() as usize, |_| UnsafeCell::new(MaybeUninit::uninit()))?;
        Arc::try_new(Self { slots, next: UnsafeCell::new(None) })
    }

    pub const fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }
}

/// One side's current segment.
pub(super) struct SegmentView<T> {
    pub segment: Arc<Segment<T>>,
    /// The number of segments before this one. It is sealed if more than that are sealed.
    pub number: u32,
}

impl<T> SegmentView<T> {
    pub const fn new(segment: Arc<Segment<T>>, number: u32) -> Self {
        Self { segment, number }
    }

    /// The slot of entry `number`.
    #[inline]
    pub fn slot(&self, number: u64) -> &Slot<T> {
        // SAFETY: the number of slots is a power of two (invariant), so the masked index is below it.
        unsafe { self.segment.slots.get_unchecked(low(number) & (self.segment.slots.len() - 1)) }
    }
}
