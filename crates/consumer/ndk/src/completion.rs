//! Completions.

use core::fmt;

use ndkpi::{NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX, NtStatus};

use crate::sge::RemoteToken;

/// The kind of a completed request (`NDKPI 2.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's work requests")]
pub enum Operation {
    Receive,
    Send,
    FastRegister,
    Bind,
    Invalidate,
    Read,
    Write,
}

/// A completion: a request has finished (`NDKPI 3.5`, `NDKPI 3.6`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Completion(NDK_RESULT_EX);

// SAFETY: the contexts in it are numbers to this crate; nothing is read or written through them.
unsafe impl Send for Completion {}
// SAFETY: as for `Send`.
unsafe impl Sync for Completion {}

impl Completion {
    /// An initial value for the array that a poll fills.
    pub const EMPTY: Self = Self(NDK_RESULT_EX::ZEROED);

    /// A completion of NDKPI 1.1, which does not have the kind of the request.
    pub(crate) const fn plain(result: NDK_RESULT) -> Self {
        Self(NDK_RESULT_EX {
            Status: result.Status,
            BytesTransferred: result.BytesTransferred,
            QPContext: result.QPContext,
            RequestContext: result.RequestContext,
            ..NDK_RESULT_EX::ZEROED
        })
    }

    /// The status of the request: `STATUS_CANCELLED` if it was flushed.
    pub const fn status(&self) -> NtStatus {
        self.0.Status
    }

    /// The provider's own code for why the request failed (`ProviderErrorCode`); 0 if it succeeded, or before NDKPI 2.1. For
    /// SoftNDK's it is the number of a reason: `ndkctl explain SR0004` for 4.
    #[must_use]
    pub const fn reason_code(&self) -> u32 {
        self.0.ProviderErrorCode
    }

    /// Why SoftNDK's provider let the request fail. `None` if it succeeded, and for codes that this provider does not have.
    ///
    /// Displayed it is `SR0004`, and it says what was wrong and what to do about it.
    #[cfg(feature = "host")]
    #[must_use]
    pub fn reason(&self) -> Option<&'static provider::Reason> {
        u16::try_from(self.reason_code()).ok().and_then(provider::Reason::from_number)
    }

    /// Before NDKPI 2.1 there is no code, but anything.
    pub(crate) const fn forget_reason(&mut self) {
        self.0.ProviderErrorCode = 0;
    }

    /// The kind of the request. `None` before NDKPI 1.2, and for kinds that this crate does not know.
    #[must_use]
    pub const fn operation(&self) -> Option<Operation> {
        Some(match self.0.Type {
            NDK_OPERATION_TYPE::RECEIVE | NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE => Operation::Receive,
            NDK_OPERATION_TYPE::SEND => Operation::Send,
            NDK_OPERATION_TYPE::FAST_REGISTER => Operation::FastRegister,
            NDK_OPERATION_TYPE::BIND => Operation::Bind,
            NDK_OPERATION_TYPE::INVALIDATE => Operation::Invalidate,
            NDK_OPERATION_TYPE::READ => Operation::Read,
            NDK_OPERATION_TYPE::WRITE => Operation::Write,
            _ => return None,
        })
    }

    /// The context of the request.
    #[must_use]
    pub fn context(&self) -> usize {
        self.0.RequestContext.addr()
    }

    /// The context of the queue pair.
    #[must_use]
    pub fn qp_context(&self) -> usize {
        self.0.QPContext.addr()
    }

    /// The number of bytes received. Undefined unless this is a receive (`NDKPI 3.5`).
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.0.BytesTransferred
    }

    /// The token of this side that the sender invalidated.
    #[must_use]
    pub fn invalidated(&self) -> Option<RemoteToken> {
        self.0.invalidated_token().map(RemoteToken::from_bits)
    }

    /// Returns the context if the request succeeded.
    ///
    /// # Errors
    ///
    /// The status of the request.
    pub fn ok(&self) -> Result<usize, NtStatus> {
        self.status().ok().map(|()| self.context())
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("status", &self.status())
            .field("operation", &self.operation())
            .field("context", &self.context())
            .field("qp_context", &self.qp_context())
            .field("reason_code", &self.reason_code())
            .finish_non_exhaustive()
    }
}
