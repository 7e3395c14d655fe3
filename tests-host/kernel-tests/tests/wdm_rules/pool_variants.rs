//! The pool's routines with a quota, a priority or extended parameters, and those without a tag.

use std::ptr;

use simulated_kernel::{Kernel, Rule, caught};
use wdk_sys::{
    POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, POOL_FLAGS, POOL_TYPE, PVOID, SIZE_T, ULONG,
    ntddk::{ExAllocatePool2, ExFreePool, ExFreePoolWithTag, KfRaiseIrql},
};

use crate::{
    asked::{call, tests},
    driver::{self, Parts},
};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn ExAllocatePool(pool: POOL_TYPE, size: SIZE_T) -> PVOID;
    fn ExAllocatePoolWithQuota(pool: POOL_TYPE, size: SIZE_T) -> PVOID;
    fn ExAllocatePoolWithQuotaTag(pool: POOL_TYPE, size: SIZE_T, tag: ULONG) -> PVOID;
    fn ExAllocatePoolWithTagPriority(pool: POOL_TYPE, size: SIZE_T, tag: ULONG, priority: u32) -> PVOID;
    fn ExAllocatePool3(flags: POOL_FLAGS, size: SIZE_T, tag: ULONG, parameters: *const u64, count: ULONG) -> PVOID;
    fn ExFreePool2(block: PVOID, tag: ULONG, parameters: *const u64, count: ULONG);
}

const TAG: u32 = u32::from_ne_bytes(*b"Test");
const NON_PAGED: POOL_TYPE = 512;
const PAGED: POOL_TYPE = 1;
/// `POOL_QUOTA_FAIL_INSTEAD_OF_RAISE`.
const FAILS: POOL_TYPE = 8;
/// `NormalPoolPriority`.
const NORMAL: u32 = 16;
/// `PoolExtendedParameterPriority` and `PoolExtendedParameterNumaNode`, and the bit of `Optional`.
const PRIORITY: u64 = 1;
const NODE: u64 = 3;
const OPTIONAL: u64 = 1 << 8;
/// `MM_ANY_NODE_OK`.
const ANY_NODE: u64 = 0x8000_0000;

/// Allocates with these parameters, each a type and a value, and frees. Whether there was memory.
fn allocates(flags: POOL_FLAGS, parameters: &[[u64; 2]]) -> bool {
    let count = u32::try_from(parameters.len()).expect("few");
    let block = call!(ExAllocatePool3(flags, 64, TAG, parameters.as_ptr().cast(), count));
    if block.is_null() {
        return false;
    }
    // SAFETY: the driver's block, of 64 bytes.
    assert_eq!(unsafe { block.cast::<u64>().read() }, 0, "zeros, unless the driver says otherwise");
    call!(ExFreePool2(block, TAG, ptr::null(), 0));
    true
}

tests! {
    memory_is_allocated_in_each_way by {
        for pool in [NON_PAGED, PAGED, NON_PAGED | FAILS] {
            for block in [
                call!(ExAllocatePoolWithQuotaTag(pool, 100, TAG)),
                call!(ExAllocatePoolWithTagPriority(pool & !FAILS, 100, TAG, NORMAL)),
            ] {
                // SAFETY: the driver's block, of 100 bytes.
                unsafe { block.cast::<u8>().wrapping_add(99).write(1) };
                call!(ExFreePoolWithTag(block, TAG));
            }
            for block in
                [call!(ExAllocatePool(pool & !FAILS, 100)), call!(ExAllocatePoolWithQuota(pool, 100))]
            {
                call!(ExFreePool(block));
            }
        }
    }
    extended_parameters_are_met_or_optional by {
        let no_such = 99;
        for parameters in [
            &[][..], &[[PRIORITY, 16]], &[[PRIORITY, 41], [NODE, 0]], &[[NODE, 3 | ANY_NODE]], &[[no_such | OPTIONAL, 1]],
            &[[NODE | OPTIONAL, 3]],
        ] {
            assert!(allocates(POOL_FLAG_NON_PAGED, parameters), "{parameters:?}");
        }
        for parameters in [&[[no_such, 1]][..], &[[PRIORITY, 17]], &[[NODE, 0], [NODE, 1]]] {
            assert!(!allocates(POOL_FLAG_NON_PAGED, parameters), "{parameters:?}");
        }
        assert!(!allocates(POOL_FLAG_PAGED, &[[NODE, 0]]), "a node of paged memory");
        assert!(allocates(POOL_FLAG_PAGED, &[[PRIORITY, 0]]));
    }

    an_allocation_with_a_quota_and_no_tag breaks PoolTag by { call!(ExAllocatePoolWithQuotaTag(NON_PAGED, 8, 0)); }
    an_allocation_with_a_priority_that_is_none breaks BadArgument by {
        call!(ExAllocatePoolWithTagPriority(NON_PAGED, 8, TAG, 17));
    }
    an_allocation_of_a_pool_that_is_none breaks PoolFlags by { call!(ExAllocatePool(2, 8)); }
    an_allocation_of_nothing_with_a_quota breaks PoolFlags by { call!(ExAllocatePoolWithQuota(NON_PAGED, 0)); }
    an_extended_allocation_of_no_kind breaks PoolFlags by { call!(ExAllocatePool3(0, 8, TAG, ptr::null(), 0)); }
    paged_memory_with_a_quota_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        call!(ExAllocatePoolWithQuotaTag(PAGED, 8, TAG));
    }
    memory_freed_by_another_tag breaks PoolTag by {
        let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, TAG));
        call!(ExFreePool2(block, TAG + 1, ptr::null(), 0));
    }
    memory_without_a_tag_left_behind breaks PoolLeak by { call!(ExAllocatePool(NON_PAGED, 8)); }
}

/// Allocates with a quota as the driver loads.
fn load(pool: POOL_TYPE) {
    let block = call!(ExAllocatePoolWithQuotaTag(pool, 8, TAG));
    if !block.is_null() {
        call!(ExFreePoolWithTag(block, TAG));
    }
}

fn fail_each(load: fn(wdk_sys::PDEVICE_OBJECT)) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    driver::prepare(Parts { load, ..Parts::default() });
    let failures = kernel.fail_each(1.., || {
        if let Ok(driver) = kernel.load("plain", driver::entry) {
            driver.unload();
        }
    });
    assert!(failures >= 3, "the memory can fail too");
}

#[test]
fn memory_with_a_quota_may_fail() {
    fail_each(|_| load(NON_PAGED | FAILS));
}

#[test]
fn a_failure_is_an_exception_unless_the_driver_says_otherwise() {
    let test = concat!(module_path!(), "::a_failure_is_an_exception_unless_the_driver_says_otherwise");
    // In an image the driver handles it.
    caught(test, Rule::UnhandledException, || fail_each(|_| load(NON_PAGED)));
}
