//! `NDK_CONNECTOR`: creation, close and callbacks (`NDKPI 7.7`). Its requests are in [`crate::connect`].

use core::{ffi::c_void, mem::replace, net::SocketAddr};

use engine::{
    connection::{Connector, ConnectorClient, ConnectorRequest, DisconnectReason, Owner},
    os::SpinLock,
    wire::RejectReason,
};
use fallible::Arc;
use ndkpi::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    NDK_VERSION, NtStatus, SOCKADDR,
};

use crate::{
    NdkOs,
    adapter::Adapter,
    address,
    borrow::Slot,
    completion::AsyncRequest,
    connect,
    device::Device,
    dispatch,
    note::Note,
    object::{AnyRef, Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
    qp::QueuePair,
    shared_endpoint::SharedEndpointObject,
};

/// The callback for the end of a connection.
#[derive(Clone, Copy)]
pub enum DisconnectEvent {
    /// The callback of NDKPI 1.
    Plain(NDK_FN_DISCONNECT_EVENT_CALLBACK, *mut c_void),
    /// The callback of NDKPI 2.1, which is given a reason.
    Ex(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, *mut c_void),
}

// SAFETY: the context is handed back to the consumer and not used here; callbacks may come on any thread (`NDKPI 6`).
unsafe impl Send for DisconnectEvent {}

/// What the consumer is to be told, and what must not be closed before the connector is.
struct State<O: NdkOs> {
    /// The request that pends, of which there is one at a time.
    request: Option<AsyncRequest>,
    disconnect: Option<DisconnectEvent>,
    /// The queue pair (`NDKPI 7.9`). The engine's connector keeps the engine's queue pair, but goes before this object has
    /// told its consumer that it is closed.
    qp: Option<AnyRef<O>>,
    /// The listener of the incoming connection, or the shared endpoint of an outgoing one.
    endpoint: Option<AnyRef<O>>,
}

/// What [`ConnectorObject::bind`] has replaced.
pub struct Bonds<O: NdkOs> {
    disconnect: Option<DisconnectEvent>,
    qp: Option<AnyRef<O>>,
    endpoint: FormerEndpoint<O>,
}

/// The endpoint before [`ConnectorObject::bind`].
enum FormerEndpoint<O: NdkOs> {
    /// The same as now.
    Same,
    /// Another one, or none.
    Other(Option<AnyRef<O>>),
}

/// A connector.
pub struct ConnectorObject<O: NdkOs> {
    connector: Slot<Arc<Connector<O>>>,
    state: O::Lock<State<O>>,
    adapter: ObjectRef<Adapter<O>>,
}

/// The client of the engine's connector. It keeps the object alive while the connector may call.
pub struct Client<O: NdkOs>(ObjectRef<ConnectorObject<O>>);

impl<O: NdkOs> ConnectorClient for Client<O> {
    fn rejected(&self, reason: RejectReason) {
        self.0.note(Note::Rejected(reason));
    }

    fn completed(&self, asked: ConnectorRequest, status: NtStatus) {
        if !status.is_success() {
            self.0.failed(asked);
        }
        match asked {
            _ if !status.is_success() => self.0.note(Note::Failed { request: asked, status }),
            // The connection is there when the consumer completes the connect.
            ConnectorRequest::Connect => {}
            ConnectorRequest::Accept => self.0.note(Note::Accepted),
            ConnectorRequest::Disconnect => self.0.note(Note::Disconnected),
        }
        if let Some(request) = self.0.withdraw() {
            request.into_callback(self.0.clone(), status).deliver();
        }
    }

    fn disconnected(&self, reason: DisconnectReason) {
        self.0.note(Note::Lost(reason));
        let event = self.0.state.with(|state| state.disconnect.take());
        match event {
            Some(DisconnectEvent::Plain(callback, context)) => {
                // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                unsafe { callback(context) };
            }
            Some(DisconnectEvent::Ex(callback, context)) => {
                // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                unsafe { callback(context, reason.code()) };
            }
            None => {}
        }
    }
}

impl<O: NdkOs> ConnectorObject<O> {
    /// Makes a connector on `adapter` to connect with.
    pub fn create(adapter: &ObjectRef<Adapter<O>>) -> Result<ObjectRef<Self>, NtStatus> {
        Self::create_with(adapter, None, |client| {
            Connector::try_new(adapter.device().port(), Owner { process: None }, client)
        })
    }

    /// Makes a connector, and its engine object with `make`. `listener` is that of an incoming connection.
    pub fn create_with(
        adapter: &ObjectRef<Adapter<O>>,
        listener: Option<AnyRef<O>>,
        make: impl FnOnce(Client<O>) -> Result<Arc<Connector<O>>, NtStatus>,
    ) -> Result<ObjectRef<Self>, NtStatus> {
        let state = State { request: None, disconnect: None, qp: None, endpoint: listener };
        let state = adapter.device().os().lock(state)?;
        let body = Self { connector: Slot::empty(), state, adapter: adapter.clone() };
        ObjectRef::try_new_with(adapter.version(), body, |object| make(Client(object)))
    }

    /// Begins a request that the engine may answer later.
    ///
    /// # Errors
    ///
    /// The request, if another one pends (`STATUS_CONNECTION_ACTIVE` for the consumer).
    pub fn begin(&self, request: AsyncRequest) -> Result<(), AsyncRequest> {
        self.state.with(|state| {
            if state.request.is_some() {
                return Err(request);
            }
            state.request = Some(request);
            Ok(())
        })
    }

    /// Takes the pending request. `None` if it was answered meanwhile.
    pub fn withdraw(&self) -> Option<AsyncRequest> {
        self.state.with(|state| state.request.take())
    }

    /// Prepares a connection: from now on the queue pair and the shared endpoint, if any, close after the connector, and `event`
    /// is called at the connection's end. Returns what it replaced, for [`ConnectorObject::unbind`].
    pub fn bind(
        &self,
        qp: &ObjectRef<QueuePair<O>>,
        endpoint: Option<&ObjectRef<SharedEndpointObject<O>>>,
        event: Option<DisconnectEvent>,
    ) -> Bonds<O> {
        let qp = AnyRef::Qp(qp.clone());
        let endpoint = endpoint.map(|endpoint| AnyRef::SharedEndpoint(endpoint.clone()));
        self.state.with(|state| Bonds {
            disconnect: replace(&mut state.disconnect, event),
            qp: state.qp.replace(qp),
            endpoint: endpoint
                .map_or(FormerEndpoint::Same, |endpoint| FormerEndpoint::Other(state.endpoint.replace(endpoint))),
        })
    }

    /// Undoes [`ConnectorObject::bind`]: the connection was refused at once.
    pub fn unbind(&self, former: Bonds<O>) {
        let unneeded = self.state.with(|state| {
            state.disconnect = former.disconnect;
            let qp = replace(&mut state.qp, former.qp);
            let endpoint = match former.endpoint {
                FormerEndpoint::Same => None,
                FormerEndpoint::Other(endpoint) => replace(&mut state.endpoint, endpoint),
            };
            (qp, endpoint)
        });
        // With no lock held.
        drop(unneeded);
    }

    /// Traces an event.
    pub fn note(&self, note: Note) {
        self.adapter.device().os().note(note);
    }

    /// A request has failed: releases what it kept, and the callback for the connection's end.
    fn failed(&self, asked: ConnectorRequest) {
        let unneeded = self.state.with(|state| match asked {
            ConnectorRequest::Connect => {
                state.disconnect = None;
                (state.qp.take(), state.endpoint.take())
            }
            ConnectorRequest::Accept => {
                state.disconnect = None;
                (state.qp.take(), None)
            }
            ConnectorRequest::Disconnect => (None, None),
        });
        drop(unneeded);
    }

    /// Sets the callback for the end of the connection. Returns the one before.
    pub fn replace_disconnect_event(&self, event: Option<DisconnectEvent>) -> Option<DisconnectEvent> {
        self.state.with(|state| replace(&mut state.disconnect, event))
    }

    const TABLE: &'static NDK_CONNECTOR_DISPATCH = &NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkConnect: Some(connect::connect::<O>),
        NdkConnectWithSharedEndpoint: Some(connect::connect_with_shared_endpoint::<O>),
        NdkCompleteConnect: Some(connect::complete_connect::<O>),
        NdkAccept: Some(connect::accept::<O>),
        NdkReject: Some(connect::reject::<O>),
        NdkGetConnectionData: Some(connect::get_connection_data::<O>),
        NdkGetLocalAddress: Some(get_local_address::<O>),
        NdkGetPeerAddress: Some(get_peer_address::<O>),
        NdkDisconnect: Some(connect::disconnect::<O>),
        NdkCompleteConnectEx: Some(connect::complete_connect_ex::<O>),
        NdkAcceptEx: Some(connect::accept_ex::<O>),
    };
}

impl<O: NdkOs> Body for ConnectorObject<O> {
    kind!(Connector, b"NdkX");

    type Public = NDK_CONNECTOR;

    fn public(version: NDK_VERSION) -> NDK_CONNECTOR {
        NDK_CONNECTOR::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.adapter.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let connector = unsafe { self.connector.replace(None) };
        if let Some(connector) = connector {
            Connector::close(&connector);
        }
    }
}

impl<O: NdkOs> EngineObject for ConnectorObject<O> {
    type Engine = Connector<O>;

    fn slot(&self) -> &Slot<Arc<Connector<O>>> {
        &self.connector
    }
}

/// Writes one of the connector's addresses.
///
/// # Safety
///
/// As [`get_local_address`].
unsafe fn get_address<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    buffer: *mut SOCKADDR,
    length: *mut u32,
    which: impl FnOnce(&Connector<O>) -> Result<SocketAddr, NtStatus>,
) -> NtStatus {
    let get = |object: &Borrowed<ConnectorObject<O>>| which(object.engine()?);
    // SAFETY: the caller passes an open connector.
    let found = unsafe { dispatch::with(connector, get) };
    // SAFETY: `length` is valid for reading and writing, `buffer` for writing the bytes it says (`# Safety`).
    unsafe { address::write(found, buffer, length) }
}

/// `NDK_FN_GET_LOCAL_ADDRESS` (`NDKPI 5.8`).
///
/// # Safety
///
/// `connector` is open; `length` is valid for reading and writing, `buffer` for writing the bytes it says.
unsafe extern "system" fn get_local_address<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: the connector is open, `length` valid for reading and writing, `buffer` for writing the bytes it says (`# Safety`).
    unsafe { get_address::<O>(connector, buffer, length, Connector::local_address) }
}

/// `NDK_FN_GET_PEER_ADDRESS` (`NDKPI 5.8`).
///
/// # Safety
///
/// As [`get_local_address`].
unsafe extern "system" fn get_peer_address<O: NdkOs>(
    connector: *mut NDK_CONNECTOR,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: the connector is open, `length` valid for reading and writing, `buffer` for writing the bytes it says (`# Safety`).
    unsafe { get_address::<O>(connector, buffer, length, Connector::peer_address) }
}
