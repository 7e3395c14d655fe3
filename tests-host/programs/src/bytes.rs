//! A program as bytes.

/// Bytes to be read. When there are no more, zeros come.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// The next byte.
    pub fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// The next byte, as a number below `bound`.
    pub fn below(&mut self, bound: u8) -> usize {
        usize::from(self.next() % bound)
    }

    /// Returns true if nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
