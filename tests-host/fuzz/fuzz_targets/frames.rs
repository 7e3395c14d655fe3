//! Frames of the network, against a live connection.

#![no_main]

#[path = "../../tests/wire_engine/any_frames.rs"]
mod any_frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = any_frames::exercise(bytes);
});
