//! Functions of a connector (NDKPI 5.8).
//!
//! Read limits are numbers of reads in progress, lengths are in bytes.

use core::ffi::c_void;

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{
    BOOLEAN, NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_SHARED_ENDPOINT, NDK_VERSION, NtStatus, SOCKADDR,
};

/// The table of a connector (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_CONNECTOR_DISPATCH {
    /// Closes the connector, and so aborts its connection.
    pub NdkCloseConnector: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Connects to a remote address.
    pub NdkConnect: Option<NDK_FN_CONNECT>,
    /// Connects to a remote address from the address of a shared endpoint.
    pub NdkConnectWithSharedEndpoint: Option<NDK_FN_CONNECT_WITH_SHARED_ENDPOINT>,
    /// Takes the last step of an outgoing connection.
    pub NdkCompleteConnect: Option<NDK_FN_COMPLETE_CONNECT>,
    /// Accepts an incoming connection.
    pub NdkAccept: Option<NDK_FN_ACCEPT>,
    /// Refuses an incoming connection, or gives up an outgoing one that the peer accepted.
    pub NdkReject: Option<NDK_FN_REJECT>,
    /// Tells the read limits and the private data of the peer.
    pub NdkGetConnectionData: Option<NDK_FN_GET_CONNECTION_DATA>,
    /// Tells the local address.
    pub NdkGetLocalAddress: Option<NDK_FN_GET_LOCAL_ADDRESS>,
    /// Tells the remote address.
    pub NdkGetPeerAddress: Option<NDK_FN_GET_PEER_ADDRESS>,
    /// Ends the connection.
    pub NdkDisconnect: Option<NDK_FN_DISCONNECT>,
    /// [`Self::NdkCompleteConnect`] with a reason in the disconnect event; from NDKPI 2.1, see
    /// [`NDK_CONNECTOR::complete_connect_ex`].
    pub NdkCompleteConnectEx: Option<NDK_FN_COMPLETE_CONNECT_EX>,
    /// [`Self::NdkAccept`] with a reason in the disconnect event; from NDKPI 2.1, see [`NDK_CONNECTOR::accept_ex`].
    pub NdkAcceptEx: Option<NDK_FN_ACCEPT_EX>,
}

slots!(
    NDK_CONNECTOR_DISPATCH: NdkCloseConnector,
    NdkQueryExtension,
    NdkConnect,
    NdkConnectWithSharedEndpoint,
    NdkCompleteConnect,
    NdkAccept,
    NdkReject,
    NdkGetConnectionData,
    NdkGetLocalAddress,
    NdkGetPeerAddress,
    NdkDisconnect,
    NdkCompleteConnectEx,
    NdkAcceptEx,
);

impl NDK_CONNECTOR_DISPATCH {
    /// The bytes that a table of this version has.
    #[must_use]
    pub fn size_in(version: NDK_VERSION) -> usize {
        if version < NDK_VERSION::V2_1 { core::mem::offset_of!(Self, NdkCompleteConnectEx) } else { size_of::<Self>() }
    }
}

slot_since! {
    V2_1,
    /// `NdkCompleteConnectEx`, if the version of the connector has it.
    NDK_CONNECTOR::complete_connect_ex reads NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX
}

slot_since! {
    V2_1,
    /// `NdkAcceptEx`, if the version of the connector has it.
    NDK_CONNECTOR::accept_ex reads NdkAcceptEx: NDK_FN_ACCEPT_EX
}

/// `NdkConnect`: a request that connects a queue pair from a local to a remote address.
///
/// Local port 0 is replaced by a free one. Success means that the peer accepted; `NdkCompleteConnect` is the next step.
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8, NDKPI 7.7.1).
pub type NDK_FN_CONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pSrcAddress: *const SOCKADDR,
    SrcAddressLength: u32,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: u32,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkConnectWithSharedEndpoint`: [`NDK_FN_CONNECT`] from the address of a shared endpoint.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8, NDKPI 7.8).
pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: u32,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkCompleteConnect`: a request that takes the last step of an outgoing connection.
///
/// The disconnect event is optional. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8, NDKPI 7.7.1).
pub type NDK_FN_COMPLETE_CONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkCompleteConnectEx`: [`NDK_FN_COMPLETE_CONNECT`] with the event that has a reason; from NDKPI 2.1.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8).
pub type NDK_FN_COMPLETE_CONNECT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkAccept`: a request that accepts an incoming connection with a queue pair.
///
/// It completes when the peer has taken its last step. The disconnect event is optional. IRQL <= `DISPATCH_LEVEL`
/// (NDKPI 5.8, NDKPI 7.7.2).
pub type NDK_FN_ACCEPT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkAcceptEx`: [`NDK_FN_ACCEPT`] with the event that has a reason; from NDKPI 2.1.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8).
pub type NDK_FN_ACCEPT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: u32,
    OutboundReadLimit: u32,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: *mut c_void,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// `NdkReject`: refuses an incoming connection, or gives up an outgoing one instead of its last step; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8).
pub type NDK_FN_REJECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pPrivateData: *const c_void,
    PrivateDataLength: u32,
) -> NtStatus;

/// `NdkGetConnectionData`: the effective read limits and the private data of the peer, each of which may be null;
/// immediate.
///
/// `*pPrivateDataLength` is the size of the buffer on entry and the size of the data on return. IRQL <=
/// `DISPATCH_LEVEL` (NDKPI 5.8, NDKPI 7.7.4).
pub type NDK_FN_GET_CONNECTION_DATA = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pInboundReadLimit: *mut u32,
    pOutboundReadLimit: *mut u32,
    pPrivateData: *mut c_void,
    pPrivateDataLength: *mut u32,
) -> NtStatus;

/// `NdkGetLocalAddress` of a connector: immediate.
///
/// `*pAddressLength` is the size of the buffer on entry and the bytes written, or those needed with
/// [`NtStatus::BUFFER_TOO_SMALL`], on return. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8).
pub type NDK_FN_GET_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NtStatus;

/// `NdkGetPeerAddress`: immediate, like [`NDK_FN_GET_LOCAL_ADDRESS`].
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8).
pub type NDK_FN_GET_PEER_ADDRESS = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NtStatus;

/// `NdkDisconnect`: a request that ends the connection gracefully and then flushes the queue pair.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.8, NDKPI 7.7.5).
pub type NDK_FN_DISCONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// Declared in the header, but in no table: [`NDK_FN_DISCONNECT`] with a choice.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 1).
pub type NDK_FN_DISCONNECT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    Abortive: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;
