//! Run-down protection.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
};

use wdk_bindings::{BOOLEAN, EX_RUNDOWN_REF};

use super::routine;
use crate::{
    context,
    kernel::State,
    report::bug_check,
    rule::Rule,
    tracked::{Object, Rundown},
    waiting,
};

/// Set when nobody may come in.
const SHUT: u64 = 1;
/// One who is inside.
const ONE: u64 = 2;

fn tracked(state: &State, place: *mut EX_RUNDOWN_REF) -> Arc<Rundown> {
    state.rundown(place.expose_provenance())
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExInitializeRundownProtection", |state| {
        let object = Rundown { state: AtomicU64::new(0) };
        state.track(place.expose_provenance(), context::caller(), Object::Rundown(Arc::new(object)));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReInitializeRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExReInitializeRundownProtection", |state| {
        if tracked(state, place).state.swap(0, AcqRel) != SHUT {
            bug_check(Rule::BadArgument, format_args!("run-down protection initialised again before it has run down"));
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireRundownProtection(place: *mut EX_RUNDOWN_REF) -> BOOLEAN {
    routine!("ExAcquireRundownProtection", |state| {
        let enter = |word: u64| (word & SHUT == 0).then_some(word + ONE);
        let entered = tracked(state, place).state.fetch_update(AcqRel, Acquire, enter).is_ok();
        state.preempt();
        BOOLEAN::from(entered)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExReleaseRundownProtection", |state| {
        let before = tracked(state, place).state.fetch_sub(ONE, AcqRel);
        if before < ONE {
            bug_check(Rule::RundownUnderflow, format_args!("run-down protection released once too often"));
        }
        state.dispatcher.signal();
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExWaitForRundownProtectionRelease(place: *mut EX_RUNDOWN_REF) {
    routine!("ExWaitForRundownProtectionRelease", |state| {
        let object = tracked(state, place);
        object.state.fetch_or(SHUT, Release);
        waiting::until(state, None, "ExWaitForRundownProtectionRelease", || object.state.load(Acquire) == SHUT);
    });
}
