//! MDLs that describe a part of another one.

use std::ptr;

use wdk_sys::{
    MDL, POOL_FLAG_NON_PAGED, PVOID, ULONG,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, KfRaiseIrql, MmBuildMdlForNonPagedPool,
        MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnlockPages, MmUnmapLockedPages,
    },
};

use crate::asked::{call, tests};

unsafe extern "C" {
    // The kit declares it, the bindings leave it out.
    fn IoBuildPartialMdl(source: *mut MDL, target: *mut MDL, address: PVOID, length: ULONG);
}

const TAG: u32 = u32::from_ne_bytes(*b"Test");
const BYTES: u32 = 12_000;
/// `MDL_MAPPED_TO_SYSTEM_VA` or `MDL_SOURCE_IS_NONPAGED_POOL`: there is a system address.
const HAS_ADDRESS: i16 = 5;
/// `MDL_PARTIAL_HAS_BEEN_MAPPED`.
const OWN_MAPPING: i16 = 0x20;

fn block() -> PVOID {
    let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES.into(), TAG));
    assert!(!block.is_null());
    block
}

fn free(block: PVOID) {
    call!(ExFreePoolWithTag(block, TAG));
}

fn allocate(block: PVOID, bytes: u32) -> *mut MDL {
    let mdl = call!(IoAllocateMdl(block, bytes, 0, 0, ptr::null_mut()));
    assert!(!mdl.is_null());
    mdl
}

/// A block, an MDL of it whose pages are locked, and one that has room for a part of it.
fn locked() -> (PVOID, *mut MDL, *mut MDL) {
    let block = block();
    let (source, target) = (allocate(block, BYTES), allocate(block, BYTES));
    call!(MmProbeAndLockPages(source, 0, 0));
    (block, source, target)
}

fn map(mdl: *mut MDL) -> PVOID {
    call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16))
}

/// What the kit's macro `MmPrepareMdlForReuse` does.
fn prepare_for_reuse(mdl: *mut MDL) {
    // SAFETY: the driver's own MDL.
    let now = unsafe { mdl.read() };
    if now.MdlFlags & OWN_MAPPING != 0 {
        call!(MmUnmapLockedPages(now.MappedSystemVa, mdl));
    }
}

/// The first byte that an MDL describes, and how many there are.
fn described(mdl: *mut MDL) -> (PVOID, u32) {
    // SAFETY: the driver's own MDL.
    let mdl = unsafe { mdl.read() };
    (mdl.StartVa.wrapping_byte_add(mdl.ByteOffset as usize), mdl.ByteCount)
}

tests! {
    a_part_of_what_is_not_mapped_gets_a_mapping_of_its_own by {
        let (block, source, target) = locked();
        for (offset, length, expected) in [(0, 1, 1), (5000, 100, 100), (4095, 0, BYTES - 4095)] {
            let start = block.wrapping_byte_add(offset);
            call!(IoBuildPartialMdl(source, target, start, length));
            assert_eq!(described(target), (start, expected));
            // SAFETY: the driver's own MDL.
            assert_eq!(unsafe { (*target).MdlFlags } & HAS_ADDRESS, 0, "as the source has none");
            assert_eq!(map(target), start);
            prepare_for_reuse(target);
        }
        call!(IoBuildPartialMdl(source, target, block, 8));
        map(target);
        call!(IoFreeMdl(target));
        call!(MmUnlockPages(source));
        call!(IoFreeMdl(source));
        free(block);
    }
    a_part_of_what_is_mapped_has_its_mapping by {
        let block = block();
        let (source, target, part) = (allocate(block, BYTES), allocate(block, BYTES), allocate(block, BYTES));
        call!(MmBuildMdlForNonPagedPool(source));
        call!(IoBuildPartialMdl(source, target, block.wrapping_byte_add(4096), 4096));
        // A part of a part.
        let start = block.wrapping_byte_add(4100);
        call!(IoBuildPartialMdl(target, part, start, 7));
        // SAFETY: the driver's own MDL.
        let of_part = unsafe { part.read() };
        assert_eq!((of_part.MappedSystemVa, described(part)), (start, (start, 7)));
        assert_ne!(of_part.MdlFlags & HAS_ADDRESS, 0);
        prepare_for_reuse(part);
        for mdl in [part, target, source] {
            call!(IoFreeMdl(mdl));
        }
        free(block);
    }

    a_part_of_pages_that_are_not_locked breaks BadMdl by {
        let block = block();
        let (source, target) = (allocate(block, BYTES), allocate(block, BYTES));
        call!(IoBuildPartialMdl(source, target, block, 8));
    }
    a_part_beyond_the_end breaks BadMdl by {
        let (block, source, target) = locked();
        call!(IoBuildPartialMdl(source, target, block.wrapping_byte_add(8), BYTES));
    }
    a_part_before_the_beginning breaks BadMdl by {
        let block = block();
        let (source, target) = (allocate(block.wrapping_byte_add(8), 8), allocate(block, BYTES));
        call!(MmProbeAndLockPages(source, 0, 0));
        call!(IoBuildPartialMdl(source, target, block, 8));
    }
    a_part_of_nothing breaks BadMdl by {
        let (block, source, target) = locked();
        call!(IoBuildPartialMdl(source, target, block.wrapping_byte_add(BYTES as usize), 0));
    }
    a_part_in_an_mdl_that_is_too_small breaks BadMdl by {
        let (block, source, _) = locked();
        call!(IoBuildPartialMdl(source, allocate(block, 8), block, BYTES));
    }
    a_part_of_what_is_no_mdl breaks BadMdl by {
        let (block, _, target) = locked();
        call!(IoBuildPartialMdl(ptr::without_provenance_mut(64), target, block, 8));
    }
    a_partial_mdl_used_again_that_is_mapped breaks BadMdl by {
        let (block, source, target) = locked();
        for _ in 0..2 {
            call!(IoBuildPartialMdl(source, target, block, 8));
            map(target);
        }
    }
    a_source_unlocked_while_a_part_is_mapped breaks BadMdl by {
        let (block, source, target) = locked();
        call!(IoBuildPartialMdl(source, target, block, 8));
        map(target);
        call!(MmUnlockPages(source));
    }
    a_part_mapped_when_its_source_is_unlocked breaks BadMdl by {
        let (block, source, target) = locked();
        call!(IoBuildPartialMdl(source, target, block, 8));
        call!(MmUnlockPages(source));
        map(target);
    }
    a_partial_mdl_left_behind breaks PoolLeak by {
        let (block, source, target) = locked();
        call!(IoBuildPartialMdl(source, target, block, 8));
        call!(MmUnlockPages(source));
        call!(IoFreeMdl(source));
        free(block);
    }
    the_mapping_of_a_source_taken_away_by_its_part breaks BadMdl by {
        let (block, source, target) = locked();
        map(source);
        call!(IoBuildPartialMdl(source, target, block, 8));
        call!(MmUnmapLockedPages(block, target));
    }
    a_part_made_above_dispatch_level breaks IrqlTooHigh by {
        let (block, source, target) = locked();
        call!(KfRaiseIrql(3));
        call!(IoBuildPartialMdl(source, target, block, 8));
    }
}
