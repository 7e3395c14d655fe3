//! Why the provider refuses a call or lets a request fail: one table, by function and status, with the pages of `ndkctl explain`.
//!
//! The number of a failed work request's reason is its `ProviderErrorCode` (`NDKPI 3.6`), and both are in the trace event
//! `Failure` that the drivers write under the adviser.

use engine::{cq::Cause, wire::RejectReason};
use ndkpi::{NDK_OPERATION_TYPE, NtStatus};

/// The subject of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Calls of these functions, and their completions, by their names in C.
    Calls(&'static [&'static str]),
    /// Completions of work requests of these kinds.
    Requests(&'static [NDK_OPERATION_TYPE]),
    /// Completions of work requests of these kinds that went to another machine, with a cause that the status does not say.
    Wire(&'static [NDK_OPERATION_TYPE]),
    /// Connects and accepts over a wire that the peer's connection manager refuses with one of these reasons (RoCEv2 8.9). The status is
    /// that of a connect; an accept ends with `STATUS_CONNECTION_ABORTED`.
    Rejections(&'static [u16]),
}

/// Why a call is refused or a request fails.
#[derive(Debug)]
pub struct Reason {
    number: u16,
    /// The subject.
    pub about: About,
    /// The status that the consumer gets.
    pub status: NtStatus,
    /// The section of the description of NDKPI, or of the decision where that says nothing.
    pub section: &'static str,
    /// What was wrong.
    pub what: &'static str,
    /// What to do about it.
    pub fix: &'static str,
}

impl Reason {
    /// All reasons, by number.
    pub const ALL: &'static [Self] = super::reasons::REASONS;

    /// A reason of the table.
    pub(crate) const fn new(
        number: u16,
        about: About,
        status: NtStatus,
        section: &'static str,
        what: &'static str,
        fix: &'static str,
    ) -> Self {
        Self { number, about, status, section, what, fix }
    }

    /// The number: 1 for `SR0001`.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// The reason with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<&'static Self> {
        Self::ALL.iter().find(|reason| reason.number == number)
    }

    /// The number of the reason for which a request failed that went to another machine.
    #[must_use]
    pub const fn number_of_cause(cause: Cause) -> u16 {
        match cause {
            Cause::Unanswered => 15,
            Cause::NoReceive => 16,
            Cause::InvalidRequest => 17,
            Cause::RemoteAccess => 18,
            Cause::RemoteOperation => 19,
        }
    }

    /// Why the connection manager of another machine has refused a connection.
    #[must_use]
    pub fn of_rejection(reason: RejectReason) -> &'static Self {
        let mut any = &Self::ALL[0];
        for row in Self::ALL {
            let About::Rejections(numbers) = row.about else { continue };
            if numbers.contains(&reason.0) {
                return row;
            }
            if numbers.is_empty() {
                // What RoCEv2 8.9 does not name.
                any = row;
            }
        }
        any
    }

    /// Why a call of this function, or its completion, has this status. `None` for a success, and for what this provider never
    /// answers.
    #[must_use]
    pub fn of_call(function: &str, status: NtStatus) -> Option<&'static Self> {
        let is_it = |reason: &&Self| match reason.about {
            About::Calls(functions) => reason.status == status && functions.contains(&function),
            About::Requests(_) | About::Wire(_) | About::Rejections(_) => false,
        };
        Self::ALL.iter().find(is_it)
    }

    /// Why a work request of this kind has completed with this status. `None` as for [`Reason::of_call`].
    #[must_use]
    pub const fn of_request(kind: NDK_OPERATION_TYPE, status: NtStatus) -> Option<&'static Self> {
        let mut index = 0;
        while index < Self::ALL.len() {
            let reason = &Self::ALL[index];
            if let About::Requests(kinds) = reason.about
                && reason.status.to_bits() == status.to_bits()
            {
                let mut place = 0;
                while place < kinds.len() {
                    if kinds[place].0 == kind.0 {
                        return Some(reason);
                    }
                    place += 1;
                }
            }
            index += 1;
        }
        None
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SR{:04}", self.number)
    }
}
