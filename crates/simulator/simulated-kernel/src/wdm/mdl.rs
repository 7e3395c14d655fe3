//! Memory descriptor lists.

use std::{ptr, sync::Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, CSHORT, KPROCESSOR_MODE, LOCK_OPERATION, MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_PARTIAL,
    MDL_SOURCE_IS_NONPAGED_POOL, MEMORY_CACHING_TYPE, PHYSICAL_ADDRESS, PIRP, PVOID, SIZE_T, ULONG,
};

use crate::{
    context::{self, DriverId, NOBODY},
    paged, platform, pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    tracked::{Kind, Object},
};

/// The tag of the system's allocations of MDLs.
const TAG: u32 = u32::from_ne_bytes(*b"Mdl ");
/// That of pages for one.
const PAGES: u32 = u32::from_ne_bytes(*b"MmMd");
pub(super) const FLAG_MAPPED: CSHORT = flag(MDL_MAPPED_TO_SYSTEM_VA);
pub(super) const FLAG_NON_PAGED: CSHORT = flag(MDL_SOURCE_IS_NONPAGED_POOL);
pub(super) const FLAG_LOCKED: CSHORT = flag(MDL_PAGES_LOCKED);
pub(super) const FLAG_PARTIAL: CSHORT = flag(MDL_PARTIAL);
/// `MDL_PARTIAL_HAS_BEEN_MAPPED`: it has a mapping of its own, which `MmPrepareMdlForReuse` and `IoFreeMdl` take away.
pub(super) const FLAG_OWN_MAPPING: CSHORT = 0x20;

#[expect(clippy::cast_possible_truncation, reason = "flags of sixteen bits")]
const fn flag(flag: u32) -> CSHORT {
    (flag as u16).cast_signed()
}

/// The MDLs that drivers have allocated.
#[derive(Default)]
pub struct Mdls {
    owners: LiteMap<usize, DriverId>,
    /// Those that pages were allocated for, and where these are.
    pages: LiteMap<usize, usize>,
    /// Those of a device's memory, and its range.
    io_space: LiteMap<usize, u64>,
    /// Those that describe a part of another one, and which.
    pub(super) partial: LiteMap<usize, usize>,
}

impl Part for Mutex<Mdls> {}

impl State {
    /// A driver is unloaded: its MDLs must be free.
    pub fn check_mdls(&self, owner: DriverId, name: &str) {
        let left: Vec<usize> = {
            let mdls = self.locked::<Mdls>();
            mdls.owners.iter().filter(|&(_, &one)| one == owner).map(|(&mdl, _)| mdl).collect()
        };
        if let Some(&first) = left.first() {
            let site = pool::site_in_words(first);
            bug_check(Rule::PoolLeak, format_args!("driver {name} left {} MDLs, the first{site}", left.len()));
        }
    }

    /// The MDL is one of the system's, or one that a driver has laid out in memory of its own (`MmInitializeMdl`): that is known from here on.
    pub(super) fn known_or_own(&self, mdl: *mut MDL) {
        if self.locked::<Mdls>().owners.contains_key(&mdl.addr()) || self.is_tracked(mdl.addr(), Kind::OwnMdl) {
            return;
        }
        self.check_moved(mdl.addr(), Kind::Mdl);
        if platform::peek(mdl.addr()).is_some() {
            // SAFETY: there is memory, and the driver says that it is an MDL.
            let header = unsafe { mdl.read() };
            let pages = (header.ByteOffset as usize + header.ByteCount as usize).div_ceil(pool::PAGE);
            let size = size_of::<MDL>() + pages * size_of::<u64>();
            if header.ByteCount > 0 && usize::try_from(header.Size) == Ok(size) {
                self.track(mdl.expose_provenance(), context::caller(), Object::plain(Kind::OwnMdl));
                return;
            }
        }
        self.known(mdl);
    }

    fn known(&self, mdl: *mut MDL) {
        if !self.locked::<Mdls>().owners.contains_key(&mdl.addr()) {
            self.check_moved(mdl.addr(), Kind::Mdl);
            if self.is_tracked(mdl.addr(), Kind::OwnMdl) {
                bug_check(Rule::BadMdl, format_args!("the MDL at {mdl:p} is in memory of the driver's own"));
            }
            bug_check(Rule::BadMdl, format_args!("{mdl:p} is no MDL"));
        }
    }
}

/// # Safety
///
/// `mdl` is an MDL of this kernel, and nobody else changes its flags at this time.
pub(super) unsafe fn flags<'mdl>(mdl: *mut MDL) -> &'mdl mut CSHORT {
    // SAFETY: an MDL of this kernel, whose flags nobody else changes at this time (`# Safety`).
    unsafe { &mut (*mdl).MdlFlags }
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateMdl(address: PVOID, length: ULONG, secondary: BOOLEAN, _quota: BOOLEAN, irp: PIRP) -> *mut MDL {
    routine!("IoAllocateMdl", |state| {
        let Some(mdl) = allocate(state, context::caller(), address, length) else { return ptr::null_mut() };
        if !irp.is_null() {
            if state.irp(irp).is_none() {
                bug_check(Rule::BadHandle, format_args!("an MDL for {irp:p}, which is no IRP, or was one"));
            }
            // SAFETY: the driver has the IRP.
            let mut place = unsafe { &raw mut (*irp).MdlAddress };
            // SAFETY: the IRP's field, or that of one of its MDLs.
            while secondary != 0 && !unsafe { place.read() }.is_null() {
                // SAFETY: the IRP's field, or that of one of its MDLs.
                let here = unsafe { place.read() };
                // SAFETY: an MDL of the IRP.
                place = unsafe { &raw mut (*here).Next };
            }
            // SAFETY: the IRP's field, or that of one of its MDLs.
            unsafe { place.write(mdl) };
        }
        mdl
    })
}

/// A new MDL of a driver, which describes so many bytes. `None` if there is no memory.
pub fn allocate(state: &State, owner: DriverId, address: PVOID, length: ULONG) -> Option<*mut MDL> {
    if state.strikes() { None } else { make(state, owner, address, length) }
}

/// An MDL of a driver for memory of a device, which is locked by nature.
pub fn allocate_for_io_space(
    state: &State,
    owner: DriverId,
    address: PVOID,
    length: ULONG,
    range: u64,
) -> Option<*mut MDL> {
    let mdl = allocate(state, owner, address, length)?;
    // SAFETY: a new MDL, which nobody else knows yet.
    *unsafe { flags(mdl) } |= FLAG_LOCKED;
    state.locked::<Mdls>().io_space.insert(mdl.addr(), range);
    Some(mdl)
}

/// An MDL of the system's own, with the pages of the buffer locked.
pub fn allocate_locked(state: &State, address: usize, length: ULONG) -> *mut MDL {
    let Some(mdl) = make(state, NOBODY, ptr::with_exposed_provenance_mut(address), length) else {
        bug_check(Rule::NotSimulated, format_args!("no memory for an MDL"));
    };
    // SAFETY: a new MDL, which nobody else knows yet.
    *unsafe { flags(mdl) } |= FLAG_LOCKED;
    mdl
}

/// An MDL of the system's own for non-paged pool. The caller frees it.
pub fn make_built(state: &State, address: usize, length: ULONG) -> *mut MDL {
    let Some(mdl) = make(state, NOBODY, ptr::with_exposed_provenance_mut(address), length) else {
        bug_check(Rule::NotSimulated, format_args!("no memory for an MDL"));
    };
    build(state, mdl);
    mdl
}

/// Where the memory of an MDL is that describes non-paged pool, or whose pages are locked; `None` of any other.
pub fn memory_of(state: &State, mdl: *mut MDL) -> Option<usize> {
    state.known_or_own(mdl);
    // SAFETY: a known MDL, whose driver does not change it meanwhile.
    let header = unsafe { mdl.read() };
    let is_there = header.MdlFlags & (FLAG_NON_PAGED | FLAG_LOCKED | FLAG_PARTIAL) != 0;
    is_there.then(|| header.StartVa.expose_provenance() + header.ByteOffset as usize)
}

/// A request is over: its MDLs are unlocked, unmapped and freed, as the I/O manager does.
pub fn free_chain(state: &State, mut mdl: *mut MDL) {
    while !mdl.is_null() {
        state.known(mdl);
        // SAFETY: a known MDL, of which the request's driver is done.
        let next = unsafe { (*mdl).Next };
        // SAFETY: a known MDL, of which the request's driver is done.
        *unsafe { flags(mdl) } &= !(FLAG_LOCKED | FLAG_MAPPED);
        free(state, mdl);
        mdl = next;
    }
}

fn make(state: &State, owner: DriverId, address: PVOID, length: ULONG) -> Option<*mut MDL> {
    let offset = address.addr() % pool::PAGE;
    let pages = (offset + length as usize).div_ceil(pool::PAGE);
    // Followed by a number for each page.
    let size = size_of::<MDL>() + pages * size_of::<u64>();
    let place = pool::allocate(owner, size, TAG, true)?;
    let mdl: *mut MDL = ptr::with_exposed_provenance_mut(place);
    let new = MDL {
        Size: CSHORT::try_from(size).unwrap_or(CSHORT::MAX),
        StartVa: address.wrapping_byte_sub(offset),
        ByteCount: length,
        ByteOffset: ULONG::try_from(offset).unwrap_or(0),
        ..MDL::default()
    };
    // SAFETY: a new block, large enough for it.
    unsafe { mdl.write(new) };
    state.locked::<Mdls>().owners.insert(place, owner);
    state.track(place, NOBODY, Object::plain(Kind::Mdl));
    Some(mdl)
}

/// Frees an MDL.
pub fn free(state: &State, mdl: *mut MDL) {
    state.known(mdl);
    // SAFETY: a known MDL, which the driver gives up.
    let flags = *unsafe { flags(mdl) };
    state.source_ends(mdl, "freed");
    state.locked::<Mdls>().partial.remove(&mdl.addr());
    let range = state.locked::<Mdls>().io_space.remove(&mdl.addr());
    if let Some(range) = range {
        if flags & FLAG_MAPPED != 0 {
            bug_check(Rule::BadMdl, format_args!("an MDL of a device's memory is freed while it is mapped"));
        }
        state.leave_io_space(range);
    } else if flags & FLAG_LOCKED != 0 {
        bug_check(Rule::BadMdl, format_args!("an MDL is freed while its pages are locked"));
    }
    state.locked::<Mdls>().owners.remove(&mdl.addr());
    state.untrack_and_remember(mdl.addr(), Kind::Mdl, ", and freed since");
    pool::free(mdl.expose_provenance(), Some(TAG));
}

/// Has an MDL describe non-paged pool.
pub fn build(state: &State, mdl: *mut MDL) {
    state.known_or_own(mdl);
    // SAFETY: a known MDL, which the driver is just building.
    let header = unsafe { mdl.read() };
    let start = header.StartVa.addr() + header.ByteOffset as usize;
    let end = start + header.ByteCount as usize - 1;
    if paged::contains(start) || pool::is_live(start) != Some(true) || pool::is_live(end) != Some(true) {
        bug_check(Rule::BadMdl, format_args!("an MDL of memory that is no block of the non-paged pool"));
    }
    fill(mdl);
}

/// Has a new MDL, or one that its driver is building, describe memory that is not pageable, wherever it lies.
pub fn fill(mdl: *mut MDL) {
    // SAFETY: an MDL that nobody else uses yet.
    let mdl = unsafe { &mut *mdl };
    mdl.MappedSystemVa = mdl.StartVa.wrapping_byte_add(mdl.ByteOffset as usize);
    mdl.MdlFlags |= FLAG_NON_PAGED;
}

#[unsafe(no_mangle)]
extern "C" fn IoFreeMdl(mdl: *mut MDL) {
    routine!("IoFreeMdl", |state| free(state, mdl));
}

/// The bytes of an MDL for that buffer.
#[unsafe(no_mangle)]
extern "C" fn MmSizeOfMdl(address: PVOID, length: u64) -> u64 {
    routine!("MmSizeOfMdl", HIGH_LEVEL, |_| {
        let pages = (address.addr() % pool::PAGE + usize::try_from(length).unwrap_or(0)).div_ceil(pool::PAGE);
        (size_of::<MDL>() + pages * size_of::<u64>()) as u64
    })
}

#[unsafe(no_mangle)]
extern "C" fn MmBuildMdlForNonPagedPool(mdl: *mut MDL) {
    routine!("MmBuildMdlForNonPagedPool", |state| build(state, mdl));
}

#[unsafe(no_mangle)]
extern "C" fn MmProbeAndLockPages(mdl: *mut MDL, _mode: KPROCESSOR_MODE, _operation: LOCK_OPERATION) {
    routine!("MmProbeAndLockPages", |state| {
        state.known_or_own(mdl);
        // SAFETY: a known MDL, which the driver is just locking.
        let flags = unsafe { flags(mdl) };
        if *flags & (FLAG_LOCKED | FLAG_NON_PAGED) != 0 {
            bug_check(Rule::BadMdl, format_args!("the pages of an MDL are locked twice, or are not pageable"));
        }
        // SAFETY: a known MDL, which the driver is just locking.
        let start = unsafe { (*mdl).StartVa };
        let limit = if paged::contains(start.addr()) { Irql::APC_LEVEL } else { Irql::DISPATCH_LEVEL };
        if machine::current_irql() > limit {
            bug_check(Rule::IrqlTooHigh, format_args!("pages locked at {}", machine::current_irql()));
        }
        *flags |= FLAG_LOCKED;
    });
}

#[unsafe(no_mangle)]
extern "C" fn MmUnlockPages(mdl: *mut MDL) {
    routine!("MmUnlockPages", |state| {
        state.known_or_own(mdl);
        // SAFETY: a known MDL, which the driver is just unlocking.
        let flags = unsafe { flags(mdl) };
        state.check_pinned_mdl(mdl.addr(), "unlocked");
        state.check_lent_mdl(mdl.addr(), "unlocked");
        state.source_ends(mdl, "unlocked");
        let is_given = {
            let mdls = state.locked::<Mdls>();
            mdls.pages.contains_key(&mdl.addr()) || mdls.io_space.contains_key(&mdl.addr())
        };
        if *flags & FLAG_LOCKED == 0 || is_given {
            bug_check(Rule::BadMdl, format_args!("the pages of an MDL are unlocked that were not locked"));
        }
        *flags &= !(FLAG_LOCKED | FLAG_MAPPED);
    });
}

#[unsafe(no_mangle)]
extern "C" fn MmMapLockedPagesSpecifyCache(
    mdl: *mut MDL,
    mode: KPROCESSOR_MODE,
    _cache: MEMORY_CACHING_TYPE,
    _address: PVOID,
    bug_check_on_failure: ULONG,
    _priority: ULONG,
) -> PVOID {
    routine!("MmMapLockedPagesSpecifyCache", |state| {
        if mode != 0 {
            bug_check(Rule::NotSimulated, format_args!("a mapping for user mode"));
        }
        state.known_or_own(mdl);
        // SAFETY: a known MDL; its pages are locked, so the driver that maps it may change this.
        let mdl = unsafe { &mut *mdl };
        if mdl.MdlFlags & (FLAG_NON_PAGED | FLAG_MAPPED) != 0 {
            bug_check(Rule::BadMdl, format_args!("an MDL is mapped that is mapped already"));
        }
        if mdl.MdlFlags & FLAG_PARTIAL != 0 {
            state.check_source(mdl);
        } else if mdl.MdlFlags & FLAG_LOCKED == 0 {
            bug_check(Rule::BadMdl, format_args!("an MDL is mapped whose pages are not locked"));
        }
        if bug_check_on_failure != 0 {
            bug_check(Rule::BadArgument, format_args!("a mapping that is to end in a bug check if it fails"));
        }
        if state.strikes() {
            return ptr::null_mut();
        }
        mdl.MappedSystemVa = mdl.StartVa.wrapping_byte_add(mdl.ByteOffset as usize);
        mdl.MdlFlags |= FLAG_MAPPED;
        if mdl.MdlFlags & FLAG_PARTIAL != 0 {
            mdl.MdlFlags |= FLAG_OWN_MAPPING;
        }
        mdl.MappedSystemVa
    })
}

/// All pages at once or none, wherever they may lie. Unlike the real one the MDL names an address before it is mapped.
#[unsafe(no_mangle)]
extern "C" fn MmAllocatePagesForMdlEx(
    _low: PHYSICAL_ADDRESS,
    _high: PHYSICAL_ADDRESS,
    _skip: PHYSICAL_ADDRESS,
    size: SIZE_T,
    _cache: MEMORY_CACHING_TYPE,
    flags: ULONG,
) -> *mut MDL {
    /// `MM_DONT_ZERO_ALLOCATION`.
    const NOT_ZEROED: ULONG = 1;
    routine!("MmAllocatePagesForMdlEx", |state| allocate_pages(state, size, flags & NOT_ZEROED == 0))
}

#[unsafe(no_mangle)]
extern "C" fn MmAllocatePagesForMdl(
    _low: PHYSICAL_ADDRESS,
    _high: PHYSICAL_ADDRESS,
    _skip: PHYSICAL_ADDRESS,
    size: SIZE_T,
) -> *mut MDL {
    routine!("MmAllocatePagesForMdl", APC_LEVEL, |state| allocate_pages(state, size, true))
}

fn allocate_pages(state: &State, size: SIZE_T, zeroed: bool) -> *mut MDL {
    let size = usize::try_from(size).unwrap_or(usize::MAX).checked_next_multiple_of(pool::PAGE);
    let Some((size, length)) = size.and_then(|size| Some((size, ULONG::try_from(size).ok()?))) else {
        return ptr::null_mut();
    };
    if size == 0 || state.strikes() {
        return ptr::null_mut();
    }
    let owner = context::caller();
    let Some(pages) = pool::allocate(owner, size, PAGES, zeroed) else { return ptr::null_mut() };
    let Some(mdl) = allocate(state, owner, ptr::without_provenance_mut(pages), length) else {
        pool::free(pages, Some(PAGES));
        return ptr::null_mut();
    };
    // SAFETY: a new MDL, which nobody else knows yet.
    *unsafe { self::flags(mdl) } |= FLAG_LOCKED;
    state.locked::<Mdls>().pages.insert(mdl.addr(), pages);
    mdl
}

/// Frees the pages. The MDL is the driver's to free, with `ExFreePool`.
#[unsafe(no_mangle)]
extern "C" fn MmFreePagesFromMdl(mdl: *mut MDL) {
    routine!("MmFreePagesFromMdl", |state| {
        state.check_pinned_mdl(mdl.addr(), "freed");
        state.check_lent_mdl(mdl.addr(), "freed");
        state.source_ends(mdl, "freed");
        let Some(pages) = state.locked::<Mdls>().pages.remove(&mdl.addr()) else {
            bug_check(Rule::BadMdl, format_args!("{mdl:p} is no MDL that pages were allocated for"));
        };
        // SAFETY: a known MDL, whose pages the driver gives up.
        let flags = unsafe { flags(mdl) };
        // Who frees the pages need not unmap them.
        *flags &= !(FLAG_LOCKED | FLAG_MAPPED);
        state.locked::<Mdls>().owners.remove(&mdl.addr());
        state.untrack(mdl.addr(), Kind::Mdl);
        pool::free(pages, Some(PAGES));
    });
}

#[unsafe(no_mangle)]
extern "C" fn MmUnmapLockedPages(base: PVOID, mdl: *mut MDL) {
    routine!("MmUnmapLockedPages", |state| {
        state.known_or_own(mdl);
        state.check_pinned_mdl(mdl.addr(), "unmapped");
        // SAFETY: a known MDL, which the driver is just unmapping.
        let flags = unsafe { flags(mdl) };
        if *flags & FLAG_MAPPED == 0 {
            bug_check(Rule::BadMdl, format_args!("an MDL is unmapped that is not mapped"));
        }
        if *flags & FLAG_PARTIAL != 0 && *flags & FLAG_OWN_MAPPING == 0 {
            bug_check(Rule::BadMdl, format_args!("a partial MDL is unmapped that has the mapping of its source"));
        }
        // SAFETY: a known MDL, which the driver is just unmapping.
        let mapped = unsafe { (*mdl).MappedSystemVa };
        if base != mapped {
            bug_check(Rule::BadMdl, format_args!("an MDL is unmapped from {base:p}, and is mapped at {mapped:p}"));
        }
        *flags &= !(FLAG_MAPPED | FLAG_OWN_MAPPING);
    });
}
