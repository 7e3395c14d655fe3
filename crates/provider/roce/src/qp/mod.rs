//! A queue pair of a reliable connection: a requester and a responder.

mod request;
mod requester;
mod responder;
mod window;

pub use request::{Flags, PostError, Request, Work};

use fallible::AllocError;
use requester::Requester;
pub(crate) use responder::LastAck;
use responder::Responder;

use crate::{
    adapter::Adapter,
    counters::Counters,
    failure::Failure,
    mtu::Mtu,
    path::Path,
    psn::Psn,
    wire::{Envelope, Kind, Mac, Packet},
};

/// The sizes of a queue pair, which it keeps for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Requests that may be outstanding.
    pub send_depth: usize,
    /// Inline bytes of a request.
    pub inline_bytes: usize,
    /// READs of the peer that are served at once.
    pub inbound_reads: u8,
    /// READs that may be outstanding.
    pub outbound_reads: u8,
    /// Packets that may be on their way.
    pub window: u32,
    /// Packets of requests that go before an ACK that waits; with none the ACK is first.
    ///
    /// Behind a message that answers, an ACK is the shorter one of two frames: they are one datagram for a system that takes datagrams
    /// apart, and wake the peer once. Before it, a peer hears of its own request first, and of the message then.
    pub before_ack: u8,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { send_depth: 64, inline_bytes: 64, inbound_reads: 16, outbound_reads: 16, window: 64, before_ack: 8 }
    }
}

/// What the two sides of a connection have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The queue pair.
    pub qp: u32,
    /// The peer's.
    pub remote_qpn: u32,
    /// The way to the peer.
    pub path: Path,
    /// Bytes of a packet.
    pub mtu: Mtu,
    /// The number of the first packet that goes out.
    pub send_psn: Psn,
    /// The number of the first packet that comes in.
    pub receive_psn: Psn,
    /// READs of the peer that are served at once, at most those of [`Sizes`].
    pub inbound_reads: u8,
    /// READs that may be outstanding, at most those of [`Sizes`].
    pub outbound_reads: u8,
    /// An answer comes within so many microseconds; `None` waits for ever.
    pub ack_timeout: Option<u64>,
    /// How often a request is repeated without an answer: seven is seven.
    pub retry_count: u8,
    /// How often a request is repeated for want of a receive; seven: for a minute.
    pub rnr_retry_count: u8,
    /// The code of the time that the peer shall wait for a receive.
    pub rnr_timer: u8,
}

/// Completions that one call tells at most. The others follow with the next call, which is due at once.
const COMPLETIONS: usize = 64;

/// Where a queue pair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not connected.
    Idle,
    /// It is connected.
    Ready,
    /// It is over; completions may still wait to be told.
    Error(Failure),
}

/// A queue pair.
pub struct QueuePair {
    number: u32,
    sizes: Sizes,
    link: Option<Link>,
    requester: Requester,
    responder: Responder,
    /// Packets of requests that have gone before the ACK that waits.
    ahead: u8,
    state: State,
}

impl QueuePair {
    /// A queue pair with this number, not connected.
    ///
    /// # Errors
    ///
    /// [`AllocError`]: its queues do not fit in memory.
    pub fn new(number: u32, sizes: Sizes) -> Result<Self, AllocError> {
        Ok(Self {
            number,
            sizes,
            link: None,
            requester: Requester::new(sizes.send_depth, sizes.inline_bytes, sizes.window)?,
            responder: Responder::new(sizes.inbound_reads)?,
            ahead: 0,
            state: State::Idle,
        })
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Its sizes.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What it was connected with.
    #[must_use]
    pub const fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Connects it. Returns false, and does nothing, if it was connected before.
    pub fn connect(&mut self, link: Link) -> bool {
        if self.state != State::Idle {
            return false;
        }
        let link = Link {
            inbound_reads: link.inbound_reads.min(self.sizes.inbound_reads),
            outbound_reads: link.outbound_reads.min(self.sizes.outbound_reads),
            ..link
        };
        self.requester.connect(&link);
        self.responder.connect(&link);
        self.link = Some(link);
        self.state = State::Ready;
        true
    }

    /// Frames go to this station from now on: the peer's, or the router's.
    pub(crate) fn redirect(&mut self, station: Mac) {
        if let Some(link) = &mut self.link {
            link.path.remote_mac = station;
        }
    }

    /// Posts a request. Inline data is copied; without it the adapter is asked for the bytes.
    ///
    /// # Errors
    ///
    /// Why it was not taken.
    pub fn post(&mut self, request: Request, inline: Option<&[u8]>) -> Result<(), PostError> {
        match (&self.link, self.state) {
            (Some(link), State::Ready) => self.requester.post(link, request, inline),
            _ => Err(PostError::NotConnected),
        }
    }

    /// Requests that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requester.outstanding()
    }

    /// Returns true once the peer has sent something in order.
    #[must_use]
    pub const fn has_heard(&self) -> bool {
        self.responder.has_heard()
    }

    /// Ends the oldest request with `failure`, the others as flushed; the peer gets no more answers.
    pub fn fail(&mut self, failure: Failure, adapter: &mut impl Adapter) {
        self.requester.fail(failure);
        self.responder.end(self.number, Failure::Flushed, adapter);
        if !matches!(self.state, State::Error(_)) {
            self.state = State::Error(failure);
        }
        self.requester.complete(self.number, adapter, COMPLETIONS);
    }

    /// A packet for this queue pair has come. Returns true if it is a request that has been carried out: the peer has not got the
    /// answer, perhaps.
    pub fn receive(
        &mut self,
        now: u64,
        envelope: &Envelope,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) -> bool {
        let Self { link, requester, responder, .. } = self;
        let Some(link) = link.as_ref().filter(|_| self.state == State::Ready) else {
            counters.wrong_state += 1;
            return false;
        };
        if !link.path.is_of(envelope) {
            counters.unknown_source += 1;
            return false;
        }
        let mut is_duplicate = false;
        match packet.bth.opcode.kind() {
            Kind::Send | Kind::Write | Kind::Read | Kind::Atomic => {
                is_duplicate = responder.receive(link, packet, adapter, counters);
            }
            Kind::ReadResponse | Kind::Acknowledge => requester.receive(now, link, packet, adapter, counters),
            Kind::AtomicAcknowledge => counters.ghosts += 1,
            Kind::Cnp => counters.congestion_notifications += 1,
            Kind::Datagram => counters.unknown_queue_pair += 1,
        }
        self.settle(adapter);
        is_duplicate
    }

    /// Writes the next packet to the front of `frame`, if one may go, and returns its length.
    pub fn transmit(
        &mut self,
        now: u64,
        frame: &mut [u8],
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) -> Option<usize> {
        let Self { sizes, link, requester, responder, ahead, .. } = self;
        let link = link.as_ref().filter(|_| self.state == State::Ready)?;
        let length = if responder.has_answers() {
            let may_pass = *ahead < sizes.before_ack && responder.has_only_ack();
            let request = if may_pass { requester.transmit(now, link, frame, adapter) } else { None };
            if request.is_some() {
                *ahead += 1;
                request
            } else {
                *ahead = 0;
                match responder.transmit(link, frame, adapter, counters) {
                    None => requester.transmit(now, link, frame, adapter),
                    length => length,
                }
            }
        } else {
            *ahead = 0;
            requester.transmit(now, link, frame, adapter)
        };
        self.settle(adapter);
        length
    }

    /// The ACK that has not gone out yet, if this has ended: [`transmit`](Self::transmit) has nothing any more.
    pub(crate) fn take_last_ack(&mut self) -> Option<LastAck> {
        let link = self.link.as_ref().filter(|_| matches!(self.state, State::Error(_)))?;
        self.responder.take_last_ack(link)
    }

    /// Time has passed. Returns true if the peer has not answered in time.
    pub fn tick(&mut self, now: u64, adapter: &mut impl Adapter, counters: &mut Counters) -> bool {
        let link = self.link.as_ref().filter(|_| self.state == State::Ready);
        let is_late = link.is_some_and(|link| self.requester.tick(now, link, counters));
        self.settle(adapter);
        is_late
    }

    /// When [`tick`](Self::tick) must be called; zero is at once.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.requester.has_completions() { Some(0) } else { self.requester.deadline() }
    }

    /// Returns true if [`transmit`](Self::transmit) may have a packet.
    #[must_use]
    pub fn may_transmit(&self, now: u64) -> bool {
        self.responder.has_answers()
            || self.state == State::Ready
                && self.link.as_ref().is_some_and(|link| self.requester.may_transmit(now, link))
    }

    /// Tells completions, and whether one of the halves has failed.
    fn settle(&mut self, adapter: &mut impl Adapter) {
        if self.requester.has_completions() {
            self.requester.complete(self.number, adapter, COMPLETIONS);
        }
        if self.state != State::Ready {
            return;
        }
        if let Some(failure) = self.requester.failed() {
            self.responder.end(self.number, Failure::Flushed, adapter);
            self.state = State::Error(failure);
        } else if let Some(failure) = self.responder.failed() {
            // Requests of this side get no answer any more.
            self.requester.fail(Failure::Flushed);
            self.state = State::Error(failure);
            self.requester.complete(self.number, adapter, COMPLETIONS);
        }
    }
}
