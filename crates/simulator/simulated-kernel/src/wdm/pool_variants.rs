//! The pool's routines with a quota, a priority or extended parameters, and those without a tag.

use wdk_bindings::{POOL_FLAG_NON_PAGED, POOL_FLAGS, POOL_TYPE, PVOID, SIZE_T, ULONG};

use super::{
    exception::or_raise,
    memory::{QUOTA, Wanted, allocate, check_tag, free, wanted_by, wanted_of},
};
use crate::{report::bug_check, routine::routine, rule::Rule};

/// The tag of what is allocated without one.
const NO_TAG: u32 = u32::from_ne_bytes(*b"None");
/// The values of `EX_POOL_PRIORITY`: low, normal and high, each also with the end or the beginning of a block at that of a page.
const PRIORITIES: [u32; 9] = [0, 8, 9, 16, 24, 25, 32, 40, 41];

/// What a type asks for whose quota is the process's: a failure is an exception unless the driver says otherwise.
fn with_quota(pool: POOL_TYPE, size: SIZE_T) -> Wanted {
    Wanted { raises: pool & QUOTA == 0, ..wanted_of(pool, size) }
}

/// No quota is counted: it is never used up.
#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePoolWithQuotaTag(pool: POOL_TYPE, size: SIZE_T, tag: ULONG) -> PVOID {
    let memory = routine!("ExAllocatePoolWithQuotaTag", DISPATCH_LEVEL, |state| {
        check_tag(tag, format_args!("an allocation of {size} bytes"));
        allocate(state, with_quota(pool, size), size, tag)
    });
    or_raise("ExAllocatePoolWithQuotaTag", memory)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePoolWithQuota(pool: POOL_TYPE, size: SIZE_T) -> PVOID {
    let memory = routine!("ExAllocatePoolWithQuota", DISPATCH_LEVEL, |state| {
        allocate(state, with_quota(pool, size), size, NO_TAG)
    });
    or_raise("ExAllocatePoolWithQuota", memory)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePool(pool: POOL_TYPE, size: SIZE_T) -> PVOID {
    let memory =
        routine!("ExAllocatePool", DISPATCH_LEVEL, |state| allocate(state, wanted_of(pool, size), size, NO_TAG));
    or_raise("ExAllocatePool", memory)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePoolWithTagPriority(pool: POOL_TYPE, size: SIZE_T, tag: ULONG, priority: u32) -> PVOID {
    let memory = routine!("ExAllocatePoolWithTagPriority", DISPATCH_LEVEL, |state| {
        check_tag(tag, format_args!("an allocation of {size} bytes"));
        if !PRIORITIES.contains(&priority) {
            bug_check(Rule::BadArgument, format_args!("an allocation with the priority {priority}, which is none"));
        }
        allocate(state, wanted_of(pool, size), size, tag)
    });
    or_raise("ExAllocatePoolWithTagPriority", memory)
}

/// `POOL_EXTENDED_PARAMETER`: the type in the lowest byte of the first word, then whether it is optional.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parameter {
    kind: u64,
    value: u64,
}

/// `POOL_EXTENDED_PARAMETER_TYPE`.
const PRIORITY: u64 = 1;
const SECURE_POOL: u64 = 2;
const NODE: u64 = 3;
/// `MM_ANY_NODE_OK`.
const ANY_NODE: u32 = 0x8000_0000;

impl Parameter {
    /// Returns true if an allocation with these flags can have it, or go without it.
    fn is_met(self, flags: POOL_FLAGS) -> bool {
        /// The bit of `Optional`.
        const OPTIONAL: u64 = 1 << 8;
        if self.kind & OPTIONAL != 0 {
            return true;
        }
        // The members of the union have 32 bits.
        let value = u32::try_from(self.value & u64::from(u32::MAX)).unwrap_or(0);
        match self.kind & 0xFF {
            PRIORITY => PRIORITIES.contains(&value),
            // There is one node.
            NODE => flags & POOL_FLAG_NON_PAGED != 0 && (value == 0 || value & ANY_NODE != 0),
            SECURE_POOL => bug_check(Rule::NotSimulated, format_args!("an allocation in a secure pool")),
            _ => false,
        }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ExAllocatePool3(
    flags: POOL_FLAGS,
    size: SIZE_T,
    tag: ULONG,
    parameters: *const u64,
    count: ULONG,
) -> PVOID {
    let memory = routine!("ExAllocatePool3", DISPATCH_LEVEL, |state| {
        let wanted = wanted_by(flags, size, tag);
        let parameters: *const Parameter = parameters.cast();
        // SAFETY: the driver's array has as many elements as it says.
        let is_met = (0..count as usize).all(|index| unsafe { parameters.add(index).read() }.is_met(flags));
        if !is_met {
            return wanted.refused();
        }
        allocate(state, wanted, size, tag)
    });
    or_raise("ExAllocatePool3", memory)
}

/// As `ExFreePoolWithTag`. Its parameters are those of a secure pool.
#[unsafe(no_mangle)]
extern "C" fn ExFreePool2(address: PVOID, tag: ULONG, _parameters: *const u64, count: ULONG) {
    routine!("ExFreePool2", DISPATCH_LEVEL, |_| {
        if count != 0 {
            bug_check(Rule::NotSimulated, format_args!("ExFreePool2 with extended parameters"));
        }
        free(address, Some(tag));
    });
}
