//! Who has an address: ARP and neighbour discovery (RoCEv2 8.8).
//!
//! Peers resolve this side's addresses before they answer, so they must be answered. Entries exist only for addresses that this side
//! asked for: nobody else can fill the cache.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fallible::{AllocError, try_slice};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Packet, Icmpv6Repr, NdiscNeighborFlags, NdiscRepr,
        RawHardwareAddress,
    },
};

use crate::{
    bounded::Bounded,
    interface::Interface,
    wire::{
        Ethernet, Ip, Mac,
        ethernet::{BROADCAST, ethertype},
        ip,
    },
};

/// Microseconds between two questions.
const AGAIN: u64 = 1_000_000;
/// How often is asked.
const TRIES: u8 = 3;
/// How long an answer holds, in microseconds.
const VALID: u64 = 60_000_000;
/// Questions of others that wait for an answer.
const QUESTIONS: usize = 16;
/// Neighbour discovery is between neighbours: no router has passed it on.
const HOP_LIMIT: u8 = 255;

/// What is known about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It is this station's.
    Known(Mac),
    /// It was asked for.
    Asked,
    /// Nobody has answered.
    Silent,
    /// There is no room to ask; ask again later.
    NoRoom,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: IpAddr,
    state: State,
    /// When the state ends.
    until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be asked for, after so many times.
    Ask(u8),
    Asked(u8),
    Known(Mac),
    Silent,
}

/// An answer to give.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// The interface's address that was asked for.
    ours: IpAddr,
    /// Who asked.
    asker: IpAddr,
    mac: Mac,
}

/// The cache of neighbours, and the packets that fill it.
pub struct Neighbours {
    entries: Box<[Option<Entry>]>,
    answers: Bounded<Answer>,
    /// When the first state ends.
    wake: Option<u64>,
    /// Somebody is to be asked for.
    asks: bool,
}

impl Neighbours {
    pub fn new(entries: usize) -> Result<Self, AllocError> {
        let entries = try_slice(entries, |_| None)?;
        Ok(Self { entries, answers: Bounded::new(QUESTIONS)?, wake: None, asks: false })
    }

    /// Entries have changed. They rarely do; what they say is asked for each frame.
    fn note(&mut self) {
        let entries = || self.entries.iter().flatten();
        self.wake = entries().map(|entry| entry.until).min();
        self.asks = entries().any(|entry| matches!(entry.state, State::Ask(_)));
    }

    /// Who has `address`. It is asked for if that is not known.
    pub fn resolve(&mut self, now: u64, address: IpAddr) -> Neighbour {
        if let Some(entry) = self.entries.iter().flatten().find(|entry| entry.address == address) {
            return match entry.state {
                State::Known(mac) => Neighbour::Known(mac),
                State::Ask(_) | State::Asked(_) => Neighbour::Asked,
                State::Silent => Neighbour::Silent,
            };
        }
        let free = self.entries.iter().position(Option::is_none);
        let oldest = || {
            let known = self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
            let known = known.filter(|(_, entry)| !matches!(entry.state, State::Ask(_) | State::Asked(_)));
            known.min_by_key(|(_, entry)| entry.until).map(|(index, _)| index)
        };
        match free.or_else(oldest) {
            Some(place) => {
                self.entries[place] = Some(Entry { address, state: State::Ask(0), until: now });
                self.note();
                Neighbour::Asked
            }
            None => Neighbour::NoRoom,
        }
    }

    /// The station of `address` does not answer: it may be another one by now, and nothing but the link protects what it said. It is
    /// asked for again, unless it has spoken within the last second.
    pub fn doubt(&mut self, now: u64, address: IpAddr) {
        let Some(entry) = self.entries.iter_mut().flatten().find(|entry| entry.address == address) else {
            self.resolve(now, address);
            return;
        };
        // Known since `until - VALID`.
        if matches!(entry.state, State::Known(_)) && now + VALID >= entry.until + AGAIN {
            (entry.state, entry.until) = (State::Ask(0), now);
            self.note();
        }
    }

    /// The station that has `address`, if that is known. It is not asked for.
    pub fn known(&self, address: IpAddr) -> Option<Mac> {
        self.entries.iter().flatten().find(|entry| entry.address == address).and_then(|entry| match entry.state {
            State::Known(mac) => Some(mac),
            _ => None,
        })
    }

    /// When [`tick`](Self::tick) must be called.
    pub const fn deadline(&self) -> Option<u64> {
        self.wake
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        for place in &mut self.entries {
            let Some(entry) = place.as_mut().filter(|entry| entry.until <= now) else { continue };
            match entry.state {
                State::Ask(_) => {}
                State::Asked(TRIES..) => (entry.state, entry.until) = (State::Silent, now + AGAIN),
                State::Asked(tries) => entry.state = State::Ask(tries),
                State::Known(_) | State::Silent => *place = None,
            }
        }
        self.note();
    }

    /// `address` says that it is this station's.
    fn learn(&mut self, now: u64, address: IpAddr, mac: Mac) {
        // A station of many is none.
        if mac[0] & 1 != 0 {
            return;
        }
        if let Some(entry) = self.entries.iter_mut().flatten().find(|entry| entry.address == address) {
            (entry.state, entry.until) = (State::Known(mac), now + VALID);
            self.note();
        }
    }

    /// A packet of ARP.
    pub fn receive_arp(&mut self, now: u64, interface: &Interface, bytes: &[u8]) {
        let Ok(packet) = ArpPacket::new_checked(bytes) else { return };
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = ArpRepr::parse(&packet)
        else {
            return;
        };
        let (asker, ours, mac) = (source_protocol_addr.into(), target_protocol_addr.into(), source_hardware_addr.0);
        if !interface.has(ours) {
            return;
        }
        self.learn(now, asker, mac);
        if operation == ArpOperation::Request {
            // If too many wait, they will ask again.
            let _ = self.answers.push(Answer { ours, asker, mac });
        }
    }

    /// A packet of `ICMPv6`.
    pub fn receive_icmp(&mut self, now: u64, interface: &Interface, ethernet: &Ethernet, ip: &Ip, bytes: &[u8]) {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (ip.source, ip.destination) else { return };
        let Ok(packet) = Icmpv6Packet::new_checked(bytes) else { return };
        let repr = Icmpv6Repr::parse(&source, &destination, &packet, &ChecksumCapabilities::default());
        let Ok(Icmpv6Repr::Ndisc(discovery)) = repr else { return };
        let station = |address: Option<RawHardwareAddress>| {
            address.and_then(|address| Mac::try_from(address.as_bytes()).ok()).unwrap_or(ethernet.source)
        };
        match discovery {
            _ if ip.hop_limit != HOP_LIMIT => {}
            NdiscRepr::NeighborSolicit { target_addr, lladdr } if interface.has(target_addr.into()) => {
                // Without a source it is a check for duplicates, which only this side's answer to all could serve.
                if source.is_unspecified() {
                    return;
                }
                let mac = station(lladdr);
                self.learn(now, source.into(), mac);
                let _ = self.answers.push(Answer { ours: target_addr.into(), asker: source.into(), mac });
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } => {
                self.learn(now, target_addr.into(), station(lladdr));
            }
            _ => {}
        }
    }

    /// Returns true if [`transmit`](Self::transmit) has a packet.
    pub fn may_transmit(&self) -> bool {
        self.asks || !self.answers.is_empty()
    }

    /// The next packet, if there is one.
    pub fn transmit(&mut self, now: u64, interface: &Interface, frame: &mut [u8]) -> Option<usize> {
        while let Some(Answer { ours, asker, mac }) = self.answers.pop() {
            match (ours, asker) {
                (IpAddr::V4(ours), IpAddr::V4(asker)) => {
                    return Some(arp(interface, ArpOperation::Reply, ours, (mac, mac), asker, frame));
                }
                (IpAddr::V6(ours), IpAddr::V6(asker)) => {
                    let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
                    let lladdr = Some(EthernetAddress(interface.mac).into());
                    let advertisement = NdiscRepr::NeighborAdvert { flags, target_addr: ours, lladdr };
                    return Some(discovery(interface, advertisement, ours, (mac, asker), frame));
                }
                _ => {}
            }
        }
        while self.asks {
            let asks = self.entries.iter_mut().flatten().find_map(|entry| match entry.state {
                State::Ask(tries) => Some((entry, tries)),
                _ => None,
            });
            let Some((entry, tries)) = asks else { break };
            (entry.state, entry.until) = (State::Asked(tries + 1), now + AGAIN);
            let address = entry.address;
            self.note();
            match (interface.address_beside(address), address) {
                (Some(IpAddr::V4(ours)), IpAddr::V4(other)) => {
                    return Some(arp(interface, ArpOperation::Request, ours, (BROADCAST, [0; 6]), other, frame));
                }
                (Some(IpAddr::V6(ours)), IpAddr::V6(other)) => {
                    let lladdr = Some(EthernetAddress(interface.mac).into());
                    let question = NdiscRepr::NeighborSolicit { target_addr: other, lladdr };
                    return Some(discovery(interface, question, ours, solicited_node(other), frame));
                }
                _ => {}
            }
        }
        None
    }
}

/// The group of all stations whose addresses end like this one.
fn solicited_node(address: Ipv6Addr) -> (Mac, Ipv6Addr) {
    let [.., a, b, c] = address.octets();
    let group = Ipv6Addr::from([0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, a, b, c]);
    ([0x33, 0x33, 0xFF, a, b, c], group)
}

/// Writes a frame of ARP from `ours`, to the station of the frame, for a target.
fn arp(
    interface: &Interface,
    operation: ArpOperation,
    ours: Ipv4Addr,
    (station, target): (Mac, Mac),
    other: Ipv4Addr,
    frame: &mut [u8],
) -> usize {
    let ethernet =
        Ethernet { destination: station, source: interface.mac, tag: interface.tag, ethertype: ethertype::ARP };
    let start = ethernet.emit(frame);
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(interface.mac),
        source_protocol_addr: ours,
        target_hardware_addr: EthernetAddress(target),
        target_protocol_addr: other,
    };
    let end = start + repr.buffer_len();
    repr.emit(&mut ArpPacket::new_unchecked(&mut frame[start..end]));
    end
}

/// Writes a frame of neighbour discovery.
fn discovery(
    interface: &Interface,
    message: NdiscRepr<'_>,
    ours: Ipv6Addr,
    (station, other): (Mac, Ipv6Addr),
    frame: &mut [u8],
) -> usize {
    let ethernet =
        Ethernet { destination: station, source: interface.mac, tag: interface.tag, ethertype: ethertype::IPV6 };
    let header = Ip {
        source: ours.into(),
        destination: other.into(),
        traffic_class: 0,
        hop_limit: HOP_LIMIT,
        protocol: ip::protocol::ICMPV6,
        label: 0,
    };
    let repr = Icmpv6Repr::Ndisc(message);
    let network = ethernet.emit(frame);
    let start = network + header.emit(&mut frame[network..], repr.buffer_len());
    let end = start + repr.buffer_len();
    let mut packet = Icmpv6Packet::new_unchecked(&mut frame[start..end]);
    repr.emit(&ours, &other, &mut packet, &ChecksumCapabilities::default());
    end
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::interface::Network;

    /// A station with the addresses `10.0.0.last` and `fd00::last`.
    struct Station {
        interface: Interface,
        neighbours: Neighbours,
    }

    fn v4(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn v6(last: u8) -> IpAddr {
        [0xFD00, 0, 0, 0, 0, 0, 0, last.into()].into()
    }

    fn mac(last: u8) -> Mac {
        [2, 0, 0, 0, 0, last]
    }

    impl Station {
        fn new(last: u8) -> Self {
            let networks = [Network { address: v4(last), prefix: 24 }, Network { address: v6(last), prefix: 64 }];
            let interface = Interface::new(mac(last), None, 1, 1500, &networks, [None; 2]).expect("memory");
            Self { interface, neighbours: Neighbours::new(2).expect("memory") }
        }

        /// All that it has to send.
        fn send(&mut self, now: u64) -> Vec<Vec<u8>> {
            let mut frames = Vec::new();
            let mut frame = [0; 128];
            while self.neighbours.may_transmit() {
                let length = self.neighbours.transmit(now, &self.interface, &mut frame).expect("what it may send");
                frames.push(frame[..length].to_vec());
            }
            assert_eq!(self.neighbours.transmit(now, &self.interface, &mut frame), None);
            frames
        }

        /// A frame comes in, with this hop limit if it is of IPv6.
        fn receive_at(&mut self, now: u64, frame: &[u8], hop_limit: u8) {
            let (ethernet, rest) = Ethernet::parse(frame).expect("a frame");
            if ethernet.ethertype == ethertype::ARP {
                self.neighbours.receive_arp(now, &self.interface, rest);
            } else {
                let (ip, rest) = Ip::parse(ethernet.ethertype, rest).expect("a packet");
                assert_eq!(ip.hop_limit, HOP_LIMIT);
                self.neighbours.receive_icmp(now, &self.interface, &ethernet, &Ip { hop_limit, ..ip }, rest);
            }
        }

        fn receive(&mut self, now: u64, frame: &[u8]) {
            self.receive_at(now, frame, HOP_LIMIT);
        }

        /// Asks for an address of another station, which answers.
        fn ask(&mut self, now: u64, other: &mut Self, address: IpAddr) {
            assert_eq!(self.neighbours.resolve(now, address), Neighbour::Asked);
            for question in self.send(now) {
                other.receive(now, &question);
            }
            for answer in other.send(now) {
                self.receive(now, &answer);
            }
        }
    }

    #[test]
    fn a_question_of_arp_and_its_answer_have_the_bytes_of_rfc_826() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        assert_eq!(one.neighbours.resolve(0, v4(2)), Neighbour::Asked);
        let question = one.send(0);
        let expected = [
            &[0xFF; 6][..],
            &mac(1),
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &mac(1),
            &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        ];
        assert_eq!(question, [expected.concat()]);
        two.receive(0, &question[0]);
        let answer = two.send(0);
        let expected =
            [&mac(1)[..], &mac(2), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &mac(2), &[10, 0, 0, 2], &mac(1), &[10, 0, 0, 1]];
        assert_eq!(answer, [expected.concat()]);
        one.receive(0, &answer[0]);
        assert_eq!(one.neighbours.known(v4(2)), Some(mac(2)));
    }

    #[test]
    fn an_advertisement_is_solicited_and_overrides() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        assert_eq!(one.neighbours.resolve(0, v6(2)), Neighbour::Asked);
        two.receive(0, &one.send(0)[0]);
        let answer = two.send(0);
        // Ethernet 14, IPv6 40: type 136, and behind the checksum the flags S and O.
        assert_eq!((answer[0][54], answer[0][58], answer[0].len()), (136, 0x60, 14 + 40 + 32));
        one.receive(0, &answer[0]);
        assert_eq!(one.neighbours.known(v6(2)), Some(mac(2)));
    }

    #[test]
    fn neighbour_discovery_that_a_router_has_passed_on_is_not_looked_at() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        assert_eq!(one.neighbours.resolve(0, v6(2)), Neighbour::Asked);
        let question = one.send(0);
        two.receive_at(0, &question[0], HOP_LIMIT - 1);
        assert!(!two.neighbours.may_transmit());
        two.receive(0, &question[0]);
        let answer = two.send(0);
        one.receive_at(0, &answer[0], HOP_LIMIT - 1);
        assert_eq!(one.neighbours.known(v6(2)), None);
    }

    #[test]
    fn a_question_for_another_station_is_not_answered() {
        let (mut one, mut three) = (Station::new(1), Station::new(3));
        for address in [v4(2), v6(2)] {
            assert_eq!(one.neighbours.resolve(0, address), Neighbour::Asked);
            three.receive(0, &one.send(0)[0]);
            assert!(!three.neighbours.may_transmit(), "{address}");
        }
    }

    #[test]
    fn a_station_of_many_is_not_believed() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        assert_eq!(one.neighbours.resolve(0, v4(2)), Neighbour::Asked);
        two.receive(0, &one.send(0)[0]);
        let mut answer = two.send(0).remove(0);
        // The sender's address in ARP.
        answer[22] |= 1;
        one.receive(0, &answer);
        assert_eq!(one.neighbours.known(v4(2)), None);
    }

    #[test]
    fn a_check_for_duplicates_is_not_answered() {
        let (one, mut two) = (Station::new(1), Station::new(2));
        let question = NdiscRepr::NeighborSolicit { target_addr: "fd00::2".parse().expect("an address"), lladdr: None };
        let mut frame = [0; 128];
        let to = solicited_node("fd00::2".parse().expect("an address"));
        let length = discovery(&one.interface, question, Ipv6Addr::UNSPECIFIED, to, &mut frame);
        two.receive(0, &frame[..length]);
        assert!(!two.neighbours.may_transmit());
    }

    #[test]
    fn who_is_in_no_network_of_this_side_is_not_asked_for() {
        let mut one = Station::new(1);
        assert_eq!(one.neighbours.resolve(0, [192, 0, 2, 1].into()), Neighbour::Asked);
        assert!(one.neighbours.may_transmit());
        assert_eq!(one.neighbours.transmit(0, &one.interface, &mut [0; 128]), None);
        assert!(!one.neighbours.may_transmit());
    }

    #[test]
    fn who_does_not_answer_is_asked_three_times_and_is_silent_for_a_second() {
        let mut one = Station::new(1);
        let (mut now, mut asked) = (7, 0);
        while one.neighbours.resolve(now, v4(2)) == Neighbour::Asked {
            asked += one.send(now).len();
            now = one.neighbours.deadline().expect("an answer is waited for");
            // Late, as a tick may be.
            now += 5;
            one.neighbours.tick(now);
        }
        assert_eq!((asked, now), (3, 7 + 3 * (AGAIN + 5)));
        assert_eq!(one.neighbours.deadline(), Some(now + AGAIN));
        one.neighbours.tick(now + AGAIN - 1);
        assert_eq!(one.neighbours.resolve(now + AGAIN - 1, v4(2)), Neighbour::Silent);
        one.neighbours.tick(now + AGAIN);
        assert_eq!(one.neighbours.resolve(now + AGAIN, v4(2)), Neighbour::Asked);
    }

    #[test]
    fn an_answer_holds_for_a_minute() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        one.ask(100, &mut two, v4(2));
        one.neighbours.tick(100 + VALID - 1);
        assert_eq!(one.neighbours.known(v4(2)), Some(mac(2)));
        one.neighbours.tick(100 + VALID);
        assert_eq!(one.neighbours.known(v4(2)), None);
    }

    #[test]
    fn who_has_spoken_within_a_second_is_not_doubted() {
        let (mut one, mut two) = (Station::new(1), Station::new(2));
        one.ask(100, &mut two, v4(2));
        one.neighbours.doubt(100 + AGAIN - 1, v4(2));
        assert_eq!(one.neighbours.known(v4(2)), Some(mac(2)));
        one.neighbours.doubt(100 + AGAIN, v4(2));
        assert_eq!(one.neighbours.known(v4(2)), None);
        assert_eq!(one.send(100 + AGAIN).len(), 1, "it is asked for again");
    }

    #[test]
    fn a_full_cache_forgets_who_spoke_first_and_nobody_who_is_asked() {
        let mut one = Station::new(1);
        let [mut two, mut three, mut four] = [2, 3, 4].map(Station::new);
        assert_eq!(one.neighbours.resolve(0, v4(8)), Neighbour::Asked);
        assert_eq!(one.neighbours.resolve(0, v4(9)), Neighbour::Asked);
        assert_eq!(one.neighbours.resolve(0, v4(2)), Neighbour::NoRoom, "both answers are waited for");
        one.neighbours = Neighbours::new(2).expect("memory");
        one.ask(20, &mut two, v4(2));
        one.ask(10, &mut three, v4(3));
        one.ask(30, &mut four, v4(4));
        let known = [2, 3, 4].map(|last| one.neighbours.known(v4(last)).is_some());
        assert_eq!(known, [true, false, true]);
        assert_eq!(one.neighbours.resolve(40, v4(5)), Neighbour::Asked);
        assert_eq!(one.neighbours.resolve(40, v4(6)), Neighbour::Asked);
        assert_eq!(one.neighbours.resolve(40, v4(7)), Neighbour::NoRoom);
    }
}
