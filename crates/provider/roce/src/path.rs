//! The way to a peer, and frames on it.

use core::net::IpAddr;

use crate::wire::{
    Bth, Envelope, Ethernet, Extended, Ip, Mac, Udp, ip,
    packet::{ICRC, emit_headers},
    udp,
};

/// What the frames to a peer have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// This station.
    pub local_mac: Mac,
    /// The peer's station, or the router's.
    pub remote_mac: Mac,
    /// Priority and VLAN.
    pub tag: Option<u16>,
    /// This side's address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// Constant for a queue pair, so that its packets keep their order.
    pub source_port: u16,
    /// TOS of IPv4.
    pub traffic_class: u8,
    /// TTL of IPv4.
    pub hop_limit: u8,
}

/// The source port of the packets of a queue pair (RoCEv2 9).
#[must_use]
pub fn source_port(local_qpn: u32, remote_qpn: u32) -> u16 {
    let product = u64::from(local_qpn).wrapping_mul(remote_qpn.into());
    // Twenty bits, as a flow label has, and fourteen of these.
    let label = (product ^ (product >> 20) ^ (product >> 40)) & 0xF_FFFF;
    let [.., high, low] = ((label & 0x3FFF) ^ (label >> 14)).to_be_bytes();
    0xC000 | u16::from_be_bytes([high, low])
}

/// Bytes that a payload of this length is filled up with.
#[must_use]
pub const fn pad_of(length: usize) -> u8 {
    match length % 4 {
        0 => 0,
        1 => 3,
        2 => 2,
        _ => 1,
    }
}

impl Path {
    /// Returns true if the frame of this envelope came this way.
    #[must_use]
    #[inline]
    pub fn is_of(&self, envelope: &Envelope) -> bool {
        envelope.ip.source == self.remote && envelope.ip.destination == self.local
    }

    #[inline]
    fn envelope(&self, bth: &Bth) -> Envelope {
        let ip = Ip {
            source: self.local,
            destination: self.remote,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            protocol: ip::protocol::UDP,
            // Packets are never cut, so their identification need not be one. A flow label of zero is none.
            label: if self.local.is_ipv4() { bth.psn.get() & 0xFFFF } else { 0 },
        };
        Envelope {
            ethernet: Ethernet {
                destination: self.remote_mac,
                source: self.local_mac,
                tag: self.tag,
                ethertype: ip.ethertype(),
            },
            ip,
            udp: Udp { source: self.source_port, destination: udp::ROCE },
        }
    }

    /// Writes a frame with a payload of `length` bytes, which `fill` writes, to the front of `frame`. Returns the frame's length.
    ///
    /// # Errors
    ///
    /// That of `fill`.
    ///
    /// # Panics
    ///
    /// If `frame` is too short.
    pub fn emit<E>(
        &self,
        mut bth: Bth,
        extended: &Extended,
        length: u32,
        frame: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let length = length as usize;
        bth.pad = pad_of(length);
        let pad = usize::from(bth.pad);
        let envelope = self.envelope(&bth);
        let start = emit_headers(&bth, extended, &mut frame[envelope.length()..]);
        let packet_length = start + length + pad + ICRC;
        // Before the payload: what was written byte by byte has arrived when the ICRC takes it in one piece.
        let front = envelope.emit_headers(frame, packet_length);
        let packet = &mut frame[front..];
        fill(&mut packet[start..][..length])?;
        let end = start + length;
        if pad > 0 {
            packet[end..][..pad].fill(0);
        }
        Ok(envelope.seal(frame, packet_length))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{
        FRAME,
        psn::Psn,
        wire::{Opcode, Packet},
    };

    fn path(local: IpAddr, remote: IpAddr) -> Path {
        let (local_mac, remote_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let source_port = source_port(0x11, 0x22);
        Path { local_mac, remote_mac, tag: None, local, remote, source_port, traffic_class: 0, hop_limit: 64 }
    }

    #[test]
    fn the_source_port_is_folded_from_the_numbers_of_both_queue_pairs() {
        // Products of 10, 20, 40 and 48 bits: the last one is 0xDDB0619D840C.
        let ports = [
            (0x11, 0x22, 0xC242),
            (0x123, 0xABC, 0xF384),
            (0xF_FFFF, 0xF_FFFE, 0xFFC0),
            (0xFF_FFFF, 0xFF_FFFE, 0xFF12),
            (0xFE_DCBA, 0xDE_ADBE, 0xC2D2),
        ];
        for (local, remote, port) in ports {
            assert_eq!(source_port(local, remote), port, "{local:#x} {remote:#x}");
            assert_eq!(source_port(remote, local), port, "both directions are one flow");
        }
    }

    #[test]
    fn a_payload_is_filled_up_with_zeroes_to_whole_words() {
        let path = path([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for (length, pad) in [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (5, 3), (6, 2), (7, 1)] {
            let mut frame = vec![0xEE; FRAME];
            let fill = |bytes: &mut [u8]| {
                bytes.fill(0xAA);
                Ok::<(), ()>(())
            };
            let bth = Bth::new(Opcode::SendOnly, 7, Psn::new(1));
            let end = path.emit(bth, &Extended::default(), length, &mut frame, fill).expect("a frame");
            let (_, Packet { bth, payload, .. }) = Envelope::parse(&frame[..end]).expect("a packet");
            assert_eq!((bth.pad, payload.len()), (pad, length as usize));
            let tail = &frame[end - ICRC - usize::from(pad)..end - ICRC];
            assert!(tail.iter().all(|byte| *byte == 0), "{length} bytes end with {tail:x?}");
        }
    }

    #[test]
    fn the_identification_of_ipv4_comes_from_the_packets_number_and_ipv6_has_no_label() {
        let six = |last| IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, last]);
        for (path, label) in [(path([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), 0x3456), (path(six(1), six(2)), 0)] {
            let mut frame = vec![0; FRAME];
            let bth = Bth::new(Opcode::SendOnly, 7, Psn::new(0x12_3456));
            let end = path.emit(bth, &Extended::default(), 0, &mut frame, |_| Ok::<(), ()>(())).expect("a frame");
            let (envelope, _) = Envelope::parse(&frame[..end]).expect("a packet");
            assert_eq!(envelope.ip.label, label);
        }
    }
}
