//! Functions of a protection domain (NDKPI 5.3).

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{
    BOOLEAN, GROUP_AFFINITY, NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW,
    NDK_PD, NDK_QP, NDK_SRQ, NtStatus,
};

/// The table of a protection domain (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_PD_DISPATCH {
    /// Closes the protection domain.
    pub NdkClosePd: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Creates a memory region.
    pub NdkCreateMr: Option<NDK_FN_CREATE_MR>,
    /// Creates a memory window.
    pub NdkCreateMw: Option<NDK_FN_CREATE_MW>,
    /// Creates a shared receive queue.
    pub NdkCreateSrq: Option<NDK_FN_CREATE_SRQ>,
    /// Creates a queue pair.
    pub NdkCreateQp: Option<NDK_FN_CREATE_QP>,
    /// Creates a queue pair that takes its receives from a shared receive queue.
    pub NdkCreateQpWithSrq: Option<NDK_FN_CREATE_QP_WITH_SRQ>,
    /// Tells the token with which logical addresses are used.
    pub NdkGetPrivilegedMemoryRegionToken: Option<NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN>,
}

slots!(
    NDK_PD_DISPATCH: NdkClosePd,
    NdkQueryExtension,
    NdkCreateMr,
    NdkCreateMw,
    NdkCreateSrq,
    NdkCreateQp,
    NdkCreateQpWithSrq,
    NdkGetPrivilegedMemoryRegionToken,
);

/// `NdkCreateMr`: creates a memory region.
///
/// `FastRegister` decides for good whether it is for fast registrations or for plain ones. IRQL <= `DISPATCH_LEVEL`
/// (NDKPI 5.3, NDKPI 7.4).
pub type NDK_FN_CREATE_MR = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    FastRegister: BOOLEAN,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkMr: *mut *mut NDK_MR,
) -> NtStatus;

/// `NdkCreateMw`: creates a memory window.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.3).
pub type NDK_FN_CREATE_MW = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkMw: *mut *mut NDK_MW,
) -> NtStatus;

/// `NdkCreateSrq`: creates a shared receive queue of `SrqDepth` receives, with an optional notification when fewer than
/// `NotifyThreshold` are left.
///
/// The affinity, which may be null, says where it had best run. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.3, NDKPI 7.12).
pub type NDK_FN_CREATE_SRQ = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    SrqDepth: u32,
    MaxReceiveRequestSge: u32,
    NotifyThreshold: u32,
    SrqNotification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    SrqNotificationContext: *mut c_void,
    Affinity: *const GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkSrq: *mut *mut NDK_SRQ,
) -> NtStatus;

/// `NdkCreateQp`: creates a queue pair on two completion queues, which may be the same one.
///
/// Depths are in requests, limits in entries per request, `InlineDataSize` in bytes. IRQL <= `DISPATCH_LEVEL` (NDKPI
/// 5.3, NDKPI 7.2).
pub type NDK_FN_CREATE_QP = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    QPContext: *mut c_void,
    ReceiveQueueDepth: u32,
    InitiatorQueueDepth: u32,
    MaxReceiveRequestSge: u32,
    MaxInitiatorRequestSge: u32,
    InlineDataSize: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkQp: *mut *mut NDK_QP,
) -> NtStatus;

/// `NdkCreateQpWithSrq`: creates a queue pair that takes its receives from a shared receive queue.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.3, NDKPI 7.12).
pub type NDK_FN_CREATE_QP_WITH_SRQ = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    pSrq: *mut NDK_SRQ,
    QPContext: *mut c_void,
    InitiatorQueueDepth: u32,
    MaxInitiatorRequestSge: u32,
    InlineDataSize: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkQp: *mut *mut NDK_QP,
) -> NtStatus;

/// `NdkGetPrivilegedMemoryRegionToken`: stores the token with which logical addresses are used in entries; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.3, NDKPI 7.5).
pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN = unsafe extern "system" fn(pNdkPd: *mut NDK_PD, pToken: *mut u32);
