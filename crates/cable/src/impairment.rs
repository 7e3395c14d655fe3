//! What is wrong with a cable on purpose: delay, jitter, loss, rate. A seed decides what chance decides.

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

/// Random numbers of a seed (the generator `SplitMix64`).
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let value = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ value >> 31
    }

    /// A number below `bound`, which is not zero.
    pub const fn below(&mut self, bound: u32) -> u32 {
        ((self.next() >> 32).wrapping_mul(bound as u64) >> 32) as u32
    }
}
