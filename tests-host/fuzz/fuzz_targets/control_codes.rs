//! The control codes of both drivers.

#![no_main]

#[path = "../../tests/drivers/bytes.rs"]
mod bytes;
#[path = "../../tests/drivers/codes.rs"]
mod codes;
#[allow(dead_code, reason = "the other target needs the rest")]
#[path = "../../tests/drivers/exercise.rs"]
mod exercise;
#[allow(dead_code, reason = "the tests need the rest")]
#[path = "../../tests/drivers/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::control_codes(bytes));
