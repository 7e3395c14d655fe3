//! Counters and connections of `softndk`.

use std::net::SocketAddr;

use ndkpi::{NDIS_NDK_PERFORMANCE_COUNTERS, SOCKADDR_INET};

use crate::provider_device::{Info, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_INFO};

use super::{Answer, ProviderDriver, Refusal, Transport};

/// The size of `NDIS_NDK_CONNECTIONS` without entries, and of an entry: two addresses and the owner (NDIS-NDK 3).
const HEADER: usize = 16;
const ENTRY: usize = 64;
const ADDRESS: usize = 28;

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

impl<T: Transport> ProviderDriver<T> {
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
        if length != room.len() {
            return Err(Refusal::Nonsense);
        }
        let at = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&room[8 * index..8 * index + 8]);
            u64::from_le_bytes(number)
        };
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

    /// The connections of all adapters.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn connections(&self) -> Result<Vec<Connection>, Refusal> {
        let mut room = vec![0; HEADER + 64 * ENTRY];
        loop {
            let Answer { length, more } = self.transport.control(QUERY_CONNECTIONS, &[], &mut room)?;
            let answer = room.get(..length).filter(|answer| answer.len() >= HEADER).ok_or(Refusal::Nonsense)?;
            if !more {
                return answer[HEADER..]
                    .chunks(ENTRY)
                    .map(|entry| connection(entry).ok_or(Refusal::Nonsense))
                    .collect();
            }
            let count = u32::from_le_bytes([answer[8], answer[9], answer[10], answer[11]]) as usize;
            // Leave room for connections that appear meanwhile.
            room.resize(HEADER + (count + count / 8 + 8).max(room.len() / ENTRY) * ENTRY, 0);
        }
    }
}

/// An entry of the list.
fn connection(entry: &[u8]) -> Option<Connection> {
    let owner = entry.get(2 * ADDRESS..ENTRY)?;
    let process = u32::from_le_bytes([owner[4], owner[5], owner[6], owner[7]]);
    Some(Connection {
        local: address(&entry[..ADDRESS])?,
        remote: address(&entry[ADDRESS..2 * ADDRESS])?,
        process: (owner[0] != 0).then_some(process),
    })
}

/// Parses an address in Windows' format.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let mut place = SOCKADDR_INET::UNSPECIFIED;
    let family = u16::from_le_bytes([bytes[0], bytes[1]]);
    place.Ipv6.sin6_family = family;
    place.Ipv6.sin6_port = u16::from_ne_bytes([bytes[2], bytes[3]]);
    place.Ipv6.sin6_flowinfo = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    place.Ipv6.sin6_addr.Byte.copy_from_slice(&bytes[8..24]);
    place.Ipv6.sin6_scope_id = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    place.to_socket_addr()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{Answer, Connection, ENTRY, HEADER, ProviderDriver, Refusal, Transport};

    /// A driver with this many connections.
    struct Stand {
        connections: u8,
        length: usize,
        asked: Cell<u32>,
    }

    impl Transport for Stand {
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
