//! Completion queue entries.

use core::fmt;

use crate::NtStatus;

/// The kind of request a completion is for (`NDKPI 2.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A receive.
    Receive,
    /// A receive whose sender invalidated a token of the receiver.
    ReceiveAndInvalidate,
    /// A send, with or without invalidation at the other side.
    Send,
    /// A fast registration of memory.
    FastRegister,
    /// A bind of a memory window.
    Bind,
    /// An invalidation of a fast-registered region or a window.
    Invalidate,
    /// An RDMA read.
    Read,
    /// An RDMA write.
    Write,
}

impl Operation {
    /// The one with this number, which is below eight.
    const fn from_bits(bits: u64) -> Self {
        match bits & 7 {
            0 => Self::Receive,
            1 => Self::ReceiveAndInvalidate,
            2 => Self::Send,
            3 => Self::FastRegister,
            4 => Self::Bind,
            5 => Self::Invalidate,
            6 => Self::Read,
            _ => Self::Write,
        }
    }
}

/// Why a request failed that went to another machine, where the status does not say it (RoCEv2 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The peer's adapter has not answered, however often it was asked.
    Unanswered = 1,
    /// The peer never had a receive: the RNR retries are spent.
    NoReceive,
    /// The peer's adapter takes no such message (NAK 0x61).
    InvalidRequest,
    /// The peer's memory refused the access (NAK 0x62).
    RemoteAccess,
    /// The peer's adapter could not carry it out (NAK 0x63).
    RemoteOperation,
}

impl Cause {
    /// The one with this number; none has zero.
    const fn from_bits(bits: u64) -> Option<Self> {
        match bits & 7 {
            1 => Some(Self::Unanswered),
            2 => Some(Self::NoReceive),
            3 => Some(Self::InvalidRequest),
            4 => Some(Self::RemoteAccess),
            5 => Some(Self::RemoteOperation),
            _ => None,
        }
    }
}

/// How a request has ended, in one word: the status, the kind of request, and if its sender asked for an event. All that an arm
/// looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CqeOutcome(u64);

impl CqeOutcome {
    const OPERATION: u32 = 32;
    const SOLICITED: u64 = 1 << 40;
    const CAUSE: u32 = 48;

    /// The outcome of a request whose sender asked for no event.
    #[inline]
    #[must_use]
    pub const fn new(operation: Operation, status: NtStatus) -> Self {
        Self((operation as u64) << Self::OPERATION | status.0.cast_unsigned() as u64)
    }

    /// The same, with an event if `is_solicited`.
    #[inline]
    #[must_use]
    pub const fn soliciting(self, is_solicited: bool) -> Self {
        let plain = self.0 & !Self::SOLICITED;
        Self(if is_solicited { plain | Self::SOLICITED } else { plain })
    }

    /// The same, with a cause. It had none.
    #[inline]
    #[must_use]
    pub(crate) const fn because(self, cause: Option<Cause>) -> Self {
        match cause {
            Some(cause) => Self(self.0 | (cause as u64) << Self::CAUSE),
            None => self,
        }
    }

    /// Why a request failed that went to another machine, if its status does not say it.
    #[inline]
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        Cause::from_bits(self.0 >> Self::CAUSE)
    }

    /// Success, or why the request failed.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub const fn status(self) -> NtStatus {
        NtStatus((self.0 as u32).cast_signed())
    }

    /// The kind of request.
    #[inline]
    #[must_use]
    pub const fn operation(self) -> Operation {
        Operation::from_bits(self.0 >> Self::OPERATION)
    }

    /// Returns true if the sender asked for an event.
    #[inline]
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        self.0 & Self::SOLICITED != 0
    }

    /// Returns true if the request has succeeded and its sender asked for no event.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.status().is_success() && !self.is_solicited()
    }
}

impl fmt::Debug for CqeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, status) = (self.operation(), self.status());
        f.debug_struct("CqeOutcome")
            .field("operation", &operation)
            .field("status", &status)
            .field("is_solicited", &self.is_solicited())
            .field("cause", &self.cause())
            .finish()
    }
}

/// What a receive has got, in one word. Nothing for other requests.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Received(u64);

impl Received {
    /// So many bytes, and the token that the sender invalidated, or zero.
    #[inline]
    #[must_use]
    pub const fn new(bytes: u32, invalidated_token: u32) -> Self {
        Self((invalidated_token as u64) << 32 | bytes as u64)
    }

    /// The number of bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// The token that the sender invalidated, for [`Operation::ReceiveAndInvalidate`].
    #[inline]
    #[must_use]
    pub const fn invalidated_token(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, token) = (self.bytes(), self.invalidated_token());
        f.debug_struct("Received").field("bytes", &bytes).field("invalidated_token", &token).finish()
    }
}

/// A completion queue entry: the completion of one request.
///
/// 32 bytes, two to a cache line, where an `NDK_RESULT_EX` has 40: the `ProviderErrorCode` of that follows from the kind of the
/// request, its status and its cause (`NDKPI 3.6`).
///
/// Field order differs from `NDK_RESULT` on purpose: the compiler must not merge two 8-byte loads into one 16-byte load, which
/// defeats store forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Cqe {
    /// What the consumer gave when it created the queue pair.
    pub qp_context: usize,
    /// How the request has ended.
    pub outcome: CqeOutcome,
    /// What the consumer gave when it posted the request.
    pub request_context: usize,
    /// What the request has received.
    pub received: Received,
}

const _: () = assert!(size_of::<Cqe>() == 32);

impl Cqe {
    /// The completion of a request that received nothing.
    #[inline]
    #[must_use]
    pub const fn new(qp_context: usize, request_context: usize, outcome: CqeOutcome) -> Self {
        Self { qp_context, outcome, request_context, received: Received::new(0, 0) }
    }
}
