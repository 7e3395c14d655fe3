//! Functions of a memory region (NDKPI 5.5).

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{BOOLEAN, MDL, NDK_FN_REQUEST_COMPLETION, NDK_MR, NtStatus};

/// The table of a memory region (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_MR_DISPATCH {
    /// Closes the region.
    pub NdkCloseMr: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Registers a buffer.
    pub NdkRegisterMr: Option<NDK_FN_REGISTER_MR>,
    /// Undoes the registration.
    pub NdkDeregisterMr: Option<NDK_FN_DEREGISTER_MR>,
    /// Prepares the region for fast registrations.
    pub NdkInitializeFastRegisterMr: Option<NDK_FN_INITIALIZE_FAST_REGISTER_MR>,
    /// Tells the token for the peer.
    pub NdkGetRemoteTokenFromMr: Option<NDK_FN_GET_REMOTE_TOKEN_FROM_MR>,
    /// Tells the token for own requests.
    pub NdkGetLocalTokenFromMr: Option<NDK_FN_GET_LOCAL_TOKEN_FROM_MR>,
}

slots!(
    NDK_MR_DISPATCH: NdkCloseMr,
    NdkQueryExtension,
    NdkRegisterMr,
    NdkDeregisterMr,
    NdkInitializeFastRegisterMr,
    NdkGetRemoteTokenFromMr,
    NdkGetLocalTokenFromMr,
);

/// `NdkRegisterMr`: a request that registers `Length` bytes of a pinned, virtually contiguous buffer with the rights of
/// [`mr_flags`](crate::mr_flags).
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.4).
pub type NDK_FN_REGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    Mdl: *mut MDL,
    Length: usize,
    Flags: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkDeregisterMr`: a request that undoes the registration.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.4).
pub type NDK_FN_DEREGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkInitializeFastRegisterMr`: a request that prepares the region for fast registrations of at most
/// `AdapterPageCount` pages, for the peer as well if `RemoteAccess` is true.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.4).
pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    AdapterPageCount: u32,
    RemoteAccess: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkGetRemoteTokenFromMr`: the token with which the peer names this region; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.4).
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = unsafe extern "system" fn(pNdkMr: *mut NDK_MR) -> u32;

/// `NdkGetLocalTokenFromMr`: the token with which entries name this region; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.4).
pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = unsafe extern "system" fn(pNdkMr: *mut NDK_MR) -> u32;
