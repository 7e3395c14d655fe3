//! Memory of devices: the physical addresses that a bus has given them, and where drivers have mapped these.
//!
//! A range is a block of the pool as long as somebody has it mapped, so that a use after the last one has unmapped it is one of memory that
//! is free. What it holds stays with the device meanwhile. Two mappings of a range are at one address.
//!
//! A driver may map other physical addresses too. That of the system's memory is the memory itself. Where nothing is, all bits are set, as
//! on a bus where nobody answers.

use std::{collections::BTreeMap, ptr, sync::Mutex};

use wdk_bindings::{
    MDL, MEMORY_CACHING_TYPE, NTSTATUS, PHYSICAL_ADDRESS, PVOID, SIZE_T, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER_1, STATUS_SUCCESS, ULONG,
};

use super::{addresses::memory_at, mdl};
use crate::{
    context::{self, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::site_in_words,
    state::{Part, State},
};

/// The tag of blocks that stand for ranges.
const TAG: u32 = u32::from_ne_bytes(*b"MmIo");
/// Where the addresses of devices begin: no memory of a program or of the pool.
const FIRST: u64 = 0x80_0000_0000;

/// What a device has of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub length: u32,
}

/// The memory of a device.
struct Memory {
    length: usize,
    /// What it holds while it is not mapped.
    kept: Vec<u8>,
    /// The block that it is while it is mapped, and by how many.
    block: usize,
    users: usize,
}

/// What a driver has mapped.
struct Mapping {
    address: usize,
    length: usize,
    of: Mapped,
    site: usize,
}

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapped {
    /// The memory of a device: its range.
    Device(u64),
    /// The system's, which is somebody else's to free.
    System,
    /// Nothing: the block that stands for it.
    Nothing(usize),
}

/// The memory of all devices.
#[derive(Default)]
pub struct IoSpace {
    ranges: BTreeMap<u64, Memory>,
    mappings: Vec<Mapping>,
    /// The end of the last range.
    end: u64,
}

impl Part for Mutex<IoSpace> {}

impl Memory {
    /// One more has it mapped. The address, or nothing if there is no memory.
    fn enter(&mut self) -> Option<usize> {
        if self.users == 0 {
            self.block = pool::allocate(NOBODY, self.length.next_multiple_of(pool::PAGE), TAG, true)?;
            self.write(&self.kept);
        }
        self.users += 1;
        Some(self.block)
    }

    fn leave(&mut self) {
        self.users -= 1;
        if self.users == 0 {
            self.kept = self.read();
            pool::free(self.block, Some(TAG));
        }
    }

    fn place(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.block)
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: the block is as long as the range, and is not freed while somebody has it mapped, or before this has returned.
        unsafe { ptr::copy_nonoverlapping(self.place(), bytes.as_mut_ptr(), self.length) };
        bytes
    }

    fn write(&self, bytes: &[u8]) {
        // SAFETY: the block is as long as the range, of which these are no more bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(), bytes.len().min(self.length)) };
    }

    /// What it holds now.
    fn now(&self) -> Vec<u8> {
        if self.users == 0 { self.kept.clone() } else { self.read() }
    }

    fn change(&mut self, offset: usize, bytes: &[u8]) {
        let mut all = self.now();
        if let Some(place) = offset.checked_add(bytes.len()).and_then(|end| all.get_mut(offset..end)) {
            place.copy_from_slice(bytes);
        }
        if self.users == 0 { self.kept = all } else { self.write(&all) }
    }
}

impl IoSpace {
    /// The range that has all of these bytes, and how far from its start they begin.
    fn around(&mut self, start: u64, length: usize) -> Option<(u64, usize, &mut Memory)> {
        let (&range, memory) = self.ranges.range_mut(..=start).next_back()?;
        let offset = usize::try_from(start - range).ok()?;
        let is_inside = length > 0 && offset.checked_add(length).is_some_and(|end| end <= memory.length);
        is_inside.then_some((range, offset, memory))
    }

    /// Returns true if some of these bytes are a device's.
    fn touches(&self, start: u64, length: usize) -> bool {
        let end = start.saturating_add(length as u64);
        self.ranges.range(..end).next_back().is_some_and(|(&range, memory)| range + memory.length as u64 > start)
    }
}

impl State {
    /// A bus gives a device so many bytes of physical memory, all zeros.
    pub fn give_memory(&self, length: u32) -> Range {
        let mut space = self.locked::<IoSpace>();
        // A base address is a multiple of the size, which is a power of two on a bus.
        let alignment = u64::from(length).next_power_of_two().max(pool::PAGE as u64);
        let start = space.end.max(FIRST).next_multiple_of(alignment);
        space.end = start + u64::from(length).next_multiple_of(pool::PAGE as u64);
        let length_of_memory = length as usize;
        let kept = vec![0; length_of_memory];
        space.ranges.insert(start, Memory { length: length_of_memory, kept, block: 0, users: 0 });
        Range { start, length }
    }

    /// The device is gone, and its memory with it.
    pub fn take_memory(&self, ranges: &[Range]) {
        let mut space = self.locked::<IoSpace>();
        for range in ranges {
            space.ranges.remove(&range.start);
        }
    }

    /// The hardware of a device is released: nobody may have its memory mapped.
    pub fn check_unmapped(&self, ranges: &[Range]) {
        let (mapping, has_users) = {
            let space = self.locked::<IoSpace>();
            let is_of = |start: u64| ranges.iter().any(|range| range.start == start);
            let mapping =
                space.mappings.iter().find(|mapping| matches!(mapping.of, Mapped::Device(range) if is_of(range)));
            let has_users = space.ranges.iter().any(|(&start, memory)| is_of(start) && memory.users > 0);
            (mapping.map(|mapping| (mapping.address, mapping.length, mapping.site)), has_users)
        };
        if let Some((address, length, site)) = mapping {
            let words = site_in_words(site);
            bug_check(
                Rule::ReferenceLeak,
                format_args!(
                    "{length} bytes of a device are mapped at {address:#x} when its hardware is released{words}"
                ),
            );
        }
        if has_users {
            bug_check(Rule::ReferenceLeak, format_args!("an MDL has memory of a device when its hardware is released"));
        }
    }

    /// What the memory of a device holds, as the device sees it.
    pub fn device_memory(&self, range: Range) -> Vec<u8> {
        self.locked::<IoSpace>().ranges.get(&range.start).map_or_else(Vec::new, Memory::now)
    }

    /// The device changes its memory, from an offset on.
    pub fn set_device_memory(&self, range: Range, offset: usize, bytes: &[u8]) {
        let mut space = self.locked::<IoSpace>();
        if let Some(memory) = space.ranges.get_mut(&range.start) {
            memory.change(offset, bytes);
        }
    }

    fn map(&self, start: PHYSICAL_ADDRESS, length: SIZE_T) -> PVOID {
        // SAFETY: any number is an address.
        let start = unsafe { start.QuadPart }.cast_unsigned();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if self.strikes() {
            return ptr::null_mut();
        }
        let site = context::current_site();
        let mut space = self.locked::<IoSpace>();
        let Some((range, offset, memory)) = space.around(start, length) else {
            let is_wrong = length == 0 || space.touches(start, length);
            drop(space);
            if is_wrong {
                let words = "where a device has some of them, or none are wanted";
                bug_check(
                    Rule::BadArgument,
                    format_args!("{length} bytes are mapped at the physical address {start:#x}, {words}"),
                );
            }
            let Some((address, of)) = map_other(start, length) else { return ptr::null_mut() };
            self.locked::<IoSpace>().mappings.push(Mapping { address, length, of, site });
            return ptr::with_exposed_provenance_mut(address);
        };
        let Some(block) = memory.enter() else { return ptr::null_mut() };
        let address = block + offset;
        space.mappings.push(Mapping { address, length, of: Mapped::Device(range), site });
        ptr::with_exposed_provenance_mut(address)
    }

    fn unmap(&self, address: PVOID, length: SIZE_T) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let wrong = {
            let mut space = self.locked::<IoSpace>();
            let at_address = |mapping: &&Mapping| mapping.address == address.addr();
            let found = space.mappings.iter().rposition(|one| at_address(&one) && one.length == length);
            match found.map(|found| space.mappings.remove(found)) {
                Some(Mapping { of: Mapped::Device(range), .. }) => {
                    if let Some(memory) = space.ranges.get_mut(&range) {
                        memory.leave();
                    }
                    return;
                }
                Some(Mapping { of: Mapped::System, .. }) => return,
                Some(Mapping { of: Mapped::Nothing(block), .. }) => {
                    drop(space);
                    pool::free(block, Some(TAG));
                    return;
                }
                None => space.mappings.iter().find(at_address).map(|mapping| (mapping.length, mapping.site)),
            }
        };
        match wrong {
            Some((mapped, site)) => bug_check(
                Rule::BadArgument,
                format_args!(
                    "MmUnmapIoSpace of {length} bytes at {address:p}, where {mapped} are mapped{}",
                    site_in_words(site)
                ),
            ),
            None => {
                bug_check(Rule::BadArgument, format_args!("MmUnmapIoSpace of {address:p}, where nothing is mapped"))
            }
        }
    }

    /// The physical address of a device's memory that is mapped at this address.
    pub fn device_address(&self, address: usize) -> Option<u64> {
        let space = self.locked::<IoSpace>();
        space.ranges.iter().find_map(|(&start, memory)| {
            let offset = address.checked_sub(memory.block).filter(|_| memory.users > 0)?;
            (offset < memory.length).then_some(start + offset as u64)
        })
    }

    /// An MDL of a device's memory is freed.
    pub fn leave_io_space(&self, range: u64) {
        if let Some(memory) = self.locked::<IoSpace>().ranges.get_mut(&range) {
            memory.leave();
        }
    }
}

/// Maps what is no device's. The address; `None` if there is no memory.
fn map_other(start: u64, length: usize) -> Option<(usize, Mapped)> {
    if let Some(address) = memory_at(start) {
        let room = pool::room_at(address);
        if !pool::contains(address) || room.is_some_and(|room| room >= length) {
            return Some((address, Mapped::System));
        }
        let freed = pool::freed_in_words(address);
        if room.is_some() || !freed.is_empty() {
            let words = "which are not all locked: their owner may give them back";
            bug_check(
                Rule::UseAfterFree,
                format_args!("{length} bytes of memory are mapped at the physical address {start:#x}, {words}{freed}"),
            );
        }
    }
    let offset = usize::try_from(start % pool::PAGE as u64).unwrap_or(0);
    let size = offset.checked_add(length)?.checked_next_multiple_of(pool::PAGE)?;
    let block = pool::allocate(context::caller(), size, TAG, true)?;
    let place: *mut u8 = ptr::with_exposed_provenance_mut(block);
    // SAFETY: a new block with so many bytes.
    unsafe { place.write_bytes(0xFF, size) };
    Some((block + offset, Mapped::Nothing(block)))
}

#[unsafe(no_mangle)]
extern "C" fn MmMapIoSpace(start: PHYSICAL_ADDRESS, length: SIZE_T, _cache: MEMORY_CACHING_TYPE) -> PVOID {
    routine!("MmMapIoSpace", DISPATCH_LEVEL, |state| state.map(start, length))
}

#[unsafe(no_mangle)]
extern "C" fn MmMapIoSpaceEx(start: PHYSICAL_ADDRESS, length: SIZE_T, protect: ULONG) -> PVOID {
    /// `PAGE_READONLY`, `PAGE_READWRITE`, `PAGE_EXECUTE`, `PAGE_EXECUTE_READ` and `PAGE_EXECUTE_READWRITE`: one of them.
    const ACCESS: ULONG = 0x02 | 0x04 | 0x10 | 0x20 | 0x40;
    routine!("MmMapIoSpaceEx", DISPATCH_LEVEL, |state| {
        if !(protect & ACCESS).is_power_of_two() {
            bug_check(Rule::BadArgument, format_args!("MmMapIoSpaceEx with the protection {protect:#x}"));
        }
        state.map(start, length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn MmUnmapIoSpace(address: PVOID, length: SIZE_T) {
    routine!("MmUnmapIoSpace", DISPATCH_LEVEL, |state| state.unmap(address, length));
}

/// One of the ranges of `MmAllocateMdlForIoSpace`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PhysicalAddressList {
    start: PHYSICAL_ADDRESS,
    length: SIZE_T,
}

/// The MDL has the range until it is freed. Unlike the real one it names an address before it is mapped.
#[unsafe(no_mangle)]
extern "C" fn MmAllocateMdlForIoSpace(list: *mut PhysicalAddressList, entries: SIZE_T, new: *mut *mut MDL) -> NTSTATUS {
    routine!("MmAllocateMdlForIoSpace", DISPATCH_LEVEL, |state| {
        if entries != 1 {
            bug_check(Rule::NotSimulated, format_args!("an MDL of {entries} physical ranges"));
        }
        // SAFETY: the driver's list, which lives until the call returns.
        let PhysicalAddressList { start, length } = unsafe { list.read() };
        // SAFETY: any number is an address.
        let start = unsafe { start.QuadPart }.cast_unsigned();
        let (Ok(bytes), Ok(count)) = (usize::try_from(length), ULONG::try_from(length)) else {
            return STATUS_INVALID_PARAMETER_1;
        };
        if start % pool::PAGE as u64 != 0 || bytes % pool::PAGE != 0 {
            return STATUS_INVALID_PARAMETER_1;
        }
        let (range, address) = {
            let mut space = state.locked::<IoSpace>();
            let Some((range, offset, memory)) = space.around(start, bytes) else { return STATUS_INVALID_PARAMETER_1 };
            let Some(block) = memory.enter() else { return STATUS_INSUFFICIENT_RESOURCES };
            (range, block + offset)
        };
        let address = ptr::with_exposed_provenance_mut(address);
        let Some(made) = mdl::allocate_for_io_space(state, context::caller(), address, count, range) else {
            state.leave_io_space(range);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { new.write(made) };
        STATUS_SUCCESS
    })
}
