//! Ethernet, with at most one tag of 802.1Q.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// A MAC address.
pub type Mac = [u8; 6];

/// To all stations.
pub const BROADCAST: Mac = [0xFF; 6];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    destination: Mac,
    source: Mac,
    ethertype: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Tag {
    control: U16,
    ethertype: U16,
}

/// `EtherType`s that are spoken here.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// A VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86DD;
}

/// The most bytes of the header.
pub const MOST: usize = size_of::<Raw>() + size_of::<Tag>();

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// To this station.
    pub destination: Mac,
    /// From this station.
    pub source: Mac,
    /// The tag's control information (priority and VLAN), if there is a tag.
    pub tag: Option<u16>,
    /// What is in the frame.
    pub ethertype: u16,
}

impl Ethernet {
    /// The header of `frame`, and what follows it.
    #[must_use]
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = Raw::ref_from_prefix(frame).ok()?;
        let header = |tag, ethertype| Self { destination: raw.destination, source: raw.source, tag, ethertype };
        if raw.ethertype.get() == ethertype::VLAN {
            let (tag, rest) = Tag::ref_from_prefix(rest).ok()?;
            Some((header(Some(tag.control.get()), tag.ethertype.get()), rest))
        } else {
            Some((header(None, raw.ethertype.get()), rest))
        }
    }

    /// Bytes of the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        if self.tag.is_some() { MOST } else { size_of::<Raw>() }
    }

    /// Writes the header to the front of `frame`, which has room for it, and returns its length.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) -> usize {
        let ethertype = if self.tag.is_some() { ethertype::VLAN } else { self.ethertype };
        let raw = Raw { destination: self.destination, source: self.source, ethertype: U16::new(ethertype) };
        frame[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        if let Some(control) = self.tag {
            let tag = Tag { control: U16::new(control), ethertype: U16::new(self.ethertype) };
            frame[size_of::<Raw>()..MOST].copy_from_slice(tag.as_bytes());
        }
        self.length()
    }
}
