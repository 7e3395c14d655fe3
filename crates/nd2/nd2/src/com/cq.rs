//! `IND2CompletionQueue`, and `INDCompletionQueue`, the queue of version 1 (`NDSPI 8`).
//!
//! Results of version 1 lie in the client's own memory: the context of every request that completes there is the address of an
//! `ND_RESULT`. Its adapter is that of version 2, whose method makes a queue of either version.

use core::{ffi::c_void, ops::Deref};

use engine::os::Affinity;
use fallible::Arc;
use ndkpi::GUID;

use super::{
    Class, Found, borrow,
    overlapped::{cancel_overlapped_requests, get_overlapped_result, overlapped, request},
    part::{Part, find_on, part},
    unknown,
};
use crate::{
    abi::{
        BOOL, HRESULT, IID_IND2CompletionQueue, IID_IND2Overlapped, IID_INDCompletionQueue, IID_INDOverlapped,
        IND2CompletionQueueVtbl, INDCompletionQueueVtbl, INDOverlappedVtbl, KAFFINITY, ND_RESULT, ND2_RESULT,
        OVERLAPPED,
    },
    back_end::{BackEnd, CompletionQueue},
};

part! {
    /// A completion queue of version 2.
    CompletionQueue2: CompletionQueue
}

part! {
    /// A completion queue of version 1.
    CompletionQueue1: CompletionQueue
}

impl<B: BackEnd> Class for CompletionQueue2<B> {
    type Table = IND2CompletionQueueVtbl;

    const TABLE: &'static IND2CompletionQueueVtbl = &IND2CompletionQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<B>,
        Resize: resize::<B>,
        Notify: notify::<Self>,
        GetResults: get_results::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2CompletionQueue, IID_IND2Overlapped];
}

impl<B: BackEnd> Class for CompletionQueue1<B> {
    type Table = INDCompletionQueueVtbl;

    const TABLE: &'static INDCompletionQueueVtbl = &INDCompletionQueueVtbl {
        base: INDOverlappedVtbl {
            base: unknown::<Self>(),
            CancelOverlappedRequests: cancel_overlapped_requests::<Self>,
            GetOverlappedResult: get_overlapped_result_1::<B>,
        },
        Resize: resize_1::<B>,
        Notify: notify::<Self>,
        GetResults: get_results_1::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDCompletionQueue, IID_INDOverlapped];
}

/// A completion queue of either version.
pub enum FoundQueue<B: BackEnd> {
    /// Of version 2.
    Version2(Found<CompletionQueue2<B>>),
    /// Of version 1.
    Version1(Found<CompletionQueue1<B>>),
}

impl<B: BackEnd> Deref for FoundQueue<B> {
    type Target = B::CompletionQueue;

    fn deref(&self) -> &B::CompletionQueue {
        match self {
            Self::Version2(found) => &found.0,
            Self::Version1(found) => &found.0,
        }
    }
}

/// The completion queue behind a client's pointer, of either version and whatever adapter.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn find_queue<B: BackEnd>(unknown: *mut c_void) -> Option<FoundQueue<B>> {
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    if let Some(found) = unsafe { super::find(unknown) } {
        return Some(FoundQueue::Version2(found));
    }
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    unsafe { super::find(unknown) }.map(FoundQueue::Version1)
}

/// The completion queue behind a client's pointer, of either version, if it is one of this adapter.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn find_queue_on<B: BackEnd>(adapter: &Arc<B::Adapter>, unknown: *mut c_void) -> Option<FoundQueue<B>> {
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    if let Some(found) = unsafe { find_on(adapter, unknown) } {
        return Some(FoundQueue::Version2(found));
    }
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    unsafe { find_on(adapter, unknown) }.map(FoundQueue::Version1)
}

/// Tells the client an affinity.
///
/// # Safety
///
/// `group` and `affinity` are null or valid for writing.
pub unsafe fn write_affinity(of: Affinity, group: *mut u16, affinity: *mut KAFFINITY) -> HRESULT {
    if group.is_null() || affinity.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the pointer is not null.
    unsafe {
        group.write(of.group);
        affinity.write(KAFFINITY::try_from(of.mask).unwrap_or(0));
    }
    HRESULT::ND_SUCCESS
}

/// `IND2CompletionQueue::GetNotifyAffinity`.
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
    let object = unsafe { borrow::<CompletionQueue2<B>>(this) };
    match object.0.affinity() {
        // SAFETY: `group` and `affinity` are null or valid for writing (`# Safety`).
        Ok(own) => unsafe { write_affinity(own, group, affinity) },
        Err(status) => status.into(),
    }
}

/// `IND2CompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize<B: BackEnd>(this: *mut c_void, depth: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<B>>(this) };
    object.0.resize(depth).into()
}

/// `INDCompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize_1<B: BackEnd>(this: *mut c_void, entries: usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<B>>(this) };
    // What does not fit is more than any adapter has.
    object.0.resize(u32::try_from(entries).unwrap_or(u32::MAX)).into()
}

/// `Notify` of either version.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<C>(this: *mut c_void, kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT
where
    C: Part<Behind: CompletionQueue<C::BackEnd>>,
{
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<C>(this, overlapped, |object, overlapped| object.behind().notify(kind, overlapped)) }
}

/// `IND2CompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries.
unsafe extern "system" fn get_results<B: BackEnd>(this: *mut c_void, results: *mut ND2_RESULT, count: u32) -> u32 {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<B>>(this) };
    let mut place = results;
    let taken = object.0.take(count as usize, |result| {
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(result) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    });
    u32::try_from(taken).unwrap_or(count)
}

/// `INDOverlapped::GetOverlappedResult`. Notifications transfer no bytes.
///
/// # Safety
///
/// `this` is such a queue; `overlapped` is null or was given to its method and is valid; `bytes` is null or valid for writing.
unsafe extern "system" fn get_overlapped_result_1<B: BackEnd>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    bytes: *mut usize,
    wait: BOOL,
) -> HRESULT {
    if !bytes.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { bytes.write(0) };
    }
    // SAFETY: `this` is such a queue, and `overlapped` null, or given to its method and valid (`# Safety`).
    unsafe { get_overlapped_result::<CompletionQueue1<B>>(this, overlapped, wait) }
}

/// `INDCompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries; the contexts of all requests that complete
/// here are addresses of `ND_RESULT`s that are valid until they are returned, or null.
unsafe extern "system" fn get_results_1<B: BackEnd>(
    this: *mut c_void,
    results: *mut *mut ND_RESULT,
    count: usize,
) -> usize {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<B>>(this) };
    let mut place = results;
    object.0.take(count, |result| {
        let block = result.RequestContext.cast::<ND_RESULT>();
        if !block.is_null() {
            let outcome = ND_RESULT { Status: result.Status, BytesTransferred: result.BytesTransferred as usize };
            // SAFETY: the context is the address of a valid block (`# Safety`).
            unsafe { block.write(outcome) };
        }
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(block) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    })
}
