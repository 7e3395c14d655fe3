//! `INDCompletionQueue`, the queue of version 1 (`NDSPI 8`).
//!
//! Its results lie in the client's own memory: the context of every request that completes here is the address of an
//! `ND_RESULT`. Its adapter is that of version 2, whose method makes a queue of either version.

use core::{ffi::c_void, ptr, ptr::NonNull};

use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use super::{
    core::{Core, Owned},
    results::result,
    waiters::Kind,
};
use crate::{
    Platform,
    abi::{
        BOOL, HRESULT, IID_INDCompletionQueue, IID_INDOverlapped, INDCompletionQueueVtbl, INDOverlappedVtbl, ND_RESULT,
        OVERLAPPED,
    },
    com::{Class, borrow, unknown},
    overlapped::{Overlapped, cancel_overlapped_requests, get_overlapped_result},
};

/// A completion queue of version 1.
pub struct CompletionQueue1<P: Platform>(pub Owned<P>);

impl<P: Platform> Class for CompletionQueue1<P> {
    type Table = INDCompletionQueueVtbl;

    const TABLE: &'static INDCompletionQueueVtbl = &INDCompletionQueueVtbl {
        base: INDOverlappedVtbl {
            base: unknown::<Self>(),
            CancelOverlappedRequests: cancel_overlapped_requests::<Self>,
            GetOverlappedResult: get_overlapped_result_1::<P>,
        },
        Resize: resize::<P>,
        Notify: notify::<P>,
        GetResults: get_results::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDCompletionQueue, IID_INDOverlapped];
}

impl<P: Platform> Overlapped for CompletionQueue1<P> {
    type Platform = P;

    fn file(&self) -> &Arc<P::File> {
        self.0.core.file()
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.0.core.cancel();
        Ok(())
    }

    fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.0.core.cancel_one(overlapped);
    }
}

/// `INDOverlapped::GetOverlappedResult`. Notifications transfer no bytes.
///
/// # Safety
///
/// `this` is such a queue; `overlapped` is null or was given to its method and is valid; `bytes` is null or valid for writing.
unsafe extern "system" fn get_overlapped_result_1<P: Platform>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    bytes: *mut usize,
    wait: BOOL,
) -> HRESULT {
    if !bytes.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { bytes.write(0) };
    }
    // SAFETY: the caller's promises are the same.
    unsafe { get_overlapped_result::<CompletionQueue1<P>>(this, overlapped, wait) }
}

/// `INDCompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize<P: Platform>(this: *mut c_void, entries: usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<P>>(this) };
    // What does not fit is more than any adapter has.
    let depth = u32::try_from(entries).unwrap_or(u32::MAX);
    object.0.core.resize(&object.0.cq, depth).into()
}

/// `INDCompletionQueue::Notify`.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<P: Platform>(this: *mut c_void, kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<P>>(this) };
    let (Some(kind), Some(overlapped)) = (Kind::from_value(kind), NonNull::new(overlapped)) else {
        return HRESULT::ND_INVALID_PARAMETER;
    };
    // SAFETY: the caller's promise.
    match unsafe { Core::notify(&object.0.core, kind, overlapped) } {
        NtStatus::INTERNAL_ERROR => HRESULT::ND_FAILURE,
        status => status.into(),
    }
}

/// `INDCompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries; the contexts of all requests that complete
/// here are addresses of `ND_RESULT`s that are valid until they are returned, or null.
unsafe extern "system" fn get_results<P: Platform>(
    this: *mut c_void,
    results: *mut *mut ND_RESULT,
    count: usize,
) -> usize {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<P>>(this) };
    let mut place = results;
    Core::take(&object.0.core, count, |completion| {
        let block = ptr::with_exposed_provenance_mut::<ND_RESULT>(completion.request_context);
        if !block.is_null() {
            let outcome = result(completion);
            let outcome = ND_RESULT { Status: outcome.Status, BytesTransferred: outcome.BytesTransferred as usize };
            // SAFETY: the context is the address of a valid block (the caller's promise).
            unsafe { block.write(outcome) };
        }
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(block) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    })
}
