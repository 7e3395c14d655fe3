//! A packet: what the ICRC ends, from the BTH on.

use super::{Bth, Extended, bth};

/// The four bytes of an ICRC.
pub const ICRC: usize = 4;
/// The most bytes that a packet has beside its payload: BTH, extended headers, pad, ICRC.
pub const OVERHEAD: usize = bth::LENGTH + super::extended::MOST + 3 + ICRC;

/// A packet, with its payload where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'bytes> {
    /// The base transport header.
    pub bth: Bth,
    /// The headers of its opcode.
    pub extended: Extended,
    /// The payload, without the pad.
    pub payload: &'bytes [u8],
}

impl<'bytes> Packet<'bytes> {
    /// The packet in `bytes`, which end with the ICRC. `None` if it is malformed.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &'bytes [u8]) -> Option<Self> {
        let bytes = bytes.get(..bytes.len().checked_sub(ICRC)?)?;
        let (bth, rest) = Bth::parse(bytes)?;
        let (extended, rest) = Extended::parse(bth.opcode, rest)?;
        let payload = rest.get(..rest.len().checked_sub(usize::from(bth.pad))?)?;
        Some(Self { bth, extended, payload })
    }

    /// Writes the packet to the front of `bytes`, which has room for it, with zeros for the ICRC. Returns its length.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let payload = emit_headers(&self.bth, &self.extended, bytes);
        bytes[payload..][..self.payload.len()].copy_from_slice(self.payload);
        let end = payload + self.payload.len();
        let length = end + usize::from(self.bth.pad) + ICRC;
        bytes[end..length].fill(0);
        length
    }
}

/// Writes the headers of a packet to the front of `bytes`, and returns where its payload begins.
#[inline]
pub fn emit_headers(bth: &Bth, extended: &Extended, bytes: &mut [u8]) -> usize {
    bytes[..bth::LENGTH].copy_from_slice(&bth.to_bytes());
    bth::LENGTH + extended.emit(&mut bytes[bth::LENGTH..])
}
