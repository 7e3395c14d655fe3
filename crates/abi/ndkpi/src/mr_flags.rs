//! The rights of a memory region: the `Flags` of `NdkRegisterMr` (NDKPI 2.5).
//!
//! The same rights have other bits in the flags of a work request; [`from_op_flags`] and [`op_flags::from_mr_flags`]
//! convert them.

use crate::op_flags;

/// The owner may read: always granted, so no bit stands for it.
pub const NDK_MR_FLAG_ALLOW_LOCAL_READ: u32 = 0x0000_0000;
/// Incoming data may be written.
pub const NDK_MR_FLAG_ALLOW_LOCAL_WRITE: u32 = 0x0000_0001;
/// The peer may read.
pub const NDK_MR_FLAG_ALLOW_REMOTE_READ: u32 = 0x0000_0002;
/// The peer may write. Two bits, one of which is [`NDK_MR_FLAG_ALLOW_LOCAL_WRITE`]: test it with
/// [`allows_remote_write`].
pub const NDK_MR_FLAG_ALLOW_REMOTE_WRITE: u32 = 0x0000_0005;
/// The region may be the target of a read.
pub const NDK_MR_FLAG_RDMA_READ_SINK: u32 = 0x0000_0008;

/// Every flag that has a name.
pub const ALL: u32 = NDK_MR_FLAG_ALLOW_LOCAL_READ
    | NDK_MR_FLAG_ALLOW_LOCAL_WRITE
    | NDK_MR_FLAG_ALLOW_REMOTE_READ
    | NDK_MR_FLAG_ALLOW_REMOTE_WRITE
    | NDK_MR_FLAG_RDMA_READ_SINK;

/// Returns true if every bit of `wanted` is set in `flags`.
const fn contains(flags: u32, wanted: u32) -> bool {
    flags & wanted == wanted
}

/// Returns true if incoming data may be written.
#[must_use]
pub const fn allows_local_write(flags: u32) -> bool {
    contains(flags, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)
}

/// Returns true if the peer may read.
#[must_use]
pub const fn allows_remote_read(flags: u32) -> bool {
    contains(flags, NDK_MR_FLAG_ALLOW_REMOTE_READ)
}

/// Returns true if the peer may write: both bits are set. Local write alone is not enough.
#[must_use]
pub const fn allows_remote_write(flags: u32) -> bool {
    contains(flags, NDK_MR_FLAG_ALLOW_REMOTE_WRITE)
}

/// Returns true if the region may be the target of a read.
#[must_use]
pub const fn is_read_sink(flags: u32) -> bool {
    contains(flags, NDK_MR_FLAG_RDMA_READ_SINK)
}

/// The rights that the flags of a work request stand for, as flags of a region. The other flags are dropped.
#[must_use]
pub const fn from_op_flags(flags: u32) -> u32 {
    let mut rights = NDK_MR_FLAG_ALLOW_LOCAL_READ;
    if op_flags::allows_local_write(flags) {
        rights |= NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
    }
    if op_flags::allows_remote_read(flags) {
        rights |= NDK_MR_FLAG_ALLOW_REMOTE_READ;
    }
    if op_flags::allows_remote_write(flags) {
        rights |= NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    }
    if op_flags::is_read_sink(flags) {
        rights |= NDK_MR_FLAG_RDMA_READ_SINK;
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_write_alone_does_not_let_the_peer_write() {
        assert!(!allows_remote_write(NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
        assert!(!allows_remote_write(NDK_MR_FLAG_ALLOW_REMOTE_WRITE & !NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
        assert!(allows_remote_write(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
        assert!(allows_local_write(NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
    }

    #[test]
    fn every_set_of_rights_survives_the_way_to_a_work_request_and_back() {
        for rights in (0..16).filter(|rights| rights & 0x4 == 0 || allows_remote_write(*rights)) {
            let converted = op_flags::from_mr_flags(rights);
            assert_eq!(from_op_flags(converted), rights);
            assert_eq!(op_flags::allows_local_write(converted), allows_local_write(rights));
            assert_eq!(op_flags::allows_remote_read(converted), allows_remote_read(rights));
            assert_eq!(op_flags::allows_remote_write(converted), allows_remote_write(rights));
            assert_eq!(op_flags::is_read_sink(converted), is_read_sink(rights));
        }
    }

    #[test]
    fn flags_that_are_not_rights_are_dropped() {
        assert_eq!(from_op_flags(!op_flags::RIGHTS), NDK_MR_FLAG_ALLOW_LOCAL_READ);
        assert_eq!(from_op_flags(u32::MAX), ALL);
    }
}
