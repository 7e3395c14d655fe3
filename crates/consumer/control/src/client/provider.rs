//! Counters and connections of `softndk`.

use std::net::SocketAddr;

use ndkpi::{NDIS_NDK_PERFORMANCE_COUNTERS, SOCKADDR_INET};
use zerocopy::{
    FromBytes, Immutable, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use crate::provider_device::{
    Info, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_INFO, QUERY_WIRES, WIRE_PEERS, Wire, Wires,
};

use super::{Answer, DeviceControl, ProviderDriver, Refusal};

/// `NDIS_NDK_PERFORMANCE_COUNTERS`.
type Numbers = [U64; size_of::<NDIS_NDK_PERFORMANCE_COUNTERS>() / size_of::<U64>()];

/// `NDIS_NDK_CONNECTIONS` without its entries (NDIS-NDK 3).
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    _object_header: [u8; 8],
    count: U32,
    _padding: [u8; 4],
}

/// An address in Windows' format. All but the family are as the network has them.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Address {
    family: U16,
    port: [u8; 2],
    flow_info: [u8; 4],
    ip: [u8; 16],
    scope: [u8; 4],
}

/// An entry.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Entry {
    local: Address,
    remote: Address,
    is_of_user: u8,
    _padding: [u8; 3],
    process: U32,
}

const HEADER: usize = size_of::<Head>();
const ENTRY: usize = size_of::<Entry>();
/// Wires that there is room for at once.
const WIRES: usize = 8;
/// Bytes of the longest answer that is believed: a driver that says more must not take all of a program's memory.
const LONGEST: usize = 64 << 20;

/// A connection of the driver's adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The process that owns it; `None` for the kernel.
    pub process: Option<u32>,
}

impl<T: DeviceControl> ProviderDriver<T> {
    /// The driver's version and load.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn info(&self) -> Result<Info, Refusal> {
        let mut room = [0; Info::BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_INFO, &[], &mut room)?;
        room.get(..length).and_then(Info::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// The counters, each the sum over all adapters.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn counters(&self) -> Result<NDIS_NDK_PERFORMANCE_COUNTERS, Refusal> {
        let mut room = [0; size_of::<NDIS_NDK_PERFORMANCE_COUNTERS>()];
        let Answer { length, .. } = self.transport.control(QUERY_COUNTERS, &[], &mut room)?;
        let numbers = room.get(..length).and_then(|answer| Numbers::ref_from_bytes(answer).ok());
        let numbers = numbers.ok_or(Refusal::Nonsense)?;
        let at = |index: usize| numbers[index].get();
        Ok(NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: at(0),
            Accept: at(1),
            ConnectFailure: at(2),
            ConnectionError: at(3),
            ActiveConnection: at(4),
            CQError: at(25),
            RDMAInOctets: at(26),
            RDMAOutOctets: at(27),
            RDMAInFrames: at(28),
            RDMAOutFrames: at(29),
            ..NDIS_NDK_PERFORMANCE_COUNTERS::default()
        })
    }

    /// The wires of all adapters that have one. Of a driver that is too old to know the question, none.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn wires(&self) -> Result<Vec<Wire>, Refusal> {
        let enough = |answer: &[u8]| {
            let head = Wires::from_bytes(answer.get(..Wires::BYTES)?)?;
            (head.count as usize).checked_mul(head.bytes as usize)?.checked_add(Wires::BYTES)
        };
        let answer = match self.whole(QUERY_WIRES, Wires::BYTES + WIRES * Wire::BYTES, enough) {
            Err(Refusal::NotSupported) => return Ok(Vec::new()),
            answer => answer?,
        };
        let (head, wires) = answer.split_at_checked(Wires::BYTES).ok_or(Refusal::Nonsense)?;
        let head = Wires::from_bytes(head).ok_or(Refusal::Nonsense)?;
        let (count, bytes) = (head.count as usize, head.bytes as usize);
        if bytes < Wire::BYTES || Some(wires.len()) != count.checked_mul(bytes) {
            return Err(Refusal::Nonsense);
        }
        // What a later driver has at the end is not looked at.
        let wires = wires.chunks_exact(bytes).map(|wire| Wire::from_bytes(&wire[..Wire::BYTES]));
        let wires = wires.map(|wire| wire.filter(|wire| wire.peer_count as usize <= WIRE_PEERS));
        wires.map(|wire| wire.ok_or(Refusal::Nonsense)).collect()
    }

    /// The connections of all adapters.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn connections(&self) -> Result<Vec<Connection>, Refusal> {
        let enough = |answer: &[u8]| {
            let (head, _) = Head::ref_from_prefix(answer).ok()?;
            (head.count.get() as usize).checked_mul(ENTRY)?.checked_add(HEADER)
        };
        let answer = self.whole(QUERY_CONNECTIONS, HEADER + 64 * ENTRY, enough)?;
        let (_, entries) = Head::ref_from_prefix(&answer).map_err(|_| Refusal::Nonsense)?;
        let entries = <[Entry]>::ref_from_bytes(entries).map_err(|_| Refusal::Nonsense)?;
        entries.iter().map(|entry| connection(entry).ok_or(Refusal::Nonsense)).collect()
    }

    /// The answer to `code`, in room for `first` bytes that grows until all of it fits. `enough` says how many do, from the part of one
    /// that does not fit.
    pub(super) fn whole(
        &self,
        code: u32,
        first: usize,
        enough: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Vec<u8>, Refusal> {
        let mut room = vec![0; first];
        loop {
            let Answer { length, more } = self.transport.control(code, &[], &mut room)?;
            let answer = room.get(..length).ok_or(Refusal::Nonsense)?;
            if !more {
                room.truncate(length);
                return Ok(room);
            }
            // What appears meanwhile has room too.
            let wanted = enough(answer).ok_or(Refusal::Nonsense)?.max(2 * room.len());
            if wanted > LONGEST {
                return Err(Refusal::Nonsense);
            }
            room.resize(wanted + wanted / 8, 0);
        }
    }
}

/// An entry of the list.
fn connection(entry: &Entry) -> Option<Connection> {
    Some(Connection {
        local: address(&entry.local)?,
        remote: address(&entry.remote)?,
        process: (entry.is_of_user != 0).then_some(entry.process.get()),
    })
}

impl Wire {
    /// `WireLocal` with `WirePort`; `None` if that is no address.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        address(Address::ref_from_bytes(&self.local).ok()?)
    }

    /// The peers of `WirePeer`; one that is no address is left out.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        let peers = self.peers.iter().take(self.peer_count as usize);
        peers.filter_map(|peer| address(Address::ref_from_bytes(peer).ok()?))
    }
}

/// Parses an address in Windows' format.
fn address(sent: &Address) -> Option<SocketAddr> {
    let mut place = SOCKADDR_INET::UNSPECIFIED;
    place.Ipv6.sin6_family = sent.family.get();
    place.Ipv6.sin6_port = u16::from_ne_bytes(sent.port);
    place.Ipv6.sin6_flowinfo = u32::from_ne_bytes(sent.flow_info);
    place.Ipv6.sin6_addr.Byte = sent.ip;
    place.Ipv6.sin6_scope_id = u32::from_ne_bytes(sent.scope);
    place.to_socket_addr()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{
        Answer, Connection, DeviceControl, ENTRY, HEADER, ProviderDriver, QUERY_WIRES, Refusal, WIRE_PEERS, Wire, Wires,
    };

    /// A driver with this many connections.
    struct Stand {
        connections: u8,
        length: usize,
        asked: Cell<u32>,
    }

    impl DeviceControl for Stand {
        fn control(&self, _: u32, _: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            self.asked.set(self.asked.get() + 1);
            if output.len() == 240 {
                for (index, place) in output.chunks_exact_mut(8).enumerate() {
                    place[0] = u8::try_from(index).expect("thirty");
                }
                return Ok(Answer { length: self.length, more: false });
            }
            let mut bytes = vec![0; HEADER];
            bytes[8] = self.connections;
            for number in 0..self.connections {
                let mut entry = [0_u8; ENTRY];
                // AF_INET, port 4791, and an address that ends with the number.
                entry[..8].copy_from_slice(&[2, 0, 0x12, 0xB7, 192, 0, 2, number]);
                entry[28..36].copy_from_slice(&[2, 0, 0x12, 0xB7, 192, 0, 2, 200]);
                entry[56] = number % 2;
                entry[60] = number;
                bytes.extend(entry);
            }
            let length = bytes.len().min(output.len());
            output[..length].copy_from_slice(&bytes[..length]);
            Ok(Answer { length, more: length < bytes.len() })
        }
    }

    fn driver(connections: u8, length: usize) -> ProviderDriver<Stand> {
        ProviderDriver::new(Stand { connections, length, asked: Cell::new(0) })
    }

    #[test]
    fn counters_are_the_numbers_at_their_places() {
        let counters = driver(0, 240).counters().expect("counters");
        let first = (counters.Connect, counters.Accept, counters.ConnectFailure, counters.ConnectionError);
        assert_eq!((first, counters.ActiveConnection, counters.CQError), ((0, 1, 2, 3), 4, 25));
        assert_eq!((counters.RDMAInOctets, counters.RDMAOutFrames), (26, 29));
        assert_eq!(driver(0, 239).counters(), Err(Refusal::Nonsense));
    }

    /// A driver with so many wires, each of which has more bytes than a [`Wire`].
    struct Wired {
        count: u32,
        more: usize,
        peers: u32,
    }

    impl DeviceControl for Wired {
        fn control(&self, code: u32, _: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            if code != QUERY_WIRES || self.count == u32::MAX {
                return Err(Refusal::NotSupported);
            }
            let size = Wire::BYTES + self.more;
            let bytes = u32::try_from(size).expect("a small structure");
            let mut answer = Wires { count: self.count, bytes }.to_bytes().to_vec();
            for adapter in 0..self.count {
                let mut wire = Wire { adapter, vni: 42, peer_count: self.peers, timeouts: 7, ..Wire::default() };
                wire.peers[0][..8].copy_from_slice(&[2, 0, 0x12, 0xB5, 192, 0, 2, 1]);
                answer.extend(wire.to_bytes());
                answer.extend(vec![0xFF; self.more]);
            }
            let length = answer.len().min(output.len());
            output[..length].copy_from_slice(&answer[..length]);
            Ok(Answer { length, more: length < answer.len() })
        }
    }

    #[test]
    fn wires_are_read_of_this_driver_and_of_a_later_one() {
        for (count, more) in [(0, 0), (1, 0), (30, 0), (30, 24)] {
            let wires = ProviderDriver::new(Wired { count, more, peers: 1 }).wires().expect("wires");
            assert_eq!(wires.len(), count as usize);
            let expected = "192.0.2.1:4789".parse().expect("an address");
            for (number, wire) in (0..).zip(&wires) {
                assert_eq!((wire.adapter, wire.vni, wire.timeouts, wire.local()), (number, 42, 7, None));
                assert_eq!(wire.peers().collect::<Vec<_>>(), [expected]);
            }
        }
    }

    #[test]
    fn a_driver_without_wires_has_none_and_one_that_speaks_of_too_many_peers_is_not_believed() {
        let of = |count, peers| ProviderDriver::new(Wired { count, more: 0, peers }).wires();
        assert_eq!(of(u32::MAX, 1), Ok(Vec::new()));
        assert_eq!(of(1, u32::try_from(WIRE_PEERS).expect("few") + 1), Err(Refusal::Nonsense));
    }

    /// A driver whose answers never fit.
    struct Endless(u32);

    impl DeviceControl for Endless {
        fn control(&self, _: u32, _: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            output.fill(0);
            // The count of connections, and both numbers of wires.
            output[..4].copy_from_slice(&self.0.to_le_bytes());
            output[4..8].copy_from_slice(&self.0.to_le_bytes());
            output[8..12].copy_from_slice(&self.0.to_le_bytes());
            Ok(Answer { length: output.len(), more: true })
        }
    }

    #[test]
    fn an_answer_that_never_fits_is_not_believed() {
        for count in [0, 1, u32::MAX] {
            assert_eq!(ProviderDriver::new(Endless(count)).wires(), Err(Refusal::Nonsense));
            assert_eq!(ProviderDriver::new(Endless(count)).connections(), Err(Refusal::Nonsense));
        }
    }

    #[test]
    fn connections_are_asked_for_until_all_fit() {
        let driver = driver(200, 0);
        let all = driver.connections().expect("connections");
        assert_eq!((all.len(), driver.transport.asked.get()), (200, 2));
        let expected = Connection {
            local: "192.0.2.3:4791".parse().expect("an address"),
            remote: "192.0.2.200:4791".parse().expect("an address"),
            process: Some(3),
        };
        assert_eq!((all[3], all[4].process), (expected, None));
    }
}
