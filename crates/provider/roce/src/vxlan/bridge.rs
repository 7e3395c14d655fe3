//! Who is where: the peers of a VXLAN network, and the stations that were heard behind them.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use fallible::{AllocError, try_slice};

use super::{HEADER, decapsulate};
use crate::wire::Mac;

/// Peers that frames for everybody go to, at most.
pub const PEERS: usize = 64;
/// Stations that are remembered, at most.
pub const STATIONS: usize = 1024;
/// Microseconds that a station is remembered that sends nothing: as long as Linux does.
pub const AGE: u64 = 300_000_000;
/// Bytes of an Ethernet header, without a tag.
const ETHERNET: usize = 14;
/// The bytes at the beginning of a datagram that [`Bridge::receive`] looks at.
pub const HEAD: usize = HEADER + ETHERNET;
/// Places that a station may have: a look takes no longer.
const WAYS: usize = 4;

/// What a bridge has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that are no VXLAN, or have no whole Ethernet header.
    pub malformed: u64,
    /// Datagrams of other networks.
    pub other_network: u64,
    /// Datagrams of senders that are no peers.
    pub strangers: u64,
}

/// A station that was heard, or that was said to be there.
#[derive(Clone, Copy, Debug)]
struct Station {
    mac: Mac,
    /// Its peer, by place.
    peer: u8,
    /// When it was heard last.
    seen: u64,
    /// It is there for good.
    is_fixed: bool,
}

/// Why a datagram brings no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped;

/// The end of a VXLAN network: a frame for a station that was heard goes to its peer, any other one to all of them, as a switch would do.
/// What a peer sends is not passed on to others.
///
/// Nothing allocates but [`Bridge::new`], and every call takes a bounded time.
///
/// # Invariants
///
/// `peers[..count]` are the peers, and a station's is one of them.
pub struct Bridge {
    vni: u32,
    /// The port of peers that have introduced themselves; `None`: those that there are, are all.
    welcomes: Option<u16>,
    peers: Box<[SocketAddr]>,
    count: usize,
    /// In rows of [`WAYS`]: a station is in the row of its address only.
    stations: Box<[Option<Station>]>,
    counters: Counters,
}

impl Bridge {
    /// The end of the network `vni` with these peers, of which the first [`PEERS`] count. With `welcomes` whoever sends a frame of the
    /// network becomes a peer, at its address and this port.
    ///
    /// # Errors
    ///
    /// [`AllocError`]: its tables do not fit in memory.
    pub fn new(vni: u32, peers: &[SocketAddr], welcomes: Option<u16>) -> Result<Self, AllocError> {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Ok(Self {
            vni,
            welcomes,
            peers: try_slice(PEERS, |index| peers.get(index).copied().unwrap_or(nobody))?,
            count: peers.len().min(PEERS),
            stations: try_slice(STATIONS, |_| None)?,
            counters: Counters::default(),
        })
    }

    /// The network.
    #[must_use]
    pub const fn vni(&self) -> u32 {
        self.vni
    }

    /// The peers that there are now.
    #[must_use]
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers[..self.count]
    }

    /// What was dropped.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// A datagram has come; `head` are its first [`HEAD`] bytes, or all of one that is shorter. Its sender is remembered.
    ///
    /// # Errors
    ///
    /// It brings no frame of this network from a peer. It was counted.
    pub fn receive(&mut self, now: u64, head: &[u8], from: SocketAddr) -> Result<(), Dropped> {
        let inside = decapsulate(head).and_then(|(vni, frame)| {
            let (_, rest) = frame.split_first_chunk::<6>()?;
            let (source, rest) = rest.split_first_chunk::<6>()?;
            (rest.len() >= 2).then_some((vni, *source))
        });
        let Some((vni, source)) = inside else {
            self.counters.malformed += 1;
            return Err(Dropped);
        };
        if vni != self.vni {
            self.counters.other_network += 1;
            return Err(Dropped);
        }
        let Some(peer) = self.peer(from).or_else(|| self.welcome(from)) else {
            self.counters.strangers += 1;
            return Err(Dropped);
        };
        self.learn(now, source, peer, false);
        Ok(())
    }

    /// A station is behind a peer for good, whatever others say. False if it is no station, that is no peer, or there is no room.
    #[must_use]
    pub fn fix(&mut self, station: Mac, peer: SocketAddr) -> bool {
        self.peers().iter().position(|known| *known == peer).is_some_and(|peer| self.learn(0, station, peer, true))
    }

    /// Where a frame to this address goes.
    #[must_use]
    pub fn way(&self, now: u64, to: Mac) -> &[SocketAddr] {
        let row = &self.stations[row_of(to)];
        let found = row.iter().flatten().find(|station| station.mac == to);
        let is_known = |station: &&Station| station.is_fixed || now.saturating_sub(station.seen) < AGE;
        let one = |station: &Station| &self.peers[usize::from(station.peer)..=usize::from(station.peer)];
        found.filter(is_known).map_or_else(|| self.peers(), one)
    }

    /// The peer that a datagram is from. Linux sends from any port, so its address names a peer; its port tells two of one address apart.
    fn peer(&self, from: SocketAddr) -> Option<usize> {
        let exact = self.peers().iter().position(|peer| *peer == from);
        exact.or_else(|| self.peers().iter().position(|peer| peer.ip() == from.ip()))
    }

    fn welcome(&mut self, from: SocketAddr) -> Option<usize> {
        // Both ends of VXLAN have the same port; the one that a datagram comes from is any.
        let port = self.welcomes?;
        let place = self.peers.get_mut(self.count)?;
        *place = SocketAddr::new(from.ip(), port);
        self.count += 1;
        Some(self.count - 1)
    }

    /// Remembers where a station is; one that was not heard for the longest time may make room for it.
    fn learn(&mut self, now: u64, mac: Mac, peer: usize, is_fixed: bool) -> bool {
        let Some(peer) = u8::try_from(peer).ok().filter(|_| mac[0] & 1 == 0) else { return false };
        let row = &mut self.stations[row_of(mac)];
        let own = row.iter().position(|station| station.is_some_and(|station| station.mac == mac));
        let place = own.or_else(|| row.iter().position(Option::is_none)).or_else(|| {
            let learned = row.iter().enumerate().filter_map(|(index, station)| Some((index, station.as_ref()?)));
            let oldest = learned.filter(|(_, station)| !station.is_fixed).min_by_key(|(_, station)| station.seen);
            oldest.map(|(index, _)| index)
        });
        let Some(place) = place.map(|index| &mut row[index]) else { return false };
        if !is_fixed && place.is_some_and(|station| station.is_fixed) {
            return false;
        }
        *place = Some(Station { mac, peer, seen: now, is_fixed });
        true
    }
}

/// The places that a station may have.
fn row_of(mac: Mac) -> core::ops::Range<usize> {
    // FNV-1a: addresses of one vendor differ in few bits.
    let hash = mac.iter().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let row = (hash ^ hash >> 16) as usize % (STATIONS / WAYS);
    row * WAYS..(row + 1) * WAYS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vxlan::header;

    const MINE: Mac = [2, 0, 0, 0, 0, 1];
    const THEIRS: Mac = [2, 0, 0, 0, 0, 9];

    fn peers() -> [SocketAddr; 3] {
        ["192.0.2.1:4789", "192.0.2.2:4789", "[2001:db8::3]:4789"].map(|peer| peer.parse().expect("an address"))
    }

    fn bridge() -> Bridge {
        let bridge = Bridge::new(7, &peers(), None).expect("memory");
        assert_eq!((bridge.vni(), bridge.peers()), (7, &peers()[..]));
        bridge
    }

    fn head(vni: u32, from: Mac) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..HEADER].copy_from_slice(&header(vni));
        head[HEADER..HEADER + 6].copy_from_slice(&MINE);
        head[HEADER + 6..HEADER + 12].copy_from_slice(&from);
        head
    }

    #[test]
    fn a_station_is_where_it_was_heard_until_it_is_forgotten() {
        let mut bridge = bridge();
        assert_eq!(bridge.way(0, THEIRS), peers(), "nobody knows where it is");
        assert_eq!(bridge.receive(10, &head(7, THEIRS), peers()[1]), Ok(()));
        assert_eq!(bridge.way(10 + AGE - 1, THEIRS), [peers()[1]]);
        assert_eq!(bridge.way(10 + AGE, THEIRS), peers());
        assert_eq!(bridge.receive(20, &head(7, THEIRS), peers()[2]), Ok(()), "it has moved");
        assert_eq!(bridge.way(20, THEIRS), [peers()[2]]);
        assert_eq!(bridge.way(20, [0xFF; 6]), peers());
    }

    #[test]
    fn a_station_that_is_fixed_stays_where_it_is() {
        let mut bridge = bridge();
        assert!(bridge.fix(THEIRS, peers()[0]));
        assert_eq!(bridge.receive(0, &head(7, THEIRS), peers()[1]), Ok(()));
        assert_eq!(bridge.way(u64::MAX, THEIRS), [peers()[0]]);
        assert!(!bridge.fix(THEIRS, "192.0.2.9:4789".parse().expect("an address")), "no peer");
        assert!(!bridge.fix([0xFF; 6], peers()[0]), "no station");
    }

    #[test]
    fn what_is_no_frame_of_the_network_from_a_peer_is_counted() {
        let mut bridge = bridge();
        for length in 0..HEAD {
            assert_eq!(bridge.receive(0, &head(7, THEIRS)[..length], peers()[0]), Err(Dropped), "{length} bytes");
        }
        assert_eq!(bridge.receive(0, &head(8, THEIRS), peers()[0]), Err(Dropped));
        let stranger = "192.0.2.9:4789".parse().expect("an address");
        assert_eq!(bridge.receive(0, &head(7, THEIRS), stranger), Err(Dropped));
        let Counters { malformed, other_network, strangers } = bridge.counters();
        assert_eq!((malformed, other_network, strangers), (HEAD as u64, 1, 1));
        assert_eq!(bridge.way(0, THEIRS), peers(), "nothing was learned of it");
    }

    #[test]
    fn the_newest_stations_are_remembered() {
        let mut bridge = bridge();
        let station = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            [2, 0, 0, 0, high, low]
        };
        for number in 0..10_000 {
            assert_eq!(bridge.receive(number.into(), &head(7, station(number)), peers()[1]), Ok(()));
            assert_eq!(bridge.way(number.into(), station(number)), [peers()[1]], "the one that was heard last");
        }
        let known = (0..10_000).filter(|number| bridge.way(10_000, station(*number)).len() == 1).count();
        assert!((STATIONS / 2..=STATIONS).contains(&known), "{known}");
    }

    #[test]
    fn the_stations_of_one_vendor_are_spread_over_all_rows() {
        let mut used = [0_u32; STATIONS / WAYS];
        for number in 0..4096_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let row = row_of([2, 0x4E, 0x44, 0, high, low]);
            assert_eq!((row.len(), row.start % WAYS), (WAYS, 0));
            used[row.start / WAYS] += 1;
        }
        // Sixteen for each row, more or less.
        assert!(used.iter().all(|stations| (4..=48).contains(stations)), "{used:?}");
    }

    #[test]
    fn who_introduces_himself_is_at_the_network_s_port() {
        let mut bridge = Bridge::new(7, &[], Some(4789)).expect("memory");
        assert!(bridge.peers().is_empty());
        assert_eq!(bridge.receive(0, &head(7, THEIRS), "192.0.2.1:50000".parse().expect("an address")), Ok(()));
        assert_eq!(bridge.way(0, THEIRS), [peers()[0]]);
    }
}
