//! Everything of an interface: frames are taken apart, and go to the connection manager, the neighbours or a queue pair.
//!
//! ```text
//!   receive(frame) -+-> ARP, ICMPv6 -> neighbours
//!                   +-> UDP 4791 -+-> QP 1 -> connection manager
//!                                 +-> QP n -> requester, responder
//!   transmit() <---- the next frame of any of them
//! ```
//!
//! All work is done inside the calls. What one call does is bounded: a frame in, a frame out, or the deadlines that have come.
//! The caller ends its loop when it has no time left; nothing is lost but time.

use core::net::IpAddr;

use fallible::AllocError;

use crate::{
    adapter::Adapter,
    cm::{CallError, Connect, Context, Event, Manager, ReadLimits, Room, State as ConnectionState, Times},
    counters::Counters,
    failure::Failure,
    interface::{Interface, Network},
    neighbours::{Neighbour, Neighbours},
    path::{Path, source_port},
    qp::{Link, PostError, QueuePair, Request, Sizes, State},
    queue_pairs::QueuePairs,
    wire::{
        Envelope, Ethernet, Ip, Kind, Mac, Packet, Unreadable, cm as message, ethernet::ethertype, frame::MOST_HEADERS,
        ip,
    },
};

/// The shortest buffer for frames that go out: one of the largest MTU, or a datagram.
pub const FRAME: usize = MOST_HEADERS + 4096;

/// What a stack is made from.
#[derive(Clone, Copy, Debug)]
pub struct Config<'call> {
    /// The station's address.
    pub mac: Mac,
    /// The tag of frames that go out: priority and VLAN. Frames that come in must be of the same VLAN.
    pub tag: Option<u16>,
    /// The interface's addresses.
    pub networks: &'call [Network],
    /// Routers, one for each family.
    pub gateways: [Option<IpAddr>; 2],
    /// Bytes of the network's packets: Ethernet's 1500.
    pub network_mtu: usize,
    /// The adapter's identifier; not zero, of no other adapter, always the same.
    pub guid: u64,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Connections.
    pub room: Room,
    /// Neighbours that are remembered.
    pub neighbours: usize,
    /// Times of the connection manager.
    pub times: Times,
    /// Bits that a peer cannot guess, for numbers of packets and queue pairs.
    pub seed: u64,
}

/// What a consumer may know about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo<'stack> {
    /// Where it stands.
    pub state: ConnectionState,
    /// Its queue pair; zero before there is one.
    pub qp: u32,
    /// This side.
    pub local: core::net::SocketAddr,
    /// The peer.
    pub remote: core::net::SocketAddr,
    /// What the peer sent along: all bytes that a message has for it, with zeros behind the peer's own (NDKPI 7.7.4).
    pub private: &'stack [u8],
    /// READs: what the peer wants, and from the accept or connect on what is agreed on.
    pub limits: ReadLimits,
}

/// The stack of an interface.
pub struct Stack {
    interface: Interface,
    qps: QueuePairs,
    manager: Manager,
    neighbours: Neighbours,
    counters: Counters,
}

/// Splits a stack into its connection manager and what that works on.
macro_rules! manager {
    ($stack:ident, $now:expr, $adapter:expr) => {
        (
            &mut $stack.manager,
            &mut Context {
                now: $now,
                interface: &$stack.interface,
                qps: &mut $stack.qps,
                neighbours: &mut $stack.neighbours,
                counters: &mut $stack.counters,
                adapter: $adapter,
            },
        )
    };
}

impl Stack {
    /// A stack without queue pairs.
    ///
    /// # Errors
    ///
    /// [`AllocError`]: its tables do not fit in memory.
    pub fn new(config: &Config<'_>) -> Result<Self, AllocError> {
        let Config { mac, tag, networks, gateways, network_mtu, guid, room, .. } = *config;
        Ok(Self {
            interface: Interface::new(mac, tag, guid, network_mtu, networks, gateways)?,
            qps: QueuePairs::new(config.queue_pairs, (config.seed >> 40) as u32)?,
            manager: Manager::new(room, config.times, config.seed)?,
            neighbours: Neighbours::new(config.neighbours)?,
            counters: Counters::default(),
        })
    }

    /// The interface has these addresses from now on. What comes for others is dropped, so connections that had one end by their
    /// time-out.
    ///
    /// # Errors
    ///
    /// [`CallError::NoRoom`] for more than [`NETWORKS`](crate::NETWORKS), unless it was made with more. Nothing has changed then.
    pub fn set_networks(&mut self, networks: &[Network]) -> Result<(), CallError> {
        if self.interface.set_networks(networks) { Ok(()) } else { Err(CallError::NoRoom) }
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Makes a queue pair, and returns its number; `None` if there is no place for one more.
    ///
    /// # Errors
    ///
    /// [`AllocError`]: its queues do not fit in memory.
    pub fn create_queue_pair(&mut self, sizes: Sizes) -> Result<Option<u32>, AllocError> {
        self.qps.create(sizes)
    }

    /// The queue pair with this number.
    #[must_use]
    pub fn queue_pair(&self, number: u32) -> Option<&QueuePair> {
        self.qps.get(number).map(|entry| &entry.qp)
    }

    /// Destroys a queue pair: its requests complete as flushed, its connection is closed.
    pub fn destroy_queue_pair(&mut self, now: u64, number: u32, adapter: &mut impl Adapter) {
        let Some(connection) = self.qps.get(number).map(|entry| entry.connection) else { return };
        let (manager, context) = manager!(self, now, adapter);
        // It may be closed already.
        let _ = manager.close(context, connection);
        if let Some(entry) = self.qps.get_mut(number) {
            entry.qp.fail(Failure::Flushed, adapter);
            // Its last ACK stays. If there are more of them than queue pairs, this one is lost, as it may be on the wire.
            self.qps.touch(now, number);
        }
        if let Some(mut entry) = self.qps.remove(number) {
            while entry.qp.outstanding() > 0 {
                entry.qp.tick(now, adapter, &mut self.counters);
            }
        }
    }

    /// Connects a queue pair without the connection manager: both sides have told each other their numbers out of band, as the programs
    /// of libibverbs do over TCP. Of the path in `link` the addresses count, the traffic class and the hop limit.
    ///
    /// Returns false as long as the peer's station is not known, which is asked for: to be called again when frames have come in. Nobody
    /// watches over such a connection: the peer's end is seen by the silence, and its station stays the same.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`], [`CallError::WrongState`], [`CallError::BadAddress`]; [`CallError::NoRoute`], also if no station answers;
    /// [`CallError::NoRoom`] for a neighbour more, or if its packets are larger than those of the network.
    pub fn connect_out_of_band(&mut self, now: u64, link: &Link) -> Result<bool, CallError> {
        let Self { interface, qps, neighbours, .. } = self;
        let entry = qps.get_mut(link.qp).ok_or(CallError::Unknown)?;
        let Path { local, remote, .. } = link.path;
        if !entry.is_free() {
            return Err(CallError::WrongState);
        }
        if !interface.may_connect(local, remote) {
            return Err(CallError::BadAddress);
        }
        if link.mtu > interface.mtu {
            return Err(CallError::NoRoom);
        }
        let next_hop = interface.next_hop(remote).ok_or(CallError::NoRoute)?;
        let remote_mac = match neighbours.resolve(now, next_hop) {
            Neighbour::Known(mac) => mac,
            Neighbour::Asked => return Ok(false),
            Neighbour::NoRoom => return Err(CallError::NoRoom),
            Neighbour::Silent => return Err(CallError::NoRoute),
        };
        let (local_mac, tag, source_port) = (interface.mac, interface.tag, source_port(link.qp, link.remote_qpn));
        let path = Path { local_mac, remote_mac, tag, source_port, ..link.path };
        Ok(entry.qp.connect(Link { path, ..*link }))
    }

    /// Posts a request (see [`QueuePair::post`]).
    ///
    /// # Errors
    ///
    /// Why it was not taken.
    pub fn post(&mut self, now: u64, qp: u32, request: Request, inline: Option<&[u8]>) -> Result<(), PostError> {
        let entry = self.qps.get_mut(qp).ok_or(PostError::NotConnected)?;
        entry.qp.post(request, inline)?;
        self.qps.touch(now, qp);
        Ok(())
    }

    /// Ends all requests of a queue pair as flushed: `NdkFlush`. The peer finds out by the silence.
    pub fn flush(&mut self, now: u64, qp: u32, adapter: &mut impl Adapter) {
        if let Some(entry) = self.qps.get_mut(qp) {
            entry.qp.fail(Failure::Flushed, adapter);
            self.after(now, qp, adapter);
        }
    }

    /// `NdkListen`, on one address or on all.
    ///
    /// # Errors
    ///
    /// [`CallError::InUse`], [`CallError::NoRoom`].
    pub fn listen(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), CallError> {
        self.manager.listen(address, port)
    }

    /// Ends listening.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`].
    pub fn stop_listening(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), CallError> {
        self.manager.stop_listening(address, port)
    }

    /// `NdkControlConnectEvents`: a paused listener is as if it were not there.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`].
    pub fn pause(&mut self, address: Option<IpAddr>, port: u16, paused: bool) -> Result<(), CallError> {
        self.manager.pause(address, port, paused)
    }

    /// `NdkConnect`. The outcome is [`Connected`](crate::cm::EventKind::Connected).
    ///
    /// # Errors
    ///
    /// Why nothing has begun.
    pub fn connect(&mut self, now: u64, connect: &Connect<'_>, adapter: &mut impl Adapter) -> Result<u32, CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.connect(context, connect)
    }

    /// `NdkCompleteConnect`.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`], [`CallError::WrongState`].
    pub fn complete_connect(&mut self, now: u64, connection: u32, adapter: &mut impl Adapter) -> Result<(), CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.complete_connect(context, connection)
    }

    /// `NdkAccept`. The outcome is [`Accepted`](crate::cm::EventKind::Accepted).
    ///
    /// # Errors
    ///
    /// Why nothing has begun.
    pub fn accept(
        &mut self,
        now: u64,
        connection: u32,
        qp: u32,
        limits: ReadLimits,
        private: &[u8],
        adapter: &mut impl Adapter,
    ) -> Result<(), CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.accept(context, connection, qp, limits, private)
    }

    /// `NdkReject`, with up to 148 bytes for the peer.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`], [`CallError::WrongState`], [`CallError::TooMuchData`].
    pub fn reject(
        &mut self,
        now: u64,
        connection: u32,
        private: &[u8],
        adapter: &mut impl Adapter,
    ) -> Result<(), CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.reject(context, connection, private)
    }

    /// `NdkDisconnect`. The outcome is [`DisconnectComplete`](crate::cm::EventKind::DisconnectComplete).
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`], [`CallError::WrongState`].
    pub fn disconnect(&mut self, now: u64, connection: u32, adapter: &mut impl Adapter) -> Result<(), CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.disconnect(context, connection)
    }

    /// `NdkCloseConnector`. The connection's name is not valid any more.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`].
    pub fn close(&mut self, now: u64, connection: u32, adapter: &mut impl Adapter) -> Result<(), CallError> {
        let (manager, context) = manager!(self, now, adapter);
        manager.close(context, connection)
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.manager.event()
    }

    /// Returns true if [`event`](Self::event) has one.
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.manager.has_event()
    }

    /// What is known about a connection.
    #[must_use]
    pub fn connection(&self, id: u32) -> Option<ConnectionInfo<'_>> {
        let connection = self.manager.connection(id)?;
        Some(ConnectionInfo {
            state: connection.state,
            qp: connection.qp,
            local: connection.local,
            remote: connection.remote,
            private: &connection.private[..connection.private_length],
            limits: connection.limits,
        })
    }

    /// A frame has come in. Any bytes may be one.
    pub fn receive(&mut self, now: u64, frame: &[u8], adapter: &mut impl Adapter) {
        self.counters.frames_received += 1;
        match Envelope::parse(frame) {
            Ok((envelope, packet)) => {
                if self.is_ours(&envelope) {
                    self.counters.packets_received += 1;
                    self.counters.octets_received += frame.len() as u64;
                    self.receive_packet(now, &envelope, &packet, adapter);
                } else {
                    self.counters.not_for_us += 1;
                }
            }
            Err(Unreadable::Malformed) => self.counters.malformed += 1,
            Err(Unreadable::Icrc) => self.counters.wrong_icrc += 1,
            Err(Unreadable::Other) => {
                if self.receive_other(now, frame).is_none() {
                    self.counters.not_for_us += 1;
                    return;
                }
                let (manager, context) = manager!(self, now, adapter);
                manager.neighbours_changed(context);
            }
        }
    }

    /// ARP or neighbour discovery; `None` if it is neither.
    fn receive_other(&mut self, now: u64, frame: &[u8]) -> Option<()> {
        let (ethernet, rest) = Ethernet::parse(frame).filter(|(ethernet, _)| self.is_of_vlan(ethernet))?;
        match ethernet.ethertype {
            ethertype::ARP => self.neighbours.receive_arp(now, &self.interface, rest),
            ethertype::IPV6 => {
                let (ip, rest) = Ip::parse(ethernet.ethertype, rest)?;
                if ip.protocol != ip::protocol::ICMPV6 {
                    return None;
                }
                self.neighbours.receive_icmp(now, &self.interface, &ethernet, &ip, rest);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns true if a frame is of the interface's VLAN; a tag of VLAN 0 gives a priority only.
    fn is_of_vlan(&self, ethernet: &Ethernet) -> bool {
        const VLAN: u16 = 0x0FFF;
        ethernet.tag.unwrap_or(0) & VLAN == self.interface.tag.unwrap_or(0) & VLAN
    }

    /// Returns true if a packet is for this interface.
    fn is_ours(&self, envelope: &Envelope) -> bool {
        envelope.ethernet.destination == self.interface.mac
            && self.is_of_vlan(&envelope.ethernet)
            && self.interface.has(envelope.ip.destination)
    }

    fn receive_packet(&mut self, now: u64, envelope: &Envelope, packet: &Packet<'_>, adapter: &mut impl Adapter) {
        const PARTITION: u16 = 0x7FFF;
        if packet.bth.p_key & PARTITION != PARTITION {
            self.counters.wrong_p_key += 1;
            return;
        }
        let number = packet.bth.destination;
        if number == message::QP && packet.bth.opcode.kind() == Kind::Datagram {
            let (manager, context) = manager!(self, now, adapter);
            manager.receive(context, envelope, packet);
            return;
        }
        match self.qps.get_mut(number) {
            None => self.counters.unknown_queue_pair += 1,
            Some(entry) => {
                let connection = entry.connection;
                if entry.qp.receive(now, envelope, packet, adapter, &mut self.counters) {
                    // Answers may go to the wrong station, and who only answers waits for nobody.
                    let (manager, context) = manager!(self, now, adapter);
                    manager.doubt(context, connection);
                }
                self.after(now, number, adapter);
            }
        }
    }

    /// A queue pair has done something: its connection may be established, or over.
    fn after(&mut self, now: u64, number: u32, adapter: &mut impl Adapter) {
        let Some(entry) = self.qps.touch(now, number).filter(|entry| entry.connection != 0) else { return };
        let connection = entry.connection;
        let failed = matches!(entry.qp.state(), State::Error(_));
        if entry.told != connection && entry.qp.has_heard() {
            entry.told = connection;
            self.manager.established(connection);
        }
        if failed {
            let (manager, context) = manager!(self, now, adapter);
            manager.queue_pair_failed(context, connection);
        }
    }

    /// Writes the next frame to the front of `frame`, and returns its length; `None` if nothing is to be sent now.
    ///
    /// # Panics
    ///
    /// If `frame` is shorter than [`FRAME`].
    pub fn transmit(&mut self, now: u64, frame: &mut [u8], adapter: &mut impl Adapter) -> Option<usize> {
        assert!(frame.len() >= FRAME, "room for the longest frame");
        let length = if let Some(length) = self.neighbours.transmit(now, &self.interface, frame) {
            length
        } else {
            let length = self.next_packet(now, frame, adapter)?;
            self.counters.packets_sent += 1;
            self.counters.octets_sent += length as u64;
            length
        };
        self.counters.frames_sent += 1;
        Some(length)
    }

    fn next_packet(&mut self, now: u64, frame: &mut [u8], adapter: &mut impl Adapter) -> Option<usize> {
        // Before the manager: the last word of a queue pair that has failed goes before the DREQ.
        if let Some(ack) = self.qps.last_ack() {
            return Some(ack.send(frame, &mut self.counters));
        }
        while let Some(number) = self.qps.turn() {
            let length = match self.qps.get_mut(number) {
                Some(entry) => entry.qp.transmit(now, frame, adapter, &mut self.counters),
                None => None,
            };
            if self.qps.end_turn(length.is_some()) {
                self.after(now, number, adapter);
            }
            if length.is_some() {
                return length;
            }
        }
        self.manager.transmit(frame)
    }

    /// Does what is due at this time.
    pub fn tick(&mut self, now: u64, adapter: &mut impl Adapter) {
        self.neighbours.tick(now);
        let (manager, context) = manager!(self, now, adapter);
        manager.tick(context);
        let mut from = 0;
        while let Some(number) = self.qps.expired(now, &mut from) {
            let Some(entry) = self.qps.get_mut(number) else { continue };
            let connection = entry.connection;
            if entry.qp.tick(now, adapter, &mut self.counters) {
                let (manager, context) = manager!(self, now, adapter);
                manager.doubt(context, connection);
            }
            self.after(now, number, adapter);
        }
    }

    /// When [`tick`](Self::tick) must be called next; zero is at once. A frame that may go out is not counted: call
    /// [`transmit`](Self::transmit) until it gives none.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        [self.neighbours.deadline(), self.manager.wake(), self.qps.wake()].into_iter().flatten().min()
    }

    /// Returns true if [`transmit`](Self::transmit) may have a frame.
    #[must_use]
    pub fn may_transmit(&self) -> bool {
        self.neighbours.may_transmit() || self.qps.may_transmit() || self.manager.may_transmit()
    }
}
