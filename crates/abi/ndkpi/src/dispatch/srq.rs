//! Functions of a shared receive queue (NDKPI 5.6).

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{NDK_FN_REQUEST_COMPLETION, NDK_SGE, NDK_SRQ, NtStatus};

/// The table of a shared receive queue (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_SRQ_DISPATCH {
    /// Closes the queue.
    pub NdkCloseSrq: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Changes the depth, the threshold or both.
    pub NdkModifySrq: Option<NDK_FN_MODIFY_SRQ>,
    /// Posts a receive.
    pub NdkSrqReceive: Option<NDK_FN_SRQ_RECEIVE>,
}

slots!(NDK_SRQ_DISPATCH: NdkCloseSrq, NdkQueryExtension, NdkModifySrq, NdkSrqReceive);

/// `NdkModifySrq`: a request that changes the depth and the threshold, both in receives.
///
/// 0 leaves the one or the other as it is; any other threshold also arms the notification. IRQL <= `DISPATCH_LEVEL`
/// (NDKPI 5.6, NDKPI 7.12).
pub type NDK_FN_MODIFY_SRQ = unsafe extern "system" fn(
    pNdkSrq: *mut NDK_SRQ,
    SrqDepth: u32,
    NotifyThreshold: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkSrqReceive`: a post for whichever queue pair of the shared queue receives next.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.6).
pub type NDK_FN_SRQ_RECEIVE = unsafe extern "system" fn(
    pNdkSrq: *mut NDK_SRQ,
    RequestContext: *mut c_void,
    pSgl: *const NDK_SGE,
    nSge: u32,
) -> NtStatus;
