//! A case: one rule of NDKPI, how it is checked, and how the check ends.

use core::fmt;

use ndkpi::NtStatus;

use crate::{client::Session, text::Text};

/// One rule.
#[derive(Clone, Copy)]
pub struct Case {
    /// `theme.rule`, for people and for filters.
    pub name: &'static str,
    /// The section of the rule.
    pub section: &'static str,
    /// What the case does.
    pub does: &'static str,
    /// What a provider must do.
    pub expects: &'static str,
    /// Runs the case on an open adapter.
    pub run: fn(&Session<'_>) -> Verdict,
}

impl Case {
    /// A case.
    #[must_use]
    pub const fn new(
        name: &'static str,
        section: &'static str,
        does: &'static str,
        expects: &'static str,
        run: fn(&Session<'_>) -> Verdict,
    ) -> Self {
        Self { name, section, does, expects, run }
    }

    /// The part of the name before the dot.
    #[must_use]
    pub fn theme(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("section", &self.section).finish_non_exhaustive()
    }
}

/// Why a case stops early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The provider broke the rule. The text says what was seen.
    Failed(Text),
    /// The rule does not apply here, for this reason.
    Skipped(Text),
    /// What the case needs before it can look at the rule has failed: nothing is known about the rule.
    Inconclusive(Text),
}

impl Stop {
    /// A failure.
    #[must_use]
    pub fn failed(seen: fmt::Arguments<'_>) -> Self {
        Self::Failed(Text::new(seen))
    }

    /// A reason to skip the case.
    #[must_use]
    pub fn skipped(reason: fmt::Arguments<'_>) -> Self {
        Self::Skipped(Text::new(reason))
    }

    /// The reason why nothing is known about the rule.
    #[must_use]
    pub fn inconclusive(reason: fmt::Arguments<'_>) -> Self {
        Self::Inconclusive(Text::new(reason))
    }

    /// The same, where a failure is not one of the rule: the case had not come to it.
    #[must_use]
    pub fn in_set_up(self) -> Self {
        match self {
            Self::Failed(seen) => Self::inconclusive(format_args!("before the rule could be looked at: {seen}")),
            other => other,
        }
    }

    /// The words.
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::Failed(text) | Self::Skipped(text) | Self::Inconclusive(text)) = self;
        text.as_str()
    }

    /// A failure of a call, with its status. Where there is too little memory no rule is broken, and none seen to hold.
    #[must_use]
    pub fn status(what: &str, status: NtStatus) -> Self {
        match status {
            NtStatus::INSUFFICIENT_RESOURCES | NtStatus::NO_MEMORY => {
                Self::inconclusive(format_args!("{what}: {status}"))
            }
            _ => Self::failed(format_args!("{what}: {status}")),
        }
    }
}

/// How a case ends without failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The rule holds.
    Held,
    /// The documentation leaves this open. The text says what the provider does.
    Observed(Text),
}

/// The result of a step of a case.
pub type Check<T = ()> = Result<T, Stop>;

/// The result of a case.
pub type Verdict = Check<Pass>;

/// The rule holds.
pub const HELD: Verdict = Ok(Pass::Held);

/// Fails the case with what was seen instead of the expected.
macro_rules! fail {
    ($($words:tt)+) => {
        return Err($crate::case::Stop::failed(format_args!($($words)+)))
    };
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            fail!($($words)+);
        }
    };
}

/// Fails the case unless both are equal. The text names what was compared.
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr, $($words:tt)+) => {{
        let (seen, expected) = ($seen, $expected);
        if seen != expected {
            return Err($crate::case::Stop::failed(format_args!(
                "{}: {seen:?}, expected {expected:?}",
                format_args!($($words)+)
            )));
        }
    }};
}

/// Skips the case: it does not apply.
macro_rules! skip {
    ($($words:tt)+) => {
        return Err($crate::case::Stop::skipped(format_args!($($words)+)))
    };
}

/// Ends the case without a result: something that it needs is not there.
macro_rules! inconclusive {
    ($($words:tt)+) => {
        return Err($crate::case::Stop::inconclusive(format_args!($($words)+)))
    };
}

/// Reports what the provider does where the documentation leaves a choice.
macro_rules! observed {
    ($($words:tt)+) => {
        Ok($crate::case::Pass::Observed($crate::text::Text::new(format_args!($($words)+))))
    };
}
