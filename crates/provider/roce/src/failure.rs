//! Why a request or a receive did not succeed, and what NDK calls that (RoCEv2 7).

use ntstatus::NtStatus;

/// Why a request or a receive ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The queue pair was flushed, or a request before this one failed.
    Flushed,
    /// The responder refused the message itself (NAK 0x61): mostly its receive was too short.
    RemoteInvalidRequest,
    /// The remote token does not allow it (NAK 0x62).
    RemoteAccess,
    /// The responder could not carry it out (NAK 0x63).
    RemoteOperation,
    /// The peer did not answer, however often it was asked.
    RetryExceeded,
    /// The peer never had a receive for it.
    RnrRetryExceeded,
    /// The peer has disconnected, so that no answer will come.
    Disconnected,
    /// A request's own memory may not be used.
    LocalProtection,
    /// The message is longer than the receive.
    ReceiveTooShort,
    /// A receive's own memory may not be used.
    ReceiveProtection,
    /// The peer may not invalidate what it named.
    BadInvalidate,
    /// The peer broke a rule while it was sending to this receive, or named memory that it may not use.
    PeerBroke,
}

impl Failure {
    /// The status of the completion.
    pub const fn status(self) -> NtStatus {
        match self {
            Self::Flushed => NtStatus::CANCELLED,
            Self::RemoteInvalidRequest | Self::RemoteAccess | Self::RemoteOperation => NtStatus::REMOTE_RESOURCES,
            Self::RetryExceeded | Self::RnrRetryExceeded | Self::Disconnected => NtStatus::IO_TIMEOUT,
            Self::LocalProtection | Self::ReceiveProtection => NtStatus::ACCESS_VIOLATION,
            Self::ReceiveTooShort => NtStatus::BUFFER_OVERFLOW,
            Self::BadInvalidate | Self::PeerBroke => NtStatus::INVALID_DEVICE_REQUEST,
        }
    }
}
