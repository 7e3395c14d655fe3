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
/// The CRC-32 of the eight bytes of ones that stand for the local route header, which RoCE has not.
const OF_PREFIX: u32 = 0x2144_DF1C;

/// Bytes of the headers that have masked ones among them.
const V4_HEADERS: usize = ip::V4 + udp::LENGTH + bth::LENGTH;
const V6_HEADERS: usize = ip::V6 + udp::LENGTH + bth::LENGTH;

/// The ones of what routers change in headers of which those of IP have `network` bytes.
const fn ones<const BYTES: usize>(network: usize, masked: [usize; 4], first: u8) -> [u8; BYTES] {
    let mut ones = [0; BYTES];
    ones[0] = first;
    let mut index = 0;
    while index < masked.len() {
        ones[masked[index]] = 0xFF;
        index += 1;
    }
    index = 0;
    while index < UDP_MASKED.len() {
        ones[network + UDP_MASKED[index]] = 0xFF;
        index += 1;
    }
    ones[network + udp::LENGTH + BTH_MASKED] = 0xFF;
    ones
}

const V4_ONES: [u8; V4_HEADERS] = ones(ip::V4, V4_MASKED, 0);
/// The traffic class begins in the byte of the version.
const V6_ONES: [u8; V6_HEADERS] = ones(ip::V6, V6_MASKED, 0x0F);

/// The ICRC of a packet that begins with its IP header and ends before the ICRC.
///
/// It goes out with its lowest byte first. `None` if the bytes are too short to be a packet, or of no known version.
#[must_use]
#[inline]
pub fn of(packet: &[u8]) -> Option<[u8; 4]> {
    match packet.first()? >> 4 {
        4 => packet.split_first_chunk().map(|(headers, rest)| sum([&masked(headers, &V4_ONES), rest])),
        6 => packet.split_first_chunk().map(|(headers, rest)| sum([&masked(headers, &V6_ONES), rest])),
        _ => None,
    }
}

/// [`of`] a packet that may be written to: its headers are masked where they lie, so that the whole is summed up in one go, and are as before
/// afterwards.
#[must_use]
#[inline]
pub fn of_own(packet: &mut [u8]) -> Option<[u8; 4]> {
    match packet.first()? >> 4 {
        4 => sum_masked(packet, &V4_ONES),
        6 => sum_masked(packet, &V6_ONES),
        _ => None,
    }
}

fn masked<const BYTES: usize>(headers: &[u8; BYTES], ones: &[u8; BYTES]) -> [u8; BYTES] {
    let mut bytes = *headers;
    for (byte, ones) in bytes.iter_mut().zip(ones) {
        *byte |= ones;
    }
    bytes
}

fn sum_masked<const BYTES: usize>(packet: &mut [u8], ones: &[u8; BYTES]) -> Option<[u8; 4]> {
    let headers = packet.first_chunk_mut::<BYTES>()?;
    let before = *headers;
    *headers = masked(&before, ones);
    let sum = sum([packet]);
    packet[..BYTES].copy_from_slice(&before);
    Some(sum)
}

fn sum<const PARTS: usize>(parts: [&[u8]; PARTS]) -> [u8; 4] {
    let mut crc = crc32fast::Hasher::new_with_initial(OF_PREFIX);
    for part in parts {
        crc.update(part);
    }
    crc.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    #[test]
    fn the_prefix_is_eight_bytes_of_ones() {
        assert_eq!(OF_PREFIX, crc32fast::hash(&[0xFF; 8]));
    }

    #[test]
    fn a_packet_that_may_be_written_to_has_the_same_sum_and_is_as_before() {
        for version in [0x40, 0x60] {
            for length in [V4_HEADERS - 1, V4_HEADERS, V6_HEADERS - 1, V6_HEADERS, 1000] {
                let mut packet: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
                packet[0] = version;
                let before = packet.clone();
                assert_eq!(of_own(&mut packet), of(&before), "{length} bytes");
                assert_eq!(packet, before);
            }
        }
    }

    #[test]
    fn what_routers_change_does_not_count_and_everything_else_does() {
        for (version, ones) in [(0x40, &V4_ONES[..]), (0x60, &V6_ONES[..])] {
            let mut packet = vec![0; ones.len() + 9];
            packet[0] = version;
            let right = of(&packet).expect("a packet");
            for index in 0..packet.len() {
                // The version itself is what the packet is read by.
                let bit = if index == 0 { 1 } else { 0x80 };
                packet[index] ^= bit;
                let is_masked = ones.get(index).is_some_and(|ones| ones & bit != 0);
                assert_eq!(of(&packet) == Some(right), is_masked, "byte {index}");
                packet[index] ^= bit;
            }
        }
    }
}
