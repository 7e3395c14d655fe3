//! Sockets of programs: what drivers' sockets talk with on the same machine, or on another one. They have no requests, no callbacks and no
//! rules, and so are data only: who calls carries the segments.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndkpi::NtStatus;

use super::{
    connection::{Incoming, Outgoing},
    segment::{PATIENCE, Segment},
    status::CONNECTION_RESET,
};
use crate::state::{Part, State};

/// Connections that wait to be accepted, at most: others are refused.
const BACKLOG: usize = 200;
/// Bytes of datagrams that wait for a socket at most: others are lost.
const ROOM: usize = 64 << 10;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for the other side.
    Connecting,
    /// It is connected.
    Connected,
    /// It has ended, and the program hears this.
    Over(NtStatus),
}

/// A program's end of a connection.
pub struct End {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The number of the connection, which both ends know.
    pub id: u64,
    pub stage: Stage,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    /// Bytes that wait until the other side has taken what was sent before.
    unsent: VecDeque<u8>,
    /// The stream ends behind them.
    is_ending: bool,
    /// The program has closed it, and the other side has not ended its stream yet.
    is_orphan: bool,
}

/// A segment of a connection, with the addresses of its ends.
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// The number of the connection.
    pub id: u64,
    pub segment: Segment,
}

/// A socket of a program.
pub enum ProgramSocket {
    /// One connection.
    Stream(Box<End>),
    /// Connections that come, by the numbers of their sockets.
    Listener { local: SocketAddr, waiting: VecDeque<u64> },
    /// Datagrams, with where they come from.
    Datagrams { local: SocketAddr, arrived: VecDeque<(SocketAddr, Vec<u8>)> },
}

impl ProgramSocket {
    const fn local(&self) -> SocketAddr {
        match self {
            Self::Stream(end) => end.local,
            Self::Listener { local, .. } | Self::Datagrams { local, .. } => *local,
        }
    }

    const fn is_stream(&self) -> bool {
        !matches!(self, Self::Datagrams { .. })
    }

    /// A socket that is bound there gets what is sent to `destination`.
    fn is_for(&self, destination: SocketAddr) -> bool {
        let local = self.local();
        let same_family = local.is_ipv4() == destination.is_ipv4();
        local == destination || local.ip().is_unspecified() && same_family && local.port() == destination.port()
    }
}

/// The sockets of programs, by numbers of their own.
#[derive(Default)]
pub struct ProgramSockets {
    all: LiteMap<u64, ProgramSocket>,
    last: u64,
}

impl Part for Mutex<ProgramSockets> {}

impl End {
    /// One that has asked the other side for a connection, or was asked.
    pub fn new(local: SocketAddr, remote: SocketAddr, id: u64, stage: Stage) -> Self {
        let (outgoing, incoming) = (Outgoing::default(), Incoming::default());
        let unsent = VecDeque::new();
        Self { local, remote, id, stage, outgoing, incoming, unsent, is_ending: false, is_orphan: false }
    }

    /// The connection is over. What has come and was not taken is dropped.
    pub fn end_with(&mut self, status: NtStatus) {
        self.stage = Stage::Over(status);
        self.incoming.arrived.clear();
    }

    /// The program sends bytes. What the other side is told now.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<Segment> {
        self.unsent.extend(bytes);
        self.pump()
    }

    /// The program ends its stream. What the other side is told now.
    pub fn finish(&mut self) -> Vec<Segment> {
        self.is_ending = true;
        self.pump()
    }

    /// Sends what may be sent.
    fn pump(&mut self) -> Vec<Segment> {
        let room = usize::try_from(self.outgoing.room()).unwrap_or(usize::MAX);
        let now: Vec<u8> = self.unsent.drain(..self.unsent.len().min(room)).collect();
        let mut segments = self.outgoing.pass(&now);
        if self.is_ending && self.unsent.is_empty() {
            segments.extend(self.outgoing.finish());
        }
        segments
    }

    /// Something was sent that the other side has not received.
    fn waits(&self) -> bool {
        self.stage == Stage::Connected && self.outgoing.waits()
    }

    /// Something has come from the other side. What it is told.
    fn take(&mut self, segment: Segment) -> Vec<Segment> {
        match (segment, self.stage) {
            (Segment::Opened, Stage::Connecting) => self.stage = Stage::Connected,
            (Segment::Refused | Segment::Reset, Stage::Connecting) => self.end_with(NtStatus::CONNECTION_REFUSED),
            (Segment::Reset, Stage::Connected) => self.end_with(CONNECTION_RESET),
            // Nobody will take them.
            (Segment::Data { .. }, _) if self.is_orphan => {
                self.end_with(CONNECTION_RESET);
                return vec![Segment::Reset];
            }
            (Segment::Data { offset, bytes }, _) => {
                self.incoming.take_in(offset, bytes);
                return vec![self.incoming.taken()];
            }
            (Segment::End { offset }, _) => {
                self.incoming.end_at(offset);
                return vec![self.incoming.taken()];
            }
            (Segment::Taken { received, consumed }, _) => {
                // No request of a driver's is among what is complete now.
                let _ = self.outgoing.acknowledge(received, consumed);
                return self.pump();
            }
            // One that came twice, or too late.
            _ => {}
        }
        Vec::new()
    }

    /// What it tells the other side.
    pub const fn packet(&self, segment: Segment) -> Packet {
        Packet { from: self.local, to: self.remote, id: self.id, segment }
    }

    /// Both sides have ended their streams, and know it.
    fn is_finished(&self) -> bool {
        self.outgoing.end_is_known() && self.incoming.has_come_to_an_end()
    }
}

impl ProgramSockets {
    /// Adds a socket. Its number.
    pub fn add(&mut self, socket: ProgramSocket) -> u64 {
        self.last += 1;
        self.all.insert(self.last, socket);
        self.last
    }

    /// A socket.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut ProgramSocket> {
        self.all.get_mut(&number)
    }

    /// The program's end of a connection.
    pub fn end(&mut self, number: u64) -> Option<&mut End> {
        if let Some(ProgramSocket::Stream(end)) = self.all.get_mut(&number) { Some(end) } else { None }
    }

    /// The addresses that sockets of TCP have, or those of UDP.
    pub fn bound(&self, is_stream: bool) -> Vec<SocketAddr> {
        let orphan = |socket: &ProgramSocket| matches!(socket, ProgramSocket::Stream(end) if end.is_orphan);
        let all = self.all.values().filter(|socket| socket.is_stream() == is_stream && !orphan(socket));
        all.map(ProgramSocket::local).collect()
    }

    /// A segment has come, for no socket of a driver. What the other side is told if it was for one of these, or else the segment.
    pub fn take_in(
        &mut self,
        (source, destination): (SocketAddr, SocketAddr),
        id: u64,
        segment: Segment,
    ) -> Result<Vec<Segment>, Segment> {
        let is_it = |end: &End| end.id == id && (end.remote, end.local) == (source, destination);
        let is_over = |end: &End| matches!(end.stage, Stage::Over(_));
        let found = self.all.iter_mut().find_map(|(&number, socket)| match socket {
            ProgramSocket::Stream(end) if is_it(end) && !is_over(end) => Some((number, end)),
            _ => None,
        });
        if let Some((number, end)) = found {
            let answer = end.take(segment);
            if end.is_orphan && (end.is_finished() || is_over(end)) {
                self.all.remove(&number);
            }
            return Ok(answer);
        }
        if segment == Segment::Open {
            self.open(source, destination, id).map(|answer| vec![answer]).ok_or(segment)
        } else {
            Err(segment)
        }
    }

    /// Somebody wants a connection. What is answered, if a program listens there.
    fn open(&mut self, source: SocketAddr, destination: SocketAddr, id: u64) -> Option<Segment> {
        let listens = |socket: &ProgramSocket| matches!(socket, ProgramSocket::Listener { .. });
        let mut all = self.all.iter();
        let listener =
            all.find(|(_, socket)| listens(socket) && socket.is_for(destination)).map(|(&number, _)| number)?;
        let end = End::new(destination, source, id, Stage::Connected);
        let connection = self.add(ProgramSocket::Stream(Box::new(end)));
        if let Some(ProgramSocket::Listener { waiting, .. }) = self.all.get_mut(&listener)
            && waiting.len() < BACKLOG
        {
            waiting.push_back(connection);
            return Some(Segment::Opened);
        }
        self.all.remove(&connection);
        Some(Segment::Refused)
    }

    /// A datagram has come, for no socket of a driver: for one of these, or for nobody.
    pub fn take_in_datagram(&mut self, source: SocketAddr, destination: SocketAddr, bytes: Vec<u8>) {
        let mut all = self.all.iter_mut().map(|(_, socket)| socket);
        let found = all.find(|socket| !socket.is_stream() && socket.is_for(destination));
        let Some(ProgramSocket::Datagrams { arrived, .. }) = found else { return };
        let waiting: usize = arrived.iter().map(|(_, bytes)| bytes.len()).sum();
        if waiting + bytes.len() <= ROOM {
            arrived.push_back((source, bytes));
        }
    }

    /// The program has closed a socket, as `closesocket` does: a stream ends behind what was sent, and is reset if something has come that
    /// nobody has taken.
    pub fn close(&mut self, number: u64) -> Vec<Packet> {
        let Some(socket) = self.all.get_mut(&number) else { return Vec::new() };
        match socket {
            ProgramSocket::Datagrams { .. } => {}
            ProgramSocket::Listener { waiting, .. } => {
                let waiting = std::mem::take(waiting);
                self.all.remove(&number);
                return waiting.into_iter().filter_map(|connection| self.reset(connection)).collect();
            }
            ProgramSocket::Stream(end) if end.stage == Stage::Connected && end.incoming.arrived.is_empty() => {
                let segments = end.finish();
                let told = segments.into_iter().map(|segment| end.packet(segment)).collect();
                end.is_orphan = true;
                if end.is_finished() {
                    self.all.remove(&number);
                }
                return told;
            }
            ProgramSocket::Stream(_) => return self.reset(number).into_iter().collect(),
        }
        self.all.remove(&number);
        Vec::new()
    }

    /// Drops a connection.
    pub fn reset(&mut self, number: u64) -> Option<Packet> {
        let Some(ProgramSocket::Stream(end)) = self.all.remove(&number) else { return None };
        (end.stage == Stage::Connected).then(|| end.packet(Segment::Reset))
    }
}

/// Ends connections of programs whose other side is silent for too long about what was sent. Whenever something was.
pub fn watch(state: &Arc<State>) {
    let watched: Vec<(u64, u64)> = {
        let mut sockets = state.locked::<ProgramSockets>();
        let begins = sockets.all.iter_mut().filter_map(|(&number, socket)| match socket {
            ProgramSocket::Stream(end) if end.waits() && !end.outgoing.is_watched => {
                end.outgoing.is_watched = true;
                Some((number, end.outgoing.received))
            }
            _ => None,
        });
        begins.collect()
    };
    for (number, received) in watched {
        state.after(PATIENCE, move |state| {
            if let Some(end) = state.locked::<ProgramSockets>().end(number) {
                end.outgoing.is_watched = false;
                if end.waits() && end.outgoing.received == received {
                    end.end_with(NtStatus::IO_TIMEOUT);
                }
            }
            watch(state);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Packet, ProgramSocket, ProgramSockets, Segment, Stage};

    const HERE: &str = "10.0.0.1:80";
    const THERE: &str = "10.0.0.2:49152";

    /// A program's end of a connection, and its number.
    fn connected() -> (ProgramSockets, u64) {
        let [local, remote] = [HERE, THERE].map(|address| address.parse().expect("an address"));
        let mut sockets = ProgramSockets::default();
        let number = sockets.add(ProgramSocket::Stream(Box::new(End::new(local, remote, 7, Stage::Connected))));
        (sockets, number)
    }

    fn come(sockets: &mut ProgramSockets, segment: Segment) -> Result<Vec<Segment>, Segment> {
        let [to, from] = [HERE, THERE].map(|address| address.parse().expect("an address"));
        sockets.take_in((from, to), 7, segment)
    }

    #[test]
    fn a_stream_that_is_closed_hears_of_the_others_end_and_takes_nothing_more() {
        let (mut sockets, number) = connected();
        let told = sockets.close(number);
        assert!(matches!(&told[..], [Packet { segment: Segment::End { offset: 0 }, .. }]));
        assert_eq!(sockets.bound(true), [], "its port is free");
        assert_eq!(come(&mut sockets, Segment::Taken { received: 1, consumed: 0 }), Ok(vec![]));
        let end = come(&mut sockets, Segment::End { offset: 0 });
        assert_eq!(end, Ok(vec![Segment::Taken { received: 1, consumed: 0 }]));
        assert_eq!(come(&mut sockets, Segment::Reset), Err(Segment::Reset), "it is gone");
        let (mut sockets, number) = connected();
        let _ = sockets.close(number);
        let late = come(&mut sockets, Segment::Data { offset: 0, bytes: vec![1] });
        assert_eq!(late, Ok(vec![Segment::Reset]));
    }

    #[test]
    fn a_stream_that_is_closed_with_bytes_that_nobody_has_taken_is_reset() {
        let (mut sockets, number) = connected();
        let _ = come(&mut sockets, Segment::Data { offset: 0, bytes: vec![1] });
        assert!(matches!(&sockets.close(number)[..], [Packet { segment: Segment::Reset, .. }]));
    }

    #[test]
    fn what_does_not_fit_is_sent_when_it_was_taken_and_the_end_behind_it() {
        let (mut sockets, number) = connected();
        let window = 64 << 10;
        let end = sockets.end(number).expect("it is there");
        let sent = end.send(&vec![1; window + 1]).len();
        assert!(sent > 40 && end.finish().is_empty() && end.waits());
        let offset = window as u64;
        let rest = come(&mut sockets, Segment::Taken { received: offset, consumed: offset });
        let last = [Segment::Data { offset, bytes: vec![1] }, Segment::End { offset: offset + 1 }];
        assert_eq!(rest, Ok(last.to_vec()));
    }

    #[test]
    fn whoever_waits_at_a_port_that_is_closed_is_reset() {
        let mut sockets = ProgramSockets::default();
        let local = HERE.parse().expect("an address");
        let listener = sockets.add(ProgramSocket::Listener { local, waiting: std::collections::VecDeque::new() });
        assert_eq!(come(&mut sockets, Segment::Open), Ok(vec![Segment::Opened]));
        assert_eq!(come(&mut sockets, Segment::Open), Ok(vec![]), "it came twice");
        assert!(matches!(&sockets.close(listener)[..], [Packet { segment: Segment::Reset, .. }]));
        assert_eq!(come(&mut sockets, Segment::Open), Err(Segment::Open), "nobody listens");
    }
}
