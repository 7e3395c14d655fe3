//! Random numbers that a seed determines.

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

/// A generator that a seed determines.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

/// Mixes all bits of `value`.
fn mix(value: u64) -> u64 {
    SplitMix64::seed_from_u64(value).next_u64()
}

impl Random {
    /// The generator of `seed` for something called `name`: other names, other numbers.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let state = name.bytes().fold(seed, |state, byte| mix(state ^ u64::from(byte)));
        Self(SplitMix64::seed_from_u64(state))
    }

    /// A generator that this one determines.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(SplitMix64::seed_from_u64(self.draw()))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 if that is 0.
    #[expect(clippy::cast_possible_truncation, reason = "smaller than `bound`")]
    pub fn below(&mut self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { (self.draw() % u64::from(bound)) as u32 }
    }

    /// `true` this often out of a hundred.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}
