//! Three bytes, the highest first.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An unsigned number of 24 bits on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        let [_, bytes @ ..] = value.to_be_bytes();
        Self(bytes)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        let [high, middle, low] = self.0;
        u32::from_be_bytes([0, high, middle, low])
    }
}
