//! VXLAN (RFC 7348) in a UDP socket: what Linux' device of this kind speaks.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use roce::vxlan::Counters;
use roce::vxlan::{Bridge, HEADER, PEERS, PORT, header};
use smallvec::SmallVec;

use crate::{
    error::OpenError,
    segment::{Segment, too_long},
    udp::{self, Udp},
};

/// Frames of one call for which nothing is allocated.
const FEW: usize = 4;

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

/// A segment of VXLAN with one or several peers.
///
/// A frame for a station that has been heard goes to its peer, any other to all of them, as a switch would do; what a peer sends is
/// not passed on to others. Nothing is encrypted, and a sender's address proves nothing: as with VXLAN everywhere.
pub struct Vxlan {
    socket: Udp,
    local: SocketAddr,
    header: [u8; HEADER],
    bridge: Mutex<Bridge>,
    /// Time is counted from here.
    begin: Instant,
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
        let welcomes = peers.is_empty().then(|| local.port());
        let bridge = Bridge::new(vni, peers, welcomes).map_err(|_| OpenError::Wrong("no memory".to_owned()))?;
        Ok(Self { socket, local, header: header(vni), bridge: Mutex::new(bridge), begin: Instant::now() })
    }

    /// The socket's address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// What was dropped.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.bridge().counters()
    }

    /// The peers that there are now.
    #[must_use]
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.bridge().peers().to_vec()
    }

    fn bridge(&self) -> MutexGuard<'_, Bridge> {
        self.bridge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
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
        let parts: SmallVec<[_; FEW]> = frames.iter().map(|frame| [&self.header[..], frame]).collect();
        let mut datagrams = SmallVec::<[_; FEW]>::with_capacity(frames.len());
        let bridge = self.bridge();
        let now = self.now();
        for (frame, parts) in frames.iter().zip(&parts) {
            let Some(to) = frame.first_chunk::<6>() else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a frame without an address"));
            };
            datagrams.extend(bridge.way(now, *to).iter().map(|peer| (&parts[..], *peer)));
        }
        drop(bridge);
        self.socket.send_all(&datagrams)
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        // Those of one call have come at the same time, as far as stations are forgotten.
        let mut now = None;
        self.socket.receive_wanted(patience, &mut |datagram, from| {
            let now = *now.get_or_insert_with(|| self.now());
            let taken = self.bridge().receive(now, datagram, from);
            let frame = datagram.get(HEADER..).filter(|_| taken.is_ok());
            if let Some(frame) = frame {
                take(frame);
            }
            frame.is_some()
        })
    }

    fn longest(&self) -> usize {
        udp::LONGEST - HEADER
    }

    fn describe(&self) -> String {
        let bridge = self.bridge();
        let peers: Vec<_> = bridge.peers().iter().map(ToString::to_string).collect();
        let peers = if peers.is_empty() { "whoever sends".to_owned() } else { peers.join(", ") };
        format!("VXLAN {} from {} to {peers}", bridge.vni(), self.local)
    }
}
