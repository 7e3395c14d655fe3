//! Push locks and run-down protection of both kinds.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    APC_LEVEL, EX_RUNDOWN_REF, KEVENT, NTSTATUS, PDEVICE_OBJECT, PIRP, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, PVOID,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, ExInitializeRundownProtection, ExWaitForRundownProtectionRelease,
        KeEnterCriticalRegion, KeInitializeEvent, KeLeaveCriticalRegion, KeLowerIrql, KeSetEvent,
        KeWaitForSingleObject, KfRaiseIrql,
    },
};

use crate::{
    asked::{call, join, sleep, thread},
    driver::{self, CODE, Parts, complete, run},
};

/// `EX_RUNDOWN_REF_CACHE_AWARE`, which is opaque.
type CacheAware = *mut u64;

unsafe extern "C" {
    /// The kit declares these, the bindings leave them out.
    fn ExInitializePushLock(lock: *mut u64);
    fn ExAcquirePushLockExclusiveEx(lock: *mut u64, flags: u32);
    fn ExAcquirePushLockSharedEx(lock: *mut u64, flags: u32);
    fn ExTryAcquirePushLockExclusiveEx(lock: *mut u64, flags: u32) -> u8;
    fn ExReleasePushLockExclusiveEx(lock: *mut u64, flags: u32);
    fn ExReleasePushLockSharedEx(lock: *mut u64, flags: u32);
    fn ExAcquireRundownProtectionEx(place: *mut EX_RUNDOWN_REF, count: u32) -> u8;
    fn ExReleaseRundownProtectionEx(place: *mut EX_RUNDOWN_REF, count: u32);
    fn ExRundownCompleted(place: *mut EX_RUNDOWN_REF);
    fn ExAllocateCacheAwareRundownProtection(kind: i32, tag: u32) -> CacheAware;
    fn ExFreeCacheAwareRundownProtection(place: CacheAware);
    fn ExSizeOfRundownProtectionCacheAware() -> u64;
    fn ExInitializeRundownProtectionCacheAware(place: CacheAware, size: u64);
    fn ExReInitializeRundownProtectionCacheAware(place: CacheAware);
    fn ExAcquireRundownProtectionCacheAware(place: CacheAware) -> u8;
    fn ExAcquireRundownProtectionCacheAwareEx(place: CacheAware, count: u32) -> u8;
    fn ExReleaseRundownProtectionCacheAware(place: CacheAware);
    fn ExReleaseRundownProtectionCacheAwareEx(place: CacheAware, count: u32);
    fn ExRundownCompletedCacheAware(place: CacheAware);
    fn ExWaitForRundownProtectionReleaseCacheAware(place: CacheAware);
}

const TAG: u32 = u32::from_ne_bytes(*b"Grds");
const NON_PAGED: i32 = 512;

fn does(work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control: work, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, 0);
    });
}

/// Tests that break a rule by what they do before the driver completes its request.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                #[inline(never)]
                fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
                    $work
                    complete(irp, 0, 0)
                }
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(control));
            }
        )+
    };
}

/// A block of the pool, which nobody frees: a driver that breaks a rule does not get as far.
fn block<T>(flags: u64) -> *mut T {
    let block = call!(ExAllocatePool2(flags, size_of::<T>().max(256) as u64, TAG));
    assert!(!block.is_null());
    block.cast()
}

fn free<T>(block: *mut T) {
    call!(ExFreePoolWithTag(block.cast(), TAG));
}

fn push_lock() -> *mut u64 {
    let lock = block(POOL_FLAG_NON_PAGED);
    call!(ExInitializePushLock(lock));
    lock
}

fn write_lock(lock: *mut u64) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquirePushLockExclusiveEx(lock, 0));
}

fn write_unlock(lock: *mut u64) {
    call!(ExReleasePushLockExclusiveEx(lock, 0));
    call!(KeLeaveCriticalRegion());
}

fn read_lock(lock: *mut u64) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquirePushLockSharedEx(lock, 0));
}

fn read_unlock(lock: *mut u64) {
    call!(ExReleasePushLockSharedEx(lock, 0));
    call!(KeLeaveCriticalRegion());
}

/// What a second thread does under the lock, and when.
struct Shared {
    lock: u64,
    begun: KEVENT,
    written: AtomicU32,
}

unsafe extern "C" fn read_then_write(argument: PVOID) {
    let shared: *mut Shared = argument.cast();
    // SAFETY: it lives until the thread has ended; only the address is taken of what others change.
    let lock = unsafe { &raw mut (*shared).lock };
    // SAFETY: it lives until the thread has ended; only the address is taken of what others change.
    let begun = unsafe { &raw mut (*shared).begun };
    read_lock(lock);
    read_unlock(lock);
    call!(KeSetEvent(begun, 0, 0));
    write_lock(lock);
    // SAFETY: as above; it is atomic.
    unsafe { &(*shared).written }.fetch_add(1, SeqCst);
    write_unlock(lock);
}

#[test]
fn readers_share_a_push_lock_and_a_writer_has_it_alone() {
    does(|_, irp| {
        let shared: *mut Shared = block(POOL_FLAG_NON_PAGED);
        // SAFETY: memory for one, of which only the address is taken.
        let lock = unsafe { &raw mut (*shared).lock };
        // SAFETY: memory for one, of which only the address is taken.
        let begun = unsafe { &raw mut (*shared).begun };
        call!(ExInitializePushLock(lock));
        call!(KeInitializeEvent(begun, 0, 0));
        read_lock(lock);
        let other = thread(read_then_write, shared.cast());
        assert_eq!(call!(KeWaitForSingleObject(begun.cast(), 0, 0, 0, ptr::null_mut())), 0);
        sleep();
        // SAFETY: the memory lives, and it is atomic.
        let written = || unsafe { &(*shared).written }.load(SeqCst);
        assert_eq!(written(), 0, "it has read beside this thread, and waits to write");
        assert_eq!(call!(ExTryAcquirePushLockExclusiveEx(lock, 0)), 0, "there is a reader");
        read_unlock(lock);
        join(other);
        assert_eq!(written(), 1);
        call!(KeEnterCriticalRegion());
        assert_eq!(call!(ExTryAcquirePushLockExclusiveEx(lock, 0)), 1);
        write_unlock(lock);
        free(shared);
        complete(irp, 0, 0)
    });
}

#[test]
fn a_push_lock_may_be_pageable_and_taken_at_apc_level() {
    does(|_, irp| {
        let lock: *mut u64 = block(POOL_FLAG_PAGED);
        call!(ExInitializePushLock(lock));
        let before = call!(KfRaiseIrql(u8::try_from(APC_LEVEL).expect("a level")));
        call!(ExAcquirePushLockExclusiveEx(lock, 0));
        call!(ExReleasePushLockExclusiveEx(lock, 0));
        call!(KeLowerIrql(before));
        free(lock);
        complete(irp, 0, 0)
    });
}

rules! {
    a_push_lock_taken_outside_of_a_critical_region breaks CriticalRegion by {
        call!(ExAcquirePushLockExclusiveEx(push_lock(), 0));
    }
    a_push_lock_released_outside_of_a_critical_region breaks CriticalRegion by {
        let lock = push_lock();
        write_lock(lock);
        call!(KeLeaveCriticalRegion());
        call!(ExReleasePushLockExclusiveEx(lock, 0));
    }
    a_push_lock_written_twice breaks RecursiveLock by {
        let lock = push_lock();
        write_lock(lock);
        write_lock(lock);
    }
    a_push_lock_read_twice_by_a_thread breaks RecursiveLock by {
        let lock = push_lock();
        read_lock(lock);
        read_lock(lock);
    }
    a_push_lock_released_and_not_held breaks LockNotHeld by {
        let lock = push_lock();
        call!(KeEnterCriticalRegion());
        write_unlock(lock);
    }
    a_push_lock_read_and_released_as_if_written breaks LockPrimitive by {
        let lock = push_lock();
        read_lock(lock);
        write_unlock(lock);
    }
    a_push_lock_at_dispatch_level breaks IrqlTooHigh by {
        let lock = push_lock();
        call!(KfRaiseIrql(2));
        call!(ExAcquirePushLockExclusiveEx(lock, 0));
    }
    a_push_lock_that_is_not_initialised breaks Uninitialised by {
        write_lock(block(POOL_FLAG_NON_PAGED));
    }
    a_push_lock_that_moved breaks MovedObject by {
        let (lock, copy) = (push_lock(), block::<u64>(POOL_FLAG_NON_PAGED));
        // SAFETY: both are memory for one.
        unsafe { copy.copy_from_nonoverlapping(lock, 1) };
        write_lock(copy);
    }
    a_push_lock_freed_while_held breaks LockHeld by {
        let lock = push_lock();
        write_lock(lock);
        free(lock);
    }
    a_push_lock_used_when_it_is_free breaks UseAfterFree by {
        let lock = push_lock();
        free(lock);
        write_lock(lock);
    }
    a_pageable_push_lock_freed_while_held breaks LockHeld by {
        let lock = block(POOL_FLAG_PAGED);
        call!(ExInitializePushLock(lock));
        write_lock(lock);
        free(lock);
    }
    a_pageable_push_lock_used_when_it_is_free breaks UseAfterFree by {
        let lock = block(POOL_FLAG_PAGED);
        call!(ExInitializePushLock(lock));
        free(lock);
        write_lock(lock);
    }
    a_push_lock_that_is_not_aligned breaks BadArgument by {
        call!(ExInitializePushLock(block::<u64>(POOL_FLAG_NON_PAGED).wrapping_byte_add(4)));
    }
}

fn cache_aware() -> CacheAware {
    let place = call!(ExAllocateCacheAwareRundownProtection(NON_PAGED, TAG));
    assert!(!place.is_null());
    place
}

/// Whom a thread lets go.
static INSIDE: DuringRun<AtomicPtr<u64>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static LEFT: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn leave_late(_: PVOID) {
    sleep();
    LEFT.fetch_add(1, SeqCst);
    call!(ExReleaseRundownProtectionCacheAware(INSIDE.load(SeqCst)));
}

#[test]
fn run_down_protection_for_each_processor_waits_for_those_inside() {
    does(|_, irp| {
        let place = cache_aware();
        assert_eq!(call!(ExAcquireRundownProtectionCacheAwareEx(place, 3)), 1);
        call!(ExReleaseRundownProtectionCacheAwareEx(place, 3));
        assert_eq!(call!(ExAcquireRundownProtectionCacheAware(place)), 1);
        INSIDE.store(place, SeqCst);
        let other = thread(leave_late, ptr::null_mut());
        call!(ExWaitForRundownProtectionReleaseCacheAware(place));
        assert_eq!(LEFT.load(SeqCst), 1, "somebody was inside");
        join(other);
        assert_eq!(call!(ExAcquireRundownProtectionCacheAware(place)), 0);
        call!(ExWaitForRundownProtectionReleaseCacheAware(place));
        call!(ExRundownCompletedCacheAware(place));
        call!(ExReInitializeRundownProtectionCacheAware(place));
        assert_eq!(call!(ExAcquireRundownProtectionCacheAware(place)), 1);
        call!(ExReleaseRundownProtectionCacheAware(place));
        call!(ExFreeCacheAwareRundownProtection(place));
        complete(irp, 0, 0)
    });
}

#[test]
fn run_down_protection_for_each_processor_may_be_in_memory_of_the_driver() {
    does(|_, irp| {
        let size = call!(ExSizeOfRundownProtectionCacheAware());
        let place: CacheAware = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG)).cast();
        call!(ExInitializeRundownProtectionCacheAware(place, size));
        assert_eq!(call!(ExAcquireRundownProtectionCacheAware(place)), 1);
        call!(ExReleaseRundownProtectionCacheAware(place));
        call!(ExWaitForRundownProtectionReleaseCacheAware(place));
        free(place);
        complete(irp, 0, 0)
    });
}

fn plain() -> *mut EX_RUNDOWN_REF {
    let place = block(POOL_FLAG_NON_PAGED);
    call!(ExInitializeRundownProtection(place));
    place
}

#[test]
fn run_down_protection_is_taken_several_times_at_once() {
    does(|_, irp| {
        let place = plain();
        assert_eq!(call!(ExAcquireRundownProtectionEx(place, 2)), 1);
        call!(ExReleaseRundownProtectionEx(place, 2));
        call!(ExWaitForRundownProtectionRelease(place));
        call!(ExRundownCompleted(place));
        assert_eq!(call!(ExAcquireRundownProtectionEx(place, 2)), 0);
        free(place);
        complete(irp, 0, 0)
    });
}

#[test]
fn run_down_protection_may_not_be_had() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    driver::prepare(Parts::default());
    let driver = kernel.load("plain", driver::entry).expect("the driver loads");
    let failures = kernel.fail_each(1.., || {
        driver.run(|| {
            let place = call!(ExAllocateCacheAwareRundownProtection(NON_PAGED, TAG));
            if !place.is_null() {
                call!(ExFreeCacheAwareRundownProtection(place));
            }
        });
    });
    assert_eq!(failures, 1);
    driver.unload();
}

rules! {
    run_down_protection_left_behind breaks ReferenceLeak by { cache_aware(); }
    run_down_protection_without_a_tag breaks PoolTag by {
        call!(ExAllocateCacheAwareRundownProtection(NON_PAGED, 0));
    }
    run_down_protection_allocated_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        cache_aware();
    }
    run_down_protection_freed_with_somebody_inside breaks RundownInUse by {
        let place = cache_aware();
        call!(ExAcquireRundownProtectionCacheAware(place));
        call!(ExFreeCacheAwareRundownProtection(place));
    }
    a_block_freed_with_somebody_inside breaks RundownInUse by {
        let place = plain();
        call!(ExAcquireRundownProtectionEx(place, 1));
        free(place);
    }
    run_down_protection_completed_with_somebody_inside breaks RundownInUse by {
        let place = plain();
        call!(ExAcquireRundownProtectionEx(place, 1));
        call!(ExRundownCompleted(place));
    }
    run_down_protection_released_more_often_than_acquired breaks RundownUnderflow by {
        let place = cache_aware();
        call!(ExAcquireRundownProtectionCacheAwareEx(place, 2));
        call!(ExReleaseRundownProtectionCacheAwareEx(place, 3));
    }
    run_down_protection_used_after_it_was_freed breaks Uninitialised by {
        let place = cache_aware();
        call!(ExFreeCacheAwareRundownProtection(place));
        call!(ExAcquireRundownProtectionCacheAware(place));
    }
    run_down_protection_of_the_drivers_freed_as_the_systems breaks BadFree by {
        let place: CacheAware = block(POOL_FLAG_NON_PAGED);
        call!(ExInitializeRundownProtectionCacheAware(place, 256));
        call!(ExFreeCacheAwareRundownProtection(place));
    }
    run_down_protection_in_too_few_bytes breaks BadArgument by {
        call!(ExInitializeRundownProtectionCacheAware(block(POOL_FLAG_NON_PAGED), 8));
    }
    run_down_protection_begun_again_before_it_has_run_down breaks BadArgument by {
        call!(ExReInitializeRundownProtectionCacheAware(cache_aware()));
    }
    run_down_protection_of_the_other_kind breaks Uninitialised by {
        call!(ExAcquireRundownProtectionCacheAware(plain().cast()));
    }
    run_down_protection_that_is_never_released breaks Deadlock by {
        let place = cache_aware();
        call!(ExAcquireRundownProtectionCacheAware(place));
        call!(ExWaitForRundownProtectionReleaseCacheAware(place));
    }
    a_wait_for_run_down_at_dispatch_level breaks IrqlTooHigh by {
        let place = cache_aware();
        call!(KfRaiseIrql(2));
        call!(ExWaitForRundownProtectionReleaseCacheAware(place));
    }
}
