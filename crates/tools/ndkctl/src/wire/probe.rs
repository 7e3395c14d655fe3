//! Questions to a station of the segment, before there is an adapter: its MAC address, and how large its packets may be.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use network::Segment;
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Packet,
        Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscRepr,
    },
};

type Mac = [u8; 6];

/// How often a question is asked, and how long its answer is waited for.
const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_secs(1);

/// What echoes of this program are called.
const IDENT: u16 = 0x534E;

/// Who asks.
pub struct Asker<'segment> {
    pub segment: &'segment dyn Segment,
    pub mac: Mac,
    pub address: IpAddr,
}

impl Asker<'_> {
    /// Asks until `answer` finds one in a frame; `None` if nobody answers.
    fn ask<T>(&self, frame: &[u8], answer: impl Fn(&[u8]) -> Option<T>) -> io::Result<Option<(T, Duration)>> {
        for _ in 0..TRIES {
            let begun = Instant::now();
            self.segment.send(frame)?;
            while let Some(left) = WAIT.checked_sub(begun.elapsed()) {
                let mut found = None;
                self.segment.receive(left, &mut |frame| {
                    found = found.take().or_else(|| answer(frame).map(|answer| (answer, begun.elapsed())));
                })?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// A frame to a station.
    fn frame(&self, to: Mac, ethertype: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
        let repr = EthernetRepr { src_addr: EthernetAddress(self.mac), dst_addr: EthernetAddress(to), ethertype };
        let mut frame = vec![0; 14 + payload.len()];
        repr.emit(&mut EthernetFrame::new_unchecked(&mut frame));
        frame[14..].copy_from_slice(payload);
        frame
    }

    /// Who has an address: ARP or neighbour discovery.
    pub fn station(&self, target: IpAddr) -> io::Result<Option<(Mac, Duration)>> {
        match (self.address, target) {
            (IpAddr::V4(ours), IpAddr::V4(target)) => self.arp(ours, target),
            (IpAddr::V6(ours), IpAddr::V6(target)) => self.discover(ours, target),
            _ => Ok(None),
        }
    }

    fn arp(&self, ours: Ipv4Addr, target: Ipv4Addr) -> io::Result<Option<(Mac, Duration)>> {
        let repr = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(self.mac),
            source_protocol_addr: ours,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: target,
        };
        let mut payload = vec![0; repr.buffer_len()];
        repr.emit(&mut ArpPacket::new_unchecked(&mut payload));
        self.ask(&self.frame([0xFF; 6], EthernetProtocol::Arp, &payload), |frame| {
            let frame =
                EthernetFrame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EthernetProtocol::Arp)?;
            match ArpRepr::parse(&ArpPacket::new_checked(frame.payload()).ok()?).ok()? {
                ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Reply,
                    source_hardware_addr,
                    source_protocol_addr,
                    ..
                } if source_protocol_addr == target => Some(source_hardware_addr.0),
                _ => None,
            }
        })
    }

    fn discover(&self, ours: Ipv6Addr, target: Ipv6Addr) -> io::Result<Option<(Mac, Duration)>> {
        let [.., a, b, c] = target.octets();
        let group = Ipv6Addr::from([0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, a, b, c]);
        let lladdr = Some(EthernetAddress(self.mac).into());
        let question = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: target, lladdr });
        let packet = v6(ours, group, 255, &question);
        self.ask(&self.frame([0x33, 0x33, 0xFF, a, b, c], EthernetProtocol::Ipv6, &packet), |frame| {
            let (source, answer) = parse_v6(frame, |repr| match repr {
                Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }) if target_addr == target => {
                    Some(lladdr.and_then(|address| Mac::try_from(address.as_bytes()).ok()))
                }
                _ => None,
            })?;
            Some(answer.unwrap_or(source))
        })
    }

    /// An echo in a packet of so many bytes.
    pub fn echo(&self, station: Mac, target: IpAddr, bytes: usize) -> io::Result<Option<Duration>> {
        let seq_no = u16::try_from(bytes).unwrap_or(u16::MAX);
        let answer = match (self.address, target) {
            (IpAddr::V4(ours), IpAddr::V4(target)) => {
                let data = vec![0xA5; bytes.saturating_sub(20 + 8)];
                let request = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no, data: &data };
                let packet = v4(ours, target, &request);
                self.ask(&self.frame(station, EthernetProtocol::Ipv4, &packet), |frame| is_v4_echo(frame, seq_no))?
            }
            (IpAddr::V6(ours), IpAddr::V6(target)) => {
                let data = vec![0xA5; bytes.saturating_sub(40 + 8)];
                let request = Icmpv6Repr::EchoRequest { ident: IDENT, seq_no, data: &data };
                let packet = v6(ours, target, 64, &request);
                self.ask(&self.frame(station, EthernetProtocol::Ipv6, &packet), |frame| {
                    let echo = parse_v6(frame, |repr| match repr {
                        Icmpv6Repr::EchoReply { ident: IDENT, seq_no: answered, .. } => {
                            (answered == seq_no).then_some(())
                        }
                        _ => None,
                    });
                    echo.map(drop)
                })?
            }
            _ => None,
        };
        Ok(answer.map(|((), took)| took))
    }
}

fn is_v4_echo(frame: &[u8], seq_no: u16) -> Option<()> {
    let frame = EthernetFrame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EthernetProtocol::Ipv4)?;
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let is_icmp = packet.next_header() == IpProtocol::Icmp;
    let icmp = Icmpv4Packet::new_checked(packet.payload()).ok().filter(|_| is_icmp)?;
    match Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).ok()? {
        Icmpv4Repr::EchoReply { ident: IDENT, seq_no: answered, .. } => (answered == seq_no).then_some(()),
        _ => None,
    }
}

fn v4(ours: Ipv4Addr, target: Ipv4Addr, message: &Icmpv4Repr<'_>) -> Vec<u8> {
    let checksums = ChecksumCapabilities::default();
    let header = Ipv4Repr {
        src_addr: ours,
        dst_addr: target,
        next_header: IpProtocol::Icmp,
        payload_len: message.buffer_len(),
        hop_limit: 64,
    };
    let mut packet = vec![0; header.buffer_len() + message.buffer_len()];
    // With "do not fragment", as smoltcp sends everything.
    header.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &checksums);
    message.emit(&mut Icmpv4Packet::new_unchecked(&mut packet[header.buffer_len()..]), &checksums);
    packet
}

fn v6(ours: Ipv6Addr, target: Ipv6Addr, hop_limit: u8, message: &Icmpv6Repr<'_>) -> Vec<u8> {
    let header = Ipv6Repr {
        src_addr: ours,
        dst_addr: target,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit,
    };
    let mut packet = vec![0; header.buffer_len() + message.buffer_len()];
    header.emit(&mut Ipv6Packet::new_unchecked(&mut packet));
    let mut icmp = Icmpv6Packet::new_unchecked(&mut packet[header.buffer_len()..]);
    message.emit(&ours, &target, &mut icmp, &ChecksumCapabilities::default());
    packet
}

/// Looks for an answer in a frame of `ICMPv6`: the sender's station, and what was found.
fn parse_v6<T>(frame: &[u8], find: impl FnOnce(Icmpv6Repr<'_>) -> Option<T>) -> Option<(Mac, T)> {
    let frame = EthernetFrame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EthernetProtocol::Ipv6)?;
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let is_icmp = packet.next_header() == IpProtocol::Icmpv6;
    let icmp = Icmpv6Packet::new_checked(packet.payload()).ok().filter(|_| is_icmp)?;
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    let repr = Icmpv6Repr::parse(&source, &destination, &icmp, &ChecksumCapabilities::default()).ok()?;
    Some((frame.src_addr().0, find(repr)?))
}
