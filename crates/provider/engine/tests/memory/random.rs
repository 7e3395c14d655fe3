//! Random numbers.

/// Random numbers from a seed (`xorshift64*`).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).expect("31 bits") % bound
    }

    /// A number up to `most`, often one at the edge of a page.
    pub fn edge(&mut self, most: usize) -> usize {
        const EDGES: [usize; 6] = [0, 1, 4095, 4096, 4097, 8192];
        let number = if self.below(2) == 0 { EDGES[self.below(EDGES.len())] } else { self.below(most + 1) };
        number.min(most)
    }

    /// The numbers below `count`, in any order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, self.below(index + 1));
        }
        order
    }
}
