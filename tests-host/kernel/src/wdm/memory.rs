//! The pool's routines.

use std::ptr;

use host::machine::{self, Irql};
use wdk_bindings::{
    POOL_FLAG_NON_PAGED, POOL_FLAG_NON_PAGED_EXECUTE, POOL_FLAG_PAGED, POOL_FLAG_RAISE_ON_FAILURE,
    POOL_FLAG_UNINITIALIZED, POOL_FLAGS, PVOID, SIZE_T, ULONG,
};

use super::routine;
use crate::{context, paged, pool, report::bug_check, rule::Rule};

#[unsafe(no_mangle)]
extern "C" fn ExAllocatePool2(flags: POOL_FLAGS, size: SIZE_T, tag: ULONG) -> PVOID {
    routine!("ExAllocatePool2", |state| {
        if tag == 0 {
            bug_check(Rule::PoolTag, format_args!("an allocation of {size} bytes without a tag"));
        }
        let kind = flags & (POOL_FLAG_NON_PAGED | POOL_FLAG_NON_PAGED_EXECUTE | POOL_FLAG_PAGED);
        if kind.count_ones() != 1 {
            bug_check(Rule::PoolFlags, format_args!("the flags {flags:#x} do not say one kind of memory"));
        }
        if kind == POOL_FLAG_NON_PAGED_EXECUTE {
            bug_check(Rule::PoolFlags, format_args!("memory that is writable and executable"));
        }
        if size == 0 {
            bug_check(Rule::PoolFlags, format_args!("an allocation of zero bytes"));
        }
        if kind == POOL_FLAG_PAGED && machine::current_irql() > Irql::APC_LEVEL {
            bug_check(Rule::IrqlTooHigh, format_args!("paged pool at {}", machine::current_irql()));
        }
        if state.strikes() {
            if flags & POOL_FLAG_RAISE_ON_FAILURE != 0 {
                bug_check(Rule::NotSimulated, format_args!("an exception for an allocation that failed"));
            }
            return ptr::null_mut();
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let address = if kind == POOL_FLAG_PAGED {
            pool::allocate_paged(context::caller(), size, tag)
        } else {
            pool::allocate(context::caller(), size, tag, flags & POOL_FLAG_UNINITIALIZED == 0)
        };
        address.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    })
}

fn free(address: PVOID, tag: Option<u32>) {
    let address = address.expose_provenance();
    if paged::contains(address) && machine::current_irql() > Irql::APC_LEVEL {
        bug_check(Rule::IrqlTooHigh, format_args!("paged pool freed at {}", machine::current_irql()));
    }
    pool::free(address, tag);
}

#[unsafe(no_mangle)]
extern "C" fn ExFreePool(address: PVOID) {
    routine!("ExFreePool", |_| free(address, None));
}

#[unsafe(no_mangle)]
extern "C" fn ExFreePoolWithTag(address: PVOID, tag: ULONG) {
    routine!("ExFreePoolWithTag", |_| free(address, Some(tag)));
}
