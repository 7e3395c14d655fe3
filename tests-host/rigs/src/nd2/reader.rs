//! Answers as their documentation says them, number by number: not by the structures that the driver writes.

use ndkpi::NtStatus;

/// Reads an input.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the beginning.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], NtStatus> {
        let (first, rest) = self.0.split_first_chunk().ok_or(NtStatus::INVALID_PARAMETER)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`Reader::array`].
    pub fn u32(&mut self) -> Result<u32, NtStatus> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next number of 64 bits.
    ///
    /// # Errors
    ///
    /// As [`Reader::array`].
    pub fn u64(&mut self) -> Result<u64, NtStatus> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    ///
    /// As [`Reader::array`].
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], NtStatus> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(NtStatus::INVALID_PARAMETER)?;
        self.0 = rest;
        Ok(first)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if something is.
    pub const fn end(self) -> Result<(), NtStatus> {
        if self.0.is_empty() { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
    }
}
