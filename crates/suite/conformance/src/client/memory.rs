//! Buffers, and the regions that are made of them.

use alloc::{boxed::Box, vec::Vec};
use core::ptr;

use ndkpi::{
    MDL, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK, NDK_SGE,
};

use super::{mr::Mr, pd::PdCore, session::Session};
use crate::{
    case::{Check, Stop},
    platform::{CaseMemory, Shape},
};

/// The bytes of a page (`NDKPI 7.4`).
pub const PAGE: usize = 4096;

/// All rights that a normal region can have.
pub const ALL_RIGHTS: u32 = NDK_MR_FLAG_ALLOW_LOCAL_WRITE
    | NDK_MR_FLAG_ALLOW_REMOTE_READ
    | NDK_MR_FLAG_ALLOW_REMOTE_WRITE
    | NDK_MR_FLAG_RDMA_READ_SINK;

/// Pinned bytes, kept until the session ends. They may change at any time, so they are only copied.
pub struct Buffer {
    memory: Box<dyn CaseMemory>,
}

impl Buffer {
    /// `length` bytes described by one MDL.
    ///
    /// # Errors
    ///
    /// The case is inconclusive if there is no memory.
    pub fn new<'s>(session: &'s Session<'s>, length: usize) -> Check<&'s Self> {
        Self::with_shape(session, Shape::Whole, length)
    }

    /// `length` bytes described in some way.
    ///
    /// # Errors
    ///
    /// The case is inconclusive if there is no memory.
    pub fn with_shape<'s>(session: &'s Session<'s>, shape: Shape, length: usize) -> Check<&'s Self> {
        let memory = session
            .platform()
            .case_memory(shape, length)
            .map_err(|status| Stop::skipped(format_args!("no buffer of {length} bytes: {status}")))?;
        session.own(Self { memory })
    }

    /// The description.
    pub(super) fn mdl(&self) -> *mut MDL {
        self.memory.mdl()
    }

    /// The number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.memory.length()
    }

    /// The virtual address of the byte at `offset`, which may be outside, as a peer knows it, once it is registered or mapped.
    #[must_use]
    pub fn address(&self, offset: isize) -> u64 {
        self.memory.peer_address().wrapping_add_signed(offset as i64)
    }

    fn pointer(&self, offset: usize, length: usize) -> Check<*mut u8> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.length()) {
            fail!("the case uses bytes {offset}+{length} of a buffer of {}", self.length());
        }
        Ok(self.memory.address().wrapping_add(offset))
    }

    /// Copies bytes into the buffer.
    ///
    /// # Errors
    ///
    /// They do not fit: the case is wrong.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Check {
        let to = self.pointer(offset, bytes.len())?;
        // SAFETY: the buffer has that many bytes from there on, valid for writing, and `bytes` are not in it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.memory.written(offset, bytes.len());
        Ok(())
    }

    /// Sets bytes to one value.
    ///
    /// # Errors
    ///
    /// They are not all there: the case is wrong.
    pub fn fill(&self, offset: usize, length: usize, value: u8) -> Check {
        let to = self.pointer(offset, length)?;
        // SAFETY: the buffer has that many bytes from there on, valid for writing.
        unsafe { to.write_bytes(value, length) };
        self.memory.written(offset, length);
        Ok(())
    }

    /// Sets bytes to a pattern that differs from place to place and from seed to seed.
    ///
    /// # Errors
    ///
    /// They are not all there: the case is wrong.
    pub fn fill_pattern(&self, offset: usize, length: usize, seed: u8) -> Check {
        let mut chunk = [0_u8; 256];
        let mut done = 0;
        while done < length {
            let part = chunk.len().min(length - done);
            for (index, byte) in chunk[..part].iter_mut().enumerate() {
                *byte = pattern(done + index, seed);
            }
            self.write(offset + done, &chunk[..part])?;
            done += part;
        }
        Ok(())
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Errors
    ///
    /// They are not all there: the case is wrong.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Check {
        let from = self.pointer(offset, into.len())?;
        self.memory.to_be_read(offset, into.len());
        // SAFETY: the buffer has that many bytes from there on, valid for reading, and `into` is not in it.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Returns true if the byte at `offset` has the value now, while the provider may be writing to it.
    ///
    /// # Errors
    ///
    /// It is not there: the case is wrong.
    pub fn holds(&self, offset: usize, value: u8) -> Check<bool> {
        let at = self.pointer(offset, 1)?;
        self.memory.to_be_read(offset, 1);
        // SAFETY: the byte is in the buffer. What a device writes is read as such: once, and each time anew.
        Ok(unsafe { at.read_volatile() } == value)
    }

    /// The bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// They are not all there, or there is no memory.
    pub fn bytes(&self, offset: usize, length: usize) -> Check<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve(length).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
        bytes.resize(length, 0);
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Looks that bytes have the pattern that [`Buffer::fill_pattern`] makes.
    ///
    /// # Errors
    ///
    /// One is different.
    pub fn has_pattern(&self, offset: usize, length: usize, seed: u8) -> Check {
        self.each(offset, length, |index, byte| {
            let expected = pattern(index, seed);
            ensure!(byte == expected, "byte {index} of {length} is {byte:#04x}, not {expected:#04x}");
            Ok(())
        })
    }

    /// Looks that bytes have one value.
    ///
    /// # Errors
    ///
    /// One is different.
    pub fn is_filled(&self, offset: usize, length: usize, value: u8) -> Check {
        self.each(offset, length, |index, byte| {
            ensure!(byte == value, "byte {} of the buffer is {byte:#04x}, not {value:#04x}", offset + index);
            Ok(())
        })
    }

    fn each(&self, offset: usize, length: usize, look: impl Fn(usize, u8) -> Check) -> Check {
        let mut chunk = [0_u8; 256];
        let mut done = 0;
        while done < length {
            let part = chunk.len().min(length - done);
            self.read(offset + done, &mut chunk[..part])?;
            for (index, byte) in chunk[..part].iter().enumerate() {
                look(done + index, *byte)?;
            }
            done += part;
        }
        Ok(())
    }

    /// An element for bytes of the buffer, by virtual address. The bytes need not be inside.
    #[must_use]
    pub fn element(&self, offset: isize, length: u32, token: u32) -> NDK_SGE {
        NDK_SGE::new(self.memory.address().wrapping_offset(offset).cast(), length, token)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
const fn pattern(index: usize, seed: u8) -> u8 {
    (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8).wrapping_add(seed).wrapping_mul(167)
}

/// A buffer and the region it is registered as.
pub struct Region<'s> {
    /// The bytes.
    pub buffer: &'s Buffer,
    /// The region.
    pub mr: Mr<'s>,
    local: u32,
    remote: u32,
}

impl<'s> Region<'s> {
    /// `length` bytes, registered with these rights.
    ///
    /// # Errors
    ///
    /// Something of it fails.
    pub fn new(pd: &'s PdCore<'s>, length: usize, rights: u32) -> Check<Self> {
        let buffer = Buffer::new(pd.session(), length)?;
        Self::of(pd, buffer, length, rights)
    }

    /// The first `length` bytes of a buffer, registered with these rights.
    ///
    /// # Errors
    ///
    /// Something of it fails.
    pub fn of(pd: &'s PdCore<'s>, buffer: &'s Buffer, length: usize, rights: u32) -> Check<Self> {
        let mr = pd.create_mr(false)?;
        mr.core().register(buffer, length, rights)?.succeeds()?;
        let (local, remote) = (mr.local_token()?, mr.remote_token()?);
        Ok(Self { buffer, mr, local, remote })
    }

    /// The token for own elements.
    #[must_use]
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// The token for the peer.
    #[must_use]
    pub const fn remote(&self) -> u32 {
        self.remote
    }

    /// An element for bytes of the region. They need not be inside.
    #[must_use]
    pub fn element(&self, offset: isize, length: u32) -> NDK_SGE {
        self.buffer.element(offset, length, self.local)
    }

    /// The address of a byte, for the peer.
    #[must_use]
    pub fn address(&self, offset: isize) -> u64 {
        self.buffer.address(offset)
    }
}
