//! A path in a REQ: 44 bytes.

use core::net::IpAddr;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

/// The path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Path {
    /// Local identifiers of InfiniBand: all ones.
    pub local_lid: U16,
    /// The receiver's.
    pub remote_lid: U16,
    /// The sender's address.
    pub local_gid: [u8; 16],
    /// The receiver's address.
    pub remote_gid: [u8; 16],
    /// 20 bits flow label, 6 reserved, 6 packet rate.
    pub flow_and_rate: U32,
    /// TOS of IPv4.
    pub traffic_class: u8,
    /// TTL of IPv4.
    pub hop_limit: u8,
    /// Bits 7-4 service level, bit 3 subnet local.
    pub service_level: u8,
    /// Bits 7-3: the sender wants its receiver's requests repeated after this time.
    pub ack_timeout: u8,
}

/// The GID of an address (RoCEv2 8.8).
#[must_use]
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Path {
    /// No path: the alternate one of a REQ.
    pub const NONE: Self = Self {
        local_lid: U16::ZERO,
        remote_lid: U16::ZERO,
        local_gid: [0; 16],
        remote_gid: [0; 16],
        flow_and_rate: U32::ZERO,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        ack_timeout: 0,
    };

    /// The path between two addresses, over routers.
    #[must_use]
    pub fn new(local: IpAddr, remote: IpAddr, flow_label: u32, hop_limit: u8, ack_timeout: u8) -> Self {
        Self {
            local_lid: U16::new(0xFFFF),
            remote_lid: U16::new(0xFFFF),
            local_gid: gid(local),
            remote_gid: gid(remote),
            flow_and_rate: U32::new(flow_label << 12),
            hop_limit,
            ack_timeout: ack_timeout << 3,
            ..Self::NONE
        }
    }
}
