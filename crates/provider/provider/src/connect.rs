//! The requests of an `NDK_CONNECTOR` (`NDKPI 5.8`, `NDKPI 7.7`).

use core::{ffi::c_void, slice};

use engine::connection::{Answer, ConnectParameters, Connector, ConnectorRequest, ReadLimits};
use fallible::Arc;
use ndkpi::{
    NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION,
    NDK_QP, NDK_SHARED_ENDPOINT, NtStatus, SOCKADDR,
};

use crate::{
    NdkOs, address,
    completion::AsyncRequest,
    connector::{Bonds, ConnectorObject, DisconnectEvent},
    dispatch,
    note::Note,
    object::{Body, Borrowed, borrow},
    qp::QueuePair,
    shared_endpoint::SharedEndpointObject,
};

/// The consumer's private data.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there is a length and no address.
///
/// # Safety
///
/// `data` is null or valid for reading `length` bytes until the consumer's call returns.
const unsafe fn private_data<'a>(data: *const c_void, length: u32) -> Result<&'a [u8], NtStatus> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the data is not null and valid for reading (`# Safety`).
    Ok(unsafe { slice::from_raw_parts(data.cast::<u8>(), length as usize) })
}

/// Makes a request that the engine's connector answers later, or at once with a status other than `STATUS_PENDING`.
///
/// # Safety
///
/// `connector` is open.
unsafe fn ask<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    rule: impl FnOnce(&Borrowed<ConnectorObject<O>>, &Arc<Connector<O>>) -> Result<Answer, NtStatus>,
) -> NtStatus {
    let ask = |object: &Borrowed<ConnectorObject<O>>, request| {
        let connector = object.engine()?;
        // The answer may come before the engine's function returns. After that the object is not used any more.
        if let Err(request) = object.begin(request) {
            return Ok(request.finish(object, NtStatus::CONNECTION_ACTIVE));
        }
        let status = match rule(object, connector) {
            Ok(Answer::Pending) => return Ok(NtStatus::PENDING),
            Ok(Answer::Done) => NtStatus::SUCCESS,
            Err(status) => status,
        };
        Ok(object.withdraw().map_or(status, |request| request.finish(object, status)))
    };
    // SAFETY: the caller passes an open connector.
    unsafe { dispatch::request_that_may_pend(connector, completion, context, ask) }
}

/// Borrows the queue pair to connect. It must be of the connector's adapter.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it is not, or no queue pair at all.
///
/// # Safety
///
/// `qp` is null or open.
unsafe fn queue_pair_of<O: NdkOs>(
    connector: &Borrowed<ConnectorObject<O>>,
    qp: *mut NDK_QP,
) -> Result<Borrowed<QueuePair<O>>, NtStatus> {
    // SAFETY: `qp` is null or open (`# Safety`).
    let pair = unsafe { borrow::<QueuePair<O>>(qp) }?;
    if Arc::ptr_eq(pair.device(), connector.device()) { Ok(pair) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// The engine has refused to begin a connection: undoes and traces it.
fn refused<O: NdkOs>(
    object: &ConnectorObject<O>,
    former: Bonds<O>,
    request: ConnectorRequest,
    status: NtStatus,
) -> NtStatus {
    object.unbind(former);
    object.note(Note::Failed { request, status });
    status
}

/// `NDK_FN_CONNECT` (`NDKPI 7.7.1`).
///
/// # Safety
///
/// The objects are open; the addresses and the private data are valid for reading the bytes they are said to have.
pub unsafe extern "system" fn connect<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    source: *const SOCKADDR,
    source_length: u32,
    destination: *const SOCKADDR,
    destination_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let rule = |object: &Borrowed<ConnectorObject<O>>, connector: &Arc<Connector<O>>| {
        // SAFETY: the caller passes an open queue pair.
        let pair = unsafe { queue_pair_of(object, qp) }?;
        let qp = pair.engine()?;
        // SAFETY: the address is valid for reading.
        let local = unsafe { address::read(source, source_length) }?;
        // SAFETY: the address is valid for reading.
        let remote = unsafe { address::read(destination, destination_length) }?;
        // SAFETY: the data is valid for reading.
        let private_data = unsafe { private_data(data, data_length) }?;
        let parameters = ConnectParameters { remote, reads: ReadLimits { inbound, outbound }, private_data };
        let former = object.bind(&pair, None, None);
        let result = Connector::connect(connector, qp, local, &parameters);
        result.map(|()| Answer::Pending).map_err(|status| refused(object, former, ConnectorRequest::Connect, status))
    };
    // SAFETY: the caller passes an open connector.
    unsafe { ask(connector, completion, context, rule) }
}

/// `NDK_FN_CONNECT_WITH_SHARED_ENDPOINT` (`NDKPI 7.8`).
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn connect_with_shared_endpoint<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    destination: *const SOCKADDR,
    destination_length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let rule = |object: &Borrowed<ConnectorObject<O>>, connector: &Arc<Connector<O>>| {
        // SAFETY: the caller passes an open queue pair.
        let pair = unsafe { queue_pair_of(object, qp) }?;
        let qp = pair.engine()?;
        // SAFETY: the caller passes an open endpoint.
        let shared = unsafe { borrow::<SharedEndpointObject<O>>(endpoint) }?;
        let endpoint = shared.engine()?;
        // SAFETY: the address is valid for reading.
        let remote = unsafe { address::read(destination, destination_length) }?;
        // SAFETY: the data is valid for reading.
        let private_data = unsafe { private_data(data, data_length) }?;
        let parameters = ConnectParameters { remote, reads: ReadLimits { inbound, outbound }, private_data };
        let former = object.bind(&pair, Some(&shared), None);
        let result = Connector::connect_shared(connector, qp, endpoint, &parameters);
        result.map(|()| Answer::Pending).map_err(|status| refused(object, former, ConnectorRequest::Connect, status))
    };
    // SAFETY: the caller passes an open connector.
    unsafe { ask(connector, completion, context, rule) }
}

/// Completes a connect. `event` is the callback for the end of the connection.
///
/// # Safety
///
/// `connector` is open.
unsafe fn complete<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    event: Option<DisconnectEvent>,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let complete = |object: &Borrowed<ConnectorObject<O>>, request: AsyncRequest| {
        let connector = object.engine()?;
        let former = object.replace_disconnect_event(event);
        Ok(match Connector::complete_connect(connector) {
            // The connection may end at once; the consumer hears of that after it has heard of this.
            Ok(hold) => {
                if let (Ok(local), Ok(remote)) = (connector.local_address(), connector.peer_address()) {
                    object.note(Note::Connected { local, remote });
                }
                request.finish_before(object, NtStatus::SUCCESS, hold)
            }
            Err(status) => {
                object.note(Note::Failed { request: ConnectorRequest::Connect, status });
                object.replace_disconnect_event(former);
                request.finish(object, status)
            }
        })
    };
    // SAFETY: the caller passes an open connector.
    unsafe { dispatch::request_that_may_pend(connector, completion, context, complete) }
}

/// `NDK_FN_COMPLETE_CONNECT` (`NDKPI 7.7.1`).
///
/// # Safety
///
/// `connector` is open.
pub unsafe extern "system" fn complete_connect<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let event = event.map(|callback| DisconnectEvent::Plain(callback, event_context));
    // SAFETY: the caller passes an open connector.
    unsafe { complete::<O>(connector, event, completion, context) }
}

/// `NDK_FN_COMPLETE_CONNECT_EX` (`NDKPI 5.8`).
///
/// # Safety
///
/// `connector` is open.
pub unsafe extern "system" fn complete_connect_ex<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let event = event.map(|callback| DisconnectEvent::Ex(callback, event_context));
    // SAFETY: the caller passes an open connector.
    unsafe { complete::<O>(connector, event, completion, context) }
}

/// The parameters of an accept.
#[derive(Clone, Copy)]
struct Acceptance {
    qp: *mut NDK_QP,
    reads: ReadLimits,
    data: *const c_void,
    data_length: u32,
    event: Option<DisconnectEvent>,
}

/// Accepts a connection.
///
/// # Safety
///
/// The objects are open; the private data is valid for reading.
unsafe fn accept_request<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    acceptance: Acceptance,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let Acceptance { qp, reads, data, data_length, event } = acceptance;
    let rule = |object: &Borrowed<ConnectorObject<O>>, connector: &Arc<Connector<O>>| {
        // SAFETY: the caller passes an open queue pair.
        let pair = unsafe { queue_pair_of(object, qp) }?;
        let qp = pair.engine()?;
        // SAFETY: the data is valid for reading.
        let private_data = unsafe { private_data(data, data_length) }?;
        let former = object.bind(&pair, None, event);
        let result = Connector::accept(connector, qp, reads, private_data);
        result.map(|()| Answer::Pending).map_err(|status| refused(object, former, ConnectorRequest::Accept, status))
    };
    // SAFETY: the caller passes an open connector.
    unsafe { ask(connector, completion, context, rule) }
}

/// `NDK_FN_ACCEPT` (`NDKPI 7.7.2`).
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn accept<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let event = event.map(|callback| DisconnectEvent::Plain(callback, event_context));
    let acceptance = Acceptance { qp, reads: ReadLimits { inbound, outbound }, data, data_length, event };
    // SAFETY: connector and queue pair are open, and the data valid for reading (`# Safety` of [`connect`]).
    unsafe { accept_request::<O>(connector, acceptance, completion, context) }
}

/// `NDK_FN_ACCEPT_EX` (`NDKPI 5.8`).
///
/// # Safety
///
/// As [`connect`].
pub unsafe extern "system" fn accept_ex<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let event = event.map(|callback| DisconnectEvent::Ex(callback, event_context));
    let acceptance = Acceptance { qp, reads: ReadLimits { inbound, outbound }, data, data_length, event };
    // SAFETY: connector and queue pair are open, and the data valid for reading (`# Safety` of [`connect`]).
    unsafe { accept_request::<O>(connector, acceptance, completion, context) }
}

/// `NDK_FN_REJECT` (`NDKPI 7.7.1`, `NDKPI 7.7.2`). Never pends.
///
/// # Safety
///
/// `connector` is open; the private data is valid for reading.
pub unsafe extern "system" fn reject<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    data: *const c_void,
    data_length: u32,
) -> NtStatus {
    let reject = |object: &Borrowed<ConnectorObject<O>>| {
        // SAFETY: the data is valid for reading.
        let data = unsafe { private_data(data, data_length) }?;
        Connector::reject(object.engine()?, data)
    };
    // SAFETY: the caller passes an open connector.
    unsafe { dispatch::with(connector, reject) }.into()
}

//= NDKPI 7.7.4
/// `NDK_FN_GET_CONNECTION_DATA` (`NDKPI 7.7.3`, `NDKPI 7.7.4`).
///
/// # Safety
///
/// `connector` is open; the limits are null or valid for writing, `length` is valid for reading and writing, `data` is null
/// or valid for writing the bytes it says.
pub unsafe extern "system" fn get_connection_data<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    data: *mut c_void,
    length: *mut u32,
) -> NtStatus {
    let get = |object: &Borrowed<ConnectorObject<O>>| {
        if length.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: `length` is valid for reading.
        let room = unsafe { length.read() };
        let into: &mut [u8] = if data.is_null() {
            if room > 0 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            &mut []
        } else {
            // SAFETY: the data is not null and valid for writing `room` bytes, and nobody else uses it during the call.
            unsafe { slice::from_raw_parts_mut(data.cast::<u8>(), room as usize) }
        };
        let found = object.engine()?.connection_data(into)?;
        for (place, limit) in [(inbound, found.reads.inbound), (outbound, found.reads.outbound)] {
            if !place.is_null() {
                // SAFETY: the place is valid for writing.
                unsafe { place.write(limit) };
            }
        }
        let required = u32::try_from(found.required).unwrap_or(u32::MAX);
        // SAFETY: `length` is valid for writing.
        unsafe { length.write(required) };
        if !data.is_null() && room < required { Err(NtStatus::BUFFER_TOO_SMALL) } else { Ok(()) }
    };
    // SAFETY: the caller passes an open connector.
    unsafe { dispatch::with(connector, get) }.into()
}

/// `NDK_FN_DISCONNECT` (`NDKPI 7.7.5`).
///
/// # Safety
///
/// `connector` is open.
pub unsafe extern "system" fn disconnect<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let rule = |object: &Borrowed<ConnectorObject<O>>, connector: &Arc<Connector<O>>| {
        let answer = Connector::disconnect(connector);
        match answer {
            Ok(Answer::Done) => object.note(Note::Disconnected),
            // The object's client notes how it ends.
            Ok(Answer::Pending) => {}
            Err(status) => object.note(Note::Failed { request: ConnectorRequest::Disconnect, status }),
        }
        answer
    };
    // SAFETY: the caller passes an open connector.
    unsafe { ask::<O>(connector, completion, context, rule) }
}
