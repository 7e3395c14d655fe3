//! Slots in bounded memory, written by all processors at once.

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use crossbeam_utils::CachePadded;
use fallible::{AllocError, Arc, try_slice};

use crate::format::{self, Header, PAYLOAD_WORDS, SLOT_BYTES};

/// What is kept when there is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// What came first: the recording can be replayed, if it is long enough.
    First,
    /// What came last: the recording shows what led to its end.
    Last,
}

/// In a mark: the slot is not the first one of its record.
const FURTHER: u64 = 1;

/// What the words of a slot are multiplied with for its check.
const FACTORS: [u64; PAYLOAD_WORDS] =
    [0x4F1B_BCDD, 0x6A09_E667, 0x7B67_AE85, 0x3C6E_F373, 0x514F_F53B, 0x5B05_688D, 0x1F83_D9AB];

/// The sum of the words of a slot, from which its check is made.
#[inline]
fn sum_of(words: &[u64; PAYLOAD_WORDS]) -> u64 {
    // Written out: a loop takes twice as many instructions.
    let term = |index: usize| words[index].wrapping_mul(FACTORS[index]);
    let first = term(0).wrapping_add(term(1)).wrapping_add(term(2));
    let second = term(3).wrapping_add(term(4)).wrapping_add(term(5));
    first.wrapping_add(second).wrapping_add(term(6))
}

/// The mark of a slot: which time the ring is written, [`FURTHER`], and a check of that and of the words, whose sum is given.
///
/// The check takes the place of a lock: whatever is not the whole of one record, because somebody writes there now or was held up for
/// a round of the ring, does not fit its mark, and is not read.
const fn mark_of(round: u64, further: u64, sum: u64) -> u64 {
    let low = (round + 1) << 1 & 0xFFFF_FFFF | further;
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
}

/// Where records go. All that writers share is the number of the next slot.
///
/// A writer takes as many slots as its record has, and writes them without a lock. Each slot has a check of its words, so a reader
/// skips one that is being written.
pub struct Ring {
    slots: Box<[Slot]>,
    keep: Keep,
    is_on: AtomicBool,
    next: CachePadded<AtomicU64>,
    objects: AtomicU32,
    adapters: AtomicU32,
}

impl Ring {
    /// The smallest and the largest ring, in slots.
    pub const SIZES: core::ops::RangeInclusive<usize> = 1 << 8..=1 << 24;

    /// A ring of that many slots, rounded up to a power of two and into [`Ring::SIZES`]. It records.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn try_new(slots: usize, keep: Keep) -> Result<Arc<Self>, AllocError> {
        let slots = slots.clamp(*Self::SIZES.start(), *Self::SIZES.end()).next_power_of_two();
        Arc::try_new(Self {
            slots: try_slice(slots, |_| Slot::empty())?,
            keep,
            is_on: AtomicBool::new(true),
            next: CachePadded::new(AtomicU64::new(0)),
            objects: AtomicU32::new(0),
            adapters: AtomicU32::new(0),
        })
    }

    /// Ends the recording: what comes from now on is not recorded.
    pub fn stop(&self) {
        self.is_on.store(false, Relaxed);
    }

    /// Returns true if it records. At any IRQL.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The number of one more object, from 1.
    pub fn next_object(&self) -> u32 {
        self.objects.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// The number of one more adapter, from 1. The 256th has the number of the first.
    pub fn next_adapter(&self) -> u8 {
        self.adapters.fetch_add(1, Relaxed).wrapping_add(1).to_le_bytes()[0]
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

    /// How many slots came when there was no more room, beyond those of `range`.
    #[must_use]
    pub fn beyond(&self, range: &core::ops::Range<u64>) -> u64 {
        let beyond = self.next.load(Relaxed).saturating_sub(range.end);
        if self.keep == Keep::First { beyond } else { 0 }
    }

    /// What a file of the slots in `range`, of which `slots` are there, begins with.
    #[must_use]
    pub fn header(&self, range: &core::ops::Range<u64>, slots: u64, processors: u32) -> Header {
        let missing = (range.end - range.start).saturating_sub(slots);
        Header { slots, first: range.start, lost: self.beyond(range) + missing, processors }
    }

    fn slot(&self, ordinal: u64) -> &Slot {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder of a division by a length")]
        let index = (ordinal & (self.slots.len() as u64 - 1)) as usize;
        &self.slots[index]
    }

    const fn round(&self, ordinal: u64) -> u64 {
        ordinal >> self.slots.len().trailing_zeros()
    }

    /// Takes room for a record of one slot and `more` behind it.
    #[inline]
    pub fn begin(&self, more: usize) -> Writer<'_> {
        let slots = 1 + more as u64;
        let ordinal = self.next.fetch_add(slots, Relaxed);
        let has_room = self.keep == Keep::Last || ordinal + slots <= self.slots.len() as u64;
        let end = if has_room { ordinal + slots } else { ordinal };
        Writer { ring: self, ordinal, end, further: 0, words: [0; PAYLOAD_WORDS], used: 0 }
    }

    /// Writes a slot. Returns the sum of its words.
    #[inline]
    fn fill(&self, ordinal: u64, further: u64, words: &[u64; PAYLOAD_WORDS]) -> u64 {
        let (slot, sum) = (self.slot(ordinal), sum_of(words));
        let put = |index: usize| slot.words[index].store(words[index], Relaxed);
        put(0);
        put(1);
        put(2);
        put(3);
        put(4);
        put(5);
        put(6);
        slot.mark.store(mark_of(self.round(ordinal), further, sum), Relaxed);
        sum
    }

    /// Changes a word of the first slot of a record: `to` is given how many slots were taken from that one on. `false` if that are so many
    /// that it may not be there any more.
    #[inline]
    pub(crate) fn amend(&self, record: &Recorded, index: usize, from: u64, to: impl FnOnce(u16) -> u64) -> bool {
        let taken = self.next.load(Relaxed).wrapping_sub(record.ordinal);
        let Ok(after) = u16::try_from(taken) else { return false };
        if self.keep == Keep::Last && taken > self.slots.len() as u64 {
            return false;
        }
        let (slot, to) = (self.slot(record.ordinal), to(after));
        slot.words[index].store(to, Relaxed);
        let sum = record.sum.wrapping_add(to.wrapping_sub(from).wrapping_mul(FACTORS[index]));
        slot.mark.store(mark_of(self.round(record.ordinal), 0, sum), Relaxed);
        true
    }

    /// The bytes of a slot, if it has been written and nobody writes over it.
    #[must_use]
    pub fn read(&self, ordinal: u64) -> Option<[u8; SLOT_BYTES]> {
        let slot = self.slot(ordinal);
        let mark = slot.mark.load(Acquire);
        let words: [u64; PAYLOAD_WORDS] = core::array::from_fn(|index| slot.words[index].load(Relaxed));
        (mark == mark_of(self.round(ordinal), mark & FURTHER, sum_of(&words))).then(|| bytes_of(ordinal, mark, &words))
    }
}

/// A slot as it is in a file.
fn bytes_of(ordinal: u64, mark: u64, words: &[u64; PAYLOAD_WORDS]) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    let further = if mark & FURTHER == 0 { 0 } else { format::FURTHER };
    bytes[..8].copy_from_slice(&(ordinal | further).to_le_bytes());
    for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// What a ring of so many slots had in the slot with this index, from the bytes that lay there ([`Ring::memory`]).
///
/// Its ordinal and the bytes, as [`Ring::read`] returns them; `None` for what was never written, was being written, or is no slot of
/// such a ring.
#[must_use]
pub fn from_memory(index: usize, slots: usize, memory: &[u8; SLOT_BYTES]) -> Option<(u64, [u8; SLOT_BYTES])> {
    let word = |place: usize| memory[8 * place..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let (mark, words) = (word(0), core::array::from_fn(|index| word(1 + index)));
    let round = ((mark & 0xFFFF_FFFF) >> 1).checked_sub(1)?;
    if mark != mark_of(round, mark & FURTHER, sum_of(&words)) {
        return None;
    }
    let ordinal = round * slots as u64 + index as u64;
    Some((ordinal, bytes_of(ordinal, mark, &words)))
}

/// A record that was begun, of which something is to be changed.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The number of its first slot.
    pub ordinal: u64,
    /// Of the words of its first slot.
    sum: u64,
}

/// Writes the words of one record.
pub struct Writer<'r> {
    ring: &'r Ring,
    /// The slot that comes next.
    ordinal: u64,
    /// One after the last slot of the record.
    end: u64,
    /// [`FURTHER`] after the first slot.
    further: u64,
    /// Those of the next slot, as far as they are there.
    words: [u64; PAYLOAD_WORDS],
    used: usize,
}

impl Writer<'_> {
    /// The number of the slot that comes next.
    pub(crate) const fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Writes the first slot. `None` if there was no room.
    #[inline]
    pub(crate) fn put_first(&mut self, words: &[u64; PAYLOAD_WORDS]) -> Option<Recorded> {
        if self.ordinal == self.end {
            return None;
        }
        let ordinal = self.ordinal;
        let sum = self.ring.fill(ordinal, 0, words);
        (self.ordinal, self.further) = (ordinal + 1, FURTHER);
        Some(Recorded { ordinal, sum })
    }

    /// Writes the next slot, which is none of the first.
    #[inline]
    pub(crate) fn put_slot(&mut self, words: &[u64; PAYLOAD_WORDS]) {
        if self.ordinal < self.end {
            self.ring.fill(self.ordinal, FURTHER, words);
            self.ordinal += 1;
        }
    }

    /// Writes the next word. Words beyond the record's room are left out.
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
        self.ring.fill(self.ordinal, self.further, &self.words);
        (self.further, self.used, self.words) = (FURTHER, 0, [0; PAYLOAD_WORDS]);
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

    use core::sync::atomic::Ordering::Relaxed;
    use std::{thread, vec::Vec};

    use super::{Keep, Ring};
    use crate::format::{PAYLOAD_WORDS, SLOT_BYTES};

    fn word(bytes: &[u8; SLOT_BYTES], index: usize) -> u64 {
        u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("eight bytes"))
    }

    fn record(ring: &Ring, more: usize, value: u64) {
        let mut writer = ring.begin(more);
        (0..(1 + more) * PAYLOAD_WORDS).for_each(|_| writer.put(value));
    }

    #[test]
    fn the_first_are_kept() {
        let ring = Ring::try_new(256, Keep::First).expect("memory");
        (0..300).for_each(|value| record(&ring, 0, value));
        let range = ring.range();
        assert_eq!(range, 0..256);
        assert!(range.clone().all(|ordinal| ring.read(ordinal).is_some_and(|slot| word(&slot, 1) == ordinal)));
        assert_eq!(ring.header(&range, 256, 1).lost, 44, "what came later is counted");
        assert_eq!(ring.header(&range, 256, 1).first, 0);
    }

    #[test]
    fn the_last_are_kept() {
        let ring = Ring::try_new(256, Keep::Last).expect("memory");
        (0..300).for_each(|value| record(&ring, 0, value));
        let range = ring.range();
        assert_eq!(range, 44..300);
        assert!(range.clone().all(|ordinal| ring.read(ordinal).is_some_and(|slot| word(&slot, 7) == ordinal)));
        assert!(ring.read(43).is_none(), "written over");
        assert_eq!(ring.header(&range, 256, 1).lost, 0);
    }

    #[test]
    fn a_record_that_is_not_filled_has_nothing_of_an_older_one() {
        let ring = Ring::try_new(256, Keep::Last).expect("memory");
        (0..256).for_each(|_| record(&ring, 0, 7));
        ring.begin(1).put(9);
        let [first, second] = [256, 257].map(|ordinal| ring.read(ordinal).expect("written"));
        assert_eq!((word(&first, 1), word(&first, 2), word(&second, 1)), (9, 0, 0));
    }

    #[test]
    fn a_writer_that_is_held_up_for_a_round_costs_one_slot() {
        let ring = Ring::try_new(256, Keep::Last).expect("memory");
        let mut slow = ring.begin(0);
        slow.put(1);
        (0..257).for_each(|value| record(&ring, 0, value));
        drop(slow);
        assert!(ring.read(256).is_none(), "its place was taken");
        let range = ring.range();
        let there = range.clone().filter(|ordinal| ring.read(*ordinal).is_some()).count() as u64;
        assert_eq!(ring.header(&range, there, 1).lost, 1);
        record(&ring, 0, 5);
        (0..256).for_each(|value| record(&ring, 0, value));
        assert!(ring.range().all(|ordinal| ring.read(ordinal).is_some()), "it goes on");
    }

    #[test]
    fn a_slot_with_words_of_two_records_is_not_read() {
        let ring = Ring::try_new(256, Keep::Last).expect("memory");
        (0..512).for_each(|value| record(&ring, 0, value));
        for (index, word) in ring.slots[9].words.iter().enumerate() {
            let before = word.swap(9, Relaxed);
            assert!(ring.read(256 + 9).is_none(), "word {index} is that of the round before");
            word.store(before, Relaxed);
        }
        assert!(ring.read(256 + 9).is_some() && ring.read(9).is_none());
    }

    #[test]
    fn a_record_is_amended_as_long_as_it_is_there() {
        let ring = Ring::try_new(256, Keep::Last).expect("memory");
        let mut writer = ring.begin(1);
        let first = writer.put_first(&[1, 2, 3, 4, 5, 6, 7]).expect("room");
        drop(writer);
        record(&ring, 0, 1);
        assert!(ring.amend(&first, 4, 5, |taken| 100 + u64::from(taken)));
        let slot = ring.read(0).expect("whole");
        assert_eq!([1, 4, 5, 6, 7].map(|index| word(&slot, index)), [1, 4, 103, 6, 7]);
        (0..254).for_each(|value| record(&ring, 0, value));
        assert!(!ring.amend(&first, 4, 103, |_| 0), "its slot is another's");
        assert!(ring.read(256).is_some());
    }

    #[test]
    fn slots_are_whole_while_all_write_and_one_reads() {
        let ring = Ring::try_new(1 << 10, Keep::Last).expect("memory");
        thread::scope(|scope| {
            for writer in 1..=3_u64 {
                let ring = &ring;
                scope.spawn(move || (0..20_000).for_each(|round| record(ring, 1, writer << 32 | round)));
            }
            for _ in 0..200 {
                for slot in ring.range().filter_map(|ordinal| ring.read(ordinal)) {
                    let words: Vec<_> = (1..=PAYLOAD_WORDS).map(|index| word(&slot, index)).collect();
                    assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                }
            }
        });
        let range = ring.range();
        assert_eq!(range.end, 3 * 20_000 * 2);
        let there = range.clone().filter(|ordinal| ring.read(*ordinal).is_some()).count() as u64;
        assert!(there + ring.header(&range, there, 1).lost >= 1 << 10);
    }
}
