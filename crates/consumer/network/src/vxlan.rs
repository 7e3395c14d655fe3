//! VXLAN (RFC 7348) in a UDP socket: what Linux' device of this kind speaks.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use roce::vxlan::{HEADER, PORT, decapsulate, header};

use crate::{
    error::OpenError,
    segment::{Segment, too_long},
    udp::{self, Udp},
};

/// An Ethernet address.
type Mac = [u8; 6];

/// Stations whose peer is remembered.
const STATIONS: usize = 1024;
/// How long a station that sends nothing is remembered: as long as Linux does.
const AGE: Duration = Duration::from_mins(5);
/// Peers that frames for everybody go to.
const PEERS: usize = 64;

/// What a segment is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket's address. Linux sends to [`PORT`] unless told otherwise.
    pub local: SocketAddr,
    /// The other ends, at most 64. Without any, whoever sends a frame of the network becomes one, at its address and this side's port.
    pub peers: Vec<SocketAddr>,
    /// The network's identifier: 24 bits.
    pub vni: u32,
}

impl Config {
    /// The network `vni` with these peers, at VXLAN's own port on all addresses.
    #[must_use]
    pub fn new(vni: u32, peers: Vec<SocketAddr>) -> Self {
        let any: IpAddr = match peers.first() {
            Some(peer) if peer.is_ipv6() => [0_u16; 8].into(),
            _ => [0_u8; 4].into(),
        };
        Self { local: (any, PORT).into(), peers, vni }
    }
}

/// What a segment has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that are no VXLAN, or have no whole Ethernet header.
    pub malformed: u64,
    /// Datagrams of other networks.
    pub other_network: u64,
    /// Datagrams of senders that are no peers.
    pub strangers: u64,
}

/// Who is where.
struct Table {
    peers: Vec<SocketAddr>,
    stations: HashMap<Mac, (SocketAddr, Instant)>,
    counters: Counters,
}

impl Table {
    /// The peer that a datagram is from. Linux sends from any port, so its address names a peer; its port tells two of one address apart.
    fn peer(&self, from: SocketAddr) -> Option<SocketAddr> {
        let exact = self.peers.iter().find(|peer| **peer == from);
        exact.or_else(|| self.peers.iter().find(|peer| peer.ip() == from.ip())).copied()
    }

    /// Remembers where a station is.
    fn learn(&mut self, station: Mac, peer: SocketAddr, now: Instant) {
        if is_group(station) {
            return;
        }
        if self.stations.len() >= STATIONS && !self.stations.contains_key(&station) {
            self.stations.retain(|_, (_, seen)| now.duration_since(*seen) < AGE);
            if self.stations.len() >= STATIONS {
                // Frames for it go to everybody.
                return;
            }
        }
        self.stations.insert(station, (peer, now));
    }

    /// Where a frame goes.
    fn way(&self, to: Mac, now: Instant) -> &[SocketAddr] {
        match self.stations.get(&to) {
            Some((peer, seen)) if now.duration_since(*seen) < AGE => {
                self.peers.iter().position(|known| known == peer).map_or(&self.peers[..], |at| &self.peers[at..=at])
            }
            _ => &self.peers,
        }
    }
}

const fn is_group(station: Mac) -> bool {
    station[0] & 1 != 0
}

/// A segment of VXLAN with one or several peers.
///
/// A frame for a station that has been heard goes to its peer, any other to all of them, as a switch would do; what a peer sends is
/// not passed on to others. Nothing is encrypted, and a sender's address proves nothing: as with VXLAN everywhere.
pub struct Vxlan {
    socket: Udp,
    local: SocketAddr,
    vni: u32,
    header: [u8; HEADER],
    /// Whoever sends becomes a peer.
    open: bool,
    table: Mutex<Table>,
}

impl Vxlan {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// The port is in use, the address is not one of this machine, the identifier has more than 24 bits, or there are too many peers.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let Config { local, ref peers, vni } = *config;
        if vni >= 1 << 24 {
            return Err(OpenError::Wrong(format!("a VNI is 0 to {}, not {vni}", (1 << 24) - 1)));
        }
        if peers.len() > PEERS {
            return Err(OpenError::Wrong(format!("{} peers; at most {PEERS} are possible", peers.len())));
        }
        let socket = Udp::open(local)?;
        let local = socket.local().map_err(|error| OpenError::of_socket(local, error))?;
        let table = Table { peers: peers.clone(), stations: HashMap::new(), counters: Counters::default() };
        Ok(Self { socket, local, vni, header: header(vni), open: peers.is_empty(), table: Mutex::new(table) })
    }

    /// The socket's address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// What was dropped.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.table().counters
    }

    /// The peers that there are now.
    #[must_use]
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.table().peers.clone()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The frame in a datagram, if it is one of this network and from a peer. The sender is remembered.
    fn take<'datagram>(&self, datagram: &'datagram [u8], from: SocketAddr) -> Option<&'datagram [u8]> {
        let mut table = self.table();
        let inside =
            decapsulate(datagram).and_then(|(vni, frame)| Some((vni, frame, *frame.get(6..14)?.first_chunk::<6>()?)));
        let Some((vni, frame, station)) = inside else {
            table.counters.malformed += 1;
            return None;
        };
        if vni != self.vni {
            table.counters.other_network += 1;
            return None;
        }
        let peer = match table.peer(from) {
            Some(peer) => peer,
            None if self.open && table.peers.len() < PEERS => {
                // Both ends of VXLAN have the same port; the one that a datagram comes from is any.
                let peer = (from.ip(), self.local.port()).into();
                table.peers.push(peer);
                peer
            }
            None => {
                table.counters.strangers += 1;
                return None;
            }
        };
        table.learn(station, peer, Instant::now());
        Some(frame)
    }
}

impl Segment for Vxlan {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.send_all(&[frame])
    }

    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        if let Some(frame) = frames.iter().find(|frame| frame.len() > self.longest()) {
            return Err(too_long(frame, self.longest()));
        }
        let parts: Vec<_> = frames.iter().map(|frame| [&self.header[..], frame]).collect();
        let mut datagrams = Vec::with_capacity(frames.len());
        let table = self.table();
        let now = Instant::now();
        for (frame, parts) in frames.iter().zip(&parts) {
            let Some(to) = frame.first_chunk::<6>() else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a frame without an address"));
            };
            datagrams.extend(table.way(*to, now).iter().map(|peer| (&parts[..], *peer)));
        }
        drop(table);
        self.socket.send_all(&datagrams)
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut count = 0;
        self.socket.receive(patience, &mut |datagram, from| {
            if let Some(frame) = self.take(datagram, from) {
                take(frame);
                count += 1;
            }
        })?;
        Ok(count)
    }

    fn longest(&self) -> usize {
        udp::LONGEST - HEADER
    }

    fn describe(&self) -> String {
        let peers: Vec<_> = self.table().peers.iter().map(ToString::to_string).collect();
        let peers = if peers.is_empty() { "whoever sends".to_owned() } else { peers.join(", ") };
        format!("VXLAN {} from {} to {peers}", self.vni, self.local)
    }
}
