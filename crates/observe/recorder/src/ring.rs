//! Slots in bounded memory, written by all processors at once.

#![expect(
    clippy::inline_always,
    reason = "where hooks are inlined, what is known of the call leaves little of them; without it the compiler does not"
)]

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use crossbeam_utils::CachePadded;
use fallible::{AllocError, Arc, try_slice};
use interpose::{InterposeOs, Phase};

use crate::format::{KIND_SHIFT, OUTCOME_SHIFT, PAYLOAD_WORDS, SLOT_BYTES, kind};

/// What is kept when there is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// What came first: the recording can be replayed, if it is long enough.
    First,
    /// What came last: the recording shows what led to its end.
    Last,
}

/// A pair of ticks and time ([`kind::ANCHOR`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchor {
    /// The ticks, read first.
    pub ticks: u64,
    /// The time, in units of 100 nanoseconds.
    pub time: u64,
    /// How many ticks a unit has, if both begin together; else 0.
    pub unit: u64,
}

impl Anchor {
    /// Ticks and time now.
    pub fn now(os: &impl InterposeOs) -> Self {
        let ticks = os.stamp(Phase::Return).time;
        Self { ticks, time: os.place().time, unit: os.ticks_per_unit() }
    }
}

/// What the words of a slot are multiplied with for its check.
const FACTORS: [u64; PAYLOAD_WORDS] =
    [0x4F1B_BCDD, 0x6A09_E667, 0x7B67_AE85, 0x3C6E_F373, 0x514F_F53B, 0x5B05_688D, 0x1F83_D9AB];

/// The word of a first slot that the return of a call changes. It has a tag instead of a part in the check.
const RESULT: usize = 6;
/// Where that word has its tag: 12 bits.
const TAG_SHIFT: u32 = 48;
const TAG: u64 = ((1 << OUTCOME_SHIFT) - 1) << TAG_SHIFT;

/// The tag of a round of the ring.
const fn tag_of(round: u64) -> u64 {
    (round + 1) << TAG_SHIFT & TAG
}

/// The sum of the words of a slot, from which its check is made.
#[inline]
fn sum_of(kind: u64, words: &[u64; PAYLOAD_WORDS]) -> u64 {
    // Written out: a loop takes twice as many instructions.
    let term = |index: usize| words[index].wrapping_mul(FACTORS[index]);
    let first = term(0).wrapping_add(term(1)).wrapping_add(term(2));
    let second = term(3).wrapping_add(term(4)).wrapping_add(term(5));
    let sum = first.wrapping_add(second);
    match kind {
        kind::FIRST => sum,
        // Its words are what was there before.
        kind::UNUSED => 0,
        _ => sum.wrapping_add(term(6)),
    }
}

/// The lower half of a mark: which time the ring is written, and what the slot is.
const fn low_of(round: u64, kind: u64) -> u64 {
    (round + 1) << 2 & 0xFFFF_FFFF | kind
}

/// The mark of a slot: which time the ring is written, what the slot is, and a check of that and of the words, whose sum is given.
///
/// The check takes the place of a lock: whatever is not the whole of one record, because somebody writes there now or was held up for
/// a round of the ring, does not fit its mark, and is not read.
const fn mark_of(round: u64, kind: u64, sum: u64) -> u64 {
    let low = low_of(round, kind);
    let sum = sum.wrapping_add(low.wrapping_mul(0x2545_F491));
    low | (sum ^ sum >> 32) << 32
}

/// A mark and the words of the slot. Aligned to a cache line, which it fills.
#[repr(align(64))]
struct Slot {
    mark: AtomicU64,
    words: [AtomicU64; PAYLOAD_WORDS],
}

impl Slot {
    const fn empty() -> Self {
        Self { mark: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; PAYLOAD_WORDS] }
    }

    #[inline(always)]
    fn fill(&self, round: u64, kind: u64, words: &[u64; PAYLOAD_WORDS]) {
        let put = |index: usize| self.words[index].store(words[index], Relaxed);
        put(0);
        put(1);
        put(2);
        put(3);
        put(4);
        put(5);
        put(6);
        self.mark.store(mark_of(round, kind, sum_of(kind, words)), Relaxed);
    }
}

/// It records.
const ON: u8 = 0;
/// It keeps what came first, and there is no more room: what comes is counted.
const FULL: u8 = 1;
/// It has been ended.
const STOPPED: u8 = 2;

/// Slots of a chunk: few in a small ring, so that each processor has some, and else as many as are 16 KiB. Small ones are slow: what
/// a processor fetches ahead of itself is its neighbour's then.
const CHUNKS: core::ops::RangeInclusive<usize> = 1 << 4..=1 << 8;

/// So many processors have a chunk of their own at most.
const MOST_PROCESSORS: usize = 64;

/// Where records go.
///
/// A processor takes a chunk of slots at a time, so the processors share nothing else, and a record takes its slots from the chunk of
/// the processor that it is made on. It is written without a lock: each slot has a check of its words, so a reader skips one that is
/// being written. The ordinals of two processors' slots say nothing of their order: their ticks do.
///
/// The first slot of a chunk is an `Anchor`.
pub struct Ring {
    slots: Box<[Slot]>,
    /// How many there are is a power of two: its logarithm, and one less than it.
    size: u32,
    mask: u64,
    keep: Keep,
    state: AtomicU8,
    /// Slots of a chunk: a power of two.
    chunk: u64,
    /// The first slot of the next chunk.
    next: CachePadded<AtomicU64>,
    /// Of each processor, the first slot of its chunk, and in the [`USED`] bits how many of it are taken, or more: a record that finds no
    /// room any more has added its slots all the same.
    places: Box<[CachePadded<AtomicU64>]>,
    /// Slots for which there was no more room.
    beyond: AtomicU64,
    objects: AtomicU32,
    adapters: AtomicU32,
    wires: AtomicU32,
}

/// How many bits say what is used of a chunk.
const USED_BITS: u32 = 16;
const USED: u64 = (1 << USED_BITS) - 1;

impl Ring {
    /// The smallest and the largest ring, in slots.
    pub const SIZES: core::ops::RangeInclusive<usize> = 1 << 8..=1 << 24;

    /// A ring of that many slots, rounded up to a power of two and into [`Ring::SIZES`], for so many processors. It records.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn try_new(slots: usize, keep: Keep, processors: u32) -> Result<Arc<Self>, AllocError> {
        let slots = slots.clamp(*Self::SIZES.start(), *Self::SIZES.end()).next_power_of_two();
        // Four chunks for each, at the least.
        let processors = (processors as usize).clamp(1, MOST_PROCESSORS).min(slots / 64).next_power_of_two();
        let chunk = (slots / processors / 4).clamp(*CHUNKS.start(), *CHUNKS.end()) as u64;
        Arc::try_new(Self {
            slots: try_slice(slots, |_| Slot::empty())?,
            size: slots.trailing_zeros(),
            mask: slots as u64 - 1,
            keep,
            state: AtomicU8::new(ON),
            chunk,
            next: CachePadded::new(AtomicU64::new(0)),
            // There is nothing left of no chunk.
            places: try_slice(processors, |_| CachePadded::new(AtomicU64::new(chunk)))?,
            beyond: AtomicU64::new(0),
            objects: AtomicU32::new(0),
            adapters: AtomicU32::new(0),
            wires: AtomicU32::new(0),
        })
    }

    /// Ends the recording: what comes from now on is not recorded.
    pub fn stop(&self) {
        self.state.store(STOPPED, Relaxed);
    }

    /// Returns true if it records. At any IRQL.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.state.load(Relaxed) != STOPPED
    }

    /// The number of one more object, from 1.
    pub fn next_object(&self) -> u32 {
        self.objects.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// The number of one more adapter, from 1. The 256th has the number of the first.
    pub fn next_adapter(&self) -> u8 {
        self.adapters.fetch_add(1, Relaxed).wrapping_add(1).to_le_bytes()[0]
    }

    /// The number of one more wire, from 1. The 256th has the number of the first.
    pub fn next_wire(&self) -> u8 {
        self.wires.fetch_add(1, Relaxed).wrapping_add(1).to_le_bytes()[0]
    }

    /// How many slots it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where the slots lie in memory: the address and the bytes, which [`from_memory`] reads.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.slots.as_ptr().addr(), size_of_val(&*self.slots))
    }

    /// What is kept when there is no more room.
    #[must_use]
    pub const fn keep(&self) -> Keep {
        self.keep
    }

    /// Returns true if nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next.load(Relaxed) == 0
    }

    /// The ordinals of the slots that can still be there.
    #[must_use]
    pub fn range(&self) -> core::ops::Range<u64> {
        let (next, size) = (self.next.load(Acquire), self.slots.len() as u64);
        match self.keep {
            Keep::First => 0..next.min(size),
            Keep::Last => next.saturating_sub(size)..next,
        }
    }

    /// How many slots came when there was no more room.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.beyond.load(Relaxed)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder of a division by a length")]
    #[inline(always)]
    const fn index(&self, ordinal: u64) -> usize {
        (ordinal & self.mask) as usize
    }

    #[inline(always)]
    fn slot(&self, ordinal: u64) -> &Slot {
        &self.slots[self.index(ordinal)]
    }

    #[inline(always)]
    const fn round(&self, ordinal: u64) -> u64 {
        ordinal >> self.size
    }

    /// Takes room for a record of so many slots, made on this processor. `None` if there is none.
    #[inline(always)]
    pub(crate) fn take(&self, processor: u32, slots: u64, anchor: impl FnOnce() -> Anchor) -> Option<Room> {
        #[expect(clippy::cast_possible_truncation, reason = "there are few")]
        let place = processor & (self.places.len() as u32 - 1);
        if slots < self.chunk {
            let before = self.places[place as usize].fetch_add(slots, Relaxed);
            let (first, used) = (before >> USED_BITS, before & USED);
            let (index, round) = (self.index(first), self.round(first));
            // A processor may have recorded nothing for a round of the ring: then its chunk is another one's.
            let mark = self.slots[index].mark.load(Relaxed);
            let is_ours = mark & 0xFFFF_FFFF == low_of(round, kind::ANCHOR);
            if used + slots <= self.chunk && is_ours && self.state.load(Relaxed) == ON {
                return Some(Room { ordinal: first + used, round, place, after: before + slots });
            }
        }
        self.take_elsewhere(place, slots, &anchor())
    }

    /// The record does not fit into its processor's chunk: it gets a new one.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, place: u32, slots: u64, anchor: &Anchor) -> Option<Room> {
        if self.state.load(Relaxed) != ON {
            self.beyond.fetch_add(slots, Relaxed);
            return None;
        }
        let taken = (1 + slots).next_multiple_of(self.chunk);
        let first = self.next.fetch_add(taken, Relaxed);
        if self.keep == Keep::First && first + taken > self.slots.len() as u64 {
            // For all processors: a recording has no more of one than of another.
            let _ = self.state.compare_exchange(ON, FULL, Relaxed, Relaxed);
            self.beyond.fetch_add(slots, Relaxed);
            return None;
        }
        let words = [anchor.ticks, anchor.time, anchor.unit, 0, 0, 0, 0];
        self.slot(first).fill(self.round(first), kind::ANCHOR, &words);
        for ordinal in first + 1..first + taken {
            self.slot(ordinal).mark.store(mark_of(self.round(ordinal), kind::UNUSED, 0), Relaxed);
        }
        let after = first << USED_BITS | (1 + slots);
        if taken == self.chunk {
            // Another record of this processor may have brought a chunk, too: what is left of that one is not used.
            self.places[place as usize].store(after, Relaxed);
        }
        Some(Room { ordinal: first + 1, round: self.round(first), place, after })
    }

    /// Writes the first slot of a record.
    #[inline(always)]
    pub(crate) fn put_first(&self, room: &Room, mut words: [u64; PAYLOAD_WORDS]) {
        words[RESULT] |= tag_of(room.round);
        self.slot(room.ordinal).fill(room.round, kind::FIRST, &words);
    }

    /// Writes a slot of a record that is not the first one.
    #[inline]
    pub(crate) fn put_further(&self, ordinal: u64, words: &[u64; PAYLOAD_WORDS]) {
        self.slot(ordinal).fill(self.round(ordinal), kind::FURTHER, words);
    }

    /// Says how a call has ended whose record is here. `false` if its processor has recorded something else meanwhile.
    #[inline(always)]
    pub(crate) fn amend(&self, room: &Room, result: u64) -> bool {
        if self.places[room.place as usize].load(Relaxed) != room.after {
            return false;
        }
        self.slot(room.ordinal).words[RESULT].store(result | tag_of(room.round), Relaxed);
        true
    }

    /// The bytes of a slot, if it has been written and nobody writes over it.
    #[must_use]
    pub fn read(&self, ordinal: u64) -> Option<[u8; SLOT_BYTES]> {
        let slot = self.slot(ordinal);
        let mark = slot.mark.load(Acquire);
        let words = core::array::from_fn(|index| slot.words[index].load(Relaxed));
        slot_of(self.round(ordinal), ordinal, mark, words)
    }
}

/// A slot as it is in a file, if these are the mark and the words of one.
fn slot_of(round: u64, ordinal: u64, mark: u64, mut words: [u64; PAYLOAD_WORDS]) -> Option<[u8; SLOT_BYTES]> {
    let kind = mark & 3;
    if mark != mark_of(round, kind, sum_of(kind, &words)) {
        return None;
    }
    match kind {
        kind::FIRST if words[RESULT] & TAG != tag_of(round) => return None,
        kind::FIRST => words[RESULT] &= !TAG,
        kind::UNUSED => words = [0; PAYLOAD_WORDS],
        _ => {}
    }
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&(ordinal | kind << KIND_SHIFT).to_le_bytes());
    for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Some(bytes)
}

/// What a ring of so many slots had in the slot with this index, from the bytes that lay there ([`Ring::memory`]).
///
/// Its ordinal and the bytes, as [`Ring::read`] returns them; `None` for what was never written, was being written, or is no slot of
/// such a ring.
#[must_use]
pub fn from_memory(index: usize, slots: usize, memory: &[u8; SLOT_BYTES]) -> Option<(u64, [u8; SLOT_BYTES])> {
    let word = |place: usize| memory[8 * place..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let (mark, words) = (word(0), core::array::from_fn(|index| word(1 + index)));
    let round = ((mark & 0xFFFF_FFFF) >> 2).checked_sub(1)?;
    let ordinal = round * slots as u64 + index as u64;
    slot_of(round, ordinal, mark, words).map(|slot| (ordinal, slot))
}

/// Room for a record.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The number of its first slot.
    pub ordinal: u64,
    /// Which time the ring is written there.
    round: u64,
    /// Whose chunk it is in.
    place: u32,
    /// What stands there as long as nothing comes behind it.
    after: u64,
}

/// Writes the words of the slots behind the first one.
pub struct Writer<'r> {
    ring: &'r Ring,
    /// The slot that comes next.
    ordinal: u64,
    end: u64,
    /// Those of the next slot, as far as they are there.
    words: [u64; PAYLOAD_WORDS],
    used: usize,
}

impl<'r> Writer<'r> {
    pub(crate) const fn new(ring: &'r Ring, room: &Room) -> Self {
        Self {
            ring,
            ordinal: room.ordinal + 1,
            end: (room.after >> USED_BITS) + (room.after & USED),
            words: [0; PAYLOAD_WORDS],
            used: 0,
        }
    }

    /// Writes the next word. Words beyond the room are left out.
    pub fn put(&mut self, value: u64) {
        if self.ordinal == self.end {
            return;
        }
        self.words[self.used] = value;
        self.used += 1;
        if self.used == PAYLOAD_WORDS {
            self.finish_slot();
        }
    }

    fn finish_slot(&mut self) {
        self.ring.put_further(self.ordinal, &self.words);
        (self.used, self.words) = (0, [0; PAYLOAD_WORDS]);
        self.ordinal += 1;
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // The words that are left are zeros, and so are the slots.
        while self.ordinal < self.end {
            self.finish_slot();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{thread, vec::Vec};

    use super::{Anchor, Keep, RESULT, Relaxed, Ring, Room, Writer};
    use crate::format::{KIND_SHIFT, PAYLOAD_WORDS, SLOT_BYTES, kind};

    fn word(bytes: &[u8; SLOT_BYTES], index: usize) -> u64 {
        u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("eight bytes"))
    }

    fn kind_of(slot: &[u8; SLOT_BYTES]) -> u64 {
        word(slot, 0) >> KIND_SHIFT
    }

    /// A ring for one processor, in chunks of 64 slots: of which one is an anchor.
    fn ring(keep: Keep) -> fallible::Arc<Ring> {
        Ring::try_new(256, keep, 1).expect("memory")
    }

    /// Words that have no part in the result.
    const fn words(value: u64) -> [u64; PAYLOAD_WORDS] {
        [value, value, value, value, value, value, 0]
    }

    /// Records as many slots as `more` says and one, and returns the number of the first.
    fn record(ring: &Ring, processor: u32, more: usize, value: u64) -> Option<u64> {
        let room = ring.take(processor, 1 + more as u64, Anchor::default)?;
        ring.put_first(&room, words(value));
        let mut writer = Writer::new(ring, &room);
        (0..more * PAYLOAD_WORDS).for_each(|_| writer.put(value));
        Some(room.ordinal)
    }

    /// The slots that are there, by what they are.
    fn slots(ring: &Ring, kind: u64) -> Vec<[u8; SLOT_BYTES]> {
        ring.range().filter_map(|ordinal| ring.read(ordinal)).filter(|slot| kind_of(slot) == kind).collect()
    }

    #[test]
    fn the_first_are_kept() {
        let ring = ring(Keep::First);
        let kept = (0..300).filter_map(|value| record(&ring, 0, 0, value)).count();
        assert_eq!((ring.range(), kept, ring.beyond()), (0..256, 252, 48), "what came later is counted");
        assert!(slots(&ring, kind::FIRST).iter().map(|slot| word(slot, 1)).eq(0..252));
        assert_eq!(slots(&ring, kind::ANCHOR).len(), 4);
    }

    #[test]
    fn the_last_are_kept() {
        let ring = ring(Keep::Last);
        (0..300).for_each(|value| assert!(record(&ring, 0, 0, value).is_some()));
        assert_eq!((ring.range(), ring.beyond()), (64..320, 0));
        assert!(slots(&ring, kind::FIRST).iter().map(|slot| word(slot, 6)).eq(63..300));
        assert!(ring.read(63).is_none(), "written over");
        assert_eq!(slots(&ring, kind::UNUSED).len(), 15, "the rest of the chunk");
    }

    #[test]
    fn when_one_processor_has_no_more_room_none_records() {
        let ring = Ring::try_new(256, Keep::First, 4).expect("memory");
        assert!(record(&ring, 3, 0, 0).is_some());
        while record(&ring, 0, 0, 1).is_some() {}
        assert!(record(&ring, 3, 0, 2).is_none(), "its chunk has room, but the recording has ended");
        assert_eq!(ring.beyond(), 2);
    }

    #[test]
    fn processors_have_chunks_of_their_own() {
        let ring = Ring::try_new(1 << 12, Keep::First, 2).expect("memory");
        let places = [0, 1].map(|processor| {
            record(&ring, processor, 0, 0);
            [record(&ring, processor, 0, 1), record(&ring, processor, 1, 2)].map(|ordinal| ordinal.expect("room"))
        });
        assert_eq!(places, [[2, 3], [256 + 2, 256 + 3]]);
    }

    #[test]
    fn a_record_longer_than_a_chunk_is_whole() {
        let ring = Ring::try_new(1 << 9, Keep::Last, 2).expect("memory");
        record(&ring, 0, 0, 1);
        assert_eq!(record(&ring, 0, 199, 2), Some(64 + 1));
        assert_eq!(slots(&ring, kind::FURTHER).len(), 199);
        assert_eq!(record(&ring, 0, 0, 3), Some(2), "the chunk of before goes on");
        assert_eq!(ring.range().end, 64 + 256);
    }

    #[test]
    fn a_record_that_is_not_filled_has_nothing_of_an_older_one() {
        let ring = ring(Keep::Last);
        (0..252).for_each(|_| assert!(record(&ring, 0, 0, 7).is_some()));
        let room = ring.take(0, 2, Anchor::default).expect("room");
        ring.put_first(&room, words(8));
        Writer::new(&ring, &room).put(9);
        let [first, second] = [257, 258].map(|ordinal| ring.read(ordinal).expect("written"));
        assert_eq!((word(&first, 1), word(&second, 1), word(&second, 2)), (8, 9, 0));
    }

    #[test]
    fn a_writer_that_is_held_up_for_a_round_costs_one_slot() {
        let ring = ring(Keep::Last);
        let slow = ring.take(0, 1, Anchor::default).expect("room");
        (0..252).for_each(|value| assert!(record(&ring, 0, 0, value).is_some()));
        ring.put_first(&slow, words(1));
        let missing = || ring.range().filter(|ordinal| ring.read(*ordinal).is_none()).count();
        assert_eq!((missing(), ring.read(257)), (1, None), "its place was taken");
        (0..252).for_each(|value| assert!(record(&ring, 0, 0, value).is_some()));
        assert_eq!(missing(), 0, "it goes on");
    }

    #[test]
    fn a_processor_that_was_idle_for_a_round_writes_over_nothing() {
        let ring = Ring::try_new(256, Keep::Last, 2).expect("memory");
        record(&ring, 1, 0, 1);
        (0..300).for_each(|value| assert!(record(&ring, 0, 0, value).is_some()));
        let ordinal = record(&ring, 1, 0, 2).expect("room");
        assert!(ordinal > 256, "{ordinal}: in a new chunk");
        assert!(ring.range().all(|ordinal| ring.read(ordinal).is_some()));
    }

    #[test]
    fn a_slot_with_words_of_two_records_is_not_read() {
        let ring = ring(Keep::Last);
        (0..2 * 252).for_each(|value| assert!(record(&ring, 0, usize::from(value % 2 == 0), value).is_some()));
        for ordinal in
            ring.range().filter(|ordinal| ring.read(*ordinal).is_some_and(|slot| kind_of(&slot) != kind::UNUSED))
        {
            for (index, word) in ring.slot(ordinal).words.iter().enumerate() {
                let before = word.swap(ordinal + 9, Relaxed);
                assert!(ring.read(ordinal).is_none(), "word {index} is another record's");
                word.store(before, Relaxed);
            }
            assert!(ring.read(ordinal).is_some());
        }
    }

    #[test]
    fn the_return_is_said_in_the_record_of_the_call_unless_another_one_came() {
        let ring = ring(Keep::Last);
        let begin = || -> Room {
            let room = ring.take(0, 1, Anchor::default).expect("room");
            ring.put_first(&room, words(3));
            room
        };
        let first = begin();
        assert!(ring.amend(&first, 17));
        let slot = ring.read(first.ordinal).expect("whole");
        assert_eq!((word(&slot, 1), word(&slot, 1 + RESULT)), (3, 17));
        let second = begin();
        record(&ring, 0, 0, 4);
        assert!(!ring.amend(&second, 17));
        assert_eq!(word(&ring.read(second.ordinal).expect("whole"), 1 + RESULT), 0);
    }

    #[test]
    fn slots_are_whole_while_all_write_and_one_reads() {
        let ring = Ring::try_new(1 << 10, Keep::Last, 2).expect("memory");
        thread::scope(|scope| {
            for writer in 1..=3 {
                let ring = &ring;
                // Two of them on one processor, as threads are that are preempted.
                scope.spawn(move || {
                    (0..20_000).for_each(|round| {
                        assert!(record(ring, writer, 1, u64::from(writer) << 32 | round).is_some());
                    });
                });
            }
            for _ in 0..200 {
                for slot in slots(&ring, kind::FURTHER) {
                    let words: Vec<_> = (1..=PAYLOAD_WORDS).map(|index| word(&slot, index)).collect();
                    assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                }
            }
        });
        let missing = ring.range().filter(|ordinal| ring.read(*ordinal).is_none()).count();
        assert!(missing < 1 << 7, "{missing}");
        assert!(ring.range().end >= 3 * 20_000 * 2);
    }
}
