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

/// The Internet checksum of a header: zero for one whose checksum is right.
#[inline]
fn checksum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    // Two foldings leave sixteen bits.
    let [_, _, high, low] = ((folded & 0xFFFF) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}
