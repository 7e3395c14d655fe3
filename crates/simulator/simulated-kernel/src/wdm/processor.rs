//! Processors: one group of them.

use wdk_bindings::{
    ALL_PROCESSOR_GROUPS, GROUP_AFFINITY, KAFFINITY, NTSTATUS, PKAFFINITY, PROCESSOR_NUMBER, STATUS_BUFFER_TOO_SMALL,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG, USHORT,
};

use crate::{processors, routine::routine, state::State};

/// The processors, as a mask.
pub fn all(state: &State) -> u64 {
    u64::MAX >> (64 - state.machine.processors())
}

fn count(state: &State, group: USHORT) -> ULONG {
    let known = group == 0 || ULONG::from(group) == ALL_PROCESSOR_GROUPS;
    if known { state.machine.processors() } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryActiveProcessorCountEx(group: USHORT) -> ULONG {
    routine!("KeQueryActiveProcessorCountEx", |state| count(state, group))
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryMaximumProcessorCountEx(group: USHORT) -> ULONG {
    routine!("KeQueryMaximumProcessorCountEx", |state| count(state, group))
}

/// The processors of the current thread's group.
#[unsafe(no_mangle)]
extern "C" fn KeQueryActiveProcessorCount(mask: PKAFFINITY) -> ULONG {
    routine!("KeQueryActiveProcessorCount", |state| {
        if !mask.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { mask.write(all(state)) };
        }
        state.machine.processors()
    })
}

/// A cache line.
#[unsafe(no_mangle)]
extern "C" fn KeGetRecommendedSharedDataAlignment() -> ULONG {
    routine!("KeGetRecommendedSharedDataAlignment", HIGH_LEVEL, |_| 64)
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryActiveProcessors() -> KAFFINITY {
    routine!("KeQueryActiveProcessors", |state| all(state))
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryMaximumProcessorCount() -> ULONG {
    routine!("KeQueryMaximumProcessorCount", |state| state.machine.processors())
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryActiveGroupCount() -> USHORT {
    routine!("KeQueryActiveGroupCount", |_| 1)
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryGroupAffinity(group: USHORT) -> KAFFINITY {
    routine!("KeQueryGroupAffinity", |state| if group == 0 { all(state) } else { 0 })
}

#[unsafe(no_mangle)]
extern "C" fn KeGetCurrentProcessorNumberEx(number: *mut PROCESSOR_NUMBER) -> ULONG {
    routine!("KeGetCurrentProcessorNumberEx", |state| {
        let index = state.machine.current_processor();
        if !number.is_null() {
            let there = PROCESSOR_NUMBER { Group: 0, Number: u8::try_from(index).unwrap_or(0), Reserved: 0 };
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { number.write(there) };
        }
        index
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeGetProcessorIndexFromNumber(number: *mut PROCESSOR_NUMBER) -> ULONG {
    routine!("KeGetProcessorIndexFromNumber", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let number = unsafe { number.read() };
        let known = number.Group == 0 && number.Reserved == 0 && u32::from(number.Number) < state.machine.processors();
        if known { u32::from(number.Number) } else { ULONG::MAX }
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeGetProcessorNumberFromIndex(index: ULONG, number: *mut PROCESSOR_NUMBER) -> NTSTATUS {
    routine!("KeGetProcessorNumberFromIndex", |state| {
        if index >= state.machine.processors() {
            return STATUS_INVALID_PARAMETER;
        }
        let there = PROCESSOR_NUMBER { Group: 0, Number: u8::try_from(index).unwrap_or(0), Reserved: 0 };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { number.write(there) };
        STATUS_SUCCESS
    })
}

/// Binds the current thread to processors: the affinity before. `None`, and nothing changes, if some are not there, or none is named.
fn bind(state: &State, mask: KAFFINITY) -> Option<KAFFINITY> {
    if mask == 0 || mask & !all(state) != 0 {
        return None;
    }
    let before = processors::affinity();
    processors::set_affinity(mask);
    state.machine.bind_current_thread(mask.trailing_zeros());
    Some(before)
}

/// The current thread has the affinity again that it had before: that of a thread which is not bound is zero.
fn revert(state: &State, before: KAFFINITY) {
    if before == 0 {
        processors::set_affinity(0);
        state.machine.bind_current_thread(0);
    } else {
        bind(state, before);
    }
}

#[unsafe(no_mangle)]
extern "C" fn KeSetSystemGroupAffinityThread(affinity: *mut GROUP_AFFINITY, before: *mut GROUP_AFFINITY) {
    routine!("KeSetSystemGroupAffinityThread", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let wanted = unsafe { affinity.read() };
        // For a group or processors that are not there the previous affinity is said to be none.
        let mask = if wanted.Group == 0 { bind(state, wanted.Mask) } else { None };
        if !before.is_null() {
            let said = GROUP_AFFINITY { Mask: mask.unwrap_or(0), ..GROUP_AFFINITY::default() };
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { before.write(said) };
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeRevertToUserGroupAffinityThread(before: *mut GROUP_AFFINITY) {
    routine!("KeRevertToUserGroupAffinityThread", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        revert(state, unsafe { before.read() }.Mask);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeSetSystemAffinityThread(mask: KAFFINITY) {
    routine!("KeSetSystemAffinityThread", DISPATCH_LEVEL, |state| {
        bind(state, mask);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeSetSystemAffinityThreadEx(mask: KAFFINITY) -> KAFFINITY {
    routine!("KeSetSystemAffinityThreadEx", DISPATCH_LEVEL, |state| bind(state, mask).unwrap_or(0))
}

#[unsafe(no_mangle)]
extern "C" fn KeRevertToUserAffinityThread() {
    routine!("KeRevertToUserAffinityThread", DISPATCH_LEVEL, |state| revert(state, 0));
}

#[unsafe(no_mangle)]
extern "C" fn KeRevertToUserAffinityThreadEx(mask: KAFFINITY) {
    routine!("KeRevertToUserAffinityThreadEx", DISPATCH_LEVEL, |state| revert(state, mask));
}

/// There is one node, with all processors.
#[unsafe(no_mangle)]
extern "C" fn KeQueryHighestNodeNumber() -> USHORT {
    routine!("KeQueryHighestNodeNumber", HIGH_LEVEL, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn KeGetCurrentNodeNumber() -> USHORT {
    routine!("KeGetCurrentNodeNumber", HIGH_LEVEL, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryNodeActiveAffinity(node: USHORT, affinity: *mut GROUP_AFFINITY, count: *mut USHORT) {
    routine!("KeQueryNodeActiveAffinity", HIGH_LEVEL, |state| {
        let mask = if node == 0 { all(state) } else { 0 };
        if !affinity.is_null() {
            let said = GROUP_AFFINITY { Mask: mask, ..GROUP_AFFINITY::default() };
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { affinity.write(said) };
        }
        if !count.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { count.write(USHORT::try_from(mask.count_ones()).unwrap_or(0)) };
        }
    });
}

/// There is one group, and one node, which has all of its processors.
#[unsafe(no_mangle)]
extern "C" fn KeQueryNodeActiveAffinity2(
    node: USHORT,
    affinities: *mut GROUP_AFFINITY,
    room: USHORT,
    required: *mut USHORT,
) -> NTSTATUS {
    routine!("KeQueryNodeActiveAffinity2", HIGH_LEVEL, |state| {
        if node != 0 {
            return STATUS_INVALID_PARAMETER;
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { required.write(1) };
        if room == 0 {
            return STATUS_BUFFER_TOO_SMALL;
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { affinities.write(GROUP_AFFINITY { Mask: all(state), ..GROUP_AFFINITY::default() }) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryMaximumGroupCount() -> USHORT {
    routine!("KeQueryMaximumGroupCount", HIGH_LEVEL, |_| 1)
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryNodeMaximumProcessorCount(node: USHORT) -> USHORT {
    routine!("KeQueryNodeMaximumProcessorCount", HIGH_LEVEL, |state| {
        let mask = if node == 0 { all(state) } else { 0 };
        USHORT::try_from(mask.count_ones()).unwrap_or(0)
    })
}
