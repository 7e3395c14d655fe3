//! Mappings, and regions for fast registration (`NDKPI 7.4`, `NDKPI 7.5`).

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    slice,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Release},
    },
};

use fallible::{Arc, try_slice};
use ndkpi::{FALSE, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NtStatus, TRUE};

use crate::{
    adapter::{Adapter, AdapterRef},
    mr::{read, tokens, within, write},
    object::{Object, Parts, slot},
    os::PinnedMemory,
    pd::{Pd, PdParts},
    request::{Kept, complete},
    sge::{LocalToken, Remote, RemoteToken, Sge},
};

/// The size of a page in the adapter's address space (`NDKPI 7.4`).
const PAGE: usize = 4096;

/// Storage for a mapping, and the mapped memory.
///
/// # Invariants
///
/// `words` has room for `pages` pages. The provider writes to it while the request pends, and nobody from then on. Until it is
/// released, which happens when this is dropped, the mapping needs the memory and the adapter.
pub struct LamBuffer {
    words: Box<[UnsafeCell<u64>]>,
    pages: u32,
    size: AtomicU32,
    offset: AtomicU32,
    built: AtomicBool,
    memory: Box<dyn PinnedMemory>,
    adapter: AdapterRef,
}

// SAFETY: see the invariant: one writer, before any reader.
unsafe impl Send for LamBuffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for LamBuffer {}

impl LamBuffer {
    const fn raw(&self) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        UnsafeCell::raw_get(self.words.as_ptr()).cast()
    }
}

impl Drop for LamBuffer {
    fn drop(&mut self) {
        let core = self.adapter.core();
        if *self.built.get_mut()
            && let Ok(release) = slot!(core.raw(), NdkReleaseLAM)
        {
            // SAFETY: the adapter is open, because there is an `AdapterRef`; the mapping was built and is released once. Whatever
            // used its pages is closed, because that owned the mapping.
            unsafe { release(core.raw(), self.raw()) };
        }
    }
}

/// Memory mapped into the adapter's address space. It owns the memory, and unmaps it when it is dropped.
pub struct Mapping {
    buffer: Arc<LamBuffer>,
}

impl Adapter {
    /// Maps memory for fast registrations. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The status of `NdkBuildLAM`, or `STATUS_INSUFFICIENT_RESOURCES`. The memory is freed.
    pub fn map(&self, memory: Box<dyn PinnedMemory>) -> Result<Mapping, NtStatus> {
        let function = slot!(self.core().raw(), NdkBuildLAM)?;
        let first = memory.address().addr() % PAGE;
        let pages = first.checked_add(memory.length()).ok_or(NtStatus::INVALID_PARAMETER)?.div_ceil(PAGE);
        let pages = u32::try_from(pages).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let bytes = NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages).max(size_of::<NDK_LOGICAL_ADDRESS_MAPPING>());
        let buffer = LamBuffer {
            words: try_slice(bytes.div_ceil(8), |_| UnsafeCell::new(0))?,
            pages,
            size: AtomicU32::new(u32::try_from(bytes).map_err(|_| NtStatus::INVALID_PARAMETER)?),
            offset: AtomicU32::new(0),
            built: AtomicBool::new(false),
            memory,
            adapter: self.reference(),
        };
        let buffer = Arc::try_new(buffer)?;
        let buffer = complete(self.core(), Kept::of_mapping(&buffer), buffer, |buffer, _, completion, context| {
            let (mdl, length) = (buffer.memory.mdl(), buffer.memory.length());
            let (size, offset) = (buffer.size.as_ptr(), buffer.offset.as_ptr());
            // SAFETY: the adapter is open; the memory, the buffer, the size and the offset are kept with the request until it
            // has completed, and so is the context.
            unsafe { function(self.core().raw(), mdl, length, completion, context, buffer.raw(), size, offset) }
        })?;
        buffer.built.store(true, Release);
        Ok(Mapping { buffer })
    }
}

impl Mapping {
    fn memory(&self) -> &dyn PinnedMemory {
        &*self.buffer.memory
    }

    /// The pages, and the offset of the first byte in the first of them.
    fn pages(&self) -> (&[NDK_LOGICAL_ADDRESS], usize) {
        let raw = self.buffer.raw();
        // SAFETY: the buffer is at least as large as the structure, and the provider is done with it.
        let count = unsafe { (*raw).AdapterPageCount }.min(self.buffer.pages);
        // SAFETY: the mapping lies in memory for `pages` pages.
        let first = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(raw) };
        // SAFETY: `count` pages are in that memory, and the provider is done with it.
        let pages = unsafe { slice::from_raw_parts(first, count as usize) };
        (pages, self.buffer.offset.load(Acquire) as usize)
    }
}

/// The parts of a region for fast registration.
pub struct FastParts {
    mapping: Mapping,
    _pd: Object<PdParts>,
}

impl Parts for FastParts {
    type Raw = NDK_MR;
}

/// A region for fast registration. `Initiator::fast_register` registers a part of its mapping; `Initiator::invalidate` or a
/// peer's send-and-invalidate ends that.
///
/// It keeps its mapping until its close has completed, because only then can the adapter no longer reach the memory. So a pool
/// needs one region per mapping.
pub struct FastMr {
    pub(crate) object: Object<FastParts>,
    local: LocalToken,
    remote: RemoteToken,
}

impl Pd {
    /// Creates a region for fast registrations of parts of this mapping. `PASSIVE_LEVEL`.
    ///
    /// `remote` must be true if a registration will have remote rights.
    ///
    /// # Errors
    ///
    /// The provider's status: `STATUS_IMPLEMENTATION_LIMIT` for too many pages. `STATUS_INVALID_PARAMETER` for a mapping of
    /// another adapter. The mapping is dropped.
    pub fn create_fast_mr(&self, mapping: Mapping, remote: bool) -> Result<FastMr, NtStatus> {
        if !Arc::ptr_eq(self.object.adapter(), mapping.buffer.adapter.core()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let function = slot!(self.object.raw(), NdkCreateMr)?;
        let parts = FastParts { mapping, _pd: self.object.clone() };
        let object = Object::create(self.adapter(), parts, |_, completion, context, buffer| {
            // SAFETY: the domain is open, and the context lives until the request has completed.
            unsafe { function(self.object.raw(), TRUE, completion, context, buffer) }
        })?;
        let function = slot!(object.raw(), NdkInitializeFastRegisterMr)?;
        let (adapter, pages) = (object.adapter().clone(), object.parts.mapping.buffer.pages);
        let object = complete(&adapter, Kept::default(), object, |object, _, completion, context| {
            let remote = if remote { TRUE } else { FALSE };
            // SAFETY: the region is open, and the context lives until the request has completed.
            unsafe { function(object.raw(), pages, remote, completion, context) }
        })?;
        let (local, remote) = tokens(&object)?;
        Ok(FastMr { object, local, remote })
    }
}

/// The part of a mapping in the form `NdkFastRegister` takes.
pub struct Part<'a> {
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    pub offset: u32,
    pub length: usize,
    pub base: *mut u8,
}

impl FastMr {
    pub(crate) const fn object(&self) -> &Object<FastParts> {
        &self.object
    }

    fn memory(&self) -> &dyn PinnedMemory {
        self.object.parts.mapping.memory()
    }

    /// The pages of `length` bytes from `offset` on. Their virtual addresses stay those of the memory.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Result<Part<'_>, NtStatus> {
        let base = within(self.memory(), offset, length)?;
        let (pages, first) = self.object.parts.mapping.pages();
        let (begin, end) = (first + offset, (first + offset + length).div_ceil(PAGE));
        let pages = pages.get(begin / PAGE..end).ok_or(NtStatus::INVALID_PARAMETER)?;
        let offset = u32::try_from(begin % PAGE).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        Ok(Part { pages, offset, length, base })
    }

    /// The number of mapped bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.memory().length()
    }

    /// An element for `length` bytes from `offset` on. The adapter checks that they are registered.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range exceeds the mapping.
    pub fn sge(&self, offset: usize, length: u32) -> Result<Sge<'_>, NtStatus> {
        Ok(Sge::new(within(self.memory(), offset, length as usize)?, length, self.local))
    }

    /// The byte at `offset`, for the peer. Its token is valid as soon as the registration is posted.
    ///
    /// # Errors
    ///
    /// The provider does not return the token.
    pub fn remote(&self, offset: usize) -> Result<Remote, NtStatus> {
        // A provider may change it with each registration (NDKPI 7.4).
        let (_, token) = tokens(&self.object)?;
        Ok(Remote { address: (self.memory().address().addr() as u64).wrapping_add(offset as u64), token })
    }

    /// The token the region had when it was created. Most providers keep it.
    #[must_use]
    pub const fn first_remote_token(&self) -> RemoteToken {
        self.remote
    }

    /// Like [`Mr::read`](crate::Mr::read).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range exceeds the mapping.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), NtStatus> {
        read(self.memory(), offset, into)
    }

    /// Like [`Mr::write`](crate::Mr::write).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the range exceeds the mapping.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), NtStatus> {
        write(self.memory(), offset, from)
    }
}
