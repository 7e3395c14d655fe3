//! Packet sequence numbers: 24 bits, and an order that goes round (RoCEv2 4).

/// The numbers of a stream of packets go up by one, modulo 2^24.
const MODULUS: u32 = 1 << 24;

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The number with these low 24 bits.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self(bits % MODULUS)
    }

    /// The 24 bits.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count) % MODULUS)
    }

    /// The number of the packet before.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(MODULUS - 1)
    }

    /// How many packets this one comes after `earlier`, modulo 2^24.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) % MODULUS
    }

    /// Returns true if this packet comes before `other`: by less than half the numbers.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.since(self);
        0 < ahead && ahead < MODULUS / 2
    }

    /// Returns true if this packet is one of those from `first` up to, but without, `end`.
    #[must_use]
    pub const fn is_in(self, first: Self, end: Self) -> bool {
        self.since(first) < end.since(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_goes_round() {
        let last = Psn::new(0xFF_FFFF);
        assert_eq!(last.plus(1), Psn::new(0));
        assert!(last.is_before(Psn::new(0)));
        assert!(!Psn::new(0).is_before(last));
        assert_eq!(Psn::new(3).since(last), 4);
        assert_eq!(Psn::new(0).previous(), last);
        assert!(Psn::new(1).is_in(last, Psn::new(2)));
        assert!(!Psn::new(2).is_in(last, Psn::new(2)));
        assert!(!last.is_before(last));
        assert!(last.is_before(last.plus(MODULUS / 2 - 1)));
        assert!(!last.is_before(last.plus(MODULUS / 2)));
    }
}
