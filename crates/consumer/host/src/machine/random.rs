//! Random numbers: small, quick, and the same for the same seed.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

/// Mixes all bits of `value`.
pub fn mix(value: u64) -> u64 {
    SplitMix64::seed_from_u64(value).next_u64()
}

/// A generator that a seed determines.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of so small a bound cannot be seen.
        usize::try_from(self.0.next_u64() % bound as u64).unwrap_or(0)
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

    pub fn seeded(seed: u64) -> Self {
        // Another stream than the scheduler's, which begins at the seed itself.
        Self::Seeded(AtomicU64::new(mix(seed)))
    }

    pub fn draw(&self) -> u64 {
        match self {
            Self::System(keys, counter) => keys.hash_one(counter.fetch_add(1, Relaxed)),
            Self::Seeded(state) => mix(state.fetch_add(1, Relaxed)),
        }
    }
}
