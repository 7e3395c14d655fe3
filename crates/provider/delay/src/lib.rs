//! How long something takes that is late on purpose: a distribution of delays.
//!
//! ```
//! use delay::Delay;
//!
//! let delay: Delay = "100..500".parse().expect("microseconds");
//! assert_eq!(delay, Delay::Uniform(100, 500));
//! assert!((100..=500).contains(&delay.draw(0x5EED)));
//! assert_eq!(delay.to_string(), "100..500");
//! ```

#![no_std]

use core::{fmt, str::FromStr};

/// The longest delay, in microseconds.
pub const LONGEST_DELAY: u32 = 10_000_000;

/// Where an exponential delay in words is cut off, in means.
const CUT: u32 = 10;

/// How long something takes, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always as long.
    Fixed(u32),
    /// Every length between these two is as likely.
    Uniform(u32, u32),
    /// As the time until the next of many independent events: with this mean, and no more than the second.
    Exponential(u32, u32),
}

impl Default for Delay {
    fn default() -> Self {
        Self::NONE
    }
}

impl Delay {
    /// No time at all.
    pub const NONE: Self = Self::Fixed(0);

    /// The longest it can be.
    #[must_use]
    pub const fn longest(self) -> u32 {
        match self {
            Self::Fixed(most) | Self::Uniform(_, most) | Self::Exponential(_, most) => most,
        }
    }

    /// Returns true if its ends are the right way round, and the longest is not above [`LONGEST_DELAY`].
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let is_ordered = match self {
            Self::Fixed(_) => true,
            Self::Uniform(least, most) | Self::Exponential(least, most) => least <= most,
        };
        is_ordered && self.longest() <= LONGEST_DELAY
    }

    /// A length, by a number that looks like chance.
    #[must_use]
    pub fn draw(self, number: u64) -> u64 {
        match self {
            Self::Fixed(length) => length.into(),
            Self::Uniform(least, most) => u64::from(least) + number % (u64::from(most - least) + 1),
            Self::Exponential(mean, most) => {
                // -ln of a number between 0 and 1, in units of 2^-16: its binary logarithm, of which the fraction is a parabola
                // through the right values at both ends and near the middle, times ln 2.
                let number = number | 1;
                let whole = u64::from(number.leading_zeros());
                let rest = (number << whole << 1) >> 48;
                let fraction = rest + ((rest * (0x1_0000 - rest)) >> 16) * 22_533 / 65_536;
                let log2 = (whole << 16) + 0x1_0000 - fraction;
                let ln = (log2 * 45_426) >> 16;
                ((u64::from(mean) * ln) >> 16).min(most.into())
            }
        }
    }
}

/// As it is written: `100`, `100..500`, or `~200` for an exponential one with that mean.
impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform(least, most) => write!(f, "{least}..{most}"),
            Self::Exponential(mean, _) => write!(f, "~{mean}"),
        }
    }
}

/// Not a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADelay;

impl fmt::Display for NotADelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("100, 100..500 or ~200 microseconds; ~200 is exponential")
    }
}

impl core::error::Error for NotADelay {}

impl FromStr for Delay {
    type Err = NotADelay;

    /// Reads what [`fmt::Display`] writes. What is read need not be [valid](Delay::is_valid).
    fn from_str(text: &str) -> Result<Self, NotADelay> {
        let number = |text: &str| text.parse().map_err(|_| NotADelay);
        if let Some(mean) = text.strip_prefix('~') {
            let mean: u32 = number(mean)?;
            return Ok(Self::Exponential(mean, mean.saturating_mul(CUT).min(LONGEST_DELAY)));
        }
        match text.split_once("..") {
            Some((least, most)) => Ok(Self::Uniform(number(least)?, number(most)?)),
            None => number(text).map(Self::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::{Delay, LONGEST_DELAY, NotADelay};

    #[test]
    fn a_delay_is_read_as_it_is_shown() {
        let exponential = Delay::Exponential(200, 2_000);
        for (text, delay) in
            [("0", Delay::NONE), ("7", Delay::Fixed(7)), ("1..9", Delay::Uniform(1, 9)), ("~200", exponential)]
        {
            assert_eq!((text.parse(), delay.to_string().as_str()), (Ok(delay), text));
        }
        for text in ["", "soon", "1..", "..9", "~", "-1", "1 ms"] {
            assert_eq!(text.parse::<Delay>(), Err(NotADelay), "{text}");
        }
    }

    #[test]
    fn ends_are_the_right_way_round_and_not_too_late() {
        assert!(Delay::NONE.is_valid() && Delay::Uniform(1, LONGEST_DELAY).is_valid());
        assert!("~5000000".parse::<Delay>().is_ok_and(Delay::is_valid), "cut off");
        for delay in [Delay::Fixed(LONGEST_DELAY + 1), Delay::Uniform(2, 1), Delay::Exponential(2, 1)] {
            assert!(!delay.is_valid(), "{delay:?}");
        }
        assert!(Delay::Uniform(1, 1).is_valid() && !Delay::Uniform(1, LONGEST_DELAY + 1).is_valid());
    }

    #[test]
    fn every_length_between_the_ends_is_as_likely() {
        let delay = Delay::Uniform(5, 9);
        for number in 0..20 {
            assert_eq!(delay.draw(number), 5 + number % 5);
        }
        // The number before the last one is four more than a multiple of five.
        assert_eq!((delay.draw(u64::MAX - 1), Delay::Fixed(7).draw(u64::MAX - 1)), (9, 7));
    }

    /// That the fraction of a logarithm is a parabola costs less than a hundredth of the mean.
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "what is lost is far less than a hundredth")]
    fn an_exponential_delay_is_the_logarithm_of_its_number() {
        const MEAN: u32 = 1_000_000;
        let delay = Delay::Exponential(MEAN, u32::MAX);
        let mut number = 1_u64;
        for _ in 0..10_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Each shift halves the part of one that the number is.
            let part = (number >> (number % 40)) as f64 / 18_446_744_073_709_551_616.0;
            let (drawn, exact) = (delay.draw(number >> (number % 40)) as f64, -part.ln() * f64::from(MEAN));
            assert!((drawn - exact).abs() < f64::from(MEAN) / 100.0, "{number:#x}: {drawn}, not {exact}");
        }
        assert_eq!(Delay::Exponential(MEAN, 5).draw(1), 5, "cut off");
    }

    #[test]
    fn what_is_no_delay_is_told_what_one_is() {
        assert!(NotADelay.to_string().contains("~200"));
    }
}
