//! Socket addresses as NDKPI passes them: a pointer to a [`SOCKADDR`] and a length in bytes (NDKPI 0.2).
//!
//! Ports and IPv4 addresses are in network byte order inside the structures. [`SOCKADDR_INET`] converts to and from
//! [`SocketAddr`]:
//!
//! ```
//! use core::net::{Ipv4Addr, SocketAddr};
//!
//! use ndkpi::{AF_INET, SOCKADDR_INET};
//!
//! let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 5445));
//! let raw = SOCKADDR_INET::from(address);
//! assert_eq!((raw.family(), raw.length()), (AF_INET, 16));
//! assert_eq!(raw.to_socket_addr(), Some(address));
//! ```

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The address family of a structure that holds no address.
pub const AF_UNSPEC: u16 = 0;
/// The address family of IPv4.
pub const AF_INET: u16 = 2;
/// The address family of IPv6.
pub const AF_INET6: u16 = 23;

/// A socket address of any family: a pointer to it points to a [`SOCKADDR_IN`] or a [`SOCKADDR_IN6`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SOCKADDR {
    /// Which family the address is of, and so how long it is.
    pub sa_family: u16,
    /// The beginning of the address.
    pub sa_data: [u8; 14],
}

layout!(SOCKADDR: size 0x10, align 2, { sa_family @ 0x00, sa_data @ 0x02 });

/// An IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct IN_ADDR {
    /// The four bytes, in network byte order.
    pub S_addr: u32,
}

layout!(IN_ADDR: size 4, align 4, { S_addr @ 0x00 });

/// An IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(2))]
pub struct IN6_ADDR {
    /// The sixteen bytes, in network byte order. In C also an array of eight words.
    pub Byte: [u8; 16],
}

layout!(IN6_ADDR: size 0x10, align 2, { Byte @ 0x00 });

/// An IPv4 address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SOCKADDR_IN {
    /// [`AF_INET`].
    pub sin_family: u16,
    /// The port, in network byte order.
    pub sin_port: u16,
    /// The address.
    pub sin_addr: IN_ADDR,
    /// Zero.
    pub sin_zero: [u8; 8],
}

layout!(SOCKADDR_IN: size 0x10, align 4, {
    sin_family @ 0x00,
    sin_port @ 0x02,
    sin_addr @ 0x04,
    sin_zero @ 0x08,
});

/// An IPv6 address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SOCKADDR_IN6 {
    /// [`AF_INET6`].
    pub sin6_family: u16,
    /// The port, in network byte order.
    pub sin6_port: u16,
    /// The flow label, in network byte order.
    pub sin6_flowinfo: u32,
    /// The address.
    pub sin6_addr: IN6_ADDR,
    /// The zone of the address; a plain number.
    pub sin6_scope_id: u32,
}

layout!(SOCKADDR_IN6: size 0x1C, align 4, {
    sin6_family @ 0x00,
    sin6_port @ 0x02,
    sin6_flowinfo @ 0x04,
    sin6_addr @ 0x08,
    sin6_scope_id @ 0x18,
});

/// An IPv4 or IPv6 address and port, in the space of the longer one.
///
/// In C it is a union. Here it is the longer of its members, so that all 28 bytes always have a value and reading an
/// address of either family is safe; [`Self::ipv4`] is the other member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SOCKADDR_INET {
    /// All bytes of the address, in the shape of an IPv6 address.
    pub Ipv6: SOCKADDR_IN6,
}

layout!(SOCKADDR_INET: size 0x1C, align 4, { Ipv6 @ 0x00 });

impl SOCKADDR_INET {
    /// A structure of zeros, which holds no address.
    pub const UNSPECIFIED: Self = Self {
        Ipv6: SOCKADDR_IN6 {
            sin6_family: AF_UNSPEC,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: IN6_ADDR { Byte: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// The address family, at the same place in all members of the union.
    #[must_use]
    pub const fn family(&self) -> u16 {
        self.Ipv6.sin6_family
    }

    /// The first sixteen bytes, in the shape of an IPv4 address.
    #[must_use]
    pub fn ipv4(&self) -> SOCKADDR_IN {
        let mut zero = [0; 8];
        zero.copy_from_slice(&self.Ipv6.sin6_addr.Byte[..8]);
        SOCKADDR_IN {
            sin_family: self.Ipv6.sin6_family,
            sin_port: self.Ipv6.sin6_port,
            sin_addr: IN_ADDR { S_addr: self.Ipv6.sin6_flowinfo },
            sin_zero: zero,
        }
    }

    /// The bytes that an address of this family takes: 16, 28, or 0 if it is of neither family.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "16 and 28")]
    pub const fn length(&self) -> u32 {
        match self.family() {
            AF_INET => size_of::<SOCKADDR_IN>() as u32,
            AF_INET6 => size_of::<SOCKADDR_IN6>() as u32,
            _ => 0,
        }
    }

    /// The address to pass to a function, good for [`length`](Self::length) bytes.
    #[must_use]
    pub const fn as_ptr(&self) -> *const SOCKADDR {
        (&raw const *self).cast()
    }

    /// The address and port, or `None` if it is of neither family.
    #[must_use]
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        match self.family() {
            AF_INET => {
                let v4 = self.ipv4();
                let address = Ipv4Addr::from(v4.sin_addr.S_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(address, u16::from_be(v4.sin_port))))
            }
            AF_INET6 => {
                let v6 = &self.Ipv6;
                let address = Ipv6Addr::from(v6.sin6_addr.Byte);
                let (port, flow) = (u16::from_be(v6.sin6_port), u32::from_be(v6.sin6_flowinfo));
                Some(SocketAddr::V6(SocketAddrV6::new(address, port, flow, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }

    /// Copies the address that a caller passed as a pointer and a length. `None` if the pointer is null, the family is
    /// neither IPv4 nor IPv6, or the length is too small for the family.
    ///
    /// # Safety
    ///
    /// A pointer that is not null must be good for reading `length` bytes. It need not be aligned.
    #[must_use]
    pub unsafe fn read(address: *const SOCKADDR, length: u32) -> Option<Self> {
        let length = length as usize;
        if address.is_null() || length < size_of::<u16>() {
            return None;
        }
        // SAFETY: the pointer is good for the two bytes of the family, which come first.
        let family = unsafe { address.cast::<u16>().read_unaligned() };
        match family {
            AF_INET if length >= size_of::<SOCKADDR_IN>() => {
                // SAFETY: the length covers the structure, and every value of its bytes is valid.
                Some(unsafe { address.cast::<SOCKADDR_IN>().read_unaligned() }.into())
            }
            AF_INET6 if length >= size_of::<SOCKADDR_IN6>() => {
                // SAFETY: the length covers the structure, and every value of its bytes is valid.
                Some(unsafe { address.cast::<SOCKADDR_IN6>().read_unaligned() }.into())
            }
            _ => None,
        }
    }
}

impl From<SOCKADDR_IN> for SOCKADDR_INET {
    fn from(v4: SOCKADDR_IN) -> Self {
        let mut address = IN6_ADDR::default();
        address.Byte[..8].copy_from_slice(&v4.sin_zero);
        Self {
            Ipv6: SOCKADDR_IN6 {
                sin6_family: v4.sin_family,
                sin6_port: v4.sin_port,
                sin6_flowinfo: v4.sin_addr.S_addr,
                sin6_addr: address,
                sin6_scope_id: 0,
            },
        }
    }
}

impl From<SOCKADDR_IN6> for SOCKADDR_INET {
    fn from(v6: SOCKADDR_IN6) -> Self {
        Self { Ipv6: v6 }
    }
}

impl From<SocketAddr> for SOCKADDR_INET {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: v4.port().to_be(),
                sin_addr: IN_ADDR { S_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }
            .into(),
            SocketAddr::V6(v6) => SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo().to_be(),
                sin6_addr: IN6_ADDR { Byte: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }
            .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{net::SocketAddr, ptr};

    use super::*;

    fn addresses() -> [SocketAddr; 2] {
        let v6 = SocketAddrV6::new(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0x0102, 0x0304), 0xABCD, 0x12345, 7);
        [SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0xABCD)), SocketAddr::V6(v6)]
    }

    /// The bytes of an address, one byte away from any alignment the structures ask for.
    fn unaligned(address: &SOCKADDR_INET) -> [u8; 29] {
        let mut bytes = [0xEE; 29];
        // SAFETY: both places are 28 bytes long and do not overlap, and the address has no padding.
        unsafe { ptr::copy_nonoverlapping((&raw const *address).cast::<u8>(), bytes.as_mut_ptr().wrapping_add(1), 28) };
        bytes
    }

    #[test]
    fn addresses_of_both_families_survive_the_conversion() {
        for address in addresses() {
            let raw = SOCKADDR_INET::from(address);
            assert_eq!(raw.to_socket_addr(), Some(address));
            assert_eq!(raw.length(), if address.is_ipv4() { 16 } else { 28 });
        }
    }

    #[test]
    fn ports_and_addresses_are_in_network_byte_order() {
        for address in addresses() {
            let bytes = unaligned(&SOCKADDR_INET::from(address));
            assert_eq!(bytes[3..5], [0xAB, 0xCD]);
            match address {
                SocketAddr::V4(_) => assert_eq!(bytes[5..9], [192, 0, 2, 1]),
                SocketAddr::V6(v6) => assert_eq!(bytes[9..25], v6.ip().octets()),
            }
        }
    }

    #[test]
    fn an_address_is_read_from_any_place_that_is_long_enough() {
        for address in addresses() {
            let raw = SOCKADDR_INET::from(address);
            let bytes = unaligned(&raw);
            let place: *const SOCKADDR = bytes.as_ptr().wrapping_add(1).cast();
            for length in 0..=28 {
                // SAFETY: 28 bytes follow the first one.
                let read = unsafe { SOCKADDR_INET::read(place, length) };
                assert_eq!(read, (length >= raw.length()).then_some(raw));
            }
        }
    }

    #[test]
    fn no_address_is_read_from_null_or_of_another_family() {
        // SAFETY: the pointer is null.
        assert_eq!(unsafe { SOCKADDR_INET::read(ptr::null(), 128) }, None);
        for family in [AF_UNSPEC, 1, 3, u16::MAX] {
            let mut raw = SOCKADDR_INET::UNSPECIFIED;
            raw.Ipv6.sin6_family = family;
            // SAFETY: the address is 28 bytes long.
            assert_eq!(unsafe { SOCKADDR_INET::read(raw.as_ptr(), 28) }, None);
            assert_eq!((raw.length(), raw.to_socket_addr()), (0, None));
        }
    }

    #[test]
    fn the_ipv4_member_is_the_first_sixteen_bytes() {
        let v4 = SOCKADDR_IN {
            sin_family: AF_INET,
            sin_port: 0x1122,
            sin_addr: IN_ADDR { S_addr: 0x3344_5566 },
            sin_zero: [1, 2, 3, 4, 5, 6, 7, 8],
        };
        let raw = SOCKADDR_INET::from(v4);
        assert_eq!(raw.ipv4(), v4);
        let bytes = unaligned(&raw);
        // SAFETY: the bytes after the first are a whole structure.
        assert_eq!(unsafe { bytes.as_ptr().wrapping_add(1).cast::<SOCKADDR_IN>().read_unaligned() }, v4);
    }
}
