//! Makes a file of what a ring has.

use recorder::{
    Ring,
    format::{Checksum, Header, SLOT_BYTES},
    from_memory,
};

use crate::Recording;

/// The file of what `ring` has now, made on a machine with so many processors.
#[must_use]
pub fn write(ring: &Ring, processors: u32) -> Vec<u8> {
    let range = ring.range();
    let slots: Vec<[u8; SLOT_BYTES]> = range.clone().filter_map(|ordinal| ring.read(ordinal)).collect();
    seal(ring.header(&range, slots.len() as u64, processors).to_bytes().to_vec(), &slots)
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
    let slots: Vec<_> = slots.into_iter().map(|(_, slot)| slot).collect();
    let header = |processors| Header { slots: slots.len() as u64, first, lost: 0, processors };
    let file = |processors| seal(header(processors).to_bytes().to_vec(), &slots);
    let seen = Recording::read(&file(1)).ok()?.records.iter().map(|record| u32::from(record.processor) + 1).max();
    Some(file(seen.unwrap_or(1)))
}

/// The file of a header, slots and their checksum.
#[must_use]
pub fn seal(mut bytes: Vec<u8>, slots: &[[u8; SLOT_BYTES]]) -> Vec<u8> {
    bytes.extend(slots.iter().flatten());
    let mut checksum = Checksum::default();
    checksum.add(&bytes);
    bytes.extend(checksum.to_bytes());
    bytes
}
