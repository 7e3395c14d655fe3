//! Logical addresses and the mapping of a buffer to them (NDKPI 3.7, NDKPI 3.8, NDKPI 7.5).

use core::ffi::c_void;

/// An address in the adapter's own space, in which it reads and writes memory (NDKPI 3.7). Not necessarily the physical
/// address of the processor.
///
/// The C type is `PHYSICAL_ADDRESS`, a signed number; as an address it is the 64 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct NDK_LOGICAL_ADDRESS {
    /// The address as the signed number that C declares.
    pub QuadPart: i64,
}

layout!(NDK_LOGICAL_ADDRESS: size 8, align 8, { QuadPart @ 0x00 });

impl NDK_LOGICAL_ADDRESS {
    /// The address with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { QuadPart: bits.cast_signed() }
    }

    /// The bits of the address.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.QuadPart.cast_unsigned()
    }
}

impl core::fmt::Debug for NDK_LOGICAL_ADDRESS {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#X}", self.to_bits())
    }
}

/// The logical pages of a buffer, in memory of the caller (NDKPI 3.8). Its length varies: the last field is the first
/// element of an array.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_LOGICAL_ADDRESS_MAPPING {
    /// Belongs to the provider; the consumer must not change it.
    pub AdapterContext: *mut c_void,
    /// The number of elements in the array.
    pub AdapterPageCount: u32,
    /// The first of `AdapterPageCount` addresses, each of a whole page; see [`Self::pages`].
    pub AdapterPageArray: [NDK_LOGICAL_ADDRESS; 1],
}

layout!(NDK_LOGICAL_ADDRESS_MAPPING: size 0x18, align 8, {
    AdapterContext @ 0x00,
    AdapterPageCount @ 0x08,
    AdapterPageArray @ 0x10,
});

impl NDK_LOGICAL_ADDRESS_MAPPING {
    /// The bytes that a mapping of this many pages takes.
    #[must_use]
    pub const fn size_for(pages: u32) -> usize {
        core::mem::offset_of!(Self, AdapterPageArray) + pages as usize * size_of::<NDK_LOGICAL_ADDRESS>()
    }

    /// The first element of the array, from which all `AdapterPageCount` elements can be reached.
    ///
    /// # Safety
    ///
    /// `this` must point to a mapping of [`size_for`](Self::size_for) its number of pages.
    #[must_use]
    pub const unsafe fn pages(this: *mut Self) -> *mut NDK_LOGICAL_ADDRESS {
        // SAFETY: the caller gives a mapping, so the field is within its memory. No reference is made, so the pointer
        // keeps the right to all of the memory.
        unsafe { (&raw mut (*this).AdapterPageArray).cast() }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::{NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING};

    #[test]
    fn a_mapping_takes_sixteen_bytes_and_eight_for_each_page() {
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(0), 0x10);
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(1), size_of::<NDK_LOGICAL_ADDRESS_MAPPING>());
        assert_eq!(NDK_LOGICAL_ADDRESS_MAPPING::size_for(u32::MAX), 0x10 + 8 * 0xFFFF_FFFF);
    }

    #[test]
    fn every_page_of_a_mapping_is_reached_from_the_first() {
        let mut memory = vec![0_u64; NDK_LOGICAL_ADDRESS_MAPPING::size_for(3) / 8];
        let mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING = memory.as_mut_ptr().cast();
        // SAFETY: the memory has room for three pages.
        let pages = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(mapping) };
        for index in 0..3 {
            // SAFETY: the index is below three.
            let page = unsafe { pages.add(index) };
            // SAFETY: the element is within the memory.
            unsafe { page.write(NDK_LOGICAL_ADDRESS::from_bits(0x1000 * (index as u64 + 1))) };
        }
        assert_eq!(memory[2..], [0x1000, 0x2000, 0x3000]);
    }
}
