//! What a completion queue holds.

use ndkpi::NtStatus;

use super::notify::Class;
use crate::fault::{self, Fault};

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

/// The outcome of one request.
///
/// 32 bytes, two to a cache line, where an `NDK_RESULT_EX` has 40: the `ProviderErrorCode` of that is zero, because nothing is known
/// of a failed request that its status does not say (`NDKPI 3.6`).
///
/// No two words that an `NDK_RESULT` has side by side lie side by side here in that order: a consumer that polls at once would
/// load both at a time, and wait until the two stores of the producer have reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Completion {
    /// What the consumer gave when it created the queue pair.
    pub qp_context: usize,
    /// The token that the sender invalidated, for [`Operation::ReceiveAndInvalidate`]. Zero for other requests.
    pub invalidated_token: u32,
    /// The kind of request.
    pub operation: Operation,
    /// The sender asked for an event.
    pub solicited: bool,
    /// What the consumer gave when it posted the request.
    pub request_context: usize,
    /// Success, or why the request failed.
    pub status: NtStatus,
    /// Bytes received. Zero for other requests.
    pub bytes: u32,
}

const _: () = assert!(size_of::<Completion>() == 32);

impl Completion {
    /// Whether an arm sees [`Class::Plain`] in all of `completions`, which is so for nearly all.
    #[inline]
    #[must_use]
    pub fn are_plain(completions: &[Self]) -> bool {
        let is_plain = |completion: &Self| completion.class() == Class::Plain;
        if fault::is_any() {
            return completions.iter().all(is_plain);
        }
        // The same with no branch for each (measured: a tenth of the time that 32 take).
        let or = |(status, solicited), one: &Self| (status | one.status.0, solicited | one.solicited);
        let (status, solicited) = completions.iter().fold((0, false), or);
        let are_plain = NtStatus(status).is_success() && !solicited;
        debug_assert_eq!(are_plain, completions.iter().all(is_plain));
        are_plain
    }

    /// What an arm sees in this completion.
    #[inline]
    #[must_use]
    pub fn class(&self) -> Class {
        if (fault::is(Fault::FailedRequestDoesNotSolicit) && !self.status.is_success())
            || (fault::is(Fault::SolicitedEntryIsPlain) && self.solicited)
        {
            return Class::Plain;
        }
        if fault::is(Fault::PlainEntrySolicits) && self.status.is_success() {
            return Class::Solicited;
        }
        if !self.status.is_success() {
            Class::Failed
        } else if self.solicited {
            Class::Solicited
        } else {
            Class::Plain
        }
    }
}
