//! The path MTU: how many bytes of payload a packet carries (RoCEv2 3).

/// A path MTU. The values are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512,
    /// 1024 bytes: what fits on Ethernet of 1500, and in VXLAN on it.
    Bytes1024,
    /// 2048 bytes.
    Bytes2048,
    /// 4096 bytes.
    Bytes4096,
}

/// What `rdma_cm` leaves for headers: GRH 40, UDP 8, BTH 12, the immediate 4, the atomic header 28, ICRC 4.
pub const HEADERS: usize = 96;

impl Mtu {
    /// All of them, the smallest first.
    pub const ALL: [Self; 5] = [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// The MTU with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code == 0 || code as usize > Self::ALL.len() { None } else { Some(Self::ALL[code as usize - 1]) }
    }

    /// The code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self.code()
    }

    /// The largest that fits in a network's packets of `bytes` (Ethernet's 1500); the smallest if none does.
    #[must_use]
    pub fn of_network(bytes: usize) -> Self {
        let fits = |mtu: &Self| mtu.bytes() as usize + HEADERS <= bytes;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::Bytes256)
    }

    /// How many packets a message of `length` bytes takes. One without bytes takes one.
    #[must_use]
    pub const fn packets(self, length: u32) -> u32 {
        if length == 0 { 1 } else { length.div_ceil(self.bytes()) }
    }

    /// Bytes of the packet `index` of a message of `length` bytes.
    #[must_use]
    pub fn payload(self, length: u32, index: u32) -> u32 {
        length.saturating_sub(index.saturating_mul(self.bytes())).min(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_of_a_network() {
        let codes = [(1500, 3), (1450, 3), (4200, 5), (9000, 5), (600, 1), (100, 1)];
        for (network, code) in codes {
            assert_eq!(Mtu::of_network(network).code(), code, "{network}");
        }
        assert_eq!(Mtu::ALL.map(Mtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!([1, 2, 3, 4, 5].map(Mtu::from_code), Mtu::ALL.map(Some));
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
    }

    #[test]
    fn a_message_is_cut_into_packets() {
        let mtu = Mtu::Bytes1024;
        assert_eq!([0, 1, 1024, 1025, 3000].map(|length| mtu.packets(length)), [1, 1, 1, 2, 3]);
        assert_eq!([0, 1, 2].map(|index| mtu.payload(3000, index)), [1024, 1024, 952]);
        assert_eq!(mtu.payload(0, 0), 0);
    }
}
