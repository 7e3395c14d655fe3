//! `IND2CompletionQueue`.

use core::{ffi::c_void, ptr::NonNull};

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
        HRESULT, IID_IND2CompletionQueue, IID_IND2Overlapped, IND2CompletionQueueVtbl, KAFFINITY, ND2_RESULT,
        OVERLAPPED,
    },
    com::{Class, borrow},
    overlapped::{Overlapped, overlapped},
};

/// A completion queue of version 2.
pub struct CompletionQueue2<P: Platform>(pub Owned<P>);

impl<P: Platform> Class for CompletionQueue2<P> {
    type Table = IND2CompletionQueueVtbl;

    const TABLE: &'static IND2CompletionQueueVtbl = &IND2CompletionQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<P>,
        Resize: resize::<P>,
        Notify: notify::<P>,
        GetResults: get_results::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2CompletionQueue, IID_IND2Overlapped];
}

impl<P: Platform> Overlapped for CompletionQueue2<P> {
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

/// `IND2CompletionQueue::GetNotifyAffinity`.
///
/// # Safety
///
/// `this` is such a queue; `group` and `affinity` are null or valid for writing.
unsafe extern "system" fn get_notify_affinity<P: Platform>(
    this: *mut c_void,
    group: *mut u16,
    affinity: *mut KAFFINITY,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<P>>(this) };
    let core = &object.0.core;
    if let Err(status) = core.adapter().device().check_present() {
        return status.into();
    }
    // SAFETY: the caller's promise.
    unsafe { write_affinity(core.affinity(), group, affinity) }
}

/// Tells the client an affinity.
///
/// # Safety
///
/// `group` and `affinity` are null or valid for writing.
pub const unsafe fn write_affinity(of: (u16, KAFFINITY), group: *mut u16, affinity: *mut KAFFINITY) -> HRESULT {
    if group.is_null() || affinity.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the pointer is not null.
    unsafe { group.write(of.0) };
    // SAFETY: the pointer is not null.
    unsafe { affinity.write(of.1) };
    HRESULT::ND_SUCCESS
}

/// `IND2CompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize<P: Platform>(this: *mut c_void, depth: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<P>>(this) };
    object.0.core.resize(&object.0.cq, depth).into()
}

/// `IND2CompletionQueue::Notify`.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<P: Platform>(this: *mut c_void, kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<P>>(this) };
    let (Some(kind), Some(overlapped)) = (Kind::from_value(kind), NonNull::new(overlapped)) else {
        return HRESULT::ND_INVALID_PARAMETER;
    };
    // SAFETY: the caller's promise.
    unsafe { Core::notify(&object.0.core, kind, overlapped) }.into()
}

/// `IND2CompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries.
unsafe extern "system" fn get_results<P: Platform>(this: *mut c_void, results: *mut ND2_RESULT, count: u32) -> u32 {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<P>>(this) };
    let mut place = results;
    let taken = Core::take(&object.0.core, count as usize, |completion| {
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(result(completion)) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    });
    u32::try_from(taken).unwrap_or(count)
}
