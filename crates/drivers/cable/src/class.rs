//! Whose a frame is that comes in by a wire: the driver's own stack, TCP/IP, or both.

use crate::frame::{HEADER_BYTES, TAG_BYTES};

/// The UDP port of RoCE v2.
const ROCE: u16 = 4791;

/// Bytes at the beginning of a frame that [`Class::of`] looks at: Ethernet with a tag, IPv4 with options, UDP.
pub const LOOKS_AT: usize = HEADER_BYTES + TAG_BYTES + 60 + 8;

/// Whose a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// RDMA: TCP/IP never sees it.
    Rdma,
    /// ARP, or neighbour discovery: both want to know who is where.
    Neighbours,
    /// Everything else.
    #[default]
    Other,
}

impl Class {
    /// The class of a frame that begins with these bytes: [`LOOKS_AT`] of them, or all. A frame of a virtual LAN is TCP/IP's.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Self::find(frame).unwrap_or(Self::Other)
    }

    fn find(frame: &[u8]) -> Option<Self> {
        let mut rest = frame.get(HEADER_BYTES - 2..)?;
        let mut kind = word(rest, 0)?;
        if kind == 0x8100 {
            if word(rest, 2)? & 0xFFF != 0 {
                return None;
            }
            rest = rest.get(TAG_BYTES..)?;
            kind = word(rest, 0)?;
        }
        let packet = rest.get(2..)?;
        let (protocol, payload) = match kind {
            0x0806 => return Some(Self::Neighbours),
            0x0800 => {
                // What is not the first fragment has no port. RoCE is never in fragments.
                if word(packet, 6)? & 0x3FFF != 0 {
                    return None;
                }
                let words = usize::from(packet.first()? & 15);
                (*packet.get(9)?, packet.get(words * 4..)?)
            }
            0x86DD => (*packet.get(6)?, packet.get(40..)?),
            _ => return None,
        };
        match protocol {
            17 if word(payload, 2)? == ROCE => Some(Self::Rdma),
            // Router solicitation to redirect.
            58 if kind == 0x86DD && (133..=137).contains(payload.first()?) => Some(Self::Neighbours),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn frame(tag: Option<u16>, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = [2; 12].to_vec();
        if let Some(tag) = tag {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn ipv4(options: u8, fragment: u16, protocol: u8, port: u16) -> Vec<u8> {
        let mut packet = std::vec![0; 20 + usize::from(options)];
        packet[0] = 0x45 + options / 4;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet.extend([0xC0, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend([0; 4]);
        packet
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = std::vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next;
        packet.extend(payload);
        packet
    }

    #[test]
    fn a_frame_is_whose_it_is() {
        let udp6 = [0xC0, 0, 0x12, 0xB7];
        for (frame, class) in [
            (frame(None, 0x0800, &ipv4(0, 0, 17, 4791)), Class::Rdma),
            (frame(None, 0x0800, &ipv4(40, 0x4000, 17, 4791)), Class::Rdma),
            (frame(Some(0xA000), 0x0800, &ipv4(0, 0, 17, 4791)), Class::Rdma),
            (frame(None, 0x86DD, &ipv6(17, &udp6)), Class::Rdma),
            (frame(None, 0x0806, &[]), Class::Neighbours),
            (frame(None, 0x86DD, &ipv6(58, &[135])), Class::Neighbours),
            (frame(None, 0x86DD, &ipv6(58, &[128])), Class::Other),
            (frame(None, 0x0800, &ipv4(0, 0, 17, 4790)), Class::Other),
            (frame(None, 0x0800, &ipv4(0, 0, 6, 4791)), Class::Other),
            (frame(None, 0x0800, &ipv4(0, 0, 58, 4791)), Class::Other),
            (frame(None, 0x0800, &ipv4(0, 0x2000, 17, 4791)), Class::Other),
            (frame(None, 0x0800, &ipv4(0, 0x0001, 17, 4791)), Class::Other),
            (frame(Some(7), 0x0800, &ipv4(0, 0, 17, 4791)), Class::Other),
            (frame(Some(7), 0x0806, &[]), Class::Other),
            (frame(None, 0x88B5, &ipv4(0, 0, 17, 4791)), Class::Other),
        ] {
            assert_eq!(Class::of(&frame), class, "{frame:02x?}");
            if class == Class::Rdma {
                assert_eq!(Class::of(&frame[..frame.len().min(LOOKS_AT)]), class, "as many bytes are enough");
                for length in 0..frame.len() - 4 {
                    assert_eq!(Class::of(&frame[..length.min(frame.len() - 5)]), Class::Other, "{length} bytes");
                }
            }
        }
    }
}
