//! The invariant CRC (RoCEv2 2): CRC-32 of Ethernet over what no router changes.

use super::{bth, ip, udp};

/// Where the bytes lie that routers change, which count as ones. Offsets in an IPv4 header: TOS, TTL, checksum.
const V4_MASKED: [usize; 4] = [1, 8, 10, 11];
/// In an IPv6 header: traffic class and flow label (beside the version), hop limit.
const V6_MASKED: [usize; 4] = [1, 2, 3, 7];
/// In a UDP header: the checksum.
const UDP_MASKED: [usize; 2] = [6, 7];
/// In a BTH: FECN, BECN and the reserved bits beside them.
const BTH_MASKED: usize = 4;
/// Stands for the local route header that RoCE has not.
const PREFIX: usize = 8;

/// The most bytes that have masked ones among them.
const HEADERS: usize = PREFIX + ip::V6 + udp::LENGTH + bth::LENGTH;

/// The ICRC of a packet that begins with its IP header and ends before the ICRC.
///
/// It goes out with its lowest byte first. `None` if the bytes are too short to be a packet, or of no known version.
#[must_use]
pub fn of(packet: &[u8]) -> Option<[u8; 4]> {
    let (network, masked) = match packet.first()? >> 4 {
        4 => (ip::V4, V4_MASKED),
        6 => (ip::V6, V6_MASKED),
        _ => return None,
    };
    let covered = network + udp::LENGTH + bth::LENGTH;
    let (headers, rest) = packet.split_at_checked(covered)?;
    let mut bytes = [0xFF; HEADERS];
    let bytes = &mut bytes[..PREFIX + covered];
    bytes[PREFIX..].copy_from_slice(headers);
    let copy = &mut bytes[PREFIX..];
    for offset in masked {
        copy[offset] = 0xFF;
    }
    if network == ip::V6 {
        // The traffic class begins in the byte of the version.
        copy[0] |= 0x0F;
    }
    for offset in UDP_MASKED {
        copy[network + offset] = 0xFF;
    }
    copy[network + udp::LENGTH + BTH_MASKED] = 0xFF;
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes);
    crc.update(rest);
    Some(crc.finalize().to_le_bytes())
}
