//! Resources (`ERESOURCE`): one writer, or several readers.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{BOOLEAN, NTSTATUS, PERESOURCE, PVOID, STATUS_SUCCESS, ULONG};

use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    tracked::{Kind, Object, Structure},
    waiting::{self, Wait},
};

/// A resource.
#[derive(Default)]
pub struct Resource(Mutex<Holders>);

/// Who has it.
#[derive(Default)]
struct Holders {
    /// The threads, and how often each has it.
    threads: LiteMap<u64, u32>,
    /// There is one, and it writes.
    exclusive: bool,
}

impl Resource {
    /// Takes it for the current thread, if nobody else is in the way.
    fn try_acquire(&self, exclusive: bool) -> bool {
        let (mut holders, me) = (lock(&self.0), context::thread());
        let is_mine = holders.threads.contains_key(&me);
        let can = if holders.exclusive { is_mine } else { !exclusive || holders.threads.is_empty() };
        if can {
            *holders.threads.entry(me).or_default() += 1;
            holders.exclusive |= exclusive;
        }
        can
    }

    fn release(&self) {
        let (mut holders, me) = (lock(&self.0), context::thread());
        let Some(count) = holders.threads.get_mut(&me) else {
            drop(holders);
            bug_check(Rule::LockNotHeld, format_args!("a resource is released by a thread that does not have it"));
        };
        *count -= 1;
        if *count == 0 {
            holders.threads.remove(&me);
            holders.exclusive = false;
        }
    }

    /// A reader that wants to write waits for itself.
    fn is_read_here(&self) -> bool {
        let holders = lock(&self.0);
        !holders.exclusive && holders.threads.contains_key(&context::thread())
    }

    /// How often the current thread has it, or has it to write.
    fn count_here(&self, exclusive: bool) -> u32 {
        let holders = lock(&self.0);
        let count = holders.threads.get(&context::thread()).copied().unwrap_or(0);
        if holders.exclusive || !exclusive { count } else { 0 }
    }

    /// The current thread, which writes, reads from now on.
    fn share(&self) {
        if self.count_here(true) == 0 {
            bug_check(Rule::LockNotHeld, format_args!("a resource is to be shared by a thread that does not write it"));
        }
        lock(&self.0).exclusive = false;
    }

    fn is_held(&self) -> bool {
        !lock(&self.0).threads.is_empty()
    }
}

impl Structure for Resource {}

fn find(state: &State, place: PERESOURCE) -> Arc<Resource> {
    state.structure(place.expose_provenance(), Kind::Resource)
}

/// Who has a resource may not be stopped by an APC, from before it is acquired until it is released.
fn without_apcs(what: &str) {
    if context::critical() == 0 && machine::current_irql() < Irql::APC_LEVEL {
        bug_check(Rule::CriticalRegion, format_args!("{what} called outside of a critical region"));
    }
}

fn acquire(state: &Arc<State>, what: &'static str, place: PERESOURCE, (exclusive, wait): (bool, BOOLEAN)) -> BOOLEAN {
    without_apcs(what);
    let resource = find(state, place);
    state.preempt();
    if resource.try_acquire(exclusive) {
        return 1;
    }
    if wait == 0 {
        return 0;
    }
    if exclusive && resource.is_read_here() {
        bug_check(Rule::RecursiveLock, format_args!("{what}: the thread reads the resource that it wants to write"));
    }
    let objects = [place.addr()];
    let wait = Wait::of(what, &objects);
    waiting::until(state, None, wait, || resource.try_acquire(exclusive));
    1
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeResourceLite(place: PERESOURCE) -> NTSTATUS {
    routine!("ExInitializeResourceLite", |state| {
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Resource, Resource::default()));
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExDeleteResourceLite(place: PERESOURCE) -> NTSTATUS {
    routine!("ExDeleteResourceLite", |state| {
        if find(state, place).is_held() {
            bug_check(Rule::LockHeld, format_args!("a resource is deleted while a thread has it"));
        }
        state.untrack_and_remember(place.addr(), Kind::Resource, ", and deleted since");
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireResourceExclusiveLite(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireResourceExclusiveLite", |state| {
        acquire(state, "ExAcquireResourceExclusiveLite", place, (true, wait))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireResourceSharedLite(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireResourceSharedLite", |state| {
        acquire(state, "ExAcquireResourceSharedLite", place, (false, wait))
    })
}

/// Enters a critical region and acquires a resource in it. On Windows it returns what only parts of the system use.
fn enter_and_acquire(state: &Arc<State>, what: &'static str, place: PERESOURCE, exclusive: bool) -> PVOID {
    context::set_critical(context::critical() + 1);
    acquire(state, what, place, (exclusive, 1));
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn ExEnterCriticalRegionAndAcquireResourceExclusive(place: PERESOURCE) -> PVOID {
    routine!("ExEnterCriticalRegionAndAcquireResourceExclusive", APC_LEVEL, |state| {
        enter_and_acquire(state, "ExEnterCriticalRegionAndAcquireResourceExclusive", place, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExEnterCriticalRegionAndAcquireResourceShared(place: PERESOURCE) -> PVOID {
    routine!("ExEnterCriticalRegionAndAcquireResourceShared", APC_LEVEL, |state| {
        enter_and_acquire(state, "ExEnterCriticalRegionAndAcquireResourceShared", place, false)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseResourceAndLeaveCriticalRegion(place: PERESOURCE) {
    routine!("ExReleaseResourceAndLeaveCriticalRegion", DISPATCH_LEVEL, |state| {
        find(state, place).release();
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
        find(state, place).release();
        state.dispatcher.signal_of(place.addr());
        state.preempt();
    });
}

/// Readers are never held back for a writer that waits, here.
#[unsafe(no_mangle)]
extern "C" fn ExAcquireSharedStarveExclusive(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireSharedStarveExclusive", APC_LEVEL, |state| {
        acquire(state, "ExAcquireSharedStarveExclusive", place, (false, wait))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSharedWaitForExclusive(place: PERESOURCE, wait: BOOLEAN) -> BOOLEAN {
    routine!("ExAcquireSharedWaitForExclusive", APC_LEVEL, |state| {
        acquire(state, "ExAcquireSharedWaitForExclusive", place, (false, wait))
    })
}

/// From now on others may read too.
#[unsafe(no_mangle)]
extern "C" fn ExConvertExclusiveToSharedLite(place: PERESOURCE) {
    routine!("ExConvertExclusiveToSharedLite", DISPATCH_LEVEL, |state| {
        find(state, place).share();
        state.dispatcher.signal_of(place.addr());
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExIsResourceAcquiredExclusiveLite(place: PERESOURCE) -> BOOLEAN {
    routine!("ExIsResourceAcquiredExclusiveLite", DISPATCH_LEVEL, |state| {
        BOOLEAN::from(find(state, place).count_here(true) > 0)
    })
}

/// How often the thread has it, to read or to write.
#[unsafe(no_mangle)]
extern "C" fn ExIsResourceAcquiredSharedLite(place: PERESOURCE) -> ULONG {
    routine!("ExIsResourceAcquiredSharedLite", DISPATCH_LEVEL, |state| find(state, place).count_here(false))
}
