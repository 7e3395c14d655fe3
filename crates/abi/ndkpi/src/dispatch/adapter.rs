//! Functions of an adapter (NDKPI 5.2).

use core::ffi::c_void;

use super::NDK_FN_QUERY_EXTENSION_INTERFACE;
use crate::{
    GROUP_AFFINITY, MDL, NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ, NDK_FN_CONNECT_EVENT_CALLBACK,
    NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER,
    NDK_LOGICAL_ADDRESS_MAPPING, NDK_PD, NDK_SHARED_ENDPOINT, NDK_VERSION, NtStatus, SOCKADDR,
};

/// The table of an adapter (NDKPI 4). The only one without a close: an adapter is closed through
/// [`CLOSE_NDK_ADAPTER_HANDLER`](crate::ndis::CLOSE_NDK_ADAPTER_HANDLER).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_ADAPTER_DISPATCH {
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Tells the limits and abilities of the adapter.
    pub NdkQueryAdapterInfo: Option<NDK_FN_QUERY_ADAPTER_INFO>,
    /// Creates a completion queue.
    pub NdkCreateCq: Option<NDK_FN_CREATE_CQ>,
    /// Creates a protection domain.
    pub NdkCreatePd: Option<NDK_FN_CREATE_PD>,
    /// Creates a shared endpoint.
    pub NdkCreateSharedEndpoint: Option<NDK_FN_CREATE_SHARED_ENDPOINT>,
    /// Creates a connector.
    pub NdkCreateConnector: Option<NDK_FN_CREATE_CONNECTOR>,
    /// Creates a listener.
    pub NdkCreateListener: Option<NDK_FN_CREATE_LISTENER>,
    /// Maps a buffer to logical addresses.
    pub NdkBuildLAM: Option<NDK_FN_BUILD_LAM>,
    /// Undoes a mapping.
    pub NdkReleaseLAM: Option<NDK_FN_RELEASE_LAM>,
}

slots!(
    NDK_ADAPTER_DISPATCH: NdkQueryExtension,
    NdkQueryAdapterInfo,
    NdkCreateCq,
    NdkCreatePd,
    NdkCreateSharedEndpoint,
    NdkCreateConnector,
    NdkCreateListener,
    NdkBuildLAM,
    NdkReleaseLAM,
);

/// `NdkQueryAdapterInfo`: immediate, may block.
///
/// `*pBufferSize` is the size of the buffer in bytes on entry and the bytes written, or those needed with
/// [`NtStatus::BUFFER_TOO_SMALL`], on return. IRQL: `PASSIVE_LEVEL` (NDKPI 5.2).
pub type NDK_FN_QUERY_ADAPTER_INFO = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut u32,
) -> NtStatus;

/// Declared in the header, but in no table: [`NDK_FN_QUERY_ADAPTER_INFO`] of a version.
///
/// IRQL: `PASSIVE_LEVEL` (NDKPI 1).
pub type NDK_FN_QUERY_ADAPTER_INFO_EX = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Version: NDK_VERSION,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut u32,
) -> NtStatus;

/// `NdkCreateCq`: creates a completion queue of `CqDepth` entries, unarmed and not moderated.
///
/// The affinity, which may be null, says where the notification had best run. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2,
/// NDKPI 7.1.1).
pub type NDK_FN_CREATE_CQ = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CqDepth: u32,
    CqNotification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    CqNotificationContext: *mut c_void,
    Affinity: *const GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkCq: *mut *mut NDK_CQ,
) -> NtStatus;

/// `NdkCreatePd`: creates a protection domain.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2).
pub type NDK_FN_CREATE_PD = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkPd: *mut *mut NDK_PD,
) -> NtStatus;

/// `NdkCreateSharedEndpoint`: creates a shared endpoint on a local address.
///
/// Port 0 is replaced by a free one. The length is in bytes. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2, NDKPI 7.8).
pub type NDK_FN_CREATE_SHARED_ENDPOINT = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pAddress: *const SOCKADDR,
    AddressLength: u32,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
) -> NtStatus;

/// `NdkCreateConnector`: creates a connector for an outgoing connection.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2).
pub type NDK_FN_CREATE_CONNECTOR = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkConnector: *mut *mut NDK_CONNECTOR,
) -> NtStatus;

/// `NdkCreateListener`: creates a listener, which does not listen before `NdkListen`.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2).
pub type NDK_FN_CREATE_LISTENER = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    ConnectEvent: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    ConnectEventContext: *mut c_void,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: *mut c_void,
    ppNdkListener: *mut *mut NDK_LISTENER,
) -> NtStatus;

/// `NdkBuildLAM`: a request that maps `Length` bytes of a pinned, virtually contiguous buffer.
///
/// `*pLAMSize` is the size of the caller's memory in bytes on entry and the size needed with
/// [`NtStatus::BUFFER_TOO_SMALL`]; `*pFBO` becomes the offset of the first byte in the first page. IRQL <=
/// `DISPATCH_LEVEL` (NDKPI 5.2, NDKPI 7.5).
pub type NDK_FN_BUILD_LAM = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Mdl: *mut MDL,
    Length: usize,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
    pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    pLAMSize: *mut u32,
    pFBO: *mut u32,
) -> NtStatus;

/// `NdkReleaseLAM`: undoes a mapping when no request uses it any more; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.2, NDKPI 7.5).
pub type NDK_FN_RELEASE_LAM =
    unsafe extern "system" fn(pNdkAdapter: *mut NDK_ADAPTER, pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING);
