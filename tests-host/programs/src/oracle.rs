//! The sequential oracle: what two consumers' calls have to do, if each is over before the next begins.
//!
//! It follows `docs/reference/ndkpi.md`, and `docs/decisions.md` where that is open. It knows nothing of the engine. After an
//! overrun, whose victims NDKPI leaves open, it is *loose* about all queues that have to do with the overrun one: their requests may
//! complete or not, but in order and once, and write only where they were told to.
//!
//! Over a wire a request has had its effect when it completes, and each step waits for that. Four things are otherwise, by RoCEv2:
//!
//! - A flush ends the connection if a send waits for a receive of the peer: it is on its way, and nobody can call it back (6.1).
//! - A read does not end before what is posted behind it begins: it is fenced off here (6.1).
//! - A bind may be in force before what was posted before it has completed, so its token is not used until then.
//! - A responder says once why it ends a connection. If that is lost the requester learns of the end only (5.6).

use std::collections::VecDeque;

use ndkpi::{NDK_OPERATION_TYPE as Kind, NtStatus};

use crate::{
    Way,
    cq::{Cq, Expected, Source},
    memory::{Element, Memory, Use, Window},
};

/// Queue pairs: 0 and 2 are the first consumer's, 1 and 3 the second's. 0 is connected with 1, 2 with 3.
pub const QPS: usize = 4;

/// Elements of a request at most, and inline bytes.
pub const ELEMENTS: usize = 2;
pub const INLINE: usize = 32;

/// What an initiator request does.
#[derive(Clone, Debug)]
pub enum Work {
    Send,
    Write(Element),
    Read(Element),
    Bind,
    Invalidate,
}

impl Work {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Send => Kind::SEND,
            Self::Write(_) => Kind::WRITE,
            Self::Read(_) => Kind::READ,
            Self::Bind => Kind::BIND,
            Self::Invalidate => Kind::INVALIDATE,
        }
    }
}

/// Where the bytes of a request are.
#[derive(Clone, Debug)]
pub enum Data {
    Elements(Vec<Element>),
    Inline(Vec<u8>),
}

impl Data {
    pub fn length(&self) -> usize {
        match self {
            Self::Elements(list) => list.iter().map(|element| element.length).sum(),
            Self::Inline(bytes) => bytes.len(),
        }
    }
}

/// An initiator request.
#[derive(Clone, Debug)]
pub struct Request {
    pub context: usize,
    pub work: Work,
    pub data: Data,
    pub silent: bool,
    pub solicited: bool,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct Receive {
    pub context: usize,
    pub list: Vec<Element>,
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Unconnected,
    Connected,
    /// The connection has ended, and not because of this queue pair. True once a request has been told.
    PeerGone(bool),
    /// One of its requests has failed, or it was disconnected: what comes now is cancelled.
    Over,
}

/// A queue pair.
pub struct Qp {
    pub state: State,
    pub initiator: VecDeque<Request>,
    pub receives: VecDeque<Receive>,
    pub depth: usize,
    pub receive_depth: usize,
    /// Where receives complete, and where initiator requests do.
    pub receive_cq: usize,
    pub initiator_cq: usize,
    pub loose: bool,
    /// Requests of a loose queue pair that may complete: receives, and initiator requests.
    pub may_complete: [VecDeque<usize>; 2],
    pub disconnects: u32,
    /// A request has completed otherwise than it was carried out, because the peer's answer was lost.
    pub has_lost: bool,
}

impl Qp {
    pub const fn cq(&self, receives: bool) -> usize {
        if receives { self.receive_cq } else { self.initiator_cq }
    }
}

/// The queue pair at the other end.
pub const fn peer(qp: usize) -> usize {
    qp ^ 1
}

/// The consumer of a queue pair.
pub const fn consumer(qp: usize) -> usize {
    qp & 1
}

/// Everything.
pub struct Oracle {
    pub cqs: Vec<Cq>,
    pub qps: Vec<Qp>,
    pub memory: Memory,
    /// The adapters reach each other by frames, of which some may be spoilt.
    pub way: Way,
}

impl Oracle {
    /// Returns true if the adapters reach each other by frames.
    pub fn is_wire(&self) -> bool {
        self.way != Way::Memory
    }

    /// Returns true if a request waits, or something is not certain.
    pub fn waits(&self) -> bool {
        self.qps.iter().any(|qp| qp.loose || !qp.initiator.is_empty())
    }

    /// Returns true if a read of a queue pair has not been carried out.
    pub fn has_read(&self, at: usize) -> bool {
        self.qps[at].initiator.iter().any(|request| matches!(request.work, Work::Read(_)))
    }

    /// Carries out what can be.
    pub fn run(&mut self) {
        while (0..QPS).any(|qp| self.progress(qp)) {}
    }

    /// Carries out as much of one queue pair as it takes for one more request to fit, and not what comes after: that may be what
    /// ends the connection.
    pub fn make_room(&mut self, at: usize) {
        while self.qps[at].initiator.len() >= self.qps[at].depth && self.progress(at) {}
    }

    /// Carries out the first request of a queue pair. Returns false if it cannot.
    fn progress(&mut self, at: usize) -> bool {
        let qp = &self.qps[at];
        if qp.loose || qp.initiator.is_empty() {
            return false;
        }
        let status = match qp.state {
            State::Unconnected => return false,
            State::Over | State::PeerGone(true) => NtStatus::CANCELLED,
            State::PeerGone(false) => {
                self.qps[at].state = State::PeerGone(true);
                if matches!(self.qps[at].initiator[0].work, Work::Bind | Work::Invalidate) {
                    NtStatus::CANCELLED
                } else {
                    NtStatus::IO_TIMEOUT
                }
            }
            State::Connected => match self.carry_out(at) {
                None => return false,
                Some(status) => status,
            },
        };
        let fails = !status.is_success();
        if let Some(request) = self.qps[at].initiator.pop_front() {
            self.finish(at, &request, status);
        }
        if status == NtStatus::REMOTE_RESOURCES && self.way.is_spoilt() {
            let cq = self.qps[at].initiator_cq;
            self.cqs[cq].lose((at, false));
        }
        if fails && self.qps[at].state == State::Connected {
            self.fail(at);
            self.lose_peer(at);
        }
        true
    }

    /// The first request of a connected queue pair: its status, or none if it waits.
    fn carry_out(&mut self, at: usize) -> Option<NtStatus> {
        let request = self.qps[at].initiator[0].clone();
        let (own, other) = (consumer(at), consumer(peer(at)));
        let length = request.data.length();
        let how = if matches!(request.work, Work::Read(_)) { Use::ReadSink } else { Use::LocalRead };
        // A request with an error of its own leaves the peer alone.
        let local = match &request.data {
            Data::Inline(_) => Vec::new(),
            Data::Elements(list) => match self.memory.resolve_all(own, list, how) {
                Some(places) => places,
                None => return Some(NtStatus::ACCESS_VIOLATION),
            },
        };
        let bytes = match &request.data {
            Data::Inline(bytes) => bytes.clone(),
            Data::Elements(_) => self.memory.read(&local),
        };
        match &request.work {
            Work::Send => return self.deliver(at, &request, &bytes),
            Work::Write(remote) if length > 0 => match self.memory.resolve(other, remote, Use::RemoteWrite) {
                Some(place) => self.memory.write(&[place], &bytes),
                None => return Some(NtStatus::REMOTE_RESOURCES),
            },
            Work::Read(remote) if length > 0 => match self.memory.resolve(other, remote, Use::RemoteRead) {
                Some(place) => {
                    let bytes = self.memory.read(&[place]);
                    self.memory.write(&local, &bytes);
                }
                None => return Some(NtStatus::REMOTE_RESOURCES),
            },
            Work::Write(_) | Work::Read(_) => {}
            Work::Bind => {
                if let Window::Posted(binding) = self.memory.windows[own] {
                    self.memory.windows[own] = Window::Bound(binding);
                }
            }
            Work::Invalidate => self.memory.windows[own] = Window::Free,
        }
        Some(NtStatus::SUCCESS)
    }

    /// A send meets the peer's first receive, or waits for one.
    fn deliver(&mut self, at: usize, request: &Request, bytes: &[u8]) -> Option<NtStatus> {
        let to = peer(at);
        let receive = self.qps[to].receives.front()?.clone();
        let room: usize = receive.list.iter().map(|element| element.length).sum();
        let places = self.memory.resolve_all(consumer(to), &receive.list, Use::LocalWrite);
        let status = match &places {
            // A request's own errors come first.
            None => NtStatus::ACCESS_VIOLATION,
            Some(_) if room < bytes.len() => NtStatus::BUFFER_OVERFLOW,
            Some(places) => {
                self.memory.write(places, bytes);
                NtStatus::SUCCESS
            }
        };
        self.qps[to].receives.pop_front();
        let received = if status.is_success() { bytes.len() } else { 0 };
        let expected = Expected {
            context: receive.context,
            status,
            bytes: u32::try_from(received).unwrap_or(u32::MAX),
            kind: Kind::RECEIVE,
            solicited: request.solicited && status.is_success(),
            may_be_lost: false,
        };
        if !self.complete((to, true), expected) {
            // The queue pair may have been told of the overrun before the bytes came, or after that.
            self.memory.unknown.extend(places.into_iter().flatten());
        }
        if status.is_success() {
            return Some(status);
        }
        self.fail(to);
        Some(NtStatus::REMOTE_RESOURCES)
    }

    /// A queue pair fails with one of its requests. What else it has is cancelled.
    fn fail(&mut self, at: usize) {
        self.qps[at].state = State::Over;
        self.flush(at);
    }

    /// The connection of a queue pair has ended: its peer knows, and is told by an event.
    fn lose_peer(&mut self, at: usize) {
        let other = &mut self.qps[peer(at)];
        if other.state == State::Connected {
            other.state = State::PeerGone(false);
        }
        self.qps[peer(at)].disconnects = 1;
        self.qps[at].disconnects = 1;
    }

    /// A request leaves its queue.
    fn finish(&mut self, at: usize, request: &Request, status: NtStatus) {
        let own = consumer(at);
        if !status.is_success() {
            // What was posted for a window and not carried out leaves it as it was.
            match (&request.work, self.memory.windows[own]) {
                (Work::Bind, Window::Posted(_)) => self.memory.windows[own] = Window::Free,
                (Work::Invalidate, Window::Ending(binding)) => self.memory.windows[own] = Window::Bound(binding),
                _ => {}
            }
        }
        if status.is_success() && request.silent {
            return;
        }
        let kind = request.work.kind();
        let expected =
            Expected { context: request.context, status, bytes: 0, kind, solicited: false, may_be_lost: false };
        self.complete((at, false), expected);
    }

    /// A completion. Returns false if its queue overruns, or has.
    fn complete(&mut self, source: Source, expected: Expected) -> bool {
        let (at, receives) = source;
        if self.qps[at].loose {
            self.qps[at].may_complete[usize::from(!receives)].push_back(expected.context);
            return false;
        }
        let cq = self.qps[at].cq(receives);
        if self.cqs[cq].push(source, expected) {
            return true;
        }
        self.loosen(cq);
        // What it was that found no place is not certain either.
        self.qps[at].may_complete[usize::from(!receives)].push_front(expected.context);
        false
    }

    /// A queue has overrun: nothing is certain about what has to do with it.
    fn loosen(&mut self, cq: usize) {
        self.cqs[cq].loose = true;
        for at in 0..QPS {
            let qp = &mut self.qps[at];
            if qp.loose || !(self.cqs[qp.receive_cq].loose || self.cqs[qp.initiator_cq].loose) {
                continue;
            }
            qp.loose = true;
            let receives: Vec<_> = qp.receives.drain(..).collect();
            let requests: Vec<_> = qp.initiator.drain(..).collect();
            for receive in &receives {
                self.receive_loosely(at, receive);
            }
            for request in &requests {
                self.initiate_loosely(at, request);
            }
            for next in [self.qps[at].receive_cq, self.qps[at].initiator_cq] {
                self.loosen(next);
            }
            let other = &self.qps[peer(at)];
            let (receive, initiator) = (other.receive_cq, other.initiator_cq);
            self.loosen(receive);
            self.loosen(initiator);
        }
    }

    /// A receive of a loose queue pair.
    pub fn receive_loosely(&mut self, at: usize, receive: &Receive) {
        self.memory.loosen(&receive.list);
        self.qps[at].may_complete[0].push_back(receive.context);
    }

    /// An initiator request of a loose queue pair.
    pub fn initiate_loosely(&mut self, at: usize, request: &Request) {
        match (&request.work, &request.data) {
            (Work::Write(remote), _) => self.memory.loosen(&[*remote]),
            (Work::Read(_), Data::Elements(list)) => self.memory.loosen(list),
            // Who may use a window that is bound or not, nobody can say.
            (Work::Bind | Work::Invalidate, _) => (0..self.cqs.len()).for_each(|cq| self.loosen(cq)),
            _ => {}
        }
        self.qps[at].may_complete[1].push_back(request.context);
    }

    /// `NdkFlush`: everything that was posted ends; over a wire the connection too, if something is on its way.
    pub fn flush(&mut self, at: usize) {
        let qp = &mut self.qps[at];
        if self.way != Way::Memory && qp.state == State::Connected && !qp.initiator.is_empty() && !qp.loose {
            qp.state = State::PeerGone(true);
            self.lose_peer(at);
        }
        while let Some(request) = self.qps[at].initiator.pop_front() {
            self.finish(at, &request, NtStatus::CANCELLED);
        }
        self.flush_receives(at);
    }

    /// All receives end.
    pub fn flush_receives(&mut self, at: usize) {
        while let Some(receive) = self.qps[at].receives.pop_front() {
            let expected = Expected {
                context: receive.context,
                status: NtStatus::CANCELLED,
                bytes: 0,
                kind: Kind::RECEIVE,
                solicited: false,
                may_be_lost: false,
            };
            self.complete((at, true), expected);
        }
    }

    /// This side has ended the connection: it is flushed, and the other one is told.
    pub fn end(&mut self, at: usize) {
        let was_connected = self.qps[at].state == State::Connected;
        self.flush(at);
        self.qps[at].state = State::Over;
        if was_connected {
            let other = peer(at);
            self.qps[other].state = State::PeerGone(false);
            self.qps[other].disconnects = 1;
        }
        self.run();
    }
}
