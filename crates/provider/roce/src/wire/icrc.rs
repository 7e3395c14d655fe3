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

/// Bytes of the headers that have masked ones among them.
const V4_HEADERS: usize = ip::V4 + udp::LENGTH + bth::LENGTH;
const V6_HEADERS: usize = ip::V6 + udp::LENGTH + bth::LENGTH;

/// The ones: of the prefix, and of what routers change in headers of which those of IP have `network` bytes.
const fn ones<const BYTES: usize>(network: usize, masked: [usize; 4], first: u8) -> [u8; BYTES] {
    let mut ones = [0; BYTES];
    let mut index = 0;
    while index < PREFIX {
        ones[index] = 0xFF;
        index += 1;
    }
    ones[PREFIX] = first;
    index = 0;
    while index < masked.len() {
        ones[PREFIX + masked[index]] = 0xFF;
        index += 1;
    }
    index = 0;
    while index < UDP_MASKED.len() {
        ones[PREFIX + network + UDP_MASKED[index]] = 0xFF;
        index += 1;
    }
    ones[PREFIX + network + udp::LENGTH + BTH_MASKED] = 0xFF;
    ones
}

const V4_ONES: [u8; PREFIX + V4_HEADERS] = ones(ip::V4, V4_MASKED, 0);
/// The traffic class begins in the byte of the version.
const V6_ONES: [u8; PREFIX + V6_HEADERS] = ones(ip::V6, V6_MASKED, 0x0F);

/// The ICRC of a packet that begins with its IP header and ends before the ICRC.
///
/// It goes out with its lowest byte first. `None` if the bytes are too short to be a packet, or of no known version.
#[must_use]
pub fn of(packet: &[u8]) -> Option<[u8; 4]> {
    match packet.first()? >> 4 {
        4 => {
            let (headers, rest) = packet.split_first_chunk::<V4_HEADERS>()?;
            let mut bytes = [0; PREFIX + V4_HEADERS];
            bytes[PREFIX..].copy_from_slice(headers);
            Some(sum(&bytes, &V4_ONES, rest))
        }
        6 => {
            let (headers, rest) = packet.split_first_chunk::<V6_HEADERS>()?;
            let mut bytes = [0; PREFIX + V6_HEADERS];
            bytes[PREFIX..].copy_from_slice(headers);
            Some(sum(&bytes, &V6_ONES, rest))
        }
        _ => None,
    }
}

/// [`of`] the packet in a frame whose IP header begins at `network`, for who may write there: the ones are put in their places meanwhile, so
/// that all bytes lie together.
#[must_use]
#[inline]
pub fn of_frame_in_place(frame: &mut [u8], network: usize) -> Option<[u8; 4]> {
    let prefixed = frame.get_mut(network.checked_sub(PREFIX)?..)?;
    match prefixed.get(PREFIX)? >> 4 {
        4 => sum_in_place(prefixed, &V4_ONES),
        6 => sum_in_place(prefixed, &V6_ONES),
        _ => None,
    }
}

#[inline]
fn sum_in_place<const BYTES: usize>(prefixed: &mut [u8], ones: &[u8; BYTES]) -> Option<[u8; 4]> {
    let headers = prefixed.first_chunk_mut::<BYTES>()?;
    let saved = *headers;
    for (byte, ones) in headers.iter_mut().zip(ones) {
        *byte |= ones;
    }
    let sum = crc32::update(0, prefixed);
    *prefixed.first_chunk_mut::<BYTES>()? = saved;
    Some(sum.to_le_bytes())
}

/// [`of`] the packet in a frame whose IP header begins at `network`. The station's header in front of it has room for the prefix: so
/// bytes are taken and masked a whole register at a time, as they lie.
#[must_use]
#[inline]
pub fn of_frame(frame: &[u8], network: usize) -> Option<[u8; 4]> {
    let prefixed = frame.get(network.checked_sub(PREFIX)?..)?;
    match prefixed.get(PREFIX)? >> 4 {
        4 => prefixed.split_first_chunk().map(|(headers, rest)| sum(headers, &V4_ONES, rest)),
        6 => prefixed.split_first_chunk().map(|(headers, rest)| sum(headers, &V6_ONES, rest)),
        _ => None,
    }
}

fn sum<const BYTES: usize>(headers: &[u8; BYTES], ones: &[u8; BYTES], rest: &[u8]) -> [u8; 4] {
    let mut bytes = *headers;
    for (byte, ones) in bytes.iter_mut().zip(ones) {
        *byte |= ones;
    }
    crc32::update(crc32::update(0, &bytes), rest).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::{V4_HEADERS, V4_MASKED, V6_HEADERS, V6_MASKED, ip, of, of_frame, of_frame_in_place, ones};

    /// The places of bytes that are all ones, counted from the IP header on; the eight before it are.
    fn places(ones: &[u8]) -> impl Iterator<Item = usize> {
        let (prefix, headers) = ones.split_at(8);
        assert_eq!(prefix, [0xFF; 8]);
        headers.iter().enumerate().filter(|(_, byte)| **byte == 0xFF).map(|(place, _)| place)
    }

    #[test]
    fn what_is_of_no_version_of_ip_has_none() {
        let mut frame = [0; 14 + V6_HEADERS];
        frame[14] = 0x50;
        assert_eq!((of(&frame[14..]), of_frame(&frame, 14), of_frame_in_place(&mut frame, 14)), (None, None, None));
    }

    #[test]
    fn what_routers_change_counts_as_ones() {
        let v4: [u8; 8 + V4_HEADERS] = ones(ip::V4, V4_MASKED, 0);
        // TOS, TTL, checksum; that of UDP; the byte of FECN and BECN.
        assert!(places(&v4).eq([1, 8, 10, 11, 26, 27, 32]));
        let v6: [u8; 8 + V6_HEADERS] = ones(ip::V6, V6_MASKED, 0x0F);
        assert!(places(&v6).eq([1, 2, 3, 7, 46, 47, 52]));
        assert_eq!((v4[8], v6[8]), (0, 0x0F), "the version counts as it is");
        assert_eq!(
            (v4.iter().filter(|byte| **byte != 0).count(), v6.iter().filter(|byte| **byte != 0).count()),
            (15, 16)
        );
    }
}
