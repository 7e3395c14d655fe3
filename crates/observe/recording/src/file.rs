//! Makes a file of what a ring has.

use std::ops::Range;

use recorder::{
    Ring,
    format::{Checksum, Header, KIND_SHIFT, SLOT_BYTES, at, kind},
    from_memory,
};

use crate::Recording;

/// A slot of a ring.
type Slot = [u8; SLOT_BYTES];

/// The file of what `ring` has now, made on a machine with so many processors.
#[must_use]
pub fn write(ring: &Ring, processors: u32) -> Vec<u8> {
    let range = ring.range();
    let slots: Vec<Slot> = range.clone().filter_map(|ordinal| ring.read(ordinal)).collect();
    file(range, &slots, ring.beyond(), processors)
}

/// The file of those slots of a ring that were there, of this range of ordinals. For `beyond` there was no more room.
#[must_use]
pub fn file(range: Range<u64>, slots: &[Slot], beyond: u64, processors: u32) -> Vec<u8> {
    let missing = range.end.saturating_sub(range.start).saturating_sub(slots.len() as u64);
    let used = used(slots);
    let lost = beyond.saturating_add(missing);
    let header = Header { slots: used.len() as u64, first: range.start, lost, processors };
    seal(header.to_bytes().to_vec(), &used)
}

/// The slots with something in them.
fn used(slots: &[Slot]) -> Vec<Slot> {
    let kind_of = |slot: &Slot| slot[at::ORDINAL + 7] >> (KIND_SHIFT - 56);
    slots.iter().filter(|slot| u64::from(kind_of(slot)) != kind::UNUSED).copied().collect()
}

/// The file of what lay in the memory of a ring ([`Ring::memory`]), for who has only a dump of it. `None` if that was no ring.
///
/// How many slots were lost is not known, and how many processors there were only from what they have done.
#[must_use]
pub fn salvage(memory: &[u8]) -> Option<Vec<u8>> {
    let (places, rest) = memory.as_chunks::<SLOT_BYTES>();
    let is_size = places.len().is_power_of_two() && Ring::SIZES.contains(&places.len()) && rest.is_empty();
    let found = places.iter().enumerate().filter_map(|(index, slot)| from_memory(index, places.len(), slot));
    let mut slots: Vec<_> = found.filter(|_| is_size).collect();
    slots.sort_unstable_by_key(|(ordinal, _)| *ordinal);
    let (first, _) = *slots.first()?;
    let slots = used(&slots.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>());
    let header = |processors| Header { slots: slots.len() as u64, first, lost: 0, processors };
    let file = |processors| seal(header(processors).to_bytes().to_vec(), &slots);
    let seen = Recording::read(&file(1)).ok()?.records.iter().map(|record| u32::from(record.processor) + 1).max();
    Some(file(seen.unwrap_or(1)))
}

/// The file of a header, slots and their checksum.
#[must_use]
pub fn seal(mut bytes: Vec<u8>, slots: &[Slot]) -> Vec<u8> {
    bytes.extend(slots.iter().flatten());
    let mut checksum = Checksum::default();
    checksum.add(&bytes);
    bytes.extend(checksum.to_bytes());
    bytes
}
