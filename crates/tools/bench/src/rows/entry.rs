//! What goes through the queues: an `NDK_RESULT_EX`, the 40 bytes that a consumer of NDKPI gets (`NDKPI 3.6`).
//!
//! The peers hold them as they are. A completion queue of ours is given a [`Cqe`], which has 32 bytes, and the result is
//! made when it is polled, as `NdkGetCqResultsEx` does it.

use engine::cq::{Cqe, CqeOutcome, Operation, Received};
use ndkpi::{NDK_RESULT_EX, NtStatus};
use provider::extended_result;

const _: () = assert!(size_of::<NDK_RESULT_EX>() == 40 && size_of::<Cqe>() == 32);

/// What the peers hold.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Entry(pub NDK_RESULT_EX);

// SAFETY: its two pointers are numbers here: nobody follows them.
unsafe impl Send for Entry {}

/// A completion of a send.
#[must_use]
pub const fn completion(number: usize) -> Cqe {
    Cqe {
        qp_context: 1,
        outcome: CqeOutcome::new(Operation::Send, NtStatus::SUCCESS),
        request_context: number,
        received: Received::new(0, 0),
    }
}

/// The same as an [`Entry`].
#[must_use]
pub const fn entry(number: usize) -> Entry {
    Entry(extended_result(&completion(number)))
}

/// What a consumer does with a result: it looks at what every one has.
#[derive(Default)]
pub struct Reader {
    sum: usize,
}

impl Reader {
    /// Looks at a result.
    #[inline]
    pub fn read(&mut self, result: &NDK_RESULT_EX) {
        let rest = result.QPContext.addr() ^ result.BytesTransferred as usize ^ result.ProviderErrorCode as usize;
        let failed = usize::from(!result.Status.is_success());
        self.sum = self.sum.wrapping_add(result.RequestContext.addr() ^ rest ^ failed);
    }

    /// Checks that `count` results were read, each once.
    ///
    /// # Panics
    ///
    /// If that is not so.
    pub fn check(&self, count: usize) {
        // Numbers with the lowest bit flipped: in pairs, so the sum is that of the numbers.
        debug_assert!(count.is_multiple_of(2));
        assert_eq!(self.sum, count * (count - 1) / 2, "entries were lost");
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use ndkpi::{NDK_OPERATION_TYPE, NDK_RESULT_EX};

    use super::entry;

    #[test]
    fn the_peers_hold_what_is_polled_from_ours() {
        let result = NDK_RESULT_EX {
            QPContext: ptr::without_provenance_mut(1),
            RequestContext: ptr::without_provenance_mut(7),
            Type: NDK_OPERATION_TYPE::SEND,
            ..NDK_RESULT_EX::ZEROED
        };
        assert_eq!(result, entry(7).0);
    }
}
