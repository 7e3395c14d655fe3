//! Connectors: a consumer's side of a connection.

use alloc::boxed::Box;
use core::{marker::PhantomData, net::SocketAddr};

use fallible::{Arc, try_box};
use ntstatus::NtStatus;

use super::{
    ConnectionData, ConnectorClient, ConnectorRequest, DisconnectReason, Listener, Owner, Port,
    delivery::{Delivery, Event},
    endpoint::Endpoint,
    listener::BacklogSlot,
    parameters::PrivateData,
    remote::{Party, Remote},
    shared_endpoint::SharedUse,
    state::{Connection, Ends, Role},
};
use crate::{
    os::{Dpc, Os, Routine, SpinLock},
    qp::{LinkClient, Qp},
    sync::{AtomicU32, Ordering},
    wire::RejectReason,
};

/// The most calls to the client that one run of the DPC makes before it queues itself again.
const EVENTS_PER_RUN: usize = 4;

/// What a queue pair tells its connector. Bits of [`Connector::link_events`].
mod link_event {
    /// The queue pair has lost its peer.
    pub const UNLINKED: u32 = 1 << 0;
    /// Everything that was posted before the disconnect has ended.
    pub const DRAINED: u32 = 1 << 1;
}

/// A connector (`NDKPI 7.7`). It has at most one connection in its life; a connect that fails can be tried again.
///
/// Whoever owns it ends it with [`Connector::close`].
pub struct Connector<O: Os> {
    /// Dropped before `state`: that refers to objects that must be closed after the connector.
    client: Box<dyn ConnectorClient>,
    pub(super) state: O::Lock<State<O>>,
    link_events: AtomicU32,
    dpc: O::Dpc<ConnectorDpc<O>>,
    timer: O::Timer<RequestTimeout<O>>,
    port: Arc<Port<O>>,
    owner: Owner,
}

/// What a connector is doing.
pub(super) enum Stage<O: Os> {
    /// Nothing: it is new, or its connect has failed.
    Idle,
    /// A connect is about to begin.
    Starting,
    /// It is one side of a connection.
    Connection(Arc<Connection<O>>, Role),
    /// It is this side of a connection with another machine.
    Remote(Arc<Remote<O>>),
    /// It is closed.
    Closed,
}

/// Where the local address comes from. Keeps the endpoint in use (`NDKPI 7.8`).
pub(super) enum Origin<O: Os> {
    /// Its own endpoint, until it is given up.
    Own(Option<Endpoint<O>>),
    /// A shared endpoint.
    Shared(SharedUse<O>),
    /// The listener that it came over.
    Listener(#[expect(dead_code, reason = "only there to keep the endpoint in use")] Arc<Listener<O>>),
}

pub(super) struct State<O: Os> {
    pub stage: Stage<O>,
    pub delivery: Delivery,
    pub origin: Option<Origin<O>>,
    /// The queue pair, which must not be closed before the connector is.
    pub qp: Option<Arc<Qp<O>>>,
    /// Its slot of the listener's backlog, until the consumer has decided.
    slot: Option<BacklogSlot<O>>,
    /// The private data with which the last connect was rejected.
    refusal: Option<PrivateData>,
}

impl<O: Os> Connector<O> {
    /// Makes a connector to connect with. `client` is dropped when the connector is closed and the last call has returned.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(port: &Arc<Port<O>>, owner: Owner, client: impl ConnectorClient) -> Result<Arc<Self>, NtStatus> {
        let os = port.os();
        let state = State {
            stage: Stage::Idle,
            delivery: Delivery::default(),
            origin: None,
            qp: None,
            slot: None,
            refusal: None,
        };
        Arc::try_new(Self {
            client: try_box(client)?,
            state: os.lock(state)?,
            link_events: AtomicU32::new(0),
            dpc: os.dpc(os.current_processor())?,
            timer: os.timer()?,
            port: port.clone(),
            owner,
        })
        .map_err(Into::into)
    }

    /// Makes the new connector stand for a request that came over a listener.
    pub(super) fn receive(this: &Arc<Self>, request: Party<O>, slot: BacklogSlot<O>) {
        let stage = match request {
            Party::Here(connection) => {
                connection.receive(this);
                Stage::Connection(connection, Role::Passive)
            }
            Party::Elsewhere(remote) => {
                remote.receive(this);
                Stage::Remote(remote)
            }
        };
        this.state.with(|state| {
            state.origin = Some(Origin::Listener(slot.listener().clone()));
            state.slot = Some(slot);
            state.stage = stage;
        });
    }

    //= NDKPI 7.7.7
    /// Closes the connector (`NDKPI 7.7.7`). Gives up a connect, rejects a request that was not accepted, aborts a connection
    /// and flushes its queue pair. A request that waits is answered with `STATUS_CANCELLED`. No indication begins any more.
    pub fn close(this: &Arc<Self>) {
        // What the connector referred to is dropped after the lock is released.
        let (stage, slot) = this.state.with(|state| {
            state.delivery.silence();
            (core::mem::replace(&mut state.stage, Stage::Closed), state.slot.take())
        });
        drop(slot);
        match stage {
            Stage::Connection(connection, role) => Connection::leave(&connection, role),
            Stage::Remote(remote) => Remote::leave(&remote),
            Stage::Idle | Stage::Starting | Stage::Closed => {}
        }
    }

    /// Returns the read limits, and copies the private data that the peer sent with its connect, accept or reject
    /// (`NDKPI 7.7.3`, `7.7.4`). Copies what fits; the result says how much there is.
    ///
    /// The size is the same for all connections from one adapter. What the peer did not give is zero. Still answers when the
    /// connection is established, and after its end.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_INVALID` if the peer has not said anything yet.
    pub fn connection_data(&self, into: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        if let Some((connection, role)) = self.connection() {
            return connection.data(role, into);
        }
        if let Some(remote) = self.remote() {
            return remote.data(into);
        }
        self.state.with(|state| {
            let required = state.refusal.as_ref().ok_or(NtStatus::CONNECTION_INVALID)?.copy_to(into);
            Ok(ConnectionData { reads: super::ReadLimits::default(), required })
        })
    }

    /// Returns the address on this side, with its port number, and its scope id if it is an address of a link.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_INVALID` if it was never connecting, or its connect has failed.
    pub fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        Ok(self.ends()?.local)
    }

    /// Returns the address on the other side.
    ///
    /// # Errors
    ///
    /// As [`Connector::local_address`].
    pub fn peer_address(&self) -> Result<SocketAddr, NtStatus> {
        Ok(self.ends()?.peer)
    }

    fn ends(&self) -> Result<Ends, NtStatus> {
        self.state.with(|state| match &state.stage {
            Stage::Connection(connection, role) => Ok(connection.addresses[*role]),
            Stage::Remote(remote) => Ok(remote.addresses),
            Stage::Idle | Stage::Starting | Stage::Closed => Err(NtStatus::CONNECTION_INVALID),
        })
    }

    pub(super) const fn port(&self) -> &Arc<Port<O>> {
        &self.port
    }

    pub(super) const fn owner(&self) -> Owner {
        self.owner
    }

    pub(super) fn os(&self) -> &O {
        self.port.os()
    }

    /// The timer of the request that waits. Set and cancelled under the connection's lock only.
    pub(super) const fn timer(&self) -> &O::Timer<RequestTimeout<O>> {
        &self.timer
    }

    pub(super) fn connection(&self) -> Option<(Arc<Connection<O>>, Role)> {
        self.state.with(|state| match &state.stage {
            Stage::Connection(connection, role) => Some((connection.clone(), *role)),
            _ => None,
        })
    }

    /// The connection with another machine, if it is that.
    pub(super) fn remote(&self) -> Option<Arc<Remote<O>>> {
        self.state.with(|state| match &state.stage {
            Stage::Remote(remote) => Some(remote.clone()),
            _ => None,
        })
    }

    /// The consumer has accepted or rejected: the request no longer counts towards the backlog.
    pub(super) fn decided(&self) {
        // The slot is given back after the lock is released.
        drop(self.state.with(|state| state.slot.take()));
    }

    /// Keeps the queue pair until the connector is closed.
    pub(super) fn use_qp(&self, qp: Arc<Qp<O>>) {
        self.state.with(|state| state.qp = Some(qp));
    }

    /// Releases what a failed connect has held.
    pub(super) fn forget_attempt(&self) {
        drop(self.state.with(|state| (state.origin.take(), state.qp.take())));
    }

    /// A connect has failed: it can be tried again once its consumer knows.
    pub(super) fn connect_failed(
        this: &Arc<Self>,
        status: NtStatus,
        data: Option<PrivateData>,
        reason: Option<RejectReason>,
    ) {
        let connection = this.state.with(|state| {
            state.refusal = data;
            state.delivery.answer(ConnectorRequest::Connect, status, reason);
            // A connector that was closed meanwhile stays so.
            matches!(state.stage, Stage::Connection(..) | Stage::Remote(_))
                .then(|| core::mem::replace(&mut state.stage, Stage::Idle))
        });
        this.dpc.queue(this);
        drop(connection);
    }

    /// A request has its answer. Called under the connection's lock, so that events keep their order.
    pub(super) fn answer(this: &Arc<Self>, request: ConnectorRequest, status: NtStatus) {
        Self::answer_because(this, request, status, None);
    }

    /// [`Connector::answer`], with the reason that another machine has given in its REJ.
    pub(super) fn answer_because(
        this: &Arc<Self>,
        request: ConnectorRequest,
        status: NtStatus,
        reason: Option<RejectReason>,
    ) {
        this.state.with(|state| state.delivery.answer(request, status, reason));
        this.dpc.queue(this);
    }

    /// The connection has ended. Called as [`Connector::answer`].
    pub(super) fn indicate(this: &Arc<Self>, reason: DisconnectReason) {
        this.state.with(|state| state.delivery.indicate(reason));
        this.dpc.queue(this);
    }

    /// The consumer wants no indication any more.
    pub(super) fn silence(&self) {
        self.state.with(|state| state.delivery.silence());
    }

    /// Returns true if the consumer does not know the answer to its last request yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.state.with(|state| state.delivery.is_unanswered())
    }

    /// Holds events back until a [`Hold`] is dropped.
    pub(super) fn hold(&self) {
        self.state.with(|state| state.delivery.hold());
    }

    /// Handles what the queue pair has told, then tells the client what there is to tell: a bounded number of calls.
    fn run(this: &Arc<Self>) {
        let events = this.link_events.swap(0, Ordering::AcqRel);
        if events != 0 {
            this.follow_link(events & link_event::UNLINKED != 0);
        }
        for _ in 0..EVENTS_PER_RUN {
            match this.state.with(|state| state.delivery.begin()) {
                Some(Event::Completed(request, status, reason)) => {
                    if let Some(reason) = reason {
                        this.client.rejected(reason);
                    }
                    this.client.completed(request, status);
                }
                Some(Event::Disconnected(reason)) => this.client.disconnected(reason),
                None => return,
            }
            if !this.state.with(|state| state.delivery.end()) {
                return;
            }
        }
        this.dpc.queue(this);
    }
}

impl<O: Os> Connector<O> {
    /// The queue pair has lost its peer, or everything that was posted before the disconnect has ended.
    fn follow_link(&self, is_unlinked: bool) {
        if let Some((connection, role)) = self.connection() {
            if is_unlinked {
                Connection::broken(&connection);
            } else {
                Connection::drained(&connection, role);
            }
        } else if let Some(remote) = self.remote() {
            if is_unlinked {
                Remote::broken(&remote);
            } else {
                Remote::drained(&remote);
            }
        }
    }
}

impl<O: Os> Drop for Connector<O> {
    fn drop(&mut self) {
        // The local address is free before the client is dropped: after the close the consumer may use it again.
        // A listener or shared endpoint is referred to until after that.
        drop(self.state.with(|state| match &mut state.origin {
            Some(Origin::Own(endpoint)) => endpoint.take(),
            Some(Origin::Shared(shared)) => {
                shared.forget();
                None
            }
            Some(Origin::Listener(_)) | None => None,
        }));
    }
}

/// Keeps the events of a connector back as long as it lives.
///
/// Completing a connect is answered by the function's result. The connection may end before the consumer has seen that, and
/// its indication must not come first (`NDKPI 7.7.6`). The caller drops this once the consumer knows.
#[must_use = "dropping it lets events come"]
pub struct Hold<O: Os> {
    connector: Arc<Connector<O>>,
}

impl<O: Os> Hold<O> {
    pub(super) fn of(connector: &Arc<Connector<O>>) -> Self {
        Self { connector: connector.clone() }
    }
}

impl<O: Os> Drop for Hold<O> {
    fn drop(&mut self) {
        if self.connector.state.with(|state| state.delivery.release()) {
            self.connector.dpc.queue(&self.connector);
        }
    }
}

/// Tells a connector what happens to its queue pair. Holds the queue pair's reference to the connector.
struct LinkNotifier<O: Os> {
    connector: Arc<Connector<O>>,
}

impl<O: Os> LinkNotifier<O> {
    fn notify(&self, events: u32) {
        self.connector.link_events.fetch_or(events, Ordering::AcqRel);
        self.connector.dpc.queue(&self.connector);
    }
}

impl<O: Os> LinkClient for LinkNotifier<O> {
    fn unlinked(&self) {
        self.notify(link_event::UNLINKED);
    }

    fn drained(&self) {
        self.notify(link_event::DRAINED);
    }
}

/// A queue pair that is bound to a connector. Dropping this unbinds it, unless it was [kept](BoundQp::keep).
pub(super) struct BoundQp<O: Os> {
    qp: Option<Arc<Qp<O>>>,
}

impl<O: Os> BoundQp<O> {
    /// Binds `qp` to `connector`.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it belongs to another one, or has had a connection; `STATUS_CONNECTION_INVALID` if it
    /// cannot be used any more; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(connector: &Arc<Connector<O>>, qp: &Arc<Qp<O>>) -> Result<Self, NtStatus> {
        let notifier = try_box(LinkNotifier { connector: connector.clone() })?;
        qp.set_link_client(notifier)?;
        Ok(Self { qp: Some(qp.clone()) })
    }

    /// Leaves the queue pair bound: the connection unbinds it.
    pub fn keep(mut self) {
        self.qp = None;
    }
}

impl<O: Os> Drop for BoundQp<O> {
    fn drop(&mut self) {
        if let Some(qp) = &self.qp {
            drop(qp.take_link_client());
        }
    }
}

/// The DPC of a connector.
pub struct ConnectorDpc<O>(PhantomData<O>);

impl<O: Os> Routine for ConnectorDpc<O> {
    type Target = Connector<O>;

    fn run(connector: &Arc<Connector<O>>) {
        Connector::run(connector);
    }
}

/// The timer of a connector: its request has taken too long.
pub struct RequestTimeout<O>(PhantomData<O>);

impl<O: Os> Routine for RequestTimeout<O> {
    type Target = Connector<O>;

    fn run(connector: &Arc<Connector<O>>) {
        if let Some((connection, role)) = connector.connection() {
            Connection::expired(&connection, role);
        } else if let Some(remote) = connector.remote() {
            Remote::expired(&remote);
        }
    }
}
