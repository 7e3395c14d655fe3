//! A case: one sentence, how it is checked, and what was seen.

use std::{fmt::Debug, time::Duration};

use nd2::abi::HRESULT;

use crate::World;

/// One sentence of a document.
#[derive(Clone, Copy)]
pub struct Case {
    /// `theme.rule`, for people and for filters.
    pub name: &'static str,
    /// Where the sentence stands: the method, its part, and the number of the paragraph and the sentence in it.
    pub place: &'static str,
    /// Checks it. What was seen, for the report.
    pub run: fn(&World) -> Result<String, Failure>,
}

impl Case {
    /// A case.
    #[must_use]
    pub const fn new(name: &'static str, place: &'static str, run: fn(&World) -> Result<String, Failure>) -> Self {
        Self { name, place, run }
    }
}

/// Why a case does not go on: what was seen instead of what the sentence says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl Failure {
    /// A failure in words.
    #[must_use]
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl From<ndkpi::NtStatus> for Failure {
    fn from(status: ndkpi::NtStatus) -> Self {
        Self(status.to_string())
    }
}

/// Checks that `found` is what was wanted.
///
/// # Errors
///
/// Says what is different.
#[expect(clippy::needless_pass_by_value, reason = "what is compared was made for it")]
pub fn is<T: PartialEq + Debug>(what: &str, found: T, wanted: T) -> Result<(), Failure> {
    if found == wanted { Ok(()) } else { Err(Failure(format!("{what}: {found:?} instead of {wanted:?}"))) }
}

/// Checks that a method has succeeded.
///
/// # Errors
///
/// Says how it ended.
pub fn ok(what: &str, result: HRESULT) -> Result<(), Failure> {
    is(what, result, HRESULT::ND_SUCCESS)
}

/// Checks that something holds.
///
/// # Errors
///
/// Says what does not.
pub fn holds(what: &str, holds: bool) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(format!("not so: {what}"))) }
}

/// How a case ended, with what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the sentence says.
    Passed(String),
    /// Otherwise.
    Failed(String),
}

impl Outcome {
    /// Returns true if the case has passed.
    #[must_use]
    pub const fn is_pass(&self) -> bool {
        matches!(self, Self::Passed(_))
    }
}

/// A line of the report.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the case.
    pub name: &'static str,
    /// Where its sentence stands.
    pub place: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub time: Duration,
}
