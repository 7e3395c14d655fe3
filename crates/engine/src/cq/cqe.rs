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
    /// The kind with this number, of which the lowest three bits count.
    const fn numbered(number: u64) -> Self {
        match number & 7 {
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

/// How a request has ended: its kind, its status, and if its sender asked for an event.
///
/// One word, so that a producer which looks at many entries does not wait for its own stores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CqeOutcome(u64);

impl CqeOutcome {
    /// The sign of a status: it is a failure.
    const FAILED: u64 = 1 << 31;
    /// Where the kind of the request begins.
    const OPERATION: u32 = 32;
    const SOLICITED: u64 = 1 << 40;

    /// The outcome of a request whose sender asked for no event.
    #[inline]
    #[must_use]
    pub const fn new(operation: Operation, status: NtStatus) -> Self {
        Self(status.to_bits() as u64 | (operation as u64) << Self::OPERATION)
    }

    /// The same, with an event if `solicited`.
    #[inline]
    #[must_use]
    pub const fn soliciting(self, solicited: bool) -> Self {
        Self(self.0 & !Self::SOLICITED | if solicited { Self::SOLICITED } else { 0 })
    }

    /// Success, or why the request failed.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the word")]
    pub const fn status(self) -> NtStatus {
        NtStatus::from_bits(self.0 as u32)
    }

    /// The kind of request.
    #[inline]
    #[must_use]
    pub const fn operation(self) -> Operation {
        Operation::numbered(self.0 >> Self::OPERATION)
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
        self.0 & (Self::FAILED | Self::SOLICITED) == 0
    }
}

impl fmt::Debug for CqeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = if self.is_solicited() { ", solicited" } else { "" };
        write!(f, "{:?}, {:?}{event}", self.operation(), self.status())
    }
}

/// A completion queue entry: the completion of one request.
///
/// 32 bytes, two to a cache line, where an `NDK_RESULT_EX` has 40: the `ProviderErrorCode` of that follows from the kind of the
/// request and its status (`NDKPI 3.6`).
///
/// No two fields are neighbours here in the order of an `NDK_RESULT`: a consumer that polls at once would load both with one
/// instruction, which waits until both stores of the producer have reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Cqe {
    /// What the consumer gave when it created the queue pair.
    pub qp_context: usize,
    /// How the request has ended.
    pub outcome: CqeOutcome,
    /// What the consumer gave when it posted the request.
    pub request_context: usize,
    /// Bytes received. Zero for other requests.
    pub bytes: u32,
    /// The token that the sender invalidated, for [`Operation::ReceiveAndInvalidate`]. Zero for other requests.
    pub invalidated_token: u32,
}

const _: () = assert!(size_of::<Cqe>() == 32);

impl Cqe {
    /// The completion of a request that received nothing.
    #[inline]
    #[must_use]
    pub const fn new(qp_context: usize, request_context: usize, outcome: CqeOutcome) -> Self {
        Self { qp_context, outcome, request_context, bytes: 0, invalidated_token: 0 }
    }
}
