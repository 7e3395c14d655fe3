//! Functions of a listener (NDKPI 5.9).

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{BOOLEAN, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NtStatus, SOCKADDR};

/// The table of a listener (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_LISTENER_DISPATCH {
    /// Closes the listener. It refuses connections from then on, even while the close pends.
    pub NdkCloseListener: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Begins to listen.
    pub NdkListen: Option<NDK_FN_LISTEN>,
    /// Tells the local address.
    pub NdkGetLocalAddress: Option<NDK_FN_GET_LISTENER_LOCAL_ADDRESS>,
    /// Pauses or resumes the connect events.
    pub NdkControlConnectEvents: Option<NDK_FN_CONTROL_CONNECT_EVENTS>,
}

slots!(
    NDK_LISTENER_DISPATCH: NdkCloseListener,
    NdkQueryExtension,
    NdkListen,
    NdkGetLocalAddress,
    NdkControlConnectEvents,
);

/// `NdkListen`: a request that begins to listen on a local address.
///
/// Port 0 is replaced by a free one. The length is in bytes. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.9, NDKPI 7.7.2).
pub type NDK_FN_LISTEN = unsafe extern "system" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *const SOCKADDR,
    AddressLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkGetLocalAddress` of a listener: immediate.
///
/// `*pAddressLength` is the size of the buffer in bytes on entry and the bytes written, or those needed with
/// [`NtStatus::BUFFER_TOO_SMALL`], on return. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.9).
pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NtStatus;

/// `NdkControlConnectEvents`: while paused, connections are refused as if nobody listened; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.9, NDKPI 7.7.8).
pub type NDK_FN_CONTROL_CONNECT_EVENTS = unsafe extern "system" fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN);
