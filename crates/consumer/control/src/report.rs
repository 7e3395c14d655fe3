//! The report of a run of `ndktest`, as text that programs can read too.

use core::fmt::{self, Write};

/// A line of the report about one step: name, outcome, microseconds and text, separated by tabs.
///
/// Lines without tabs are remarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The case or measurement.
    pub name: &'a str,
    /// One word, [`FAILED`] and [`INCONCLUSIVE`] among them.
    pub outcome: &'a str,
    /// Its duration.
    pub micros: u64,
    /// Details; may be empty.
    pub text: &'a str,
}

/// The outcome of a failed step.
pub const FAILED: &str = "failed";
/// The outcome of a step that has not come to what it is about.
pub const INCONCLUSIVE: &str = "inconclusive";

impl<'a> Line<'a> {
    /// Parses a line without its line ending; `None` for a remark.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(4, '\t');
        let (name, outcome, micros, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self { name, outcome, micros: micros.parse().ok()?, text })
    }

    /// Returns true if the step failed, or has not come to what it is about.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.outcome == FAILED || self.outcome == INCONCLUSIVE
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, outcome, micros, text } = self;
        write!(f, "{name}\t{outcome}\t{micros}\t")?;
        // Whatever the text contains, the result is one line.
        text.chars().try_for_each(|letter| f.write_char(if letter.is_control() { ' ' } else { letter }))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::Line;

    #[test]
    fn a_line_survives_the_way() {
        let line = Line { name: "arm.any", outcome: "failed", micros: 1234, text: "seen: 2, expected: 1" };
        assert_eq!(line.to_string(), "arm.any\tfailed\t1234\tseen: 2, expected: 1");
        assert_eq!(Line::parse(&line.to_string()), Some(line));
        assert!(line.is_failure());
        let silent = Line { name: "arm.any", outcome: "passed", micros: 0, text: "" };
        assert_eq!(Line::parse(&silent.to_string()), Some(silent));
        assert!(!silent.is_failure());
        assert!(Line { outcome: "inconclusive", ..silent }.is_failure());
    }

    #[test]
    fn words_cannot_break_a_line() {
        let line = Line { name: "a", outcome: "failed", micros: 1, text: "two\nlines\tand a tab" };
        assert_eq!(line.to_string(), "a\tfailed\t1\ttwo lines and a tab");
    }

    #[test]
    fn remarks_are_no_steps() {
        for remark in ["", "seed 0x7", "fault: x", "a\tb\tc\td", "a\tb\t1"] {
            assert_eq!(Line::parse(remark), None, "{remark:?}");
        }
    }
}
