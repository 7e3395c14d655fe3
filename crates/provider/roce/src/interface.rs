//! The network interface: addresses, and the way to others.

use alloc::boxed::Box;
use core::net::IpAddr;

use fallible::{AllocError, try_slice};

use crate::{mtu::Mtu, wire::Mac};

/// An address of the interface, and the network that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// How many leading bits all addresses of the network have in common.
    pub prefix: u8,
}

impl Network {
    /// Returns true if `other` is in the network.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let differing = match (self.address, other) {
            (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        differing >= self.prefix.into()
    }
}

/// The interface of a stack.
pub struct Interface {
    pub mac: Mac,
    pub tag: Option<u16>,
    pub guid: u64,
    pub mtu: Mtu,
    networks: Box<[Network]>,
    gateways: [Option<IpAddr>; 2],
}

impl Interface {
    pub fn new(
        mac: Mac,
        tag: Option<u16>,
        guid: u64,
        network_mtu: usize,
        networks: &[Network],
        gateways: [Option<IpAddr>; 2],
    ) -> Result<Self, AllocError> {
        let networks = try_slice(networks.len(), |index| networks[index])?;
        Ok(Self { mac, tag, guid, mtu: Mtu::of_network(network_mtu), networks, gateways })
    }

    /// Returns true if `address` is one of the interface's.
    pub fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.address == address)
    }

    /// Whose MAC address frames to `address` carry; `None` without a route.
    pub fn next_hop(&self, address: IpAddr) -> Option<IpAddr> {
        if self.network_of(address).is_some() {
            return Some(address);
        }
        let gateway = |gateway: &&IpAddr| gateway.is_ipv4() == address.is_ipv4();
        self.gateways.iter().flatten().find(gateway).copied()
    }

    /// The interface's address in the network of `address`.
    pub fn address_beside(&self, address: IpAddr) -> Option<IpAddr> {
        self.network_of(address).map(|network| network.address)
    }

    fn network_of(&self, address: IpAddr) -> Option<&Network> {
        self.networks.iter().find(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_begins_alike() {
        let network = Network { address: [10, 0, 0, 2].into(), prefix: 24 };
        assert!(network.contains([10, 0, 0, 255].into()));
        assert!(!network.contains([10, 0, 1, 2].into()));
        assert!(!network.contains("fd00::1".parse().expect("an address")));
        let all = Network { prefix: 0, ..network };
        assert!(all.contains([192, 168, 0, 1].into()));
    }
}
