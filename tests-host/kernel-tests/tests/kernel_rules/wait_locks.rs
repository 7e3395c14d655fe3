//! The framework's wait locks, and its functions that are not simulated.

use std::ptr;

use simulated_kernel::{Rule, caught};
use wdk_sys::{STATUS_TIMEOUT, WDFWAITLOCK, call_unsafe_wdf_function_binding};

use crate::{
    lower, raise, rules,
    skeleton::{Wrong, run},
};

rules! {
    a_wait_lock_acquired_twice breaks RecursiveLock by |_| { let lock = create(); take(lock); take(lock); };
    a_wait_lock_that_nobody_has_released breaks LockNotHeld by |_| give(create());
    a_wait_lock_kept breaks CriticalRegion by |_| take(create());
    a_wait_lock_deleted_while_somebody_has_it breaks LockHeld by |_| { let lock = create(); take(lock); delete(lock); };
    a_wait_lock_used_after_its_deletion breaks BadHandle by |_| { let lock = create(); delete(lock); take(lock); };
    a_wait_lock_that_is_something_else breaks BadHandle by |loaded| take(loaded.driver.cast());
    a_wait_for_a_wait_lock_at_apc_level breaks IrqlTooHigh by |_| { let lock = create(); raise(1); take(lock); };
    a_function_that_is_not_simulated breaks NotSimulated by |loaded| {
        // SAFETY: the call ends the test.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceSetStaticStopRemove, ptr::null_mut(), 0) };
        assert!(loaded.driver.is_null(), "the call has ended the test");
    };
}

fn create() -> WDFWAITLOCK {
    let mut lock = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockCreate, ptr::null_mut(), &raw mut lock) };
    assert_eq!(status, 0);
    lock
}

/// Takes a lock if nobody has it.
fn take_now(lock: WDFWAITLOCK) -> i32 {
    let mut none = 0;
    take_within(lock, &raw mut none)
}

fn take_within(lock: WDFWAITLOCK, timeout: *mut i64) -> i32 {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockAcquire, lock, timeout) }
}

fn take(lock: WDFWAITLOCK) {
    assert_eq!(take_within(lock, ptr::null_mut()), 0);
}

fn give(lock: WDFWAITLOCK) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfWaitLockRelease, lock) };
}

fn delete(lock: WDFWAITLOCK) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, lock.cast()) };
}

#[test]
fn a_wait_lock_is_one_threads_and_without_a_wait_it_may_be_asked_for_at_dispatch_level() {
    run(Wrong {
        load: |_| {
            let lock = create();
            take(lock);
            assert_eq!(take_now(lock), STATUS_TIMEOUT);
            give(lock);
            let before = raise(2);
            assert_eq!(take_now(lock), 0);
            give(lock);
            lower(before);
            delete(lock);
        },
        ..Wrong::default()
    });
}
