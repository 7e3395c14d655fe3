//! Interrupt moderation: how long a satisfied arm may be held back (`NDKPI 7.1.6`).

use crate::NtStatus;

/// The consumer's way to say "no limit from this side".
pub const UNLIMITED: u32 = u32::MAX;

/// How long a callback waits after its arm was satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delay {
    /// Not at all.
    None,
    /// This many microseconds.
    Micros(u32),
    /// Until the count is reached.
    UntilCount,
}

impl Delay {
    /// The time for a timer, if one is needed.
    #[must_use]
    pub const fn micros(self) -> Option<u32> {
        match self {
            Self::Micros(micros) => Some(micros),
            Self::None | Self::UntilCount => None,
        }
    }
}

/// The moderation of one completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moderation {
    delay: Delay,
    /// The count that the consumer asked for, or [`UNLIMITED`].
    count: u32,
    /// Completions that end a hold: the count, or more than can ever come if it lies above the depth.
    limit: u64,
}

impl Moderation {
    /// Every satisfied arm calls back at once: the state of a new queue.
    pub const OFF: Self = Self { delay: Delay::None, count: 1, limit: 1 };

    /// The moderation a consumer asks for, with `interval` in microseconds, on a queue for `depth` entries whose timer tells
    /// `resolution` microseconds from none.
    ///
    /// An interval that the timer cannot keep is rounded down to one that it can.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER_MIX` if neither the interval nor the count has a limit.
    pub const fn new(interval: u32, count: u32, depth: u32, resolution: u32) -> Result<Self, NtStatus> {
        let counts = count <= depth && count != UNLIMITED;
        if interval == UNLIMITED && !counts {
            return Err(NtStatus::INVALID_PARAMETER_MIX);
        }
        if interval == 0 || count <= 1 {
            return Ok(Self::OFF);
        }
        let delay = if interval == UNLIMITED {
            Delay::UntilCount
        } else {
            match interval - interval % resolution {
                0 => return Ok(Self::OFF),
                micros => Delay::Micros(micros),
            }
        };
        Ok(Self { delay, count, limit: u64::MAX }.at_depth(depth))
    }

    /// The same moderation of a queue for `depth` entries: a count above the depth does not count (`NDKPI 7.1.6`), and counts
    /// again when a resize makes room for it. A count that is the only limit always counts, for otherwise nothing might end a
    /// hold.
    #[must_use]
    pub const fn at_depth(self, depth: u32) -> Self {
        let counts = self.count <= depth || matches!(self.delay, Delay::UntilCount);
        // Not a cast that loses: `From` is not const.
        let limit = if counts && self.count != UNLIMITED { self.count as u64 } else { u64::MAX };
        Self { limit, ..self }
    }

    /// How long to hold a callback back.
    #[must_use]
    pub const fn delay(&self) -> Delay {
        self.delay
    }

    /// Returns true if `completions` since the arm was satisfied end the hold.
    #[must_use]
    pub const fn counted(&self, completions: u64) -> bool {
        completions >= self.limit
    }
}
