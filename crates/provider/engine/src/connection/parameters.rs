//! The parameters of connections: what the layers above set, and what the two sides agree on.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use fallible::try_slice;
use ntstatus::NtStatus;

//= NDKPI 7.7.3
/// The most reads in progress on a queue pair (`NDKPI 7.7.3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Reads of the peer.
    pub inbound: u32,
    /// The consumer's own reads.
    pub outbound: u32,
}

impl ReadLimits {
    /// These limits, cut to those of the adapter.
    pub(super) fn capped(self, adapter: Self) -> Self {
        Self { inbound: self.inbound.min(adapter.inbound), outbound: self.outbound.min(adapter.outbound) }
    }

    /// These limits, cut to what the other side has: what one side may send, the other must take.
    pub(super) fn against(self, peer: Self) -> Self {
        Self { inbound: self.inbound.min(peer.outbound), outbound: self.outbound.min(peer.inbound) }
    }
}

/// What an adapter allows its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Bytes of private data of a connect (`MaxCallerData`).
    pub max_caller_data: u32,
    /// Bytes of private data of an accept or a reject (`MaxCalleeData`).
    pub max_callee_data: u32,
    /// The read limits of a queue pair (`MaxInboundReadLimit`, `MaxOutboundReadLimit`).
    pub max_reads: ReadLimits,
    /// Connection requests that a listener holds before its consumer has accepted, rejected or closed them. NDKPI has no
    /// parameter for it, only the status of a connect that meets the limit (`NDKPI 5.8`).
    pub backlog: u32,
    /// The adapter connects to itself (`NDKPI 2.6`: `LOOPBACK_CONNECTIONS_SUPPORTED`).
    pub loopback: bool,
}

/// How long the provider waits for the other side, in microseconds. NDKPI leaves this to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a connect until the peer has accepted or rejected.
    pub connect: u64,
    /// From an accept until the active side has completed the connect.
    pub establish: u64,
    /// From a disconnect until everything that was posted before it has ended.
    pub disconnect: u64,
}

/// An address of an adapter with the length of its network's prefix and its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix, in bits. Decides only how a connect to an address of no adapter fails: host or
    /// network unreachable.
    pub prefix: u8,
    /// The scope id by which the operating system names the interface's link, for an address that means something on that link
    /// only: `fe80::/10`. Zero if there is no such number; other addresses have none.
    pub scope: u32,
}

impl InterfaceAddress {
    /// An address without a scope id.
    #[must_use]
    pub const fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix, scope: 0 }
    }

    /// The address, with a scope id if it is one that can have it.
    #[must_use]
    pub const fn in_scope(self, scope: u32) -> Self {
        if is_of_link(self.address) { Self { scope, ..self } } else { self }
    }

    /// The address for a port number, in the zone that a consumer has named, if the interface has no number for that itself. `None` if
    /// the consumer has named another zone than the interface's.
    pub(super) fn endpoint(&self, port: u16, named: u32) -> Option<SocketAddr> {
        let scope = common_scope(self.scope, named)?;
        Some(in_scope(SocketAddr::new(self.address, port), scope))
    }

    /// Returns true if it can be the address of one adapter.
    pub(super) const fn is_valid(&self) -> bool {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        names_one_host(self.address) && self.prefix <= longest
    }

    /// Returns true if `other` lies in this address's network.
    pub(super) const fn has_in_network(&self, other: IpAddr) -> bool {
        let (own, other, bits) = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() as u128, other.to_bits() as u128, 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        // A shift by all 128 bits leaves nothing to differ.
        matches!((own ^ other).checked_shr(bits - self.prefix as u32), None | Some(0))
    }
}

/// Returns true if `address` is one that a single host can have.
pub(super) const fn names_one_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// Returns true if the address means something on its link only, so that it needs a scope id to say which link that is.
const fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The scope id of an address; zero without one. It says something of addresses of a link only.
pub(super) const fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) if is_of_link(address.ip()) => v6.scope_id(),
        _ => 0,
    }
}

/// The address with this scope id, if it is of a link, and without a flow label, which means nothing on a fabric without routers.
pub(super) const fn in_scope(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if is_of_link(address.ip()) => {
            SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope))
        }
        _ => SocketAddr::new(address.ip(), address.port()),
    }
}

/// The zone that two scope ids name, of which a zero says nothing; `None` if they name different ones.
pub(super) const fn common_scope(one: u32, other: u32) -> Option<u32> {
    match (one, other) {
        (0, scope) | (scope, 0) => Some(scope),
        _ if one == other => Some(one),
        _ => None,
    }
}

/// Who an object belongs to, for listings (`NDIS_NDK_CONNECTION_ENTRY`, `NDIS_NDK_LOCAL_ENDPOINT_ENTRY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The process of a user-mode consumer; `None` for a driver.
    pub process: Option<u32>,
}

/// What a connect asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParameters<'a> {
    /// The listener's address.
    pub remote: SocketAddr,
    /// The reads that the consumer wants.
    pub reads: ReadLimits,
    /// What the passive side gets to read.
    pub private_data: &'a [u8],
}

/// What [`Connector::connection_data`](super::Connector::connection_data) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// The effective read limits (`NDKPI 7.7.3`).
    pub reads: ReadLimits,
    /// Bytes of private data that there are to copy: RDS, the required size (`NDKPI 7.7.4`).
    pub required: usize,
}

/// Private data as it travels: a block of the size that the sender's adapter allows, zero after what the consumer gave.
///
/// That is why the receiver cannot tell how much was sent (`NDKPI 7.7.4`).
pub(super) struct PrivateData(Box<[u8]>);

impl PrivateData {
    /// A block of `size` bytes that begins with `bytes`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_BUFFER_SIZE` if they are more than that, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(bytes: &[u8], size: u32) -> Result<Self, NtStatus> {
        let size = size as usize;
        if bytes.len() > size {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        try_slice(size, |index| bytes.get(index).copied().unwrap_or(0)).map(Self).map_err(Into::into)
    }

    /// Copies what fits. Returns how much there is.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let fits = self.0.len().min(into.len());
        into[..fits].copy_from_slice(&self.0[..fits]);
        self.0.len()
    }
}
