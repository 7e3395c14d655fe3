//! The responder: requests of the peer are carried out, once and in order (RoCEv2 5).

use fallible::AllocError;

use super::{Link, request::LONGEST};
use crate::{
    adapter::{Access, Adapter, Receive, Received, Refused, Remote},
    bounded::Bounded,
    counters::Counters,
    failure::Failure,
    psn::Psn,
    wire::{Aeth, Bth, Extended, Kind, Nak, Opcode, Packet, Position, Reth, Syndrome, U24},
};

/// A message of which not all packets have come.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// A SEND, so many bytes of which are in its receive.
    Send { receive: Receive, offset: u32 },
    /// A WRITE, so many bytes of which are in memory.
    Write { key: u32, address: u64, length: u32, offset: u32 },
}

/// A READ, kept as long as the peer may ask for it again.
#[derive(Clone, Copy, Debug)]
struct Read {
    first: Psn,
    packets: u32,
    key: u32,
    address: u64,
    length: u32,
    /// So many packets of the answer have gone out at least once.
    sent: u32,
    /// What of it is being answered.
    stream: Stream,
}

/// Packets of a READ's answer.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The first of this answer.
    start: u32,
    /// The one that goes out next.
    next: u32,
    /// The one behind the last.
    end: u32,
    /// Where its bytes end in those of the READ.
    bytes: u32,
}

impl Read {
    const fn is_answered(&self) -> bool {
        self.stream.next == self.stream.end
    }

    /// Returns true if the peer may have the whole answer.
    const fn was_answered(&self) -> bool {
        self.sent == self.packets
    }
}

/// The responding half of a queue pair.
pub struct Responder {
    expected: Psn,
    /// Messages finished.
    msn: u32,
    message: Option<Message>,
    reads: Bounded<Read>,
    /// The newest packet to acknowledge.
    ack: Option<Psn>,
    /// A NAK to send, behind the answers before it.
    nak: Option<(Psn, Syndrome)>,
    /// The packet that is expected has been asked for.
    asked: bool,
    /// Has a packet come?
    heard: bool,
    failed: Option<Failure>,
}

/// Why a request is not carried out.
enum Stop {
    /// Never.
    Refuse(Nak, Failure),
    /// Not now: there is no receive.
    NotReady,
    /// It was, but what it invalidates may not be.
    BadInvalidate,
}

/// What is left to say of a queue pair that has ended.
pub struct LastAck {
    link: Link,
    psn: Psn,
    msn: u32,
}

impl LastAck {
    /// Writes it to the front of `frame`, and returns its length.
    pub fn send(&self, frame: &mut [u8], counters: &mut Counters) -> usize {
        counters.acks_sent += 1;
        answer(&self.link, self.psn, aeth(Syndrome::Ack, self.msn), frame)
    }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Extended {
    let aeth = Aeth { syndrome: syndrome.to_byte(), msn: U24::new(msn) };
    Extended { aeth: Some(aeth), ..Extended::default() }
}

/// Writes an ACK or NAK.
fn answer(link: &Link, psn: Psn, aeth: Extended, frame: &mut [u8]) -> usize {
    let bth = Bth::new(Opcode::Acknowledge, link.remote_qpn, psn);
    let written: Result<usize, core::convert::Infallible> = link.path.emit(bth, &aeth, 0, frame, |_| Ok(()));
    match written {
        Ok(length) => length,
        Err(never) => match never {},
    }
}

/// Bytes of a packet's payload, which is no longer than a datagram.
fn length_of(packet: &Packet<'_>) -> u32 {
    u32::try_from(packet.payload.len()).unwrap_or(u32::MAX)
}

const INVALID: Stop = Stop::Refuse(Nak::InvalidRequest, Failure::PeerBroke);
const NO_ACCESS: Stop = Stop::Refuse(Nak::RemoteAccess, Failure::PeerBroke);

impl Responder {
    /// A responder that keeps at most so many READs.
    pub fn new(reads: u8) -> Result<Self, AllocError> {
        Ok(Self {
            expected: Psn::default(),
            msn: 0,
            message: None,
            reads: Bounded::new(reads.into())?,
            ack: None,
            nak: None,
            asked: false,
            heard: false,
            failed: None,
        })
    }

    /// Begins with the packet that the peer was told to send first.
    pub fn connect(&mut self, link: &Link) {
        self.expected = link.receive_psn;
    }

    /// Returns true once a packet of the peer has come in order.
    pub const fn has_heard(&self) -> bool {
        self.heard
    }

    /// Why the peer gets no more answers, once the last one has gone out.
    pub fn failed(&self) -> Option<Failure> {
        self.failed.filter(|_| !self.has_answers())
    }

    /// Returns true if a packet waits to go out.
    pub fn has_answers(&self) -> bool {
        self.ack.is_some() || self.nak.is_some() || self.reads.iter().any(|read| !read.is_answered())
    }

    /// Returns true if an ACK waits to go out, and nothing else.
    pub fn has_only_ack(&self) -> bool {
        self.ack.is_some() && self.nak.is_none() && self.reads.iter().all(Read::is_answered)
    }

    /// Ends everything. A receive that a message had taken is completed.
    ///
    /// What is here for good is acknowledged still ([`take_last_ack`](Self::take_last_ack)): without that its sender would take it for
    /// lost, though this side's consumer has it and has disconnected because of it. Not what comes behind a read that gets no answer any
    /// more.
    pub fn end(&mut self, qp: u32, failure: Failure, adapter: &mut impl Adapter) {
        self.failed.get_or_insert(failure);
        self.drop_message(qp, failure, adapter);
        let unanswered =
            self.reads.iter().find(|read| !read.is_answered()).map(|read| read.first.plus(read.stream.next));
        self.ack = self.ack.filter(|ack| unanswered.is_none_or(|first| ack.is_before(first)));
        self.nak = None;
        self.reads.clear();
    }

    /// The ACK that is left when this has ended.
    pub fn take_last_ack(&mut self, link: &Link) -> Option<LastAck> {
        self.ack.take().map(|psn| LastAck { link: *link, psn, msn: self.msn })
    }

    fn drop_message(&mut self, qp: u32, failure: Failure, adapter: &mut impl Adapter) {
        if let Some(Message::Send { receive, .. }) = self.message.take() {
            let received = Received {
                context: receive.context,
                length: 0,
                solicited: false,
                immediate: None,
                invalidated: None,
                outcome: Err(failure),
            };
            adapter.complete_receive(qp, received);
        }
    }

    /// A request of the peer. Returns true if it is a duplicate: it has been carried out, and the peer has not got the answer, perhaps.
    pub fn receive(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) -> bool {
        if self.failed.is_some() {
            counters.wrong_state += 1;
            return false;
        }
        if packet.bth.psn.is_before(self.expected) {
            counters.duplicates += 1;
            self.repeat(link, packet);
            return true;
        }
        self.receive_new(link, packet, adapter, counters);
        false
    }

    /// A request that has not been carried out: the one that is expected, or one behind it.
    fn receive_new(&mut self, link: &Link, packet: &Packet<'_>, adapter: &mut impl Adapter, counters: &mut Counters) {
        let psn = packet.bth.psn;
        if psn != self.expected {
            counters.psn_ahead += 1;
            if !self.asked {
                self.asked = true;
                self.nak = Some((self.expected, Syndrome::Nak(Nak::Sequence)));
            }
            return;
        }
        // Whatever was asked for has come.
        let was_lost = core::mem::take(&mut self.asked);
        self.heard = true;
        self.nak = None;
        let stop = match self.carry_out(link, packet, adapter) {
            Ok(packets) => {
                self.expected = self.expected.plus(packets);
                // A packet that was asked for is acknowledged even if the peer does not ask: rxe counts each NAK as a retry, and begins
                // to count anew with an ACK only (RoCEv2 5.2).
                let is_awaited = packet.bth.acknowledge || was_lost;
                if is_awaited && packet.bth.opcode.kind() != Kind::Read {
                    self.ack = Some(psn);
                }
                return;
            }
            Err(stop) => stop,
        };
        match stop {
            Stop::NotReady => {
                self.asked = true;
                self.nak = Some((psn, Syndrome::RnrNak(link.rnr_timer)));
            }
            Stop::Refuse(nak, failure) => {
                self.drop_message(link.qp, failure, adapter);
                self.nak = Some((psn, Syndrome::Nak(nak)));
                self.failed = Some(failure);
            }
            Stop::BadInvalidate => {
                self.drop_message(link.qp, Failure::BadInvalidate, adapter);
                self.ack = Some(psn);
                self.failed = Some(Failure::BadInvalidate);
            }
        }
    }

    /// Carries out the packet that is expected. Returns how many numbers it takes.
    fn carry_out(&mut self, link: &Link, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<u32, Stop> {
        let (opcode, length) = (packet.bth.opcode, length_of(packet));
        let (kind, position) = (opcode.kind(), opcode.position());
        let continues = match self.message {
            None => position.begins(),
            Some(Message::Send { .. }) => kind == Kind::Send && !position.begins(),
            Some(Message::Write { .. }) => kind == Kind::Write && !position.begins(),
        };
        let fits = match position {
            Position::First | Position::Middle => length == link.mtu.bytes(),
            Position::Last => 0 < length && length <= link.mtu.bytes(),
            Position::Only => length <= link.mtu.bytes(),
        };
        if !continues || !fits {
            return Err(INVALID);
        }
        match kind {
            Kind::Send => self.send(link, packet, adapter),
            Kind::Write => self.write(link, packet, adapter),
            Kind::Read => return self.read(link, packet, adapter),
            _ => return Err(INVALID),
        }?;
        Ok(1)
    }

    fn send(&mut self, link: &Link, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Stop> {
        let (position, length) = (packet.bth.opcode.position(), length_of(packet));
        let (receive, offset) = match self.message {
            Some(Message::Send { receive, offset }) => (receive, offset),
            _ => (adapter.claim_receive(link.qp).ok_or(Stop::NotReady)?, 0),
        };
        // From here on a failure completes the receive.
        self.message = Some(Message::Send { receive, offset });
        let end = offset.checked_add(length).filter(|end| *end <= receive.length);
        let end = end.ok_or(Stop::Refuse(Nak::InvalidRequest, Failure::ReceiveTooShort))?;
        // Also without bytes: a receive whose memory may not be used fails with any message.
        let filled = adapter.fill_receive(link.qp, &receive, offset, packet.payload);
        filled.map_err(|Refused| Stop::Refuse(Nak::RemoteOperation, Failure::ReceiveProtection))?;
        if !position.ends() {
            self.message = Some(Message::Send { receive, offset: end });
            return Ok(());
        }
        let invalidated = packet.extended.invalidate;
        if let Some(key) = invalidated {
            adapter.invalidate(link.qp, key).map_err(|Refused| Stop::BadInvalidate)?;
        }
        self.message = None;
        self.msn = self.msn.wrapping_add(1);
        let received = Received {
            context: receive.context,
            length: end,
            solicited: packet.bth.solicited,
            immediate: packet.extended.immediate,
            invalidated,
            outcome: Ok(()),
        };
        adapter.complete_receive(link.qp, received);
        Ok(())
    }

    fn write(&mut self, link: &Link, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<(), Stop> {
        let (position, payload) = (packet.bth.opcode.position(), length_of(packet));
        let (key, address, length, offset) = match (self.message, packet.extended.reth) {
            (Some(Message::Write { key, address, length, offset }), _) => (key, address, length, offset),
            (_, Some(reth)) => (reth.key.get(), reth.address.get(), reth.length.get(), 0),
            _ => return Err(INVALID),
        };
        let end = offset + payload;
        let is_whole = if position.ends() { end == length } else { end < length };
        if length > LONGEST || !is_whole {
            return Err(INVALID);
        }
        if position.begins() && length > 0 {
            adapter.check(link.qp, Remote { key, address, length }, Access::Write).map_err(|Refused| NO_ACCESS)?;
        }
        // A message that immediate data end takes a receive, of which it uses no byte.
        let receive = match packet.extended.immediate {
            Some(immediate) => Some((adapter.claim_receive(link.qp).ok_or(Stop::NotReady)?, immediate)),
            None => None,
        };
        if payload > 0 {
            let written = adapter.write(link.qp, key, address.wrapping_add(offset.into()), packet.payload);
            if written.is_err() {
                if let Some((receive, _)) = receive {
                    self.message = Some(Message::Send { receive, offset: 0 });
                }
                return Err(NO_ACCESS);
            }
        }
        if !position.ends() {
            self.message = Some(Message::Write { key, address, length, offset: end });
            return Ok(());
        }
        self.message = None;
        self.msn = self.msn.wrapping_add(1);
        if let Some((receive, immediate)) = receive {
            let received = Received {
                context: receive.context,
                length,
                solicited: packet.bth.solicited,
                immediate: Some(immediate),
                invalidated: None,
                outcome: Ok(()),
            };
            adapter.complete_receive(link.qp, received);
        }
        Ok(())
    }

    fn read(&mut self, link: &Link, packet: &Packet<'_>, adapter: &mut impl Adapter) -> Result<u32, Stop> {
        let Reth { address, key, length } = packet.extended.reth.ok_or(INVALID)?;
        let (address, key, length) = (address.get(), key.get(), length.get());
        let most = usize::from(link.inbound_reads);
        // One that was answered and is being answered again does not count: the peer may have asked late, or the network doubled it, and have
        // the answer.
        let unanswered = self.reads.iter().filter(|read| !read.was_answered()).count();
        if unanswered >= most || length > LONGEST || !packet.payload.is_empty() {
            return Err(INVALID);
        }
        if length > 0 {
            adapter.check(link.qp, Remote { key, address, length }, Access::Read).map_err(|Refused| NO_ACCESS)?;
        }
        if self.reads.len() >= most {
            // The oldest: the peer has its answer, for otherwise it would not ask for one more. If it is still being repeated, the
            // repetition ends.
            self.reads.pop();
        }
        let packets = link.mtu.packets(length);
        let stream = Stream { start: 0, next: 0, end: packets, bytes: length };
        self.reads
            .push(Read { first: packet.bth.psn, packets, key, address, length, sent: 0, stream })
            .map_err(|_| INVALID)?;
        self.msn = self.msn.wrapping_add(1);
        Ok(packets)
    }

    /// A request that has been carried out comes again: its answer was lost, or it was late.
    fn repeat(&mut self, link: &Link, packet: &Packet<'_>) {
        let Some(reth) = packet.extended.reth.filter(|_| packet.bth.opcode.kind() == Kind::Read) else {
            self.ack = Some(self.expected.previous());
            return;
        };
        let psn = packet.bth.psn;
        let Some(read) = self.reads.iter_mut().find(|read| psn.since(read.first) < read.packets) else { return };
        let (index, length) = (psn.since(read.first), reth.length.get());
        let offset = index * link.mtu.bytes();
        let is_inside = reth.key.get() == read.key
            && reth.address.get() == read.address.wrapping_add(offset.into())
            && length <= read.length - offset;
        if is_inside {
            let end = index + link.mtu.packets(length);
            read.stream = Stream { start: index, next: index, end, bytes: offset + length };
        }
    }

    /// The next answer, if there is one.
    pub fn transmit(
        &mut self,
        link: &Link,
        frame: &mut [u8],
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) -> Option<usize> {
        // Answers leave in the order of their numbers: an ACK never before the data of a READ that it covers.
        let mut read = self.reads.iter().position(|read| !read.is_answered());
        let waits_for = read.and_then(|read| self.reads.get(read)).map(|read| read.first.plus(read.stream.next));
        if let Some(ack) = self.ack.filter(|ack| waits_for.is_none_or(|first| ack.is_before(first))) {
            self.ack = None;
            if self.nak.is_none() || waits_for.is_some() {
                counters.acks_sent += 1;
                return Some(self.answer(link, ack, Syndrome::Ack, frame));
            }
            // The NAK says the same.
        }
        while let Some(index) = read {
            match self.respond(link, index, frame, adapter) {
                Ok(length) => return Some(length),
                // A repetition that was late: the peer may have the answer, and this side's consumer have taken the memory away
                // because of that. One that needs it asks again, until its retries end.
                Err(_) if self.reads.get(index).is_some_and(Read::was_answered) => {
                    if let Some(read) = self.reads.get_mut(index) {
                        read.stream.next = read.stream.end;
                    }
                    read = self.reads.iter().position(|read| !read.is_answered());
                }
                Err(psn) => {
                    // The data may not be read any more.
                    self.reads.clear();
                    self.ack = None;
                    self.nak = Some((psn, Syndrome::Nak(Nak::RemoteAccess)));
                    self.failed = Some(Failure::PeerBroke);
                    self.drop_message(link.qp, Failure::PeerBroke, adapter);
                    break;
                }
            }
        }
        let (psn, syndrome) = self.nak.take()?;
        counters.naks_sent += 1;
        Some(self.answer(link, psn, syndrome, frame))
    }

    fn answer(&self, link: &Link, psn: Psn, syndrome: Syndrome, frame: &mut [u8]) -> usize {
        answer(link, psn, aeth(syndrome, self.msn), frame)
    }

    /// The next packet of the answer to a READ.
    ///
    /// # Errors
    ///
    /// Its number, if the memory may not be read.
    fn respond(
        &mut self,
        link: &Link,
        read: usize,
        frame: &mut [u8],
        adapter: &mut impl Adapter,
    ) -> Result<usize, Psn> {
        let Some(&Read { first, key, address, stream, .. }) = self.reads.get(read) else { return Err(self.expected) };
        let psn = first.plus(stream.next);
        let position = Position::of(stream.next, stream.start, stream.end);
        let bth = Bth::new(Opcode::read_response(position), link.remote_qpn, psn);
        let extended = if position == Position::Middle { Extended::default() } else { aeth(Syndrome::Ack, self.msn) };
        let bytes = link.mtu.payload(stream.bytes, stream.next);
        let from = address.wrapping_add((stream.next * link.mtu.bytes()).into());
        let length = link
            .path
            .emit(bth, &extended, bytes, frame, |payload| {
                if payload.is_empty() { Ok(()) } else { adapter.read(link.qp, key, from, payload) }
            })
            .map_err(|Refused| psn)?;
        if let Some(read) = self.reads.get_mut(read) {
            read.stream.next += 1;
            read.sent = read.sent.max(read.stream.next);
        }
        Ok(length)
    }
}
