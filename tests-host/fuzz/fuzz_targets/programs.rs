//! Programs of NDKPI calls, beside the sequential oracle.

#![no_main]

use programs::Counts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(words) = programs::run(bytes, &mut Counts::default()) {
        panic!("{words}");
    }
});
