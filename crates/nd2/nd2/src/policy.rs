//! How overlapped requests end that wait for nothing.

use core::{fmt, str::FromStr};

/// How an overlapped request ends that has succeeded when its method could return.
///
/// Requests that fail at once are answered by their methods, whatever the policy is, and shared receive queues' requests for
/// notification always pend.
///
/// The interface allows both answers. Programs were written against devices that nearly always pend, and many of them wait
/// for a packet or an event after every overlapped call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionPolicy {
    /// The method answers `ND_PENDING`, and the end is reported by the event and the completion port.
    #[default]
    Pending,
    /// The method answers `ND_SUCCESS`, and nothing is reported.
    Inline,
    /// One or the other, at random.
    Mixed,
}

impl CompletionPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Inline, Self::Mixed];

    /// What it is called in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Inline => "inline",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for CompletionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pending, inline or mixed")
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for CompletionPolicy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}
