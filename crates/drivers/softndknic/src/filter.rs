//! Which frames an adapter indicates: the packet filter and the multicast list.

use cable::{Kind, MacAddress};
use ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST,
    NDIS_PACKET_TYPE_PROMISCUOUS,
};

/// The filters that there are.
pub const SUPPORTED: u32 = NDIS_PACKET_TYPE_DIRECTED
    | NDIS_PACKET_TYPE_MULTICAST
    | NDIS_PACKET_TYPE_ALL_MULTICAST
    | NDIS_PACKET_TYPE_BROADCAST
    | NDIS_PACKET_TYPE_PROMISCUOUS;

/// Addresses that the multicast list may have.
pub const MAX_MULTICAST: usize = 32;

/// What an adapter indicates.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// A combination of `NDIS_PACKET_TYPE_`.
    pub types: u32,
    own: MacAddress,
    multicast: [MacAddress; MAX_MULTICAST],
    count: usize,
}

impl Filter {
    /// Nothing is indicated of what comes to an adapter with this address.
    #[must_use]
    pub const fn new(own: MacAddress) -> Self {
        Self { types: 0, own, multicast: [[0; 6]; MAX_MULTICAST], count: 0 }
    }

    /// The multicast list.
    #[must_use]
    pub fn multicast(&self) -> &[MacAddress] {
        &self.multicast[..self.count]
    }

    /// Replaces the multicast list. False, and nothing has changed, if there are more than [`MAX_MULTICAST`].
    #[must_use]
    pub fn set_multicast(&mut self, addresses: &[MacAddress]) -> bool {
        let Some(room) = self.multicast.get_mut(..addresses.len()) else { return false };
        room.copy_from_slice(addresses);
        self.count = addresses.len();
        true
    }

    /// Returns true if a frame to this address is indicated.
    #[must_use]
    pub fn accepts(&self, destination: &MacAddress) -> bool {
        let has = |kind| self.types & kind != 0;
        has(NDIS_PACKET_TYPE_PROMISCUOUS)
            || match Kind::of(destination) {
                Kind::Directed => has(NDIS_PACKET_TYPE_DIRECTED) && destination == &self.own,
                Kind::Broadcast => has(NDIS_PACKET_TYPE_BROADCAST),
                Kind::Multicast => {
                    has(NDIS_PACKET_TYPE_ALL_MULTICAST)
                        || has(NDIS_PACKET_TYPE_MULTICAST) && self.multicast().contains(destination)
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = [2, 0, 0, 0, 0, 1];
    const GROUP: MacAddress = [1, 0, 0x5E, 0, 0, 1];

    fn filter(types: u32) -> Filter {
        Filter { types, ..Filter::new(OWN) }
    }

    #[test]
    fn each_kind_of_frame_has_its_bit() {
        let other = [2, 0, 0, 0, 0, 2];
        assert!(!filter(0).accepts(&OWN));
        assert!(filter(NDIS_PACKET_TYPE_DIRECTED).accepts(&OWN));
        assert!(!filter(NDIS_PACKET_TYPE_DIRECTED).accepts(&other));
        assert!(!filter(NDIS_PACKET_TYPE_DIRECTED).accepts(&[0xFF; 6]));
        assert!(filter(NDIS_PACKET_TYPE_BROADCAST).accepts(&[0xFF; 6]));
        assert!(filter(NDIS_PACKET_TYPE_ALL_MULTICAST).accepts(&GROUP));
        assert!(filter(NDIS_PACKET_TYPE_PROMISCUOUS).accepts(&other));
    }

    #[test]
    fn the_multicast_list_counts_only_with_its_bit() {
        let mut filter = filter(NDIS_PACKET_TYPE_MULTICAST);
        assert!(!filter.accepts(&GROUP));
        assert!(filter.set_multicast(&[GROUP]));
        assert!(filter.accepts(&GROUP));
        filter.types = NDIS_PACKET_TYPE_DIRECTED;
        assert!(!filter.accepts(&GROUP));
        assert!(!filter.set_multicast(&[GROUP; MAX_MULTICAST + 1]));
        assert_eq!(filter.multicast(), [GROUP]);
    }
}
