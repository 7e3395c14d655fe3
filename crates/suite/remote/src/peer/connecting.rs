//! Functions of connectors, listeners and shared endpoints.

use core::{ffi::c_void, mem, ptr};

use ndkpi::{
    BOOLEAN, FALSE, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH,
    NDK_OBJECT_TYPE, NDK_QP, NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NtStatus, SOCKADDR,
};

use super::{
    link::Excuse,
    proxy::{Outgoing, Own, Proxy, close, flat, named, query_extension},
};
use crate::wire::{ANSWER_TAIL, Function};

/// The table of a connector.
pub static CONNECTOR: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkConnect: Some(connect),
    NdkConnectWithSharedEndpoint: Some(connect_with_shared_endpoint),
    NdkCompleteConnect: Some(complete_connect),
    NdkAccept: Some(accept),
    NdkReject: Some(reject),
    NdkGetConnectionData: Some(connection_data),
    NdkGetLocalAddress: Some(local_address),
    NdkGetPeerAddress: Some(peer_address),
    NdkDisconnect: Some(disconnect),
    NdkCompleteConnectEx: Some(complete_connect_ex),
    NdkAcceptEx: Some(accept_ex),
};

/// The table of a listener.
pub static LISTENER: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(local_address),
    NdkControlConnectEvents: Some(control_connect_events),
};

/// The table of a shared endpoint.
pub static ENDPOINT: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkGetLocalAddress: Some(local_address),
};

/// The bytes of an address or of private data at most.
const MOST: u32 = 512;

/// Appends bytes that a consumer gives by pointer and length.
///
/// # Safety
///
/// The pointer is null or good for the length.
unsafe fn append(call: &mut Outgoing, bytes: *const u8, length: u32) -> Result<(), NtStatus> {
    if length == 0 {
        return Ok(());
    }
    if bytes.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if length > MOST {
        call.link.excuse(Excuse::TooLong);
        return Err(NtStatus::NOT_SUPPORTED);
    }
    // SAFETY: the bytes can be read (`# Safety`), and do not change during the call.
    call.append(unsafe { core::slice::from_raw_parts(bytes, length as usize) })
}

/// Appends an address.
///
/// # Safety
///
/// The pointer is null or good for the length.
pub unsafe fn append_address(call: &mut Outgoing, address: *const SOCKADDR, length: u32) -> Result<(), NtStatus> {
    if address.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: as the caller promises.
    unsafe { append(call, address.cast(), length) }
}

unsafe extern "system" fn connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    from: *const SOCKADDR,
    from_length: u32,
    to: *const SOCKADDR,
    to_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_CONNECT`).
    let proxy = unsafe { Proxy::of(connector) };
    flat(proxy.begin(Function::Connect).and_then(|mut call| {
        let qp = named(proxy.link(), qp, &[NDK_OBJECT_TYPE::QP])?;
        // SAFETY: the addresses and the data are null or good for their lengths.
        unsafe {
            append_address(&mut call, from, from_length)?;
            append_address(&mut call, to, to_length)?;
            append(&mut call, data.cast(), data_length)?;
        }
        proxy.depend_on(qp.cookie);
        let call = call.word(0, qp.handle).word(2, inbound).word(3, outbound);
        let call = call.word(4, from_length).word(5, to_length);
        call.word(6, data_length).given(0, !data.is_null()).request(completion, context)
    }))
}

unsafe extern "system" fn connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    to: *const SOCKADDR,
    to_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_CONNECT_WITH_SHARED_ENDPOINT`).
    let proxy = unsafe { Proxy::of(connector) };
    flat(proxy.begin(Function::ConnectWithSharedEndpoint).and_then(|mut call| {
        let qp = named(proxy.link(), qp, &[NDK_OBJECT_TYPE::QP])?;
        let endpoint = named(proxy.link(), endpoint, &[NDK_OBJECT_TYPE::SHARED_ENDPOINT])?;
        // SAFETY: the address and the data are null or good for their lengths.
        unsafe {
            append_address(&mut call, to, to_length)?;
            append(&mut call, data.cast(), data_length)?;
        }
        proxy.depend_on(qp.cookie);
        proxy.depend_on(endpoint.cookie);
        let call = call.word(0, qp.handle).word(1, endpoint.handle).word(2, inbound).word(3, outbound);
        let call = call.word(5, to_length);
        call.word(6, data_length).given(0, !data.is_null()).request(completion, context)
    }))
}

/// Makes a request whose connection tells its end by `own`. If it is refused at once, what told it before stays.
fn with_event(
    proxy: &Proxy,
    call: Outgoing,
    own: Own,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> Result<NtStatus, NtStatus> {
    let link = call.link.clone();
    let ends = link.may_wait()?;
    let call = call.given(1, !matches!(own, Own::None)).word(7, proxy.cookie());
    let before = mem::replace(&mut *proxy.own().lock(ends.platform()), own);
    let outcome = call.request(completion, context);
    // A request that pends may have ended by now, and the connector may be closed.
    if outcome != Ok(NtStatus::PENDING) && !outcome.is_ok_and(NtStatus::is_success) {
        *proxy.own().lock(ends.platform()) = before;
    }
    outcome
}

fn plain(event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, context: *mut c_void) -> Own {
    event.map_or(Own::None, |event| Own::Disconnect(event, context))
}

fn with_reason(event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, context: *mut c_void) -> Own {
    event.map_or(Own::None, |event| Own::DisconnectEx(event, context))
}

unsafe extern "system" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_COMPLETE_CONNECT`).
    let proxy = unsafe { Proxy::of(connector) };
    let call = proxy.begin(Function::CompleteConnect);
    flat(call.and_then(|call| with_event(proxy, call, plain(event, event_context), completion, context)))
}

unsafe extern "system" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_COMPLETE_CONNECT_EX`).
    let proxy = unsafe { Proxy::of(connector) };
    let call = proxy.begin(Function::CompleteConnectEx);
    flat(call.and_then(|call| with_event(proxy, call, with_reason(event, event_context), completion, context)))
}

/// What an accept consists of, but for its event and completion.
struct Acceptance {
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    length: u32,
}

impl Acceptance {
    /// The call.
    ///
    /// # Safety
    ///
    /// The data is null or good for its length.
    unsafe fn call(&self, proxy: &Proxy, function: Function) -> Result<Outgoing, NtStatus> {
        let mut call = proxy.begin(function)?;
        let qp = named(proxy.link(), self.qp, &[NDK_OBJECT_TYPE::QP])?;
        // SAFETY: as the caller promises.
        unsafe { append(&mut call, self.data.cast(), self.length) }?;
        proxy.depend_on(qp.cookie);
        let call = call.word(0, qp.handle).word(2, self.inbound).word(3, self.outbound).word(6, self.length);
        Ok(call.given(0, !self.data.is_null()))
    }
}

unsafe extern "system" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_ACCEPT`).
    let proxy = unsafe { Proxy::of(connector) };
    // SAFETY: the data is null or good for its length.
    let call = unsafe { Acceptance { qp, inbound, outbound, data, length }.call(proxy, Function::Accept) };
    flat(call.and_then(|call| with_event(proxy, call, plain(event, event_context), completion, context)))
}

unsafe extern "system" fn accept_ex(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_ACCEPT_EX`).
    let proxy = unsafe { Proxy::of(connector) };
    // SAFETY: the data is null or good for its length.
    let call = unsafe { Acceptance { qp, inbound, outbound, data, length }.call(proxy, Function::AcceptEx) };
    flat(call.and_then(|call| with_event(proxy, call, with_reason(event, event_context), completion, context)))
}

unsafe extern "system" fn reject(connector: *mut NDK_CONNECTOR, data: *const c_void, length: u32) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_REJECT`).
    flat(unsafe { Proxy::of(connector) }.begin(Function::Reject).and_then(|mut call| {
        // SAFETY: the data is null or good for its length.
        unsafe { append(&mut call, data.cast(), length) }?;
        Ok(call.word(6, length).given(0, !data.is_null()).send()?.status())
    }))
}

unsafe extern "system" fn connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    data: *mut c_void,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_GET_CONNECTION_DATA`).
    flat(unsafe { Proxy::of(connector) }.begin(Function::ConnectionData).and_then(|call| {
        // SAFETY: the length is null or valid for the call.
        let room = unsafe { length.as_ref() }.copied().unwrap_or_default();
        if room as usize > ANSWER_TAIL {
            call.link.excuse(Excuse::TooLong);
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let call = call.word(0, room).given(0, !inbound.is_null()).given(1, !outbound.is_null());
        let answer = call.given(2, !data.is_null()).given(3, !length.is_null()).send()?;
        for (place, index) in [(inbound, 0), (outbound, 1), (length, 2)] {
            // SAFETY: the place is null or valid for the call.
            if let Some(place) = unsafe { place.as_mut() } {
                *place = answer.word(index) as u32;
            }
        }
        if !data.is_null() {
            let count = answer.tail().len().min(room as usize);
            // SAFETY: the buffer has `room` bytes, and the answer is not in it.
            unsafe { ptr::copy_nonoverlapping(answer.tail().as_ptr(), data.cast(), count) };
        }
        Ok(answer.status())
    }))
}

/// Asks for an address.
///
/// # Safety
///
/// `object` is open; the length is null or valid, and the address null or good for it.
unsafe fn address<T>(object: *mut T, function: Function, place: *mut SOCKADDR, length: *mut u32) -> NtStatus {
    if length.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the object is open (`# Safety`).
    flat(unsafe { Proxy::of(object) }.begin(function).and_then(|call| {
        // SAFETY: the length is valid (`# Safety`).
        let room = unsafe { length.read() };
        let answer = call.word(0, room).given(0, !place.is_null()).send()?;
        // SAFETY: the length is valid for writing too (`# Safety`).
        unsafe { length.write(answer.word(0) as u32) };
        if !place.is_null() && answer.status().is_success() {
            let count = answer.tail().len().min(room as usize).min(answer.word(0) as usize);
            // SAFETY: the address has `room` bytes (`# Safety`), and the answer is not in it.
            unsafe { ptr::copy_nonoverlapping(answer.tail().as_ptr(), place.cast(), count) };
        }
        Ok(answer.status())
    }))
}

unsafe extern "system" fn local_address<T>(object: *mut T, place: *mut SOCKADDR, length: *mut u32) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_GET_LOCAL_ADDRESS` and its like).
    unsafe { address(object, Function::LocalAddress, place, length) }
}

unsafe extern "system" fn peer_address(
    connector: *mut NDK_CONNECTOR,
    place: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_GET_PEER_ADDRESS`).
    unsafe { address(connector, Function::PeerAddress, place, length) }
}

unsafe extern "system" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the connector is open (`NDK_FN_DISCONNECT`).
    let call = unsafe { Proxy::of(connector) }.begin(Function::Disconnect);
    flat(call.and_then(|call| call.request(completion, context)))
}

unsafe extern "system" fn listen(
    listener: *mut NDK_LISTENER,
    at: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the listener is open (`NDK_FN_LISTEN`).
    flat(unsafe { Proxy::of(listener) }.begin(Function::Listen).and_then(|mut call| {
        // SAFETY: the address is null or good for its length.
        unsafe { append_address(&mut call, at, length) }?;
        call.word(0, length).request(completion, context)
    }))
}

unsafe extern "system" fn control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: the listener is open (`NDK_FN_CONTROL_CONNECT_EVENTS`). What has failed is noted as the reason why the case says
    // nothing.
    let _ = unsafe { Proxy::of(listener) }
        .begin(Function::ControlConnectEvents)
        .and_then(|call| call.given(0, pause != FALSE).send());
}
