//! Functions of memory regions and windows (`NDKPI 5.5`).

use core::ffi::c_void;

use ndkpi::{BOOLEAN, MDL, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MW, NtStatus, Object};

use crate::{
    Args, Function, Hooks, InterposeOs, Outcome, Phase,
    call::{EventReport, request, slot},
    shadow::{find, recognise},
};

/// `NDK_FN_REGISTER_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the region is open, the MDL describes pinned memory.
pub unsafe extern "system" fn register<H: Hooks>(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    flags: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_MR, completion, context| {
        let (inner, function) = slot!(inner, NdkRegisterMr, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's region is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, mdl, length, flags, completion, context) }
    };
    // SAFETY: the region is open (`# Safety`). What is no shadow gives no operating system to ask, and the call goes no further.
    let base = unsafe { recognise::<H>(mr.cast_const().cast()) }.and_then(|shadow| {
        // SAFETY: the MDL describes memory (`# Safety`), or is null.
        unsafe { shadow.root.hooks.os().mdl_base(mdl) }
    });
    let args = Args::RegisterMr { mdl: mdl.addr(), base, length, flags };
    // SAFETY: `mr` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(mr, Function::RegisterMr, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_DEREGISTER_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the region is open.
pub unsafe extern "system" fn deregister<H: Hooks>(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_MR, completion, context| {
        let (inner, function) = slot!(inner, NdkDeregisterMr, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's region is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, completion, context) }
    };
    // SAFETY: `mr` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(mr, Function::DeregisterMr, Args::None, [None; 3], completion, context, call) }
}

/// `NDK_FN_INITIALIZE_FAST_REGISTER_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the region is open.
pub unsafe extern "system" fn initialize<H: Hooks>(
    mr: *mut NDK_MR,
    pages: u32,
    remote: BOOLEAN,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_MR, completion, context| {
        let (inner, function) = slot!(inner, NdkInitializeFastRegisterMr, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's region is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, pages, remote, completion, context) }
    };
    let args = Args::InitializeFastRegisterMr { pages, remote_access: remote != 0 };
    let this = Function::InitializeFastRegisterMr;
    // SAFETY: `mr` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(mr, this, args, [None; 3], completion, context, call) }
}

/// A function that returns a token; 0 where there is no object.
///
/// # Safety
///
/// `public` is an object that stays open until this returns.
unsafe fn token<H: Hooks, T: Object>(public: *mut T, function: Function, call: impl FnOnce(*mut T) -> u32) -> u32 {
    // SAFETY: `public` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, T>(public, function) }) else { return 0 };
    let mut report = EventReport::new(shadow, function, Args::None);
    let _ = report.tell(Phase::Call, Outcome::None);
    let token = call(shadow.inner());
    report.end(Outcome::Token(token));
    token
}

/// `NDK_FN_GET_REMOTE_TOKEN_FROM_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the region is open.
pub unsafe extern "system" fn remote_token<H: Hooks>(mr: *mut NDK_MR) -> u32 {
    let call = |inner: *mut NDK_MR| {
        let (inner, function) = slot!(inner, NdkGetRemoteTokenFromMr, 0);
        // SAFETY: the provider's region is open.
        unsafe { function(inner) }
    };
    // SAFETY: `mr` is open for the call (`# Safety`).
    unsafe { token::<H, _>(mr, Function::GetRemoteTokenFromMr, call) }
}

/// `NDK_FN_GET_LOCAL_TOKEN_FROM_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the region is open.
pub unsafe extern "system" fn local_token<H: Hooks>(mr: *mut NDK_MR) -> u32 {
    let call = |inner: *mut NDK_MR| {
        let (inner, function) = slot!(inner, NdkGetLocalTokenFromMr, 0);
        // SAFETY: the provider's region is open.
        unsafe { function(inner) }
    };
    // SAFETY: `mr` is open for the call (`# Safety`).
    unsafe { token::<H, _>(mr, Function::GetLocalTokenFromMr, call) }
}

/// `NDK_FN_GET_REMOTE_TOKEN_FROM_MW`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the window is open.
pub unsafe extern "system" fn window_token<H: Hooks>(mw: *mut NDK_MW) -> u32 {
    let call = |inner: *mut NDK_MW| {
        let (inner, function) = slot!(inner, NdkGetRemoteTokenFromMw, 0);
        // SAFETY: the provider's window is open.
        unsafe { function(inner) }
    };
    // SAFETY: `mw` is open for the call (`# Safety`).
    unsafe { token::<H, _>(mw, Function::GetRemoteTokenFromMw, call) }
}
