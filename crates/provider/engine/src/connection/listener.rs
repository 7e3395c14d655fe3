//! Listeners: connection requests come in, and wait for their consumer (`NDKPI 7.7.2`, `7.7.8`).

use alloc::{boxed::Box, collections::VecDeque};
use core::{marker::PhantomData, net::SocketAddr};

use fallible::{Arc, try_box};
use ntstatus::NtStatus;

use super::{Connector, ConnectorClient, EndpointKind, ListenerClient, Owner, Port, endpoint::Endpoint, remote::Party};
use crate::{
    os::{Dpc, Os, Routine, SpinLock},
    wire::Wire,
};

/// The most connect events that one run of the DPC delivers before it queues itself again.
const EVENTS_PER_RUN: usize = 8;

/// A listener.
///
/// Requests count towards the backlog until the consumer has accepted, rejected or closed them. Pausing connect events, and
/// closing, also refuse the requests that came before and whose event was not delivered yet.
pub struct Listener<O: Os> {
    port: Arc<Port<O>>,
    owner: Owner,
    /// Dropped before the client: a consumer that is told of the close may use the port number again.
    state: O::Lock<State<O>>,
    dpc: O::Dpc<ListenerDpc<O>>,
    client: Box<dyn ListenerClient<O>>,
}

struct State<O: Os> {
    /// The endpoint, once the listener listens.
    endpoint: Option<Endpoint<O>>,
    paused: bool,
    closed: bool,
    /// Requests whose event is still to come. Has room for one from each slot of the backlog.
    queue: VecDeque<(Party<O>, BacklogSlot<O>)>,
    /// Slots of the backlog that are taken.
    taken_slots: u32,
    /// An event is being delivered.
    delivering: bool,
}

impl<O: Os> Listener<O> {
    /// Makes a listener that does not listen yet. `client` is dropped when the listener and the last connector that came over it
    /// are closed.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(port: &Arc<Port<O>>, owner: Owner, client: impl ListenerClient<O>) -> Result<Arc<Self>, NtStatus> {
        let os = port.os();
        let state = State {
            endpoint: None,
            paused: false,
            closed: false,
            queue: VecDeque::new(),
            taken_slots: 0,
            delivering: false,
        };
        Arc::try_new(Self {
            port: port.clone(),
            owner,
            state: os.lock(state)?,
            dpc: os.dpc(os.current_processor())?,
            client: try_box(client)?,
        })
        .map_err(Into::into)
    }

    /// Listens at `address`; at an ephemeral port if the port is zero (`NDK_FN_LISTEN`).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` if the address is none of the adapter's, which holds for wildcards too: an endpoint belongs to
    /// one address. `STATUS_SHARING_VIOLATION`, `STATUS_TOO_MANY_ADDRESSES`, `STATUS_INSUFFICIENT_RESOURCES`.
    /// `STATUS_INVALID_DEVICE_STATE` if it listens already.
    pub fn listen(this: &Arc<Self>, address: SocketAddr) -> Result<(), NtStatus> {
        let endpoint = Port::open_listed_endpoint(&this.port, address, EndpointKind::Listener, this.owner)?;
        let local = endpoint.local();
        // An endpoint that is not used is given up after the lock is released.
        let unused = this.state.with(|state| {
            if state.closed || state.endpoint.is_some() {
                return Some(endpoint);
            }
            endpoint.listen(this.clone());
            state.endpoint = Some(endpoint);
            None
        });
        if unused.is_some() {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        let Some(wire) = this.port.wire() else { return Ok(()) };
        Wire::listen(&wire, local).inspect_err(|_| {
            let endpoint = this.state.with(|state| state.endpoint.take());
            drop(endpoint.as_ref().map(Endpoint::stop_listening));
        })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_STATE` if it does not.
    pub fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        let address = self.state.with(|state| state.endpoint.as_ref().map(Endpoint::local));
        address.ok_or(NtStatus::INVALID_DEVICE_STATE)
    }

    //= NDKPI 7.7.8
    /// Pauses connect events, or lets them come again (`NDKPI 7.7.8`). While paused, requests are refused as if nobody
    /// listened. An event that is being delivered at this moment goes on.
    pub fn pause(&self, paused: bool) {
        let local = self.state.with(|state| {
            state.paused = paused;
            state.endpoint.as_ref().map(Endpoint::local)
        });
        if let (Some(wire), Some(local)) = (self.port.wire(), local) {
            Wire::pause(&wire, local, paused);
        }
    }

    //= NDKPI 7.8.2
    /// Closes the listener: from now on it refuses connections (`NDKPI 7.8`). Its endpoint stays in use until the connectors
    /// that came over it are closed. Connectors that were delivered can still be accepted. If nothing waits to be refused and no
    /// event is being delivered, the listener has ended when this returns and the caller gives its reference back.
    pub fn close(this: &Arc<Self>) {
        let (listed, local, waits) = this.state.with(|state| {
            state.closed = true;
            let listed = state.endpoint.as_ref().map(Endpoint::stop_listening);
            (listed, state.endpoint.as_ref().map(Endpoint::local), !state.queue.is_empty())
        });
        if let (Some(wire), Some(local)) = (this.port.wire(), local) {
            Wire::stop_listening(&wire, local);
        }
        // What the table of ports held is dropped after the lock is released.
        drop(listed);
        if waits {
            // The DPC refuses them.
            this.dpc.queue(this);
        }
    }

    pub(super) const fn port(&self) -> &Arc<Port<O>> {
        &self.port
    }

    pub(super) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Takes a slot of the backlog for a request.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_REFUSED` if the listener does not want it.
    pub(super) fn reserve(this: &Arc<Self>) -> Result<BacklogSlot<O>, NtStatus> {
        this.state.with(|state| {
            // A listener that is closed is not found any more. A request that found it before is refused when it is its turn.
            let full = state.taken_slots >= this.port.limits().backlog;
            // Room in the queue for every slot that is not in it yet.
            let missing = (state.taken_slots as usize + 1).saturating_sub(state.queue.len());
            if state.paused || full || state.queue.try_reserve(missing).is_err() {
                return Err(NtStatus::CONNECTION_REFUSED);
            }
            state.taken_slots += 1;
            Ok(())
        })?;
        Ok(BacklogSlot { listener: this.clone() })
    }

    /// Delivers connect events, a bounded number of them.
    fn deliver(this: &Arc<Self>) {
        for _ in 0..EVENTS_PER_RUN {
            let Some((incoming, wanted)) = this.state.with(State::begin) else { return };
            // Requests that nobody wants are refused by being dropped.
            if wanted && incoming.is_wanted() {
                this.client.connect_event(incoming);
            } else {
                drop(incoming);
            }
            if !this.state.with(State::end) {
                return;
            }
        }
        this.dpc.queue(this);
    }
}

impl<O: Os> State<O> {
    /// Takes the next request, and says if its event is to be delivered. `None` while another event is being delivered.
    fn begin(&mut self) -> Option<(Incoming<O>, bool)> {
        if self.delivering {
            return None;
        }
        let (request, slot) = self.queue.pop_front()?;
        self.delivering = true;
        Some((Incoming { request, slot: Some(slot) }, !self.closed && !self.paused))
    }

    /// Ends the delivery of an event. Returns true if there are more requests.
    fn end(&mut self) -> bool {
        self.delivering = false;
        !self.queue.is_empty()
    }
}

/// The DPC of a listener.
pub struct ListenerDpc<O>(PhantomData<O>);

impl<O: Os> Routine for ListenerDpc<O> {
    type Target = Listener<O>;

    fn run(listener: &Arc<Listener<O>>) {
        Listener::deliver(listener);
    }
}

/// A slot of a listener's backlog.
pub(super) struct BacklogSlot<O: Os> {
    listener: Arc<Listener<O>>,
}

impl<O: Os> BacklogSlot<O> {
    pub const fn listener(&self) -> &Arc<Listener<O>> {
        &self.listener
    }

    /// Queues the connect event of the request in this slot.
    pub fn fill(self, request: Party<O>) {
        let listener = self.listener.clone();
        listener.state.with(|state| state.queue.push_back((request, self)));
        listener.dpc.queue(&listener);
    }
}

impl<O: Os> Drop for BacklogSlot<O> {
    fn drop(&mut self) {
        self.listener.state.with(|state| state.taken_slots -= 1);
    }
}

/// A connection request that no connector stands for yet. Dropping it refuses the connection.
pub struct Incoming<O: Os> {
    request: Party<O>,
    slot: Option<BacklogSlot<O>>,
}

impl<O: Os> Incoming<O> {
    /// Makes the connector that the consumer gets. It stands for the request from now on: closing it refuses the connection.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; the connection is refused then.
    pub fn into_connector(mut self, client: impl ConnectorClient) -> Result<Arc<Connector<O>>, NtStatus> {
        let Some(slot) = &self.slot else { return Err(NtStatus::CONNECTION_INVALID) };
        let connector = Connector::try_new(slot.listener.port(), slot.listener.owner(), client)?;
        if let Some(slot) = self.slot.take() {
            Connector::receive(&connector, self.request.clone(), slot);
        }
        Ok(connector)
    }

    /// Returns true if the active side still waits for an answer.
    fn is_wanted(&self) -> bool {
        self.request.is_requested()
    }
}

impl<O: Os> Drop for Incoming<O> {
    fn drop(&mut self) {
        if self.slot.take().is_some() {
            self.request.refuse();
        }
    }
}
