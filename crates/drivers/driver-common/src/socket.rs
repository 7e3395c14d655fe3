//! Addresses as bytes, for who is not to be given a structure.

use core::net::SocketAddr;

use ndkpi::SOCKADDR_INET;

/// The bytes of a [`SOCKADDR_INET`].
pub const BYTES: usize = 28;

const _: () = assert!(size_of::<SOCKADDR_INET>() == BYTES);

/// The bytes of the `SOCKADDR_INET` for an address.
#[must_use]
pub fn bytes(address: SocketAddr) -> [u8; BYTES] {
    let SOCKADDR_INET { Ipv6: raw } = SOCKADDR_INET::from(address);
    let mut bytes = [0; BYTES];
    bytes[..2].copy_from_slice(&raw.sin6_family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&raw.sin6_port.to_ne_bytes());
    bytes[4..8].copy_from_slice(&raw.sin6_flowinfo.to_ne_bytes());
    bytes[8..24].copy_from_slice(&raw.sin6_addr.Byte);
    bytes[24..].copy_from_slice(&raw.sin6_scope_id.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn the_family_is_in_front_and_numbers_of_the_network_are_big_endian() {
        let ipv4 = bytes("192.0.2.7:258".parse().expect("an address"));
        assert_eq!(ipv4[..8], [2, 0, 1, 2, 192, 0, 2, 7]);
        assert_eq!(ipv4[8..], [0; 20]);
        let ipv6 = bytes("[2001:db8::9]:1".parse().expect("an address"));
        assert_eq!(ipv6[..4], [23, 0, 0, 1]);
        assert_eq!((ipv6[8], ipv6[9], ipv6[23]), (0x20, 0x01, 9));
    }
}
