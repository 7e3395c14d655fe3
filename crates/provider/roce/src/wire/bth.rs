//! The base transport header (RoCEv2 1): twelve bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use super::{Opcode, U24};
use crate::psn::Psn;

/// The header as it is on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    opcode: u8,
    /// Bit 7 SE, bit 6 M, bits 5-4 pad count, bits 3-0 version.
    flags: u8,
    p_key: U16,
    /// Bit 7 FECN, bit 6 BECN.
    congestion: u8,
    destination: U24,
    /// Bit 7 A.
    acknowledge: u8,
    psn: U24,
}

const SOLICITED: u8 = 1 << 7;
const MIGRATED: u8 = 1 << 6;
const VERSION: u8 = 0x0F;
const FECN: u8 = 1 << 7;
const BECN: u8 = 1 << 6;
const ACKNOWLEDGE: u8 = 1 << 7;

/// Bytes of a BTH.
pub const LENGTH: usize = size_of::<Raw>();

/// A base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the bits of the header")]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// SE: the receive that this packet completes is a solicited one.
    pub solicited: bool,
    /// M: hardware sends one, rxe zero; nothing here looks at it (RoCEv2 0.12).
    pub migrated: bool,
    /// Bytes of padding behind the payload, 0 to 3.
    pub pad: u8,
    /// The partition.
    pub p_key: u16,
    /// The packet met congestion.
    pub fecn: bool,
    /// The packet that this one answers met congestion.
    pub becn: bool,
    /// The queue pair at the receiver.
    pub destination: u32,
    /// A: the sender wants an ACK.
    pub acknowledge: bool,
    /// The packet's sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header with neither padding nor flags but M, for a packet of the default partition.
    #[must_use]
    pub const fn new(opcode: Opcode, destination: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            p_key: 0xFFFF,
            fecn: false,
            becn: false,
            destination,
            acknowledge: false,
            psn,
        }
    }

    /// The header at the front of `bytes`, and what follows it. `None` if it is none: too short, an unknown opcode, another version.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).ok()?;
        let opcode = Opcode::from_byte(raw.opcode)?;
        let header = Self {
            opcode,
            solicited: raw.flags & SOLICITED != 0,
            migrated: raw.flags & MIGRATED != 0,
            pad: raw.flags >> 4 & 3,
            p_key: raw.p_key.get(),
            fecn: raw.congestion & FECN != 0,
            becn: raw.congestion & BECN != 0,
            destination: raw.destination.get(),
            acknowledge: raw.acknowledge & ACKNOWLEDGE != 0,
            psn: Psn::new(raw.psn.get()),
        };
        (raw.flags & VERSION == 0).then_some((header, rest))
    }

    /// The bytes of the header.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let raw = Raw {
            opcode: self.opcode as u8,
            flags: bit(self.solicited, SOLICITED) | bit(self.migrated, MIGRATED) | (self.pad & 3) << 4,
            p_key: U16::new(self.p_key),
            congestion: bit(self.fecn, FECN) | bit(self.becn, BECN),
            destination: U24::new(self.destination),
            acknowledge: bit(self.acknowledge, ACKNOWLEDGE),
            psn: U24::new(self.psn.get()),
        };
        zerocopy::transmute!(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bth, Opcode, Psn};

    #[test]
    fn every_field_has_its_place() {
        let none = Bth { migrated: false, p_key: 0, ..Bth::new(Opcode::SendOnly, 0, Psn::new(0)) };
        let cases = [
            (none, [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { solicited: true, ..none }, [4, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { migrated: true, ..none }, [4, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { pad: 3, ..none }, [4, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { p_key: 0x1234, ..none }, [4, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { fecn: true, ..none }, [4, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { becn: true, ..none }, [4, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]),
            (Bth { destination: 0x12_3456, ..none }, [4, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0]),
            (Bth { acknowledge: true, ..none }, [4, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0]),
            (Bth { psn: Psn::new(0x65_4321), ..none }, [4, 0, 0, 0, 0, 0, 0, 0, 0, 0x65, 0x43, 0x21]),
        ];
        for (header, bytes) in cases {
            assert_eq!(header.to_bytes(), bytes, "{header:?}");
            assert_eq!(Bth::parse(&bytes), Some((header, &[][..])));
        }
        for version in 1..16 {
            assert_eq!(Bth::parse(&[4, version, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "version {version}");
        }
    }
}
