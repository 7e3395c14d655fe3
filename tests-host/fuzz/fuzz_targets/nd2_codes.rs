//! The control codes of NetworkDirect, from several processes.

#![no_main]

#[allow(dead_code, reason = "the tests need the rest")]
#[path = "../../tests/nd2_processes/actor.rs"]
mod actor;
#[allow(dead_code, reason = "the tests need the rest")]
#[path = "../../tests/nd2_processes/program.rs"]
mod program;
#[allow(dead_code, reason = "the tests need the rest")]
#[path = "../../tests/nd2_processes/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    actor::life(1, 300, &mut actor::Random::of(bytes));
});
