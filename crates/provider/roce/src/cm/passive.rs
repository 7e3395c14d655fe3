//! The passive side (RoCEv2 8.6): `NdkListen`, `NdkAccept`.

use core::net::{IpAddr, SocketAddr};

use super::{
    CallError, Connection, Context, Ending, EventKind, Listener, Manager, PATIENCE, PRIVATE, ReadLimits, State,
    connection::put,
};
use crate::{
    adapter::Adapter,
    failure::Failure,
    mtu::Mtu,
    psn::Psn,
    timeout,
    wire::{
        Envelope, U24,
        cm::{Attribute, Mad, Message, Reason, Rej, Rep, Req, Rtu, service_port},
    },
};

/// Bits of a P_Key that name the partition.
const PARTITION: u16 = 0x7FFF;
/// The longest that a peer's REQ can make this side wait for an RTU, in microseconds.
const LONGEST_INTERVAL: u64 = 5_000_000;

/// A REQ that is as it should be.
struct Wanted {
    peer: SocketAddr,
    port: u16,
    mtu: Mtu,
}

impl Manager {
    /// `NdkListen`: connections to this port are told as events.
    pub fn listen(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), CallError> {
        let overlaps = |listener: &Listener| {
            listener.port == port && (listener.address == address || listener.address.is_none() || address.is_none())
        };
        if self.listeners.iter().flatten().any(overlaps) {
            return Err(CallError::InUse);
        }
        let slot = self.listeners.iter_mut().find(|slot| slot.is_none()).ok_or(CallError::NoRoom)?;
        *slot = Some(Listener { address, port, paused: false });
        Ok(())
    }

    /// Ends listening. Connections that were told stay.
    pub fn stop_listening(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), CallError> {
        let slot = self.listener_slot(address, port)?;
        *slot = None;
        Ok(())
    }

    /// `NdkControlConnectEvents`.
    pub fn pause(&mut self, address: Option<IpAddr>, port: u16, paused: bool) -> Result<(), CallError> {
        let slot = self.listener_slot(address, port)?;
        *slot = Some(Listener { address, port, paused });
        Ok(())
    }

    fn listener_slot(&mut self, address: Option<IpAddr>, port: u16) -> Result<&mut Option<Listener>, CallError> {
        let is_it = |listener: Listener| listener.address == address && listener.port == port;
        self.listeners.iter_mut().find(|slot| slot.is_some_and(is_it)).ok_or(CallError::Unknown)
    }

    /// A peer wants to connect.
    pub(super) fn req<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        envelope: &Envelope,
        transaction: u64,
        req: &Req,
    ) {
        let (guid, remote_id, qpn) = (req.guid.get(), req.local_id.get(), req.qpn.get());
        let from_peer = |connection: &Connection| connection.path.is_of(envelope) && connection.remote_guid == guid;
        let again = |connection: &Connection| from_peer(connection) && connection.remote_id == remote_id;
        if let Some(id) = self.find(|connection| again(connection) && connection.state != State::Over) {
            self.req_again(context, id);
            return;
        }
        let path = Self::way_back(context.interface, envelope);
        // The answer was lost: it comes again.
        let refused = self.find(again).and_then(|id| self.connection(id)?.refusal());
        let is_past =
            |past: &super::Past| past.remote_guid == guid && past.remote_id == remote_id && past.until > context.now;
        let past = self.past.iter().find(|past| is_past(past));
        if let Some(refusal) = refused.or_else(|| past?.refusal) {
            self.send(context.counters, path, refusal);
            return;
        }
        let is_past = past.is_some();
        let refuse = |this: &mut Self, context: &mut Context<'_, A>, reason: Reason, information: &[u8]| {
            let rej = Rej::new(0, remote_id, Message::Req, reason, information);
            this.refuse(context.counters, path, transaction, &rej);
        };
        if is_past {
            refuse(self, context, Reason::STALE, &[]);
            return;
        }
        // The peer has a new connection with the numbers of one that this side believes in: that one is dead.
        let stale = |connection: &Connection| {
            from_peer(connection) && connection.remote_qpn == qpn && connection.state == State::Established
        };
        if let Some(id) = self.find(stale) {
            refuse(self, context, Reason::STALE, &[]);
            self.lose(context, id, Failure::Disconnected, Ending::Lost);
            return;
        }
        let wanted = match self.judge(context, envelope, req) {
            Ok(wanted) => wanted,
            Err((reason, information)) => {
                let length = if information == [0; 16] { 0 } else { information.len() };
                let length = if reason == Reason::BAD_MTU { 1 } else { length };
                refuse(self, context, reason, &information[..length]);
                return;
            }
        };
        let waiting = [State::RequestReceived, State::ReplySent];
        let half_open = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        let half_open = half_open.filter(|connection| waiting.contains(&connection.state)).count();
        let slot = if half_open < self.half_open { self.free_slot() } else { None };
        let Some((index, id)) = slot else {
            context.counters.refused_for_room += 1;
            refuse(self, context, Reason::NO_RESOURCES, &[]);
            return;
        };
        let receive_psn = self.psn();
        // A peer's times are taken, but not longer than this side has patience.
        let interval = timeout::of_code(req.local_timeout_code()).unwrap_or(LONGEST_INTERVAL).min(LONGEST_INTERVAL);
        let mut connection = Connection {
            id,
            remote_id,
            state: State::RequestReceived,
            qp: 0,
            remote_qpn: qpn,
            remote_guid: guid,
            transaction,
            local: SocketAddr::new(envelope.ip.destination, wanted.port),
            remote: wanted.peer,
            path,
            message: Mad::new(Attribute::Rep, transaction, &[0_u8; crate::wire::cm::DATA]),
            deadline: None,
            interval,
            retries: req.cm_retries(),
            patience: PATIENCE,
            renewed: false,
            private: [0; PRIVATE],
            private_length: 0,
            limits: ReadLimits { inbound: req.initiator_depth, outbound: req.responder_resources },
            mtu: wanted.mtu,
            send_psn: Psn::new(req.starting_psn.get()),
            receive_psn,
            ack_timeout: req.primary.ack_timeout >> 3,
            retry_count: req.retry_count(),
            rnr_retry_count: req.rnr_retry_count(),
            asked_again: false,
            doubted: false,
            disconnecting: false,
            closed: false,
        };
        connection.keep(&req.private.consumer);
        self.slots[index].connection = Some(connection);
        self.tell(id, EventKind::Requested);
    }

    /// Looks at each field of a REQ that can be wrong (RoCEv2 8.6).
    ///
    /// # Errors
    ///
    /// The reason of the REJ, and what would be right.
    fn judge<A>(&self, context: &Context<'_, A>, envelope: &Envelope, req: &Req) -> Result<Wanted, (Reason, [u8; 16])> {
        const NOTHING: [u8; 16] = [0; 16];
        let ours = crate::wire::cm::gid(envelope.ip.destination);
        let theirs = crate::wire::cm::gid(envelope.ip.source);
        if req.transport() != 0 {
            return Err((Reason::BAD_TRANSPORT, NOTHING));
        }
        if req.primary.remote_gid != ours || req.primary.local_gid != theirs || req.p_key.get() & PARTITION != PARTITION
        {
            return Err((Reason::BAD_GID, ours));
        }
        let port = service_port(req.service.get()).ok_or((Reason::BAD_SERVICE_ID, NOTHING))?;
        let listens = |listener: &Listener| {
            let here = listener.address.is_none_or(|address| address == envelope.ip.destination);
            here && listener.port == port && !listener.paused
        };
        if !self.listeners.iter().flatten().any(listens) {
            return Err((Reason::BAD_SERVICE_ID, NOTHING));
        }
        let addresses = req.private.addresses.get().ok_or((Reason::CONSUMER, NOTHING))?;
        let (peer, destination) = addresses;
        if peer.ip() != envelope.ip.source || destination != envelope.ip.destination {
            return Err((Reason::CONSUMER, NOTHING));
        }
        if req.qpn.get() < 2 {
            return Err((Reason::NO_QP, NOTHING));
        }
        let own = context.interface.mtu;
        match Mtu::from_code(req.mtu_code()) {
            Some(mtu) if mtu <= own => Ok(Wanted { peer, port, mtu }),
            _ => {
                let mut information = NOTHING;
                information[0] = own.code();
                Err((Reason::BAD_MTU, information))
            }
        }
    }

    /// A REQ has come again.
    fn req_again<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let Some(connection) = self.get_mut(id).filter(|connection| connection.state == State::RequestReceived) else {
            // The REP is repeated by its own time.
            return;
        };
        if core::mem::replace(&mut connection.asked_again, true) {
            self.ask_for_time(context.counters, id, Message::Req);
        }
    }

    /// `NdkAccept`. The outcome is an event.
    pub fn accept<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        id: u32,
        qp: u32,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), CallError> {
        let entry = context.qps.get(qp).ok_or(CallError::Unknown)?;
        let is_free = entry.is_free();
        let sizes = entry.qp.sizes();
        let mut data = [0; PRIVATE];
        put(&mut data, private).ok_or(CallError::TooMuchData)?;
        let connection = self.get_mut(id).ok_or(CallError::Unknown)?;
        if connection.state != State::RequestReceived || !is_free {
            return Err(CallError::WrongState);
        }
        connection.qp = qp;
        connection.limits = ReadLimits {
            inbound: connection.limits.inbound.min(limits.inbound).min(sizes.inbound_reads),
            outbound: connection.limits.outbound.min(limits.outbound).min(sizes.outbound_reads),
        };
        connection.state = State::ReplySent;
        if !self.connect_qp(context, id) {
            return Err(CallError::WrongState);
        }
        let times = self.times;
        let connection = self.connection(id).ok_or(CallError::Unknown)?;
        let rep = Rep {
            local_id: connection.wire_id().into(),
            remote_id: connection.remote_id.into(),
            q_key: 0.into(),
            qpn: U24::new(qp),
            vendor: 0,
            eecn: 0.into(),
            starting_psn: U24::new(connection.receive_psn.get()),
            reserved: 0,
            responder_resources: connection.limits.inbound,
            initiator_depth: connection.limits.outbound,
            ack_delay: super::ACK_DELAY << 3,
            rnr_retry: times.rnr_retry_count << 5,
            guid: context.interface.guid.into(),
            private: data,
        };
        let mad = Mad::new(Attribute::Rep, connection.transaction, &rep);
        self.send_until_answered(context.now, context.counters, id, mad);
        Ok(())
    }

    /// The active side has seen the REP.
    pub(super) fn rtu<A: Adapter>(&mut self, _: &mut Context<'_, A>, envelope: &Envelope, rtu: &Rtu) {
        if let Some(id) = self.meant(envelope, rtu.remote_id.get(), rtu.local_id.get()) {
            self.established(id);
        }
    }

    /// An RTU has come, or a request on the queue pair, which says the same.
    pub fn established(&mut self, id: u32) {
        if let Some(connection) = self.get_mut(id).filter(|connection| connection.state == State::ReplySent) {
            connection.state = State::Established;
            connection.deadline = None;
            self.tell(id, EventKind::Accepted(Ok(())));
        }
    }
}
