//! Functions of the consumer that the provider calls (NDKPI 6). IRQL <= `DISPATCH_LEVEL` for all of them.
//!
//! A completion callback ends one call that returned [`STATUS_PENDING`](crate::NtStatus::PENDING). It runs exactly once
//! for it, maybe before the call has returned, and never for a call that returned anything else (NDKPI 5.0). An event
//! callback runs when something happens, as often as it happens, but never after its object's close is complete
//! (NDKPI 7.9).
//!
//! Every function that takes a callback takes it as an [`Option`], also where NDKPI demands one: a careless consumer can
//! pass a null pointer, and the provider has to be able to see it.

use core::ffi::c_void;

use crate::{NDK_CONNECTOR, NDK_OBJECT_HEADER, NtStatus};

/// Completion of a creation.
///
/// The object is there if the status is a success; otherwise the pointer means nothing. IRQL <= `DISPATCH_LEVEL` (NDKPI
/// 6).
pub type NDK_FN_CREATE_COMPLETION =
    unsafe extern "system" fn(Context: *mut c_void, Status: NtStatus, pNdkObject: *mut NDK_OBJECT_HEADER);

/// Completion of any other request but a close.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 6).
pub type NDK_FN_REQUEST_COMPLETION = unsafe extern "system" fn(Context: *mut c_void, Status: NtStatus);

/// Completion of a close, which cannot fail and so has no status.
///
/// It is the last callback of its object. IRQL <= `DISPATCH_LEVEL` (NDKPI 6, NDKPI 7.9).
pub type NDK_FN_CLOSE_COMPLETION = unsafe extern "system" fn(Context: *mut c_void);

/// Event: what a completion queue was armed for has happened.
///
/// The status is a success, [`NtStatus::BUFFER_OVERFLOW`] for an overrun, or [`NtStatus::INTERNAL_ERROR`]. Two of one
/// queue never run at the same time. IRQL <= `DISPATCH_LEVEL` (NDKPI 6, NDKPI 7.1.7).
pub type NDK_FN_CQ_NOTIFICATION_CALLBACK =
    unsafe extern "system" fn(CqNotificationContext: *mut c_void, CqStatus: NtStatus);

/// Event: the receives in a shared receive queue fell below the threshold, or the queue failed with
/// [`NtStatus::INTERNAL_ERROR`].
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 6, NDKPI 7.12).
pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK =
    unsafe extern "system" fn(SrqNotificationContext: *mut c_void, SrqStatus: NtStatus);

/// Event: a connection came in.
///
/// The connector belongs to the consumer from now on. IRQL <= `DISPATCH_LEVEL` (NDKPI 6, NDKPI 7.7.2).
pub type NDK_FN_CONNECT_EVENT_CALLBACK =
    unsafe extern "system" fn(ConnectEventContext: *mut c_void, pNdkConnector: *mut NDK_CONNECTOR);

/// Event: the peer disconnected, or the connection is lost.
///
/// Once for each connection. IRQL <= `DISPATCH_LEVEL` (NDKPI 6, NDKPI 7.7.6).
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK = unsafe extern "system" fn(DisconnectEventContext: *mut c_void);

/// The same event with a reason of the provider's own, 0 if it gives none; from NDKPI 2.1.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 6).
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX =
    unsafe extern "system" fn(DisconnectEventContext: *mut c_void, ProviderDisconnectReason: u32);
