//! Ethernet frames, as far as a cable looks at them.

/// A hardware address.
pub type MacAddress = [u8; 6];

/// Bytes of an Ethernet header.
pub const HEADER_BYTES: usize = 14;

/// Bytes of the tag of 802.1Q, which stands behind the addresses.
pub const TAG_BYTES: usize = 4;

/// The address of everybody.
pub const BROADCAST: MacAddress = [0xFF; 6];

/// A kind of frame, by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To one station.
    Directed,
    /// To a group.
    Multicast,
    /// To everybody.
    Broadcast,
}

impl Kind {
    /// The kind of a frame to this address.
    #[must_use]
    pub fn of(destination: &MacAddress) -> Self {
        match destination {
            &BROADCAST => Self::Broadcast,
            [first, ..] if first & 1 != 0 => Self::Multicast,
            _ => Self::Directed,
        }
    }
}

/// Returns true if a station can have the address: one that is not a group's, and not all zeroes.
#[must_use]
pub fn is_station(address: &MacAddress) -> bool {
    Kind::of(address) == Kind::Directed && address != &[0; 6]
}

#[cfg(test)]
mod tests {
    use super::{Kind, is_station};

    #[test]
    fn the_first_bit_on_the_wire_tells_groups_from_stations() {
        assert_eq!(Kind::of(&[2, 0x4E, 0x44, 0, 0, 1]), Kind::Directed);
        assert_eq!(Kind::of(&[1, 0, 0x5E, 0, 0, 1]), Kind::Multicast);
        assert_eq!(Kind::of(&[0xFF; 6]), Kind::Broadcast);
        assert!(is_station(&[2, 0, 0, 0, 0, 0]));
        assert!(!is_station(&[0; 6]) && !is_station(&[0xFF; 6]) && !is_station(&[3, 0, 0, 0, 0, 0]));
    }
}
