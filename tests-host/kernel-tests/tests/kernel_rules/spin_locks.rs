//! The framework's spin locks.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught, irql, locks_held};
use wdk_sys::{WDFSPINLOCK, call_unsafe_wdf_function_binding};

use crate::{
    acquire, lower, new_lock, raise, release, rules,
    skeleton::{Loaded, Wrong, run, run_on},
};

rules! {
    a_lock_acquired_twice breaks RecursiveLock by |_| { let lock = create(); take(lock); take(lock); };
    a_release_of_a_free_lock breaks LockNotHeld by |_| { raise(2); give(create()); };
    a_release_by_another_thread breaks LockNotHeld by |_| { let lock = create(); take(lock); elsewhere(lock); };
    a_second_release breaks IrqlNotRaised by |_| { let lock = create(); take(lock); give(lock); give(lock); };
    a_lock_deleted_while_it_is_held breaks LockHeld by |_| { let lock = create(); take(lock); delete(lock); };
    a_lock_used_after_its_deletion breaks BadHandle by |_| { let lock = create(); delete(lock); take(lock); };
    a_lock_that_is_something_else breaks BadHandle by |loaded| take(loaded.driver.cast());
    a_lock_above_dispatch_level breaks IrqlTooHigh by |_| { let lock = create(); raise(3); take(lock); };
    a_creation_above_dispatch_level breaks IrqlTooHigh by |_| { raise(3); create(); };
    a_lock_held_at_the_end breaks LockHeld by |_| take(create());
    the_level_lowered_under_a_lock breaks IrqlNotLowered by |_| { take(create()); lower(0); };
    a_lock_of_each_kind_in_both_orders breaks LockOrder by both_orders;
}

fn create() -> WDFSPINLOCK {
    let mut lock = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockCreate, ptr::null_mut(), &raw mut lock) };
    assert_eq!(status, 0);
    lock
}

fn take(lock: WDFSPINLOCK) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockAcquire, lock) };
}

fn give(lock: WDFSPINLOCK) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockRelease, lock) };
}

fn delete(lock: WDFSPINLOCK) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, lock.cast()) };
}

fn elsewhere(lock: WDFSPINLOCK) {
    let address = lock.addr();
    let other = std::thread::spawn(move || {
        raise(2);
        give(ptr::without_provenance_mut(address));
    });
    assert!(other.join().is_err(), "it is caught before");
}

fn both_orders(_: &Loaded) {
    let (ours, theirs) = (new_lock(), create());
    let before = acquire(ours);
    take(theirs);
    give(theirs);
    release(ours, before);
    take(theirs);
    release(ours, acquire(ours));
    give(theirs);
}

#[test]
fn a_lock_raises_and_returns_to_where_its_holder_was() {
    run(Wrong {
        load: |_| {
            let (outer, inner) = (create(), create());
            take(outer);
            assert_eq!((irql(), locks_held()), (2, 1));
            take(inner);
            give(inner);
            assert_eq!((irql(), locks_held()), (2, 1), "the inner lock was acquired at DISPATCH_LEVEL");
            give(outer);
            assert_eq!((irql(), locks_held()), (0, 0));
            delete(inner);
            // The other one goes with the driver.
        },
        ..Wrong::default()
    });
}

#[test]
fn a_lock_lets_one_thread_go_on_at_a_time() {
    static COUNT: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
    const EACH: u32 = 20_000;
    run_on(Kernel::threads(), Wrong::default(), |driver, _| {
        let mut place = 0;
        driver.run(|| place = create().addr());
        let count = || {
            let lock = ptr::without_provenance_mut(place);
            for _ in 0..EACH {
                take(lock);
                // Not one operation: two at a time would lose some.
                COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
                give(lock);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| driver.run(count));
            }
        });
        assert_eq!(COUNT.load(Relaxed), 2 * EACH);
        driver.run(|| delete(ptr::without_provenance_mut(place)));
    });
}
