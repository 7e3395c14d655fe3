//! Functions of an adapter (`NDKPI 5.2`).

use core::ffi::c_void;

use ndkpi::{
    GROUP_AFFINITY, MDL, NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ, NDK_FN_CONNECT_EVENT_CALLBACK,
    NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER,
    NDK_LOGICAL_ADDRESS_MAPPING, NDK_PD, NDK_SHARED_ENDPOINT, NtStatus, SOCKADDR,
};

use crate::{
    Args, Function, Hooks, OutArgs, Outcome, Phase,
    call::{Create, EventReport, create, request, slot},
    connect::address,
    connector::behind,
    cq::notified,
    listener::connection_came,
    shadow::{EventCallback, find},
};

/// `NDK_FN_QUERY_ADAPTER_INFO`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, `size` valid, the buffer as long as it says.
pub unsafe extern "system" fn query_info<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NtStatus {
    // SAFETY: `adapter` is open for the call (`# Safety`).
    let shadow = match unsafe { find::<H, _>(adapter, Function::QueryAdapterInfo) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    // SAFETY: null or valid (`# Safety`).
    let out = OutArgs { buffer: info.addr(), length: unsafe { behind(size) } };
    let mut report = EventReport::new(shadow, Function::QueryAdapterInfo, Args::QueryAdapterInfo { out, info: None });
    if let Err(status) = report.begin() {
        return status;
    }
    let (inner, function) = slot!(shadow.inner::<NDK_ADAPTER>(), NdkQueryAdapterInfo, NtStatus::NOT_SUPPORTED);
    // SAFETY: the provider's adapter is open; the rest is the consumer's.
    let status = unsafe { function(inner, info, size) };
    // SAFETY: `size` is null or valid for reading (`# Safety`).
    let out = OutArgs { buffer: info.addr(), length: unsafe { behind(size) } };
    let is_whole = status.is_success() && out.length.is_some_and(|size| size as usize >= size_of::<NDK_ADAPTER_INFO>());
    // SAFETY: the provider says that it has stored a whole one; the buffer does not change before this returns.
    let stored = if is_whole { unsafe { info.cast_const().as_ref() } } else { None };
    report.end_with(Args::QueryAdapterInfo { out, info: stored }, Outcome::Status(status));
    status
}

/// `NDK_FN_CREATE_CQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, `affinity` null or valid for reading, `out` valid for writing.
pub unsafe extern "system" fn create_cq<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    depth: u32,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CQ,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context, out, shadow| {
        let (inner, function) = slot!(inner, NdkCreateCq, NtStatus::NOT_SUPPORTED);
        let (ours, event_context) = match notification {
            Some(_) => (Some(notified::<H> as NDK_FN_CQ_NOTIFICATION_CALLBACK), shadow),
            None => (None, notification_context),
        };
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, depth, ours, event_context, affinity, completion, context, out) }
    };
    // SAFETY: null or valid for reading (`# Safety`).
    let affinity = unsafe { affinity.as_ref() }.copied();
    let args = Args::CreateCq {
        depth,
        has_notification: notification.is_some(),
        notification: notification.map_or(0, |function| (function as *const ()).addr()),
        context: notification_context.addr(),
        affinity,
    };
    let event =
        notification.map(|function| EventCallback { function: function as *const (), context: notification_context });
    let how = Create { function: Function::CreateCq, completion, context, out, event };
    // SAFETY: `adapter` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(adapter, args, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_PD`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, `out` valid for writing.
pub unsafe extern "system" fn create_pd<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_PD,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreatePd, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, completion, context, out) }
    };
    let how = Create { function: Function::CreatePd, completion, context, out, event: None };
    // SAFETY: `adapter` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(adapter, Args::None, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_CONNECTOR`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, `out` valid for writing.
pub unsafe extern "system" fn create_connector<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CONNECTOR,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateConnector, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, completion, context, out) }
    };
    let how = Create { function: Function::CreateConnector, completion, context, out, event: None };
    // SAFETY: `adapter` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(adapter, Args::None, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_SHARED_ENDPOINT`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, the address valid for the call, `out` valid for writing.
pub unsafe extern "system" fn create_shared_endpoint<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    local: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context, out, _| {
        let (inner, function) = slot!(inner, NdkCreateSharedEndpoint, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, local, length, completion, context, out) }
    };
    // SAFETY: valid for the call.
    let args = Args::CreateSharedEndpoint { address: unsafe { address(local, length) } };
    let how = Create { function: Function::CreateSharedEndpoint, completion, context, out, event: None };
    // SAFETY: `adapter` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(adapter, args, [None; 3], &how, call) }
}

/// `NDK_FN_CREATE_LISTENER`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, `out` valid for writing.
pub unsafe extern "system" fn create_listener<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_LISTENER,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context, out, shadow| {
        let (inner, function) = slot!(inner, NdkCreateListener, NtStatus::NOT_SUPPORTED);
        let (ours, event_context) = match event {
            Some(_) => (Some(connection_came::<H> as NDK_FN_CONNECT_EVENT_CALLBACK), shadow),
            None => (None, event_context),
        };
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, ours, event_context, completion, context, out) }
    };
    let args = Args::CreateListener { has_event: event.is_some(), context: event_context.addr() };
    let event = event.map(|function| EventCallback { function: function as *const (), context: event_context });
    let how = Create { function: Function::CreateListener, completion, context, out, event };
    // SAFETY: `adapter` is open for the call, and `out` valid for writing (`# Safety`).
    unsafe { create::<H, _, _>(adapter, args, [None; 3], &how, call) }
}

/// `NDK_FN_BUILD_LAM`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, the MDL describes pinned memory, the places are valid until the completion.
pub unsafe extern "system" fn build_lam<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: usize,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    first_byte: *mut u32,
) -> NtStatus {
    let call = |inner: *mut NDK_ADAPTER, completion, context| {
        let (inner, function) = slot!(inner, NdkBuildLAM, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's adapter is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, mdl, length, completion, context, mapping, size, first_byte) }
    };
    let args = Args::BuildLam {
        mdl: mdl.addr(),
        length,
        mapping: mapping.addr(),
        // SAFETY: null or valid (`# Safety`).
        size: unsafe { behind(size) },
    };
    // SAFETY: `adapter` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(adapter, Function::BuildLam, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_RELEASE_LAM`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the adapter is open, the mapping is one of it.
pub unsafe extern "system" fn release_lam<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
) {
    // SAFETY: `adapter` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(adapter, Function::ReleaseLam) }) else { return };
    // SAFETY: null or a mapping of the consumer (`# Safety`).
    let pages = unsafe { mapping.as_ref() }.map_or(0, |mapping| mapping.AdapterPageCount);
    let mut report =
        EventReport::new(shadow, Function::ReleaseLam, Args::ReleaseLam { mapping: mapping.addr(), pages });
    let _ = report.tell(Phase::Call, Outcome::None);
    let (inner, function) = slot!(shadow.inner::<NDK_ADAPTER>(), NdkReleaseLAM);
    // SAFETY: the provider's adapter is open; the mapping is the consumer's.
    unsafe { function(inner, mapping) };
    report.end(Outcome::None);
}
