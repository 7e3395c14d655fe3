//! Running cases.

use core::fmt;

use ndkpi::NDK_VERSION;

use crate::{
    case::{Case, Pass, Stop, Verdict},
    client::{Options, Session},
    platform::Platform,
    text::Text,
};

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The version that adapters are opened with.
    pub version: NDK_VERSION,
    /// Determines the random numbers; the same seed, the same numbers.
    pub seed: u64,
    /// True if the provider may be given what a correct consumer never gives, such as null pointers.
    pub hostile: bool,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule holds.
    Passed,
    /// It does not: this was seen.
    Failed(Text),
    /// The rule does not apply, for this reason.
    Skipped(Text),
    /// The documentation leaves it open; the provider does this.
    Observed(Text),
    /// Nothing is known about the rule: what the case needs first has failed.
    Inconclusive(Text),
}

impl Outcome {
    /// One word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::Observed(_) => "observed",
            Self::Inconclusive(_) => "inconclusive",
        }
    }

    /// What there is to say.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(text) | Self::Skipped(text) | Self::Observed(text) | Self::Inconclusive(text) => text.as_str(),
        }
    }

    /// The outcome with that word.
    #[must_use]
    pub fn from_word(word: &str, text: &str) -> Option<Self> {
        let text = || Text::new(format_args!("{text}"));
        Some(match word {
            "passed" => Self::Passed,
            "failed" => Self::Failed(text()),
            "skipped" => Self::Skipped(text()),
            "observed" => Self::Observed(text()),
            "inconclusive" => Self::Inconclusive(text()),
            _ => return None,
        })
    }

    /// Returns true if it needs somebody's attention: the rule is broken, or nothing is known about it.
    #[must_use]
    pub const fn is_bad(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Inconclusive(_))
    }

    /// Returns true if the rule is broken.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Ok(Pass::Held) => Self::Passed,
            Ok(Pass::Observed(text)) => Self::Observed(text),
            Err(Stop::Failed(text)) => Self::Failed(text),
            Err(Stop::Skipped(text)) => Self::Skipped(text),
            Err(Stop::Inconclusive(text)) => Self::Inconclusive(text),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        if self.text().is_empty() { Ok(()) } else { write!(f, ": {}", self.text()) }
    }
}

/// Runs one case.
#[must_use]
pub fn run(case: &Case, platform: &dyn Platform, how: &Run) -> Outcome {
    if platform.cancelled() {
        return Outcome::Skipped(Text::new(format_args!("cancelled")));
    }
    let options = Options { name: case.name, version: how.version, seed: how.seed, hostile: how.hostile };
    let outcome = Session::with(platform, &options, |session| (case.run)(session)).into();
    let excused = platform.take_excuse().map(|why| Outcome::Skipped(Text::new(format_args!("{why}"))));
    excused.unwrap_or(outcome)
}

/// How many cases ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rules that hold.
    pub passed: u32,
    /// Rules that do not.
    pub failed: u32,
    /// Rules that do not apply.
    pub skipped: u32,
    /// Answers to open questions.
    pub observed: u32,
    /// Rules of which nothing is known.
    pub inconclusive: u32,
}

impl Tally {
    /// Counts one more.
    pub const fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
            Outcome::Observed(_) => self.observed += 1,
            Outcome::Inconclusive(_) => self.inconclusive += 1,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.passed + self.failed + self.skipped + self.observed + self.inconclusive
    }

    /// Returns true if every rule that applies holds.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.failed == 0 && self.inconclusive == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, observed, inconclusive } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {observed} observed, {skipped} skipped, {inconclusive} inconclusive"
        )
    }
}

/// Returns true if a filter selects a case: a part of its name or of its section; several parts are separated by
/// commas. A part that is the whole name of a case selects this case only.
#[must_use]
pub fn selects(filter: &str, case: &Case) -> bool {
    filter.split(',').map(str::trim).any(|part| {
        if crate::cases::all().any(|other| other.name == part) {
            return case.name == part;
        }
        case.name.contains(part) || case.section.contains(part)
    })
}
