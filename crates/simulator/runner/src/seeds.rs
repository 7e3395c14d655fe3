//! Which seeds: `7`, `1..1000` or `1,5,9..12`. Both ends belong to a range.

use std::{ops::RangeInclusive, str::FromStr};

/// At most as many seeds as this.
const MOST: u64 = 10_000_000;

/// Some seeds, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(Vec<RangeInclusive<u64>>);

impl Seeds {
    /// One seed.
    #[must_use]
    pub fn one(seed: u64) -> Self {
        Self(vec![seed..=seed])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end() - range.start() + 1).sum()
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no choice of seeds: write `7`, `1..1000` or `1,5,9..12`");
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let mut ranges = Vec::new();
        let mut count = 0_u64;
        for part in text.split(',') {
            let (first, last) = match part.split_once("..") {
                Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            count = (last - first).checked_add(1).and_then(|more| count.checked_add(more)).unwrap_or(u64::MAX);
            if count > MOST {
                return Err(format!("`{text}` are more than {MOST} seeds"));
            }
            ranges.push(first..=last);
        }
        Ok(Self(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::Seeds;

    #[test]
    fn a_range_has_both_its_ends() {
        let seeds: Seeds = "1,5,9..12".parse().expect("seeds");
        assert_eq!(seeds.iter().collect::<Vec<_>>(), [1, 5, 9, 10, 11, 12]);
        assert_eq!(seeds.count(), 6);
    }

    #[test]
    fn what_is_no_seed_is_refused_with_what_would_be() {
        for wrong in ["", "x", "3..1", "1..", "-1", "1..18446744073709551615"] {
            let said = wrong.parse::<Seeds>().expect_err(wrong);
            assert!(said.contains(wrong) && !said.contains('\n'), "{said}");
        }
    }
}
