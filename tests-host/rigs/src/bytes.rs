//! What decides what a fuzzer's row of requests does.

/// Bytes to be read. When there are no more, zeros come.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// All have been read.
    pub const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next()).collect()
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), self.next()])
    }
}
