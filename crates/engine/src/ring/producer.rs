//! The producer's side of a ring.

use fallible::{AllocError, Arc};

use super::{
    Indices, is_past,
    segment::{Link, RingPass, Segment, SegmentView, store},
};
use crate::{prefetch, sync::Ordering};

/// Pushes entries.
///
/// # Invariants
///
/// - `limit` is at most the capacity of the segment at hand.
/// - `tail - head` is at most `limit`, and the entries from the last seal on lie in that segment.
/// - Entries from `tail` to before `fast_until` fit, and belong to `pass`, which is one of the segment at hand.
// What `fast_push` uses is in one cache line, next to the lock before it.
#[repr(C)]
pub struct Producer<T> {
    indices: Arc<Indices>,
    view: SegmentView<T>,
    /// Number of the next entry to be written. Entries from the published tail up to here are written, but not published.
    tail: u64,
    /// Number of the first entry that [`Producer::fast_push`] does not take.
    fast_until: u64,
    pass: RingPass<T>,
    limit: u64,
    /// The consumer's head when it was last read.
    seen_head: u64,
}

impl<T: Copy + Send> Producer<T> {
    pub(super) fn new(indices: Arc<Indices>, view: SegmentView<T>, limit: u32, first: u64) -> Self {
        let pass = view.pass(first);
        Self { indices, view, tail: first, fast_until: first, pass, limit: limit.into(), seen_head: first }
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
        self.seen_head = self.indices.taken.head.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.seen_head)
    }

    /// Returns true if `count` more entries fit. Loads the consumer's index only if they are not known to fit.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self, count: u64) -> bool {
        self.is_known_to_have_room(count) || self.occupied().saturating_add(count) <= self.limit
    }

    #[inline]
    const fn is_known_to_have_room(&self, count: u64) -> bool {
        // Counts are those of queues, far below the end of the type.
        self.tail.wrapping_add(count).wrapping_sub(self.seen_head) <= self.limit
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

    /// [`Producer::push`] with one comparison and a few stores, if [`Producer::enable_fast_push`] has allowed that. Returns false
    /// if not: then nothing has happened.
    #[inline]
    #[must_use]
    pub fn fast_push(&mut self, entry: T) -> bool {
        if !is_past(self.fast_until, self.tail) {
            return false;
        }
        // SAFETY: the entry belongs to the pass (invariant), whose segment is the one at hand.
        let slot = unsafe { self.pass.slot(self.tail) };
        // SAFETY: the entry fits (invariant).
        unsafe { store(slot, entry) };
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Lets [`Producer::fast_push`] take the next entries, as far as they are known to fit and belong to one pass. So one
    /// comparison answers everything, and the caller may have conditions of its own for when to enable this.
    #[inline]
    pub fn enable_fast_push(&mut self) {
        let end = (self.tail | u64::from(self.view.mask)).wrapping_add(1);
        let full = self.seen_head.wrapping_add(self.limit);
        self.fast_until = if is_past(end, full) { full } else { end };
        self.pass = self.view.pass(self.tail);
    }

    /// Takes back what [`Producer::enable_fast_push`] has allowed.
    #[inline]
    pub const fn disable_fast_push(&mut self) {
        self.fast_until = self.tail;
    }

    /// Makes pushed entries visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        self.indices.filled.tail.store(self.tail, Ordering::Release);
    }

    /// Prefetches the slot of the entry `ahead` places behind the next one, for writing.
    #[inline]
    pub fn prefetch(&self, ahead: u64) {
        prefetch::to_write(self.view.slot(self.tail.wrapping_add(ahead)));
    }

    /// Lets a [`TailPublisher`] publish pushed entries.
    #[inline]
    pub(crate) fn hand_over(&self) {
        self.indices.filled.handed_over.store(self.tail, Ordering::Release);
    }

    /// A handle that reads and publishes the tail without the producer.
    #[must_use]
    pub fn tail_publisher(&self) -> TailPublisher {
        TailPublisher(self.indices.clone())
    }

    /// Discards entries that were pushed since the last [`Producer::publish`]. Not for a ring that a [`TailPublisher`] publishes.
    pub fn retract(&mut self) {
        self.tail = self.indices.filled.tail.load(Ordering::Relaxed);
        // Passes are counted from the tail.
        self.disable_fast_push();
    }

    /// How a queue for `limit` entries would be made out of this one.
    #[must_use]
    pub fn plan(&self, limit: u32) -> Plan {
        let (wanted, capacity) = (u64::from(Segment::<T>::capacity_for(limit)), self.view.segment.capacity());
        let is_only = self.indices.taken.followed.load(Ordering::Relaxed) == self.view.number;
        if wanted > capacity || (wanted < capacity && is_only) { Plan::NewSegment } else { Plan::InPlace }
    }

    /// Sets the most entries the queue may hold, in `spare` if the present segment is too small or much too large.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Occupied`] if the queue holds more entries than that, [`ResizeError::NeedsSpare`] if a spare segment is
    /// needed and `spare` is none or too small. The queue is unchanged then.
    pub fn resize(&mut self, limit: u32, spare: Option<Spare<T>>) -> Result<(), ResizeError> {
        self.disable_fast_push();
        if self.occupied() > u64::from(limit) {
            return Err(ResizeError::Occupied);
        }
        if self.plan(limit) == Plan::NewSegment {
            match spare.filter(|spare| spare.0.capacity() >= u64::from(limit)) {
                Some(spare) => self.continue_in(spare.0),
                None if u64::from(limit) > self.view.segment.capacity() => return Err(ResizeError::NeedsSpare),
                // A smaller segment only saves memory.
                None => {}
            }
        }
        self.limit = u64::from(limit);
        Ok(())
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
        self.indices.filled.sealed.store(self.view.number, Ordering::Release);
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
        // so `head` is past `tail - limit`, and `limit <= capacity`. `seen_head` was read with acquire, so the consumer has done
        // with the slot.
        unsafe { store(queue.view.slot(queue.tail), entry) };
        queue.tail = queue.tail.wrapping_add(1);
    }
}

/// Reads the tail of a ring, and publishes it for a producer that may already be in use by the next caller.
pub struct TailPublisher(Arc<Indices>);

impl TailPublisher {
    /// Number of the next entry to be published.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.0.filled.tail.load(Ordering::Acquire)
    }

    /// [`Producer::publish`] for the entries that the producer has [handed over](Producer::hand_over).
    #[inline]
    pub(crate) fn publish(&self) {
        self.0.filled.tail.store(self.0.filled.handed_over.load(Ordering::Acquire), Ordering::Release);
    }
}

/// Memory for a ring that is resized.
pub struct Spare<T>(Arc<Segment<T>>);

impl<T: Copy + Send> Spare<T> {
    /// Room for `limit` entries.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(limit: u32) -> Result<Self, AllocError> {
        Segment::try_new(limit).map(Self)
    }
}

/// What [`Producer::resize`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: the segment in use will do.
    InPlace,
    /// A [`Spare`].
    NewSegment,
}

/// Why a queue kept its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// It holds more entries than it should be able to hold.
    Occupied,
    /// It needs more memory than it was given.
    NeedsSpare,
}
