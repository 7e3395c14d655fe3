//! UDP.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// The port of RoCEv2.
pub const ROCE: u16 = 4791;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    source: U16,
    destination: U16,
    length: U16,
    checksum: U16,
}

/// Bytes of the header.
pub const LENGTH: usize = size_of::<Raw>();

/// The ports of a datagram. Its checksum is zero, which means none: the ICRC covers more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// From this port.
    pub source: u16,
    /// To this port.
    pub destination: u16,
}

impl Udp {
    /// The header at the front of `bytes`, and its payload.
    ///
    /// A checksum is not looked at: no byte it covers is used without the ICRC having been right.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).ok()?;
        let payload = rest.get(..usize::from(raw.length.get()).checked_sub(LENGTH)?)?;
        Some((Self { source: raw.source.get(), destination: raw.destination.get() }, payload))
    }

    /// Writes the header to the front of `bytes`, which has room for it, for `payload` bytes. Returns its length.
    ///
    /// # Panics
    ///
    /// If the payload has 64 KiB or more.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8], payload: usize) -> usize {
        let raw = Raw {
            source: U16::new(self.source),
            destination: U16::new(self.destination),
            length: U16::new(u16::try_from(LENGTH + payload).expect("a datagram of at most 64 KiB")),
            checksum: U16::ZERO,
        };
        bytes[..LENGTH].copy_from_slice(raw.as_bytes());
        LENGTH
    }
}
