//! IPv4 without options and IPv6 without extension headers (RoCEv2 1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use super::ethernet::ethertype;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV4 {
    version_and_length: u8,
    traffic_class: u8,
    total_length: U16,
    identification: U16,
    /// Bit 14 "do not fragment", bit 13 "more fragments", then the offset.
    fragment: U16,
    time_to_live: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV6 {
    /// Version 4 bits, traffic class 8, flow label 20.
    version_class_flow: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

/// Bytes of an IPv4 header.
pub const V4: usize = size_of::<RawV4>();
/// Bytes of an IPv6 header.
pub const V6: usize = size_of::<RawV6>();

/// Version 4, five words.
const V4_FIRST_BYTE: u8 = 0x45;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const FLOW_LABEL: u32 = 0xF_FFFF;

/// Protocols that are spoken here.
pub mod protocol {
    /// UDP.
    pub const UDP: u8 = 17;
    /// `ICMPv6`, for neighbour discovery.
    pub const ICMPV6: u8 = 58;
}

/// What an IP header says. Its two addresses are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// TOS of IPv4.
    pub traffic_class: u8,
    /// TTL of IPv4.
    pub hop_limit: u8,
    /// What is in the packet.
    pub protocol: u8,
    /// IPv4's identification, IPv6's flow label.
    pub label: u32,
}

impl Ip {
    /// The header at the front of `bytes`, and its payload without what an Ethernet put behind it.
    ///
    /// `None` if it is malformed, a fragment, or has options.
    #[must_use]
    #[inline]
    pub fn parse(kind: u16, bytes: &[u8]) -> Option<(Self, &[u8])> {
        match kind {
            ethertype::IPV4 => Self::parse_v4(bytes),
            ethertype::IPV6 => Self::parse_v6(bytes),
            _ => None,
        }
    }

    #[inline]
    fn parse_v4(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = RawV4::ref_from_prefix(bytes).ok()?;
        let whole = raw.fragment.get() & !DO_NOT_FRAGMENT == 0;
        if raw.version_and_length != V4_FIRST_BYTE || !whole || checksum(raw.as_bytes()) != 0 {
            return None;
        }
        let payload = rest.get(..usize::from(raw.total_length.get()).checked_sub(V4)?)?;
        let header = Self {
            source: Ipv4Addr::from(raw.source).into(),
            destination: Ipv4Addr::from(raw.destination).into(),
            traffic_class: raw.traffic_class,
            hop_limit: raw.time_to_live,
            protocol: raw.protocol,
            label: raw.identification.get().into(),
        };
        Some((header, payload))
    }

    #[inline]
    fn parse_v6(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = RawV6::ref_from_prefix(bytes).ok()?;
        let first = raw.version_class_flow.get();
        if first >> 28 != 6 {
            return None;
        }
        let payload = rest.get(..usize::from(raw.payload_length.get()))?;
        let header = Self {
            source: Ipv6Addr::from(raw.source).into(),
            destination: Ipv6Addr::from(raw.destination).into(),
            traffic_class: (first >> 20).to_be_bytes()[3],
            hop_limit: raw.hop_limit,
            protocol: raw.next_header,
            label: first & FLOW_LABEL,
        };
        Some((header, payload))
    }

    /// The `EtherType` of the header.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        if self.source.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 }
    }

    /// Bytes of the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        if self.source.is_ipv4() { V4 } else { V6 }
    }

    /// Writes the header to the front of `bytes`, which has room for it, for `payload` bytes. Returns its length.
    ///
    /// # Panics
    ///
    /// If the payload has 64 KiB or more, or the addresses are of two families.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8], payload: usize) -> usize {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut raw = RawV4 {
                    version_and_length: V4_FIRST_BYTE,
                    traffic_class: self.traffic_class,
                    total_length: U16::new(u16::try_from(V4 + payload).expect("a packet of at most 64 KiB")),
                    identification: U16::new((self.label & 0xFFFF) as u16),
                    fragment: U16::new(DO_NOT_FRAGMENT),
                    time_to_live: self.hop_limit,
                    protocol: self.protocol,
                    checksum: U16::ZERO,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                raw.checksum = U16::new(checksum(raw.as_bytes()));
                bytes[..V4].copy_from_slice(raw.as_bytes());
                V4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let raw = RawV6 {
                    version_class_flow: U32::new(
                        6 << 28 | u32::from(self.traffic_class) << 20 | self.label & FLOW_LABEL,
                    ),
                    payload_length: U16::new(u16::try_from(payload).expect("a packet of at most 64 KiB")),
                    next_header: self.protocol,
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                bytes[..V6].copy_from_slice(raw.as_bytes());
                V6
            }
            _ => panic!("two families of addresses"),
        }
    }
}

/// The Internet checksum of a header, which has whole words: zero for one whose checksum is right.
#[must_use]
#[inline]
pub fn checksum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    // Two foldings leave sixteen bits.
    let [_, _, high, low] = ((folded & 0xFFFF) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4_HEADER: Ip = Ip {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        traffic_class: 0xA5,
        hop_limit: 64,
        protocol: protocol::UDP,
        label: 0x5678,
    };

    /// A header without a payload in which bytes have been changed, and whose checksum is right.
    fn changed(change: impl FnOnce(&mut [u8; V4])) -> [u8; V4] {
        let mut bytes = [0; V4];
        assert_eq!(V4_HEADER.emit(&mut bytes, 0), V4);
        change(&mut bytes);
        bytes[10..12].fill(0);
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn ipv4_is_taken_whole_and_without_options() {
        let parse = |bytes: &[u8; V4]| Ip::parse(ethertype::IPV4, bytes).map(|(header, _)| header);
        assert_eq!(parse(&changed(|_| ())), Some(V4_HEADER));
        assert_eq!(parse(&changed(|bytes| bytes[6] = 0)), Some(V4_HEADER), "it might be cut, and was not");
        assert_eq!(parse(&changed(|bytes| bytes[0] = 0x46)), None, "options");
        assert_eq!(parse(&changed(|bytes| bytes[0] = 0x65)), None, "another version");
        assert_eq!(parse(&changed(|bytes| bytes[6] = 0x20)), None, "more fragments");
        assert_eq!(parse(&changed(|bytes| bytes[7] = 1)), None, "not the first fragment");
        let mut wrong = changed(|_| ());
        wrong[11] ^= 1;
        assert_eq!(parse(&wrong), None, "the checksum");
    }

    #[test]
    fn ipv6_has_its_class_and_label_beside_the_version() {
        let [source, destination] = [1, 2].map(|last| IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, last]));
        let header = Ip { source, destination, label: 0x1_2345, ..V4_HEADER };
        let mut bytes = [0; V6];
        assert_eq!(header.emit(&mut bytes, 0), V6);
        assert_eq!(bytes[..8], [0x6A, 0x51, 0x23, 0x45, 0, 0, 17, 64]);
        assert_eq!(Ip::parse(ethertype::IPV6, &bytes), Some((header, &[][..])));
        bytes[0] = 0x4A;
        assert_eq!(Ip::parse(ethertype::IPV6, &bytes), None, "another version");
    }

    #[test]
    #[should_panic(expected = "two families")]
    fn a_header_has_addresses_of_one_family() {
        let _ = Ip { source: Ipv6Addr::LOCALHOST.into(), ..V4_HEADER }.emit(&mut [0; V6], 0);
    }

    #[test]
    fn what_a_folding_carries_is_folded_again() {
        assert_eq!(checksum(&[0; 20]), 0xFFFF);
        // 0xFFFF four times is 0x3FFFC: 0xFFFC and 3.
        assert_eq!(checksum(&[0xFF; 8]), 0);
        // 0xFFFF and 1 and 0xFFFF and 2 are 0x20001: 3. With 0xFFFD more it is 0x2FFFE: 0x10000, and that is 1.
        assert_eq!(checksum(&[0xFF, 0xFF, 0, 1, 0xFF, 0xFF, 0, 2]), !3);
        assert_eq!(checksum(&[0xFF, 0xFF, 0, 1, 0xFF, 0xFF, 0, 2, 0xFF, 0xFD]), !1);
    }
}
