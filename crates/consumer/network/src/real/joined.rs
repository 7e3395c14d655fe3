//! Packets that go to the system as one frame, and come from it as one: UDP segmentation offload (Linux 6.3).
//!
//! Whoever takes the frame apart, Linux, a network card or [`take_apart`], gives each packet the frame's headers with lengths of its own,
//! a UDP checksum, and over IPv4 an identification that is one more than the last packet's. The ICRC covers the identification (RoCEv2 2). So
//! packets are joined only if theirs are in a row, as those of a message are: it is the PSN.

use std::net::IpAddr;

use roce::wire::{Envelope, Ethernet, Ip, Udp, ethernet, ip, udp};
use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Packets that go as one at most: what Linux allows.
const PACKETS: usize = 64;
/// Bytes behind the headers of a joined frame at most: what the length of an IP packet can say.
const LONGEST: usize = u16::MAX as usize - ip::V6 - udp::LENGTH;

/// Bytes of the headers of a joined frame at most, [`Offload`] included.
const HEADERS: usize = size_of::<Offload>() + ethernet::MOST + ip::V6 + udp::LENGTH;

/// The flag for a checksum that is not made yet.
const NEEDS_CHECKSUM: u8 = 1;
/// The kind of a frame that consists of UDP datagrams.
const UDP_DATAGRAMS: u8 = 5;
/// Where a UDP header has its checksum.
const CHECKSUM: usize = 6;

/// What stands before each frame of a packet socket that says how it is taken apart: `virtio_net_hdr`, in the machine's order of bytes.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Offload {
    flags: u8,
    kind: u8,
    /// Bytes of all headers. Linux finds the least itself.
    headers: u16,
    /// Bytes behind the headers of each frame but the last one.
    each: u16,
    /// Where the checksum begins to count.
    checksum_start: u16,
    /// Where it is from there.
    checksum_offset: u16,
}

/// The headers of a datagram, and what is behind them.
fn parse(frame: &[u8]) -> Option<(Envelope, &[u8])> {
    let (ethernet, network) = Ethernet::parse(frame)?;
    let (ip, rest) = Ip::parse(ethernet.ethertype, network)?;
    if ip.protocol != ip::protocol::UDP {
        return None;
    }
    let (udp, payload) = Udp::parse(rest)?;
    Some((Envelope { ethernet, ip, udp }, payload))
}

/// The headers of the datagram that is so many behind the first one.
fn behind(mut first: Envelope, number: u16) -> Envelope {
    if first.ip.source.is_ipv4() {
        first.ip.label = (first.ip.label + u32::from(number)) & 0xFFFF;
    }
    first
}

/// The sum, not complemented, of the pseudo header of a datagram with this payload: what stands in a checksum that is not made yet.
fn pseudo_header(ip: &Ip, payload: usize) -> u16 {
    let mut header = SmallVec::<[u8; 64]>::new();
    for address in [ip.source, ip.destination] {
        match address {
            IpAddr::V4(address) => header.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => header.extend_from_slice(&address.octets()),
        }
    }
    // Both families have these words; IPv4 has fewer zeroes between them.
    header.extend_from_slice(&u32::try_from(udp::LENGTH + payload).unwrap_or_default().to_be_bytes());
    header.extend_from_slice(&u32::from(ip.protocol).to_be_bytes());
    !ip::checksum(&header)
}

/// Packets as one frame.
pub struct Joined<'frames> {
    headers: [u8; HEADERS],
    length: usize,
    payloads: SmallVec<[&'frames [u8]; PACKETS]>,
}

impl<'frames> Joined<'frames> {
    /// Joins as many of the first frames as can go as one: packets of one flow without a tag, with payloads of one length; that of the
    /// last may be shorter. `None` if the first can only go alone.
    pub fn of(frames: &[&'frames [u8]]) -> Option<Self> {
        let (first, rest) = frames.split_first()?;
        let (envelope, payload) = parse(first)
            .filter(|(envelope, _)| envelope.udp.destination == udp::ROCE && envelope.ethernet.tag.is_none())?;
        let (each, mut total) = (payload.len(), payload.len());
        let mut payloads = SmallVec::new();
        payloads.push(payload);
        for (number, frame) in (1..).zip(rest.iter().take(PACKETS - 1)) {
            let Some((found, payload)) = parse(frame) else { break };
            total += payload.len();
            let fits = (1..=each).contains(&payload.len()) && total <= LONGEST;
            if !fits || found != behind(envelope, number) {
                break;
            }
            payloads.push(payload);
            if payload.len() < each {
                break;
            }
        }
        (payloads.len() > 1).then(|| Self::with(&envelope, payloads))
    }

    fn with(envelope: &Envelope, payloads: SmallVec<[&'frames [u8]; PACKETS]>) -> Self {
        let total = payloads.iter().map(|payload| payload.len()).sum();
        let begin = size_of::<Offload>();
        let mut headers = [0; HEADERS];
        let end = envelope.emit_headers(&mut headers[begin..], total);
        let transport = end - udp::LENGTH;
        let sum = pseudo_header(&envelope.ip, total);
        headers[begin..][transport + CHECKSUM..][..size_of_val(&sum)].copy_from_slice(&sum.to_be_bytes());
        let narrow = |length: usize| u16::try_from(length).unwrap_or_default();
        let offload = Offload {
            flags: NEEDS_CHECKSUM,
            kind: UDP_DATAGRAMS,
            headers: narrow(end),
            each: narrow(payloads[0].len()),
            checksum_start: narrow(transport),
            checksum_offset: narrow(CHECKSUM),
        };
        headers[..begin].copy_from_slice(offload.as_bytes());
        Self { headers, length: begin + end, payloads }
    }

    /// How many frames it is.
    pub fn count(&self) -> usize {
        self.payloads.len()
    }

    /// Its bytes, [`Offload`] first.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.headers[..self.length]).chain(self.payloads.iter().copied())
    }
}

/// Gives `take` the frames that came as one, with [`Offload`] before it; `room` is for one of them. Returns how many they were.
pub fn take_apart(bytes: &[u8], room: &mut Vec<u8>, take: &mut dyn FnMut(&[u8])) -> usize {
    let Ok((offload, frame)) = Offload::read_from_prefix(bytes) else { return 0 };
    let datagrams = if offload.kind == UDP_DATAGRAMS { parse(frame) } else { None };
    let Some((envelope, payload)) = datagrams.filter(|_| offload.each > 0) else {
        take(frame);
        return 1;
    };
    let mut count = 0;
    for (number, payload) in (0..).zip(payload.chunks(offload.each.into())) {
        room.resize(envelope.length(), 0);
        behind(envelope, number).emit_headers(room, payload.len());
        room.extend_from_slice(payload);
        take(room);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [IpAddr; 2] =
        [IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 2))];
    const V6: [IpAddr; 2] = [IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)];

    fn envelope([source, destination]: [IpAddr; 2], label: u32) -> Envelope {
        let ip = Ip { source, destination, traffic_class: 2, hop_limit: 64, protocol: ip::protocol::UDP, label };
        Envelope {
            ethernet: Ethernet { destination: [2; 6], source: [4; 6], tag: None, ethertype: ip.ethertype() },
            ip,
            udp: Udp { source: 0xC123, destination: udp::ROCE },
        }
    }

    fn frame(envelope: &Envelope, payload: usize, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; envelope.length() + payload];
        envelope.emit_headers(&mut bytes, payload);
        bytes
    }

    /// Frames with these payloads, as those of a message are: of PSNs in a row, the last before the end of what an identification holds.
    fn message(addresses: [IpAddr; 2], payloads: &[usize]) -> Vec<Vec<u8>> {
        let label = |number: u8| if addresses[0].is_ipv4() { (0xFFFE + u32::from(number)) & 0xFFFF } else { 7 };
        (0..)
            .zip(payloads)
            .map(|(number, payload)| frame(&envelope(addresses, label(number)), *payload, number))
            .collect()
    }

    fn joined(frames: &[Vec<u8>]) -> Option<(usize, Vec<u8>)> {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        Joined::of(&frames).map(|joined| (joined.count(), joined.parts().collect::<Vec<_>>().concat()))
    }

    fn count(frames: &[Vec<u8>]) -> usize {
        joined(frames).map_or(1, |(count, _)| count)
    }

    fn apart(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let count = take_apart(bytes, &mut Vec::new(), &mut |frame| frames.push(frame.to_vec()));
        assert_eq!(count, frames.len());
        frames
    }

    #[test]
    fn packets_of_a_message_go_as_one_and_are_the_same_apart() {
        for addresses in [V4, V6] {
            let frames = message(addresses, &[1040, 1040, 1040, 40]);
            let (count, bytes) = joined(&frames).expect("they go as one");
            assert_eq!(count, 4, "the last may be shorter");
            assert_eq!(apart(&bytes), frames);
            let (_, whole) = parse(&bytes[size_of::<Offload>()..]).expect("one datagram");
            assert_eq!(whole.len(), 3 * 1040 + 40);
        }
    }

    #[test]
    fn what_is_not_of_one_flow_and_length_is_not_joined() {
        assert_eq!(count(&message(V4, &[1040, 1040, 40, 40])), 3, "behind a shorter one");
        assert_eq!(count(&message(V4, &[40, 1040])), 1, "a longer one");
        assert_eq!(count(&message(V6, &[1040; 100])), LONGEST / 1040, "what the length can say");
        assert_eq!(count(&message(V6, &[40; 100])), PACKETS);
        assert_eq!(count(&[]), 1);
        let same = envelope(V4, 1);
        let again = vec![frame(&same, 40, 0), frame(&same, 40, 0)];
        assert_eq!(count(&again), 1, "a PSN again");
        let other = |change: fn(&mut Envelope)| {
            let mut changed = envelope(V4, 2);
            change(&mut changed);
            count(&[frame(&same, 40, 0), frame(&changed, 40, 0)])
        };
        assert_eq!(other(|_| ()), 2);
        assert_eq!(other(|envelope| envelope.udp.source += 1), 1, "of another queue pair");
        assert_eq!(other(|envelope| envelope.ethernet.destination = [6; 6]), 1, "to another station");
        assert_eq!(other(|envelope| envelope.ip.traffic_class = 0), 1);
        assert_eq!(other(|envelope| envelope.ethernet.tag = Some(3)), 1);
        let others: Vec<_> = (1..3)
            .map(|label| {
                let mut envelope = envelope(V4, label);
                envelope.udp.destination = 4789;
                frame(&envelope, 40, 0)
            })
            .collect();
        assert_eq!(count(&others), 1, "not RoCE");
        let tagged = |label| {
            let mut envelope = envelope(V4, label);
            envelope.ethernet.tag = Some(3);
            frame(&envelope, 40, 0)
        };
        assert_eq!(count(&[tagged(1), tagged(2)]), 1);
        assert_eq!(count(&[vec![0xFF; 60], vec![0xFF; 60]]), 1);
    }

    #[test]
    fn a_frame_that_is_one_stays_one() {
        for kind in [0, UDP_DATAGRAMS] {
            let offload = Offload { kind, ..Offload::default() };
            let frame = frame(&envelope(V4, 1), 40, 1);
            assert_eq!(apart(&[offload.as_bytes(), &frame].concat()), [frame]);
        }
        // TCP, for which `each` says something else.
        let offload = Offload { kind: 1, each: 8, ..Offload::default() };
        assert_eq!(apart(&[offload.as_bytes(), &[7; 60]].concat()), [[7; 60]]);
        let malformed = Offload { kind: UDP_DATAGRAMS, each: 8, ..Offload::default() };
        assert_eq!(apart(&[malformed.as_bytes(), &[7; 60]].concat()), [[7; 60]]);
        assert!(apart(&[0; 9]).is_empty());
    }
}
