//! Datagrams at the port of the driver's wire, beside a live connection, in the simulated kernel.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = rigs::any_datagrams::exercise(bytes);
});
