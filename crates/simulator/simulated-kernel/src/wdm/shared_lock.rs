//! Spin locks for readers and writers. Here a reader has the lock alone, as a writer does: fewer orders of events, and none that the real
//! ones do not allow.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use host::machine::{Irql, LockName, RawSpinLock};
use wdk_bindings::{KIRQL, PEX_SPIN_LOCK};

use super::{
    lock::{at_dispatch, check_word, hold, let_go},
    routine,
};
use crate::kernel::{State, lock};

/// A lock has four bytes in the driver's memory, too few for one of the machine: those are here, by the address.
pub type Locks = BTreeMap<usize, Arc<RawSpinLock>>;

const CLASS: &str = "driver's lock for readers and writers";

fn find(state: &State, word: PEX_SPIN_LOCK) -> (Arc<RawSpinLock>, LockName) {
    let address = word.expose_provenance();
    check_word(address);
    let found = lock(&state.wdm.shared_locks).entry(address).or_default().clone();
    (found, LockName { class: CLASS, instance: address as u64 })
}

/// The memory of so many bytes is free: locks in it are gone.
pub fn forget(state: &State, range: &Range<usize>) {
    let mut locks = lock(&state.wdm.shared_locks);
    if !locks.is_empty() {
        locks.retain(|address, _| !range.contains(address));
        host::machine::forget_lock_order(CLASS, &(range.start as u64..range.end as u64));
    }
}

fn acquire(state: &State, word: PEX_SPIN_LOCK) -> KIRQL {
    let (lock, name) = find(state, word);
    hold(state, &lock, name).0
}

fn acquire_at_dispatch(state: &State, name: &str, word: PEX_SPIN_LOCK) {
    at_dispatch(name);
    let (lock, name) = find(state, word);
    lock.acquire_at_dispatch(name);
}

fn release(state: &State, word: PEX_SPIN_LOCK, before: KIRQL) {
    let_go(state, &find(state, word).0, Irql(before));
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockExclusive(word: PEX_SPIN_LOCK) -> KIRQL {
    routine!("ExAcquireSpinLockExclusive", |state| acquire(state, word))
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockShared(word: PEX_SPIN_LOCK) -> KIRQL {
    routine!("ExAcquireSpinLockShared", |state| acquire(state, word))
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockExclusive(word: PEX_SPIN_LOCK, before: KIRQL) {
    routine!("ExReleaseSpinLockExclusive", |state| release(state, word, before));
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockShared(word: PEX_SPIN_LOCK, before: KIRQL) {
    routine!("ExReleaseSpinLockShared", |state| release(state, word, before));
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockExclusiveAtDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExAcquireSpinLockExclusiveAtDpcLevel", |state| {
        acquire_at_dispatch(state, "ExAcquireSpinLockExclusiveAtDpcLevel", word);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockSharedAtDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExAcquireSpinLockSharedAtDpcLevel", |state| {
        acquire_at_dispatch(state, "ExAcquireSpinLockSharedAtDpcLevel", word);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockExclusiveFromDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExReleaseSpinLockExclusiveFromDpcLevel", |state| find(state, word).0.release_from_dispatch());
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockSharedFromDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExReleaseSpinLockSharedFromDpcLevel", |state| find(state, word).0.release_from_dispatch());
}
