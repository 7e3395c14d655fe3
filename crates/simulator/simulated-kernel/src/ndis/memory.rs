//! Memory, events and time, as NDIS has them for its drivers of any kind.

use ndis::NDIS_STATUS;
use ndkpi::{
    NDIS_HANDLE,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::{BOOLEAN, KEVENT, LARGE_INTEGER, PVOID, ULONG};

use super::structure::ndis_routine;
use crate::{
    context, pool,
    report::bug_check,
    rule::Rule,
    state::State,
    waiting,
    wdm::{clock, event},
};

fn allocate(state: &State, length: u32, tag: ULONG) -> PVOID {
    if length == 0 {
        bug_check(Rule::PoolFlags, format_args!("an allocation of zero bytes"));
    }
    if tag == 0 {
        bug_check(Rule::PoolTag, format_args!("an allocation of {length} bytes without a tag"));
    }
    let place = if state.strikes() { None } else { pool::allocate(context::caller(), length as usize, tag, false) };
    place.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateMemoryWithTag(place: *mut PVOID, length: u32, tag: ULONG) -> NDIS_STATUS {
    ndis_routine!("NdisAllocateMemoryWithTag", DISPATCH_LEVEL, |state| {
        let block = allocate(state, length, tag);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(block) };
        if block.is_null() { NDIS_STATUS_RESOURCES } else { NDIS_STATUS_SUCCESS }
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateMemoryWithTagPriority(
    handle: NDIS_HANDLE,
    length: u32,
    tag: ULONG,
    _priority: i32,
) -> PVOID {
    ndis_routine!("NdisAllocateMemoryWithTagPriority", DISPATCH_LEVEL, |state| {
        if handle.is_null() {
            bug_check(Rule::BadHandle, format_args!("memory of NDIS for a handle that is a null pointer"));
        }
        allocate(state, length, tag)
    })
}

/// With the length and flags of the allocation; what was allocated by a handle is freed with zeros by many drivers.
#[unsafe(no_mangle)]
extern "system" fn NdisFreeMemory(block: PVOID, _length: u32, flags: u32) {
    ndis_routine!("NdisFreeMemory", DISPATCH_LEVEL, |_| {
        if flags != 0 {
            bug_check(Rule::NotSimulated, format_args!("memory of NDIS with the flags {flags:#x}"));
        }
        pool::free(block.expose_provenance(), None);
    });
}

/// `NDIS_EVENT` is an event of the kernel, which stays set.
#[unsafe(no_mangle)]
extern "system" fn NdisInitializeEvent(place: *mut KEVENT) {
    ndis_routine!("NdisInitializeEvent", PASSIVE_LEVEL, |state| {
        event::initialise(state, place, event::NOTIFICATION);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisSetEvent(place: *mut KEVENT) {
    ndis_routine!("NdisSetEvent", DISPATCH_LEVEL, |state| {
        event::set(state, place);
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisResetEvent(place: *mut KEVENT) {
    ndis_routine!("NdisResetEvent", DISPATCH_LEVEL, |state| {
        event::reset(state, place);
    });
}

/// Milliseconds; 0 waits for ever.
#[unsafe(no_mangle)]
extern "system" fn NdisWaitEvent(place: *mut KEVENT, milliseconds: u32) -> BOOLEAN {
    ndis_routine!("NdisWaitEvent", PASSIVE_LEVEL, |state| {
        let end = (milliseconds != 0).then(|| clock::known(state).saturating_add(u64::from(milliseconds) * 1000));
        BOOLEAN::from(event::wait(state, "NdisWaitEvent", place, end))
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisMSleep(microseconds: u32) {
    ndis_routine!("NdisMSleep", PASSIVE_LEVEL, |state| {
        let end = clock::known(state).saturating_add(u64::from(microseconds));
        waiting::until(state, Some(end), waiting::Wait::time("NdisMSleep"), || false);
    });
}

/// 6.80, as this NDIS is.
#[unsafe(no_mangle)]
extern "system" fn NdisGetVersion() -> u32 {
    ndis_routine!("NdisGetVersion", HIGH_LEVEL, |_| 0x0006_0050)
}

/// A number to begin the identifiers of a driver's sends with. No other driver has it, as long as there are not too many.
#[unsafe(no_mangle)]
extern "system" fn NdisGeneratePartialCancelId() -> u8 {
    ndis_routine!("NdisGeneratePartialCancelId", PASSIVE_LEVEL, |state| {
        u8::try_from(state.next() % 255).unwrap_or(0) + 1
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeMemoryWithTag(block: PVOID, tag: ULONG) {
    ndis_routine!("NdisFreeMemoryWithTag", DISPATCH_LEVEL, |_| pool::free(block.expose_provenance(), Some(tag)));
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeMemoryWithTagPriority(handle: NDIS_HANDLE, block: PVOID, tag: ULONG) {
    ndis_routine!("NdisFreeMemoryWithTagPriority", DISPATCH_LEVEL, |_| {
        if handle.is_null() {
            bug_check(Rule::BadHandle, format_args!("memory of NDIS is freed for a handle that is a null pointer"));
        }
        pool::free(block.expose_provenance(), Some(tag));
    });
}

/// Milliseconds since the start.
#[unsafe(no_mangle)]
extern "system" fn NdisGetSystemUpTimeEx(place: *mut LARGE_INTEGER) {
    ndis_routine!("NdisGetSystemUpTimeEx", HIGH_LEVEL, |state| {
        let time = i64::try_from(clock::known(state) / 1000).unwrap_or(i64::MAX);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(LARGE_INTEGER { QuadPart: time }) };
    });
}
