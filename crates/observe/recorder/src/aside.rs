//! Records that are of no call.

use interpose::{InterposeOs, Phase};

use crate::{
    format::{BYTES_IN_FIRST, FUNCTION_OF_NONE, PAYLOAD_WORDS},
    ring::{Anchor, Ring, Writer},
};

/// Writes a record that is of no call: a word, and bytes behind it. `about` stands in the place of the adapter.
pub fn aside(os: &impl InterposeOs, ring: &Ring, about: u8, tag: u8, phase: Phase, word: u64, bytes: &[u8]) {
    let place = os.stamp(phase);
    let (first, rest) = bytes.split_at(bytes.len().min(BYTES_IN_FIRST));
    let more = rest.len().div_ceil(8 * PAYLOAD_WORDS);
    let Some(room) = ring.take(place.processor, 1 + more as u64, || Anchor::now(os)) else { return };
    let thread = place.thread as u64;
    let what = u64::from(FUNCTION_OF_NONE)
        | u64::from(about) << 8
        | u64::from(tag) << 16
        | (more as u64) << 24
        | u64::from(place.processor & 0xFFFF) << 48;
    let [second, third] = [0, 8].map(|at| word_at(first, at));
    ring.put_first(&room, [place.time, (thread ^ thread >> 32) << 32, what, word, second, third, 0]);
    let mut writer = Writer::new(ring, &room);
    for at in (0..rest.len()).step_by(8) {
        writer.put(word_at(rest, at));
    }
}

/// The eight bytes at this place, as far as they are there.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let there = bytes.get(at..).unwrap_or_default();
    let count = there.len().min(8);
    word[..count].copy_from_slice(&there[..count]);
    u64::from_le_bytes(word)
}
