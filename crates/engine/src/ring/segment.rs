//! Segments: the memory of a ring.

use alloc::boxed::Box;
use core::{mem::MaybeUninit, ptr::NonNull};

use fallible::{AllocError, Arc, try_slice};

use super::low;
use crate::sync::UnsafeCell;

/// The place of an entry.
pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots, a power of two of them. Entry `n` lies in slot `n % capacity`.
///
/// # Invariants
///
/// - `capacity` is a power of two, and the length of `slots`.
/// - `next` is written by the producer before it counts the segment as sealed, and belongs to the consumer afterwards.
pub(super) struct Segment<T> {
    slots: Box<[Slot<T>]>,
    capacity: u32,
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
        let capacity = entries.next_power_of_two();
        let slots = try_slice(capacity as usize, |_| UnsafeCell::new(MaybeUninit::uninit()))?;
        Arc::try_new(Self { slots, capacity, next: UnsafeCell::new(None) })
    }

    pub const fn capacity(&self) -> u64 {
        self.capacity as u64
    }
}

/// One side's current segment, with the address of its slots: finding a slot does not load from the segment.
///
/// # Invariants
///
/// `slots` points to the `mask + 1` slots of `segment`, a power of two. They do not move, and live as long as the segment.
pub(super) struct SegmentView<T> {
    pub segment: Arc<Segment<T>>,
    slots: NonNull<Slot<T>>,
    pub mask: u32,
    /// The number of segments before this one. It is sealed if more than that are sealed.
    pub number: u32,
}

// SAFETY: a view is a reference to a segment, and may go where that may; what it points to belongs to the segment.
unsafe impl<T: Send> Send for SegmentView<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for SegmentView<T> {}

impl<T> SegmentView<T> {
    pub fn new(segment: Arc<Segment<T>>, number: u32) -> Self {
        let mask = segment.capacity - 1;
        let slots = NonNull::from(&*segment.slots).cast();
        Self { segment, slots, mask, number }
    }

    /// The slot of entry `number`.
    #[inline]
    pub const fn slot(&self, number: u64) -> &Slot<T> {
        // SAFETY: the index is not above the mask, so the slot is one of the segment's (invariant). The segment lives as long as
        // `self`, and slots are only used through shared references.
        unsafe { &*self.slots.as_ptr().wrapping_add(low(number) & self.mask as usize) }
    }
}
