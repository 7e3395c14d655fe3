//! Functions of a completion queue (NDKPI 5.4).

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{NDK_CQ, NDK_FN_REQUEST_COMPLETION, NDK_RESULT, NDK_RESULT_EX, NDK_VERSION, NtStatus};

/// The table of a completion queue (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_CQ_DISPATCH {
    /// Closes the queue.
    pub NdkCloseCq: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Changes the depth.
    pub NdkResizeCq: Option<NDK_FN_RESIZE_CQ>,
    /// Asks for one notification.
    pub NdkArmCq: Option<NDK_FN_ARM_CQ>,
    /// Removes completions.
    pub NdkGetCqResults: Option<NDK_FN_GET_CQ_RESULTS>,
    /// Sets how long a notification may be put off.
    pub NdkControlCqInterruptModeration: Option<NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION>,
    /// Removes completions and tells their kinds; from NDKPI 1.2, see [`NDK_CQ::get_cq_results_ex`].
    pub NdkGetCqResultsEx: Option<NDK_FN_GET_CQ_RESULTS_EX>,
}

slots!(
    NDK_CQ_DISPATCH: NdkCloseCq,
    NdkQueryExtension,
    NdkResizeCq,
    NdkArmCq,
    NdkGetCqResults,
    NdkControlCqInterruptModeration,
    NdkGetCqResultsEx,
);

impl NDK_CQ_DISPATCH {
    /// The bytes that a table of this version has.
    #[must_use]
    pub fn size_in(version: NDK_VERSION) -> usize {
        if version < NDK_VERSION::V1_2 { core::mem::offset_of!(Self, NdkGetCqResultsEx) } else { size_of::<Self>() }
    }
}

slot_since! {
    V1_2,
    /// `NdkGetCqResultsEx`, if the version of the queue has it.
    NDK_CQ::get_cq_results_ex reads NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX
}

/// `NdkResizeCq`: a request that changes the depth to `CqDepth` entries.
///
/// Only for adapters with [`NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED`](crate::NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED). IRQL
/// <= `DISPATCH_LEVEL` (NDKPI 5.4, NDKPI 7.1.11).
pub type NDK_FN_RESIZE_CQ = unsafe extern "system" fn(
    pNdkCq: *mut NDK_CQ,
    CqDepth: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkArmCq`: asks for one notification of a type in [`notify`](crate::notify).
///
/// Never fails. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.4, NDKPI 7.1.3).
pub type NDK_FN_ARM_CQ = unsafe extern "system" fn(pNdkCq: *mut NDK_CQ, Type: u32);

/// `NdkGetCqResults`: moves at most `nResults` completions to the array and returns how many.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.4, NDKPI 7.1.8).
pub type NDK_FN_GET_CQ_RESULTS =
    unsafe extern "system" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT, nResults: u32) -> u32;

/// `NdkGetCqResultsEx`: moves at most `nResults` completions to the array and returns how many; from NDKPI 1.2.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.4, NDKPI 7.1.9).
pub type NDK_FN_GET_CQ_RESULTS_EX =
    unsafe extern "system" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT_EX, nResults: u32) -> u32;

/// `NdkControlCqInterruptModeration`: a notification may be put off by at most `ModerationInterval` microseconds or
/// until `ModerationCount` completions are there; immediate.
///
/// Only for adapters with
/// [`NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED`](crate::NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED).
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.4, NDKPI 7.1.6).
pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION =
    unsafe extern "system" fn(pNdkCq: *mut NDK_CQ, ModerationInterval: u32, ModerationCount: u32) -> NtStatus;
