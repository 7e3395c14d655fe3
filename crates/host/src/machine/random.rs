//! Random numbers: small, quick, and the same for the same seed.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Mixes all bits of `value` (the finaliser of `SplitMix64`).
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The odd step between two states of `SplitMix64`.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A `SplitMix64` generator.
pub struct Random {
    state: u64,
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of so small a bound cannot be seen.
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }
}

/// Where [`MachineRef::random`](super::MachineRef::random) comes from.
pub enum RandomSource {
    /// Keys from the operating system over a counter: what is drawn tells nobody what comes next.
    System(RandomState, AtomicU64),
    /// A generator that can be replayed.
    Seeded(AtomicU64),
}

impl RandomSource {
    pub fn system() -> Self {
        Self::System(RandomState::new(), AtomicU64::new(0))
    }

    pub const fn seeded(seed: u64) -> Self {
        // Another stream than the scheduler's, which begins at the seed itself.
        Self::Seeded(AtomicU64::new(mix(seed ^ STEP)))
    }

    pub fn draw(&self) -> u64 {
        match self {
            Self::System(keys, counter) => keys.hash_one(counter.fetch_add(1, Relaxed)),
            Self::Seeded(state) => mix(state.fetch_add(STEP, Relaxed)),
        }
    }
}
