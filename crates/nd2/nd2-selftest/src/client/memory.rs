//! Memory.

use std::{ffi::c_void, ptr};

use nd2::abi::{HRESULT, ND2_SGE};

use super::{Client, Region, Window};
use crate::Memory;

impl Region {
    /// `Register`.
    pub fn register(&self, buffer: *const c_void, length: usize, flags: u32, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the bytes stay as long as they are registered.
        unsafe { (self.table().Register)(self.as_ptr(), buffer, length, flags, request.as_ptr()) }
    }

    /// `Deregister`.
    pub fn deregister(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().Deregister)(self.as_ptr(), request.as_ptr()) }
    }

    /// `GetLocalToken`.
    pub fn local_token(&self) -> u32 {
        // SAFETY: the object is held.
        unsafe { (self.table().GetLocalToken)(self.as_ptr()) }
    }

    /// `GetRemoteToken`.
    pub fn remote_token(&self) -> u32 {
        // SAFETY: the object is held.
        unsafe { (self.table().GetRemoteToken)(self.as_ptr()) }
    }
}

impl Window {
    /// `GetRemoteToken`.
    pub fn remote_token(&self) -> u32 {
        // SAFETY: the object is held.
        unsafe { (self.table().GetRemoteToken)(self.as_ptr()) }
    }
}

/// Registered bytes.
pub struct Piece {
    /// The region. Dropped before its bytes.
    pub region: Region,
    /// The bytes.
    pub buffer: Memory,
}

impl Piece {
    /// `length` bytes from `offset` on, for a request.
    pub fn sge(&self, offset: usize, length: u32) -> ND2_SGE {
        ND2_SGE {
            Buffer: self.buffer.pointer(offset).cast(),
            BufferLength: length,
            MemoryRegionToken: self.region.local_token(),
        }
    }

    /// The address of a byte, for a peer.
    pub fn address(&self, offset: usize) -> u64 {
        self.buffer.address(offset)
    }
}

/// A piece that names bytes at an address, registered or not.
pub const fn foreign(address: u64, length: u32, token: u32) -> ND2_SGE {
    #[expect(clippy::cast_possible_truncation, reason = "the hosts have 64 bits")]
    let place = ptr::without_provenance_mut(address as usize);
    ND2_SGE { Buffer: place, BufferLength: length, MemoryRegionToken: token }
}
