//! Functions of a queue pair (`NDKPI 5.7`), and the post of a shared receive queue. Nothing is allocated here.

use core::ffi::c_void;

use ndkpi::{
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_QP, NDK_SGE, NDK_SRQ, NtStatus, Object,
};

use crate::{
    Args, Function, Hooks, List, Outcome, Phase,
    call::{EventReport, slot},
    shadow::{Shadow, find, other},
};

/// A post: `call` asks the provider.
///
/// # Safety
///
/// `public` is an object that stays open until this returns.
#[inline(always)]
unsafe fn post<'a, H: Hooks, T: Object>(
    public: *mut T,
    function: Function,
    args: Args<'a>,
    related: [Option<&'a Shadow<H>>; 3],
    call: impl FnOnce(*mut T) -> NtStatus,
) -> NtStatus {
    // SAFETY: `public` is open for the call (`# Safety`).
    let shadow = match unsafe { find::<H, T>(public, function) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    let mut report = EventReport::of_data_path(shadow, function, args).with(related);
    if let Err(status) = report.begin() {
        return status;
    }
    let status = call(shadow.inner());
    report.end(Outcome::Status(status));
    status
}

/// The arguments of a transfer.
///
/// # Safety
///
/// `sgl` is null or points to `count` elements, which do not change during the call.
#[inline(always)]
unsafe fn transfer<'a>(
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
    remote: (u64, u32),
) -> Args<'a> {
    // SAFETY: `sgl` is null, or points to `count` elements that do not change during the call (`# Safety`).
    let sgl = unsafe { List::new(sgl, count) };
    Args::Transfer { context: context.addr(), sgl, flags, remote_address: remote.0, remote_token: remote.1 }
}

/// `NDK_FN_FLUSH`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue pair is open.
pub unsafe extern "system" fn flush<H: Hooks>(qp: *mut NDK_QP) {
    // SAFETY: `qp` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(qp, Function::Flush) }) else { return };
    let mut report = EventReport::new(shadow, Function::Flush, Args::None);
    let _ = report.tell(Phase::Call, Outcome::None);
    let (inner, function) = slot!(shadow.inner::<NDK_QP>(), NdkFlush);
    // SAFETY: the provider's queue pair is open.
    unsafe { function(inner) };
    report.end(Outcome::None);
}

/// `NDK_FN_SEND`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue pair is open, the list valid for the call.
pub unsafe extern "system" fn send<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, flags, (0, 0)) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkSend, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue pair is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count, flags) }
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Send, args, [None; 3], call) }
}

/// `NDK_FN_RECEIVE`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn receive<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, 0, (0, 0)) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkReceive, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue pair is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count) }
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Receive, args, [None; 3], call) }
}

/// `NDK_FN_SRQ_RECEIVE`.
///
/// # Safety
///
/// As [`send`], of a shared receive queue.
pub unsafe extern "system" fn srq_receive<H: Hooks>(
    srq: *mut NDK_SRQ,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, 0, (0, 0)) };
    let call = |inner: *mut NDK_SRQ| {
        let (inner, function) = slot!(inner, NdkSrqReceive, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count) }
    };
    // SAFETY: `srq` is open for the call (`# Safety`).
    unsafe { post::<H, _>(srq, Function::SrqReceive, args, [None; 3], call) }
}

/// `NDK_FN_BIND`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the objects are open.
pub unsafe extern "system" fn bind<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes open objects.
    let (mr, mr_shadow) = unsafe { other::<H, _>(mr, NDK_MR::OBJECT_TYPE, Function::Bind) };
    // SAFETY: `mw` is open for the call, if it is an object (`# Safety`).
    let (mw, mw_shadow) = unsafe { other::<H, _>(mw, NDK_MW::OBJECT_TYPE, Function::Bind) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkBind, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open, the rest is the consumer's.
        unsafe { function(inner, context, mr, mw, address, length, flags) }
    };
    let args = Args::Bind { context: context.addr(), address: address.addr(), length, flags };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Bind, args, [mr_shadow, mw_shadow, None], call) }
}

/// `NDK_FN_FAST_REGISTER`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the objects are open, the pages valid for the call.
pub unsafe extern "system" fn fast_register<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    page_count: u32,
    pages: *const NDK_LOGICAL_ADDRESS,
    first_byte: u32,
    length: usize,
    base: *mut c_void,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes open objects.
    let (mr, mr_shadow) = unsafe { other::<H, _>(mr, NDK_MR::OBJECT_TYPE, Function::FastRegister) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkFastRegister, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open, the rest is the consumer's.
        unsafe { function(inner, context, mr, page_count, pages, first_byte, length, base, flags) }
    };
    let args = Args::FastRegister {
        context: context.addr(),
        // SAFETY: the pages are valid for the call.
        pages: unsafe { List::new(pages, page_count) },
        first_byte,
        length,
        base: base.addr(),
        flags,
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::FastRegister, args, [mr_shadow, None, None], call) }
}

/// `NDK_FN_INVALIDATE`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the objects are open.
pub unsafe extern "system" fn invalidate<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    object: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes open objects.
    let (object, shadow) = unsafe { other::<H, _>(object, NDK_OBJECT_TYPE::UNDEFINED, Function::Invalidate) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkInvalidate, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open, the rest is the consumer's.
        unsafe { function(inner, context, object, flags) }
    };
    let args = Args::Invalidate { context: context.addr(), flags };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Invalidate, args, [shadow, None, None], call) }
}

/// `NDK_FN_READ`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn read<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, flags, (address, token)) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkRead, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue pair is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count, address, token, flags) }
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Read, args, [None; 3], call) }
}

/// `NDK_FN_WRITE`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn write<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, flags, (address, token)) };
    let call = |inner: *mut NDK_QP| {
        let (inner, function) = slot!(inner, NdkWrite, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue pair is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count, address, token, flags) }
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::Write, args, [None; 3], call) }
}

/// `NDK_FN_SEND_AND_INVALIDATE`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn send_and_invalidate<H: Hooks>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
    token: u32,
) -> NtStatus {
    // SAFETY: the list is valid for the call.
    let args = unsafe { transfer(context, sgl, count, flags, (0, token)) };
    let call = |inner: *mut NDK_QP| {
        // SAFETY: the provider's queue pair is open.
        let Some(function) = (unsafe { NDK_QP::send_and_invalidate(inner) }) else { return NtStatus::NOT_SUPPORTED };
        // SAFETY: the provider's queue pair is open, the rest is the consumer's.
        unsafe { function(inner, context, sgl, count, flags, token) }
    };
    // SAFETY: `qp` is open for the call (`# Safety`).
    unsafe { post::<H, _>(qp, Function::SendAndInvalidate, args, [None; 3], call) }
}
