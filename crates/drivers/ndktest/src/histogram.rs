//! How long things took, without floating point and in memory of a fixed size.

use alloc::boxed::Box;

use fallible::{AllocError, try_slice};

/// Each power of two is cut into as many parts, so that a value is known to an eighth.
const PARTS: u64 = 8;

/// Enough for every value: a row of parts for each power of two.
const BUCKETS: usize = 64 * 8;

/// Counts values by their size.
pub struct Histogram {
    counts: Box<[u32]>,
    total: u64,
    largest: u64,
}

impl Histogram {
    /// No values.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn try_new() -> Result<Self, AllocError> {
        Ok(Self { counts: try_slice(BUCKETS, |_| 0)?, total: 0, largest: 0 })
    }

    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// How many values there are.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The largest value.
    #[must_use]
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// A value that `per_mille` thousandths of the values do not exceed, or by an eighth at most.
    #[must_use]
    pub fn percentile(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return lowest(bucket).min(self.largest);
            }
        }
        self.largest
    }
}

/// Small values have a bucket each, larger ones one for each part of their power of two.
#[expect(clippy::cast_possible_truncation, reason = "less than the number of buckets")]
const fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let power = value.ilog2();
    let part = value >> (power - PARTS.ilog2()) & (PARTS - 1);
    ((power - PARTS.ilog2() + 1) as u64 * PARTS + part) as usize
}

/// The smallest value of a bucket.
const fn lowest(bucket: usize) -> u64 {
    let (row, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if row == 0 { part } else { (PARTS + part) << (row - 1) }
}
