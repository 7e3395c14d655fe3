//! Bytes that are no recording, or one that somebody has changed: one line, and nothing else happens.

use recorder::{
    Keep,
    format::{HEADER_BYTES, SLOT_BYTES},
};
use recording::{ReadError, Recording, pcapng::pcapng, seal, timeline};

use crate::world::file_of;

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
    assert!(!pcapng(recording).is_empty());
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
    other[8] = 2;
    let refused = Recording::read(&other).expect_err("another version");
    assert_eq!(refused, ReadError::Version(2));
    assert!(refused.to_string().contains("version 2"));
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
