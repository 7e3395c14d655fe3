//! `NDK_MR` (`NDKPI 5.5`, `NDKPI 7.4`).

use ndkpi::{MDL, NDK_MR};

use super::{
    life::{Core, Kind, Life, Owned},
    memory::Buffer,
    request::{Pending, request},
};
use crate::case::Check;

/// A memory region.
pub type Mr<'s> = Owned<'s, MrCore<'s>>;

/// A memory region, as other threads see it.
pub struct MrCore<'s> {
    life: Life<'s>,
}

impl<'s> Core<'s> for MrCore<'s> {
    type Public = NDK_MR;
    const KIND: Kind = Kind::Mr;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> MrCore<'s> {
    pub(super) const fn new(life: Life<'s>) -> Self {
        Self { life }
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// `NdkRegisterMr` of the first `length` bytes of a buffer.
    ///
    /// # Errors
    ///
    /// The region is closed, or there is no memory.
    pub fn register(&'s self, buffer: &'s Buffer, length: usize, flags: u32) -> Check<Pending<'s>> {
        // SAFETY: the description belongs to the buffer, which the session keeps pinned until the adapter is closed.
        unsafe { self.register_mdl(buffer.mdl(), length, flags) }
    }

    /// `NdkRegisterMr` without an MDL: against the rules of the call.
    ///
    /// # Errors
    ///
    /// Like [`MrCore::register`].
    pub fn register_nothing(&'s self, length: usize, flags: u32) -> Check<Pending<'s>> {
        // SAFETY: a null pointer is for the provider to see.
        unsafe { self.register_mdl(core::ptr::null_mut(), length, flags) }
    }

    /// `NdkRegisterMr`.
    ///
    /// # Safety
    ///
    /// `mdl` is null or a chain whose pages stay pinned until the adapter is closed.
    unsafe fn register_mdl(&'s self, mdl: *mut MDL, length: usize, flags: u32) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (mr, function) = slot!(call, NDK_MR, NdkRegisterMr);
        request(&self.life, "NdkRegisterMr", None, |completion, context| {
            // SAFETY: the region is open, the session keeps the context, and the pages stay pinned (`# Safety`).
            unsafe { function(mr, mdl, length, flags, completion, context) }
        })
    }

    /// `NdkDeregisterMr`.
    ///
    /// # Errors
    ///
    /// The region is closed, or there is no memory.
    pub fn deregister(&'s self) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (mr, function) = slot!(call, NDK_MR, NdkDeregisterMr);
        request(&self.life, "NdkDeregisterMr", None, |completion, context| {
            // SAFETY: the region is open, the context is kept by the session.
            unsafe { function(mr, completion, context) }
        })
    }

    /// `NdkInitializeFastRegisterMr`.
    ///
    /// # Errors
    ///
    /// The region is closed, or there is no memory.
    pub fn initialize(&'s self, pages: u32, remote: bool) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (mr, function) = slot!(call, NDK_MR, NdkInitializeFastRegisterMr);
        request(&self.life, "NdkInitializeFastRegisterMr", None, |completion, context| {
            // SAFETY: the region is open, the context is kept by the session.
            unsafe { function(mr, pages, remote.into(), completion, context) }
        })
    }

    /// `NdkGetLocalTokenFromMr`.
    ///
    /// # Errors
    ///
    /// The region is closed.
    pub fn local_token(&self) -> Check<u32> {
        let call = self.life.call()?;
        let (mr, function) = slot!(call, NDK_MR, NdkGetLocalTokenFromMr);
        // SAFETY: the region is open.
        Ok(unsafe { function(mr) })
    }

    /// `NdkGetRemoteTokenFromMr`.
    ///
    /// # Errors
    ///
    /// The region is closed.
    pub fn remote_token(&self) -> Check<u32> {
        let call = self.life.call()?;
        let (mr, function) = slot!(call, NDK_MR, NdkGetRemoteTokenFromMr);
        // SAFETY: the region is open.
        Ok(unsafe { function(mr) })
    }
}
