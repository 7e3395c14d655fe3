//! The active side (RoCEv2 8.5): `NdkConnect`, `NdkCompleteConnect`.

use core::net::SocketAddr;

use super::{
    CallError, Connection, Context, EventKind, HOP_LIMIT, Manager, PATIENCE, PRIVATE, ReadLimits, Refusal, SOURCE_PORT,
    State, connection::put,
};
use crate::{
    adapter::Adapter,
    mtu::Mtu,
    neighbours::Neighbour,
    path::Path,
    psn::Psn,
    timeout,
    wire::{
        Envelope, U24,
        cm::{
            Attribute, CONSUMER_DATA, IpAddresses, Mad, Message, Path as WirePath, Reason, Rej, Rep, Req, ReqPrivate,
            Rtu, service_id,
        },
        ethernet::BROADCAST,
    },
};

/// What a consumer connects with.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'call> {
    /// The queue pair.
    pub qp: u32,
    /// An address of this side; port 0 picks one.
    pub local: SocketAddr,
    /// Where the peer listens.
    pub remote: SocketAddr,
    /// Up to 56 bytes for the peer.
    pub private: &'call [u8],
    /// READs.
    pub limits: ReadLimits,
}

/// The first port that is picked.
const EPHEMERAL: u16 = 49152;
/// How often an RTU is sent again, unasked.
const RTUS: u8 = 3;
/// Microseconds between two looks for the peer's station.
const LOOK: u64 = 100_000;

impl Manager {
    /// Begins to connect. The outcome is an event.
    pub fn connect<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        connect: &Connect<'_>,
    ) -> Result<u32, CallError> {
        let Connect { qp, mut local, remote, private, limits } = *connect;
        let entry = context.qps.get(qp).ok_or(CallError::Unknown)?;
        if !entry.is_free() {
            return Err(CallError::WrongState);
        }
        let sizes = entry.qp.sizes();
        let mut data = [0; CONSUMER_DATA];
        put(&mut data, private).ok_or(CallError::TooMuchData)?;
        if !context.interface.may_connect(local.ip(), remote.ip()) {
            return Err(CallError::BadAddress);
        }
        context.interface.next_hop(remote.ip()).ok_or(CallError::NoRoute)?;
        let (index, id) = self.free_slot().ok_or(CallError::NoRoom)?;
        if local.port() == 0 {
            local.set_port(EPHEMERAL + self.ephemeral);
            self.ephemeral = (self.ephemeral + 1) % (u16::MAX - EPHEMERAL);
        }
        let limits = ReadLimits {
            inbound: limits.inbound.min(sizes.inbound_reads),
            outbound: limits.outbound.min(sizes.outbound_reads),
        };
        let path = Path {
            local_mac: context.interface.mac,
            remote_mac: BROADCAST,
            tag: context.interface.tag,
            local: local.ip(),
            remote: remote.ip(),
            source_port: SOURCE_PORT,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
        };
        let (receive_psn, times) = (self.psn(), self.times);
        let transaction = u64::from(id);
        let mut connection = Connection {
            id,
            remote_id: 0,
            state: State::Resolving,
            qp,
            remote_qpn: 0,
            remote_guid: 0,
            transaction,
            local,
            remote,
            path,
            message: Mad::new(Attribute::Req, transaction, &[0_u8; crate::wire::cm::DATA]),
            deadline: Some(context.now),
            interval: timeout::of_code(times.response).unwrap_or(1_000_000),
            retries: times.retries,
            patience: PATIENCE,
            renewed: false,
            private: [0; PRIVATE],
            private_length: 0,
            limits,
            mtu: context.interface.mtu,
            send_psn: Psn::default(),
            receive_psn,
            ack_timeout: times.ack,
            retry_count: times.retry_count,
            rnr_retry_count: times.rnr_retry_count,
            asked_again: false,
            doubted: false,
            disconnecting: false,
            closed: false,
        };
        connection.message = Mad::new(Attribute::Req, transaction, &self.build_req(context, &connection, data));
        self.slots[index].connection = Some(connection);
        if let Some(entry) = context.qps.get_mut(qp) {
            entry.connection = id;
        }
        self.resolve(context, id);
        Ok(id)
    }

    /// The REQ of a connection.
    fn build_req<A>(&self, context: &Context<'_, A>, connection: &Connection, consumer: [u8; CONSUMER_DATA]) -> Req {
        let Connection { local, remote, .. } = connection;
        let times = self.times;
        // The label of rdma_cm, which takes both ports.
        let label = (u32::from(local.port()) * 31 + u32::from(remote.port())) & 0xF_FFFF;
        Req {
            local_id: connection.wire_id().into(),
            reserved: 0,
            vendor: U24::default(),
            service: service_id(remote.port()).into(),
            guid: context.interface.guid.into(),
            reserved2: 0.into(),
            q_key: 0.into(),
            qpn: U24::new(connection.qp),
            responder_resources: connection.limits.inbound,
            local_eecn: U24::default(),
            initiator_depth: connection.limits.outbound,
            remote_eecn: U24::default(),
            remote_timeout: times.response << 3,
            starting_psn: U24::new(connection.receive_psn.get()),
            local_timeout: times.response << 3 | times.retry_count,
            p_key: 0xFFFF.into(),
            mtu: connection.mtu.code() << 4 | times.rnr_retry_count,
            retries: times.retries << 4,
            primary: WirePath::new(local.ip(), remote.ip(), label, HOP_LIMIT, times.ack),
            alternate: WirePath::NONE,
            private: ReqPrivate { addresses: IpAddresses::new(*local, remote.ip()), consumer },
        }
    }

    /// Looks for the station of a connection's peer, and sends the REQ when it is known.
    pub(super) fn resolve<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let Some(connection) = self.get_mut(id) else { return };
        let Some(next_hop) = context.interface.next_hop(connection.remote.ip()) else {
            self.end_unconnected(context, id, Refusal::NetworkUnreachable);
            return;
        };
        match context.neighbours.resolve(context.now, next_hop) {
            Neighbour::Known(mac) => {
                connection.path.remote_mac = mac;
                connection.state = State::RequestSent;
                let mad = connection.message;
                self.send_until_answered(context.now, context.counters, id, mad);
            }
            Neighbour::Asked | Neighbour::NoRoom => {
                let look = context.now + LOOK;
                connection.deadline = Some(look);
                self.wake_at(look);
            }
            Neighbour::Silent => self.end_unconnected(context, id, Refusal::HostUnreachable),
        }
    }

    /// A station has answered: connections that wait for it go on.
    pub fn neighbours_changed<A: Adapter>(&mut self, context: &mut Context<'_, A>) {
        for index in 0..self.slots.len() {
            let Some(connection) = &self.slots[index].connection else { continue };
            let (id, doubted) = (connection.id, connection.doubted);
            if connection.state == State::Resolving {
                self.resolve(context, id);
            } else if doubted {
                self.find_again(context, id);
            }
        }
    }

    /// The peer of a connection does not answer. That the frames go to the wrong station is one reason: it was exchanged, or a frame
    /// was changed on its way before the header that says where it comes from, which no ICRC covers.
    pub fn doubt<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let Some(connection) = self.get_mut(id) else { return };
        let Some(next_hop) = context.interface.next_hop(connection.remote.ip()) else { return };
        connection.doubted = true;
        context.neighbours.doubt(context.now, next_hop);
        self.find_again(context, id);
    }

    /// If the station of a peer in doubt is known, frames go there from now on; first of all the message that waits for an answer.
    fn find_again<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let Some(connection) = self.get_mut(id) else { return };
        let next_hop = context.interface.next_hop(connection.remote.ip());
        let Some(mac) = next_hop.and_then(|next_hop| context.neighbours.known(next_hop)) else { return };
        connection.doubted = false;
        if connection.path.remote_mac == mac {
            return;
        }
        connection.path.remote_mac = mac;
        let (qp, path) = (connection.qp, connection.path);
        let message = connection.deadline.map(|_| connection.message);
        if let Some(entry) = context.qps.get_mut(qp).filter(|entry| entry.connection == id) {
            entry.qp.redirect(mac);
        }
        if let Some(message) = message {
            self.send(context.counters, path, message);
        }
    }

    /// A peer has accepted.
    pub(super) fn rep<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        envelope: &Envelope,
        transaction: u64,
        rep: &Rep,
    ) {
        let (ours, theirs) = (rep.remote_id.get(), rep.local_id.get());
        let Some(id) = self.meant(envelope, ours, theirs) else {
            // Its connection was given up. The peer need not wait.
            let path = Self::way_back(context.interface, envelope);
            let rej = Rej::new(0, theirs, Message::Rep, Reason::BAD_COMMUNICATION_ID, &[]);
            self.refuse(context.counters, path, transaction, &rej);
            return;
        };
        let Some(connection) = self.get_mut(id) else { return };
        match connection.state {
            State::RequestSent => {}
            State::ReplyReceived => {
                connection.asked_again = true;
                self.ask_for_time(context.counters, id, Message::Rep);
                return;
            }
            State::Established => {
                // The peer has not got the RTU. It goes where the REP comes from: what is known of the station may be wrong, and nobody
                // waits here for an answer that would show it.
                let (path, rtu) = (Self::way_back(context.interface, envelope), rtu(connection));
                self.send(context.counters, path, rtu);
                self.doubt(context, id);
                return;
            }
            _ => return,
        }
        let (qpn, delay) = (rep.qpn.get(), rep.ack_delay >> 3);
        connection.remote_id = theirs;
        if qpn < 2 {
            self.send_rej(context.counters, id, Reason::NO_QP, &[], &[]);
            self.end_unconnected(context, id, Refusal::Rejected(Reason::NO_QP));
            return;
        }
        connection.remote_qpn = qpn;
        connection.remote_guid = rep.guid.get();
        connection.send_psn = Psn::new(rep.starting_psn.get());
        connection.limits = ReadLimits {
            inbound: connection.limits.inbound.min(rep.initiator_depth),
            outbound: connection.limits.outbound.min(rep.responder_resources),
        };
        connection.rnr_retry_count = rep.rnr_retry >> 5;
        // An answer takes as long as the peer says, and the way there and back.
        connection.ack_timeout = connection.ack_timeout.max(delay + 1).min(31);
        connection.keep(&rep.private);
        connection.state = State::ReplyReceived;
        connection.deadline = None;
        if self.connect_qp(context, id) {
            self.tell(id, EventKind::Connected(Ok(())));
        } else {
            // The consumer has destroyed the queue pair.
            self.send_rej(context.counters, id, Reason::CONSUMER, &[], &[]);
            if let Some(connection) = self.get_mut(id) {
                connection.state = State::RequestSent;
            }
            self.end_unconnected(context, id, Refusal::Aborted);
        }
    }

    /// `NdkCompleteConnect`.
    pub fn complete_connect<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) -> Result<(), CallError> {
        let connection = self.get_mut(id).ok_or(CallError::Unknown)?;
        if connection.state != State::ReplyReceived {
            return Err(CallError::WrongState);
        }
        connection.state = State::Established;
        let was_asked_again = connection.asked_again;
        self.send_rtu(context.counters, id);
        if was_asked_again && let Some(connection) = self.get_mut(id) {
            // The peer has been asked for much time, and does not repeat its REP before that: a lost RTU would cost all of it.
            let rtu = rtu(connection);
            let deadline = context.now + connection.interval;
            (connection.message, connection.retries, connection.deadline) = (rtu, RTUS, Some(deadline));
            self.wake_at(deadline);
        }
        Ok(())
    }

    fn send_rtu(&mut self, counters: &mut crate::Counters, id: u32) {
        let Some(connection) = self.connection(id) else { return };
        self.send(counters, connection.path, rtu(connection));
    }

    /// Asks once more, with another id: the peer has another connection with this one, or wants smaller packets. Only once.
    pub(super) fn renew<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32, mtu: Option<Mtu>) -> bool {
        let psn = self.psn();
        let Some(connection) = self.get_mut(id).filter(|connection| !connection.renewed) else { return false };
        let Some(mut req) = connection.message.message::<Req>().copied() else { return false };
        connection.renewed = true;
        connection.receive_psn = psn;
        connection.mtu = mtu.unwrap_or(connection.mtu).min(connection.mtu);
        connection.transaction = connection.wire_id().into();
        req.local_id = connection.wire_id().into();
        req.starting_psn = U24::new(psn.get());
        req.mtu = connection.mtu.code() << 4 | req.mtu & 0x0F;
        let mad = Mad::new(Attribute::Req, connection.transaction, &req);
        self.send_until_answered(context.now, context.counters, id, mad);
        true
    }
}

/// The RTU of a connection.
fn rtu(connection: &Connection) -> Mad {
    let rtu = Rtu { local_id: connection.wire_id().into(), remote_id: connection.remote_id.into(), private: [0; 224] };
    Mad::new(Attribute::Rtu, connection.transaction, &rtu)
}

/// The MTU that a REJ wants.
pub(super) fn wanted_mtu(rej: &Rej) -> Option<Mtu> {
    Mtu::from_code(rej.information[0]).filter(|_| rej.reason.get() == Reason::BAD_MTU.0)
}
