//! The control codes of NetworkDirect, from several processes.

#![no_main]

use rigs::nd2::actor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    actor::life(1, 300, &mut actor::Random::of(bytes));
});
