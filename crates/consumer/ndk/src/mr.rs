//! Memory regions (`NDKPI 5.5`, `NDKPI 7.4`).

use alloc::boxed::Box;

use ndkpi::{FALSE, NDK_MR, NtStatus};

use crate::{
    flags::Access,
    object::{Object, Parts, slot},
    os::PinnedMemory,
    pd::{Pd, PdParts},
    request::{Kept, complete},
    sge::{LocalToken, Remote, RemoteToken, Sge},
};

/// The parts of a region.
pub struct MrParts {
    /// Freed when the close has completed: then the adapter can no longer reach it.
    memory: Box<dyn PinnedMemory>,
    _pd: Object<PdParts>,
}

impl Parts for MrParts {
    type Raw = NDK_MR;
}

/// A memory region. It owns its memory.
///
/// Peers and requests may change the memory at any time, so there are no references into it: bytes are copied.
///
/// Drop it only after every request that names it has completed (`NDKPI 7.4`). Requests still in flight fail.
pub struct Mr {
    pub(crate) object: Object<MrParts>,
    local: LocalToken,
    remote: RemoteToken,
}

impl Pd {
    /// Registers memory with these rights. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status: `STATUS_INVALID_PARAMETER` for memory that is not virtually contiguous. The memory is freed.
    pub fn register(&self, memory: Box<dyn PinnedMemory>, access: Access) -> Result<Mr, NtStatus> {
        let function = slot!(self.object.raw(), NdkCreateMr)?;
        let parts = MrParts { memory, _pd: self.object.clone() };
        let object = Object::create(self.adapter(), parts, |_, completion, context, place| {
            // SAFETY: the domain is open, and the context lives until the request has completed.
            unsafe { function(self.object.raw(), FALSE, completion, context, place) }
        })?;
        let function = slot!(object.raw(), NdkRegisterMr)?;
        let adapter = object.adapter().clone();
        let object = complete(&adapter, Kept::default(), object, |object, _, completion, context| {
            let memory = &object.parts.memory;
            // SAFETY: the region is open, the memory belongs to it until its close has completed, and the context lives until
            // the request has.
            unsafe { function(object.raw(), memory.mdl(), memory.length(), access.bits(), completion, context) }
        })?;
        let (local, remote) = tokens(&object)?;
        Ok(Mr { object, local, remote })
    }
}

/// The tokens of a region.
pub fn tokens<P: Parts<Raw = NDK_MR>>(object: &Object<P>) -> Result<(LocalToken, RemoteToken), NtStatus> {
    let local = slot!(object.raw(), NdkGetLocalTokenFromMr)?;
    let remote = slot!(object.raw(), NdkGetRemoteTokenFromMr)?;
    // SAFETY: the region is open.
    let (local, remote) = unsafe { (local(object.raw()), remote(object.raw())) };
    Ok((LocalToken(local), RemoteToken::from_bits(remote)))
}

impl Mr {
    pub(crate) const fn object(&self) -> &Object<MrParts> {
        &self.object
    }

    pub(crate) fn memory(&self) -> &dyn PinnedMemory {
        &*self.object.parts.memory
    }

    /// The number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.memory().length()
    }

    /// An element for `length` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range exceeds the region.
    pub fn sge(&self, offset: usize, length: u32) -> Result<Sge<'_>, NtStatus> {
        Ok(Sge::new(within(self.memory(), offset, length as usize)?, length, self.local))
    }

    /// The byte at `offset`, for the peer. The range is not checked here but by this side's adapter when the peer uses it.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        let address = (self.memory().address().addr() as u64).wrapping_add(offset as u64);
        Remote { address, token: self.remote }
    }

    /// Copies bytes out of the region. A concurrent write may be seen in part.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range exceeds the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), NtStatus> {
        read(self.memory(), offset, into)
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if they do not all fit.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), NtStatus> {
        write(&*self.object.parts.memory, offset, from)
    }
}

/// The address of a range of some memory.
pub fn within(memory: &dyn PinnedMemory, offset: usize, length: usize) -> Result<*mut u8, NtStatus> {
    match offset.checked_add(length) {
        Some(end) if end <= memory.length() => Ok(memory.address().wrapping_add(offset)),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// Copies bytes out of memory that a device may write to.
pub fn read(memory: &dyn PinnedMemory, offset: usize, into: &mut [u8]) -> Result<(), NtStatus> {
    let from = within(memory, offset, into.len())?;
    for (index, byte) in into.iter_mut().enumerate() {
        // SAFETY: the byte is in the memory, which is valid for reading. The read is volatile, because a device writes.
        *byte = unsafe { from.wrapping_add(index).read_volatile() };
    }
    Ok(())
}

/// Copies bytes into memory that a device may read or write. The caller makes sure that nothing else in this program writes
/// there.
pub fn write(memory: &dyn PinnedMemory, offset: usize, from: &[u8]) -> Result<(), NtStatus> {
    let to = within(memory, offset, from.len())?;
    for (index, byte) in from.iter().enumerate() {
        // SAFETY: the byte is in the memory, which is valid for writing. The write is volatile, because a device reads.
        unsafe { to.wrapping_add(index).write_volatile(*byte) };
    }
    Ok(())
}
