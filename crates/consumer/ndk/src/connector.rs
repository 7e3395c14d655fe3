//! Connectors (`NDKPI 5.8`, `NDKPI 7.7`).

use alloc::boxed::Box;
use core::{ffi::c_void, net::SocketAddr, ptr};

use fallible::try_box;
use ndkpi::{NDK_CONNECTOR, NtStatus, SOCKADDR, SOCKADDR_INET};

use crate::{
    adapter::{Adapter, AdapterRef},
    object::{Node, Object, Parts, slot},
    once::SetOnce,
    qp::{QpParts, QueuePair},
    request::{Kept, Pending, request},
};

/// A consumer's handler for a disconnect by the peer or a broken connection.
type Disconnected = Box<dyn Fn() + Send + Sync>;

/// The parts of a connector.
pub struct ConnectorParts {
    /// Closes after the connector (`NDKPI 7.9`).
    qp: SetOnce<Object<QpParts>>,
    handler: SetOnce<Disconnected>,
}

impl Parts for ConnectorParts {
    type Raw = NDK_CONNECTOR;
}

impl ConnectorParts {
    const fn new() -> Self {
        Self { qp: SetOnce::new(), handler: SetOnce::new() }
    }
}

/// The parameters that one side offers for a connection. Of each limit the smaller one of both sides applies (`NDKPI 7.7.3`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// The maximum number of the peer's reads in progress.
    pub inbound_reads: u32,
    /// The maximum number of this side's reads in progress.
    pub outbound_reads: u32,
    /// Private data for the peer, which may see zeros appended: agree on a format that includes the length.
    pub private_data: &'a [u8],
}

/// The parameters that a peer offers (`NDKPI 7.7.4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// The effective inbound read limit.
    pub inbound_reads: u32,
    /// The effective outbound read limit.
    pub outbound_reads: u32,
    /// The size of the provider's buffer for private data, not the number of bytes the peer sent. Data longer than your buffer
    /// were cut off.
    pub required: usize,
}

/// An unused connector, from [`Adapter::create_connector`].
pub struct Connector {
    pub(crate) object: Object<ConnectorParts>,
}

/// The active side of a connection that the peer has accepted. Dropping it abandons the connection.
pub struct Offered {
    pub(crate) object: Object<ConnectorParts>,
}

/// The passive side of a connection request. Dropping it refuses the request.
pub struct Incoming {
    pub(crate) object: Object<ConnectorParts>,
}

/// An established connection. Dropping it without a disconnect aborts it.
pub struct Connection {
    pub(crate) object: Object<ConnectorParts>,
}

impl Adapter {
    /// Creates a connector. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn create_connector(&self) -> Result<Connector, NtStatus> {
        let function = slot!(self.core().raw(), NdkCreateConnector)?;
        let object = Object::create(self.reference(), ConnectorParts::new(), |_, completion, context, place| {
            // SAFETY: the adapter is open, and the context lives until the request has completed.
            unsafe { function(self.core().raw(), completion, context, place) }
        })?;
        Ok(Connector { object })
    }
}

impl Connector {
    /// Connects a queue pair from an address of the adapter, whose port may be 0, to the peer's address. `IRQL <=
    /// DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, or the queue pair belongs to another adapter. The outcome of the request is that of the
    /// [`Pending`], even if it does not pend: `STATUS_CONNECTION_REFUSED`, `STATUS_IO_TIMEOUT` and others (`NDKPI 5.8`).
    pub fn connect(
        self,
        qp: &impl QueuePair,
        from: SocketAddr,
        to: SocketAddr,
        offer: &Offer<'_>,
    ) -> Result<Pending<Offered>, NtStatus> {
        let function = slot!(self.object.raw(), NdkConnect)?;
        let qp = qp.qp();
        self.object.same_adapter(qp)?;
        self.object.parts.qp.set(qp.clone());
        let adapter = self.object.adapter().clone();
        let kept = Kept::new([from.into(), to.into()], offer.private_data)?;
        request(&adapter, kept, Offered { object: self.object }, |offered, kept, completion, context| {
            let ([from, to], (data, length)) = (&kept.addresses, kept.data());
            // SAFETY: the objects are open and of one adapter; addresses, data and context live until the request has completed.
            unsafe {
                function(
                    offered.object.raw(),
                    qp.raw(),
                    from.as_ptr(),
                    from.length(),
                    to.as_ptr(),
                    to.length(),
                    offer.inbound_reads,
                    offer.outbound_reads,
                    data,
                    length,
                    completion,
                    context,
                )
            }
        })
    }
}

impl Offered {
    /// Completes the connect, which establishes the connection (`NDKPI 7.7.1`). `IRQL <= DISPATCH_LEVEL`.
    ///
    /// `disconnected` is called at most once, at `IRQL <= DISPATCH_LEVEL`, when the peer disconnects or the connection breaks;
    /// not for a disconnect by this side (`NDKPI 7.7.6`).
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The outcome of the request is that of the [`Pending`].
    pub fn complete(self, disconnected: impl Fn() + Send + Sync + 'static) -> Result<Pending<Connection>, NtStatus> {
        let function = slot!(self.object.raw(), NdkCompleteConnect)?;
        self.object.parts.handler.set(try_box(disconnected)?);
        let adapter = self.object.adapter().clone();
        let connection = Connection { object: self.object };
        request(&adapter, Kept::default(), connection, |connection, _, completion, context| {
            let object = &connection.object;
            // SAFETY: the connector is open, and both contexts live until its close or the request has completed.
            unsafe { function(object.raw(), Some(disconnect_event), object.context(), completion, context) }
        })
    }

    /// Rejects the connection that the peer has accepted. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn reject(self, private_data: &[u8]) -> Result<(), NtStatus> {
        reject(&self.object, private_data)
    }

    /// What the peer offers. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn connection_data(&self, private_data: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        connection_data(&self.object, private_data)
    }
}

impl Incoming {
    /// # Safety
    ///
    /// Like [`Object::adopt`].
    pub(crate) unsafe fn adopt(adapter: AdapterRef, raw: *mut NDK_CONNECTOR) -> Result<Self, NtStatus> {
        // SAFETY: what [`Object::adopt`] asks of `raw` is what this asks for (`# Safety`).
        let object = unsafe { Object::adopt(adapter, ConnectorParts::new(), raw) }?;
        Ok(Self { object })
    }

    /// Accepts the connection for a queue pair. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// It pends until the active side has completed the connect, so a thread that is both sides must not wait for it earlier
    /// (`NDKPI 7.7.2`). `disconnected` is the same as in [`Offered::complete`].
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, or the queue pair belongs to another adapter. The outcome of the request is that of the
    /// [`Pending`].
    pub fn accept(
        self,
        qp: &impl QueuePair,
        offer: &Offer<'_>,
        disconnected: impl Fn() + Send + Sync + 'static,
    ) -> Result<Pending<Connection>, NtStatus> {
        let function = slot!(self.object.raw(), NdkAccept)?;
        let qp = qp.qp();
        self.object.same_adapter(qp)?;
        self.object.parts.qp.set(qp.clone());
        self.object.parts.handler.set(try_box(disconnected)?);
        let adapter = self.object.adapter().clone();
        let kept = Kept::new([SOCKADDR_INET::default(); 2], offer.private_data)?;
        let connection = Connection { object: self.object };
        request(&adapter, kept, connection, |connection, kept, completion, context| {
            let (object, (data, length)) = (&connection.object, kept.data());
            // SAFETY: the objects are open and of one adapter; the data and both contexts live until the connector's close or
            // the request has completed.
            unsafe {
                function(
                    object.raw(),
                    qp.raw(),
                    offer.inbound_reads,
                    offer.outbound_reads,
                    data,
                    length,
                    Some(disconnect_event),
                    object.context(),
                    completion,
                    context,
                )
            }
        })
    }

    /// Rejects the connection request, with private data for the peer. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn reject(self, private_data: &[u8]) -> Result<(), NtStatus> {
        reject(&self.object, private_data)
    }

    /// What the peer offers. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn connection_data(&self, private_data: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        connection_data(&self.object, private_data)
    }

    /// The peer's address. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn peer_address(&self) -> Result<SocketAddr, NtStatus> {
        peer_address(&self.object)
    }
}

impl Connection {
    /// Disconnects after everything posted before, and flushes the queue pair (`NDKPI 7.7.5`). `IRQL <= DISPATCH_LEVEL`.
    ///
    /// Call it after all completions of the initiator queue have arrived. The connection has ended afterwards, whatever the
    /// outcome.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The outcome of the request is that of the [`Pending`].
    pub fn disconnect(&self) -> Result<Pending<()>, NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkDisconnect)?;
        request(self.object.adapter(), Kept::default(), (), |(), _, completion, context| {
            // SAFETY: the connector is open, and the context lives until the request has completed.
            unsafe { function(raw, completion, context) }
        })
    }

    /// The address of this side. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkGetLocalAddress)?;
        ask(|address, length| {
            // SAFETY: the connector is open, and the address has as many bytes as the length says.
            unsafe { function(raw, address, length) }
        })
    }

    /// The peer's address. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn peer_address(&self) -> Result<SocketAddr, NtStatus> {
        peer_address(&self.object)
    }

    /// The effective read limits, without private data. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn limits(&self) -> Result<ConnectionData, NtStatus> {
        connection_data(&self.object, &mut [])
    }
}

fn reject(object: &Object<ConnectorParts>, data: &[u8]) -> Result<(), NtStatus> {
    let function = slot!(object.raw(), NdkReject)?;
    let length = u32::try_from(data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let data = if data.is_empty() { ptr::null() } else { data.as_ptr().cast() };
    // SAFETY: the connector is open. The function is immediate (`NDKPI 5.8`), so it is done with the data when it returns.
    unsafe { function(object.raw(), data, length) }.ok()
}

fn connection_data(object: &Object<ConnectorParts>, data: &mut [u8]) -> Result<ConnectionData, NtStatus> {
    let function = slot!(object.raw(), NdkGetConnectionData)?;
    let (mut inbound_reads, mut outbound_reads) = (0, 0);
    let mut length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let place = if data.is_empty() { ptr::null_mut() } else { data.as_mut_ptr().cast() };
    // SAFETY: the connector is open, the data have as many bytes as the length says or are null with length 0, and the limits
    // are valid places. The function is immediate.
    let status =
        unsafe { function(object.raw(), &raw mut inbound_reads, &raw mut outbound_reads, place, &raw mut length) };
    if status != NtStatus::BUFFER_TOO_SMALL {
        status.ok()?;
    }
    Ok(ConnectionData { inbound_reads, outbound_reads, required: length as usize })
}

fn peer_address(object: &Object<ConnectorParts>) -> Result<SocketAddr, NtStatus> {
    let function = slot!(object.raw(), NdkGetPeerAddress)?;
    ask(|address, length| {
        // SAFETY: the connector is open, and the address has as many bytes as the length says.
        unsafe { function(object.raw(), address, length) }
    })
}

/// Calls a function that returns an address.
pub fn ask(function: impl FnOnce(*mut SOCKADDR, *mut u32) -> NtStatus) -> Result<SocketAddr, NtStatus> {
    let mut address = SOCKADDR_INET::default();
    let mut length = u32::try_from(size_of::<SOCKADDR_INET>()).unwrap_or(0);
    function((&raw mut address).cast(), &raw mut length).ok()?;
    address.to_socket_addr().ok_or(NtStatus::INVALID_ADDRESS)
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// `context` is the node of an open connector.
unsafe extern "system" fn disconnect_event(context: *mut c_void) {
    // SAFETY: the node of an open connector (`# Safety`), which lives until the close has completed: that waits for this callback.
    let node = unsafe { &*context.cast_const().cast::<Node<ConnectorParts>>() };
    if let Some(handler) = node.parts.handler.get() {
        handler();
    }
}
