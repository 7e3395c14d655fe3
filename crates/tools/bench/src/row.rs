//! What is reported: a row for everything that has a goal.

use crate::measure::Samples;

/// What a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// Nothing in particular: the figure is for reading.
    Reported,
}

impl Goal {
    fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::Reported => None,
        }
    }

    fn words(self) -> Option<String> {
        match self {
            Self::AtLeast(least) => Some(format!(">= {least}")),
            Self::AtMost(most) => Some(format!("<= {most}")),
            Self::Reported => None,
        }
    }
}

/// What figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds for one operation.
    Nanoseconds,
    /// Milliseconds for one operation. Samples are nanoseconds.
    Milliseconds,
    /// Millions of operations in a second.
    Millions,
    /// Gibibytes in a second. Samples are nanoseconds for so many bytes.
    Gibibytes(usize),
    /// Bytes of memory.
    Bytes,
    /// Instructions, counted.
    Instructions,
}

impl Unit {
    /// What readers call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Milliseconds => "ms",
            Self::Millions => "M/s",
            Self::Gibibytes(_) => "GiB/s",
            Self::Bytes => "bytes",
            Self::Instructions => "instructions",
        }
    }

    /// A sample in this unit.
    #[must_use]
    pub fn of(self, sample: f64) -> f64 {
        match self {
            Self::Nanoseconds | Self::Bytes | Self::Instructions => sample,
            Self::Milliseconds => sample / 1e6,
            Self::Millions => 1e3 / sample,
            #[expect(clippy::cast_precision_loss, reason = "no transfer has 2^52 bytes")]
            Self::Gibibytes(bytes) => bytes as f64 * 1e9 / sample / f64::from(1 << 30),
        }
    }
}

/// A figure of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub row: String,
    /// The median of ours, in `unit`.
    pub ours: Option<f64>,
    /// The median of what it is compared with, in `unit`.
    pub peer: Option<f64>,
    /// The unit of `ours` and `peer`.
    pub unit: &'static str,
    /// `ours` divided by `peer`.
    pub ratio: Option<f64>,
    /// What the ratio should be.
    pub goal: Option<String>,
    /// True if the goal is met.
    pub met: Option<bool>,
    /// Why it was not measured, if it was not.
    pub skipped: Option<String>,
    /// What it is compared with.
    pub against: String,
    /// Half of the distance between the quartiles of the samples, as a share of the median: of ours, and of the peer.
    pub spread: [Option<f64>; 2],
    /// The ratio of the least that anybody has to do, beside the same peer, if that was measured.
    pub bound: Option<f64>,
    /// True if the goal is met there.
    pub is_in_reach: Option<bool>,
}

impl Row {
    /// A row of two measurements.
    #[must_use]
    pub fn measured(row: &str, against: &str, unit: Unit, goal: Goal, ours: &Samples, peer: &Samples) -> Self {
        let (mine, theirs) = (unit.of(ours.median()), unit.of(peer.median()));
        let ratio = mine / theirs;
        Self {
            row: row.to_owned(),
            ours: Some(mine),
            peer: Some(theirs),
            unit: unit.name(),
            ratio: Some(ratio),
            goal: goal.words(),
            met: goal.is_met(ratio),
            skipped: None,
            against: against.to_owned(),
            spread: [Some(ours.spread()), Some(peer.spread())],
            bound: None,
            is_in_reach: None,
        }
    }

    /// [`Row::measured`] for samples of the same rounds, the ratio of which is the median of the rounds' ratios.
    ///
    /// There are times in which all that a core does takes longer. Both have their share of them, but the median of one may be of
    /// such a time and that of the other not.
    ///
    /// # Panics
    ///
    /// If the samples are not of as many rounds.
    #[must_use]
    pub fn in_rounds(row: &str, against: &str, unit: Unit, goal: Goal, ours: &Samples, peer: &Samples) -> Self {
        let ratio = ours.each_with(peer, |mine, theirs| unit.of(mine) / unit.of(theirs)).median();
        Self { ratio: Some(ratio), met: goal.is_met(ratio), ..Self::measured(row, against, unit, goal, ours, peer) }
    }

    /// The row, and what `least` has reached beside the same peer: a row of the least that anybody has to do.
    ///
    /// # Panics
    ///
    /// If the peer is another one.
    #[must_use]
    pub fn bounded(self, goal: Goal, least: &Self) -> Self {
        assert_eq!(self.against, least.against, "a bound of something else");
        Self { bound: least.ratio, is_in_reach: least.ratio.and_then(|ratio| goal.is_met(ratio)), ..self }
    }

    /// A row of a figure and a limit that is no measurement: the goal is that the figure is at most the limit.
    #[must_use]
    pub fn limited(row: &str, against: &str, unit: Unit, ours: f64, limit: f64) -> Self {
        let (ours, limit) = (Samples::new(vec![ours]), Samples::new(vec![limit]));
        let row = Self::measured(row, against, unit, Goal::AtMost(1.0), &ours, &limit);
        Self { spread: [None, None], ..row }
    }

    /// A row of two counts, which do not vary.
    #[must_use]
    pub fn counted(row: &str, against: &str, goal: Goal, ours: f64, peer: f64) -> Self {
        let (ours, peer) = (Samples::new(vec![ours]), Samples::new(vec![peer]));
        Self { spread: [None, None], ..Self::measured(row, against, Unit::Instructions, goal, &ours, &peer) }
    }

    /// A row of a figure that is compared with nothing.
    #[must_use]
    pub fn plain(row: &str, unit: Unit, ours: &Samples) -> Self {
        Self {
            ours: Some(unit.of(ours.median())),
            spread: [Some(ours.spread()), None],
            ..Self::empty(row, "", unit, Goal::Reported)
        }
    }

    /// A row that could not be measured.
    #[must_use]
    pub fn skipped(row: &str, against: &str, unit: Unit, goal: Goal, why: &str) -> Self {
        Self { skipped: Some(why.to_owned()), ..Self::empty(row, against, unit, goal) }
    }

    /// A row whose peer is absent.
    #[must_use]
    pub fn without_peer(row: &str, against: &str, unit: Unit, goal: Goal, ours: &Samples, why: &str) -> Self {
        let measured = Self::plain(row, unit, ours);
        Self { ours: measured.ours, spread: measured.spread, ..Self::skipped(row, against, unit, goal, why) }
    }

    fn empty(row: &str, against: &str, unit: Unit, goal: Goal) -> Self {
        Self {
            row: row.to_owned(),
            ours: None,
            peer: None,
            unit: unit.name(),
            ratio: None,
            goal: goal.words(),
            met: None,
            skipped: None,
            against: against.to_owned(),
            spread: [None, None],
            bound: None,
            is_in_reach: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, Row, Unit};
    use crate::measure::Samples;

    fn samples(value: f64) -> Samples {
        Samples::new(vec![value])
    }

    #[test]
    fn a_ratio_is_of_figures_in_the_unit_of_the_row() {
        // Half of the time is twice the rate.
        let row = Row::measured("a", "b", Unit::Millions, Goal::AtLeast(2.0), &samples(50.0), &samples(100.0));
        assert_eq!((row.ours, row.peer, row.ratio, row.met), (Some(20.0), Some(10.0), Some(2.0), Some(true)));
        let row = Row::measured("a", "b", Unit::Nanoseconds, Goal::AtMost(0.4), &samples(50.0), &samples(100.0));
        assert_eq!((row.ratio, row.met), (Some(0.5), Some(false)));
    }

    #[test]
    fn the_ratio_of_rounds_is_the_median_of_their_ratios() {
        // Everything takes twice as long in most rounds of one subject and in few of the other; in each round ours takes half.
        let (ours, peer) = (Samples::new(vec![10.0, 5.0, 5.0]), Samples::new(vec![20.0, 20.0, 10.0]));
        let row = Row::in_rounds("a", "b", Unit::Nanoseconds, Goal::AtMost(0.5), &ours, &peer);
        assert_eq!((row.ours, row.peer, row.ratio, row.met), (Some(5.0), Some(20.0), Some(0.5), Some(true)));
        let row = Row::in_rounds("a", "b", Unit::Millions, Goal::AtLeast(2.5), &ours, &peer);
        assert_eq!((row.ratio, row.met), (Some(2.0), Some(false)));
    }

    #[test]
    fn a_bound_says_whether_the_goal_is_in_reach() {
        let goal = Goal::AtMost(0.5);
        let row = |ours| Row::measured("a", "b", Unit::Nanoseconds, goal, &samples(ours), &samples(100.0));
        let bounded = row(70.0).bounded(goal, &row(60.0));
        assert_eq!((bounded.met, bounded.bound, bounded.is_in_reach), (Some(false), Some(0.6), Some(false)));
        assert_eq!(row(70.0).bounded(goal, &row(40.0)).is_in_reach, Some(true));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let row = Row::skipped("a", "b", Unit::Bytes, Goal::AtMost(1.0), "absent");
        assert_eq!((row.met, row.skipped.as_deref()), (None, Some("absent")));
    }
}
