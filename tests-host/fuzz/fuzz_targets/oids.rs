//! OID requests to the miniport, in the simulated kernel.

#![no_main]

#[path = "../../tests/drivers/bytes.rs"]
mod bytes;
#[allow(dead_code, reason = "the tests need the rest")]
#[path = "../../tests/nic/machine.rs"]
mod machine;
#[path = "../../tests/nic/oids.rs"]
mod oids;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oids::exercise(bytes));
