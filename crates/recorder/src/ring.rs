//! Slots in bounded memory, written by all processors at once.

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
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

/// The slot is being written.
const WRITING: u64 = 1;
/// The slot is not the first one of its record.
const FURTHER: u64 = 2;

/// The mark of a slot that is written, without [`FURTHER`].
const fn written(ordinal: u64) -> u64 {
    (ordinal + 1) << 2
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
/// A writer takes as many slots as its record has, marks each one as being written, fills it, and marks it as written. A
/// writer that finds a slot still being written, because another one was held up for a whole round, leaves its own out: nobody
/// waits.
pub struct Ring {
    slots: Box<[Slot]>,
    keep: Keep,
    is_on: AtomicBool,
    next: CachePadded<AtomicU64>,
    lost: CachePadded<AtomicU64>,
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
            lost: CachePadded::new(AtomicU64::new(0)),
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

    /// What a file of the slots in `range`, of which `slots` are there, begins with.
    #[must_use]
    pub fn header(&self, range: &core::ops::Range<u64>, slots: u64, processors: u32) -> Header {
        let beyond = self.next.load(Relaxed).saturating_sub(range.end);
        let lost = self.lost.load(Relaxed) + if self.keep == Keep::First { beyond } else { 0 };
        Header { slots, first: range.start, lost, processors }
    }

    fn slot(&self, ordinal: u64) -> &Slot {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder of a division by a length")]
        let index = (ordinal & (self.slots.len() as u64 - 1)) as usize;
        &self.slots[index]
    }

    /// Takes room for a record of one slot and `more` behind it.
    pub fn begin(&self, more: usize) -> Writer<'_> {
        let ordinal = self.next.fetch_add(1 + more as u64, Relaxed);
        Writer { ring: self, ordinal, end: ordinal + 1 + more as u64, word: 0, slot: None, further: 0 }
    }

    /// Claims a slot for writing, unless it has a newer record, or somebody still writes there.
    fn claim(&self, ordinal: u64) -> Option<&Slot> {
        if self.keep == Keep::First && ordinal >= self.slots.len() as u64 {
            return None;
        }
        let slot = self.slot(ordinal);
        let before = slot.mark.load(Relaxed);
        let free = before & WRITING == 0 && before < written(ordinal);
        let claimed = free && slot.mark.compare_exchange(before, written(ordinal) | WRITING, Relaxed, Relaxed).is_ok();
        if !claimed {
            self.lost.fetch_add(1, Relaxed);
            return None;
        }
        // The mark is there before any word is.
        fence(Release);
        Some(slot)
    }

    /// The bytes of a slot, if it has been written and nobody writes over it.
    #[must_use]
    pub fn read(&self, ordinal: u64) -> Option<[u8; SLOT_BYTES]> {
        let slot = self.slot(ordinal);
        let mark = slot.mark.load(Acquire);
        if mark & !FURTHER != written(ordinal) {
            return None;
        }
        let mut bytes = [0; SLOT_BYTES];
        let further = if mark & FURTHER == 0 { 0 } else { format::FURTHER };
        bytes[..8].copy_from_slice(&(ordinal | further).to_le_bytes());
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(&slot.words) {
            place.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        // The words are read before the mark is looked at again.
        fence(Acquire);
        (slot.mark.load(Relaxed) == mark).then_some(bytes)
    }
}

/// What a ring of so many slots had in the slot with this index, from the bytes that lay there ([`Ring::memory`]).
///
/// Its ordinal and the bytes, as [`Ring::read`] returns them; `None` for what was never written, was being written, or is no slot of
/// such a ring.
#[must_use]
pub fn from_memory(index: usize, slots: usize, memory: &[u8; SLOT_BYTES]) -> Option<(u64, [u8; SLOT_BYTES])> {
    let mark = memory.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
    let ordinal = (mark >> 2).checked_sub(1).filter(|_| mark & WRITING == 0)?;
    if ordinal % slots as u64 != index as u64 {
        return None;
    }
    let mut bytes = *memory;
    let further = if mark & FURTHER == 0 { 0 } else { format::FURTHER };
    bytes[..8].copy_from_slice(&(ordinal | further).to_le_bytes());
    Some((ordinal, bytes))
}

/// Writes the words of one record.
pub struct Writer<'r> {
    ring: &'r Ring,
    /// The slot that is being written.
    ordinal: u64,
    /// One after the last slot of the record.
    end: u64,
    /// The next word of the slot.
    word: usize,
    slot: Option<&'r Slot>,
    /// [`FURTHER`] after the first slot.
    further: u64,
}

impl Writer<'_> {
    /// Writes the next word. Words beyond the record's room are left out.
    pub fn put(&mut self, value: u64) {
        if self.ordinal == self.end {
            return;
        }
        if self.word == 0 {
            self.slot = self.ring.claim(self.ordinal);
        }
        if let Some(slot) = self.slot {
            slot.words[self.word].store(value, Relaxed);
        }
        self.word += 1;
        if self.word == PAYLOAD_WORDS {
            self.finish_slot();
        }
    }

    fn finish_slot(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.mark.store(written(self.ordinal) | self.further, Release);
        }
        self.further = FURTHER;
        self.ordinal += 1;
        self.word = 0;
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        while self.ordinal < self.end {
            // What is left of an old record must not seem to be of this one.
            self.put(0);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

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
        assert!(ring.read(256).is_none(), "its place was taken");
        drop(slow);
        let range = ring.range();
        assert_eq!(ring.header(&range, 0, 1).lost, 1);
        record(&ring, 0, 5);
        (0..256).for_each(|value| record(&ring, 0, value));
        assert!(ring.range().all(|ordinal| ring.read(ordinal).is_some()), "it goes on");
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
