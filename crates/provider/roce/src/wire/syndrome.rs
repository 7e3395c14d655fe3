//! What an AETH says (RoCEv2 5.2).

/// The syndrome of an ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All is well up to this packet. Credits are not looked at (RoCEv2 5.4).
    Ack,
    /// No receive is there: come back after the time of this code.
    RnrNak(u8),
    /// Not what was asked for.
    Nak(Nak),
    /// Nothing that is defined.
    Reserved,
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Nak {
    /// 0x60: packets before it are missing.
    Sequence = 0,
    /// 0x61: a message that cannot be: its packets, its length, an operation that is not allowed.
    InvalidRequest = 1,
    /// 0x62: the remote token does not allow it.
    RemoteAccess = 2,
    /// 0x63: the responder could not carry it out.
    RemoteOperation = 3,
}

/// No credits are counted.
const NO_CREDITS: u8 = 0x1F;

impl Syndrome {
    /// What this byte means.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        let low = byte & 0x1F;
        match (byte >> 5, low) {
            (0, _) => Self::Ack,
            (1, code) => Self::RnrNak(code),
            (3, 0) => Self::Nak(Nak::Sequence),
            (3, 1) => Self::Nak(Nak::InvalidRequest),
            (3, 2) => Self::Nak(Nak::RemoteAccess),
            (3, 3) => Self::Nak(Nak::RemoteOperation),
            _ => Self::Reserved,
        }
    }

    /// The byte that means this.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack => NO_CREDITS,
            Self::RnrNak(code) => 0x20 | code & 0x1F,
            Self::Nak(nak) => 0x60 | nak as u8,
            Self::Reserved => 0x7F,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Nak, Syndrome};

    #[test]
    fn every_byte_has_its_meaning() {
        for low in 0..32 {
            assert_eq!(Syndrome::from_byte(low), Syndrome::Ack);
            assert_eq!(Syndrome::from_byte(0x20 + low), Syndrome::RnrNak(low));
            assert_eq!(Syndrome::RnrNak(low).to_byte(), 0x20 + low);
            assert_eq!(Syndrome::from_byte(0x40 + low), Syndrome::Reserved);
            for high in [0x80, 0xA0, 0xC0, 0xE0] {
                assert_eq!(Syndrome::from_byte(high + low), Syndrome::Reserved);
            }
        }
        let naks = [Nak::Sequence, Nak::InvalidRequest, Nak::RemoteAccess, Nak::RemoteOperation];
        for (byte, nak) in (0x60..).zip(naks) {
            assert_eq!(Syndrome::from_byte(byte), Syndrome::Nak(nak));
            assert_eq!(Syndrome::Nak(nak).to_byte(), byte);
        }
        assert!((0x64..0x80).all(|byte| Syndrome::from_byte(byte) == Syndrome::Reserved));
        assert_eq!(
            (Syndrome::Ack.to_byte(), Syndrome::from_byte(Syndrome::Reserved.to_byte())),
            (0x1F, Syndrome::Reserved)
        );
    }
}
