//! What a short record keeps of a result.

use ndkpi::{NDK_RESULT, NDK_RESULT_EX, NtStatus};

/// A completion that a poll has taken: `NDK_RESULT` or `NDK_RESULT_EX`.
pub trait Polled {
    /// The context of its queue pair.
    fn qp(&self) -> usize;
    /// Returns true if there is nothing that [`Polled::words`] leaves out.
    fn is_plain(&self) -> bool;
    /// The context of the request; bytes, and the type if the result has one.
    fn words(&self) -> [u64; 2];
}

impl Polled for NDK_RESULT {
    #[inline]
    fn qp(&self) -> usize {
        self.QPContext.addr()
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.Status == NtStatus::SUCCESS
    }

    #[inline]
    fn words(&self) -> [u64; 2] {
        [self.RequestContext.addr() as u64, self.BytesTransferred.into()]
    }
}

impl Polled for NDK_RESULT_EX {
    #[inline]
    fn qp(&self) -> usize {
        self.QPContext.addr()
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.Status == NtStatus::SUCCESS && self.ProviderErrorCode == 0 && self.TypeSpecificCompletionOutput == 0
    }

    #[inline]
    fn words(&self) -> [u64; 2] {
        let kind = self.Type.0.cast_unsigned();
        [self.RequestContext.addr() as u64, u64::from(self.BytesTransferred) | u64::from(kind) << 32]
    }
}
