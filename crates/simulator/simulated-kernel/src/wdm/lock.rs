//! Spin locks and the IRQL.

use host::machine::{self, Irql, LockName, RawSpinLock};
use wdk_bindings::{BOOLEAN, KIRQL, KLOCK_QUEUE_HANDLE, KSPIN_LOCK};

use super::routine;
use crate::{kernel::State, paged, pool, report::bug_check, rule::Rule};

/// The word of a lock must not be in memory that is free, nor in memory that can be paged out.
pub fn check_word(address: usize) {
    if pool::is_live(address) == Some(false) {
        bug_check(Rule::UseAfterFree, format_args!("the spin lock at {address:#x} is in memory that is free"));
    }
    if paged::contains(address) {
        bug_check(Rule::PagedAtDispatch, format_args!("the spin lock at {address:#x} is in pageable memory"));
    }
}

/// The lock that the driver's word is.
fn lock_at<'lock>(word: *mut KSPIN_LOCK) -> (&'lock RawSpinLock, LockName) {
    let address = word.expose_provenance();
    check_word(address);
    // SAFETY: the driver's word for a lock, which has the size and alignment of this type, for which each value is one.
    (unsafe { &*word.cast::<RawSpinLock>() }, LockName { class: CLASS, instance: address as u64 })
}

const CLASS: &str = "driver's spin lock";

/// What a driver's lock is called that is not a word of the driver's: the framework's handle.
pub const fn name_of(handle: usize) -> LockName {
    LockName { class: CLASS, instance: handle as u64 }
}

/// The memory of so many bytes is free: a lock that comes to lie there is another one.
pub fn forget_range(address: usize, size: usize) {
    machine::forget_lock_order(CLASS, &(address as u64..(address + size) as u64));
}

/// Raises to `DISPATCH_LEVEL` and acquires. The level before.
pub fn hold(state: &State, lock: &RawSpinLock, name: LockName) -> Irql {
    state.preempt();
    let before = lock.acquire(name);
    if before < Irql::DISPATCH_LEVEL {
        paged::trim();
    }
    before
}

/// Releases and goes back to the level before.
pub fn let_go(state: &State, lock: &RawSpinLock, before: Irql) {
    if before > Irql::DISPATCH_LEVEL {
        bug_check(Rule::IrqlNotRestored, format_args!("a spin lock is released to {before}"));
    }
    lock.release(before);
    state.preempt();
}

/// Raises to `DISPATCH_LEVEL` and acquires the lock that a driver's word is. The level before.
pub fn acquire(state: &State, word: *mut KSPIN_LOCK) -> Irql {
    let (lock, name) = lock_at(word);
    hold(state, lock, name)
}

/// Releases the lock that a driver's word is, and goes back to the level before.
pub fn release(state: &State, word: *mut KSPIN_LOCK, before: Irql) {
    let_go(state, lock_at(word).0, before);
}

/// Nothing below `DISPATCH_LEVEL` may call this.
pub fn at_dispatch(name: &str) {
    let now = machine::current_irql();
    if now < Irql::DISPATCH_LEVEL {
        bug_check(Rule::IrqlNotRaised, format_args!("{name} called at {now}"));
    }
}

/// The word that a queued lock was acquired with. The handle is used up.
fn taken(handle: *mut KLOCK_QUEUE_HANDLE) -> (*mut KSPIN_LOCK, Irql) {
    // SAFETY: the driver's handle, which is in use from the acquisition to here.
    let held = unsafe { &mut *handle };
    if held.LockQueue.Lock.is_null() {
        bug_check(Rule::LockNotHeld, format_args!("a spin lock is released by a handle that holds none"));
    }
    (std::mem::replace(&mut held.LockQueue.Lock, std::ptr::null_mut()), Irql(held.OldIrql))
}

fn note(handle: *mut KLOCK_QUEUE_HANDLE, word: *mut KSPIN_LOCK, before: Irql) {
    let mut held = KLOCK_QUEUE_HANDLE::default();
    held.LockQueue.Lock = word;
    held.OldIrql = before.0;
    // SAFETY: the driver's memory for a handle, which nobody else uses until the release.
    unsafe { handle.write(held) };
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeSpinLock(word: *mut KSPIN_LOCK) {
    routine!("KeInitializeSpinLock", |_| {
        // SAFETY: the driver's memory for a lock.
        unsafe { word.write(0) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireSpinLockRaiseToDpc(word: *mut KSPIN_LOCK) -> KIRQL {
    routine!("KeAcquireSpinLockRaiseToDpc", |state| acquire(state, word).0)
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseSpinLock(word: *mut KSPIN_LOCK, before: KIRQL) {
    routine!("KeReleaseSpinLock", |state| release(state, word, Irql(before)));
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireSpinLockAtDpcLevel(word: *mut KSPIN_LOCK) {
    routine!("KeAcquireSpinLockAtDpcLevel", |_| {
        at_dispatch("KeAcquireSpinLockAtDpcLevel");
        let (lock, name) = lock_at(word);
        lock.acquire_at_dispatch(name);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseSpinLockFromDpcLevel(word: *mut KSPIN_LOCK) {
    routine!("KeReleaseSpinLockFromDpcLevel", |_| lock_at(word).0.release_from_dispatch());
}

#[unsafe(no_mangle)]
extern "C" fn KeTryToAcquireSpinLockAtDpcLevel(word: *mut KSPIN_LOCK) -> BOOLEAN {
    routine!("KeTryToAcquireSpinLockAtDpcLevel", |_| {
        at_dispatch("KeTryToAcquireSpinLockAtDpcLevel");
        let (lock, name) = lock_at(word);
        BOOLEAN::from(lock.try_acquire_at_dispatch(name))
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireInStackQueuedSpinLock(word: *mut KSPIN_LOCK, handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeAcquireInStackQueuedSpinLock", |state| {
        let before = acquire(state, word);
        note(handle, word, before);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseInStackQueuedSpinLock(handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeReleaseInStackQueuedSpinLock", |state| {
        let (word, before) = taken(handle);
        release(state, word, before);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireInStackQueuedSpinLockAtDpcLevel(word: *mut KSPIN_LOCK, handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeAcquireInStackQueuedSpinLockAtDpcLevel", |_| {
        at_dispatch("KeAcquireInStackQueuedSpinLockAtDpcLevel");
        let (lock, name) = lock_at(word);
        lock.acquire_at_dispatch(name);
        note(handle, word, Irql::DISPATCH_LEVEL);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseInStackQueuedSpinLockFromDpcLevel(handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeReleaseInStackQueuedSpinLockFromDpcLevel", |_| lock_at(taken(handle).0).0.release_from_dispatch());
}

#[unsafe(no_mangle)]
extern "C" fn KfRaiseIrql(to: KIRQL) -> KIRQL {
    routine!("KfRaiseIrql", |_| {
        let before = machine::raise(Irql(to));
        if Irql(to) >= Irql::DISPATCH_LEVEL {
            paged::trim();
        }
        before.0
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeLowerIrql(to: KIRQL) {
    routine!("KeLowerIrql", |_| machine::lower(Irql(to)));
}
