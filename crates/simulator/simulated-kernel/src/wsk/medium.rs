//! What carries datagrams and segments: the sockets of this machine reach each other in memory, as a seed says, or over the loopback of the
//! host.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use litemap::LiteMap;
use ndkpi::NtStatus;
use network::{
    Impairment, Lane,
    lockstep::{Content, Timed},
};

use super::{
    program::ProgramSockets,
    receive,
    sockets::{Role, Socket, Sockets},
    status::{ADDRESS_ALREADY_EXISTS, INVALID_ADDRESS_COMPONENT},
};
use crate::{
    context,
    netio::network::Network,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// The longest datagram, in bytes: of UDP over IPv4.
pub const LONGEST: usize = 65_507;

/// Bytes that wait for a socket at most: others are lost.
const BACKLOG: usize = 64 << 10;
/// The first of the ports that a socket gets that wants any.
const FIRST_PORT: u16 = 49_152;

/// A datagram that has come.
pub struct Datagram {
    pub source: SocketAddr,
    pub bytes: Vec<u8>,
}

/// What carries datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory. What becomes of the datagrams from one address to another depends on the seed and on how many came before.
    Memory {
        /// What the network does to them. Of one that it changes the checksum is wrong: it is lost.
        impairment: Impairment,
        /// What chance is made of.
        seed: u64,
    },
    /// The same without checksums, as datagrams over IPv4 may be: one that the network changes arrives so.
    Unchecked {
        /// What the network does to them.
        impairment: Impairment,
        /// What chance is made of.
        seed: u64,
    },
    /// UDP and TCP on the loopback interface of the host: `127.0.0.1` and `::1`. A wildcard address is one of these.
    Host,
}

impl Default for Medium {
    fn default() -> Self {
        Self::Memory { impairment: Impairment::default(), seed: 0 }
    }
}

/// Who takes a segment that has come: from where, to where, and its bytes.
pub type TakeIn = fn(&Arc<State>, SocketAddr, SocketAddr, &[u8]);

/// The medium, and the directions that it has by source and destination.
#[derive(Default)]
pub struct Carrier {
    medium: Medium,
    lanes: LiteMap<(SocketAddr, SocketAddr), Lane>,
    /// Those of segments, so that what becomes of datagrams does not depend on them.
    streams: LiteMap<(SocketAddr, SocketAddr), Lane>,
    /// Who takes segments, as soon as there is a socket for streams.
    take_in: Option<TakeIn>,
    last_port: Option<u16>,
    /// What was sent last, by where it came from.
    last_sent: LiteMap<SocketAddr, Vec<u8>>,
    /// What goes to other machines, if there are any.
    outbox: Option<Vec<Timed>>,
    /// Nothing goes to them any more, nor comes from them.
    is_unplugged: bool,
}

impl Part for Mutex<Carrier> {}

impl Carrier {
    pub fn set(&mut self, medium: Medium) {
        *self = Self { medium, outbox: self.outbox.take(), take_in: self.take_in, ..Self::default() };
    }

    /// From now on there are other machines.
    pub fn join(&mut self) {
        self.outbox = Some(Vec::new());
    }

    /// From now on nothing goes to other machines, nor comes from them.
    pub fn unplug(&mut self) {
        self.is_unplugged = true;
        if let Some(outbox) = &mut self.outbox {
            outbox.retain(|sent| matches!(sent.content, Content::Signal(_)));
        }
    }

    /// Returns true if nothing comes from other machines.
    pub const fn is_unplugged(&self) -> bool {
        self.is_unplugged
    }

    /// Sends something to other machines. Returns false if there are none.
    fn send(&mut self, time: u64, content: impl FnOnce() -> Content) -> bool {
        let Some(outbox) = &mut self.outbox else { return false };
        if !self.is_unplugged {
            outbox.push(Timed { time, content: content() });
        }
        true
    }

    /// What was sent to other machines since this was last called.
    pub fn sent(&mut self) -> Vec<Timed> {
        self.outbox.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sends a word to all other machines.
    pub fn signal(&mut self, time: u64, name: &str) {
        if let Some(outbox) = &mut self.outbox {
            outbox.push(Timed { time, content: Content::Signal(name.to_owned()) });
        }
    }

    /// Segments are taken in from now on.
    pub const fn set_take_in(&mut self, take_in: TakeIn) {
        self.take_in = Some(take_in);
    }

    /// The port for a socket that wants that address, where others have these.
    fn port_for(&mut self, wanted: SocketAddr, bound: &[SocketAddr]) -> Result<u16, NtStatus> {
        let is_taken = |port: u16| {
            bound.iter().any(|other| {
                let same = other.ip() == wanted.ip() || other.ip().is_unspecified() || wanted.ip().is_unspecified();
                other.port() == port && other.is_ipv4() == wanted.is_ipv4() && same
            })
        };
        if wanted.port() != 0 {
            return if is_taken(wanted.port()) { Err(ADDRESS_ALREADY_EXISTS) } else { Ok(wanted.port()) };
        }
        let first = self.last_port.map_or(FIRST_PORT, |port| port.saturating_add(1));
        let free = (first..=u16::MAX).chain(FIRST_PORT..first).find(|&port| !is_taken(port));
        self.last_port = free.or(self.last_port);
        free.ok_or(ADDRESS_ALREADY_EXISTS)
    }

    /// When a segment arrives, and how often. TCP's checksum finds what the network has changed, also where datagrams have none.
    fn carry_segment(&mut self, now: u64, source: SocketAddr, destination: SocketAddr, length: usize) -> Vec<u64> {
        let (Medium::Memory { impairment, seed } | Medium::Unchecked { impairment, seed }) = self.medium else {
            return Vec::new();
        };
        let lost = impairment.lost.saturating_add(impairment.changed);
        let impairment = Impairment { lost, changed: 0, ..impairment };
        let number = self.streams.len() as u64;
        let new = || Lane::new(impairment, seed ^ number << 32 ^ 1 << 63);
        self.streams.entry((source, destination)).or_insert_with(new).carry(now, length)
    }

    fn lane(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<&mut Lane> {
        let (impairment, seed) = match self.medium {
            Medium::Memory { impairment, seed } => {
                let lost = impairment.lost.saturating_add(impairment.changed);
                (Impairment { lost, changed: 0, ..impairment }, seed)
            }
            Medium::Unchecked { impairment, seed } => (impairment, seed),
            Medium::Host => return None,
        };
        let number = self.lanes.len() as u64;
        Some(self.lanes.entry((source, destination)).or_insert_with(|| Lane::new(impairment, seed ^ number << 32)))
    }
}

/// A socket of the host that stands for one of this machine.
pub struct HostPort {
    socket: Arc<UdpSocket>,
    has_ended: Arc<AtomicBool>,
}

impl Drop for HostPort {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

impl HostPort {
    /// Binds one, with a thread that takes in what comes for the socket at `address`.
    fn open(state: &Arc<State>, address: usize, wanted: SocketAddr) -> Result<(u16, Self), NtStatus> {
        let loopback: IpAddr = if wanted.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        if !wanted.ip().is_unspecified() && wanted.ip() != loopback {
            return Err(INVALID_ADDRESS_COMPONENT);
        }
        let opened = UdpSocket::bind((loopback, wanted.port())).and_then(|socket| {
            socket.set_read_timeout(Some(Duration::from_millis(20)))?;
            Ok((socket.local_addr()?.port(), socket))
        });
        let (port, socket) = opened.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => ADDRESS_ALREADY_EXISTS,
            _ => INVALID_ADDRESS_COMPONENT,
        })?;
        let (socket, has_ended) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
        let (state, reader, ended) = (Arc::downgrade(state), socket.clone(), has_ended.clone());
        let read = move || {
            let mut bytes = vec![0; LONGEST];
            while !ended.load(Relaxed) {
                // A time-out is a look at the end; any other error is of a datagram that nobody takes.
                let Ok((count, source)) = reader.recv_from(&mut bytes) else { continue };
                let Some(state) = state.upgrade() else { return };
                let datagram = Datagram { source, bytes: bytes[..count].to_vec() };
                state.after(0, move |state| state.arrive_at(address, datagram));
            }
        };
        if thread::Builder::new().name("datagrams of the host".to_owned()).spawn(read).is_err() {
            bug_check(Rule::NotSimulated, format_args!("the host gives no thread"));
        }
        Ok((port, Self { socket, has_ended }))
    }
}

impl Network {
    /// What carries the datagrams and streams of Winsock Kernel from now on: by default memory, which loses nothing. Before any socket is
    /// bound.
    ///
    /// # Panics
    ///
    /// If a socket is bound, or for [`Medium::Host`] in a kernel with a seed, of which no run would be the same as another one.
    pub fn set_medium(&self, medium: Medium) {
        let _inside = context::Inside::new("the network stack");
        let state = self.state();
        assert!(medium != Medium::Host || state.seed.is_none(), "the host's network knows nothing of the seed");
        assert!(state.locked::<Sockets>().0.values().all(|socket| socket.local.is_none()), "a socket is bound");
        state.locked::<Carrier>().set(medium);
    }

    /// A datagram comes from `source`, which need not be of this machine: to the socket that has `destination`, or to nobody. Nothing
    /// happens to it on its way. For media in memory.
    pub fn inject(&self, source: SocketAddr, destination: SocketAddr, bytes: &[u8]) {
        let _inside = context::Inside::new("the network stack");
        let bytes = bytes.to_vec();
        self.state().after(0, move |state| state.take_in(source, destination, bytes));
    }

    /// The datagram that the socket at that address has sent last in memory, before anything happened to it on its way.
    #[must_use]
    pub fn last_datagram(&self, source: SocketAddr) -> Option<Vec<u8>> {
        self.state().locked::<Carrier>().last_sent.get(&source).cloned()
    }
}

impl State {
    /// Gives a socket its address: the one that is wanted, with a port of its own if that has none.
    pub fn bind_socket(self: &Arc<Self>, address: usize, wanted: SocketAddr) -> Result<(), NtStatus> {
        if self.is_of_host() {
            return self.bind_of_host(address, wanted);
        }
        if !wanted.ip().is_unspecified() && !wanted.ip().is_loopback() && !self.has_address(wanted.ip()) {
            return Err(INVALID_ADDRESS_COMPONENT);
        }
        let (mut sockets, mut carrier) = (self.locked::<Sockets>(), self.locked::<Carrier>());
        let Some(own) = sockets.0.get(&address) else { return Err(INVALID_ADDRESS_COMPONENT) };
        let (is_shared, is_stream) = (own.is_shared(), own.is_stream());
        // Each protocol has ports of its own.
        let others = sockets.0.values().filter(|other| other.is_stream() == is_stream && !other.shares_port());
        let others = others.filter(|other| !is_shared || !other.is_shared());
        let bound = others.filter_map(|other| other.local).chain(self.locked::<ProgramSockets>().bound(is_stream));
        let port = carrier.port_for(wanted, &bound.collect::<Vec<_>>())?;
        if let Some(socket) = sockets.0.get_mut(&address) {
            socket.local = Some(SocketAddr::new(wanted.ip(), port));
        }
        Ok(())
    }

    /// The address for a socket of a program that wants this one: with a port of its own if that has none.
    pub fn address_of_program(&self, wanted: SocketAddr, is_stream: bool) -> Result<SocketAddr, NtStatus> {
        if !wanted.ip().is_unspecified() && !self.is_own(wanted.ip()) {
            return Err(INVALID_ADDRESS_COMPONENT);
        }
        let (sockets, mut carrier) = (self.locked::<Sockets>(), self.locked::<Carrier>());
        let others = sockets.0.values().filter(|other| other.is_stream() == is_stream && !other.shares_port());
        let bound = others.filter_map(|other| other.local).chain(self.locked::<ProgramSockets>().bound(is_stream));
        let port = carrier.port_for(wanted, &bound.collect::<Vec<_>>())?;
        Ok(SocketAddr::new(wanted.ip(), port))
    }

    /// Returns true if the host carries what is sent.
    pub fn is_of_host(&self) -> bool {
        self.locked::<Carrier>().medium == Medium::Host
    }

    fn bind_of_host(self: &Arc<Self>, address: usize, wanted: SocketAddr) -> Result<(), NtStatus> {
        let (port, host) = HostPort::open(self, address, wanted)?;
        if let Some(socket) = self.locked::<Sockets>().0.get_mut(&address) {
            socket.local = Some(SocketAddr::new(wanted.ip(), port));
            if let Some(datagrams) = socket.datagrams() {
                datagrams.host = Some(host);
            }
        }
        Ok(())
    }

    /// Returns true if the machine has the address.
    pub fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.has_address(address)
    }

    /// Where what goes from a socket with that address to that destination comes from: nowhere if no route leads there.
    pub fn source_of(&self, local: SocketAddr, destination: IpAddr) -> Option<SocketAddr> {
        if !local.ip().is_unspecified() {
            return Some(local);
        }
        let has_others = self.locked::<Carrier>().outbox.is_some() && !self.is_own(destination);
        let own = if has_others { self.source_for(destination)? } else { destination };
        Some(SocketAddr::new(own, local.port()))
    }

    /// Carries a segment of TCP.
    pub fn carry_segment(self: &Arc<Self>, source: SocketAddr, destination: SocketAddr, bytes: &[u8]) {
        let (is_own, now) = (self.is_own(destination.ip()), self.machine.now());
        let mut carrier = self.locked::<Carrier>();
        let Some(take_in) = carrier.take_in else { return };
        if !is_own && carrier.send(now, || Content::Segment { source, destination, bytes: bytes.to_vec() }) {
            return;
        }
        let arrivals = carrier.carry_segment(now, source, destination, bytes.len());
        drop(carrier);
        for time in arrivals {
            let bytes = bytes.to_vec();
            self.after(1 + time.saturating_sub(now), move |state| take_in(state, source, destination, &bytes));
        }
    }

    /// A segment has come from another machine.
    pub fn take_in_segment(self: &Arc<Self>, source: SocketAddr, destination: SocketAddr, bytes: &[u8]) {
        let take_in = self.locked::<Carrier>().take_in;
        if let Some(take_in) = take_in {
            take_in(self, source, destination, bytes);
        }
    }

    /// Carries a datagram of a socket that is bound.
    pub fn carry(self: &Arc<Self>, address: usize, destination: SocketAddr, bytes: &[u8]) {
        let mut sockets = self.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return };
        if let Some(host) = socket.datagrams().and_then(|datagrams| datagrams.host.as_ref()) {
            let host = host.socket.clone();
            drop(sockets);
            // The network has lost it, and nobody is told.
            drop(host.send_to(bytes, destination));
            return;
        }
        let Some(local) = socket.local else { return };
        drop(sockets);
        self.carry_from(local, destination, bytes);
    }

    /// Carries a datagram of a socket with that address, in memory or to another machine.
    pub fn carry_from(self: &Arc<Self>, local: SocketAddr, destination: SocketAddr, bytes: &[u8]) {
        let is_own = self.is_own(destination.ip());
        let Some(source) = self.source_of(local, destination.ip()) else { return };
        let now = self.machine.now();
        let mut arrivals = Vec::new();
        let mut carrier = self.locked::<Carrier>();
        carrier.last_sent.insert(source, bytes.to_vec());
        if !is_own && carrier.send(now, || Content::Datagram { source, destination, bytes: bytes.to_vec() }) {
            return;
        }
        if let Some(lane) = carrier.lane(source, destination) {
            lane.send(now, bytes);
            while let Some(time) = lane.next() {
                arrivals.extend(lane.receive(time).map(|bytes| (time.saturating_sub(now), bytes)));
            }
        }
        drop(carrier);
        for (delay, bytes) in arrivals {
            self.after(1 + delay, move |state| state.take_in(source, destination, bytes));
        }
    }

    /// A datagram has come: to the socket that gets it, or to nobody.
    pub fn take_in(self: &Arc<Self>, source: SocketAddr, destination: SocketAddr, bytes: Vec<u8>) {
        match self.socket_at(destination) {
            Some(to) => self.arrive_at(to, Datagram { source, bytes }),
            None => self.locked::<ProgramSockets>().take_in_datagram(source, destination, bytes),
        }
    }

    /// The socket that gets what is sent to an address: the one that has it, or one with a wildcard.
    fn socket_at(&self, destination: SocketAddr) -> Option<usize> {
        let wildcard: IpAddr =
            if destination.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let sockets = self.locked::<Sockets>();
        let bound_to = |wanted: SocketAddr| {
            let mut all = sockets.0.iter();
            let is_it = |socket: &Socket| socket.local == Some(wanted) && matches!(socket.role, Role::Datagrams(_));
            all.find(|(_, socket)| is_it(socket)).map(|(&address, _)| address)
        };
        bound_to(destination).or_else(|| bound_to(SocketAddr::new(wildcard, destination.port())))
    }

    /// A datagram has come to a socket.
    fn arrive_at(self: &Arc<Self>, address: usize, datagram: Datagram) {
        if let Some(socket) = self.locked::<Sockets>().0.get_mut(&address).filter(|socket| !socket.is_closing)
            && let Some(datagrams) = socket.datagrams()
        {
            let waiting: usize = datagrams.arrived.iter().map(|datagram| datagram.bytes.len()).sum();
            let is_wanted = datagrams.remote.is_none_or(|remote| remote == datagram.source);
            if is_wanted && waiting + datagram.bytes.len() <= BACKLOG {
                datagrams.arrived.push_back(datagram);
            }
        }
        receive::feed(self, address);
    }
}
