//! The control device of `ndktest`, the driver that consumes NDKPI.
//!
//! The rules of [`crate::provider_device`] apply here too. One run at a time; a run ends by itself, by [`CANCEL`], or when the
//! driver stops.

use crate::wire::{READ, WRITE, control_code, wire};

/// The device's name in the kernel.
pub const DEVICE_NAME: &str = r"\Device\NdkTestControl";
/// Its name for programs, in the kernel's spelling.
pub const LINK_NAME: &str = r"\DosDevices\Global\NdkTestControl";
/// Its name for `CreateFile`.
pub const WIN32_NAME: &str = r"\\.\Global\NdkTestControl";
/// Who may open it: see [`crate::provider_device::SDDL`].
pub const SDDL: &str = crate::provider_device::SDDL;

/// Takes a [`Start`]. `STATUS_DEVICE_BUSY` during a run, `STATUS_DEVICE_NOT_READY` without a provider.
pub const START: u32 = control_code(0x20, WRITE);
/// Answers with a [`Progress`].
pub const QUERY_PROGRESS: u32 = control_code(0x21, READ);
/// Cancels the run. No input, no output; harmless without a run.
pub const CANCEL: u32 = control_code(0x22, WRITE);
/// Takes a [`From`] and answers with the run's report from there on: UTF-8 text, `STATUS_BUFFER_OVERFLOW` if there is more.
///
/// The text may end in the middle of a character. [`crate::report`] describes the lines.
pub const QUERY_REPORT: u32 = control_code(0x23, READ);

wire! {
    /// What to run.
    Start {
        /// A [`Kind`].
        kind: u32,
        /// The maximum duration in seconds: 1 to 3600.
        seconds: u32,
        /// The seed of the run's random choices.
        seed: u64,
    }
}

/// The range of [`Start::seconds`].
pub const SECONDS: core::ops::RangeInclusive<u32> = 1..=3600;

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The conformance suite, once.
    Conformance = 0,
    /// The suite, repeated with different random numbers until the time is up.
    Stress = 1,
    /// Latency, rate and bandwidth, each for its share of the time.
    Performance = 2,
    /// Serves the run of another machine, until the time is up or the run is cancelled ([`crate::network::machine`]).
    Agent = 3,
}

impl Kind {
    /// The kind with that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Conformance),
            1 => Some(Self::Stress),
            2 => Some(Self::Performance),
            3 => Some(Self::Agent),
            _ => None,
        }
    }
}

wire! {
    /// The progress of a run.
    Progress {
        /// A [`State`].
        state: u32,
        /// The [`Kind`] of the run.
        kind: u32,
        /// Finished steps.
        done: u32,
        /// The total number of steps; zero if unknown.
        total: u32,
        /// Steps that succeeded.
        passed: u32,
        /// Steps that failed.
        failed: u32,
        /// The length of the report so far, in bytes.
        report_bytes: u32,
        /// A [`Reason`](crate::network::Reason) why the run ended early.
        reason: u32,
    }
}

/// What the driver is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing yet.
    Idle = 0,
    /// A run is in progress.
    Running = 1,
    /// The last run finished.
    Finished = 2,
    /// The last run was cancelled.
    Cancelled = 3,
}

impl State {
    /// The state with that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Idle),
            1 => Some(Self::Running),
            2 => Some(Self::Finished),
            3 => Some(Self::Cancelled),
            _ => None,
        }
    }
}

wire! {
    /// Where in the report to start.
    From {
        /// The number of bytes to skip.
        offset: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Start};

    #[test]
    fn structures_survive_the_way() {
        let start = Start { kind: 1, seconds: 60, seed: 0x0123_4567_89AB_CDEF };
        assert_eq!(Start::from_bytes(&start.to_bytes()), Some(start));
        let progress = Progress { state: 1, done: 7, total: 9, ..Progress::default() };
        assert_eq!(Progress::from_bytes(&progress.to_bytes()), Some(progress));
    }

    #[test]
    fn another_length_is_refused() {
        let bytes = Start::default().to_bytes();
        assert_eq!(Start::from_bytes(&bytes[1..]), None);
        assert_eq!(Start::from_bytes(&[0; Start::BYTES + 1]), None);
    }

    #[test]
    fn control_codes_are_ctl_code() {
        assert_eq!(crate::provider_device::QUERY_INFO, 0x0012_6000);
        assert_eq!(super::START, 0x0012_A080);
    }
}
