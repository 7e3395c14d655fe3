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
