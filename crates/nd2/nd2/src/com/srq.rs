//! `IND2SharedReceiveQueue`.

use core::ffi::c_void;

use ndkpi::GUID;

use super::{
    Class, borrow,
    cq::write_affinity,
    overlapped::{overlapped, request},
    part::part,
    qp::elements,
};
use crate::{
    abi::{
        HRESULT, IID_IND2Overlapped, IID_IND2SharedReceiveQueue, IND2SharedReceiveQueueVtbl, KAFFINITY, ND2_SGE,
        OVERLAPPED,
    },
    back_end::{BackEnd, SharedReceiveQueue as _},
};

part! {
    /// A shared receive queue.
    SharedReceiveQueue: SharedReceiveQueue
}

impl<B: BackEnd> Class for SharedReceiveQueue<B> {
    type Table = IND2SharedReceiveQueueVtbl;

    const TABLE: &'static IND2SharedReceiveQueueVtbl = &IND2SharedReceiveQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<B>,
        Modify: modify::<B>,
        Notify: notify::<B>,
        Receive: receive::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2SharedReceiveQueue, IID_IND2Overlapped];
}

/// `IND2SharedReceiveQueue::GetNotifyAffinity`.
///
/// # Safety
///
/// `this` is such a queue; `group` and `affinity` are null or valid for writing.
unsafe extern "system" fn get_notify_affinity<B: BackEnd>(
    this: *mut c_void,
    group: *mut u16,
    affinity: *mut KAFFINITY,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<B>>(this) };
    match object.0.affinity() {
        // SAFETY: `group` and `affinity` are null or valid for writing (`# Safety`).
        Ok(own) => unsafe { write_affinity(own, group, affinity) },
        Err(status) => status.into(),
    }
}

/// `IND2SharedReceiveQueue::Modify`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn modify<B: BackEnd>(this: *mut c_void, depth: u32, threshold: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<B>>(this) };
    object.0.modify(depth, threshold).into()
}

/// `IND2SharedReceiveQueue::Notify`.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<B: BackEnd>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<SharedReceiveQueue<B>>(this, overlapped, |object, overlapped| object.0.notify(overlapped)) }
}

/// `IND2SharedReceiveQueue::Receive`.
///
/// # Safety
///
/// `this` is such a queue; `list` is null or valid for reading `count` entries.
unsafe extern "system" fn receive<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<B>>(this) };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    let list = unsafe { elements(list, count) };
    list.and_then(|list| object.0.receive(context, list)).into()
}
