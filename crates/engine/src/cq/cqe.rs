//! Completion queue entries.

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

/// How a request has ended: all that an arm looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CqeOutcome {
    status: NtStatus,
    operation: Operation,
    is_solicited: bool,
}

impl CqeOutcome {
    /// The outcome of a request whose sender asked for no event.
    #[inline]
    #[must_use]
    pub const fn new(operation: Operation, status: NtStatus) -> Self {
        Self { status, operation, is_solicited: false }
    }

    /// The same, with an event if `is_solicited`.
    #[inline]
    #[must_use]
    pub const fn soliciting(self, is_solicited: bool) -> Self {
        Self { is_solicited, ..self }
    }

    /// Success, or why the request failed.
    #[inline]
    pub const fn status(self) -> NtStatus {
        self.status
    }

    /// The kind of request.
    #[inline]
    #[must_use]
    pub const fn operation(self) -> Operation {
        self.operation
    }

    /// Returns true if the sender asked for an event.
    #[inline]
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        self.is_solicited
    }

    /// Returns true if the request has succeeded and its sender asked for no event.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.status.is_success() && !self.is_solicited
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
