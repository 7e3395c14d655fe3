//! Random numbers that a seed determines.

/// A `SplitMix64` generator.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    state: u64,
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes all bits of `value`.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Random {
    /// The generator of `seed` for something called `name`: other names, other numbers.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let state = name.bytes().fold(seed, |state, byte| mix(state.wrapping_add(STEP) ^ u64::from(byte)));
        Self { state }
    }

    /// A generator that this one determines.
    #[must_use]
    pub const fn split(&mut self) -> Self {
        Self { state: self.next() }
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `bound`; 0 if that is 0.
    #[expect(clippy::cast_possible_truncation, reason = "smaller than `bound`")]
    pub const fn below(&mut self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as u32 }
    }

    /// `true` this often out of a hundred.
    pub const fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}
