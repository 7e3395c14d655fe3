//! Interrupt moderation: how long a satisfied arm may be held back (`NDKPI 7.1.6`).

use crate::NtStatus;

/// An interval or a count without a limit.
pub const UNLIMITED: u32 = u32::MAX;

//= NDKPI 7.1.6
/// The moderation of one completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// Microseconds that a callback is held back at most, or [`UNLIMITED`].
    interval: u32,
    /// The consumer's count, or [`UNLIMITED`].
    count: u32,
    /// Completions that end a hold: the count, or more than there can be if that is above the depth.
    limit: u64,
}

impl Moderation {
    /// No moderation: the state of a new queue.
    pub const OFF: Self = Self { interval: 0, count: 1, limit: 1 };

    /// The moderation of a queue for `depth` entries. `interval` is in microseconds, rounded down to a multiple of the
    /// timer's `resolution`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER_MIX` if neither the interval nor the count has a limit.
    pub const fn new(interval: u32, count: u32, depth: u32, resolution: u32) -> Result<Self, NtStatus> {
        let counts = count <= depth && count != UNLIMITED;
        if interval == UNLIMITED && !counts {
            return Err(NtStatus::INVALID_PARAMETER_MIX);
        }
        let interval = if interval == UNLIMITED { interval } else { interval - interval % resolution };
        if interval == 0 || count <= 1 {
            return Ok(Self::OFF);
        }
        Ok(Self { interval, count, limit: u64::MAX }.at_depth(depth))
    }

    /// The same moderation for a queue of another depth: a count above the depth is ignored (`NDKPI 7.1.6`) until a resize makes
    /// room for it. A count that is the only limit is never ignored, because nothing else ends a hold.
    #[must_use]
    pub const fn at_depth(self, depth: u32) -> Self {
        let counts = self.count <= depth || self.interval == UNLIMITED;
        // Not a cast that loses: `From` is not const.
        let limit = if counts && self.count != UNLIMITED { self.count as u64 } else { u64::MAX };
        Self { limit, ..self }
    }

    /// Returns true if no callback is held back.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.interval == 0
    }

    /// Microseconds that a callback is held back at most, if there is such a limit.
    #[must_use]
    pub fn micros(&self) -> Option<u32> {
        (self.interval != UNLIMITED).then_some(self.interval)
    }

    /// Returns true if `completions` since the arm was satisfied end the hold.
    #[must_use]
    pub const fn counted(&self, completions: u64) -> bool {
        completions >= self.limit
    }
}
