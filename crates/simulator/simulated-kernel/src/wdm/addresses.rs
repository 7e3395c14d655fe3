//! Addresses: whether there is memory, and where it lies physically; memory that is physically in one piece; copies of memory that may not
//! be there; and whose call the current thread serves.
//!
//! The pool is physically in one piece, from the first mebibyte on. What else there is lies above, and device memory where the bus has it.

use std::ptr;

use wdk_bindings::{
    BOOLEAN, KPROCESSOR_MODE, LARGE_INTEGER, NTSTATUS, PHYSICAL_ADDRESS, PVOID, SIZE_T, STATUS_INVALID_ADDRESS,
    STATUS_SUCCESS, ULONG,
};

use crate::{context, paged, platform, pool, report::bug_check, routine::routine, rule::Rule, state::State};

/// The tag of memory that is physically in one piece.
const TAG: u32 = u32::from_ne_bytes(*b"MmCm");
/// Where the pool begins physically.
const POOL: u64 = 1 << 20;
/// A bit of the physical addresses of memory that is neither the pool's nor a device's; the rest of them is the address.
const OTHER: u64 = 1 << 47;

/// Returns true if the system can read the word around an address now.
fn is_readable(address: usize) -> bool {
    platform::peek(address - address % size_of::<usize>()).is_some()
}

/// That of memory that is free is no valid address, and that of a page which is out of reach is none at the moment.
#[unsafe(no_mangle)]
extern "C" fn MmIsAddressValid(address: PVOID) -> BOOLEAN {
    routine!("MmIsAddressValid", DISPATCH_LEVEL, |_| {
        let address = address.addr();
        BOOLEAN::from(pool::is_live(address) != Some(false) && is_readable(address))
    })
}

/// Where memory lies physically.
fn physical(state: &State, address: usize) -> u64 {
    let in_pool = || pool::offset_of(address).map(|offset| POOL + offset as u64);
    state.device_address(address).or_else(in_pool).unwrap_or(OTHER | address as u64)
}

/// The memory that lies there physically; `None` if that is a device's, or nothing.
pub(super) fn memory_at(physical: u64) -> Option<usize> {
    if physical & OTHER != 0 {
        return usize::try_from(physical & !OTHER).ok();
    }
    pool::address_at(usize::try_from(physical.checked_sub(POOL)?).ok()?)
}

#[unsafe(no_mangle)]
extern "C" fn MmGetPhysicalAddress(address: PVOID) -> PHYSICAL_ADDRESS {
    routine!("MmGetPhysicalAddress", HIGH_LEVEL, |state| {
        let address = address.expose_provenance();
        pool::check_live(address, format_args!("the address {address:#x}, whose physical one is asked for, is in"));
        if !paged::contains(address) && !is_readable(address) {
            bug_check(Rule::BadArgument, format_args!("the physical address of {address:#x}, where no memory is"));
        }
        LARGE_INTEGER { QuadPart: physical(state, address).cast_signed() }
    })
}

/// What a driver wants of memory that is physically in one piece.
struct Wanted {
    size: SIZE_T,
    lowest: PHYSICAL_ADDRESS,
    highest: PHYSICAL_ADDRESS,
    /// No multiple of it lies inside; none if it is zero.
    boundary: PHYSICAL_ADDRESS,
}

/// `MmNotMapped` and what is above are no types of a cache.
const CACHE_TYPES: u32 = 4;
/// `MM_ANY_NODE_OK`. There is one node.
const ANY_NODE: ULONG = 0x8000_0000;

fn number(address: PHYSICAL_ADDRESS) -> u64 {
    // SAFETY: every value of the union's numbers is one.
    unsafe { address.QuadPart }.cast_unsigned()
}

/// Allocates memory that is physically in one piece: at least a page, so that it begins with one.
fn contiguous(state: &State, wanted: &Wanted) -> PVOID {
    if wanted.size == 0 {
        bug_check(Rule::BadArgument, format_args!("contiguous memory of zero bytes"));
    }
    let boundary = number(wanted.boundary);
    if boundary != 0 && !boundary.is_power_of_two() {
        bug_check(Rule::BadArgument, format_args!("contiguous memory that may not cross multiples of {boundary:#x}"));
    }
    if state.strikes() {
        return ptr::null_mut();
    }
    let size = usize::try_from(wanted.size).unwrap_or(usize::MAX).max(pool::PAGE);
    let Some(block) = pool::allocate(context::caller(), size, TAG, false) else { return ptr::null_mut() };
    let first = physical(state, block);
    let last = first + (size as u64 - 1);
    let crosses = boundary != 0 && first / boundary != last / boundary;
    if first < number(wanted.lowest) || last > number(wanted.highest) || crosses {
        pool::free(block, Some(TAG));
        return ptr::null_mut();
    }
    ptr::with_exposed_provenance_mut(block)
}

fn check_cache(cache: u32) {
    if cache >= CACHE_TYPES {
        bug_check(Rule::BadArgument, format_args!("contiguous memory with the type of cache {cache}, which is none"));
    }
}

const ZERO: PHYSICAL_ADDRESS = LARGE_INTEGER { QuadPart: 0 };

#[unsafe(no_mangle)]
extern "C" fn MmAllocateContiguousMemory(size: SIZE_T, highest: PHYSICAL_ADDRESS) -> PVOID {
    routine!("MmAllocateContiguousMemory", DISPATCH_LEVEL, |state| {
        contiguous(state, &Wanted { size, lowest: ZERO, highest, boundary: ZERO })
    })
}

#[unsafe(no_mangle)]
extern "C" fn MmAllocateContiguousMemorySpecifyCache(
    size: SIZE_T,
    lowest: PHYSICAL_ADDRESS,
    highest: PHYSICAL_ADDRESS,
    boundary: PHYSICAL_ADDRESS,
    cache: u32,
) -> PVOID {
    routine!("MmAllocateContiguousMemorySpecifyCache", DISPATCH_LEVEL, |state| {
        check_cache(cache);
        contiguous(state, &Wanted { size, lowest, highest, boundary })
    })
}

/// With one node it makes no difference which is preferred.
#[unsafe(no_mangle)]
extern "C" fn MmAllocateContiguousMemorySpecifyCacheNode(
    size: SIZE_T,
    lowest: PHYSICAL_ADDRESS,
    highest: PHYSICAL_ADDRESS,
    boundary: PHYSICAL_ADDRESS,
    cache: u32,
    _node: ULONG,
) -> PVOID {
    routine!("MmAllocateContiguousMemorySpecifyCacheNode", DISPATCH_LEVEL, |state| {
        check_cache(cache);
        contiguous(state, &Wanted { size, lowest, highest, boundary })
    })
}

/// Memory that does not run, or does; here none does.
#[unsafe(no_mangle)]
extern "C" fn MmAllocateContiguousNodeMemory(
    size: SIZE_T,
    lowest: PHYSICAL_ADDRESS,
    highest: PHYSICAL_ADDRESS,
    boundary: PHYSICAL_ADDRESS,
    protect: ULONG,
    node: ULONG,
) -> PVOID {
    /// `PAGE_READWRITE` and `PAGE_EXECUTE_READWRITE`, and `PAGE_NOCACHE` and `PAGE_WRITECOMBINE`: one of each at most.
    const ACCESS: ULONG = 0x04 | 0x40;
    const CACHE: ULONG = 0x200 | 0x400;
    routine!("MmAllocateContiguousNodeMemory", DISPATCH_LEVEL, |state| {
        let has_access = (protect & ACCESS).is_power_of_two() && (protect & CACHE).count_ones() <= 1;
        if !has_access || protect & !(ACCESS | CACHE) != 0 {
            bug_check(Rule::BadArgument, format_args!("contiguous memory with the protection {protect:#x}"));
        }
        if node != 0 && node != ANY_NODE {
            return ptr::null_mut();
        }
        contiguous(state, &Wanted { size, lowest, highest, boundary })
    })
}

#[unsafe(no_mangle)]
extern "C" fn MmFreeContiguousMemory(block: PVOID) {
    routine!("MmFreeContiguousMemory", DISPATCH_LEVEL, |_| pool::free(block.expose_provenance(), Some(TAG)));
}

#[unsafe(no_mangle)]
extern "C" fn MmFreeContiguousMemorySpecifyCache(block: PVOID, size: SIZE_T, cache: u32) {
    routine!("MmFreeContiguousMemorySpecifyCache", DISPATCH_LEVEL, |_| {
        check_cache(cache);
        let address = block.expose_provenance();
        let (wanted, given) = (usize::try_from(size).unwrap_or(usize::MAX).max(pool::PAGE), pool::length_of(address));
        if given.is_some_and(|given| given != wanted) {
            bug_check(Rule::BadArgument, format_args!("contiguous memory is freed as {size} bytes, which it has not"));
        }
        pool::free(address, Some(TAG));
    });
}

/// `MM_COPY_MEMORY_PHYSICAL` and `MM_COPY_MEMORY_VIRTUAL`.
const BY_PHYSICAL: ULONG = 1;
const BY_VIRTUAL: ULONG = 2;

/// Returns true if there is memory to copy, or some that comes when it is touched.
fn can_be_copied(address: usize) -> bool {
    if paged::contains(address) { pool::is_live(address) == Some(true) } else { is_readable(address) }
}

/// Copies as many bytes as there are, page by page.
fn copy(target: *mut u8, source: usize, size: usize) -> usize {
    let mut done = 0;
    while done < size {
        let Some(address) = source.checked_add(done).filter(|&address| can_be_copied(address)) else { break };
        let piece = (pool::PAGE - address % pool::PAGE).min(size - done);
        let from: *const u8 = ptr::with_exposed_provenance(address);
        // SAFETY: the system can read this page, and the driver's buffer has as many bytes as it says. The two may overlap.
        unsafe { ptr::copy(from, target.wrapping_add(done), piece) };
        done += piece;
    }
    done
}

/// The source is `MM_COPY_ADDRESS`, a union of one word that is passed by value.
#[unsafe(no_mangle)]
extern "C" fn MmCopyMemory(target: PVOID, source: u64, size: SIZE_T, flags: ULONG, done: *mut SIZE_T) -> NTSTATUS {
    routine!("MmCopyMemory", APC_LEVEL, |_| {
        if flags != BY_PHYSICAL && flags != BY_VIRTUAL {
            bug_check(Rule::BadArgument, format_args!("MmCopyMemory with the flags {flags:#x}: physical or virtual"));
        }
        if paged::contains(target.addr()) {
            bug_check(Rule::BadArgument, format_args!("MmCopyMemory into pageable memory at {target:p}"));
        }
        let source = if flags == BY_PHYSICAL { memory_at(source) } else { usize::try_from(source).ok() };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let copied = source.map_or(0, |source| copy(target.cast(), source, size));
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { done.write(copied as SIZE_T) };
        if copied == size { STATUS_SUCCESS } else { STATUS_INVALID_ADDRESS }
    })
}

/// That of a program, in whose context a thread is in the kernel only because the program has called it.
#[unsafe(no_mangle)]
extern "C" fn ExGetPreviousMode() -> KPROCESSOR_MODE {
    /// `UserMode`.
    const PROGRAM: KPROCESSOR_MODE = 1;
    routine!("ExGetPreviousMode", DISPATCH_LEVEL, |_| {
        if context::process() == context::SYSTEM_PROCESS { 0 } else { PROGRAM }
    })
}
