//! Bytes that are no recording, or one that somebody has changed: one line, and nothing else happens.

use recorder::{
    Keep, Ring,
    format::{HEADER_BYTES, SLOT_BYTES},
};
use recording::{ReadError, Recording, pcapng, seal, timeline};

use crate::world::{file_of, ring_of};

fn one_line(error: ReadError) {
    let words = error.to_string();
    assert!(!words.is_empty() && !words.contains('\n'), "{words}");
}

fn file() -> Vec<u8> {
    file_of("results.order-of-receives", 1 << 14, Keep::First)
}

/// Whatever the recording says, it can be shown.
fn show(recording: &Recording) {
    let shown = timeline::Timeline::of(recording);
    let picture = timeline::svg(&shown, &timeline::Options::default());
    assert!(picture.ends_with("</svg>\n"));
    assert_eq!(pcapng(recording).is_some(), !recording.frames.is_empty());
}

#[test]
fn a_recording_of_which_a_part_is_missing_is_refused() {
    let whole = file();
    show(&Recording::read(&whole).expect("a recording"));
    for length in (0..200).chain((200..whole.len()).step_by(61)) {
        one_line(Recording::read(&whole[..length]).expect_err("it is cut"));
    }
    let more = [whole.as_slice(), &[0]].concat();
    assert!(matches!(Recording::read(&more), Err(ReadError::Length { .. })));
    assert_eq!(Recording::read(b"MZ, an image of something else"), Err(ReadError::NotARecording));
    assert_eq!(Recording::read(&[]), Err(ReadError::NotARecording));
}

#[test]
fn a_recording_of_another_version_is_refused() {
    let mut other = file();
    for version in [0, 1, 2, 3, 6] {
        other[8] = version;
        let refused = Recording::read(&other).expect_err("another version");
        assert_eq!(refused, ReadError::Version(version.into()));
        assert!(refused.to_string().contains(&format!("version {version} ")));
    }
}

#[test]
fn a_damaged_recording_is_refused() {
    let whole = file();
    for place in (16..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        one_line(Recording::read(&damaged).expect_err("it is damaged"));
    }
}

/// Somebody has changed bytes and made the checksum good again.
#[test]
fn a_changed_recording_crashes_nothing() {
    let whole = file();
    let header = &whole[..HEADER_BYTES];
    let slots: Vec<[u8; SLOT_BYTES]> = whole[HEADER_BYTES..whole.len() - 8]
        .chunks_exact(SLOT_BYTES)
        .map(|slot| slot.try_into().expect("a slot"))
        .collect();
    // Numerical Recipes' generator: the same changes each time.
    let mut state = 1_u32;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let (mut read, mut refused, mut run) = (0, 0, 0);
    for round in 0..120 {
        let mut changed = slots.clone();
        for _ in 0..=draw(4) {
            let (slot, byte) = (draw(changed.len()), draw(SLOT_BYTES));
            changed[slot][byte] = match draw(3) {
                0 => 0xFF,
                1 => changed[slot][byte].wrapping_add(1),
                _ => u8::try_from(draw(256)).expect("a byte"),
            };
        }
        if draw(4) == 0 {
            let (one, other) = (draw(changed.len()), draw(changed.len()));
            changed.swap(one, other);
        }
        match Recording::read(&seal(header.to_vec(), &changed)) {
            Ok(recording) => {
                read += 1;
                show(&recording);
                // A replay takes longer than a look.
                if round % 10 == 0 {
                    run += 1;
                    if let Err(why) = replay::run(&recording, 0) {
                        assert!(!why.contains('\n'), "{why}");
                    }
                }
            }
            Err(error) => {
                refused += 1;
                one_line(error);
            }
        }
    }
    assert!(read > 30 && refused > 2 && run > 2, "{read} read, {refused} refused, {run} run");
}

/// The bytes of a ring, as a dump has them.
fn memory_of(ring: &Ring) -> Vec<u8> {
    let (address, bytes) = ring.memory();
    let start = std::ptr::with_exposed_provenance(address);
    // SAFETY: the slots of a live ring, which nobody writes to meanwhile.
    unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
}

#[test]
fn a_recording_is_made_of_the_memory_that_a_crash_has_left() {
    for (slots, keep) in [(1 << 14, Keep::First), (1 << 8, Keep::Last)] {
        let (outcome, file, ring) = ring_of("results.order-of-receives", slots, keep);
        assert!(!outcome.is_bad(), "{outcome}");
        let mut memory = memory_of(&ring);
        let whole = Recording::read(&file).expect("a recording");
        let salvaged =
            Recording::read(&recording::salvage(&memory).expect("the memory of a ring")).expect("a recording");
        assert_eq!(salvaged.records, whole.records);
        // Written while the machine stopped. The first slot is of no record.
        let record = SLOT_BYTES;
        memory[record] |= 1;
        let without =
            Recording::read(&recording::salvage(&memory).expect("the memory of a ring")).expect("a recording");
        assert!(without.records.len() < whole.records.len());
        // Not all of it, or from another place.
        for wrong in [&memory[..memory.len() - 64], &memory[32..], &[]] {
            assert_eq!(recording::salvage(wrong), None);
        }
    }
}

#[test]
fn memory_with_anything_in_it_is_no_recording_or_one_that_can_be_shown() {
    let (_, _, ring) = ring_of("results.order-of-receives", 1 << 8, Keep::Last);
    let right = memory_of(&ring);
    let mut number = 1_u32;
    for _ in 0..200 {
        let mut memory = right.clone();
        for _ in 0..20 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (number >> 8) as usize % memory.len();
            memory[place] ^= 1 << (number >> 29);
        }
        if let Some(file) = recording::salvage(&memory) {
            show(&Recording::read(&file).expect("it was sealed"));
        }
    }
}
