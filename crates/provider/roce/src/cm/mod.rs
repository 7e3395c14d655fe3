//! The connection manager: datagrams between the queue pairs 1 (RoCEv2 8).
//!
//! A consumer's calls and the peer's messages change [`State`]s; what the consumer learns is an [`Event`]. Only messages that wait for
//! an answer are repeated; an answer that is lost comes again when the other side repeats its question.

mod active;
mod connection;
mod ending;
mod event;
mod passive;

pub use active::Connect;
pub use connection::{PRIVATE, ReadLimits, State};
pub use event::{Ending, Event, EventKind, Refusal};

use alloc::boxed::Box;
use core::net::IpAddr;

use connection::{Connection, RENEWED};
use fallible::{AllocError, try_slice};
use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{Rng, SeedableRng},
};

use crate::{
    adapter::Adapter,
    bounded::Bounded,
    counters::Counters,
    failure::Failure,
    interface::Interface,
    neighbours::Neighbours,
    path::Path,
    psn::Psn,
    qp::Link,
    queue_pairs::QueuePairs,
    timeout,
    wire::{
        Bth, Deth, Envelope, Extended, Opcode, Packet,
        cm::{self as message, Attribute, Mad, Message, Mra, Reason, Rej},
    },
};

/// The times of a connection manager, as they are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The code of the time in which a message must be answered.
    pub response: u8,
    /// How often a message is repeated, at most 15.
    pub retries: u8,
    /// The code of the time in which a queue pair's request must be answered.
    pub ack: u8,
    /// How often a queue pair repeats a request that is not answered, at most 7.
    pub retry_count: u8,
    /// How often a queue pair repeats a request for want of a receive, at most 7.
    pub rnr_retry_count: u8,
    /// The code of the time that a peer waits when there is no receive.
    pub rnr_timer: u8,
}

impl Default for Times {
    /// A connect ends in 16 seconds, a request in two.
    fn default() -> Self {
        Self { response: 18, retries: 14, ack: 16, retry_count: 7, rnr_retry_count: 7, rnr_timer: 14 }
    }
}

/// How large a connection manager is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections.
    pub connections: usize,
    /// Of these, those that peers asked for and no consumer has accepted, or whose accept is not complete.
    pub half_open: usize,
    /// Listeners.
    pub listeners: usize,
}

/// Someone who waits for connections.
#[derive(Clone, Copy, Debug)]
struct Listener {
    /// On this address only.
    address: Option<IpAddr>,
    port: u16,
    /// As if it were not there (NDKPI 7.7.8).
    paused: bool,
}

/// A connection that is over, for as long as its packets may still be about.
#[derive(Clone, Copy, Debug)]
struct Past {
    remote_guid: u64,
    remote_id: u32,
    until: u64,
    /// The REJ that the peer's REQ was answered with, for the case that it was lost.
    refusal: Option<Mad>,
}

/// A message to send once.
struct Outgoing {
    path: Path,
    mad: Mad,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// Everything that a connection manager works on, beside itself.
pub(crate) struct Context<'stack, A> {
    pub now: u64,
    pub interface: &'stack Interface,
    pub qps: &'stack mut QueuePairs,
    pub neighbours: &'stack mut Neighbours,
    pub counters: &'stack mut Counters,
    pub adapter: &'stack mut A,
}

/// Why a call to the connection manager did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// There is no such connection, queue pair or listener.
    Unknown,
    /// It is not in a state for this.
    WrongState,
    /// There is no room for one more.
    NoRoom,
    /// The port has a listener.
    InUse,
    /// More private data than a message has room for.
    TooMuchData,
    /// No address of this side, or one of it as the peer's.
    BadAddress,
    /// No way leads to the peer.
    NoRoute,
}

/// The code of the time that this side asks for while its consumer decides: 68 seconds, as Linux does.
const SERVICE_TIMEOUT: u8 = 24;
/// How often a peer may ask for time.
const PATIENCE: u8 = 3;
/// The longest that one message of a peer can make this side wait, in microseconds.
const LONGEST_WAIT: u64 = 70_000_000;
/// The most events of one connection: a request, the end of the accept, of the connection, and of the disconnect.
const EVENTS: usize = 4;
/// Answers that wait to go out, beside one for each connection.
const ANSWERS: usize = 16;
/// The hop limit of what goes out.
const HOP_LIMIT: u8 = 64;
/// The source port of datagrams.
const SOURCE_PORT: u16 = 0xC000;
/// How long ACKs of this side may take (the code that rxe gives).
const ACK_DELAY: u8 = 15;

/// The connection manager of a stack.
pub(crate) struct Manager {
    slots: Box<[Slot]>,
    index_bits: u32,
    listeners: Box<[Option<Listener>]>,
    half_open: usize,
    times: Times,
    outbox: Bounded<Outgoing>,
    events: Bounded<Event>,
    past: Bounded<Past>,
    /// Of datagrams.
    psn: Psn,
    random: Xoshiro256StarStar,
    ephemeral: u16,
    /// No connection has an earlier deadline; all may have later ones.
    wake: Option<u64>,
}

impl Manager {
    pub fn new(room: Room, times: Times, seed: u64) -> Result<Self, AllocError> {
        let mut random = Xoshiro256StarStar::seed_from_u64(seed);
        let index_bits = room.connections.next_power_of_two().trailing_zeros().clamp(1, 20);
        let first = random.next_u32() & ((RENEWED >> index_bits) - 1);
        let count = room.connections.min(1 << index_bits);
        Ok(Self {
            slots: try_slice(count, |_| Slot { generation: first, connection: None })?,
            index_bits,
            listeners: try_slice(room.listeners, |_| None)?,
            half_open: room.half_open,
            times,
            outbox: Bounded::new(count + ANSWERS)?,
            events: Bounded::new(count * EVENTS)?,
            past: Bounded::new(count.max(1))?,
            psn: Psn::default(),
            ephemeral: (random.next_u32() & 0x3FFF) as u16,
            random,
            wake: None,
        })
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.random.next_u32())
    }

    pub fn connection(&self, id: u32) -> Option<&Connection> {
        let slot = self.slots.get(id as usize & ((1 << self.index_bits) - 1))?;
        slot.connection.as_ref().filter(|connection| connection.id == id)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id as usize & ((1 << self.index_bits) - 1))?;
        slot.connection.as_mut().filter(|connection| connection.id == id)
    }

    fn find(&self, wanted: impl Fn(&Connection) -> bool) -> Option<u32> {
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        connections.into_iter().find(|connection| wanted(connection)).map(|connection| connection.id)
    }

    /// A free slot's index, and the id that a connection gets there.
    fn free_slot(&mut self) -> Option<(usize, u32)> {
        let index = self.slots.iter().position(|slot| slot.connection.is_none())?;
        let slot = &mut self.slots[index];
        // Never zero, which would be no id.
        slot.generation = (slot.generation % ((RENEWED >> self.index_bits) - 1)) + 1;
        Some((index, slot.generation << self.index_bits | u32::try_from(index).ok()?))
    }

    fn remove<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let index = id as usize & ((1 << self.index_bits) - 1);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(connection) = slot.connection.as_ref().filter(|it| it.id == id) else { return };
        if connection.remote_id != 0 {
            let past = Past {
                remote_guid: connection.remote_guid,
                remote_id: connection.remote_id,
                // As long as packets may be about, and the peer's next REQ if it has not seen the answer to the last one.
                until: context.now
                    + (timeout::of_code(connection.ack_timeout).unwrap_or(0) * 2).max(connection.interval * 4),
                refusal: connection.refusal(),
            };
            if self.past.is_full() {
                self.past.pop();
            }
            let _ = self.past.push(past);
        }
        if let Some(entry) = context.qps.get_mut(connection.qp).filter(|entry| entry.connection == id) {
            entry.connection = 0;
        }
        // In its place: kernel stacks are small.
        slot.connection = None;
        self.events.retain(|event| event.connection != id);
    }

    /// Tells the consumer of a connection something, unless it has closed it.
    fn tell(&mut self, id: u32, kind: EventKind) {
        if self.connection(id).is_some_and(|connection| !connection.closed) {
            // There is room: a connection has no more events than were counted.
            let _ = self.events.push(Event { connection: id, kind });
        }
    }

    pub fn event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    fn send(&mut self, counters: &mut Counters, path: Path, mad: Mad) {
        if self.outbox.push(Outgoing { path, mad }).is_err() {
            counters.cm_overflows += 1;
        }
    }

    /// Sends a message of a connection, and repeats it until [`stop_repeating`](Connection::deadline) is cleared.
    fn send_until_answered(&mut self, now: u64, counters: &mut Counters, id: u32, mad: Mad) {
        let times = self.times;
        let Some(connection) = self.get_mut(id) else { return };
        connection.message = mad;
        connection.retries = connection.retries.min(times.retries);
        let (path, deadline) = (connection.path, now + connection.interval);
        connection.deadline = Some(deadline);
        self.wake_at(deadline);
        self.send(counters, path, mad);
    }

    fn wake_at(&mut self, time: u64) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }

    pub const fn wake(&self) -> Option<u64> {
        self.wake
    }

    pub fn may_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next datagram, if there is one.
    pub fn transmit(&mut self, frame: &mut [u8]) -> Option<usize> {
        let Outgoing { path, mad } = self.outbox.pop()?;
        let bth = Bth::new(Opcode::UdSendOnly, message::QP, self.psn);
        self.psn = self.psn.plus(1);
        let extended = Extended { deth: Some(Deth::new(message::Q_KEY, message::QP)), ..Extended::default() };
        let bytes = zerocopy::IntoBytes::as_bytes(&mad);
        let written: Result<_, core::convert::Infallible> =
            path.emit(bth, &extended, message::BYTES, frame, |payload| {
                payload.copy_from_slice(bytes);
                Ok(())
            });
        written.ok()
    }

    /// A datagram for queue pair 1.
    pub fn receive<A: Adapter>(&mut self, context: &mut Context<'_, A>, envelope: &Envelope, packet: &Packet<'_>) {
        if packet.extended.deth.is_none_or(|deth| deth.q_key.get() != message::Q_KEY) {
            context.counters.wrong_q_key += 1;
            return;
        }
        let handled = Mad::parse(packet.payload).and_then(|mad| {
            let transaction = mad.header.transaction.get();
            match mad.attribute()? {
                Attribute::Req => self.req(context, envelope, transaction, mad.message()?),
                Attribute::Rep => self.rep(context, envelope, transaction, mad.message()?),
                Attribute::Rtu => self.rtu(context, envelope, mad.message()?),
                Attribute::Rej => self.rej(context, envelope, mad.message()?),
                Attribute::Mra => self.mra(context, envelope, mad.message()?),
                Attribute::Dreq => self.dreq(context, envelope, transaction, mad.message()?),
                Attribute::Drep => self.drep(context, envelope, mad.message()?),
            }
            Some(())
        });
        if handled.is_none() {
            context.counters.malformed += 1;
        }
    }

    /// The connection that a message from `envelope` with these ids is about.
    fn meant(&self, envelope: &Envelope, receivers_id: u32, senders_id: u32) -> Option<u32> {
        let connection = self.connection(receivers_id & !RENEWED)?;
        let knows_sender = connection.remote_id == senders_id || connection.remote_id == 0;
        let fits = connection.wire_id() == receivers_id && connection.path.is_of(envelope) && knows_sender;
        fits.then_some(connection.id)
    }

    /// The peer asks for time.
    fn mra<A: Adapter>(&mut self, context: &Context<'_, A>, envelope: &Envelope, mra: &Mra) {
        let Some(id) = self.meant(envelope, mra.remote_id.get(), mra.local_id.get()) else { return };
        let Some(connection) = self.get_mut(id) else { return };
        let about_ours = match connection.state {
            State::RequestSent => mra.message >> 6 == Message::Req as u8,
            State::ReplySent => mra.message >> 6 == Message::Rep as u8,
            _ => false,
        };
        if !about_ours || connection.patience == 0 {
            return;
        }
        connection.patience -= 1;
        let wait = timeout::of_code(mra.service_timeout >> 3).unwrap_or(0).min(LONGEST_WAIT);
        connection.deadline = Some(context.now + wait + connection.interval);
    }

    /// Asks the peer of a connection for time: the consumer is deciding.
    fn ask_for_time(&mut self, counters: &mut Counters, id: u32, about: Message) {
        let Some(connection) = self.connection(id) else { return };
        let mra = Mra {
            local_id: connection.wire_id().into(),
            remote_id: connection.remote_id.into(),
            message: (about as u8) << 6,
            service_timeout: SERVICE_TIMEOUT << 3,
            private: [0; 222],
        };
        let mad = Mad::new(Attribute::Mra, connection.transaction, &mra);
        self.send(counters, connection.path, mad);
    }

    /// Refuses something that there is no connection for.
    fn refuse(&mut self, counters: &mut Counters, path: Path, transaction: u64, rej: &Rej) {
        self.send(counters, path, Mad::new(Attribute::Rej, transaction, rej));
    }

    /// Tells the peer of a connection that there will be none.
    fn send_rej(
        &mut self,
        counters: &mut Counters,
        id: u32,
        reason: Reason,
        information: &[u8],
        private: &[u8],
    ) -> bool {
        let Some(connection) = self.connection(id) else { return false };
        let rej = Rej::new(connection.wire_id(), connection.remote_id, connection.rejected(), reason, information);
        let Some(rej) = connection::with_private(rej, private) else { return false };
        let mad = Mad::new(Attribute::Rej, connection.transaction, &rej);
        let path = connection.path;
        if connection.state == State::RequestReceived
            && let Some(connection) = self.get_mut(id)
        {
            connection.message = mad;
        }
        self.send(counters, path, mad);
        true
    }

    /// Connects the queue pair of a connection whose two sides are known.
    fn connect_qp<A: Adapter>(&self, context: &mut Context<'_, A>, id: u32) -> bool {
        let times = self.times;
        let Some(connection) = self.connection(id) else { return false };
        let Some(entry) = context.qps.get_mut(connection.qp) else { return false };
        let link = Link {
            qp: connection.qp,
            remote_qpn: connection.remote_qpn,
            path: Path {
                source_port: crate::path::source_port(connection.qp, connection.remote_qpn),
                ..connection.path
            },
            mtu: connection.mtu,
            send_psn: connection.send_psn,
            receive_psn: connection.receive_psn,
            inbound_reads: connection.limits.inbound,
            outbound_reads: connection.limits.outbound,
            ack_timeout: timeout::of_code(connection.ack_timeout).or_else(|| timeout::of_code(times.ack)),
            retry_count: connection.retry_count,
            rnr_retry_count: connection.rnr_retry_count,
            rnr_timer: times.rnr_timer,
        };
        entry.connection = id;
        entry.qp.connect(link)
    }

    /// The way back to the sender of a frame.
    fn way_back(interface: &Interface, envelope: &Envelope) -> Path {
        Path {
            local_mac: interface.mac,
            remote_mac: envelope.ethernet.source,
            tag: interface.tag,
            local: envelope.ip.destination,
            remote: envelope.ip.source,
            source_port: SOURCE_PORT,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
        }
    }

    /// Time has passed.
    pub fn tick<A: Adapter>(&mut self, context: &mut Context<'_, A>) {
        if self.wake.is_none_or(|wake| context.now < wake) {
            return;
        }
        self.wake = None;
        while self.past.front().is_some_and(|past| past.until <= context.now) {
            self.past.pop();
        }
        for index in 0..self.slots.len() {
            let Some(connection) = &self.slots[index].connection else { continue };
            let id = connection.id;
            if connection.deadline.is_some_and(|deadline| deadline <= context.now) {
                self.expire(context, id);
            }
            if let Some(deadline) = self.connection(id).and_then(|connection| connection.deadline) {
                self.wake_at(deadline);
            }
        }
    }

    /// The deadline of a connection has come.
    fn expire<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let Some(connection) = self.get_mut(id) else { return };
        if connection.state == State::Resolving {
            self.resolve(context, id);
            return;
        }
        if let Some(retries) = connection.retries.checked_sub(1) {
            connection.retries = retries;
            connection.deadline = Some(context.now + connection.interval);
            let (path, mad) = (connection.path, connection.message);
            context.counters.cm_retries += 1;
            self.send(context.counters, path, mad);
            self.doubt(context, id);
            return;
        }
        connection.deadline = None;
        match connection.state {
            State::RequestSent => {
                let guid = context.interface.guid.to_be_bytes();
                self.send_rej(context.counters, id, Reason::TIMEOUT, &guid, &[]);
                self.end_unconnected(context, id, Refusal::Timeout);
            }
            State::ReplySent => {
                self.send_rej(context.counters, id, Reason::TIMEOUT, &[], &[]);
                self.end_unconnected(context, id, Refusal::Timeout);
            }
            State::DisconnectSent => self.disconnected(context, id, Err(Refusal::Timeout)),
            _ => {}
        }
    }

    /// A connection will not be established; its consumer is told by the request that waits.
    fn end_unconnected<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32, refusal: Refusal) {
        let Some(connection) = self.get_mut(id) else { return };
        let kind = match connection.state {
            State::Resolving | State::RequestSent => Some(EventKind::Connected(Err(refusal))),
            State::ReplySent => Some(EventKind::Accepted(Err(refusal))),
            // The consumer has not decided yet: it learns when it does.
            _ => None,
        };
        (connection.state, connection.deadline) = (State::Over, None);
        let (qp, closed) = (connection.qp, connection.closed);
        // One that never was connected may be used again.
        if let Some(entry) = context.qps.get_mut(qp).filter(|entry| entry.connection == id) {
            if entry.qp.state() == crate::qp::State::Idle {
                entry.connection = 0;
            } else {
                entry.qp.fail(Failure::Flushed, context.adapter);
            }
        }
        context.qps.touch(context.now, qp);
        if let Some(kind) = kind {
            self.tell(id, kind);
        }
        if closed {
            self.remove(context, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Manager, Room, Times};

    #[test]
    fn ids_have_31_bits_and_never_the_generation_zero() {
        let room = Room { connections: 2, half_open: 1, listeners: 1 };
        let mut manager = Manager::new(room, Times::default(), 1).expect("memory");
        // One bit is the place, and thirty are the generation, which goes round behind the last one.
        for (generation, id) in [(0, 2), (5, 12), ((1 << 30) - 2, (1 << 31) - 2), ((1 << 30) - 1, 2)] {
            manager.slots[0].generation = generation;
            assert_eq!(manager.free_slot(), Some((0, id)), "after {generation:#x}");
        }
    }
}
