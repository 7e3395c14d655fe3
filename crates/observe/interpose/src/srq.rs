//! Functions of a shared receive queue (`NDKPI 5.6`); its post is in `post`.

use core::ffi::c_void;

use ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_SRQ, NtStatus};

use crate::{
    Args, Function, Hooks,
    call::{request, slot},
};

/// `NDK_FN_MODIFY_SRQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open.
pub unsafe extern "system" fn modify<H: Hooks>(
    srq: *mut NDK_SRQ,
    depth: u32,
    threshold: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_SRQ, completion, context| {
        let (inner, function) = slot!(inner, NdkModifySrq, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, depth, threshold, completion, context) }
    };
    let args = Args::ModifySrq { depth, threshold };
    // SAFETY: `srq` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(srq, Function::ModifySrq, args, [None; 3], completion, context, call) }
}
