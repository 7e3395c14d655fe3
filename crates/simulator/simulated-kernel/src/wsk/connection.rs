//! A connection's end: what was sent and is not received, and what has come and is not taken.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
};

use ndis::WSK_CLIENT_CONNECTION_DISPATCH;
use ndkpi::NtStatus;

use super::{buffer::Buffer, host_stream::HostStream, request::Pended, segment::Segment};
use crate::state::State;

/// Bytes under way, or waiting to be taken, at most: then sends wait.
pub const WINDOW: u64 = 64 << 10;
/// Bytes of one segment at most.
const LONGEST: u64 = 1_460;

/// Where a connection stands.
pub enum Stage {
    /// It is not connected.
    Apart,
    /// It waits for the other side.
    Connecting(Connect),
    /// It is connected.
    Connected,
    /// It has ended, and calls are answered with this.
    Over(NtStatus),
}

/// A request to connect.
pub struct Connect {
    pub pended: Pended,
    /// What is sent as soon as there is a connection.
    pub first: Option<(Buffer, Vec<u8>)>,
    /// The socket was made for this request, and goes if it fails.
    pub is_whole: bool,
}

/// One end.
pub struct Connection {
    pub callbacks: WSK_CLIENT_CONNECTION_DISPATCH,
    pub stage: Stage,
    /// The number of the connection, which both ends know.
    pub id: u64,
    pub remote: Option<SocketAddr>,
    /// It came to a socket that listens, whose address it shares.
    pub is_accepted: bool,
    /// The host's connection that this is.
    pub host: Option<HostStream>,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
}

impl Connection {
    /// One that is not connected.
    pub fn new(callbacks: WSK_CLIENT_CONNECTION_DISPATCH) -> Self {
        Self {
            callbacks,
            stage: Stage::Apart,
            id: 0,
            remote: None,
            is_accepted: false,
            host: None,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
        }
    }

    /// Both sides have ended their streams, and know it: nothing is left to be dropped.
    pub fn is_finished(&self) -> bool {
        self.outgoing.end_is_known() && self.incoming.has_come_to_an_end()
    }
}

/// What goes to the other side.
#[derive(Default)]
pub struct Outgoing {
    /// The client has heard that the ideal backlog is another.
    pub has_told_backlog: bool,
    /// Requests of which the other side does not have all bytes, in order.
    pub sends: VecDeque<Sending>,
    /// Bytes of all requests.
    pub queued: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Those that the other side has, its end being one.
    pub received: u64,
    /// Those that it has taken.
    consumed: u64,
    /// Where the stream ends, if it does.
    pub end: Option<u64>,
    is_end_sent: bool,
    /// The request that ends it.
    pub disconnect: Option<Pended>,
    /// Somebody looks whether the other side still answers.
    pub is_watched: bool,
}

/// A request to send.
pub struct Sending {
    pub routine: &'static str,
    /// `None` for the last bytes of a request that ends the stream.
    pub pended: Option<Pended>,
    pub buffer: Buffer,
    pub bytes: Vec<u8>,
    /// Where its bytes end in the stream.
    end: u64,
}

impl Sending {
    /// It is over: the client may have its buffer back, which must be as it was.
    pub fn finish(self, state: &Arc<State>, status: NtStatus) {
        self.buffer.check_same(state, &self.bytes, self.routine);
        let count = if status == NtStatus::SUCCESS { self.bytes.len() } else { 0 };
        if let Some(pended) = self.pended {
            pended.end(state, status, count);
        }
    }
}

impl Outgoing {
    /// So many more bytes may be sent.
    pub const fn room(&self) -> u64 {
        WINDOW.saturating_sub(self.sent - self.consumed)
    }

    /// Takes a request.
    pub fn queue(&mut self, routine: &'static str, pended: Option<Pended>, buffer: Buffer, bytes: Vec<u8>) {
        self.queued += bytes.len() as u64;
        self.sends.push_back(Sending { routine, pended, buffer, bytes, end: self.queued });
    }

    /// Takes a request back that its client has cancelled. Returns false if some of its bytes were sent, or others come behind them.
    pub fn take_back(&mut self, number: u64) -> Option<(Sending, bool)> {
        let is_it = |send: &Sending| send.pended.as_ref().is_some_and(|pended| pended.number == number);
        let place = self.sends.iter().position(is_it)?;
        let send = self.sends.remove(place)?;
        let begin = send.end - send.bytes.len() as u64;
        let is_whole = self.sent <= begin && send.end == self.queued && self.end.is_none();
        if is_whole {
            self.queued = begin;
        }
        Some((send, is_whole))
    }

    /// So many bytes are to be under way, so that the stream does not run dry: more when the other side has answered.
    pub const fn ideal_backlog(&self) -> u64 {
        if self.received == 0 { WINDOW } else { 2 * WINDOW }
    }

    /// Bytes that are sent now, and by no request that waits.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<Segment> {
        let mut all = Vec::new();
        for piece in bytes.chunks(usize::try_from(LONGEST).unwrap_or(1)) {
            all.push(Segment::Data { offset: self.sent, bytes: piece.to_vec() });
            self.sent += piece.len() as u64;
        }
        self.queued = self.sent;
        all
    }

    /// What may be sent now.
    pub fn next(&mut self) -> Option<Segment> {
        if self.sent < self.queued {
            let count = self.room().min(LONGEST);
            let send = self.sends.iter().find(|send| send.end > self.sent).filter(|_| count > 0)?;
            let begin = self.sent - (send.end - send.bytes.len() as u64);
            let rest = &send.bytes[usize::try_from(begin).unwrap_or(0)..];
            let bytes = rest[..rest.len().min(usize::try_from(count).unwrap_or(0))].to_vec();
            let segment = Segment::Data { offset: self.sent, bytes };
            self.sent += rest.len().min(usize::try_from(count).unwrap_or(0)) as u64;
            return Some(segment);
        }
        if self.end == Some(self.sent) && !self.is_end_sent {
            self.is_end_sent = true;
            return Some(Segment::End { offset: self.sent });
        }
        None
    }

    /// The other side says what it has. Requests that are complete now, and the one that has ended the stream if that is.
    pub fn acknowledge(&mut self, received: u64, consumed: u64) -> (Vec<Sending>, Option<Pended>) {
        self.received = self.received.max(received);
        self.consumed = self.consumed.max(consumed);
        let mut done = Vec::new();
        while self.sends.front().is_some_and(|send| send.end <= self.received) {
            done.extend(self.sends.pop_front());
        }
        (done, if self.end_is_known() { self.disconnect.take() } else { None })
    }

    /// The stream ends behind what was sent, if it does not end already. What the other side is told.
    pub fn finish(&mut self) -> Option<Segment> {
        self.end = self.end.or(Some(self.queued));
        self.next()
    }

    /// The stream has ended, and the other side knows it.
    pub fn end_is_known(&self) -> bool {
        self.end.is_some_and(|end| self.received > end)
    }

    /// Something was sent that the other side has not received.
    pub fn waits(&self) -> bool {
        self.received < self.sent || (self.is_end_sent && self.end.is_some_and(|end| self.received <= end))
    }
}

/// What comes from the other side.
#[derive(Default)]
pub struct Incoming {
    /// Requests to receive, the oldest first.
    pub receives: VecDeque<Receiving>,
    /// Bytes that nobody has had.
    pub arrived: VecDeque<u8>,
    /// What came before something that comes before it in the stream.
    ahead: BTreeMap<u64, Vec<u8>>,
    /// Bytes that have come, in order.
    received: u64,
    /// Bytes that were taken.
    pub consumed: u64,
    /// Where the stream ends, if it does.
    end: Option<u64>,
    /// What the client has to hear of its end.
    pub news: News,
    /// The callback has not taken everything: it waits for a call of `WskReceive`.
    pub is_paused: bool,
    /// Somebody gives out what has come.
    pub is_feeding: bool,
}

/// What there is to say of the end of a connection, besides that of the stream.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum News {
    #[default]
    None,
    /// The other side has ended the connection, and not only its stream.
    Reset,
    /// The client has heard of an end.
    Told,
}

/// How a request receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What there is.
    Some,
    /// As much as there is room for.
    All,
    /// Nothing: it waits for the end.
    Drain,
}

/// A request to receive.
pub struct Receiving {
    pub pended: Pended,
    pub buffer: Buffer,
    pub mode: Mode,
    /// What it has, if it waits for more.
    pub bytes: Vec<u8>,
}

impl Incoming {
    /// Bytes have come.
    pub fn take_in(&mut self, offset: u64, bytes: Vec<u8>) {
        if offset + bytes.len() as u64 > self.received {
            self.ahead.insert(offset, bytes);
        }
        while let Some(first) = self.ahead.first_entry().filter(|first| *first.key() <= self.received) {
            let (offset, bytes) = first.remove_entry();
            let known = usize::try_from(self.received - offset).unwrap_or(usize::MAX).min(bytes.len());
            self.received += (bytes.len() - known) as u64;
            self.arrived.extend(&bytes[known..]);
        }
    }

    /// Takes bytes that nobody has had, as many as are wanted.
    pub fn take(&mut self, wanted: usize) -> Vec<u8> {
        let count = wanted.min(self.arrived.len());
        self.consumed += count as u64;
        self.arrived.drain(..count).collect()
    }

    /// The stream ends there.
    pub const fn end_at(&mut self, offset: u64) {
        self.end = Some(offset);
    }

    /// All has come.
    pub fn has_come_to_an_end(&self) -> bool {
        self.end == Some(self.received)
    }

    /// All has come, and was taken.
    pub fn is_at_an_end(&self) -> bool {
        self.has_come_to_an_end() && self.arrived.is_empty()
    }

    /// What the other side is told.
    pub fn taken(&self) -> Segment {
        let received = self.received + u64::from(self.has_come_to_an_end());
        Segment::Taken { received, consumed: self.consumed }
    }
}

#[cfg(test)]
mod tests {
    use super::{Incoming, Outgoing, Segment, WINDOW};

    #[test]
    fn a_stream_is_put_together_whatever_the_order() {
        let mut incoming = Incoming::default();
        incoming.take_in(3, vec![3, 4]);
        incoming.end_at(5);
        assert!(incoming.arrived.is_empty() && !incoming.has_come_to_an_end());
        incoming.take_in(0, vec![0, 1]);
        incoming.take_in(1, vec![1, 2, 3]);
        incoming.take_in(0, vec![0]);
        assert_eq!(incoming.arrived, [0, 1, 2, 3, 4]);
        assert_eq!(incoming.taken(), Segment::Taken { received: 6, consumed: 0 });
        assert!(incoming.has_come_to_an_end() && !incoming.is_at_an_end());
    }

    #[test]
    fn a_window_ends_and_opens_again() {
        let mut outgoing = Outgoing::default();
        let sent = outgoing.pass(&vec![0; usize::try_from(WINDOW).expect("small")]);
        assert!(sent.len() > 40 && outgoing.room() == 0 && outgoing.waits());
        let _ = outgoing.acknowledge(WINDOW, 10);
        assert!(outgoing.room() == 10 && !outgoing.waits());
        outgoing.end = Some(WINDOW);
        assert_eq!(outgoing.next(), Some(Segment::End { offset: WINDOW }));
        assert_eq!((outgoing.next(), outgoing.waits()), (None, true));
    }
}
