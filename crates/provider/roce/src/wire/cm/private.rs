//! The private data of a REQ: what RDMA_CM puts before the consumer's (RoCEv2 8.4, 8.7).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// Bytes of a REQ that are the consumer's.
pub const CONSUMER_DATA: usize = 56;

/// The private data of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReqPrivate {
    /// RDMA_CM's header.
    pub addresses: IpAddresses,
    /// The consumer's bytes.
    pub consumer: [u8; CONSUMER_DATA],
}

/// The addresses of a connection: 36 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IpAddresses {
    version: u8,
    /// High nibble: 4 or 6.
    ip_version: u8,
    source_port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}

/// An address of IPv4 lies behind twelve zeros here, which is not its GID.
fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_compatible().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl IpAddresses {
    /// From `source` to `destination`.
    #[must_use]
    pub fn new(source: SocketAddr, destination: IpAddr) -> Self {
        let ip_version = if source.is_ipv4() { 4 } else { 6 };
        Self {
            version: 0,
            ip_version: ip_version << 4,
            source_port: U16::new(source.port()),
            source: bytes_of(source.ip()),
            destination: bytes_of(destination),
        }
    }

    /// Source and destination; `None` for another version of the header or of IP.
    #[must_use]
    pub fn get(&self) -> Option<(SocketAddr, IpAddr)> {
        if self.version != 0 {
            return None;
        }
        let address = |bytes: [u8; 16]| match self.ip_version >> 4 {
            4 => {
                let (zeros, address) = bytes.split_last_chunk::<4>()?;
                (zeros == [0; 12]).then_some(IpAddr::V4(Ipv4Addr::from(*address)))
            }
            6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        };
        let source = SocketAddr::new(address(self.source)?, self.source_port.get());
        Some((source, address(self.destination)?))
    }
}

/// RDMA_CM's port space of TCP, which is that of reliable connections.
pub const PORT_SPACE_TCP: u8 = 0x06;
/// What all service ids of RDMA_CM have in their upper five bytes.
const RDMA_CM: u64 = 0x01;

/// The service id of a port.
#[must_use]
pub fn service_id(port: u16) -> u64 {
    RDMA_CM << 24 | u64::from(PORT_SPACE_TCP) << 16 | u64::from(port)
}

/// The port of a service id; `None` if it is another one than those of reliable connections of RDMA_CM.
#[must_use]
pub fn service_port(service: u64) -> Option<u16> {
    let port = (service & 0xFFFF) as u16;
    (service_id(port) == service).then_some(port)
}
