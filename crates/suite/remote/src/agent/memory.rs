//! The agent's memory: doubles of the buffers of the other machine, and their mappings.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Release},
    },
};

use conformance::platform::{PinnedMemory, Shape};
use fallible::{Arc, try_slice};
use ndkpi::{MDL, NDK_ADAPTER, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_OBJECT_TYPE, NtStatus};
use zerocopy::{IntoBytes, little_endian::U64};

use super::{
    Agent,
    call::{Incoming, Reply},
    object::{Entry, Used},
};
use crate::wire::{ANSWER_TAIL, Carried};

/// The bytes of all doubles together at most.
const MOST_BYTES: usize = 1 << 30;
/// The bytes of a mapping at most: of half a gigabyte.
const MOST_MAPPING: usize = 1 << 20;
/// The bytes of a page of the adapter (`NDKPI 7.4`).
pub const PAGE: u64 = 4096;

/// The double of a buffer.
pub struct Memory(Box<dyn PinnedMemory>);

impl Memory {
    /// Its description.
    pub fn mdl(&self) -> *mut MDL {
        self.0.mdl()
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.0.length()
    }

    /// The address of `length` bytes, if they are all there.
    fn place(&self, offset: u64, length: usize) -> Result<*mut u8, Carried> {
        let offset = usize::try_from(offset).map_err(|_| Carried::Malformed)?;
        let end = offset.checked_add(length).ok_or(Carried::Malformed)?;
        if end > self.length() {
            return Err(Carried::Malformed);
        }
        Ok(self.0.address().wrapping_add(offset))
    }
}

/// A mapping.
pub struct Lam {
    adapter: Arc<Entry>,
    /// What is mapped, which stays pinned.
    _memory: Arc<Memory>,
    words: Box<[UnsafeCell<u64>]>,
    size: AtomicU32,
    offset: AtomicU32,
    built: AtomicBool,
}

// SAFETY: the provider writes the words while the request pends; they are read once it has succeeded.
unsafe impl Send for Lam {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lam {}

impl Lam {
    fn raw(&self) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        UnsafeCell::raw_get(self.words.as_ptr()).cast()
    }

    /// It can be used from now on.
    pub fn set_built(&self) {
        self.built.store(true, Release);
    }

    /// The pages of a mapping that is built: as many as there is room for.
    fn pages(&self) -> &[NDK_LOGICAL_ADDRESS] {
        if !self.built.load(Acquire) {
            return &[];
        }
        // SAFETY: there are at least as many words as the declared structure has, and the provider is done with them.
        let count = unsafe { (*self.raw()).AdapterPageCount } as usize;
        let room = (self.words.len() * 8).saturating_sub(NDK_LOGICAL_ADDRESS_MAPPING::size_for(0)) / 8;
        // SAFETY: the mapping lies in the words.
        let first = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(self.raw()) };
        // SAFETY: so many pages are in the words, and the provider is done with them.
        unsafe { core::slice::from_raw_parts(first, count.min(room)) }
    }

    /// Returns true if a page is in the mapping.
    pub fn has(&self, page: u64) -> bool {
        self.pages().iter().any(|known| known.to_bits() == page)
    }

    /// Its adapter.
    pub const fn adapter(&self) -> &Arc<Entry> {
        &self.adapter
    }

    /// `NdkReleaseLAM`, if it is built. `adapter` is its adapter.
    pub fn undo(&self, adapter: *mut NDK_ADAPTER) {
        if !self.built.swap(false, Acquire) {
            return;
        }
        // SAFETY: the adapter is open: whoever releases uses it. The slot is in the table of every version.
        if let Some(function) = unsafe { (*(*adapter).Dispatch).NdkReleaseLAM } {
            // SAFETY: the mapping was built on this adapter, and is released once.
            unsafe { function(adapter, self.raw()) };
        }
    }
}

impl Agent<'_> {
    pub(super) fn allocate(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let (piece, length) = (call.size(1)?, call.size(2)?);
        let shape = match call.word(0) {
            0 => Shape::Whole,
            1 if piece > 0 => Shape::Chained(piece),
            2 => Shape::Gap,
            _ => return Err(Carried::Malformed),
        };
        let mut tables = self.tables();
        let bytes = tables.bytes.checked_add(length).filter(|bytes| *bytes <= MOST_BYTES).ok_or(Carried::NoMemory)?;
        let pinned = match self.platform.memory(shape, length) {
            Ok(pinned) => pinned,
            Err(status) => return Ok(status),
        };
        // SAFETY: the memory is as long as it says, and nobody else knows it.
        unsafe { pinned.address().write_bytes(0, pinned.length()) };
        let address = pinned.address().addr() as u64;
        let memory = Arc::try_new(Memory(pinned)).map_err(|_| Carried::NoMemory)?;
        let handle = tables.memories.insert(memory).map_err(|_| Carried::NoMemory)?;
        tables.bytes = bytes;
        reply.set(0, handle);
        reply.set(1, address);
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn free(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let mut tables = self.tables();
        let memory = tables.memories.remove(call.head.object.get()).ok_or(Carried::Stale)?;
        tables.bytes = tables.bytes.saturating_sub(memory.length());
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn memory(&self, handle: u64) -> Result<Arc<Memory>, Carried> {
        self.tables().memories.get(handle).cloned().ok_or(Carried::Stale)
    }

    pub(super) fn put(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let memory = self.memory(call.head.object.get())?;
        let place = memory.place(call.word(0), call.tail.len())?;
        // SAFETY: the bytes are all in the memory, which lives as long as `memory`; the call is not in it.
        unsafe { ptr::copy_nonoverlapping(call.tail.as_ptr(), place, call.tail.len()) };
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn get(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let memory = self.memory(call.head.object.get())?;
        let room = reply.room(call.size(1)?).ok_or(Carried::Malformed)?;
        let place = memory.place(call.word(0), room.len())?;
        // SAFETY: the bytes are all in the memory, which lives as long as `memory`; the answer is not in it.
        unsafe { ptr::copy_nonoverlapping(place, room.as_mut_ptr(), room.len()) };
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn build_lam(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (memory, length, size) = (self.memory(call.word(0))?, call.size(1)?, call.number(2)?);
        if size as usize > MOST_MAPPING {
            return Err(Carried::NoMemory);
        }
        if length > memory.length() {
            return Err(Carried::Withheld);
        }
        let words = (size as usize).max(size_of::<NDK_LOGICAL_ADDRESS_MAPPING>()).div_ceil(8);
        let mdl = memory.mdl();
        let lam = Lam {
            adapter: adapter.entry().clone(),
            _memory: memory,
            words: try_slice(words, |_| UnsafeCell::new(0)).map_err(|_| Carried::NoMemory)?,
            size: AtomicU32::new(size),
            offset: AtomicU32::new(0),
            built: AtomicBool::new(false),
        };
        let lam = Arc::try_new(lam).map_err(|_| Carried::NoMemory)?;
        let handle = self.tables().lams.insert(lam.clone()).map_err(|_| Carried::NoMemory)?;
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkBuildLAM);
        let status = self.request(call, handle, |completion, context| {
            // SAFETY: the adapter is open; the description, the place, the size and the offset live as long as the mapping, which
            // the table keeps until the request has ended.
            unsafe {
                function(raw, mdl, length, completion, context, lam.raw(), lam.size.as_ptr(), lam.offset.as_ptr())
            }
        })?;
        reply.set(0, handle);
        reply.set(1, lam.size.load(Acquire));
        match status {
            NtStatus::PENDING => {}
            NtStatus::SUCCESS => lam.set_built(),
            _ => drop(self.tables().lams.remove(handle)),
        }
        Ok(status)
    }

    /// The request for a mapping that pended has ended.
    pub(super) fn lam_is_built(&self, handle: u64, status: NtStatus) {
        let mut tables = self.tables();
        match tables.lams.get(handle) {
            Some(lam) if status == NtStatus::SUCCESS => lam.set_built(),
            // Its size may be what the other machine wants to know: that stays until it was asked for.
            Some(_) if status == NtStatus::BUFFER_TOO_SMALL => {}
            _ => drop(tables.lams.remove(handle)),
        }
    }

    pub(super) fn lam_pages(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let handle = call.head.object.get();
        let mut tables = self.tables();
        let lam = tables.lams.get(handle).cloned().ok_or(Carried::Stale)?;
        reply.set(0, lam.size.load(Acquire));
        reply.set(1, lam.offset.load(Acquire));
        let (pages, from) = (lam.pages(), call.size(0)?);
        reply.set(2, pages.len() as u64);
        for page in pages.iter().skip(from).take(ANSWER_TAIL / 8) {
            reply.append(U64::new(page.to_bits()).as_bytes())?;
        }
        if !lam.built.load(Acquire) {
            tables.lams.remove(handle);
        }
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn release_lam(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let lam = {
            let mut tables = self.tables();
            let handle = call.word(0);
            let lam = tables.lams.get(handle).ok_or(Carried::Stale)?;
            if !Arc::ptr_eq(lam.adapter(), adapter.entry()) || !lam.built.load(Acquire) {
                return Err(Carried::Stale);
            }
            tables.lams.remove(handle).ok_or(Carried::Stale)?
        };
        lam.undo(adapter.raw());
        Ok(NtStatus::SUCCESS)
    }

    /// Looks that bytes at a logical address are in pages that are mapped.
    pub(super) fn is_mapped(&self, address: u64, length: u32) -> Result<(), Carried> {
        let last = address.checked_add(u64::from(length).saturating_sub(1)).ok_or(Carried::Withheld)?;
        self.are_mapped(address / PAGE * PAGE, last / PAGE - address / PAGE + 1)
    }

    /// Looks that pages that follow each other are mapped.
    pub(super) fn are_mapped(&self, first: u64, count: u64) -> Result<(), Carried> {
        let tables = self.tables();
        for index in 0..count {
            let page = index.checked_mul(PAGE).and_then(|offset| first.checked_add(offset)).ok_or(Carried::Withheld)?;
            if !tables.lams.iter().any(|(_, lam)| lam.has(page)) {
                return Err(Carried::Withheld);
            }
        }
        Ok(())
    }

    pub(super) fn register(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let region: Used = self.object(call.head.object.get(), NDK_OBJECT_TYPE::MR)?;
        let _turn = region.turn(self.platform)?;
        let (memory, length, flags) = (self.memory(call.word(0))?, call.size(1)?, call.number(2)?);
        if length > memory.length() {
            return Err(Carried::Withheld);
        }
        region.entry().keep(&memory, self.platform)?;
        let (raw, function) = slot!(region, NDK_MR, NdkRegisterMr);
        self.request(call, 0, |completion, context| {
            // SAFETY: the region is open, and keeps the memory until it is closed.
            unsafe { function(raw, memory.mdl(), length, flags, completion, context) }
        })
    }
}
