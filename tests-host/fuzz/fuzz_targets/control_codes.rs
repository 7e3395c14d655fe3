//! The control codes of both drivers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rigs::exercise::control_codes(bytes));
