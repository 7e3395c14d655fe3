//! Remove locks: who uses a device holds one, and its removal waits for them.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use wdk_bindings::{
    IO_REMOVE_LOCK, NTSTATUS, PCSTR, PIO_REMOVE_LOCK, PVOID, STATUS_DELETE_PENDING, STATUS_SUCCESS, ULONG,
};

use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    tracked::{Kind, Object, Structure},
    waiting,
};

/// A remove lock: the tags of those who hold it.
#[derive(Default)]
pub struct RemoveLock {
    removed: AtomicBool,
    holders: Mutex<Vec<usize>>,
}

impl Structure for RemoveLock {
    fn rule_if_freed(&self) -> Option<Rule> {
        self.is_held().then_some(Rule::RemoveLock)
    }

    /// One whose device was removed does not come back.
    fn rule_if_initialised(&self) -> Option<Rule> {
        (self.removed.load(Acquire) || self.is_held()).then_some(Rule::RemoveLock)
    }
}

impl RemoveLock {
    /// Returns true if somebody holds it.
    fn is_held(&self) -> bool {
        !lock(&self.holders).is_empty()
    }

    fn release(&self, tag: PVOID) {
        let mut holders = lock(&self.holders);
        let Some(place) = holders.iter().position(|&one| one == tag.addr()) else {
            bug_check(
                Rule::RemoveLock,
                format_args!("a remove lock is released with a tag that nobody acquired it with"),
            );
        };
        holders.swap_remove(place);
    }
}

fn find(state: &State, place: PIO_REMOVE_LOCK, size: ULONG) -> Arc<RemoveLock> {
    if size as usize != size_of::<IO_REMOVE_LOCK>() {
        bug_check(Rule::BadArgument, format_args!("a remove lock of {size} bytes"));
    }
    state.structure(place.expose_provenance(), Kind::RemoveLock)
}

#[unsafe(no_mangle)]
extern "C" fn IoInitializeRemoveLockEx(
    place: PIO_REMOVE_LOCK,
    _tag: ULONG,
    _minutes: ULONG,
    _high_watermark: ULONG,
    size: ULONG,
) {
    routine!("IoInitializeRemoveLockEx", PASSIVE_LEVEL, |state| {
        if size as usize != size_of::<IO_REMOVE_LOCK>() {
            bug_check(Rule::BadArgument, format_args!("a remove lock of {size} bytes"));
        }
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::RemoveLock, RemoveLock::default()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoAcquireRemoveLockEx(
    place: PIO_REMOVE_LOCK,
    tag: PVOID,
    _file: PCSTR,
    _line: ULONG,
    size: ULONG,
) -> NTSTATUS {
    routine!("IoAcquireRemoveLockEx", DISPATCH_LEVEL, |state| {
        let found = find(state, place, size);
        if found.removed.load(Acquire) {
            return STATUS_DELETE_PENDING;
        }
        lock(&found.holders).push(tag.addr());
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoReleaseRemoveLockEx(place: PIO_REMOVE_LOCK, tag: PVOID, size: ULONG) {
    routine!("IoReleaseRemoveLockEx", DISPATCH_LEVEL, |state| {
        find(state, place, size).release(tag);
        state.dispatcher.signal();
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoReleaseRemoveLockAndWaitEx(place: PIO_REMOVE_LOCK, tag: PVOID, size: ULONG) {
    routine!("IoReleaseRemoveLockAndWaitEx", PASSIVE_LEVEL, |state| {
        let found = find(state, place, size);
        found.removed.store(true, Release);
        found.release(tag);
        waiting::until(state, None, "IoReleaseRemoveLockAndWait", || !found.is_held());
    });
}
