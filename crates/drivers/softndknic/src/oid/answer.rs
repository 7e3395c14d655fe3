//! The answer to a query: all of it, or how many bytes it needs.

use core::{ptr, slice};

use ndis::{NDIS_STATUS, QUERY};
use ndkpi::status::NDIS_STATUS_BUFFER_TOO_SHORT;

/// Where an answer goes.
///
/// # Invariants
///
/// The query's buffer has as many bytes as it says, or is null.
pub struct Answer<'query> {
    query: &'query mut QUERY,
}

impl<'query> Answer<'query> {
    /// An answer to `query`, with nothing written yet.
    ///
    /// # Safety
    ///
    /// The query's buffer has as many bytes as it says, or is null.
    pub const unsafe fn new(query: &'query mut QUERY) -> Self {
        query.BytesWritten = 0;
        query.BytesNeeded = 0;
        Self { query }
    }

    /// Answers with bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> NDIS_STATUS {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.query.InformationBufferLength < length || self.query.InformationBuffer.is_null() {
            self.query.BytesNeeded = length;
            return NDIS_STATUS_BUFFER_TOO_SHORT;
        }
        let place = self.query.InformationBuffer.cast::<u8>();
        // SAFETY: the buffer has at least as many bytes (invariant), and is NDIS's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        self.query.BytesWritten = length;
        NDIS_STATUS::SUCCESS
    }

    /// Answers with a number.
    pub fn number(&mut self, number: u32) -> NDIS_STATUS {
        self.bytes(&number.to_le_bytes())
    }

    /// Answers with a count, in 64 bits if there is room for them, else in 32.
    pub fn count(&mut self, count: u64) -> NDIS_STATUS {
        if self.query.InformationBufferLength >= 8 {
            return self.bytes(&count.to_le_bytes());
        }
        #[expect(clippy::cast_possible_truncation, reason = "the lower bits, as NDIS has it")]
        let status = self.number(count as u32);
        if status == NDIS_STATUS::SUCCESS {
            // The whole of it would have been longer.
            self.query.BytesNeeded = 8;
        }
        status
    }

    /// Answers with an array of values without padding.
    pub fn values<T: Copy>(&mut self, values: &[T]) -> NDIS_STATUS {
        // SAFETY: the types that are used here are integers and arrays of bytes.
        self.bytes(unsafe { slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) })
    }

    /// Answers with a structure of NDIS that has no padding.
    pub fn structure<T: Copy>(&mut self, structure: &T) -> NDIS_STATUS {
        self.values(slice::from_ref(structure))
    }
}
