//! Frames of the network, against a live connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = frames::exercise(bytes);
});
