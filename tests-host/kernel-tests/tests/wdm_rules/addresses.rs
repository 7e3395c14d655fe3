//! Addresses: whether there is memory, where it lies physically, memory in one piece, copies, and whose call a thread serves.

use std::ptr;

use simulated_kernel::Kernel;
use wdk_sys::{
    BOOLEAN, KPROCESSOR_MODE, LARGE_INTEGER, NTSTATUS, PHYSICAL_ADDRESS, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, PVOID,
    SIZE_T, STATUS_INVALID_ADDRESS, STATUS_SUCCESS, ULONG,
    ntddk::{ExAllocatePool2, ExFreePool, ExFreePoolWithTag, KeLowerIrql, KfRaiseIrql},
};

use crate::{
    asked::{call, tests},
    driver::{self, CODE, LINK, Parts, complete},
};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn MmIsAddressValid(address: PVOID) -> BOOLEAN;
    fn MmGetPhysicalAddress(address: PVOID) -> PHYSICAL_ADDRESS;
    fn MmAllocateContiguousMemory(size: SIZE_T, highest: PHYSICAL_ADDRESS) -> PVOID;
    fn MmFreeContiguousMemory(block: PVOID);
    fn MmAllocateContiguousMemorySpecifyCache(
        size: SIZE_T,
        lowest: PHYSICAL_ADDRESS,
        highest: PHYSICAL_ADDRESS,
        boundary: PHYSICAL_ADDRESS,
        cache: u32,
    ) -> PVOID;
    fn MmAllocateContiguousMemorySpecifyCacheNode(
        size: SIZE_T,
        lowest: PHYSICAL_ADDRESS,
        highest: PHYSICAL_ADDRESS,
        boundary: PHYSICAL_ADDRESS,
        cache: u32,
        node: u32,
    ) -> PVOID;
    fn MmAllocateContiguousNodeMemory(
        size: SIZE_T,
        lowest: PHYSICAL_ADDRESS,
        highest: PHYSICAL_ADDRESS,
        boundary: PHYSICAL_ADDRESS,
        protect: u32,
        node: u32,
    ) -> PVOID;
    fn MmFreeContiguousMemorySpecifyCache(block: PVOID, size: SIZE_T, cache: u32);
    fn MmCopyMemory(target: PVOID, source: u64, size: SIZE_T, flags: ULONG, done: *mut SIZE_T) -> NTSTATUS;
    fn ExGetPreviousMode() -> KPROCESSOR_MODE;
}

const TAG: u32 = u32::from_ne_bytes(*b"Test");
/// `MM_COPY_MEMORY_PHYSICAL` and `MM_COPY_MEMORY_VIRTUAL`.
const BY_PHYSICAL: ULONG = 1;
const BY_VIRTUAL: ULONG = 2;

fn block(flags: u64, bytes: u64) -> PVOID {
    let block = call!(ExAllocatePool2(flags, bytes, TAG));
    assert!(!block.is_null());
    block
}

fn physical(address: PVOID) -> u64 {
    let physical = call!(MmGetPhysicalAddress(address));
    // SAFETY: every value of the union's numbers is one.
    unsafe { physical.QuadPart }.cast_unsigned()
}

fn contiguous(size: u64, highest: i64) -> PVOID {
    call!(MmAllocateContiguousMemory(size, LARGE_INTEGER { QuadPart: highest }))
}

/// Copies eight bytes into a variable: the status, how many there were, and what it holds.
fn copy(source: u64, flags: ULONG) -> (NTSTATUS, u64, u64) {
    let (mut target, mut done) = (0_u64, 9);
    let status = call!(MmCopyMemory((&raw mut target).cast(), source, 8, flags, &raw mut done));
    (status, done, target)
}

/// Writes a number into the driver's block.
fn write(block: PVOID, number: u64) {
    // SAFETY: the driver's block, of at least eight bytes.
    unsafe { block.cast::<u64>().write(number) };
}

/// `MmCached`, and the first number that is no type of a cache.
const CACHED: u32 = 1;
const NO_TYPE: u32 = 4;
/// `PAGE_READWRITE`, `PAGE_NOCACHE` and `PAGE_WRITECOMBINE`.
const READ_AND_WRITE: u32 = 0x04;
const NO_CACHE: u32 = 0x200;
const COMBINED: u32 = 0x400;
/// `MM_ANY_NODE_OK`.
const ANY_NODE: u32 = 0x8000_0000;

/// Memory from an address on, in which no multiple of a boundary lies.
fn bounded(size: u64, lowest: i64, boundary: i64, cache: u32) -> PVOID {
    let [lowest, highest, boundary] = [lowest, i64::MAX, boundary].map(|number| LARGE_INTEGER { QuadPart: number });
    call!(MmAllocateContiguousMemorySpecifyCache(size, lowest, highest, boundary, cache))
}

/// Memory of any place, of a node, with a protection.
fn of_node(node: u32, protect: u32) -> PVOID {
    let [any, highest] = [0, i64::MAX].map(|number| LARGE_INTEGER { QuadPart: number });
    call!(MmAllocateContiguousNodeMemory(5000, any, highest, any, protect, node))
}

tests! {
    an_address_is_valid_where_memory_is by {
        let (pool, mut variable) = (block(POOL_FLAG_NON_PAGED, 16), 0_u8);
        let before = call!(KfRaiseIrql(2));
        assert_eq!([call!(MmIsAddressValid(pool)), call!(MmIsAddressValid((&raw mut variable).cast()))], [1, 1]);
        assert_eq!([call!(MmIsAddressValid(ptr::null_mut())), call!(MmIsAddressValid(ptr::without_provenance_mut(64)))], [0, 0]);
        call!(KeLowerIrql(before));
        call!(ExFreePoolWithTag(pool, TAG));
        assert_eq!(call!(MmIsAddressValid(pool)), 0, "it is free");
    }
    a_page_that_is_out_of_reach_is_no_valid_address by {
        let paged = block(POOL_FLAG_PAGED, 16);
        write(paged, 7);
        assert_eq!(call!(MmIsAddressValid(paged)), 1);
        let before = call!(KfRaiseIrql(2));
        assert_eq!(call!(MmIsAddressValid(paged)), 0, "it would be a page fault");
        call!(KeLowerIrql(before));
        call!(ExFreePool(paged));
    }
    memory_in_one_piece_is_so_physically_and_below_the_highest_address by {
        let memory = contiguous(10_000, i64::MAX);
        assert!(memory.addr().is_multiple_of(4096) && !memory.is_null());
        let start = physical(memory);
        let before = call!(KfRaiseIrql(15));
        assert_eq!(physical(memory.wrapping_byte_add(9999)), start + 9999);
        call!(KeLowerIrql(before));
        call!(MmFreeContiguousMemory(memory));
        assert!(contiguous(10_000, 0xFFF).is_null(), "there is none so low");
        let small = contiguous(1, 0xFFFF_FFFF);
        assert!(small.addr().is_multiple_of(4096) && physical(small) <= 0xFFFF_FFFF);
        call!(MmFreeContiguousMemory(small));
    }
    memory_is_copied_by_each_address by {
        let (pool, paged) = (block(POOL_FLAG_NON_PAGED, 8), block(POOL_FLAG_PAGED, 8));
        write(pool, 0x1234);
        write(paged, 0x5678);
        let before = call!(KfRaiseIrql(2));
        call!(KeLowerIrql(before));
        let mut variable = 0x9ABC_u64;
        let variable: PVOID = (&raw mut variable).cast();
        for (memory, holds) in [(pool, 0x1234), (paged, 0x5678), (variable, 0x9ABC)] {
            let right = (STATUS_SUCCESS, 8, holds);
            assert_eq!(copy(memory.expose_provenance() as u64, BY_VIRTUAL), right, "a page comes back when it is copied");
            assert_eq!(copy(physical(memory), BY_PHYSICAL), right);
        }
        for flags in [BY_PHYSICAL, BY_VIRTUAL] {
            assert_eq!(copy(64, flags), (STATUS_INVALID_ADDRESS, 0, 0), "nothing is there");
        }
        // Memory of devices is not copied.
        assert_eq!(copy(0x80_0000_0000, BY_PHYSICAL), (STATUS_INVALID_ADDRESS, 0, 0));
        call!(ExFreePoolWithTag(pool, TAG));
        call!(ExFreePoolWithTag(paged, TAG));
    }

    memory_in_one_piece_is_where_the_driver_wants_it by {
        let memory = bounded(10_000, 0, 1 << 40, CACHED);
        assert!(!memory.is_null());
        call!(MmFreeContiguousMemorySpecifyCache(memory, 10_000, CACHED));
        assert!(bounded(10_000, i64::MAX - 4096, 0, CACHED).is_null(), "there is none so high");
        assert!(bounded(10_000, 0, 4096, CACHED).is_null(), "three pages cross the end of one");
        let [any, highest] = [0, i64::MAX].map(|number| LARGE_INTEGER { QuadPart: number });
        for node in [0, 1, ANY_NODE] {
            let memory = call!(MmAllocateContiguousMemorySpecifyCacheNode(64, any, highest, any, 0, node));
            call!(MmFreeContiguousMemory(memory));
        }
        assert!(of_node(1, READ_AND_WRITE).is_null(), "there is one node");
        for memory in [of_node(0, READ_AND_WRITE | NO_CACHE), of_node(ANY_NODE, READ_AND_WRITE | COMBINED)] {
            assert!(memory.addr().is_multiple_of(4096) && !memory.is_null());
            call!(MmFreeContiguousMemory(memory));
        }
    }

    a_boundary_that_is_no_power_of_two breaks BadArgument by { bounded(8, 0, 3 << 20, CACHED); }
    memory_in_one_piece_with_a_cache_of_no_type breaks BadArgument by { bounded(8, 0, 0, NO_TYPE); }
    memory_in_one_piece_that_is_not_to_be_accessed breaks BadArgument by { of_node(0, NO_CACHE); }
    memory_in_one_piece_with_two_caches breaks BadArgument by { of_node(0, READ_AND_WRITE | NO_CACHE | COMBINED); }
    memory_in_one_piece_freed_as_fewer_bytes breaks BadArgument by {
        call!(MmFreeContiguousMemorySpecifyCache(bounded(10_000, 0, 0, CACHED), 5000, CACHED));
    }
    memory_in_one_piece_left_behind breaks PoolLeak by { contiguous(1, i64::MAX); }
    memory_in_one_piece_freed_as_pool breaks PoolTag by {
        call!(ExFreePoolWithTag(contiguous(1, i64::MAX), TAG));
    }
    pool_freed_as_memory_in_one_piece breaks PoolTag by {
        call!(MmFreeContiguousMemory(block(POOL_FLAG_NON_PAGED, 4096)));
    }
    memory_in_one_piece_freed_by_an_address_within breaks BadFree by {
        call!(MmFreeContiguousMemory(contiguous(8192, i64::MAX).wrapping_byte_add(4096)));
    }
    memory_in_one_piece_of_no_bytes breaks BadArgument by { contiguous(0, i64::MAX); }
    the_physical_address_of_nothing breaks BadArgument by { physical(ptr::without_provenance_mut(64)); }
    the_physical_address_of_memory_that_is_free breaks UseAfterFree by {
        let pool = block(POOL_FLAG_NON_PAGED, 8);
        call!(ExFreePoolWithTag(pool, TAG));
        physical(pool);
    }
    a_copy_by_both_addresses breaks BadArgument by { copy(64, BY_PHYSICAL | BY_VIRTUAL); }
    a_copy_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        copy(64, BY_VIRTUAL);
    }
    a_copy_into_pageable_memory breaks BadArgument by {
        let (paged, mut done) = (block(POOL_FLAG_PAGED, 8), 0);
        let _ = call!(MmCopyMemory(paged, 64, 8, BY_VIRTUAL, &raw mut done));
    }
    an_address_looked_at_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        call!(MmIsAddressValid(ptr::null_mut()));
    }
}

#[test]
fn a_request_of_a_program_comes_from_a_program_and_the_entry_from_the_system() {
    let kernel = Kernel::seeded(1).start();
    let control = |_, irp| {
        assert_eq!(call!(ExGetPreviousMode()), 1);
        complete(irp, 0, 0)
    };
    driver::prepare(Parts { load: |_| assert_eq!(call!(ExGetPreviousMode()), 0), control, ..Parts::default() });
    let driver = kernel.load("plain", driver::entry).expect("the driver loads");
    let process = kernel.process();
    let file = process.open_device(LINK).expect("the device opens");
    assert!(file.control(CODE, &[], 0).is_success());
    drop(file);
    drop(process);
    driver.unload();
}
