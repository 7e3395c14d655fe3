//! Resources (`ERESOURCE`): one writer, or several readers, and none of these before a writer that waits.

use std::{ptr, sync::Arc};

use wdk_bindings::{BOOLEAN, NTSTATUS, PERESOURCE, PVOID, STATUS_SUCCESS, ULONG};

use super::turns::{Next, Turns, Want, without_apcs};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::{Kind, Object, Structure},
};

/// A resource.
pub struct Resource(Turns);

impl Resource {
    fn new() -> Self {
        Self(Turns::new(Next::Readers))
    }
}

impl Structure for Resource {}

fn find(state: &State, place: PERESOURCE) -> Arc<Resource> {
    state.structure(place.expose_provenance(), Kind::Resource)
}

fn acquire(state: &Arc<State>, what: &'static str, place: PERESOURCE, (want, wait): (Want, BOOLEAN)) -> BOOLEAN {
    without_apcs(what);
    let resource = find(state, place);
    state.preempt();
    if wait == 0 {
        return BOOLEAN::from(resource.0.try_acquire(want));
    }
    if want == Want::Write && resource.0.count_here() > 0 && !resource.0.is_exclusive() {
        bug_check(Rule::RecursiveLock, format_args!("{what}: the thread reads the resource that it wants to write"));
    }
    resource.0.acquire(state, want, what, place.addr());
    1
}

/// Ends the test unless the thread had it.
fn check_released(was_held: bool) {
    if !was_held {
        bug_check(Rule::LockNotHeld, format_args!("a resource is released by a thread that does not have it"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeResourceLite(place: PERESOURCE) -> NTSTATUS {
    routine!("ExInitializeResourceLite", |state| {
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Resource, Resource::new()));
        STATUS_SUCCESS
    })
}

/// As good as new, for who has initialised it before.
#[unsafe(no_mangle)]
extern "C" fn ExReinitializeResourceLite(place: PERESOURCE) -> NTSTATUS {
    routine!("ExReinitializeResourceLite", DISPATCH_LEVEL, |state| {
        if find(state, place).0.is_used() {
            bug_check(
                Rule::LockHeld,
                format_args!("a resource is reinitialised while a thread has it, or waits for it"),
            );
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExDeleteResourceLite(place: PERESOURCE) -> NTSTATUS {
    routine!("ExDeleteResourceLite", |state| {
        if find(state, place).0.is_used() {
            bug_check(Rule::LockHeld, format_args!("a resource is deleted while a thread has it, or waits for it"));
        }
        state.untrack_and_remember(place.addr(), Kind::Resource, ", and deleted since");
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireResourceExclusiveLite(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireResourceExclusiveLite", |state| {
        acquire(state, "ExAcquireResourceExclusiveLite", place, (Want::Write, wait))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireResourceSharedLite(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireResourceSharedLite", |state| {
        acquire(state, "ExAcquireResourceSharedLite", place, (Want::Read, wait))
    })
}

/// Enters a critical region and acquires a resource in it. On Windows it returns what only parts of the system use.
fn enter_and_acquire(state: &Arc<State>, what: &'static str, place: PERESOURCE, want: Want) -> PVOID {
    context::set_critical(context::critical() + 1);
    acquire(state, what, place, (want, 1));
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn ExEnterCriticalRegionAndAcquireResourceExclusive(place: PERESOURCE) -> PVOID {
    routine!("ExEnterCriticalRegionAndAcquireResourceExclusive", APC_LEVEL, |state| {
        enter_and_acquire(state, "ExEnterCriticalRegionAndAcquireResourceExclusive", place, Want::Write)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExEnterCriticalRegionAndAcquireResourceShared(place: PERESOURCE) -> PVOID {
    routine!("ExEnterCriticalRegionAndAcquireResourceShared", APC_LEVEL, |state| {
        enter_and_acquire(state, "ExEnterCriticalRegionAndAcquireResourceShared", place, Want::Read)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseResourceAndLeaveCriticalRegion(place: PERESOURCE) {
    routine!("ExReleaseResourceAndLeaveCriticalRegion", DISPATCH_LEVEL, |state| {
        check_released(find(state, place).0.release());
        let Some(left) = context::critical().checked_sub(1) else {
            bug_check(Rule::CriticalRegion, format_args!("a critical region is left that was not entered"));
        };
        context::set_critical(left);
        state.dispatcher.signal_of(place.addr());
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseResourceLite(place: PERESOURCE) {
    routine!("ExReleaseResourceLite", |state| {
        without_apcs("ExReleaseResourceLite");
        check_released(find(state, place).0.release());
        state.dispatcher.signal_of(place.addr());
        state.preempt();
    });
}

/// Before writers that wait.
#[unsafe(no_mangle)]
extern "C" fn ExAcquireSharedStarveExclusive(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireSharedStarveExclusive", APC_LEVEL, |state| {
        acquire(state, "ExAcquireSharedStarveExclusive", place, (Want::ReadFirst, wait))
    })
}

/// Behind writers that wait, also if the thread reads already.
#[unsafe(no_mangle)]
extern "C" fn ExAcquireSharedWaitForExclusive(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireSharedWaitForExclusive", APC_LEVEL, |state| {
        acquire(state, "ExAcquireSharedWaitForExclusive", place, (Want::ReadLast, wait))
    })
}

/// From now on others may read too.
#[unsafe(no_mangle)]
extern "C" fn ExConvertExclusiveToSharedLite(place: PERESOURCE) {
    routine!("ExConvertExclusiveToSharedLite", DISPATCH_LEVEL, |state| {
        if !find(state, place).0.share() {
            bug_check(Rule::LockNotHeld, format_args!("a resource is shared by a thread that does not write it"));
        }
        state.dispatcher.signal_of(place.addr());
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExIsResourceAcquiredExclusiveLite(place: PERESOURCE) -> BOOLEAN {
    routine!("ExIsResourceAcquiredExclusiveLite", DISPATCH_LEVEL, |state| {
        let resource = find(state, place);
        BOOLEAN::from(resource.0.is_exclusive() && resource.0.count_here() > 0)
    })
}

/// How often the thread has it, to read or to write.
#[unsafe(no_mangle)]
extern "C" fn ExIsResourceAcquiredSharedLite(place: PERESOURCE) -> ULONG {
    routine!("ExIsResourceAcquiredSharedLite", DISPATCH_LEVEL, |state| find(state, place).0.count_here())
}

/// How many threads wait to write.
#[unsafe(no_mangle)]
extern "C" fn ExGetExclusiveWaiterCount(place: PERESOURCE) -> ULONG {
    routine!("ExGetExclusiveWaiterCount", DISPATCH_LEVEL, |state| find(state, place).0.waiting(true))
}

/// How many threads wait to read.
#[unsafe(no_mangle)]
extern "C" fn ExGetSharedWaiterCount(place: PERESOURCE) -> ULONG {
    routine!("ExGetSharedWaiterCount", DISPATCH_LEVEL, |state| find(state, place).0.waiting(false))
}
