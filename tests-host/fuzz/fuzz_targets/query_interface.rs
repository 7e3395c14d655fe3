//! Queries for the provider's interface.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rigs::exercise::query_interface(bytes));
