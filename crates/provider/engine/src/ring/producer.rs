//! The producer's side of a ring.

use core::mem::MaybeUninit;

use fallible::{AllocError, Arc};

use super::{
    Indices,
    segment::{Link, Segment, SegmentView},
};
use crate::{prefetch, sync::Ordering};

/// Pushes entries.
///
/// # Invariants
///
/// - `limit` is at most the capacity of the current segment, in which all entries since the last seal lie.
/// - `tail <= room_until <= head + limit`, with the differences as numbers.
// What a push uses is in one cache line, next to the lock before it.
#[repr(C)]
pub struct Producer<T> {
    indices: Arc<Indices>,
    view: SegmentView<T>,
    /// Number of the next entry to be written. Entries from the published tail up to here are written, but not published.
    tail: u64,
    /// Number of the first entry that is not known to fit: the limit, counted from the consumer's head when it was last loaded.
    room_until: u64,
    limit: u64,
}

impl<T: Copy + Send> Producer<T> {
    pub(super) fn new(indices: Arc<Indices>, view: SegmentView<T>, limit: u32, first: u64) -> Self {
        let limit = u64::from(limit);
        Self { indices, view, tail: first, room_until: first.wrapping_add(limit), limit }
    }

    /// Number of the next entry to be written.
    #[inline]
    #[must_use]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// The most entries the queue may hold.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The number of entries that the consumer has not taken. It may take some at any time.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn occupied(&mut self) -> u64 {
        let head = self.indices.consumer.head.load(Ordering::Acquire);
        self.room_until = head.wrapping_add(self.limit);
        self.tail.wrapping_sub(head)
    }

    /// Returns true if `count` more entries fit. Loads the consumer's index only if they are not known to fit.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self, count: u64) -> bool {
        self.room_until.wrapping_sub(self.tail) >= count || self.occupied().saturating_add(count) <= self.limit
    }

    /// Writes an entry, which the consumer sees after [`Producer::publish`]. Returns false if the ring is full.
    #[inline]
    #[must_use]
    pub fn push(&mut self, entry: T) -> bool {
        self.vacancy().map(|vacancy| vacancy.fill(entry)).is_some()
    }

    /// The slot of the next entry; `None` if the ring is full.
    #[inline]
    pub fn vacancy(&mut self) -> Option<Vacancy<'_, T>> {
        self.has_room(1).then_some(Vacancy(self))
    }

    /// Makes pushed entries visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        self.indices.producer.tail.store(self.tail, Ordering::Release);
    }

    /// Prefetches the slot of the entry `ahead` places behind the next one, for writing.
    #[inline]
    pub fn prefetch(&self, ahead: u64) {
        prefetch::to_write(self.view.slot(self.tail.wrapping_add(ahead)));
    }

    /// Lets a [`TailPublisher`] publish pushed entries.
    #[inline]
    pub(crate) fn hand_over(&self) {
        self.indices.producer.handed_over.store(self.tail, Ordering::Release);
    }

    /// A handle that reads and publishes the tail without the producer.
    #[must_use]
    pub fn tail_publisher(&self) -> TailPublisher {
        TailPublisher(self.indices.clone())
    }

    /// Discards entries that were pushed since the last [`Producer::publish`]. Not for a ring that a [`TailPublisher`] publishes.
    pub fn retract(&mut self) {
        self.tail = self.indices.producer.tail.load(Ordering::Relaxed);
    }

    //= NDKPI 7.1.11
    /// Changes the limit to that of `spare`. The ring goes on in `spare` if the current segment is too small or larger than
    /// needed, and returns it otherwise.
    ///
    /// # Errors
    ///
    /// `spare`, if the ring holds more entries than that. It is unchanged then.
    pub fn resize(&mut self, spare: Spare<T>) -> Result<Option<Spare<T>>, Spare<T>> {
        let limit = u64::from(spare.limit);
        if self.occupied() > limit {
            return Err(spare);
        }
        self.room_until = self.room_until.wrapping_sub(self.limit).wrapping_add(limit);
        self.limit = limit;
        let (wanted, capacity) = (spare.segment.capacity(), self.view.segment.capacity());
        let is_only = self.indices.consumer.followed.load(Ordering::Relaxed) == self.view.number;
        if wanted > capacity || (wanted < capacity && is_only) {
            self.continue_in(spare.segment);
            return Ok(None);
        }
        Ok(Some(spare))
    }

    /// Seals the segment and goes on in `segment`.
    fn continue_in(&mut self, segment: Arc<Segment<T>>) {
        self.publish();
        let link = Link { end: self.tail, segment: segment.clone() };
        self.view.segment.next.with_mut(|next| {
            // SAFETY: the segment is not sealed: the producer seals a segment only here, and leaves it then. So `next` is
            // still the producer's, and is `None`.
            unsafe { next.write(Some(link)) };
        });
        self.view = SegmentView::new(segment, self.view.number.wrapping_add(1));
        self.indices.producer.sealed.store(self.view.number, Ordering::Release);
    }
}

/// Room for one entry. Reserved first where nothing may fail once the entry is made.
pub struct Vacancy<'queue, T>(&'queue mut Producer<T>);

impl<T: Copy + Send> Vacancy<'_, T> {
    /// [`Producer::push`].
    #[inline]
    pub fn fill(self, entry: T) {
        let Self(queue) = self;
        // SAFETY: entry `tail` is not published. The slot's entry before it, `tail - capacity`, has been taken: there is room,
        // so `head` is past `tail - limit`, and `limit <= capacity`. The head was read with acquire, so the consumer has done with
        // the slot, which is the producer's until the entry is published.
        queue.view.slot(queue.tail).with_mut(|slot| unsafe { slot.write(MaybeUninit::new(entry)) });
        queue.tail = queue.tail.wrapping_add(1);
    }
}

/// Reads the tail of a ring, and publishes it for a producer that may already be in use by the next caller.
pub struct TailPublisher(Arc<Indices>);

impl TailPublisher {
    /// Number of the next entry to be published.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.0.producer.tail.load(Ordering::Acquire)
    }

    /// [`Producer::publish`] for the entries that the producer has [handed over](Producer::hand_over).
    #[inline]
    pub(crate) fn publish(&self) {
        self.0.producer.tail.store(self.0.producer.handed_over.load(Ordering::Acquire), Ordering::Release);
    }
}

/// Memory for a ring that is resized.
pub struct Spare<T> {
    segment: Arc<Segment<T>>,
    limit: u32,
}

impl<T: Copy + Send> Spare<T> {
    /// Room for `limit` entries.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(limit: u32) -> Result<Self, AllocError> {
        Segment::try_new(limit).map(|segment| Self { segment, limit })
    }
}
