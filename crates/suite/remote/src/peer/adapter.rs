//! Functions of an adapter and a protection domain.

use core::{ffi::c_void, ptr};

use ndkpi::{
    BOOLEAN, FALSE, GROUP_AFFINITY, MDL, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ,
    NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
    NDK_FN_REQUEST_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_LISTENER, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR,
    NDK_MW, NDK_OBJECT_TYPE, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_SHARED_ENDPOINT, NDK_SRQ, NtStatus, SOCKADDR,
};

use super::{
    connecting::{CONNECTOR, ENDPOINT, LISTENER},
    link::Excuse,
    posts::QP,
    proxy::{Outgoing, Own, Proxy, close, flat, named, query_extension},
    queues::{CQ, MR, MW, SRQ},
    request::LamPlaces,
};
use crate::wire::Function;

/// The table of an adapter.
pub static ADAPTER: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension),
    NdkQueryAdapterInfo: Some(query_info),
    NdkCreateCq: Some(create_cq),
    NdkCreatePd: Some(create_pd),
    NdkCreateSharedEndpoint: Some(create_shared_endpoint),
    NdkCreateConnector: Some(create_connector),
    NdkCreateListener: Some(create_listener),
    NdkBuildLAM: Some(build_lam),
    NdkReleaseLAM: Some(release_lam),
};

/// The table of a protection domain.
static PD: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkCreateMr: Some(create_mr),
    NdkCreateMw: Some(create_mw),
    NdkCreateSrq: Some(create_srq),
    NdkCreateQp: Some(create_qp),
    NdkCreateQpWithSrq: Some(create_qp_with_srq),
    NdkGetPrivilegedMemoryRegionToken: Some(privileged_token),
};

unsafe extern "system" fn query_info(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NtStatus {
    if size.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the adapter is open, and the size valid for the call (`NDK_FN_QUERY_ADAPTER_INFO`).
    let (proxy, room) = unsafe { (Proxy::of(adapter), size.read()) };
    if info.is_null() && room > 0 {
        return NtStatus::INVALID_PARAMETER;
    }
    flat(proxy.begin(Function::QueryAdapterInfo).and_then(|call| {
        let answer = call.word(0, room).send()?;
        let stored = answer.word(0) as u32;
        if answer.status().is_success() {
            let count = answer.tail().len().min(stored as usize).min(room as usize);
            // SAFETY: the buffer has `room` bytes, and the answer is not in it.
            unsafe { ptr::copy_nonoverlapping(answer.tail().as_ptr(), info.cast(), count) };
        }
        // SAFETY: the size is valid for the call.
        unsafe { size.write(stored) };
        Ok(answer.status())
    }))
}

/// A notification callback, if there is one.
fn notify(callback: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, context: *mut c_void) -> Own {
    callback.map_or(Own::None, |callback| Own::Notify(callback, context))
}

/// With an affinity, if there is one.
///
/// # Safety
///
/// The pointer is null or valid.
unsafe fn with_affinity(call: Outgoing, first: usize, affinity: *const GROUP_AFFINITY) -> Outgoing {
    // SAFETY: null or valid (`# Safety`).
    let Some(affinity) = (unsafe { affinity.as_ref() }) else { return call };
    call.link.excuse(Excuse::Affinity);
    call.given(1, true).word(first, affinity.Mask as u64).word(first + 1, affinity.Group)
}

unsafe extern "system" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    depth: u32,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_CQ,
) -> NtStatus {
    let own = notify(notification, notification_context);
    // SAFETY: the adapter is open (`NDK_FN_CREATE_CQ`).
    flat(unsafe { Proxy::of(adapter) }.begin(Function::CreateCq).and_then(|call| {
        // SAFETY: the affinity is null or valid for the call.
        let call = unsafe { with_affinity(call.word(0, depth), 1, affinity) };
        // SAFETY: the place is null or valid for the call.
        unsafe { call.given(0, notification.is_some()).create(&CQ, own, completion, context, place) }
    }))
}

unsafe extern "system" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_PD,
) -> NtStatus {
    // SAFETY: the adapter is open (`NDK_FN_CREATE_PD`).
    flat(unsafe { Proxy::of(adapter) }.begin(Function::CreatePd).and_then(|call| {
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&PD, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_shared_endpoint(
    adapter: *mut NDK_ADAPTER,
    address: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_SHARED_ENDPOINT,
) -> NtStatus {
    // SAFETY: the adapter is open (`NDK_FN_CREATE_SHARED_ENDPOINT`).
    flat(unsafe { Proxy::of(adapter) }.begin(Function::CreateSharedEndpoint).and_then(|mut call| {
        // SAFETY: the address is null or good for its length.
        unsafe { super::connecting::append_address(&mut call, address, length) }?;
        // SAFETY: the place is null or valid for the call.
        unsafe { call.word(0, length).create(&ENDPOINT, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_CONNECTOR,
) -> NtStatus {
    // SAFETY: the adapter is open (`NDK_FN_CREATE_CONNECTOR`).
    flat(unsafe { Proxy::of(adapter) }.begin(Function::CreateConnector).and_then(|call| {
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&CONNECTOR, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_LISTENER,
) -> NtStatus {
    let Some(event) = event else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the adapter is open (`NDK_FN_CREATE_LISTENER`).
    flat(unsafe { Proxy::of(adapter) }.begin(Function::CreateListener).and_then(|call| {
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&LISTENER, Own::Connect(event, event_context), completion, context, place) }
    }))
}

unsafe extern "system" fn build_lam(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: usize,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    offset: *mut u32,
) -> NtStatus {
    if mapping.is_null() || size.is_null() || offset.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the adapter is open (`NDK_FN_BUILD_LAM`).
    let proxy = unsafe { Proxy::of(adapter) };
    flat(proxy.begin(Function::BuildLam).and_then(|call| {
        let mirror = proxy.link().mirror(mdl)?;
        proxy.link().tie(&mirror)?;
        // SAFETY: the size is valid until the request has ended.
        let room = unsafe { size.read() };
        let call = call.word(0, mirror.handle()).word(1, length as u64).word(2, room);
        call.request_lam(completion, context, LamPlaces { mapping, size, offset, handle: 0 })
    }))
}

unsafe extern "system" fn release_lam(adapter: *mut NDK_ADAPTER, mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    // SAFETY: the adapter is open, and the mapping was built (`NDK_FN_RELEASE_LAM`): its context is its handle.
    let (proxy, handle) = unsafe { (Proxy::of(adapter), (*mapping).AdapterContext) };
    // What has failed is noted as the reason why the case says nothing.
    let _ = proxy.begin(Function::ReleaseLam).and_then(|call| call.pointer(0, handle).send());
}

unsafe extern "system" fn create_mr(
    pd: *mut NDK_PD,
    fast: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_MR,
) -> NtStatus {
    // SAFETY: the protection domain is open (`NDK_FN_CREATE_MR`).
    flat(unsafe { Proxy::of(pd) }.begin(Function::CreateMr).and_then(|call| {
        // SAFETY: the place is null or valid for the call.
        unsafe { call.given(0, fast != FALSE).create(&MR, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_mw(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_MW,
) -> NtStatus {
    // SAFETY: the protection domain is open (`NDK_FN_CREATE_MW`).
    flat(unsafe { Proxy::of(pd) }.begin(Function::CreateMw).and_then(|call| {
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&MW, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_srq(
    pd: *mut NDK_PD,
    depth: u32,
    entries: u32,
    threshold: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_SRQ,
) -> NtStatus {
    let own = notify(notification, notification_context);
    // SAFETY: the protection domain is open (`NDK_FN_CREATE_SRQ`).
    flat(unsafe { Proxy::of(pd) }.begin(Function::CreateSrq).and_then(|call| {
        let call = call.word(0, depth).word(1, entries).word(2, threshold).given(0, notification.is_some());
        // SAFETY: the affinity is null or valid for the call.
        let call = unsafe { with_affinity(call, 3, affinity) };
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&SRQ, own, completion, context, place) }
    }))
}

unsafe extern "system" fn create_qp(
    pd: *mut NDK_PD,
    receive: *mut NDK_CQ,
    initiator: *mut NDK_CQ,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    receive_entries: u32,
    initiator_entries: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_QP,
) -> NtStatus {
    // SAFETY: the protection domain is open (`NDK_FN_CREATE_QP`).
    let proxy = unsafe { Proxy::of(pd) };
    flat(proxy.begin(Function::CreateQp).and_then(|call| {
        let queue = |queue| named(proxy.link(), queue, &[NDK_OBJECT_TYPE::CQ]);
        let call = call.antecedent(0, queue(receive)?).antecedent(1, queue(initiator)?).pointer(2, qp_context);
        let call = call.word(3, receive_depth).word(4, initiator_depth);
        let call = call.word(5, receive_entries).word(6, initiator_entries).word(7, inline);
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&QP, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn create_qp_with_srq(
    pd: *mut NDK_PD,
    receive: *mut NDK_CQ,
    initiator: *mut NDK_CQ,
    shared: *mut NDK_SRQ,
    qp_context: *mut c_void,
    initiator_depth: u32,
    initiator_entries: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    place: *mut *mut NDK_QP,
) -> NtStatus {
    // SAFETY: the protection domain is open (`NDK_FN_CREATE_QP_WITH_SRQ`).
    let proxy = unsafe { Proxy::of(pd) };
    flat(proxy.begin(Function::CreateQpWithSrq).and_then(|call| {
        let queue = |queue| named(proxy.link(), queue, &[NDK_OBJECT_TYPE::CQ]);
        let shared = named(proxy.link(), shared, &[NDK_OBJECT_TYPE::SRQ])?;
        let call = call.antecedent(0, queue(receive)?).antecedent(1, queue(initiator)?).pointer(2, qp_context);
        let call = call.word(3, initiator_depth).word(4, initiator_entries).word(5, inline).antecedent(8, shared);
        // SAFETY: the place is null or valid for the call.
        unsafe { call.create(&QP, Own::None, completion, context, place) }
    }))
}

unsafe extern "system" fn privileged_token(pd: *mut NDK_PD, token: *mut u32) {
    if token.is_null() {
        return;
    }
    // SAFETY: the protection domain is open (`NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN`).
    let proxy = unsafe { Proxy::of(pd) };
    let asked = proxy.begin(Function::PrivilegedToken).and_then(|call| {
        let token = call.send()?.word(0) as u32;
        // Logical addresses are those of the other machine.
        proxy.link().note_token(token, proxy.cookie(), 0)?;
        Ok(token)
    });
    // SAFETY: the place is valid for the call. What has failed is noted as the reason why the case says nothing.
    unsafe { token.write(asked.unwrap_or_default()) };
}
