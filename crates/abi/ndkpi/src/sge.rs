//! Scatter/gather entries (NDKPI 3.9).

use core::ffi::c_void;

use crate::NDK_LOGICAL_ADDRESS;

/// A piece of memory of a work request (NDKPI 3.9).
///
/// The token decides what the address is (NDKPI 7.5): with the privileged token of the protection domain it is a logical
/// address, with any other token a virtual address within the region of that token. In an inline request the token is
/// ignored and the address is one the processor can read.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NDK_SGE {
    /// The address, of either kind. In C the two are members of the entry itself.
    pub Address: NDK_SGE_ADDRESS,
    /// The number of bytes.
    pub Length: u32,
    /// The token of the memory region, or the privileged token.
    pub MemoryRegionToken: u32,
}

layout!(NDK_SGE: size 0x10, align 8, { Address @ 0x00, Length @ 0x08, MemoryRegionToken @ 0x0C });

/// The address of an [`NDK_SGE`]: eight bytes that are either a virtual or a logical address.
#[derive(Clone, Copy)]
#[repr(C)]
pub union NDK_SGE_ADDRESS {
    /// An address within the region of the entry's token, or of inline data.
    pub VirtualAddress: *mut c_void,
    /// An address that the adapter uses, with the privileged token.
    pub LogicalAddress: NDK_LOGICAL_ADDRESS,
}

const _: () = assert!(size_of::<NDK_SGE_ADDRESS>() == 8 && align_of::<NDK_SGE_ADDRESS>() == 8);

impl NDK_SGE {
    /// An entry of virtual memory: `length` bytes at `address` within the region of `token`.
    #[must_use]
    pub const fn new(address: *mut c_void, length: u32, token: u32) -> Self {
        Self { Address: NDK_SGE_ADDRESS { VirtualAddress: address }, Length: length, MemoryRegionToken: token }
    }

    /// An entry of logical memory: `length` bytes at `address`, with the privileged token of the protection domain.
    #[must_use]
    pub const fn logical(address: NDK_LOGICAL_ADDRESS, length: u32, privileged_token: u32) -> Self {
        let address = NDK_SGE_ADDRESS { LogicalAddress: address };
        Self { Address: address, Length: length, MemoryRegionToken: privileged_token }
    }

    /// The address as a virtual one.
    #[must_use]
    pub const fn virtual_address(&self) -> *mut c_void {
        // SAFETY: both members fill the union, and every eight bytes are a valid value of a raw pointer.
        unsafe { self.Address.VirtualAddress }
    }

    /// The address as a logical one.
    #[must_use]
    pub const fn logical_address(&self) -> NDK_LOGICAL_ADDRESS {
        // SAFETY: both members fill the union, and every eight bytes are a valid value of a logical address.
        unsafe { self.Address.LogicalAddress }
    }
}

impl core::fmt::Debug for NDK_SGE {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NDK_SGE")
            .field("Address", &self.logical_address())
            .field("Length", &self.Length)
            .field("MemoryRegionToken", &self.MemoryRegionToken)
            .finish()
    }
}

impl core::fmt::Debug for NDK_SGE_ADDRESS {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NDK_SGE_ADDRESS").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::NDK_SGE;
    use crate::NDK_LOGICAL_ADDRESS;

    #[test]
    fn an_entry_gives_back_the_address_it_was_made_with() {
        let mut data = [0_u8; 3];
        let address = data.as_mut_ptr().cast();
        let entry = NDK_SGE::new(address, 3, 9);
        assert!(core::ptr::eq(entry.virtual_address(), address));
        assert_eq!((entry.Length, entry.MemoryRegionToken), (3, 9));

        let address = NDK_LOGICAL_ADDRESS::from_bits(0xFFFF_8000_1234_5000);
        let entry = NDK_SGE::logical(address, 0x1000, 1);
        assert_eq!(entry.logical_address(), address);
        assert_eq!((entry.Length, entry.MemoryRegionToken), (0x1000, 1));
    }
}
