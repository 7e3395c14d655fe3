//! Push locks (`EX_PUSH_LOCK`): one writer, or several readers, and never twice by a thread.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use wdk_bindings::{BOOLEAN, ULONG, ULONG_PTR};

use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    tracked::{Kind, Object, Structure},
    waiting::{self, Wait},
};

/// `EX_PUSH_LOCK` of wdm.h: a word that is the system's.
type Word = ULONG_PTR;

/// A push lock.
#[derive(Default)]
pub struct PushLock(Mutex<Holders>);

/// Who has it.
#[derive(Default)]
struct Holders {
    threads: BTreeSet<u64>,
    /// There is one, and it writes.
    exclusive: bool,
}

impl PushLock {
    /// Takes it for the current thread, if nobody is in the way.
    fn try_acquire(&self, exclusive: bool) -> bool {
        let mut holders = lock(&self.0);
        let can = holders.threads.is_empty() || !exclusive && !holders.exclusive;
        if can {
            holders.threads.insert(context::thread());
            holders.exclusive = exclusive;
        }
        can
    }

    fn is_held_here(&self) -> bool {
        lock(&self.0).threads.contains(&context::thread())
    }

    fn release(&self, what: &str, exclusive: bool) {
        let mut holders = lock(&self.0);
        if !holders.threads.remove(&context::thread()) {
            drop(holders);
            bug_check(Rule::LockNotHeld, format_args!("{what}: the thread does not have the push lock"));
        }
        let how = if holders.exclusive { "exclusive" } else { "shared" };
        if holders.exclusive != exclusive {
            drop(holders);
            bug_check(Rule::LockPrimitive, format_args!("{what}: the thread has the push lock for {how} access"));
        }
        holders.exclusive = false;
    }
}

impl Structure for PushLock {
    fn rule_if_freed(&self) -> Option<Rule> {
        (!lock(&self.0).threads.is_empty()).then_some(Rule::LockHeld)
    }
}

fn find(state: &State, place: *mut Word) -> Arc<PushLock> {
    state.structure(place.expose_provenance(), Kind::PushLock)
}

/// Normal kernel APCs have to be kept away from before the acquisition until after the release.
fn without_apcs(what: &str) {
    if context::critical() == 0 && machine::current_irql() < Irql::APC_LEVEL {
        bug_check(Rule::CriticalRegion, format_args!("{what} called outside of a critical region"));
    }
}

fn acquire(state: &Arc<State>, what: &'static str, place: *mut Word, exclusive: bool) {
    without_apcs(what);
    let push_lock = find(state, place);
    if push_lock.is_held_here() {
        let words = format_args!("{what}: the thread has the push lock at {place:p} already");
        bug_check(Rule::RecursiveLock, words);
    }
    state.preempt();
    if !push_lock.try_acquire(exclusive) {
        let objects = [place.addr()];
        let wait = Wait::of(what, &objects);
        waiting::until(state, None, wait, || push_lock.try_acquire(exclusive));
    }
}

fn release(state: &State, what: &str, place: *mut Word, exclusive: bool) {
    without_apcs(what);
    find(state, place).release(what, exclusive);
    state.dispatcher.signal_of(place.addr());
    state.preempt();
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializePushLock(place: *mut Word) {
    routine!("ExInitializePushLock", APC_LEVEL, |state| {
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::PushLock, PushLock::default()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquirePushLockExclusiveEx(place: *mut Word, _flags: ULONG) {
    routine!("ExAcquirePushLockExclusiveEx", APC_LEVEL, |state| {
        acquire(state, "ExAcquirePushLockExclusiveEx", place, true);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquirePushLockSharedEx(place: *mut Word, _flags: ULONG) {
    routine!("ExAcquirePushLockSharedEx", APC_LEVEL, |state| {
        acquire(state, "ExAcquirePushLockSharedEx", place, false);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExTryAcquirePushLockExclusiveEx(place: *mut Word, _flags: ULONG) -> BOOLEAN {
    routine!("ExTryAcquirePushLockExclusiveEx", APC_LEVEL, |state| {
        without_apcs("ExTryAcquirePushLockExclusiveEx");
        state.preempt();
        BOOLEAN::from(find(state, place).try_acquire(true))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExReleasePushLockExclusiveEx(place: *mut Word, _flags: ULONG) {
    routine!("ExReleasePushLockExclusiveEx", APC_LEVEL, |state| {
        release(state, "ExReleasePushLockExclusiveEx", place, true);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReleasePushLockSharedEx(place: *mut Word, _flags: ULONG) {
    routine!("ExReleasePushLockSharedEx", APC_LEVEL, |state| {
        release(state, "ExReleasePushLockSharedEx", place, false);
    });
}
