//! Functions of a protection domain (`NDKPI 5.3`).

use core::ffi::c_void;

use ndkpi::{
    BOOLEAN, GROUP_AFFINITY, NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW,
    NDK_PD, NDK_QP, NDK_SRQ, NtStatus, Object,
};

use crate::{
    Args, Function, Hooks, Outcome, Phase, QpArgs,
    call::{Create, EventReport, create, slot},
    cq::notified,
    shadow::{EventCallback, find, other},
};

/// `NDK_FN_CREATE_MR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain is open, `out` valid for writing.
pub unsafe extern "system" fn create_mr<H: Hooks>(
    pd: *mut NDK_PD,
    fast: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MR,
) -> NtStatus {
    let call = |inner: *mut NDK_PD, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateMr, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's domain is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, fast, completion, context, out) }
    };
    let how = Create { function: Function::CreateMr, completion, context, out, event: None };
    // SAFETY: `pd` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(pd, Args::CreateMr { fast_register: fast != 0 }, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_MW`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain is open, `out` valid for writing.
pub unsafe extern "system" fn create_mw<H: Hooks>(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MW,
) -> NtStatus {
    let call = |inner: *mut NDK_PD, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateMw, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's domain is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, completion, context, out) }
    };
    let how = Create { function: Function::CreateMw, completion, context, out, event: None };
    // SAFETY: `pd` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(pd, Args::None, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_SRQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain is open, `affinity` null or valid for reading, `out` valid for writing.
pub unsafe extern "system" fn create_srq<H: Hooks>(
    pd: *mut NDK_PD,
    depth: u32,
    max_sge: u32,
    threshold: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SRQ,
) -> NtStatus {
    let call = |inner: *mut NDK_PD, completion, context, out, shadow| {
        let (inner, function) = slot!(inner, NdkCreateSrq, NtStatus::NOT_SUPPORTED);
        let (ours, event_context) = match notification {
            Some(_) => (Some(notified::<H> as NDK_FN_SRQ_NOTIFICATION_CALLBACK), shadow),
            None => (None, notification_context),
        };
        // SAFETY: the provider's domain is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, depth, max_sge, threshold, ours, event_context, affinity, completion, context, out) }
    };
    let args = Args::CreateSrq {
        depth,
        max_sge,
        threshold,
        has_notification: notification.is_some(),
        context: notification_context.addr(),
    };
    let event =
        notification.map(|function| EventCallback { function: function as *const (), context: notification_context });
    let how = Create { function: Function::CreateSrq, completion, context, out, event };
    // SAFETY: `pd` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(pd, args, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_QP`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain and the queues are open, `out` valid for writing.
pub unsafe extern "system" fn create_qp<H: Hooks>(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    receive_sge: u32,
    initiator_sge: u32,
    inline_data: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NtStatus {
    let this = Function::CreateQp;
    // SAFETY: the caller passes open objects.
    let (receive, receive_shadow) = unsafe { other::<H, _>(receive_cq, NDK_CQ::OBJECT_TYPE, this) };
    // SAFETY: `initiator_cq` is open for the call, if it is an object (`# Safety`).
    let (initiator, initiator_shadow) = unsafe { other::<H, _>(initiator_cq, NDK_CQ::OBJECT_TYPE, this) };
    let call = |inner: *mut NDK_PD, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateQp, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
        unsafe {
            function(
                inner,
                receive,
                initiator,
                qp_context,
                receive_depth,
                initiator_depth,
                receive_sge,
                initiator_sge,
                inline_data,
                completion,
                context,
                out,
            )
        }
    };
    let args = Args::CreateQp(QpArgs {
        context: qp_context.addr(),
        receive_depth,
        initiator_depth,
        receive_sge,
        initiator_sge,
        inline_data,
    });
    let how = Create { function: this, completion, context, out, event: None };
    // SAFETY: `pd` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(pd, args, [receive_shadow, initiator_shadow, None], &how, call) }
}

/// `NDK_FN_CREATE_QP_WITH_SRQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain and the queues are open, `out` valid for writing.
pub unsafe extern "system" fn create_qp_with_srq<H: Hooks>(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: *mut c_void,
    initiator_depth: u32,
    initiator_sge: u32,
    inline_data: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NtStatus {
    let this = Function::CreateQpWithSrq;
    // SAFETY: the caller passes open objects.
    let (receive, receive_shadow) = unsafe { other::<H, _>(receive_cq, NDK_CQ::OBJECT_TYPE, this) };
    // SAFETY: `initiator_cq` is open for the call, if it is an object (`# Safety`).
    let (initiator, initiator_shadow) = unsafe { other::<H, _>(initiator_cq, NDK_CQ::OBJECT_TYPE, this) };
    // SAFETY: `srq` is open for the call, if it is an object (`# Safety`).
    let (srq, srq_shadow) = unsafe { other::<H, _>(srq, NDK_SRQ::OBJECT_TYPE, this) };
    let call = |inner: *mut NDK_PD, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateQpWithSrq, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
        unsafe {
            function(
                inner,
                receive,
                initiator,
                srq,
                qp_context,
                initiator_depth,
                initiator_sge,
                inline_data,
                completion,
                context,
                out,
            )
        }
    };
    let args = Args::CreateQp(QpArgs {
        context: qp_context.addr(),
        receive_depth: 0,
        initiator_depth,
        receive_sge: 0,
        initiator_sge,
        inline_data,
    });
    let how = Create { function: this, completion, context, out, event: None };
    // SAFETY: `pd` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(pd, args, [receive_shadow, initiator_shadow, srq_shadow], &how, call) }
}

/// `NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the domain is open, `token` valid for writing.
pub unsafe extern "system" fn get_privileged_token<H: Hooks>(pd: *mut NDK_PD, token: *mut u32) {
    let this = Function::GetPrivilegedMemoryRegionToken;
    // SAFETY: `pd` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(pd, this) }) else { return };
    let mut report = EventReport::new(shadow, this, Args::None);
    let _ = report.tell(Phase::Call, Outcome::None);
    let (inner, function) = slot!(shadow.inner::<NDK_PD>(), NdkGetPrivilegedMemoryRegionToken);
    // SAFETY: the provider's domain is open; the place is the consumer's.
    unsafe { function(inner, token) };
    if token.is_null() {
        report.end(Outcome::None);
        return;
    }
    // SAFETY: not null, and the provider has written it.
    report.end(Outcome::Token(unsafe { token.read() }));
}
