//! Packets of RoCE v2: Ethernet, IP, UDP, the transport headers of InfiniBand's reliable connection, the invariant checksum.

use std::net::IpAddr;

use ndkpi::NtStatus;

use super::{MOST_PACKETS, connections::Link};

/// The bits of a packet number.
pub const PSN_MASK: u32 = 0x00FF_FFFF;
/// Bytes of a message in one packet: what fits into an ordinary frame of Ethernet. Every packet is in the file as a whole, because programs
/// that know the protocol take one that the capture has cut for a malformed one.
const MTU: u32 = 1024;
/// The port of RoCE v2.
const PORT: u16 = 4791;

/// Opcodes of the reliable connection.
mod opcode {
    /// First, middle, last, only.
    pub const SEND: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
    /// First, middle, last, only; the last two invalidate a token.
    pub const SEND_AND_INVALIDATE: [u8; 4] = [0x00, 0x01, 0x16, 0x17];
    /// First, middle, last, only.
    pub const WRITE: [u8; 4] = [0x06, 0x07, 0x08, 0x0A];
    /// First, middle, last, only.
    pub const READ_RESPONSE: [u8; 4] = [0x0D, 0x0E, 0x0F, 0x10];
    pub const READ_REQUEST: u8 = 0x0C;
    pub const ACKNOWLEDGE: u8 = 0x11;
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A message into a receive.
    Send { length: u32, invalidates: Option<u32>, solicits: bool },
    /// Into the memory of the peer.
    Write { length: u32, address: u64, token: u32 },
    /// From the memory of the peer.
    Read { length: u32, address: u64, token: u32 },
}

impl Work {
    const fn length(&self) -> u32 {
        match self {
            Self::Send { length, .. } | Self::Write { length, .. } | Self::Read { length, .. } => *length,
        }
    }

    /// How many packet numbers the request takes.
    pub fn numbers(&self) -> u32 {
        self.length().div_ceil(MTU).max(1)
    }
}

/// One packet, without what the link adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    opcode: u8,
    solicits: bool,
    asks: bool,
    psn: u32,
    /// The headers behind the base one.
    headers: Vec<u8>,
    payload: u32,
    /// More of the message is left out.
    pub is_cut: bool,
}

/// The packets of a message: `opcodes` are those of the first, a middle, the last and an only one.
fn message(
    length: u32,
    psn: u32,
    opcodes: [u8; 4],
    headers: impl Fn(bool, bool) -> Vec<u8>,
    solicits: bool,
) -> Vec<Packet> {
    let count = length.div_ceil(MTU).max(1);
    (0..count.min(MOST_PACKETS))
        .map(|index| {
            let (first, last) = (index == 0, index + 1 == count);
            let opcode = match (first, last) {
                (true, true) => opcodes[3],
                (true, false) => opcodes[0],
                (false, true) => opcodes[2],
                (false, false) => opcodes[1],
            };
            Packet {
                opcode,
                solicits: solicits && last,
                asks: last,
                psn: psn.wrapping_add(index) & PSN_MASK,
                headers: headers(first, last),
                payload: if last { length - index * MTU } else { MTU },
                is_cut: !last && index + 1 == MOST_PACKETS,
            }
        })
        .collect()
}

fn remote(address: u64, token: u32, length: u32) -> Vec<u8> {
    [address.to_be_bytes().as_slice(), &token.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// The packets of a request, of which the first has this number.
pub fn request(work: &Work, psn: u32) -> Vec<Packet> {
    match *work {
        Work::Send { length, invalidates, solicits } => {
            let opcodes = if invalidates.is_some() { opcode::SEND_AND_INVALIDATE } else { opcode::SEND };
            let headers = |_, last: bool| match invalidates {
                Some(token) if last => token.to_be_bytes().to_vec(),
                _ => Vec::new(),
            };
            message(length, psn, opcodes, headers, solicits)
        }
        Work::Write { length, address, token } => {
            let headers = |first: bool, _| if first { remote(address, token, length) } else { Vec::new() };
            message(length, psn, opcode::WRITE, headers, false)
        }
        Work::Read { length, address, token } => {
            let headers = remote(address, token, length);
            let (opcode, is_cut) = (opcode::READ_REQUEST, false);
            vec![Packet { opcode, solicits: false, asks: true, psn, headers, payload: 0, is_cut }]
        }
    }
}

/// The acknowledgement header: what it says, and a count of messages.
fn acknowledgement(syndrome: u8, psn: u32) -> Vec<u8> {
    (u32::from(syndrome) << 24 | psn & PSN_MASK).to_be_bytes().to_vec()
}

/// The packets that answer a request.
pub fn answer(work: &Work, first_psn: u32, packets: u32, status: NtStatus) -> Vec<Packet> {
    /// An acknowledgement without a limit of credits.
    const ACK: u8 = 0x1F;
    /// The peer has refused the access.
    const NAK_ACCESS: u8 = 0x62;
    /// The peer could not carry it out.
    const NAK_OPERATION: u8 = 0x63;
    let alone = |syndrome: u8, psn: u32| {
        let headers = acknowledgement(syndrome, psn);
        let opcode = opcode::ACKNOWLEDGE;
        vec![Packet { opcode, solicits: false, asks: false, psn, headers, payload: 0, is_cut: false }]
    };
    match (status, *work) {
        // Nothing was sent, or nobody answers.
        (NtStatus::CANCELLED | NtStatus::IO_TIMEOUT, _) => Vec::new(),
        (NtStatus::ACCESS_VIOLATION, _) => alone(NAK_ACCESS, first_psn),
        (status, _) if !status.is_success() => alone(NAK_OPERATION, first_psn),
        (_, Work::Read { length, .. }) => {
            let headers = |first: bool, last: bool| {
                if first || last { acknowledgement(ACK, first_psn) } else { Vec::new() }
            };
            let mut answers = message(length, first_psn, opcode::READ_RESPONSE, headers, false);
            for packet in &mut answers {
                packet.asks = false;
            }
            answers
        }
        _ => alone(ACK, first_psn.wrapping_add(packets.saturating_sub(1)) & PSN_MASK),
    }
}

/// The sum of 16-bit words that IP and UDP ask for.
fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let folded = (folded & 0xFFFF) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(0)
}

impl Packet {
    /// Bytes that fill the payload up to a multiple of four.
    const fn pad(&self) -> u32 {
        self.payload.wrapping_neg() & 3
    }

    /// Bytes from the base transport header to the checksum.
    fn transport_length(&self) -> u32 {
        let headers = u32::try_from(self.headers.len()).unwrap_or(0);
        12 + headers + self.payload + self.pad() + 4
    }

    /// Bytes of the packet as it would be on the wire.
    pub fn length(&self, link: &Link) -> u32 {
        let ip = if link.to.is_ipv4() { 20 } else { 40 };
        14 + ip + 8 + self.transport_length()
    }

    /// The bytes of the packet.
    pub fn bytes(&self, link: &Link) -> Vec<u8> {
        let udp_length = u16::try_from(8 + self.transport_length()).unwrap_or(u16::MAX);
        let mut bytes = ethernet(link);
        let ip_at = bytes.len();
        bytes.extend(ip(link, udp_length));
        let udp_at = bytes.len();
        // The source port is made of the queue pair's number, so that connections tell apart.
        let source = 0xC000 | u16::try_from(link.from_qp & 0x3FFF).unwrap_or(0);
        for number in [source, PORT, udp_length, 0] {
            bytes.extend(number.to_be_bytes());
        }
        let transport_at = bytes.len();
        let pad = u8::try_from(self.pad()).unwrap_or(0);
        bytes.extend([self.opcode, u8::from(self.solicits) << 7 | pad << 4, 0xFF, 0xFF]);
        bytes.extend((link.to_qp & PSN_MASK).to_be_bytes());
        bytes.extend((u32::from(self.asks) << 31 | self.psn).to_be_bytes());
        bytes.extend(&self.headers);
        let payload = (self.payload + self.pad()) as usize;
        bytes.resize(bytes.len() + payload, 0);
        let sum = invariant(&bytes[ip_at..], udp_at - ip_at, transport_at - ip_at);
        bytes.extend(sum.to_le_bytes());
        bytes
    }
}

/// The invariant checksum of a packet from its IP header on.
fn invariant(packet: &[u8], udp_at: usize, transport_at: usize) -> u32 {
    let mut masked = packet.to_vec();
    let variant: &[usize] = if udp_at == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    for at in variant {
        masked[*at] = 0xFF;
    }
    if udp_at != 20 {
        // The traffic class begins in the first byte.
        masked[0] |= 0x0F;
    }
    // The checksum of UDP, and a reserved byte of the base transport header.
    for at in [udp_at + 6, udp_at + 7, transport_at + 4] {
        masked[at] = 0xFF;
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xFF; 8]);
    crc.update(&masked);
    crc.finalize()
}

/// A locally administered address made of the last bytes of an IP address.
fn hardware(address: IpAddr) -> [u8; 6] {
    let last = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            [a, b, c, d]
        }
    };
    [0x02, 0x4E, last[0], last[1], last[2], last[3]]
}

fn ethernet(link: &Link) -> Vec<u8> {
    let kind: u16 = if link.to.is_ipv4() { 0x0800 } else { 0x86DD };
    [hardware(link.to).as_slice(), &hardware(link.from), &kind.to_be_bytes()].concat()
}

fn ip(link: &Link, udp_length: u16) -> Vec<u8> {
    const UDP: u8 = 17;
    const HOPS: u8 = 64;
    match (link.from, link.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + udp_length).to_be_bytes();
            let mut header = vec![0x45, 0x02, total[0], total[1], 0, 0, 0x40, 0, HOPS, UDP, 0, 0];
            header.extend(from.octets().into_iter().chain(to.octets()));
            let sum = internet_checksum(&[&header]).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            header
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V6(address) => address.octets(),
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            };
            let length = udp_length.to_be_bytes();
            let mut header = vec![0x60, 0x20, 0, 0, length[0], length[1], UDP, HOPS];
            header.extend(octets(from).into_iter().chain(octets(to)));
            header
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{Link, MTU, Work, answer, invariant, message, opcode, request};
    use crate::pcapng::MOST_PACKETS;
    use ndkpi::NtStatus;

    const LINK: Link = Link {
        from: std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        to: std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        from_qp: 3,
        to_qp: 4,
    };

    #[test]
    fn a_message_is_cut_into_packets() {
        let headers = |_, _| Vec::new();
        let codes = |length| -> Vec<_> {
            message(length, 0, opcode::SEND, headers, false).iter().map(|packet| packet.opcode).collect()
        };
        assert_eq!(codes(0), [4]);
        assert_eq!(codes(MTU), [4]);
        assert_eq!(codes(MTU + 1), [0, 2]);
        assert_eq!(codes(3 * MTU), [0, 1, 2]);
        let long = message(MTU * 1000, 0, opcode::SEND, headers, false);
        assert_eq!(long.len(), MOST_PACKETS as usize);
        assert!(long.last().is_some_and(|last| last.is_cut));
    }

    #[test]
    fn lengths_are_those_of_the_bytes() {
        for work in [
            Work::Send { length: 5, invalidates: Some(7), solicits: true },
            Work::Write { length: 64, address: 1, token: 2 },
            Work::Write { length: 3 * MTU + 5, address: 1, token: 2 },
            Work::Read { length: 1 << 20, address: 1, token: 2 },
        ] {
            let answers = answer(&work, 9, work.numbers(), NtStatus::SUCCESS);
            for packet in request(&work, 9).into_iter().chain(answers) {
                let bytes = packet.bytes(&LINK);
                assert_eq!(bytes.len(), packet.length(&LINK) as usize, "{work:?}");
                let ip_length = u16::from_be_bytes([bytes[16], bytes[17]]);
                assert_eq!(usize::from(ip_length), bytes.len() - 14, "{work:?}: nothing is cut");
            }
        }
    }

    #[test]
    fn an_answer_acknowledges_the_last_packet() {
        let work = Work::Send { length: 2 * MTU, invalidates: None, solicits: false };
        let answers = answer(&work, 0xFF_FFFF, 2, NtStatus::SUCCESS);
        assert_eq!((answers.len(), answers[0].psn), (1, 0), "numbers have 24 bits");
        assert!(answer(&work, 0, 2, NtStatus::CANCELLED).is_empty());
        assert_eq!(answer(&work, 0, 2, NtStatus::ACCESS_VIOLATION)[0].headers[0], 0x62);
    }

    /// The fields that routers change do not count.
    #[test]
    fn the_checksum_is_invariant() {
        let bytes = request(&Work::Send { length: 8, invalidates: None, solicits: false }, 1)[0].bytes(&LINK);
        let packet = &bytes[14..bytes.len() - 4];
        let sum = invariant(packet, 20, 28);
        assert_eq!(sum.to_le_bytes(), bytes[bytes.len() - 4..]);
        let mut routed = packet.to_vec();
        (routed[8], routed[10], routed[27]) = (3, 4, 5);
        assert_eq!(invariant(&routed, 20, 28), sum);
        routed[40] ^= 1;
        assert_ne!(invariant(&routed, 20, 28), sum);
    }
}
