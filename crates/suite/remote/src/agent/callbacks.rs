//! The callbacks of the agent's consumer. Each puts a node into the queue, at `IRQL <= DISPATCH_LEVEL`.

use alloc::boxed::Box;
use core::ffi::c_void;

use ndkpi::{NDK_CONNECTOR, NDK_OBJECT_HEADER, NtStatus};

use super::{object::Entry, queue::Node};
use crate::wire::Happened;

/// Puts a node into its queue.
fn push(node: Box<Node>) {
    let queue = node.queue;
    // SAFETY: the queue belongs to the agent, which closes its adapters before it ends; no callback comes after that
    // (`NDKPI 7.9`).
    unsafe { (*queue).push(node) };
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// `context` is a node for a creation, given away with the request.
pub unsafe extern "system" fn created(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the node came from a box and was given away with the request, which ends once (`NDKPI 5.0`).
    let mut node = unsafe { Box::from_raw(context.cast::<Node>()) };
    // SAFETY: the table keeps the entry until the node is fetched.
    let entry = unsafe { &*node.entry };
    node.status = status;
    if status.is_success() && !object.is_null() {
        entry.open(object.cast());
    } else {
        if status.is_success() {
            node.status = NtStatus::INTERNAL_ERROR;
        }
        entry.end();
    }
    push(node);
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// `context` is a node for a request, given away with it.
pub unsafe extern "system" fn requested(context: *mut c_void, status: NtStatus) {
    // SAFETY: as in `created`.
    let mut node = unsafe { Box::from_raw(context.cast::<Node>()) };
    node.status = status;
    push(node);
}

/// `NDK_FN_CLOSE_COMPLETION`.
///
/// # Safety
///
/// `context` is an entry that the table keeps until the completion is fetched.
pub unsafe extern "system" fn closed(context: *mut c_void) {
    // SAFETY: the table keeps the entry until the node of its end is fetched (`# Safety`).
    ended(unsafe { &*context.cast_const().cast::<Entry>() });
}

/// The close of an object is complete. The entry may be gone when this returns, unless the caller keeps it.
pub fn ended(entry: &Entry) {
    let ending = entry.take_ending();
    entry.end();
    if let Some(node) = ending {
        push(node);
    }
}

/// A callback of an object's own.
///
/// # Safety
///
/// `context` is an entry that the table keeps until the completion of its close is fetched.
unsafe fn happened(context: *mut c_void, what: Happened, fill: impl FnOnce(&mut Node)) -> bool {
    // SAFETY: the table keeps the entry (`# Safety`), and the object is not closed before its callbacks have returned
    // (`NDKPI 7.9`).
    let entry = unsafe { &*context.cast_const().cast::<Entry>() };
    let Some(mut node) = entry.take_spare(what) else {
        // SAFETY: as in `push`.
        unsafe { (*entry.queue()).lose() };
        return false;
    };
    node.adapter = entry.adapter().cloned();
    fill(&mut node);
    push(node);
    true
}

/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`, `NDK_FN_SRQ_NOTIFICATION_CALLBACK`.
///
/// # Safety
///
/// As [`happened`].
pub unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: `context` is an entry (`# Safety`).
    unsafe { happened(context, Happened::Notified, |node| node.status = status) };
}

/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// As [`happened`]; the connector belongs to the agent from now on.
pub unsafe extern "system" fn connected(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: `context` is an entry (`# Safety`).
    if !unsafe { happened(context, Happened::Connected, |node| node.object = connector.cast()) } {
        // SAFETY: the connector came with the event, and nobody else has it (`# Safety`).
        unsafe { refuse(connector.cast()) };
    }
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// As [`happened`].
pub unsafe extern "system" fn disconnected(context: *mut c_void) {
    // SAFETY: `context` is an entry (`# Safety`).
    unsafe { happened(context, Happened::Disconnected, |_| {}) };
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX`.
///
/// # Safety
///
/// As [`happened`].
pub unsafe extern "system" fn disconnected_ex(context: *mut c_void, reason: u32) {
    // SAFETY: `context` is an entry (`# Safety`).
    unsafe { happened(context, Happened::Disconnected, |node| node.value = reason.into()) };
}

/// Closes a connector that nobody can keep, which refuses its connection (`NDKPI 7.7.2`).
///
/// # Safety
///
/// The connector is open, and nobody uses it any more.
pub unsafe fn refuse(connector: *mut c_void) {
    const unsafe extern "system" fn refused(_context: *mut c_void) {}

    let connector: *mut NDK_CONNECTOR = connector.cast();
    // SAFETY: the connector is open (`# Safety`). The slot is in the table of every version.
    if let Some(close) = unsafe { (*(*connector).Dispatch).NdkCloseConnector } {
        // SAFETY: the connector is open and not used any more (`# Safety`).
        let _ = unsafe { close(connector.cast(), Some(refused), core::ptr::null_mut()) };
    }
}
