//! Push locks (`EX_PUSH_LOCK`): one writer, or several readers, and never twice by a thread.

use std::sync::Arc;

use wdk_bindings::{BOOLEAN, ULONG, ULONG_PTR};

use super::turns::{Next, Turns, Want, without_apcs};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::{Kind, Object, Structure},
};

/// `EX_PUSH_LOCK` of wdm.h: a word that is the system's.
type Word = ULONG_PTR;

/// A push lock.
pub struct PushLock(Turns);

impl PushLock {
    fn new() -> Self {
        Self(Turns::new(Next::Oldest))
    }

    fn is_held_here(&self) -> bool {
        self.0.count_here() > 0
    }

    fn release(&self, what: &str, exclusive: bool) {
        if !self.is_held_here() {
            bug_check(Rule::LockNotHeld, format_args!("{what}: the thread does not have the push lock"));
        }
        let is_exclusive = self.0.is_exclusive();
        if is_exclusive != exclusive {
            let how = if is_exclusive { "exclusive" } else { "shared" };
            bug_check(Rule::LockPrimitive, format_args!("{what}: the thread has the push lock for {how} access"));
        }
        self.0.release();
    }
}

impl Structure for PushLock {
    fn rule_if_freed(&self) -> Option<Rule> {
        self.0.is_used().then_some(Rule::LockHeld)
    }
}

fn find(state: &State, place: *mut Word) -> Arc<PushLock> {
    state.structure(place.expose_provenance(), Kind::PushLock)
}

fn acquire(state: &Arc<State>, what: &'static str, place: *mut Word, want: Want) {
    without_apcs(what);
    let push_lock = find(state, place);
    if push_lock.is_held_here() {
        let words = format_args!("{what}: the thread has the push lock at {place:p} already");
        bug_check(Rule::RecursiveLock, words);
    }
    state.preempt();
    push_lock.0.acquire(state, want, what, place.addr());
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
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::PushLock, PushLock::new()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquirePushLockExclusiveEx(place: *mut Word, _flags: ULONG) {
    routine!("ExAcquirePushLockExclusiveEx", APC_LEVEL, |state| {
        acquire(state, "ExAcquirePushLockExclusiveEx", place, Want::Write);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquirePushLockSharedEx(place: *mut Word, _flags: ULONG) {
    routine!("ExAcquirePushLockSharedEx", APC_LEVEL, |state| {
        acquire(state, "ExAcquirePushLockSharedEx", place, Want::Read);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExTryAcquirePushLockExclusiveEx(place: *mut Word, _flags: ULONG) -> BOOLEAN {
    routine!("ExTryAcquirePushLockExclusiveEx", APC_LEVEL, |state| {
        without_apcs("ExTryAcquirePushLockExclusiveEx");
        state.preempt();
        let push_lock = find(state, place);
        BOOLEAN::from(!push_lock.is_held_here() && push_lock.0.try_acquire(Want::Write))
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
