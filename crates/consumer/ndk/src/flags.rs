//! Flags of work requests, and access rights of memory.

use bitflags::bitflags;
use ndkpi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK, NDK_OP_FLAG_DEFER, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE, NDK_OP_FLAG_READ_FENCE,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS, op_flags,
};

bitflags! {
    /// Flags of a work request (`NDKPI 2.4`, `NDKPI 7.3`). A provider refuses flags that a request does not have.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// No completion if the request succeeds. A failure always has one.
        const SILENT = NDK_OP_FLAG_SILENT_SUCCESS;
        /// Starts after earlier reads have finished.
        const FENCE = NDK_OP_FLAG_READ_FENCE;
        /// The completion of the receive satisfies an arm for solicited completions.
        const SOLICIT = NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT;
        /// More requests follow; the last of them does not have this flag. NDKPI 1.2 or later.
        const DEFER = NDK_OP_FLAG_DEFER;
        /// A successful read invalidates the token of its first element. NDKPI 1.2 or later.
        const LOCAL_INVALIDATE = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
    }
}

bitflags! {
    /// Access rights (`NDKPI 2.5`). Local reads are always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Receives and reads may write to it.
        const LOCAL_WRITE = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        /// Peers may read it.
        const REMOTE_READ = NDK_MR_FLAG_ALLOW_REMOTE_READ;
        /// Peers may write to it, and so may receives and reads.
        const REMOTE_WRITE = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        /// Reads may write to it; not needed with `NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED`.
        const READ_SINK = NDK_MR_FLAG_RDMA_READ_SINK;
    }
}

impl Access {
    /// The same rights as flags of a work request, which have other values (`NDKPI 2.5`).
    pub(crate) const fn op_flags(self) -> u32 {
        op_flags::from_mr_flags(self.bits())
    }
}
