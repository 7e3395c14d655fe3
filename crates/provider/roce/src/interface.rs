//! The network interface: addresses, and the way to others.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};

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

/// Addresses that an interface may have, and more if it begins with more.
pub const NETWORKS: usize = 16;

/// The interface of a stack.
///
/// # Invariants
///
/// `networks[..count]` are its addresses.
pub struct Interface {
    pub mac: Mac,
    pub tag: Option<u16>,
    pub guid: u64,
    pub mtu: Mtu,
    networks: Box<[Network]>,
    count: usize,
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
        let none = Network { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 32 };
        let count = networks.len();
        let networks = try_slice(count.max(NETWORKS), |index| networks.get(index).copied().unwrap_or(none))?;
        Ok(Self { mac, tag, guid, mtu: Mtu::of_network(network_mtu), networks, count, gateways })
    }

    /// The interface has these addresses from now on. False, and nothing has changed, if there is no room for them.
    pub fn set_networks(&mut self, networks: &[Network]) -> bool {
        let Some(room) = self.networks.get_mut(..networks.len()) else { return false };
        room.copy_from_slice(networks);
        self.count = networks.len();
        true
    }

    fn networks(&self) -> &[Network] {
        &self.networks[..self.count]
    }

    /// Returns true if `address` is one of the interface's.
    pub fn has(&self, address: IpAddr) -> bool {
        self.networks().iter().any(|network| network.address == address)
    }

    /// Returns true if a connection may lead from `local` to `remote`: from an address of this interface to one of somebody else.
    pub fn may_connect(&self, local: IpAddr, remote: IpAddr) -> bool {
        let is_somebody = !remote.is_unspecified() && !remote.is_multicast() && !remote.is_loopback();
        self.has(local) && !self.has(remote) && remote.is_ipv4() == local.is_ipv4() && is_somebody
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
        self.networks().iter().find(|network| network.contains(address))
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

    #[test]
    fn what_is_in_no_network_goes_to_the_router_of_its_family() {
        let six = |text: &str| text.parse::<IpAddr>().expect("an address");
        let networks =
            [Network { address: [10, 0, 0, 1].into(), prefix: 24 }, Network { address: six("fd00::1"), prefix: 64 }];
        let routers = [Some([10, 0, 0, 254].into()), Some(six("fd00::fe"))];
        let with = |gateways| Interface::new([2; 6], None, 1, 1500, &networks, gateways).expect("memory");
        let interface = with(routers);
        assert_eq!(interface.next_hop([10, 0, 0, 7].into()), Some([10, 0, 0, 7].into()));
        assert_eq!(interface.next_hop([192, 0, 2, 1].into()), routers[0]);
        assert_eq!(interface.next_hop(six("2001:db8::1")), routers[1]);
        assert_eq!(with([None, routers[1]]).next_hop([192, 0, 2, 1].into()), None);
        assert_eq!(interface.address_beside(six("fd00::9")), Some(six("fd00::1")));
    }

    #[test]
    fn the_addresses_can_be_others() {
        let network = |last| Network { address: [10, 0, 0, last].into(), prefix: 24 };
        let mut interface = Interface::new([2; 6], None, 1, 1500, &[network(1)], [None; 2]).expect("memory");
        assert!(interface.set_networks(&[network(2), network(3)]));
        assert_eq!([1, 2, 3].map(|last| interface.has(network(last).address)), [false, true, true]);
        assert!(!interface.set_networks(&[network(1); NETWORKS + 1]), "no room");
        assert!(interface.has(network(2).address), "so nothing has changed");
        assert!(interface.set_networks(&[]));
        assert_eq!(interface.next_hop(network(3).address), None);
    }
}
