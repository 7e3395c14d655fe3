//! Makes a file of what a ring has.

use recorder::{
    Ring,
    format::{Checksum, SLOT_BYTES},
};

/// The file of what `ring` has now, made on a machine with so many processors.
#[must_use]
pub fn write(ring: &Ring, processors: u32) -> Vec<u8> {
    let range = ring.range();
    let slots: Vec<[u8; SLOT_BYTES]> = range.clone().filter_map(|ordinal| ring.read(ordinal)).collect();
    seal(ring.header(&range, slots.len() as u64, processors).to_bytes().to_vec(), &slots)
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
