//! What is wrong with a cable on purpose: delay, jitter, loss, rate. A seed decides what chance decides.

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

/// What a cable does to frames besides carrying them. All zeroes: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Microseconds that every frame takes.
    pub delay: u32,
    /// Microseconds that a frame may take on top of that; each draws its own. Frames stay in order: one that would overtake
    /// arrives with the one before it.
    pub jitter: u32,
    /// Frames that are lost, of each million.
    pub loss: u32,
    /// Megabits in a second at most; 0 for no limit.
    pub rate: u32,
    /// Determines which frames are lost, and how much each is late.
    pub seed: u64,
}

impl Impairment {
    /// Returns true if frames do not arrive at once.
    pub(crate) const fn delays(&self) -> bool {
        self.delay | self.jitter | self.rate != 0
    }
}

/// Random numbers of a seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((self.0.next_u64() >> 32).wrapping_mul(u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Impairment;

    #[test]
    fn each_of_three_delays_and_so_do_two_that_are_equal() {
        let none = Impairment { loss: 1, seed: 1, ..Impairment::default() };
        assert!(!none.delays());
        for (delay, jitter, rate) in [(7, 0, 0), (0, 7, 0), (0, 0, 7), (7, 7, 0), (0, 7, 7), (7, 0, 7)] {
            let some = Impairment { delay, jitter, rate, ..none };
            assert!(some.delays(), "{some:?}");
        }
    }
}
