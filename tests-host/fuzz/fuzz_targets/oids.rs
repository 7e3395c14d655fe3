//! OID requests to the miniport, in the simulated kernel.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rigs::oids::exercise(bytes));
