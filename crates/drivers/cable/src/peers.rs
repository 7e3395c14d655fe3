//! The other ends of a wire, as the keyword `WirePeer` names them: `192.0.2.1, 02-4E-44-00-00-02=192.0.2.2:4790, [2001:db8::3]:4789`.

use core::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::{FromStr, from_utf8},
};

use arrayvec::ArrayVec;

use crate::{MacAddress, frame::is_station};

/// Peers of one wire, at most.
pub const MAX_PEERS: usize = 16;

/// Bytes of the longest list.
pub const LONGEST: usize = 1024;

/// Bytes of the longest address with its port.
pub const LONGEST_ADDRESS: usize = 64;

/// Bytes of the longest element of a list: a station, an address, and what is around them.
const LONGEST_ELEMENT: usize = 128;

/// One end, or one station behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// A station that is there for good.
    pub station: Option<MacAddress>,
}

/// A list of peers: as many as there were in the text, and all of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(ArrayVec<Peer, MAX_PEERS>);

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no address, or has no port that it can have.
    Address,
    /// It is no hardware address of a station.
    Station,
    /// There are more than [`MAX_PEERS`], or it is too long.
    TooMany,
    /// Addresses of both families.
    Families,
    /// The address of nobody, of everybody, or of a group.
    NotOneHost,
    /// The number is out of its range.
    Range,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Wrong {
    /// The same in words, for an event.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Address => "no IP address with or without a port",
            Self::Station => "no hardware address of a station",
            Self::TooMany => "more than 16 peers",
            Self::Families => "addresses of IPv4 and of IPv6",
            Self::NotOneHost => "not the address of one host",
            Self::Range => "out of its range",
        }
    }
}

/// An address with a port, or without: then it gets this one.
///
/// # Errors
///
/// [`Wrong::Address`].
pub fn address(text: &str, port: u16) -> Result<SocketAddr, Wrong> {
    let without = IpAddr::from_str(text).map(|ip| SocketAddr::new(ip, port));
    let address = without.or_else(|_| SocketAddr::from_str(text)).map_err(|_| Wrong::Address)?;
    if address.port() == 0 { Err(Wrong::Address) } else { Ok(address) }
}

fn station(text: &str) -> Option<MacAddress> {
    let mut mac = [0; 6];
    let mut parts = text.split(['-', ':']);
    for byte in &mut mac {
        let is_hex = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let part = parts.next().filter(is_hex)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    (parts.next().is_none() && is_station(&mac)).then_some(mac)
}

impl Peers {
    /// The peers in a text: separated by commas, each with its station in front if it has one, and behind it its port if that is not `port`.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them. A text with nothing in it is an empty list.
    pub fn parse(text: &str, port: u16) -> Result<Self, Wrong> {
        let mut this = Self::default();
        if !text.trim().is_empty() {
            text.split(',').try_for_each(|element| this.add(element, port))?;
        }
        Ok(this)
    }

    fn add(&mut self, element: &str, port: u16) -> Result<(), Wrong> {
        let (mac, there) = element.split_once('=').map_or((None, element), |(mac, there)| (Some(mac), there));
        let station = mac.map(|mac| station(mac.trim()).ok_or(Wrong::Station)).transpose()?;
        let address = address(there.trim(), port)?;
        let is_host = match address.ip() {
            IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
        };
        if !is_host {
            return Err(Wrong::NotOneHost);
        }
        if self.0.first().is_some_and(|first| first.address.is_ipv4() != address.is_ipv4()) {
            return Err(Wrong::Families);
        }
        self.0.try_push(Peer { address, station }).map_err(|_| Wrong::TooMany)
    }

    /// The same, of UTF-16. One element after the other: the whole text is too much for a stack.
    ///
    /// # Errors
    ///
    /// As [`Peers::parse`], and [`Wrong::TooMany`] for a text of more than [`LONGEST`] characters.
    pub fn parse_wide(text: &[u16], port: u16) -> Result<Self, Wrong> {
        const SPACE: u16 = b' ' as u16;
        const COMMA: u16 = b',' as u16;
        let text = without_zero(text);
        if text.len() > LONGEST {
            return Err(Wrong::TooMany);
        }
        let mut this = Self::default();
        if text.iter().any(|unit| *unit != SPACE) {
            for element in text.split(|unit| *unit == COMMA) {
                let bytes = ascii::<LONGEST_ELEMENT>(element).ok_or(Wrong::Address)?;
                this.add(from_utf8(&bytes).map_err(|_| Wrong::Address)?, port)?;
            }
        }
        Ok(this)
    }

    /// The peers, those of several stations several times.
    #[must_use]
    pub fn all(&self) -> &[Peer] {
        &self.0
    }

    /// Each address once.
    #[must_use]
    pub fn addresses(&self) -> ArrayVec<SocketAddr, MAX_PEERS> {
        let mut addresses = ArrayVec::new();
        for peer in &self.0 {
            if !addresses.contains(&peer.address) {
                addresses.push(peer.address);
            }
        }
        addresses
    }

    /// Returns true if there are none: no wire.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if their addresses are of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.0.first().is_some_and(|peer| peer.address.is_ipv6())
    }
}

/// An address in UTF-16, as [`address`].
///
/// # Errors
///
/// [`Wrong::Address`].
pub fn address_wide(text: &[u16], port: u16) -> Result<SocketAddr, Wrong> {
    let bytes = ascii::<LONGEST_ADDRESS>(without_zero(text)).ok_or(Wrong::Address)?;
    address(from_utf8(&bytes).map_err(|_| Wrong::Address)?.trim(), port)
}

/// The text without the zero at its end, which some tools count.
fn without_zero(text: &[u16]) -> &[u16] {
    text.strip_suffix(&[0]).unwrap_or(text)
}

/// The text in ASCII; `None` if it is not, or has no room in so many bytes.
fn ascii<const N: usize>(text: &[u16]) -> Option<ArrayVec<u8, N>> {
    let mut bytes = ArrayVec::new();
    for unit in text {
        bytes.try_push(u8::try_from(*unit).ok().filter(u8::is_ascii)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, string::String, vec::Vec};

    use super::*;

    fn parse(text: &str) -> Result<Vec<(String, Option<MacAddress>)>, Wrong> {
        let units: Vec<u16> = text.encode_utf16().collect();
        let peers = Peers::parse_wide(&units, 4789)?;
        assert_eq!(Ok(&peers), Peers::parse(text, 4789).as_ref());
        Ok(peers.all().iter().map(|peer| (format!("{}", peer.address), peer.station)).collect())
    }

    #[test]
    fn peers_have_ports_and_stations_if_they_say_so() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert_eq!(parse("192.0.2.1"), Ok([("192.0.2.1:4789".into(), None)].into()));
        let two = [("192.0.2.1:1".into(), None), ("192.0.2.2:4789".into(), Some([2, 0x4E, 0x44, 0, 0, 2]))];
        assert_eq!(parse(" 192.0.2.1:1 , 02-4e-44-00-00-02 = 192.0.2.2"), Ok(two.into()));
        let six = [("[2001:db8::1]:4789".into(), None), ("[2001:db8::2]:7".into(), Some([2; 6]))];
        assert_eq!(parse("2001:db8::1,02:02:02:02:02:02=[2001:db8::2]:7"), Ok(six.into()));
        let with_zero = Peers::parse_wide(&[49, 46, 49, 46, 49, 46, 49, 0], 4789).expect("an address");
        assert_eq!(with_zero.addresses()[..], ["1.1.1.1:4789".parse().expect("an address")]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("host", Wrong::Address),
            ("192.0.2.1,", Wrong::Address),
            ("192.0.2.1:0", Wrong::Address),
            ("192.0.2.1:65536", Wrong::Address),
            ("192.0.2.300", Wrong::Address),
            ("192.0.2.ü", Wrong::Address),
            ("0.0.0.0", Wrong::NotOneHost),
            ("239.1.1.1", Wrong::NotOneHost),
            ("255.255.255.255", Wrong::NotOneHost),
            ("ff02::1", Wrong::NotOneHost),
            ("192.0.2.1,2001:db8::1", Wrong::Families),
            ("02-4E-44-00-00=192.0.2.1", Wrong::Station),
            ("02-4E-44-00-00-01-02=192.0.2.1", Wrong::Station),
            ("+2-4E-44-00-00-01=192.0.2.1", Wrong::Station),
            ("01-00-5E-00-00-01=192.0.2.1", Wrong::Station),
            ("FF-FF-FF-FF-FF-FF=192.0.2.1", Wrong::Station),
        ] {
            assert_eq!(parse(text), Err(wrong), "{text}");
        }
        let list = |count: usize| (0..count).map(|last| format!("192.0.2.{last}")).collect::<Vec<_>>().join(",");
        assert_eq!(parse(&list(MAX_PEERS)).map(|peers| peers.len()), Ok(MAX_PEERS));
        assert_eq!(parse(&list(MAX_PEERS + 1)), Err(Wrong::TooMany));
        assert_eq!(Peers::parse_wide(&[u16::from(b' '); LONGEST + 1], 1), Err(Wrong::TooMany));
        assert_eq!(Peers::parse_wide(&[u16::from(b' '); LONGEST], 1), Ok(Peers::default()));
    }

    #[test]
    fn each_wrong_has_words_of_its_own() {
        let all = [Wrong::Address, Wrong::Station, Wrong::TooMany, Wrong::Families, Wrong::NotOneHost, Wrong::Range];
        let words: std::collections::BTreeSet<_> = all.iter().map(|wrong| format!("{wrong}")).collect();
        assert_eq!(words.len(), all.len());
        assert!(words.iter().all(|words| !words.is_empty()));
    }

    #[test]
    fn a_peer_of_several_stations_is_one_peer() {
        let peers = Peers::parse("02-00-00-00-00-01=192.0.2.1,02-00-00-00-00-02=192.0.2.1,192.0.2.2", 1);
        let peers = peers.expect("a list");
        assert_eq!((peers.all().len(), peers.addresses().len()), (3, 2));
        assert!(!peers.is_ipv6() && !peers.is_empty());
        assert!(Peers::parse("2001:db8::1", 1).is_ok_and(|peers| peers.is_ipv6()));
        let none = Peers::default();
        assert!(none.is_empty() && !none.is_ipv6() && none.addresses().is_empty());
    }
}
