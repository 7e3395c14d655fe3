//! Spin locks for readers and writers. Here a reader has the lock alone, as a writer does: fewer orders of events, and none that the real
//! ones do not allow.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicI32,
            Ordering::{Acquire, Release},
        },
    },
};

use host::machine::{Irql, LockName, RawSpinLock};
use wdk_bindings::{KIRQL, PEX_SPIN_LOCK};

use super::lock::{at_dispatch, check_word, hold, let_go};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State, Watch, lock},
};

/// A lock has four bytes in the driver's memory, too few for one of the machine: those are here, by the address. While a lock is held
/// its number is in the driver's word, which is zero otherwise.
#[derive(Default)]
pub struct SharedLocks {
    by_address: BTreeMap<usize, Known>,
    last: i32,
}

impl Part for Mutex<SharedLocks> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<SharedLocks> {
    /// Locks in it are gone.
    fn memory_is_gone(&self, _state: &State, range: &Range<usize>) {
        let mut locks = lock(self);
        let is_held =
            |address: usize, known: &Known| read(std::ptr::with_exposed_provenance_mut(address)) == HELD | known.number;
        let held = locks.by_address.range(range.clone()).find(|&(&address, known)| is_held(address, known));
        if let Some((address, site)) = held.map(|(&address, known)| (address, known.site.clone())) {
            drop(locks);
            let offset = address - range.start;
            bug_check(
                Rule::LockHeld,
                format_args!("a lock in a block that is freed, at offset {offset}, is held; acquired{site}"),
            );
        }
        if !locks.by_address.is_empty() {
            locks.by_address.retain(|address, _| !range.contains(address));
            host::machine::forget_lock_order(CLASS, &(range.start as u64..range.end as u64));
        }
    }
}

/// A lock that was acquired.
#[derive(Clone)]
struct Known {
    lock: Arc<RawSpinLock>,
    number: i32,
    /// Where it was acquired, while it is held.
    site: Site,
    /// It was acquired to read.
    shared: bool,
}

/// What the word of a held lock has besides its number, as Windows marks a writer.
const HELD: i32 = i32::MIN;

const CLASS: &str = "driver's lock for readers and writers";

fn read(word: PEX_SPIN_LOCK) -> i32 {
    // SAFETY: the driver's word, which is changed by these routines only.
    unsafe { AtomicI32::from_ptr(word) }.load(Acquire)
}

fn write(word: PEX_SPIN_LOCK, value: i32) {
    // SAFETY: the driver's word, which is changed by these routines only.
    unsafe { AtomicI32::from_ptr(word) }.store(value, Release);
}

/// The lock that a word is. The word of one that was never acquired here is zero, or a copy of another one that is held, or it was
/// not initialised.
fn find(state: &State, word: PEX_SPIN_LOCK) -> (Arc<RawSpinLock>, LockName) {
    let address = word.expose_provenance();
    check_word(address);
    let mut locks = state.locked::<SharedLocks>();
    let value = read(word);
    let own = locks.by_address.get(&address).map(|known| HELD | known.number);
    if value != 0 && own != Some(value) {
        let origin = locks.by_address.iter().find(|(_, known)| HELD | known.number == value);
        let origin = origin.map(|(&place, known)| (place, known.site.clone()));
        drop(locks);
        if let Some((origin, site)) = origin {
            let here = Site::of_use();
            bug_check(
                Rule::MovedObject,
                format_args!(
                    "the lock at {address:#x} is a copy of the one that was acquired at {origin:#x}{site}, and is used at {address:#x}{here}"
                ),
            );
        }
        bug_check(
            Rule::Uninitialised,
            format_args!("the lock at {address:#x} has the value {value:#x}, and nobody holds it"),
        );
    }
    if own.is_none() {
        locks.last = locks.last.wrapping_add(1) & i32::MAX;
        let known = Known { lock: Arc::default(), number: locks.last, site: Site::default(), shared: false };
        locks.by_address.insert(address, known);
    }
    let found = locks.by_address[&address].lock.clone();
    (found, LockName { class: CLASS, instance: address as u64 })
}

/// The lock was acquired by the current thread.
fn mark(state: &State, word: PEX_SPIN_LOCK, shared: bool) {
    let mut locks = state.locked::<SharedLocks>();
    if let Some(known) = locks.by_address.get_mut(&word.addr()) {
        (known.site, known.shared) = (Site::here(), shared);
        write(word, HELD | known.number);
    }
}

/// The lock is about to be released. One that the current thread does not hold is found out by the release.
fn unmark(state: &State, word: PEX_SPIN_LOCK, held: &RawSpinLock, shared: bool) {
    if !held.is_held_here() {
        return;
    }
    let locks = state.locked::<SharedLocks>();
    let known = locks.by_address.get(&word.addr()).map(|known| (known.shared, known.site.clone()));
    drop(locks);
    if let Some((was_shared, site)) = known.filter(|&(was_shared, _)| was_shared != shared) {
        let as_what = |shared| if shared { "to read" } else { "to write" };
        bug_check(
            Rule::LockPrimitive,
            format_args!(
                "a lock is released as acquired {}, and was acquired {}{site}",
                as_what(shared),
                as_what(was_shared)
            ),
        );
    }
    write(word, 0);
}

fn acquire(state: &State, word: PEX_SPIN_LOCK, shared: bool) -> KIRQL {
    let (lock, name) = find(state, word);
    let before = hold(state, &lock, name).0;
    mark(state, word, shared);
    before
}

fn acquire_at_dispatch(state: &State, name: &str, word: PEX_SPIN_LOCK, shared: bool) {
    at_dispatch(name);
    let (lock, name) = find(state, word);
    lock.acquire_at_dispatch(name);
    mark(state, word, shared);
}

fn release(state: &State, word: PEX_SPIN_LOCK, before: KIRQL, shared: bool) {
    let lock = find(state, word).0;
    unmark(state, word, &lock, shared);
    let_go(state, &lock, Irql(before));
}

fn release_from_dispatch(state: &State, word: PEX_SPIN_LOCK, shared: bool) {
    let lock = find(state, word).0;
    unmark(state, word, &lock, shared);
    lock.release_from_dispatch();
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockExclusive(word: PEX_SPIN_LOCK) -> KIRQL {
    routine!("ExAcquireSpinLockExclusive", |state| acquire(state, word, false))
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockShared(word: PEX_SPIN_LOCK) -> KIRQL {
    routine!("ExAcquireSpinLockShared", |state| acquire(state, word, true))
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockExclusive(word: PEX_SPIN_LOCK, before: KIRQL) {
    routine!("ExReleaseSpinLockExclusive", |state| release(state, word, before, false));
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockShared(word: PEX_SPIN_LOCK, before: KIRQL) {
    routine!("ExReleaseSpinLockShared", |state| release(state, word, before, true));
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockExclusiveAtDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExAcquireSpinLockExclusiveAtDpcLevel", |state| {
        acquire_at_dispatch(state, "ExAcquireSpinLockExclusiveAtDpcLevel", word, false);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireSpinLockSharedAtDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExAcquireSpinLockSharedAtDpcLevel", |state| {
        acquire_at_dispatch(state, "ExAcquireSpinLockSharedAtDpcLevel", word, true);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockExclusiveFromDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExReleaseSpinLockExclusiveFromDpcLevel", |state| release_from_dispatch(state, word, false));
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseSpinLockSharedFromDpcLevel(word: PEX_SPIN_LOCK) {
    routine!("ExReleaseSpinLockSharedFromDpcLevel", |state| release_from_dispatch(state, word, true));
}
