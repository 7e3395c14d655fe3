//! What a consumer is told about its connections.

use ntstatus::NtStatus;

use crate::wire::cm::Reason;

/// Something has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The connection.
    pub connection: u32,
    /// What has happened.
    pub kind: EventKind,
}

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A peer wants to connect: a connect event.
    Requested,
    /// `NdkConnect` completes: the peer has accepted, or not.
    Connected(Result<(), Refusal>),
    /// `NdkAccept` completes: the connection is established, or not.
    Accepted(Result<(), Refusal>),
    /// The connection is over, and this side did not end it: the disconnect event, once.
    Disconnected(Ending),
    /// `NdkDisconnect` completes.
    DisconnectComplete(Result<(), Refusal>),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer has refused what this side asked for.
    Rejected(Reason),
    /// The peer does not want any more what it had asked for, and this side has accepted.
    Withdrawn(Reason),
    /// The peer did not answer.
    Timeout,
    /// No station has the address.
    HostUnreachable,
    /// No way leads to the address.
    NetworkUnreachable,
    /// The peer has given up, or the connection is over already.
    Aborted,
}

impl Refusal {
    /// The status of the completion (RoCEv2 8.5).
    pub const fn status(self) -> NtStatus {
        match self {
            Self::Rejected(Reason::TIMEOUT) | Self::Timeout => NtStatus::IO_TIMEOUT,
            Self::Rejected(_) => NtStatus::CONNECTION_REFUSED,
            Self::HostUnreachable => NtStatus::HOST_UNREACHABLE,
            Self::NetworkUnreachable => NtStatus::NETWORK_UNREACHABLE,
            Self::Withdrawn(_) | Self::Aborted => NtStatus::CONNECTION_ABORTED,
        }
    }

    /// What the peer's REJ gave as its reason, if there was one.
    #[must_use]
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Rejected(reason) | Self::Withdrawn(reason) => Some(reason),
            Self::Timeout | Self::HostUnreachable | Self::NetworkUnreachable | Self::Aborted => None,
        }
    }
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer has disconnected.
    Graceful,
    /// The queue pair has failed: the peer did not answer, or one of the sides broke a rule.
    Lost,
}
