//! Connections with other machines: one connector here, the other behind the [wire](crate::wire).
//!
//! The phases are those of a connection of this machine ([`super::state`]), and so are the answers. What the peer says comes as events
//! of the wire.

use alloc::boxed::Box;

use fallible::{Arc, try_box};
use ntstatus::NtStatus;
use roce::{
    cm::{self, EventKind, Refusal, State as WireState},
    wire::cm::Reason,
};

use super::{
    ConnectParameters, ConnectionData, Connector, ConnectorRequest, DisconnectReason, Listener, Port, ReadLimits,
    connector::{BoundQp, Origin, Stage},
    ending::Disconnect,
    establish::FailedConnect,
    listener::BacklogSlot,
    listing::{ConnectionEntry, ListedConnection},
    parameters::PrivateData,
    state::{Connection, End, Ending, Ends, Phase, Role},
};
use crate::{
    os::{Os, SpinLock, Timer},
    qp::Qp,
    wire::{self, Acceptor, AcceptorRef, Names, Terms, Wanted, Wire},
};

/// A connection, as listeners and lists refer to it.
pub(super) enum Party<O: Os> {
    /// With a connector of this machine.
    Here(Arc<Connection<O>>),
    /// With another machine.
    Elsewhere(Arc<Remote<O>>),
}

impl<O: Os> Clone for Party<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Here(connection) => Self::Here(connection.clone()),
            Self::Elsewhere(remote) => Self::Elsewhere(remote.clone()),
        }
    }
}

impl<O: Os> Party<O> {
    /// Returns true if the active side still waits for the passive one.
    pub fn is_requested(&self) -> bool {
        match self {
            Self::Here(connection) => connection.is_requested(),
            Self::Elsewhere(remote) => remote.is_requested(),
        }
    }

    /// Refuses a request that never came to a connector.
    pub fn refuse(&self) {
        match self {
            Self::Here(connection) => Connection::refuse(connection),
            Self::Elsewhere(remote) => Remote::refuse(remote),
        }
    }

    /// Ends the connection because an adapter has gone.
    pub fn abort(&self, gone: &Port<O>) {
        match self {
            Self::Here(connection) => Connection::abort(connection, gone),
            Self::Elsewhere(remote) => Remote::abort(remote),
        }
    }

    /// Breaks the connection.
    pub fn break_off(&self) {
        match self {
            Self::Here(connection) => Connection::broken(connection),
            Self::Elsewhere(remote) => Remote::broken(remote),
        }
    }
}

/// A connection with another machine.
pub(super) struct Remote<O: Os> {
    pub addresses: Ends,
    role: Role,
    port: Arc<Port<O>>,
    wire: Arc<Wire<O>>,
    state: O::Lock<State<O>>,
}

struct State<O: Os> {
    phase: Phase,
    /// `None` before there is a connector, and after it was closed.
    end: Option<End<O>>,
    names: Names,
    /// What the peer has sent along last.
    data: Option<PrivateData>,
    /// What is agreed on; before that, what the peer wants.
    reads: ReadLimits,
}

/// Tells a connection what has happened to it on the wire.
struct WireParty<O: Os>(Arc<Remote<O>>);

impl<O: Os> wire::Party for WireParty<O> {
    fn event(&self, kind: EventKind) {
        Remote::event(&self.0, kind);
    }
}

/// Takes requests from the wire for a port.
struct PortAcceptor<O: Os>(Arc<Port<O>>);

/// Who takes requests from the wire for a port.
pub(super) fn acceptor<O: Os>(port: &Arc<Port<O>>) -> Result<AcceptorRef<O>, NtStatus> {
    let acceptor: Box<dyn Acceptor<O>> = try_box(PortAcceptor(port.clone()))?;
    Arc::try_new(acceptor).map_err(Into::into)
}

impl<O: Os> Acceptor<O> for PortAcceptor<O> {
    fn requested(&self, wire: &Arc<Wire<O>>, wanted: Wanted) {
        // Without a listener or memory the request is refused.
        if Remote::request(&self.0, wire, wanted).is_err() {
            Wire::release(wire, Names { connection: wanted.connection, qp: 0 });
        }
    }
}

/// Read limits as they are on the wire.
fn on_wire(limits: ReadLimits) -> cm::ReadLimits {
    let byte = |limit: u32| u8::try_from(limit).unwrap_or(u8::MAX);
    cm::ReadLimits { inbound: byte(limits.inbound), outbound: byte(limits.outbound) }
}

fn of_wire(limits: cm::ReadLimits) -> ReadLimits {
    ReadLimits { inbound: limits.inbound.into(), outbound: limits.outbound.into() }
}

/// What an active connector brings along: where its address comes from, its row in the list, its queue pair.
type Brought<O> = (Origin<O>, ListedConnection<O>, BoundQp<O>);

impl<O: Os> Remote<O> {
    fn try_new(port: &Arc<Port<O>>, wire: &Arc<Wire<O>>, role: Role, addresses: Ends) -> Result<Arc<Self>, NtStatus> {
        let state = State {
            phase: Phase::Requested,
            end: None,
            names: Names::default(),
            data: None,
            reads: ReadLimits::default(),
        };
        let state = port.os().lock(state)?;
        Arc::try_new(Self { addresses, role, port: port.clone(), wire: wire.clone(), state }).map_err(Into::into)
    }

    fn party(this: &Arc<Self>) -> Result<Arc<Box<dyn wire::Party>>, NtStatus> {
        let party: Box<dyn wire::Party> = try_box(WireParty(this.clone()))?;
        Arc::try_new(party).map_err(Into::into)
    }

    /// Begins to connect: see [`Connector::connect`].
    pub fn start(
        connector: &Arc<Connector<O>>,
        wire: &Arc<Wire<O>>,
        qp: &Arc<Qp<O>>,
        addresses: Ends,
        parameters: &ConnectParameters<'_>,
        (origin, listed, bound): Brought<O>,
    ) -> Result<(), NtStatus> {
        let port = connector.port();
        let this = Self::try_new(port, wire, Role::Active, addresses)?;
        let party = Self::party(&this)?;
        let reads = parameters.reads.capped(port.limits().max_reads);
        let terms = Terms { qp, limits: on_wire(reads), private_data: parameters.private_data };
        let unused = this.state.with(|state| {
            if let Err(status) = listed.attach(Party::Elsewhere(this.clone())) {
                return Some((status, origin, listed));
            }
            match Wire::connect(wire, &terms, addresses.local, addresses.peer, party) {
                Ok(names) => state.names = names,
                Err(status) => {
                    port.counters.failed_to_connect();
                    return Some((status, origin, listed));
                }
            }
            connector.state.with(|connector_state| {
                if !matches!(connector_state.stage, Stage::Starting) {
                    return Some((NtStatus::CANCELLED, origin, listed));
                }
                let mut end = End::new(connector.clone());
                end.qp = Some(qp.clone());
                end.listed = Some(listed);
                end.wait(ConnectorRequest::Connect, port.timeouts().connect);
                state.end = Some(end);
                connector_state.stage = Stage::Remote(this.clone());
                connector_state.origin = Some(origin);
                connector_state.qp = Some(qp.clone());
                None
            })
        });
        if let Some((status, ..)) = unused {
            this.let_go();
            return Err(status);
        }
        bound.keep();
        Ok(())
    }

    /// A peer wants to connect.
    fn request(port: &Arc<Port<O>>, wire: &Arc<Wire<O>>, wanted: Wanted) -> Result<(), NtStatus> {
        if port.is_suspended() {
            return Err(NtStatus::CONNECTION_REFUSED);
        }
        let address = port.local_address(wanted.local.ip()).ok_or(NtStatus::CONNECTION_REFUSED)?;
        let listener = address.listener(wanted.local.port()).ok_or(NtStatus::CONNECTION_REFUSED)?;
        let local = listener.local_address()?;
        let slot: BacklogSlot<O> = Listener::reserve(&listener)?;
        let this = Self::try_new(port, wire, Role::Passive, Ends { local, peer: wanted.remote })?;
        let party = Self::party(&this)?;
        this.state.with(|state| {
            state.names.connection = wanted.connection;
            state.learn(&this);
            let most = port.limits().max_reads;
            state.reads = state.reads.capped(most);
        });
        if !Wire::adopt(wire, wanted.connection, party) {
            return Err(NtStatus::CONNECTION_ABORTED);
        }
        slot.fill(Party::Elsewhere(this));
        Ok(())
    }

    /// Gives the end to its connector.
    pub fn receive(&self, connector: &Arc<Connector<O>>) {
        self.state.with(|state| state.end = Some(End::new(connector.clone())));
    }

    fn is_requested(&self) -> bool {
        self.state.with(|state| state.phase == Phase::Requested && self.is_awaited(state))
    }

    /// Returns true if the peer waits for an accept.
    fn is_awaited(&self, state: &State<O>) -> bool {
        self.wire.known(state.names.connection, |known| known.state == WireState::RequestReceived) == Some(true)
    }

    /// Copies what the peer has sent along: see [`Connector::connection_data`].
    pub fn data(&self, into: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        self.state.with(|state| {
            let required = state.data.as_ref().ok_or(NtStatus::CONNECTION_INVALID)?.copy_to(into);
            Ok(ConnectionData { reads: state.reads, required })
        })
    }

    /// Gives up what it has on the wire. Returns true if a receive has failed there. Not to be called with its lock held: what it has
    /// referred to may go.
    fn let_go(&self) -> bool {
        let names = self.state.with(|state| state.names);
        Wire::release(&self.wire, names)
    }

    /// Something has happened on the wire.
    fn event(this: &Arc<Self>, kind: EventKind) {
        match kind {
            // It came to the listener.
            EventKind::Requested => {}
            EventKind::Connected(Ok(())) => this.state.with(|state| {
                if state.phase == Phase::Requested {
                    state.learn(this);
                    state.phase = Phase::Accepted;
                    state.answer(ConnectorRequest::Connect, NtStatus::SUCCESS);
                }
            }),
            EventKind::Connected(Err(refusal)) => Self::refused(this, refusal),
            EventKind::Accepted(Ok(())) => Self::established(this),
            EventKind::Accepted(Err(refusal)) => {
                let is_over = this.state.with(|state| {
                    if state.phase != Phase::Accepted {
                        return false;
                    }
                    state.learn(this);
                    state.give_up(this, Ending::Abandoned(Role::Active));
                    state.answer_because(ConnectorRequest::Accept, refusal.status(), refusal.reason());
                    true
                });
                if is_over {
                    this.let_go();
                }
            }
            EventKind::Disconnected(cm::Ending::Graceful) | EventKind::DisconnectComplete(Ok(())) => {
                Self::end(this, Ending::Graceful, false);
            }
            EventKind::Disconnected(cm::Ending::Lost) | EventKind::DisconnectComplete(Err(Refusal::Aborted)) => {
                Self::end(this, Ending::Lost(DisconnectReason::Failed), false);
            }
            EventKind::DisconnectComplete(Err(_)) => Self::end(this, Ending::Cut(this.role), false),
        }
    }

    /// The connect has failed.
    fn refused(this: &Arc<Self>, refusal: Refusal) {
        let is_by_peer = matches!(refusal, Refusal::Rejected(_));
        let is_by_consumer = refusal == Refusal::Rejected(Reason::CONSUMER);
        let ending = if is_by_peer { Ending::Abandoned(Role::Passive) } else { Ending::NotInTime };
        let failed = this.state.with(|state| {
            if state.phase != Phase::Requested {
                return None;
            }
            if is_by_consumer {
                state.learn(this);
            }
            state.give_up(this, ending);
            state.take_failed(refusal.status(), refusal.reason())
        });
        this.let_go();
        if let Some(failed) = failed {
            failed.finish();
        }
    }

    /// The peer has completed its connect.
    fn established(this: &Arc<Self>) {
        let is_over = this.state.with(|state| {
            if state.phase != Phase::Accepted {
                return false;
            }
            let Some(qp) = state.end.as_ref().and_then(|end| end.qp.clone()) else { return false };
            qp.allow_reads(state.reads.outbound > 0);
            if Wire::link(&this.wire, state.names, &qp).is_err() {
                state.give_up(this, Ending::Abandoned(Role::Passive));
                state.answer(ConnectorRequest::Accept, NtStatus::CONNECTION_ABORTED);
                return true;
            }
            state.establish();
            this.port.counters.accepted();
            state.answer(ConnectorRequest::Accept, NtStatus::SUCCESS);
            false
        });
        if is_over {
            this.let_go();
        }
    }

    /// Accepts: see [`Connector::accept`].
    pub fn accept(
        this: &Arc<Self>,
        connector: &Arc<Connector<O>>,
        qp: &Arc<Qp<O>>,
        reads: ReadLimits,
        private_data: &[u8],
    ) -> Result<(), NtStatus> {
        let port = &this.port;
        this.state.with(|state| this.acceptable(state))?;
        let Ends { local, peer } = this.addresses;
        let entry = ConnectionEntry { local, remote: peer, owner: connector.owner() };
        let listed = ListedConnection::try_new(port, entry)?;
        let bound = BoundQp::try_new(connector, qp)?;
        let reads = reads.capped(port.limits().max_reads);
        let terms = Terms { qp, limits: on_wire(reads), private_data };
        // What is not used is dropped after the lock is released.
        let unused = this.state.with(|state| {
            let attached = this.acceptable(state).and_then(|()| listed.attach(Party::Elsewhere(this.clone())));
            let accepted = attached.and_then(|()| Wire::accept(&this.wire, state.names.connection, &terms));
            let (names, end) = match (accepted, &mut state.end) {
                (Ok(names), Some(end)) => (names, end),
                (Err(status), _) => return Err((status, listed)),
                (Ok(_), None) => return Err((NtStatus::CONNECTION_INVALID, listed)),
            };
            end.connector.use_qp(qp.clone());
            end.qp = Some(qp.clone());
            end.listed = Some(listed);
            end.wait(ConnectorRequest::Accept, port.timeouts().establish);
            state.names = names;
            state.phase = Phase::Accepted;
            state.learn_limits(this);
            Ok(())
        });
        unused.map_err(|(status, _)| status)?;
        bound.keep();
        Ok(())
    }

    fn acceptable(&self, state: &State<O>) -> Result<(), NtStatus> {
        match state.phase {
            _ if self.role == Role::Active => Err(NtStatus::CONNECTION_INVALID),
            Phase::Requested if self.is_awaited(state) => Ok(()),
            Phase::Requested | Phase::Over(Ending::Abandoned(Role::Active) | Ending::NotInTime) => {
                Err(NtStatus::CONNECTION_ABORTED)
            }
            Phase::Accepted | Phase::Established => Err(NtStatus::CONNECTION_ACTIVE),
            Phase::Over(_) => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Completes the connect: see [`Connector::complete_connect`].
    pub fn complete(this: &Arc<Self>) -> Result<(), NtStatus> {
        let (result, is_over) = this.state.with(|state| {
            let refuse = |status| (Err(status), false);
            if this.role == Role::Passive {
                return refuse(NtStatus::CONNECTION_INVALID);
            }
            match state.phase {
                Phase::Accepted => {}
                Phase::Over(Ending::NotInTime) => return refuse(NtStatus::IO_TIMEOUT),
                Phase::Over(Ending::Abandoned(Role::Passive)) => return refuse(NtStatus::CONNECTION_ABORTED),
                _ => return refuse(NtStatus::CONNECTION_INVALID),
            }
            let Some((connector, qp)) =
                state.end.as_ref().filter(|end| !end.connector.is_unanswered()).and_then(|end| {
                    let connector = end.connector.clone();
                    end.qp.clone().map(|qp| (connector, qp))
                })
            else {
                return refuse(NtStatus::CONNECTION_INVALID);
            };
            let fail = |state: &mut State<O>, by, status| {
                state.give_up(this, Ending::Abandoned(by));
                (Err(status), true)
            };
            qp.allow_reads(state.reads.outbound > 0);
            if Wire::link(&this.wire, state.names, &qp).is_err() || qp.is_dead() {
                return fail(state, Role::Active, NtStatus::CONNECTION_INVALID);
            }
            if let Err(status) = Wire::complete_connect(&this.wire, state.names) {
                return fail(state, Role::Passive, status);
            }
            state.establish();
            this.port.counters.connected();
            // Before anything can end the connection: that needs the lock of the connection.
            connector.hold();
            (Ok(()), false)
        });
        if is_over {
            Self::part(this);
        }
        result
    }

    /// Unlinks the queue pair of a connection that was not established after all.
    fn part(this: &Arc<Self>) {
        this.let_go();
        if let Some(qp) = this.state.with(|state| state.end.as_ref().and_then(|end| end.qp.clone())) {
            Qp::unlink(&qp);
        }
    }

    /// Refuses a request that never came to a connector.
    fn refuse(this: &Arc<Self>) {
        this.state.with(|state| {
            if state.phase == Phase::Requested {
                state.give_up(this, Ending::Abandoned(Role::Passive));
            }
        });
        this.let_go();
    }

    /// Rejects: see [`Connector::reject`].
    pub fn reject(this: &Arc<Self>, private_data: &[u8]) -> Result<(), NtStatus> {
        let rejectable = match this.role {
            Role::Passive => Phase::Requested,
            Role::Active => Phase::Accepted,
        };
        this.state.with(|state| {
            match state.phase {
                phase if phase == rejectable => {}
                Phase::Over(Ending::Abandoned(by)) if by != this.role => return Err(NtStatus::CONNECTION_ABORTED),
                Phase::Over(Ending::NotInTime) => return Err(NtStatus::CONNECTION_ABORTED),
                _ => return Err(NtStatus::CONNECTION_INVALID),
            }
            if state.end.as_ref().is_none_or(|end| end.connector.is_unanswered()) {
                return Err(NtStatus::CONNECTION_INVALID);
            }
            let rejected = Wire::reject(&this.wire, state.names, private_data);
            state.give_up(this, Ending::Abandoned(this.role));
            rejected
        })?;
        this.let_go();
        Ok(())
    }

    /// Disconnects: see [`Connection::disconnect`].
    pub fn disconnect(this: &Arc<Self>) -> Result<Disconnect, NtStatus> {
        let (over, qp) = this.state.with(|state| {
            let over = match state.phase {
                Phase::Established => None,
                Phase::Over(ending) if ending.was_established() => Some(ending),
                _ => return Err(NtStatus::CONNECTION_INVALID),
            };
            let Some(end) = state.end.as_mut().filter(|end| !end.disconnected && !end.connector.is_unanswered()) else {
                return Err(NtStatus::CONNECTION_INVALID);
            };
            end.disconnected = true;
            end.connector.silence();
            if over.is_none() {
                end.wait(ConnectorRequest::Disconnect, this.port.timeouts().disconnect);
            }
            Ok((over, end.qp.clone()))
        })?;
        let Some(ending) = over else {
            if let Some(qp) = &qp {
                Qp::drain(qp);
            }
            return Ok(Disconnect::Pending);
        };
        if let Some(qp) = &qp {
            Qp::fail(qp);
            qp.quiesce();
        }
        if ending == Ending::Graceful { Ok(Disconnect::Done) } else { Err(NtStatus::CONNECTION_ABORTED) }
    }

    /// Everything that this side had posted before its disconnect has ended: the peer is told.
    pub fn drained(this: &Arc<Self>) {
        let names = this.state.with(|state| (state.phase == Phase::Established).then_some(state.names));
        if let Some(names) = names {
            // If it is over on the wire, the event that says so is on its way.
            let _ = Wire::disconnect(&this.wire, names);
        }
    }

    /// The queue pair has lost its peer.
    pub fn broken(this: &Arc<Self>) {
        Self::end(this, Ending::Lost(DisconnectReason::Failed), false);
    }

    /// The adapter has gone.
    fn abort(this: &Arc<Self>) {
        Self::give_up_unconnected(this);
        Self::end(this, Ending::Lost(DisconnectReason::Removed), true);
    }

    /// Gives up a connection that was not established when the adapter went. Not inlined: its frame would lie below the end of one that was.
    #[inline(never)]
    fn give_up_unconnected(this: &Arc<Self>) {
        let (is_unconnected, failed) = this.state.with(|state| match state.phase {
            Phase::Requested | Phase::Accepted => {
                (true, state.abandon(this, NtStatus::CONNECTION_ABORTED, Ending::Abandoned(this.role)))
            }
            Phase::Established | Phase::Over(_) => (false, None),
        });
        if is_unconnected {
            this.let_go();
        }
        if let Some(failed) = failed {
            failed.finish();
        }
    }

    /// A request may have timed out: see [`Connection::expired`].
    pub fn expired(this: &Arc<Self>) {
        enum Late<O: Os> {
            Nothing,
            Establishing(Option<FailedConnect<O>>),
            Disconnecting,
        }
        let late = this.state.with(|state| {
            let Some(end) = state.end.as_ref().filter(|end| end.pending.is_some()) else { return Late::Nothing };
            let left = end.deadline.saturating_sub(end.connector.os().now());
            if left > 0 {
                end.connector.timer().set(left, &end.connector);
                return Late::Nothing;
            }
            match (end.pending, state.phase) {
                (Some(ConnectorRequest::Connect), Phase::Requested)
                | (Some(ConnectorRequest::Accept), Phase::Accepted) => {
                    Late::Establishing(state.abandon(this, NtStatus::IO_TIMEOUT, Ending::NotInTime))
                }
                (Some(ConnectorRequest::Disconnect), Phase::Established) => Late::Disconnecting,
                // An answer is about to be given.
                _ => Late::Nothing,
            }
        });
        match late {
            Late::Nothing => {}
            Late::Establishing(failed) => {
                this.let_go();
                if let Some(failed) = failed {
                    failed.finish();
                }
            }
            Late::Disconnecting => Self::end(this, Ending::Cut(this.role), false),
        }
    }

    /// Ends the connection, if it is established, in the steps of [`super::ending`].
    fn end(this: &Arc<Self>, ending: Ending, is_flushed: bool) {
        let Some((qp, is_failing)) = this.state.with(|state| {
            if state.phase != Phase::Established {
                return None;
            }
            let has_disconnected = state.declare_over(this, ending, false);
            Some((state.end.as_ref().and_then(|end| end.qp.clone()), has_disconnected || is_flushed))
        }) else {
            return;
        };
        if let (Some(qp), true) = (&qp, is_failing) {
            // A disconnect flushes, and so does an adapter that goes.
            Qp::fail(qp);
        }
        let has_failed = this.let_go();
        if let Some(qp) = &qp {
            // The end of a connection does not flush (`NDKPI 7.7.6`), but a receive that fails does.
            if has_failed {
                Qp::fail(qp);
            } else {
                Qp::unlink(qp);
            }
            qp.quiesce();
        }
        this.state.with(|state| {
            if let Some(end) = &mut state.end {
                end.tell(this.role, ending);
            }
        });
    }

    /// The connector is closed, whatever it is doing.
    pub fn leave(this: &Arc<Self>) {
        let (failed, qp, was_established) = this.state.with(|state| {
            let mut failed = None;
            let was_established = match state.phase {
                Phase::Requested | Phase::Accepted => {
                    failed = state.abandon(this, NtStatus::CANCELLED, Ending::Abandoned(this.role));
                    false
                }
                Phase::Established => {
                    state.declare_over(this, Ending::Lost(DisconnectReason::Closed), true);
                    true
                }
                Phase::Over(ending) => ending.was_established(),
            };
            state.answer(ConnectorRequest::Disconnect, NtStatus::CANCELLED);
            (failed, state.end.as_ref().and_then(|end| end.qp.clone()), was_established)
        });
        if let Some(qp) = &qp {
            if was_established {
                Qp::fail(qp);
            }
            drop(qp.take_link_client());
        }
        this.let_go();
        if let Some(failed) = failed {
            failed.finish();
        }
        if let (Some(qp), true) = (&qp, was_established) {
            qp.quiesce();
        }
        // The end is dropped after the lock is released.
        drop(this.state.with(|state| state.end.take()));
    }
}

impl<O: Os> State<O> {
    /// Keeps what is known of the peer: what it has sent along, and the limits.
    fn learn(&mut self, connection: &Remote<O>) {
        let learnt = connection.wire.known(self.names.connection, |known| {
            let size = u32::try_from(known.private.len()).unwrap_or(0);
            (PrivateData::try_new(known.private, size).ok(), known.limits)
        });
        if let Some((data, limits)) = learnt {
            (self.data, self.reads) = (data, of_wire(limits));
        }
    }

    fn learn_limits(&mut self, connection: &Remote<O>) {
        if let Some(limits) = connection.wire.known(self.names.connection, |known| known.limits) {
            self.reads = of_wire(limits);
        }
    }

    /// Answers a request if it waits.
    fn answer(&mut self, request: ConnectorRequest, status: NtStatus) {
        self.answer_because(request, status, None);
    }

    /// [`State::answer`], with the reason of the peer's REJ.
    fn answer_because(&mut self, request: ConnectorRequest, status: NtStatus, reason: Option<Reason>) {
        if let Some(end) = &mut self.end
            && end.take_pending(request)
        {
            Connector::answer_because(&end.connector, request, status, reason);
        }
    }

    fn establish(&mut self) {
        self.phase = Phase::Established;
        if let Some(listed) = self.end.as_ref().and_then(|end| end.listed.as_ref()) {
            listed.show();
        }
    }

    /// The connection was not established, and will not be.
    fn give_up(&mut self, connection: &Remote<O>, ending: Ending) {
        self.phase = Phase::Over(ending);
        connection.port.counters.failed_to_connect();
    }

    /// The connect, if it waits for its answer. It is answered where no lock is held.
    fn take_failed(&mut self, status: NtStatus, reason: Option<Reason>) -> Option<FailedConnect<O>> {
        let end = self.end.take_if(|end| end.take_pending(ConnectorRequest::Connect))?;
        Some(FailedConnect { end, status, data: self.data.take(), reason })
    }

    /// This side gives up before the connection is established; its request is answered with `status`. Not inlined: what it moves would be
    /// on the stack twice more while the wire gives the connection up.
    #[inline(never)]
    fn abandon(&mut self, connection: &Remote<O>, status: NtStatus, ending: Ending) -> Option<FailedConnect<O>> {
        self.give_up(connection, ending);
        self.answer(ConnectorRequest::Accept, status);
        self.take_failed(status, None)
    }

    /// Declares the connection over: see [`super::ending`]. Returns true if this side has disconnected.
    fn declare_over(&mut self, connection: &Remote<O>, ending: Ending, is_closing: bool) -> bool {
        self.phase = Phase::Over(ending);
        let has_disconnected = self.end.as_ref().is_some_and(|end| end.disconnected);
        connection.port.counters.ended();
        if matches!(ending, Ending::Lost(_)) && !has_disconnected && !is_closing {
            connection.port.counters.broke();
        }
        if let Some(end) = &mut self.end {
            end.listed = None;
        }
        has_disconnected
    }
}
