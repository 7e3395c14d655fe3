//! Flags of work requests (NDKPI 2.4).
//!
//! The flags of the user-mode interface look alike but have other bits for inline data and for remote write (NDSPI 5).
//!
//! ```
//! use ndkpi::{NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, op_flags};
//!
//! assert!(op_flags::allows_remote_write(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
//! assert!(!op_flags::allows_remote_write(NDK_OP_FLAG_ALLOW_LOCAL_WRITE), "it is only one of the two bits");
//! assert_eq!(op_flags::not_accepted(NDK_OP_FLAG_ALLOW_REMOTE_WRITE, op_flags::BIND), 0);
//! ```

use crate::mr_flags;

/// A success leaves no entry in the completion queue; a failure does (NDKPI 7.3).
pub const NDK_OP_FLAG_SILENT_SUCCESS: u32 = 0x0000_0001;
/// The request does not begin before all earlier reads on the queue pair are complete (NDKPI 7.3).
pub const NDK_OP_FLAG_READ_FENCE: u32 = 0x0000_0002;
/// The receive that takes this send satisfies an arm for solicited completions (NDKPI 7.1.5).
pub const NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT: u32 = 0x0000_0004;
/// The peer may read.
pub const NDK_OP_FLAG_ALLOW_REMOTE_READ: u32 = 0x0000_0008;
/// Incoming data may be written.
pub const NDK_OP_FLAG_ALLOW_LOCAL_WRITE: u32 = 0x0000_0010;
/// The peer may write. Two bits, one of which is [`NDK_OP_FLAG_ALLOW_LOCAL_WRITE`]: test it with
/// [`allows_remote_write`].
pub const NDK_OP_FLAG_ALLOW_REMOTE_WRITE: u32 = 0x0000_0030;
/// The data is taken before the call returns, from memory that need not be registered (NDKPI 7.3).
pub const NDK_OP_FLAG_INLINE: u32 = 0x0000_0040;
/// The region may be the target of a read.
pub const NDK_OP_FLAG_RDMA_READ_SINK: u32 = 0x0000_0080;
/// The read also invalidates the token of its first entry, if the adapter can; from NDKPI 1.2 (NDKPI 7.3).
pub const NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE: u32 = 0x0000_0100;
/// More requests follow, so the adapter need not begin yet; from NDKPI 1.2 (NDKPI 7.3).
pub const NDK_OP_FLAG_DEFER: u32 = 0x0000_0200;

/// The flags that every request on the initiator queue accepts.
pub const INITIATOR: u32 = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER;
/// The flags that a send and a send-and-invalidate accept.
pub const SEND: u32 = INITIATOR | NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT | NDK_OP_FLAG_INLINE;
/// The flags that a write accepts.
pub const WRITE: u32 = INITIATOR | NDK_OP_FLAG_INLINE;
/// The flags that a read accepts.
pub const READ: u32 = INITIATOR | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
/// The flags that a bind accepts. Of its two bits for remote write, local write is not accepted alone: see
/// [`not_accepted`].
pub const BIND: u32 = INITIATOR | NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
/// The flags that a fast registration accepts.
pub const FAST_REGISTER: u32 = INITIATOR | RIGHTS;
/// The flags that an invalidation accepts.
pub const INVALIDATE: u32 = INITIATOR;

/// The flags that stand for rights on memory.
pub const RIGHTS: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ
    | NDK_OP_FLAG_ALLOW_LOCAL_WRITE
    | NDK_OP_FLAG_ALLOW_REMOTE_WRITE
    | NDK_OP_FLAG_RDMA_READ_SINK;

/// The bit of remote write that is not local write.
const REMOTE_WRITE_BIT: u32 = NDK_OP_FLAG_ALLOW_REMOTE_WRITE & !NDK_OP_FLAG_ALLOW_LOCAL_WRITE;

/// Returns true if every bit of `wanted` is set in `flags`.
const fn contains(flags: u32, wanted: u32) -> bool {
    flags & wanted == wanted
}

/// The bits of `flags` that a request does not accept, where `accepted` is one of the sets above; 0 if all is well.
///
/// Half of remote write is not accepted: its own bit never without local write, and local write only without it where
/// the right exists by itself, which is in [`FAST_REGISTER`].
#[must_use]
pub const fn not_accepted(flags: u32, accepted: u32) -> u32 {
    let mut refused = flags & !accepted;
    let half = flags & accepted & NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    let local_write_alone = half == NDK_OP_FLAG_ALLOW_LOCAL_WRITE && accepted != FAST_REGISTER;
    if half == REMOTE_WRITE_BIT || local_write_alone {
        refused |= half;
    }
    refused
}

/// Returns true if a success leaves no completion.
#[must_use]
pub const fn is_silent_success(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_SILENT_SUCCESS)
}

/// Returns true if the request waits for earlier reads.
#[must_use]
pub const fn is_read_fence(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_READ_FENCE)
}

/// Returns true if the send solicits an event at the receiver.
#[must_use]
pub const fn solicits_event(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT)
}

/// Returns true if the data is taken before the call returns.
#[must_use]
pub const fn is_inline(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_INLINE)
}

/// Returns true if the read invalidates the token of its first entry.
#[must_use]
pub const fn invalidates_read_sink(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE)
}

/// Returns true if more requests follow.
#[must_use]
pub const fn is_deferred(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_DEFER)
}

/// Returns true if incoming data may be written.
#[must_use]
pub const fn allows_local_write(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_ALLOW_LOCAL_WRITE)
}

/// Returns true if the peer may read.
#[must_use]
pub const fn allows_remote_read(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_ALLOW_REMOTE_READ)
}

/// Returns true if the peer may write: both bits are set. Local write alone is not enough.
#[must_use]
pub const fn allows_remote_write(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_ALLOW_REMOTE_WRITE)
}

/// Returns true if the region may be the target of a read.
#[must_use]
pub const fn is_read_sink(flags: u32) -> bool {
    contains(flags, NDK_OP_FLAG_RDMA_READ_SINK)
}

/// The rights that the flags of a region stand for, as flags of a work request.
#[must_use]
pub const fn from_mr_flags(flags: u32) -> u32 {
    let mut rights = 0;
    if mr_flags::allows_local_write(flags) {
        rights |= NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
    }
    if mr_flags::allows_remote_read(flags) {
        rights |= NDK_OP_FLAG_ALLOW_REMOTE_READ;
    }
    if mr_flags::allows_remote_write(flags) {
        rights |= NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    }
    if mr_flags::is_read_sink(flags) {
        rights |= NDK_OP_FLAG_RDMA_READ_SINK;
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_needs_both_of_its_bits() {
        assert!(allows_remote_write(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
        assert!(!allows_remote_write(NDK_OP_FLAG_ALLOW_LOCAL_WRITE));
        assert!(!allows_remote_write(REMOTE_WRITE_BIT));
        assert!(allows_local_write(NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
    }

    #[test]
    fn no_two_flags_share_a_bit_except_remote_and_local_write() {
        let flags = [
            NDK_OP_FLAG_SILENT_SUCCESS,
            NDK_OP_FLAG_READ_FENCE,
            NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT,
            NDK_OP_FLAG_ALLOW_REMOTE_READ,
            NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
            NDK_OP_FLAG_INLINE,
            NDK_OP_FLAG_RDMA_READ_SINK,
            NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
            NDK_OP_FLAG_DEFER,
        ];
        let sum: u32 = flags.iter().sum();
        assert_eq!(sum, 0x3FF);
        assert_eq!(sum, flags.iter().fold(0, |all, flag| all | flag));
    }

    #[test]
    fn each_question_sees_its_own_flag_and_no_other() {
        for (asks, flag) in [
            (is_silent_success as fn(u32) -> bool, NDK_OP_FLAG_SILENT_SUCCESS),
            (is_read_fence, NDK_OP_FLAG_READ_FENCE),
            (solicits_event, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT),
            (is_inline, NDK_OP_FLAG_INLINE),
            (invalidates_read_sink, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE),
            (is_deferred, NDK_OP_FLAG_DEFER),
            (allows_local_write, NDK_OP_FLAG_ALLOW_LOCAL_WRITE),
            (allows_remote_read, NDK_OP_FLAG_ALLOW_REMOTE_READ),
            (allows_remote_write, NDK_OP_FLAG_ALLOW_REMOTE_WRITE),
            (is_read_sink, NDK_OP_FLAG_RDMA_READ_SINK),
        ] {
            assert!(asks(flag));
            assert!(asks(u32::MAX));
            assert!(!asks(0));
            assert!(!asks(!flag));
        }
    }

    #[test]
    fn a_request_refuses_the_flags_of_others() {
        for accepted in [SEND, WRITE, READ, BIND, FAST_REGISTER, INVALIDATE] {
            assert_eq!(not_accepted(INITIATOR, accepted), 0);
            assert_eq!(not_accepted(0x400, accepted), 0x400);
        }
        assert_eq!(not_accepted(SEND, SEND), 0);
        assert_eq!(not_accepted(SEND, WRITE), NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
        assert_eq!(not_accepted(READ, INVALIDATE), NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE);
        assert_eq!(not_accepted(BIND, BIND), 0);
        assert_eq!(not_accepted(FAST_REGISTER, BIND), NDK_OP_FLAG_RDMA_READ_SINK);
    }

    #[test]
    fn half_of_remote_write_is_refused_where_it_means_nothing() {
        for accepted in [BIND, FAST_REGISTER] {
            assert_eq!(not_accepted(REMOTE_WRITE_BIT, accepted), REMOTE_WRITE_BIT);
            assert_eq!(not_accepted(NDK_OP_FLAG_ALLOW_REMOTE_WRITE, accepted), 0);
        }
        assert_eq!(not_accepted(NDK_OP_FLAG_ALLOW_LOCAL_WRITE, BIND), NDK_OP_FLAG_ALLOW_LOCAL_WRITE);
        assert_eq!(not_accepted(NDK_OP_FLAG_ALLOW_LOCAL_WRITE, FAST_REGISTER), 0);
    }

    #[test]
    fn rights_of_a_region_become_the_rights_of_a_request() {
        assert_eq!(from_mr_flags(mr_flags::ALL), RIGHTS);
        assert_eq!(from_mr_flags(0), 0);
        assert_eq!(from_mr_flags(mr_flags::NDK_MR_FLAG_ALLOW_LOCAL_WRITE), NDK_OP_FLAG_ALLOW_LOCAL_WRITE);
        assert_eq!(from_mr_flags(mr_flags::NDK_MR_FLAG_ALLOW_REMOTE_WRITE), NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    }
}
