//! What the fuzzer does, for a while and with the same numbers every time (`tools/fuzz.sh` goes on where this ends).

use std::{fs, path::Path};

use crate::exercise;

/// A small generator, so that a failure is found again.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Bytes, many of them zeros and other small numbers.
    fn row(&mut self, length: usize) -> Vec<u8> {
        let mut byte = || {
            let [byte, kind, ..] = self.next().to_le_bytes();
            if kind < 64 { byte % 4 } else { byte }
        };
        (0..length).map(|_| byte()).collect()
    }
}

/// Every row of the fuzzer's first corpus, then some at random.
fn exercise(target: &str, work: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut rows = 0;
    for seed in fs::read_dir(&seeds).expect("the fuzzer has seeds") {
        work(&fs::read(seed.expect("a seed").path()).expect("a seed can be read"));
        rows += 1;
    }
    assert!(rows > 2, "{rows} seeds in {}", seeds.display());
    for seed in 1..25_u64 {
        work(&Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).row(2000));
    }
}

#[test]
fn any_control_code_is_answered() {
    exercise("control_codes", exercise::control_codes);
}

#[test]
fn any_query_for_an_interface_is_answered() {
    exercise("query_interface", exercise::query_interface);
}
