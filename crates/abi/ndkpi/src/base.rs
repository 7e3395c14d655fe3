//! The Windows types that NDKPI borrows (NDKPI 0.2).

use core::ffi::c_void;

/// A byte that is false if 0 and true otherwise; write [`TRUE`] or [`FALSE`].
pub type BOOLEAN = u8;
/// The [`BOOLEAN`] to write for true.
pub const TRUE: BOOLEAN = 1;
/// The [`BOOLEAN`] for false.
pub const FALSE: BOOLEAN = 0;

/// A value that NDIS hands out and that only NDIS and the driver it was given to can read.
pub type NDIS_HANDLE = *mut c_void;

/// A globally unique identifier.
///
/// ```
/// use ndkpi::GUID;
///
/// let id = GUID::from_u128(0x7969BA4D_DD80_4BC7_B3E6_68043997E519);
/// assert_eq!(id.Data1, 0x7969_BA4D);
/// assert_eq!(id.to_string(), "7969ba4d-dd80-4bc7-b3e6-68043997e519");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct GUID {
    /// The first eight hexadecimal digits.
    pub Data1: u32,
    /// The four digits after the first hyphen.
    pub Data2: u16,
    /// The four digits after the second hyphen.
    pub Data3: u16,
    /// The last sixteen digits, two in each byte.
    pub Data4: [u8; 8],
}

layout!(GUID: size 0x10, align 4, { Data1 @ 0x00, Data2 @ 0x04, Data3 @ 0x06, Data4 @ 0x08 });

impl GUID {
    /// The identifier whose 32 digits are those of the number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each part is cut out of the number")]
    pub const fn from_u128(digits: u128) -> Self {
        Self {
            Data1: (digits >> 96) as u32,
            Data2: (digits >> 80) as u16,
            Data3: (digits >> 64) as u16,
            Data4: (digits as u64).to_be_bytes(),
        }
    }

    /// The number with the digits of the identifier.
    #[must_use]
    pub const fn to_u128(self) -> u128 {
        (self.Data1 as u128) << 96
            | (self.Data2 as u128) << 80
            | (self.Data3 as u128) << 64
            | u64::from_be_bytes(self.Data4) as u128
    }
}

impl core::fmt::Display for GUID {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let last = u64::from_be_bytes(self.Data4);
        let (fourth, fifth) = (last >> 48, last & 0xFFFF_FFFF_FFFF);
        write!(f, "{:08x}-{:04x}-{:04x}-{fourth:04x}-{fifth:012x}", self.Data1, self.Data2, self.Data3)
    }
}

impl core::fmt::Debug for GUID {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// A set of processors within one group (NDKPI 3.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct GROUP_AFFINITY {
    /// Bit *n* stands for processor *n* of the group.
    pub Mask: usize,
    /// The number of the group.
    pub Group: u16,
    /// Zero.
    pub Reserved: [u16; 3],
}

layout!(GROUP_AFFINITY: size 0x10, align 8, { Mask @ 0x00, Group @ 0x08, Reserved @ 0x0A });

opaque! {
    /// A memory descriptor list, of which this interface passes only the address. Its layout belongs to WDM.
    MDL
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::GUID;

    #[test]
    fn a_guid_keeps_its_digits() {
        let digits = 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF;
        let id = GUID::from_u128(digits);
        assert_eq!(id.to_u128(), digits);
        assert_eq!((id.Data2, id.Data3, id.Data4[0], id.Data4[7]), (0x4455, 0x6677, 0x88, 0xFF));
        assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
