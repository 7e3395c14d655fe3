//! Segments: the memory of a ring.

use alloc::boxed::Box;
use core::{mem::MaybeUninit, ptr::NonNull};

use fallible::{AllocError, Arc, try_slice};

use super::{CACHE_LINE, low};
use crate::sync::UnsafeCell;

/// The place of an entry.
pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots, a power of two of them. Entry `n` lies in slot `n % capacity`.
///
/// # Invariants
///
/// - `first + capacity` is at most the length of `places`, and `capacity` is a power of two.
/// - `next` is written by the producer before it counts the segment as sealed, and belongs to the consumer afterwards.
pub(super) struct Segment<T> {
    /// The slots, with unused ones around them so that the first slot can begin a cache line.
    places: Box<[Slot<T>]>,
    /// Index of the first slot in `places`.
    first: usize,
    /// The number of slots.
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
        let capacity = Self::capacity_for(entries);
        // In long queues the first slot begins a cache line, so that batches of whole lines share none with each other.
        let apart = CACHE_LINE >> size_of::<T>().trailing_zeros().min(CACHE_LINE.trailing_zeros());
        let spare = if capacity < 128 { 0 } else { apart - 1 };
        let places: Box<[Slot<T>]> = try_slice(capacity as usize + spare, |_| UnsafeCell::new(MaybeUninit::uninit()))?;
        let is_aligned = |first: &usize| places[*first..].as_ptr().addr().is_multiple_of(CACHE_LINE);
        let first = (0..=spare).find(is_aligned).unwrap_or(0);
        Arc::try_new(Self { places, first, capacity, next: UnsafeCell::new(None) })
    }

    /// The number of slots for `entries` entries.
    pub const fn capacity_for(entries: u32) -> u32 {
        // The largest queue of the engine is far below `1 << 31`.
        entries.next_power_of_two()
    }

    pub const fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    fn slots(&self) -> &[Slot<T>] {
        &self.places[self.first..][..self.capacity as usize]
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
        let slots = NonNull::from(segment.slots()).cast();
        Self { segment, slots, mask, number }
    }

    /// The pass over the segment that entry `number` belongs to.
    pub const fn pass(&self, number: u64) -> RingPass<T> {
        RingPass { origin: self.slots.as_ptr().cast_const().wrapping_sub(low(number & !(self.mask as u64))) }
    }

    /// The slot of entry `number`.
    #[inline]
    pub const fn slot(&self, number: u64) -> &Slot<T> {
        // SAFETY: the index is not above the mask, so the slot is one of the segment's (invariant). The segment lives as long as
        // `self`, and slots are only used through shared references.
        unsafe { &*self.slots.as_ptr().wrapping_add(low(number) & self.mask as usize) }
    }
}

/// Slots found by entry number alone: a base address for one pass over a segment.
///
/// A pass needs one load to find a slot where a view needs two. Under a lock each load takes its time: with the mask to load, a
/// push and a poll took 6 % longer.
#[derive(Clone, Copy)]
pub(super) struct RingPass<T> {
    /// `origin + n` is the slot of entry `n`. After the first pass `origin` lies outside the allocation, so use
    /// `wrapping_add` only.
    origin: *const Slot<T>,
}

// SAFETY: as for `SegmentView`.
unsafe impl<T: Send> Send for RingPass<T> {}
// SAFETY: as for `SegmentView`.
unsafe impl<T: Send> Sync for RingPass<T> {}

impl<T> RingPass<T> {
    /// The slot of entry `number`.
    ///
    /// # Safety
    ///
    /// The entry belongs to this pass, and the segment lives as long as the result.
    #[inline]
    pub unsafe fn slot<'a>(&self, number: u64) -> &'a Slot<T> {
        // SAFETY: it is a slot of the segment (see `SegmentView::pass`), which lives (the caller's promise), and slots are only
        // used through shared references.
        unsafe { &*self.origin.wrapping_add(low(number)) }
    }
}

/// Writes an entry to its slot.
///
/// # Safety
///
/// The slot belongs to the caller until the entry is published.
#[inline]
pub(super) unsafe fn store<T>(slot: &Slot<T>, entry: T) {
    // SAFETY: the slot is the caller's.
    slot.with_mut(|slot| unsafe { slot.write(MaybeUninit::new(entry)) });
}
