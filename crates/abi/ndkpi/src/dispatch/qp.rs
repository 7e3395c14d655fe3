//! Functions of a queue pair (NDKPI 5.7).
//!
//! The consumer never runs two posts on the same queue of a queue pair at the same time (NDKPI 7.3). Entries and page
//! arrays need be valid only during the call.

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_QP, NDK_SGE, NDK_VERSION, NtStatus};

/// The table of a queue pair (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_QP_DISPATCH {
    /// Closes the queue pair.
    pub NdkCloseQp: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Cancels everything that is posted.
    pub NdkFlush: Option<NDK_FN_FLUSH>,
    /// Posts a send.
    pub NdkSend: Option<NDK_FN_SEND>,
    /// Posts a receive.
    pub NdkReceive: Option<NDK_FN_RECEIVE>,
    /// Posts the bind of a memory window.
    pub NdkBind: Option<NDK_FN_BIND>,
    /// Posts a fast registration.
    pub NdkFastRegister: Option<NDK_FN_FAST_REGISTER>,
    /// Posts the invalidation of a memory region or window.
    pub NdkInvalidate: Option<NDK_FN_INVALIDATE>,
    /// Posts a read of remote memory.
    pub NdkRead: Option<NDK_FN_READ>,
    /// Posts a write to remote memory.
    pub NdkWrite: Option<NDK_FN_WRITE>,
    /// Posts a send that invalidates a token of the peer; from NDKPI 1.2, see [`NDK_QP::send_and_invalidate`].
    pub NdkSendAndInvalidate: Option<NDK_FN_SEND_AND_INVALIDATE>,
}

slots!(
    NDK_QP_DISPATCH: NdkCloseQp,
    NdkQueryExtension,
    NdkFlush,
    NdkSend,
    NdkReceive,
    NdkBind,
    NdkFastRegister,
    NdkInvalidate,
    NdkRead,
    NdkWrite,
    NdkSendAndInvalidate,
);

impl NDK_QP_DISPATCH {
    /// The bytes that a table of this version has.
    #[must_use]
    pub fn size_in(version: NDK_VERSION) -> usize {
        if version < NDK_VERSION::V1_2 { core::mem::offset_of!(Self, NdkSendAndInvalidate) } else { size_of::<Self>() }
    }
}

slot_since! {
    V1_2,
    /// `NdkSendAndInvalidate`, if the version of the queue pair has it.
    NDK_QP::send_and_invalidate reads NdkSendAndInvalidate: NDK_FN_SEND_AND_INVALIDATE
}

/// `NdkFlush`: begins to cancel everything in both queues.
///
/// The requests complete with [`NtStatus::CANCELLED`]. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7, NDKPI 7.2).
pub type NDK_FN_FLUSH = unsafe extern "system" fn(pNdkQp: *mut NDK_QP);

/// `NdkSend`: a post on the initiator queue, with flags of [`op_flags::SEND`](crate::op_flags::SEND).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7).
pub type NDK_FN_SEND = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    Flags: u32,
) -> NtStatus;

/// `NdkReceive`: a post on the receive queue, allowed before the connection is made.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7).
pub type NDK_FN_RECEIVE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
) -> NtStatus;

/// `NdkBind`: a post on the initiator queue that makes `pMw` a window to `Length` bytes at `VirtualAddress` of `pMr`,
/// with flags of [`op_flags::BIND`](crate::op_flags::BIND).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7, NDKPI 7.6).
pub type NDK_FN_BIND = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pMr: *mut NDK_MR,
    pMw: *mut NDK_MW,
    VirtualAddress: *mut c_void,
    Length: usize,
    Flags: u32,
) -> NtStatus;

/// `NdkFastRegister`: a post on the initiator queue that registers pages of the adapter's address space.
///
/// The region is `Length` bytes from byte `FBO` of the first page on, and is addressed from `BaseVirtualAddress` on. The
/// flags are of [`op_flags::FAST_REGISTER`](crate::op_flags::FAST_REGISTER). IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7, NDKPI 7.4).
pub type NDK_FN_FAST_REGISTER = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pMr: *mut NDK_MR,
    AdapterPageCount: u32,
    AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
    FBO: u32,
    Length: usize,
    BaseVirtualAddress: *mut c_void,
    Flags: u32,
) -> NtStatus;

/// `NdkInvalidate`: a post on the initiator queue that invalidates a fast-registered region or a window, given as its
/// header, with flags of [`op_flags::INVALIDATE`](crate::op_flags::INVALIDATE).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7, NDKPI 7.6).
pub type NDK_FN_INVALIDATE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pNdkMrOrMw: *mut NDK_OBJECT_HEADER,
    Flags: u32,
) -> NtStatus;

/// `NdkRead`: a post on the initiator queue that reads remote memory into the entries, with flags of
/// [`op_flags::READ`](crate::op_flags::READ).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7).
pub type NDK_FN_READ = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: u32,
) -> NtStatus;

/// `NdkWrite`: a post on the initiator queue that writes the entries to remote memory, with flags of
/// [`op_flags::WRITE`](crate::op_flags::WRITE).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7).
pub type NDK_FN_WRITE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    RemoteAddress: u64,
    RemoteToken: u32,
    Flags: u32,
) -> NtStatus;

/// `NdkSendAndInvalidate`: a send that also invalidates a token of the peer, before the peer sees its receive; from
/// NDKPI 1.2.
///
/// Unlike in a read or write the flags come before the token. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.7, NDKPI 7.6).
pub type NDK_FN_SEND_AND_INVALIDATE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
    Flags: u32,
    RemoteToken: u32,
) -> NtStatus;
