//! Rows of bytes, the same every time, for what a fuzzer goes on with.

use std::{fs, path::Path};

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
pub fn each(target: &str, work: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
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
