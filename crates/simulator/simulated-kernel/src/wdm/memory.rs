//! The pool's routines.

use std::{fmt::Arguments, ptr};

use host::machine::{self, Irql};
use wdk_bindings::{
    NTSTATUS, POOL_FLAG_NON_PAGED, POOL_FLAG_NON_PAGED_EXECUTE, POOL_FLAG_PAGED, POOL_FLAG_RAISE_ON_FAILURE,
    POOL_FLAG_UNINITIALIZED, POOL_FLAGS, POOL_TYPE, PVOID, SIZE_T, STATUS_INSUFFICIENT_RESOURCES, ULONG,
};

use super::exception::or_raise;
use crate::{context, paged, pool, report::bug_check, routine::routine, rule::Rule, state::State};

/// A tag is one to four characters. The highest bit of the last one has another meaning.
pub fn check_tag(tag: ULONG, what: Arguments<'_>) {
    if tag == 0 {
        bug_check(Rule::PoolTag, format_args!("{what} without a tag"));
    }
    let characters = (tag & 0x7FFF_FFFF).to_le_bytes();
    if characters.iter().any(|&byte| byte != 0 && !(b' '..=b'~').contains(&byte)) {
        bug_check(Rule::PoolTag, format_args!("{what} with the tag {tag:#x}, which is no text"));
    }
}

/// What flags of `ExAllocatePool2` and its like ask for.
pub(super) fn wanted_by(flags: POOL_FLAGS, size: SIZE_T, tag: ULONG) -> Wanted {
    check_tag(tag, format_args!("an allocation of {size} bytes"));
    let kind = flags & (POOL_FLAG_NON_PAGED | POOL_FLAG_NON_PAGED_EXECUTE | POOL_FLAG_PAGED);
    if kind.count_ones() != 1 {
        bug_check(Rule::PoolFlags, format_args!("the flags {flags:#x} do not say one kind of memory"));
    }
    if kind == POOL_FLAG_NON_PAGED_EXECUTE {
        bug_check(Rule::PoolFlags, format_args!("memory that is writable and executable"));
    }
    check_size(size);
    Wanted {
        paged: kind == POOL_FLAG_PAGED,
        zeroed: flags & POOL_FLAG_UNINITIALIZED == 0,
        raises: flags & POOL_FLAG_RAISE_ON_FAILURE != 0,
    }
}

fn check_size(size: SIZE_T) {
    if size == 0 {
        bug_check(Rule::PoolFlags, format_args!("an allocation of zero bytes"));
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePool2(flags: POOL_FLAGS, size: SIZE_T, tag: ULONG) -> PVOID {
    let memory = routine!("ExAllocatePool2", |state| allocate(state, wanted_by(flags, size, tag), size, tag));
    or_raise("ExAllocatePool2", memory)
}

/// What a driver says of memory that it wants.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub paged: bool,
    pub zeroed: bool,
    /// A failure is an exception.
    pub raises: bool,
}

impl Wanted {
    /// What the driver gets if there is no such memory: nothing, or an exception.
    pub const fn refused(self) -> Result<PVOID, NTSTATUS> {
        if self.raises { Err(STATUS_INSUFFICIENT_RESOURCES) } else { Ok(ptr::null_mut()) }
    }
}

/// Allocates. What the routine is to raise, if that fails and the driver wants an exception.
pub(super) fn allocate(state: &State, wanted: Wanted, size: SIZE_T, tag: ULONG) -> Result<PVOID, NTSTATUS> {
    if wanted.paged && machine::current_irql() > Irql::APC_LEVEL {
        bug_check(Rule::IrqlTooHigh, format_args!("paged pool at {}", machine::current_irql()));
    }
    if state.strikes() {
        return wanted.refused();
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let address = if wanted.paged {
        pool::allocate_paged(context::caller(), size, tag)
    } else {
        pool::allocate(context::caller(), size, tag, wanted.zeroed)
    };
    address.map_or_else(|| wanted.refused(), |address| Ok(ptr::with_exposed_provenance_mut(address)))
}

/// What the older kinds of pool mean: paged or not. `None` for those that nothing may ask for any more.
pub fn kind(kind: POOL_TYPE) -> Option<bool> {
    /// Cache alignment, sessions and memory that cannot run make no difference here.
    const INDIFFERENT: POOL_TYPE = 4 | 32 | 512;
    match kind & !(INDIFFERENT | RAISES | ZEROED | COLD | QUOTA) {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// `POOL_RAISE_IF_ALLOCATION_FAILURE`, `POOL_ZERO_ALLOCATION`, `POOL_COLD_ALLOCATION`, `POOL_QUOTA_FAIL_INSTEAD_OF_RAISE`.
const RAISES: POOL_TYPE = 16;
const ZEROED: POOL_TYPE = 1024;
const COLD: POOL_TYPE = 256;
pub(super) const QUOTA: POOL_TYPE = 8;

/// As `ExAllocatePool2`, but memory that may run is what many drivers get that do not say otherwise: that is no broken rule here. The
/// memory does not run in any case.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ExAllocatePoolWithTag(pool: POOL_TYPE, size: SIZE_T, tag: ULONG) -> PVOID {
    let memory = routine!("ExAllocatePoolWithTag", |state| {
        check_tag(tag, format_args!("an allocation of {size} bytes"));
        allocate(state, wanted_of(pool, size), size, tag)
    });
    or_raise("ExAllocatePoolWithTag", memory)
}

/// Returns true if memory of one of the older kinds of pool may be paged out. Ends the test for those that nothing may ask for any more.
pub fn is_paged(pool: POOL_TYPE) -> bool {
    kind(pool).unwrap_or_else(|| bug_check(Rule::PoolFlags, format_args!("there is no pool of the type {pool:#x}")))
}

/// What a type of the older kinds of pool asks for.
pub(super) fn wanted_of(pool: POOL_TYPE, size: SIZE_T) -> Wanted {
    check_size(size);
    Wanted { paged: is_paged(pool), zeroed: pool & ZEROED != 0, raises: pool & RAISES != 0 }
}

pub(super) fn free(address: PVOID, tag: Option<u32>) {
    let address = address.expose_provenance();
    if paged::contains(address) && machine::current_irql() > Irql::APC_LEVEL {
        bug_check(Rule::IrqlTooHigh, format_args!("paged pool freed at {}", machine::current_irql()));
    }
    pool::free(address, tag);
}

#[unsafe(no_mangle)]
pub extern "C" fn ExFreePool(address: PVOID) {
    routine!("ExFreePool", |_| free(address, None));
}

#[unsafe(no_mangle)]
extern "C" fn ExFreePoolWithTag(address: PVOID, tag: ULONG) {
    routine!("ExFreePoolWithTag", |_| free(address, Some(tag)));
}
