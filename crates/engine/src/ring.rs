//! A queue between one producer and one consumer that can change its size while both run.
//!
//! This is the one module of the engine with unsafe code, but for [hints](crate::prefetch). It holds completion queues
//! (producers take turns under a lock) and the request queues of queue pairs.
//!
//! Entries have running numbers that never start again: the producer publishes the number of the next entry it will write
//! (`tail`), the consumer the number of the next it will take (`head`). Comparisons are made on differences, so the
//! numbers may wrap around.
//!
//! Entries live in *segments*, each a power of two in size. To change the size the producer *seals* its segment: it notes
//! the number at which the segment ends, links a new one and goes on there. The consumer takes what the old segment still
//! holds and follows the link, which frees the old one. Nothing is copied, so nothing can be lost or change places, and
//! neither side ever waits for the other.
//!
//! Memory stays in bounds without the consumer's help: a larger segment is at least twice as large as the one before, and a
//! smaller one is only made when the consumer has followed every link.

#![allow(unsafe_code, reason = "slots are shared between two processors; every use is proved at its place")]

use alloc::boxed::Box;
use core::{mem::MaybeUninit, ptr::NonNull, slice};

use fallible::{AllocError, Shared, try_slice};

use crate::{
    prefetch,
    sync::{AtomicU32, AtomicU64, CachePadded, Ordering, UnsafeCell},
};

/// Bytes that processors exchange at once.
const CACHE_LINE: usize = 64;
/// Entries whose lines are fetched together: see [`Producer::publish_and_reach`]. A power of two; model checks have short queues.
///
/// The entry that ends a group takes longer, so groups are not short; a line is stored to for every two completions then, with a lock
/// held, so they are not long.
const GROUP: usize = if cfg!(loom) { 2 } else { 128 };

/// The place of an entry.
type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// What both sides see.
struct Indices {
    filled: CachePadded<Filled>,
    taken: CachePadded<Taken>,
}

/// Written by the producer.
struct Filled {
    /// Number of the next entry to be published.
    tail: AtomicU64,
    /// Number of the next entry that a [`Watch`] may not publish.
    handed_over: AtomicU64,
    /// How many segments are sealed.
    sealed: AtomicU32,
}

/// Written by the consumer.
struct Taken {
    /// Number of the next entry to be taken.
    head: AtomicU64,
    /// How many links were followed.
    followed: AtomicU32,
}

/// A power of two of slots. Entry `n` lies in slot `n % capacity`.
///
/// # Invariants
///
/// - `first + capacity` is at most the number of places, and `capacity` is a power of two.
/// - `next` is written by the producer before it counts the segment among the sealed ones, and belongs to the consumer
///   afterwards.
struct Segment<T> {
    /// The slots, and some on both sides that are not used: so the first lies at the beginning of a cache line.
    places: Box<[Slot<T>]>,
    /// Which of `places` is the first slot.
    first: usize,
    /// The number of slots.
    capacity: u32,
    next: UnsafeCell<Option<Link<T>>>,
}

struct Link<T> {
    /// Number of the first entry that is not in the segment before.
    end: u64,
    segment: Shared<Segment<T>>,
}

// SAFETY: the cells of a segment are used by one side at a time: a slot by the producer until its entry is published and
// by the consumer from then until `head` passes it, `next` as its invariant says. `T` moves between the two.
unsafe impl<T: Send> Send for Segment<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Segment<T> {}

impl<T> Segment<T> {
    fn try_new(capacity: u32) -> Result<Shared<Self>, AllocError> {
        // Batches that fill whole lines then share none with each other. It is not worth its memory for short queues. Of so many
        // places one behind the other each begins somewhere else in its line.
        let apart = CACHE_LINE >> size_of::<T>().trailing_zeros().min(CACHE_LINE.trailing_zeros());
        let spare = if capacity < 128 { 0 } else { apart - 1 };
        let places: Box<[Slot<T>]> = try_slice(capacity as usize + spare, |_| UnsafeCell::new(MaybeUninit::uninit()))?;
        let is_aligned = |first: &usize| places[*first..].as_ptr().addr().is_multiple_of(CACHE_LINE);
        let first = (0..=spare).find(is_aligned).unwrap_or(0);
        Shared::try_new(Self { places, first, capacity, next: UnsafeCell::new(None) })
    }

    const fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    fn slots(&self) -> &[Slot<T>] {
        &self.places[self.first..][..self.capacity as usize]
    }
}

/// The segment that one side uses, with the place of its slots: the way to a slot does not lead through the segment.
///
/// # Invariants
///
/// `slots` points to the `mask + 1` slots of `segment`, a power of two. They do not move, and live as long as the segment.
struct At<T> {
    segment: Shared<Segment<T>>,
    slots: NonNull<Slot<T>>,
    mask: u32,
    /// How many segments come before this one, which is sealed if more are.
    number: u32,
}

// SAFETY: an `At` is a reference to a segment, and may go where that may; what it points to belongs to the segment.
unsafe impl<T: Send> Send for At<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for At<T> {}

impl<T> At<T> {
    const fn index(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only bits of the mask are kept")]
        let number = number as u32;
        (number & self.mask) as usize
    }

    fn new(segment: Shared<Segment<T>>, number: u32) -> Self {
        let mask = segment.capacity - 1;
        let slots = NonNull::from(segment.slots()).cast();
        Self { segment, slots, mask, number }
    }

    /// The lap that the entry `number` belongs to.
    const fn lap(&self, number: u64) -> Lap<T> {
        let first = number & !(self.mask as u64);
        // From there the first slot is that of entry `first`, and the others follow.
        Lap { origin: self.slots.as_ptr().cast_const().wrapping_sub(low(first)) }
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot<T> {
        // SAFETY: the index is not above the mask, so the slot is one of the segment's (invariant).
        let slot = unsafe { self.slots.add(self.index(number)) };
        // SAFETY: the segment lives as long as `self`, and slots are only used through shared references.
        unsafe { slot.as_ref() }
    }

    /// The slots from that of entry `number` to the last one.
    #[inline]
    fn slots_from(&self, number: u64) -> &[Slot<T>] {
        let begin = self.index(number);
        // SAFETY: as in `slot`.
        let first = unsafe { self.slots.add(begin) };
        // SAFETY: so many slots lie from there to the last one, and they live as long as `self`.
        unsafe { slice::from_raw_parts(first.as_ptr(), self.mask as usize + 1 - begin) }
    }
}

#[cfg(not(loom))]
impl<T: Copy> At<T> {
    /// Stores something to every line of the slots from that of entry `number` on.
    ///
    /// # Safety
    ///
    /// The `count` slots belong to the caller, and hold nothing.
    ///
    /// # Panics
    ///
    /// If they go over the end.
    #[inline]
    unsafe fn touch(&self, number: u64, count: usize) {
        let slots = &self.slots_from(number)[..count];
        let first = slots.as_ptr().cast::<u8>().cast_mut();
        for offset in (0..size_of_val(slots)).step_by(CACHE_LINE) {
            // SAFETY: the offset lies in `slots`.
            let line = unsafe { first.add(offset) };
            // SAFETY: the slots are the caller's, open to writes through a shared reference, and nobody reads from them before an
            // entry has been written.
            unsafe { line.write_volatile(0) };
        }
    }

    /// Writes `entries` into the slots from that of entry `number` on.
    ///
    /// In one or two copies: the slots are in the consumer's cache, and wide stores let the processor fetch more of them at
    /// once than it has room for stores of single fields.
    ///
    /// # Safety
    ///
    /// There are at most as many entries as slots, and until they are published their slots belong to the caller.
    #[inline]
    unsafe fn write(&self, number: u64, entries: &[T]) {
        let copy = |slots: &[Slot<T>], part: &[T]| {
            let to = slots[..part.len()].as_ptr().cast::<T>().cast_mut();
            // SAFETY: the cells lie side by side, each of the layout of a `T` and open to writes through a shared reference;
            // there are as many as entries (checked), they are the caller's, and `part` is memory of its own.
            unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        };
        let until_end = self.slots_from(number);
        if let Some((first, rest)) = entries.split_at_checked(until_end.len()) {
            copy(until_end, first);
            copy(self.slots_from(0), rest);
        } else {
            copy(until_end, entries);
        }
    }
}

#[cfg(loom)]
impl<T: Copy> At<T> {
    /// Stores something to every slot from that of entry `number` on.
    ///
    /// # Safety
    ///
    /// The `count` slots belong to the caller, and hold nothing.
    unsafe fn touch(&self, number: u64, count: usize) {
        for offset in 0..count as u64 {
            self.slot(number.wrapping_add(offset)).with_mut(|slot| {
                // SAFETY: the slot is the caller's.
                unsafe { slot.cast::<u8>().write_volatile(0) };
            });
        }
    }

    /// Writes `entries` into the slots from that of entry `number` on.
    ///
    /// # Safety
    ///
    /// There are at most as many entries as slots, and until they are published their slots belong to the caller.
    unsafe fn write(&self, number: u64, entries: &[T]) {
        for (offset, entry) in (0..).zip(entries) {
            self.slot(number.wrapping_add(offset)).with_mut(|slot| {
                // SAFETY: the slot is the caller's.
                unsafe { slot.write(MaybeUninit::new(*entry)) };
            });
        }
    }
}

/// Writes an entry to its place.
///
/// # Safety
///
/// The slot belongs to the caller until the entry is published.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `Producer::push`")]
unsafe fn store<T>(slot: &Slot<T>, entry: T) {
    slot.with_mut(|slot| {
        // SAFETY: the slot is the caller's.
        unsafe { slot.write(MaybeUninit::new(entry)) };
    });
}

/// One pass over a segment: slots by the numbers of their entries, with nothing to load for it but a pointer.
///
/// Behind a lock each load takes its time: where a mask had to be loaded too, to push one and poll one took 6 % longer (measured).
#[derive(Clone, Copy)]
struct Lap<T> {
    /// So many slots before that of an entry as its number says. Not a place of the segment, but for the first lap.
    origin: *const Slot<T>,
}

// SAFETY: as for `At`.
unsafe impl<T: Send> Send for Lap<T> {}
// SAFETY: as for `At`.
unsafe impl<T: Send> Sync for Lap<T> {}

impl<T> Lap<T> {
    /// The slot of the entry `number`.
    ///
    /// # Safety
    ///
    /// The entry belongs to this lap, and the segment lives as long as the result.
    #[inline]
    unsafe fn slot<'a>(&self, number: u64) -> &'a Slot<T> {
        let slot = self.origin.wrapping_add(low(number));
        // SAFETY: it is a slot of the segment (see `At::lap`), which is there (the caller's promise), and slots are only used through
        // shared references.
        unsafe { &*slot }
    }
}

/// The bits of a number that addresses are made of.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the rest has no place in an address, and arithmetic of these wraps"
)]
const fn low(number: u64) -> usize {
    number as usize
}

/// Whether number `this` comes after `that`.
#[inline]
const fn is_past(this: u64, that: u64) -> bool {
    this.wrapping_sub(that).cast_signed() > 0
}

/// The number of slots for `entries` entries.
const fn capacity_for(entries: u32) -> u32 {
    // The largest queue of the engine is far below `1 << 31`.
    entries.next_power_of_two()
}

/// Makes a queue for at most `limit` entries, the first of which gets the number `first`.
///
/// `limit` is at most `1 << 31`. There is never room in a queue for none.
///
/// # Errors
///
/// [`AllocError`] when there is no memory.
pub fn try_new<T: Copy + Send>(limit: u32, first: u64) -> Result<(Producer<T>, Consumer<T>), AllocError> {
    let segment = Segment::try_new(capacity_for(limit))?;
    let at = At::new(segment.clone(), 0);
    let (number, none) = (|| AtomicU64::new(first), || AtomicU32::new(0));
    let indices = Shared::try_new(Indices {
        filled: CachePadded(Filled { tail: number(), handed_over: number(), sealed: none() }),
        taken: CachePadded(Taken { head: number(), followed: none() }),
    })?;
    let producer = Producer {
        indices: indices.clone(),
        lap: at.lap(first),
        at: At::new(segment, 0),
        limit: u64::from(limit),
        tail: first,
        seen_head: first,
        at_once_until: first,
    };
    Ok((producer, Consumer { indices, at, head: first, readable: first }))
}

/// The side that puts entries in.
///
/// # Invariants
///
/// - `limit` is at most the capacity of the segment at hand.
/// - `tail - head` is at most `limit`, and the entries from the last seal on lie in that segment.
/// - Entries from `tail` to before `at_once_until` fit, and belong to `lap`, which is one of the segment at hand.
// What `push_at_once` uses is in one cache line, with a lock before it.
#[repr(C)]
pub struct Producer<T> {
    indices: Shared<Indices>,
    at: At<T>,
    /// Number of the next entry to be written: the published tail plus what is written and not yet published.
    tail: u64,
    /// Number of the first entry that [`Producer::push_at_once`] leaves to the other ways.
    at_once_until: u64,
    lap: Lap<T>,
    limit: u64,
    /// The consumer's head when it was last looked at.
    seen_head: u64,
}

impl<T: Copy + Send> Producer<T> {
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

    /// How many entries the consumer has not taken. The consumer may take some at any time.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn occupied(&mut self) -> u64 {
        self.seen_head = self.indices.taken.head.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.seen_head)
    }

    /// Whether `count` more entries fit. Reads the consumer's index only if the last look at it does not settle it.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self, count: u64) -> bool {
        self.is_known_to_have_room(count) || self.occupied().saturating_add(count) <= self.limit
    }

    /// Whether the last look at the consumer's index says that `count` more entries fit.
    #[inline]
    const fn is_known_to_have_room(&self, count: u64) -> bool {
        // Counts are those of queues, far below the end of the type.
        self.tail.wrapping_add(count).wrapping_sub(self.seen_head) <= self.limit
    }

    /// Writes an entry that the consumer sees after [`Producer::publish`]. `false` if the queue is full.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: the entry goes from registers to its slot")]
    #[must_use]
    pub fn push(&mut self, entry: T) -> bool {
        self.vacancy().map(|vacancy| vacancy.fill(entry)).is_some()
    }

    /// The place of the next entry; `None` if the queue is full.
    #[inline]
    #[must_use]
    pub fn vacancy(&mut self) -> Option<Vacancy<'_, T>> {
        if self.has_room(1) { Some(Vacancy(self)) } else { None }
    }

    /// [`Producer::push`] and [`Producer::publish_and_reach`] for an entry that was [permitted](Producer::permit_at_once): a few
    /// stores, and no calls. `false` if it was not: then nothing has happened.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `push`")]
    #[must_use]
    pub fn push_at_once(&mut self, entry: T) -> bool {
        let is_permitted = is_past(self.at_once_until, self.tail);
        if is_permitted {
            // SAFETY: the entry belongs to the lap (invariant), whose segment is the one at hand.
            let slot = unsafe { self.lap.slot(self.tail) };
            // SAFETY: the entry fits (invariant).
            unsafe { store(slot, entry) };
            self.tail = self.tail.wrapping_add(1);
            self.publish();
        }
        is_permitted
    }

    /// Permits [`Producer::push_at_once`] the next entries, as long as they are known to fit without a look at the consumer's index and
    /// do not end a group. So one comparison tells, and who permits may have reasons of his own.
    #[inline]
    pub fn permit_at_once(&mut self) {
        // Laps are a multiple of groups, or shorter than one.
        let last = self.tail | u64::from(self.at.mask).min(GROUP as u64 - 1);
        let full = self.seen_head.wrapping_add(self.limit);
        self.at_once_until = if is_past(last, full) { full } else { last };
        self.lap = self.at.lap(self.tail);
    }

    /// Takes back what [`Producer::permit_at_once`] has permitted.
    #[inline]
    pub const fn forbid_at_once(&mut self) {
        self.at_once_until = self.tail;
    }

    /// Has the processor fetch the slot of the entry `ahead` places behind the next one, which the consumer's processor has read.
    #[inline]
    pub fn prefetch(&self, ahead: u64) {
        prefetch::to_write(self.at.slot(self.tail.wrapping_add(ahead)));
    }

    /// [`Producer::push`] for several entries, as many as fit. Returns how many.
    #[inline]
    #[must_use]
    pub fn push_all(&mut self, entries: &[T]) -> usize {
        if let [entry] = entries {
            return usize::from(self.push(*entry));
        }
        let mut count = entries.len();
        if !self.has_room(count as u64) {
            // Not more than `count`.
            count = usize::try_from(self.limit.saturating_sub(self.occupied())).unwrap_or(count).min(count);
        }
        // SAFETY: the entries are not published, and those before them in their slots have been taken, as in `Vacancy::fill`.
        // There are at most as many as `limit`, so not more than slots.
        unsafe { self.at.write(self.tail, &entries[..count]) };
        self.tail = self.tail.wrapping_add(count as u64);
        count
    }

    /// Lets the consumer see what was pushed.
    #[inline]
    pub fn publish(&mut self) {
        self.indices.filled.tail.store(self.tail, Ordering::Release);
    }

    /// [`Producer::publish`] for a producer that takes a lock for each entry. A lock waits for all stores before it, so every line
    /// of slots that the consumer's processor has read would be waited for alone. Where a single entry ends a group, this stores to
    /// the lines of the one behind the next, which then come one close behind the other; several entries were fetched together
    /// already. Hints were tried instead, and changed nothing.
    ///
    /// `before` is the tail when the producer took the lock.
    #[inline]
    pub fn publish_and_reach(&mut self, before: u64) {
        self.publish();
        if self.tail.is_multiple_of(GROUP as u64) && self.tail.wrapping_sub(before) == 1 {
            self.reach();
        }
    }

    /// Stores to the lines of the group of slots behind the next one, if they are known to be free. The tail is where a group begins.
    #[inline(never)]
    fn reach(&self) {
        if !self.is_known_to_have_room(2 * GROUP as u64) {
            return;
        }
        // SAFETY: there is room for two groups, so nothing of the one behind the next is published, and what was in its slots has
        // been taken, as in `Vacancy::fill`. Slots are a multiple of groups: none goes over the end.
        unsafe { self.at.touch(self.tail.wrapping_add(GROUP as u64), GROUP) };
    }

    /// Lets a [`Watch`] publish what was pushed, and gives the number for that.
    #[inline]
    pub(crate) fn hand_over(&self) -> u64 {
        // The watch may be somebody else's: he publishes what was written before this.
        self.indices.filled.handed_over.store(self.tail, Ordering::Release);
        self.tail
    }

    /// A view of the published tail for others.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(self.indices.clone())
    }

    /// Forgets what was pushed since the last [`Producer::publish`]. Not for a queue that a [`Watch`] publishes.
    pub fn retract(&mut self) {
        self.tail = self.indices.filled.tail.load(Ordering::Relaxed);
        self.forbid_at_once();
    }

    /// How a queue for `limit` entries would be made out of this one.
    #[must_use]
    pub fn plan(&self, limit: u32) -> Plan {
        let (wanted, capacity) = (u64::from(capacity_for(limit)), self.at.segment.capacity());
        let alone = self.indices.taken.followed.load(Ordering::Relaxed) == self.at.number;
        if wanted > capacity || (wanted < capacity && alone) { Plan::NewSegment } else { Plan::InPlace }
    }

    /// Sets the most entries the queue may hold, in `spare` if the present segment is too small or much too large.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Occupied`] if the queue holds more entries than that, [`ResizeError::NeedsSpare`] if a spare segment is
    /// needed and `spare` is none or too small. The queue is as it was then.
    pub fn resize(&mut self, limit: u32, spare: Option<Spare<T>>) -> Result<(), ResizeError> {
        self.forbid_at_once();
        if self.occupied() > u64::from(limit) {
            return Err(ResizeError::Occupied);
        }
        if self.plan(limit) == Plan::NewSegment {
            match spare.filter(|spare| spare.0.capacity() >= u64::from(limit)) {
                Some(spare) => self.continue_in(spare.0),
                None if u64::from(limit) > self.at.segment.capacity() => return Err(ResizeError::NeedsSpare),
                // A smaller segment only saves memory.
                None => {}
            }
        }
        self.limit = u64::from(limit);
        Ok(())
    }

    /// Seals the segment and goes on in `segment`.
    fn continue_in(&mut self, segment: Shared<Segment<T>>) {
        self.publish();
        let link = Link { end: self.tail, segment: segment.clone() };
        self.at.segment.next.with_mut(|next| {
            // SAFETY: the segment is not sealed: the producer seals a segment only here, and leaves it then. So `next` is
            // still the producer's, and is `None`.
            unsafe { next.write(Some(link)) };
        });
        self.at = At::new(segment, self.at.number.wrapping_add(1));
        self.indices.filled.sealed.store(self.at.number, Ordering::Release);
    }
}

/// The place of a producer's next entry.
///
/// # Invariant
///
/// The producer has room for an entry.
pub struct Vacancy<'a, T>(&'a mut Producer<T>);

impl<T: Copy + Send> Vacancy<'_, T> {
    /// Writes an entry that the consumer sees after [`Producer::publish`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `Producer::push`")]
    pub fn fill(self, entry: T) {
        let Self(producer) = self;
        let slot = producer.at.slot(producer.tail);
        // SAFETY: entry `tail` is not published, and the slot's entry before it, `tail - capacity`, has been taken:
        // there is room (invariant), so `head` is past `tail - limit`, and `limit <= capacity`; `seen_head` was read with
        // acquire, so the consumer has done with the slot.
        unsafe { store(slot, entry) };
        producer.tail = producer.tail.wrapping_add(1);
    }
}

/// Sees how far a queue has been filled.
pub struct Watch(Shared<Indices>);

impl Watch {
    /// Number of the next entry to be published.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.0.filled.tail.load(Ordering::Acquire)
    }

    /// [`Producer::publish`] for a producer that has handed over up to this number, when somebody else may be about to use the
    /// producer. Any other number does no harm: nothing is published that was not written.
    #[inline]
    pub(crate) fn publish(&self, tail: u64) {
        if !is_past(tail, self.0.filled.handed_over.load(Ordering::Acquire)) {
            self.0.filled.tail.store(tail, Ordering::Release);
        }
    }
}

/// Memory for a queue that changes its size.
pub struct Spare<T>(Shared<Segment<T>>);

impl<T: Copy + Send> Spare<T> {
    /// Room for `limit` entries.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory.
    pub fn try_new(limit: u32) -> Result<Self, AllocError> {
        Segment::try_new(capacity_for(limit)).map(Self)
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

/// The side that takes entries out, in the order they were put in.
///
/// # Invariants
///
/// The entries from `head` up to `readable` are published, were seen to be, and lie in the segment at hand.
pub struct Consumer<T> {
    indices: Shared<Indices>,
    at: At<T>,
    /// Number of the next entry to be taken.
    head: u64,
    /// Number of the first entry that cannot be read without another [look](Consumer::look).
    readable: u64,
}

impl<T: Copy + Send> Consumer<T> {
    /// Number of the next entry to be taken.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Gives `each` up to `most` entries and frees their slots with one publication at the end. Returns how many.
    #[inline]
    pub fn take(&mut self, most: usize, each: impl FnMut(&T)) -> usize {
        if most == 1 { usize::from(self.take_next(each)) } else { self.take_several(most, each) }
    }

    /// [`Consumer::take`] for any number of entries.
    // Not a part of its callers: for its sake they would save registers that one entry does not need.
    #[inline(never)]
    fn take_several(&mut self, most: usize, mut each: impl FnMut(&T)) -> usize {
        let mut taken = 0;
        while taken < most && !self.is_empty() {
            let slots = self.at.slots_from(self.head);
            let slots = &slots[..self.known().min(most - taken).min(slots.len())];
            for (offset, slot) in (0..).zip(slots) {
                slot.with(|slot| {
                    // SAFETY: as in `with_slot`: the entry lies before `readable`.
                    let slot = unsafe { &*slot };
                    // SAFETY: a published entry has been written.
                    each(unsafe { slot.assume_init_ref() });
                });
                if Self::is_last_in_line(self.head.wrapping_add(offset)) {
                    Self::release(slot);
                }
            }
            slots.last().into_iter().for_each(Self::release);
            self.head = self.head.wrapping_add(slots.len() as u64);
            taken += slots.len();
        }
        if taken > 0 {
            self.publish();
        }
        taken
    }

    /// [`Consumer::take`] for one entry. Whether there was one.
    #[inline]
    fn take_next(&mut self, each: impl FnOnce(&T)) -> bool {
        // Loaded before the look, which does not change it, and not again behind it.
        let head = self.head;
        let is_there = !self.is_empty();
        if is_there {
            self.with_slot(head, each);
            Self::release(self.at.slot(head));
            self.head = head.wrapping_add(1);
            self.publish();
        }
        is_there
    }

    /// Whether there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.readable && !self.look()
    }

    /// Gives `work` the next entry, which stays in the queue; `None` if there is none.
    ///
    /// In its place, because a copy loads it in pieces of other widths than it was stored in, and waits for the stores.
    #[inline]
    pub fn with_front<U>(&mut self, work: impl FnOnce(&T) -> U) -> Option<U> {
        (!self.is_empty()).then(|| self.with_slot(self.head, work))
    }

    /// [`Consumer::with_front`] for the entry `ahead` places behind the next one. All of them lie in one segment or are not seen.
    #[inline]
    pub fn with_ahead<U>(&mut self, ahead: usize, work: impl FnOnce(&T) -> U) -> Option<U> {
        let is_known = self.known() > ahead || (self.look() && self.known() > ahead);
        // Not by way of `with_known`: counted, that asks once more for every message.
        is_known.then(|| self.with_slot(self.head.wrapping_add(ahead as u64), work))
    }

    /// [`Consumer::with_ahead`] for an entry that is known to be there.
    #[inline]
    pub fn with_known<U>(&self, ahead: usize, work: impl FnOnce(&T) -> U) -> Option<U> {
        (self.known() > ahead).then(|| self.with_slot(self.head.wrapping_add(ahead as u64), work))
    }

    /// The next entry, which stays in the queue.
    #[inline]
    pub fn front(&mut self) -> Option<T> {
        self.with_front(|entry| *entry)
    }

    /// Has the processor fetch the entry `ahead` places behind the next one, if it is known to be there: somebody else's processor
    /// has written it.
    #[inline]
    pub fn prefetch(&self, ahead: usize) {
        if self.known() > ahead {
            prefetch::to_read(self.at.slot(self.head.wrapping_add(ahead as u64)));
        }
    }

    /// The entry `ahead` places behind the next one, as [`Consumer::with_ahead`].
    #[inline]
    pub fn peek(&mut self, ahead: usize) -> Option<T> {
        self.with_ahead(ahead, |entry| *entry)
    }

    /// Frees the slots of `count` entries, whether they were looked at or not. Entries that are not published stay: the head
    /// never passes the tail.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        // Whoever looked at the entries knows that they are there.
        if count <= self.known() {
            self.head = self.head.wrapping_add(count as u64);
            self.publish();
        } else {
            self.advance_unseen(count);
        }
    }

    /// [`Consumer::advance`] over entries that were not all looked at.
    #[cold]
    #[inline(never)]
    fn advance_unseen(&mut self, count: usize) {
        let _ = self.take(count, |_| {});
    }

    /// Whether the slot of the entry `number` is the last one in its cache line.
    #[inline]
    const fn is_last_in_line(number: u64) -> bool {
        const { assert!(size_of::<T>() > 0) };
        let slots = if size_of::<T>() < CACHE_LINE { CACHE_LINE / size_of::<T>() } else { 1 };
        number.wrapping_add(1).is_multiple_of(slots as u64)
    }

    /// Stores something to the slot of an entry that was taken: the last one of those that go at a time, or of a line.
    ///
    /// Then the slot's line belongs to this processor alone, and the producer's gets it with the next store to it as fast as it got
    /// here. A line that was only read is a copy: the producer's processor has one as well, and has to wait until it is told that this
    /// one is gone, which takes twice as long (measured).
    #[inline]
    fn release(slot: &Slot<T>) {
        slot.with_mut(|slot| {
            // SAFETY: the slot is the consumer's until `head` is published past it, it has a byte, and nobody reads from it before the
            // next entry has been written.
            unsafe { slot.cast::<u8>().write_volatile(0) };
        });
    }

    #[inline]
    fn publish(&self) {
        self.indices.taken.head.store(self.head, Ordering::Release);
    }

    /// How many entries can be read without another look at the producer's side.
    #[inline]
    #[must_use]
    pub const fn known(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "not more than slots")]
        let known = self.readable.wrapping_sub(self.head) as usize;
        known
    }

    /// Gives `each` the entry `number`, which lies before `readable`.
    #[inline]
    fn with_slot<U>(&self, number: u64, each: impl FnOnce(&T) -> U) -> U {
        self.at.slot(number).with(|slot| {
            // SAFETY: the entry was published, and seen to be with acquire, and lies in this segment (invariant); the producer
            // writes to the slot again only when `head` has been published past the entry.
            let slot = unsafe { &*slot };
            // SAFETY: a published entry has been written.
            each(unsafe { slot.assume_init_ref() })
        })
    }

    /// Looks at the producer's index. Whether there is more to be read in the segment at hand, which is the next one if the one
    /// before had nothing left.
    #[inline]
    fn look(&mut self) -> bool {
        // Both are loaded before the producer's numbers, after which they would be loaded anew.
        let (readable, filled) = (self.readable, &*self.indices.filled);
        let tail = filled.tail.load(Ordering::Acquire);
        // A tail past the end of the segment was published after the seal, so the seal is seen here.
        if filled.sealed.load(Ordering::Acquire) == self.at.number {
            self.note(readable, tail)
        } else {
            self.look_in_sealed()
        }
    }

    /// [`Consumer::look`] in a segment that is sealed, and in those after it as long as nothing is left.
    #[cold]
    #[inline(never)]
    fn look_in_sealed(&mut self) -> bool {
        loop {
            let tail = self.indices.filled.tail.load(Ordering::Acquire);
            if self.indices.filled.sealed.load(Ordering::Acquire) == self.at.number {
                return self.note(self.readable, tail);
            }
            // What is in the segment was published before the seal.
            let end = self.end();
            if end != self.head {
                return self.note(self.readable, end);
            }
            self.follow();
        }
    }

    /// Entries up to the number `until` are published and lie in the segment at hand. Whether that is news to who could read those
    /// before `readable`.
    #[inline]
    const fn note(&mut self, readable: u64, until: u64) -> bool {
        // A tail goes back only if watches publish out of order, against their rules: then it is old news.
        let is_news = is_past(until, readable);
        if is_news {
            self.readable = until;
        }
        is_news
    }

    /// Number of the first entry that is not in the segment, which is sealed.
    fn end(&self) -> u64 {
        self.at.segment.next.with(|next| {
            // SAFETY: the segment is sealed, so `next` is the consumer's, and `self` is borrowed.
            let next = unsafe { &*next };
            next.as_ref().map_or(self.head, |link| link.end)
        })
    }

    /// Goes on in the next segment. The one at hand is sealed and empty.
    fn follow(&mut self) {
        let link = self.at.segment.next.with_mut(|next| {
            // SAFETY: the segment is sealed, so `next` is the consumer's, and `self` is borrowed mutably.
            let next = unsafe { &mut *next };
            next.take()
        });
        if let Some(link) = link {
            self.at = At::new(link.segment, self.at.number.wrapping_add(1));
            self.indices.taken.followed.store(self.at.number, Ordering::Relaxed);
        }
    }
}
