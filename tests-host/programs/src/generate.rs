//! Random programs, and what is left of one when all is left out that it does not need to fail.

use std::fmt::Write;

use conformance::random::Random;

use crate::{Counts, Way, run_on};

/// The program with this number.
#[must_use]
pub fn program(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), "programs");
    let most = if random.chance(20) { 600 } else { 160 };
    let length = 24 + random.below(most) as usize;
    let mut program = Vec::with_capacity(length + 8);
    while program.len() < length {
        program.extend_from_slice(&random.draw().to_le_bytes());
    }
    program
}

/// Leaves out what is not needed for a program to fail.
#[must_use]
pub fn shrink(program: Vec<u8>) -> Vec<u8> {
    shrink_on(program, Way::Memory)
}

/// As [`shrink`], with the adapters on this way.
#[must_use]
pub fn shrink_on(mut program: Vec<u8>, way: Way) -> Vec<u8> {
    let fails = |program: &[u8]| run_on(program, &mut Counts::default(), way, false).is_err();
    for piece in [64, 16, 4, 3, 2, 1] {
        let mut at = 0;
        while at + piece <= program.len() {
            let mut shorter = program.clone();
            shorter.drain(at..at + piece);
            if fails(&shorter) {
                program = shorter;
            } else {
                at += piece;
            }
        }
    }
    program
}

/// A program as hex digits.
#[must_use]
pub fn digits(program: &[u8]) -> String {
    program.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A program from hex digits.
#[must_use]
pub fn from_digits(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}
