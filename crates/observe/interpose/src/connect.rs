//! The functions of a connector that establish and end a connection (`NDKPI 5.8`).

use core::{ffi::c_void, net::SocketAddr, slice};

use ndkpi::{
    NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION,
    NDK_QP, NDK_SHARED_ENDPOINT, NtStatus, Object, SOCKADDR, SOCKADDR_INET,
};

use crate::{
    Args, ConnectArgs, Endpoints, Function, Hooks, Outcome, Phase,
    call::{EventReport, immediate, request, slot},
    later::{Later, Work},
    request::{DisconnectCallback, DisconnectEvent},
    shadow::{Shadow, ShadowRef, find, open, other},
};

/// The longest address that events show, in bytes: that of `SOCKADDR_STORAGE`.
const LONGEST_ADDRESS: u32 = 128;

/// The most private data that events show, in bytes.
const LONGEST_DATA: u32 = 512;

/// Bytes of the consumer, if there are any and not more than `most`.
///
/// # Safety
///
/// `bytes` is null or valid for reading `length` bytes during the call.
unsafe fn bytes<'a>(bytes: *const c_void, length: u32, most: u32) -> &'a [u8] {
    if bytes.is_null() || length == 0 || length > most {
        return &[];
    }
    // SAFETY: not null, and valid for reading (`# Safety`).
    unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length as usize) }
}

/// An address of the consumer.
///
/// # Safety
///
/// As [`bytes`].
pub unsafe fn address<'a>(address: *const SOCKADDR, length: u32) -> &'a [u8] {
    // SAFETY: the bytes are there, as many as `length` says, during the call (`# Safety`).
    unsafe { bytes(address.cast(), length, LONGEST_ADDRESS) }
}

/// Private data of the consumer.
///
/// # Safety
///
/// As [`bytes`].
unsafe fn private<'a>(data: *const c_void, length: u32) -> &'a [u8] {
    // SAFETY: the bytes are there, as many as `length` says, during the call (`# Safety`).
    unsafe { bytes(data, length, LONGEST_DATA) }
}

/// One of the two addresses of a connector, without what only one side knows of it: the scope.
fn endpoint(ask: impl FnOnce(*mut SOCKADDR, *mut u32) -> NtStatus) -> Option<SocketAddr> {
    let mut buffer = SOCKADDR_INET::UNSPECIFIED;
    let mut length = u32::try_from(size_of_val(&buffer)).ok()?;
    if !ask((&raw mut buffer).cast(), &raw mut length).is_success() {
        return None;
    }
    let address = buffer.to_socket_addr()?;
    Some(SocketAddr::new(address.ip(), address.port()))
}

/// Between whom the connection of this connector is, for hooks that ask.
///
/// # Safety
///
/// `connector` is open.
unsafe fn ends<H: Hooks>(connector: *mut NDK_CONNECTOR) -> Option<Endpoints> {
    if !H::PAIRS {
        return None;
    }
    // SAFETY: `connector` is open for the call (`# Safety`).
    let shadow = unsafe { open::<H, _>(connector) }?;
    let local = endpoint(|buffer, length| {
        let (inner, function) = slot!(shadow.inner::<NDK_CONNECTOR>(), NdkGetLocalAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open, the buffer as long as the length says.
        unsafe { function(inner, buffer, length) }
    })?;
    let peer = endpoint(|buffer, length| {
        let (inner, function) = slot!(shadow.inner::<NDK_CONNECTOR>(), NdkGetPeerAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open, and the buffer as long as the length says.
        unsafe { function(inner, buffer, length) }
    })?;
    Some(Endpoints { local, peer })
}

/// `NDK_FN_CONNECT`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the objects are open, addresses and data valid for the call.
pub unsafe extern "system" fn connect<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    from: *const SOCKADDR,
    from_length: u32,
    to: *const SOCKADDR,
    to_length: u32,
    inbound_reads: u32,
    outbound_reads: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the caller passes open objects.
    let (qp, qp_shadow) = unsafe { other::<H, _>(qp, NDK_QP::OBJECT_TYPE, Function::Connect) };
    let args = Args::Connect(ConnectArgs {
        // SAFETY: valid for the call.
        local: unsafe { address(from, from_length) },
        // SAFETY: `to` is null or valid for reading `to_length` bytes during the call (`# Safety`).
        remote: unsafe { address(to, to_length) },
        inbound_reads,
        outbound_reads,
        // SAFETY: `data` is null or valid for reading `data_length` bytes during the call (`# Safety`).
        private_data: unsafe { private(data, data_length) },
        private_data_length: data_length,
        has_disconnect_event: false,
        ends: None,
    });
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        let (inner, function) = slot!(inner, NdkConnect, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
        unsafe {
            function(
                inner,
                qp,
                from,
                from_length,
                to,
                to_length,
                inbound_reads,
                outbound_reads,
                data,
                data_length,
                completion,
                context,
            )
        }
    };
    let related = [qp_shadow, None, None];
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, Function::Connect, args, related, completion, context, call) }
}

/// `NDK_FN_CONNECT_WITH_SHARED_ENDPOINT`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn connect_with_shared_endpoint<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    to: *const SOCKADDR,
    to_length: u32,
    inbound_reads: u32,
    outbound_reads: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let this = Function::ConnectWithSharedEndpoint;
    // SAFETY: the caller passes open objects.
    let (qp, qp_shadow) = unsafe { other::<H, _>(qp, NDK_QP::OBJECT_TYPE, this) };
    // SAFETY: `endpoint` is open for the call, if it is an object (`# Safety`).
    let (endpoint, shadow) = unsafe { other::<H, _>(endpoint, NDK_SHARED_ENDPOINT::OBJECT_TYPE, this) };
    let args = Args::Connect(ConnectArgs {
        local: &[],
        // SAFETY: valid for the call.
        remote: unsafe { address(to, to_length) },
        inbound_reads,
        outbound_reads,
        // SAFETY: `data` is null or valid for reading `data_length` bytes during the call (`# Safety`).
        private_data: unsafe { private(data, data_length) },
        private_data_length: data_length,
        has_disconnect_event: false,
        ends: None,
    });
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        let (inner, function) = slot!(inner, NdkConnectWithSharedEndpoint, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
        unsafe {
            function(
                inner,
                qp,
                endpoint,
                to,
                to_length,
                inbound_reads,
                outbound_reads,
                data,
                data_length,
                completion,
                context,
            )
        }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, this, args, [qp_shadow, shadow, None], completion, context, call) }
}

/// Calls the provider with a place for the disconnect event, which is free again if the call fails at once.
///
/// # Safety
///
/// `connector` is open.
unsafe fn with_event<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    function: Function,
    event: Option<DisconnectCallback>,
    context: *mut c_void,
    call: impl FnOnce(*mut c_void) -> NtStatus,
) -> NtStatus {
    let Some(event) = event else { return call(context) };
    // SAFETY: `connector` is open for the call (`# Safety`).
    let found = match unsafe { find::<H, _>(connector, function) } {
        Ok(found) => found,
        Err(status) => return status,
    };
    // SAFETY: the shadow is open. The place must not go before it is free again.
    let shadow = unsafe { found.hold() };
    let place = match DisconnectEvent::try_new(&shadow, event, context) {
        Ok(place) => place,
        Err(status) => return status,
    };
    let status = call(place.cast());
    if status != NtStatus::PENDING && !status.is_success() {
        // SAFETY: the place is the shadow's, which is held; the provider has refused it.
        unsafe { DisconnectEvent::unused(place) };
    }
    status
}

/// `NDK_FN_COMPLETE_CONNECT`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn complete_connect<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let this = Function::CompleteConnect;
    // SAFETY: the connector is open.
    let ends = unsafe { ends::<H>(connector) };
    let args = Args::Connect(ConnectArgs { has_disconnect_event: event.is_some(), ends, ..ConnectArgs::default() });
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        let (inner, function) = slot!(inner, NdkCompleteConnect, NtStatus::NOT_SUPPORTED);
        let ours = event.map(|_| disconnected::<H> as NDK_FN_DISCONNECT_EVENT_CALLBACK);
        let call = |place| {
            // SAFETY: the provider's object is open; the rest is the consumer's or this layer's.
            unsafe { function(inner, ours, place, completion, context) }
        };
        // SAFETY: the connector is open.
        unsafe { with_event::<H>(connector, this, event.map(DisconnectCallback::Plain), event_context, call) }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, this, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_COMPLETE_CONNECT_EX`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn complete_connect_ex<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let this = Function::CompleteConnectEx;
    // SAFETY: the connector is open.
    let ends = unsafe { ends::<H>(connector) };
    let args = Args::Connect(ConnectArgs { has_disconnect_event: event.is_some(), ends, ..ConnectArgs::default() });
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        // SAFETY: the provider's object is open.
        let Some(function) = (unsafe { NDK_CONNECTOR::complete_connect_ex(inner) }) else {
            return NtStatus::NOT_SUPPORTED;
        };
        let ours = event.map(|_| disconnected_ex::<H> as NDK_FN_DISCONNECT_EVENT_CALLBACK_EX);
        let call = |place| {
            // SAFETY: the provider's object is open; the rest is the consumer's or this layer's.
            unsafe { function(inner, ours, place, completion, context) }
        };
        // SAFETY: the connector is open.
        unsafe { with_event::<H>(connector, this, event.map(DisconnectCallback::Ex), event_context, call) }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, this, args, [None; 3], completion, context, call) }
}

/// What an accept carries.
///
/// # Safety
///
/// The data is valid for the call.
unsafe fn accept_args<'a>(
    reads: [u32; 2],
    data: *const c_void,
    length: u32,
    has_event: bool,
    ends: Option<Endpoints>,
) -> Args<'a> {
    Args::Connect(ConnectArgs {
        local: &[],
        remote: &[],
        inbound_reads: reads[0],
        outbound_reads: reads[1],
        // SAFETY: `data` is null or valid for reading `length` bytes during the call (`# Safety`).
        private_data: unsafe { private(data, length) },
        private_data_length: length,
        has_disconnect_event: has_event,
        ends,
    })
}

/// `NDK_FN_ACCEPT`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn accept<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound_reads: u32,
    outbound_reads: u32,
    data: *const c_void,
    data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let this = Function::Accept;
    // SAFETY: the caller passes open objects.
    let (qp, qp_shadow) = unsafe { other::<H, _>(qp, NDK_QP::OBJECT_TYPE, this) };
    // SAFETY: the connector is open.
    let ends = unsafe { ends::<H>(connector) };
    // SAFETY: the data is valid for the call.
    let args = unsafe { accept_args([inbound_reads, outbound_reads], data, data_length, event.is_some(), ends) };
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        let (inner, function) = slot!(inner, NdkAccept, NtStatus::NOT_SUPPORTED);
        let ours = event.map(|_| disconnected::<H> as NDK_FN_DISCONNECT_EVENT_CALLBACK);
        let call = |place| {
            // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
            unsafe {
                function(inner, qp, inbound_reads, outbound_reads, data, data_length, ours, place, completion, context)
            }
        };
        // SAFETY: the connector is open.
        unsafe { with_event::<H>(connector, this, event.map(DisconnectCallback::Plain), event_context, call) }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, this, args, [qp_shadow, None, None], completion, context, call) }
}

/// `NDK_FN_ACCEPT_EX`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn accept_ex<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound_reads: u32,
    outbound_reads: u32,
    data: *const c_void,
    data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let this = Function::AcceptEx;
    // SAFETY: the caller passes open objects.
    let (qp, qp_shadow) = unsafe { other::<H, _>(qp, NDK_QP::OBJECT_TYPE, this) };
    // SAFETY: the connector is open.
    let ends = unsafe { ends::<H>(connector) };
    // SAFETY: the data is valid for the call.
    let args = unsafe { accept_args([inbound_reads, outbound_reads], data, data_length, event.is_some(), ends) };
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        // SAFETY: the provider's object is open.
        let Some(function) = (unsafe { NDK_CONNECTOR::accept_ex(inner) }) else { return NtStatus::NOT_SUPPORTED };
        let ours = event.map(|_| disconnected_ex::<H> as NDK_FN_DISCONNECT_EVENT_CALLBACK_EX);
        let call = |place| {
            // SAFETY: the provider's objects are open; the rest is the consumer's or this layer's.
            unsafe {
                function(inner, qp, inbound_reads, outbound_reads, data, data_length, ours, place, completion, context)
            }
        };
        // SAFETY: the connector is open.
        unsafe { with_event::<H>(connector, this, event.map(DisconnectCallback::Ex), event_context, call) }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, this, args, [qp_shadow, None, None], completion, context, call) }
}

/// `NDK_FN_REJECT`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn reject<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    data: *const c_void,
    data_length: u32,
) -> NtStatus {
    // SAFETY: the data is valid for the call.
    let args = unsafe { accept_args([0; 2], data, data_length, false, None) };
    let call = |inner: *mut NDK_CONNECTOR| {
        let (inner, function) = slot!(inner, NdkReject, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the data is the consumer's.
        unsafe { function(inner, data, data_length) }
    };
    // SAFETY: `connector` is open for the call (`# Safety`).
    unsafe { immediate::<H, _>(connector, Function::Reject, args, call) }
}

/// `NDK_FN_DISCONNECT`.
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn disconnect<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_CONNECTOR, completion, context| {
        // SAFETY: the connector is open.
        let shadow = unsafe { find::<H, _>(connector, Function::Disconnect) };
        let ending = shadow.ok().and_then(Shadow::ending);
        if ending.is_some_and(|ending| !ending.consumer_disconnects()) {
            return NtStatus::CONNECTION_ABORTED;
        }
        let (inner, function) = slot!(inner, NdkDisconnect, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, completion, context) }
    };
    // SAFETY: `connector` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(connector, Function::Disconnect, Args::None, [None; 3], completion, context, call) }
}

/// The provider says that a connection has ended.
///
/// # Safety
///
/// `context` is a [`DisconnectEvent`] of a connector whose close has not completed.
unsafe fn event<H: Hooks>(context: *mut c_void, function: Function, reason: u32) {
    // SAFETY: the provider calls back before the close has completed, and the place lives as long as the shadow.
    let (place, shadow) = unsafe {
        let place = &*context.cast_const().cast::<DisconnectEvent<H>>();
        (place, (*place.shadow).hold())
    };
    if !place.comes() {
        return;
    }
    if H::INTERFERES {
        let delay = shadow.root.hooks.delay(function, shadow.object_ref());
        let work = Work::Disconnect { connector: shadow.clone(), place: context, function, reason };
        if delay != 0 && Later::put(place.later.as_ref(), delay, work).is_ok() {
            return;
        }
    }
    // SAFETY: `context` is the event of this connector, whose close has not completed (`# Safety`).
    unsafe { deliver_disconnect::<H>(&shadow, context, function, reason) };
}

/// Tells the consumer that its connection has ended.
///
/// # Safety
///
/// `place` is a [`DisconnectEvent`] of this connector.
pub unsafe fn deliver_disconnect<H: Hooks>(shadow: &ShadowRef<H>, place: *mut c_void, function: Function, reason: u32) {
    // SAFETY: the place lives as long as the shadow.
    let place = unsafe { &*place.cast_const().cast::<DisconnectEvent<H>>() };
    let (callback, context) = place.callback.get();
    let mut report = EventReport::new(shadow, function, Args::Event { context: context.addr(), reason });
    report.tell(Phase::Callback, Outcome::None);
    match callback {
        // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
        DisconnectCallback::Plain(callback) => unsafe { callback(context) },
        // SAFETY: the consumer's callback with its context (`NDKPI 6`), of the later version; no lock is held.
        DisconnectCallback::Ex(callback) => unsafe { callback(context, reason) },
    }
    report.tell(Phase::CallbackReturn, Outcome::None);
}

/// Tells the consumer of an end that the provider does not tell of, unless it was told before.
pub fn tell_disconnect<H: Hooks>(shadow: &ShadowRef<H>) {
    let Some(place) = DisconnectEvent::of(shadow) else { return };
    // SAFETY: the place lives as long as the shadow.
    let event = unsafe { &*place };
    if !event.comes() {
        return;
    }
    let function = match event.callback.get().0 {
        DisconnectCallback::Plain(_) => Function::DisconnectEvent,
        DisconnectCallback::Ex(_) => Function::DisconnectEventEx,
    };
    // SAFETY: the place is one of this connector.
    unsafe { deliver_disconnect::<H>(shadow, place.cast(), function, 0) };
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// As [`event`].
unsafe extern "system" fn disconnected<H: Hooks>(context: *mut c_void) {
    // SAFETY: `context` is the event of a connector whose close has not completed (`# Safety`).
    unsafe { event::<H>(context, Function::DisconnectEvent, 0) };
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX`.
///
/// # Safety
///
/// As [`event`].
unsafe extern "system" fn disconnected_ex<H: Hooks>(context: *mut c_void, reason: u32) {
    // SAFETY: `context` is the event of a connector whose close has not completed (`# Safety`).
    unsafe { event::<H>(context, Function::DisconnectEventEx, reason) };
}
