//! In-stack queued spin locks: a handle has its place in a queue by its address.

use std::{
    hint::black_box,
    ptr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use simulated_kernel::{Kernel, Rule, caught, irql, locks_held};
use wdk_sys::{
    KLOCK_QUEUE_HANDLE,
    ntddk::{
        KeAcquireInStackQueuedSpinLock, KeAcquireInStackQueuedSpinLockAtDpcLevel, KeReleaseInStackQueuedSpinLock,
        KeReleaseInStackQueuedSpinLockFromDpcLevel, KeTryToAcquireSpinLockAtDpcLevel,
    },
};

use crate::{
    TAG, acquire, allocate, free, initialise_lock, keep, lower, new_lock, raise, release, rules,
    skeleton::{Loaded, Wrong, run, run_on},
};

rules! {
    a_release_with_a_copy_of_the_handle breaks MovedObject by |_| { let mut copy = black_box(held(new_lock())); give(&raw mut copy); };
    a_release_by_a_guard_that_was_moved breaks MovedObject by |_| drop(black_box(Guard::new(new_lock())));
    a_release_with_a_handle_in_other_memory breaks MovedObject by release_from_elsewhere;
    a_second_release breaks LockNotHeld by |_| { let mut handle = EMPTY; take(new_lock(), &raw mut handle); give(&raw mut handle); raise(2); give(&raw mut handle); };
    a_release_with_a_handle_that_was_never_used breaks LockNotHeld by |_| { raise(2); give(&mut { EMPTY }); };
    a_lock_initialised_again_while_it_is_held breaks Uninitialised by |_| { let lock = new_lock(); held(lock); initialise_lock(lock); };
    a_word_zeroed_while_the_lock_is_held breaks Uninitialised by zeroed;
    a_plain_lock_zeroed_while_it_is_held breaks Uninitialised by zeroed_plain;
    a_word_that_was_not_initialised breaks Uninitialised by garbage;
    a_queued_lock_released_as_a_plain_one breaks LockPrimitive by |_| { let lock = new_lock(); held(lock); release(lock, 0); };
    a_plain_lock_released_with_a_handle breaks LockPrimitive by plain_with_a_handle;
    a_lock_that_is_acquired_in_two_ways breaks LockPrimitive by in_two_ways;
    a_queued_lock_tried_as_a_plain_one breaks LockPrimitive by |_| { let lock = new_lock(); held(lock); try_plain(lock); };
    a_handle_used_for_two_locks breaks Uninitialised by |_| { let mut handle = EMPTY; take(new_lock(), &raw mut handle); take(new_lock(), &raw mut handle); };
    a_lock_freed_while_it_is_held breaks LockHeld by freed_while_held;
    a_handle_freed_while_it_holds breaks LockHeld by handle_freed;
    a_lock_acquired_twice_with_two_handles breaks RecursiveLock by |_| { let lock = new_lock(); let mut other = EMPTY; held(lock); take(lock, &raw mut other); };
    a_handle_overwritten_while_it_holds breaks Uninitialised by overwritten;
}

const EMPTY: KLOCK_QUEUE_HANDLE = KLOCK_QUEUE_HANDLE {
    LockQueue: wdk_sys::KSPIN_LOCK_QUEUE { Next: ptr::null_mut(), Lock: ptr::null_mut() },
    OldIrql: 0,
};

fn take(lock: *mut u64, handle: *mut KLOCK_QUEUE_HANDLE) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeAcquireInStackQueuedSpinLock(lock, handle) };
}

fn give(handle: *mut KLOCK_QUEUE_HANDLE) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeReleaseInStackQueuedSpinLock(handle) };
}

fn try_plain(lock: *mut u64) {
    // SAFETY: the test's scenario, right or wrong.
    let _ = unsafe { KeTryToAcquireSpinLockAtDpcLevel(lock) };
}

/// A handle that lives as long as the driver.
fn new_handle() -> *mut KLOCK_QUEUE_HANDLE {
    keep(allocate(size_of::<KLOCK_QUEUE_HANDLE>())).cast()
}

/// Acquires the lock. What the handle, which stays where it is, looks like then.
fn held(lock: *mut u64) -> KLOCK_QUEUE_HANDLE {
    let handle = new_handle();
    take(lock, handle);
    // SAFETY: the handle is a live block.
    unsafe { handle.read() }
}

/// What a careless wrapper is: the handle lies in the value that is passed about.
struct Guard(KLOCK_QUEUE_HANDLE);

impl Guard {
    #[inline(never)]
    fn new(lock: *mut u64) -> Self {
        let mut guard = Self(EMPTY);
        take(lock, &raw mut guard.0);
        black_box(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give(&raw mut self.0);
    }
}

fn release_from_elsewhere(_: &Loaded) {
    let elsewhere = new_handle();
    let handle = held(new_lock());
    // SAFETY: a live block.
    unsafe { elsewhere.write(handle) };
    give(elsewhere);
}

fn zeroed(_: &Loaded) {
    let (lock, mut handle) = (new_lock(), EMPTY);
    take(lock, &raw mut handle);
    // SAFETY: what the test is about: what a kit's inline `KeInitializeSpinLock` does.
    unsafe { lock.write_volatile(0) };
    give(&raw mut handle);
}

fn zeroed_plain(_: &Loaded) {
    let lock = new_lock();
    let before = acquire(lock);
    // SAFETY: what the test is about.
    unsafe { lock.write_volatile(0) };
    release(lock, before);
}

fn garbage(_: &Loaded) {
    let lock = new_lock();
    // SAFETY: what the test is about.
    unsafe { lock.write_volatile(0xDEAD_BEE0) };
    held(lock);
}

fn plain_with_a_handle(_: &Loaded) {
    let (lock, mut handle) = (new_lock(), EMPTY);
    acquire(lock);
    handle.LockQueue.Lock = lock;
    give(&raw mut handle);
}

fn in_two_ways(_: &Loaded) {
    let (lock, mut handle) = (new_lock(), EMPTY);
    take(lock, &raw mut handle);
    give(&raw mut handle);
    acquire(lock);
}

fn freed_while_held(_: &Loaded) {
    let lock = allocate(8).cast::<u64>();
    initialise_lock(lock);
    held(lock);
    free(lock.cast(), TAG);
}

fn handle_freed(_: &Loaded) {
    let handle = allocate(size_of::<KLOCK_QUEUE_HANDLE>());
    take(new_lock(), handle.cast());
    free(handle, TAG);
}

fn overwritten(_: &Loaded) {
    let (lock, handle) = (new_lock(), new_handle());
    take(lock, handle);
    // SAFETY: what the test is about.
    unsafe { handle.write(EMPTY) };
    give(handle);
}

#[test]
fn a_lock_raises_and_returns_to_where_its_holder_was() {
    run(Wrong {
        load: |_| {
            let (outer, inner, mut first, mut second) = (new_lock(), new_lock(), EMPTY, EMPTY);
            take(outer, &raw mut first);
            assert_eq!((irql(), locks_held()), (2, 1));
            // SAFETY: at DISPATCH_LEVEL, and both live until the release.
            unsafe { KeAcquireInStackQueuedSpinLockAtDpcLevel(inner, &raw mut second) };
            assert_eq!((irql(), locks_held()), (2, 2));
            // SAFETY: it is held with this handle.
            unsafe { KeReleaseInStackQueuedSpinLockFromDpcLevel(&raw mut second) };
            assert_eq!((irql(), locks_held()), (2, 1));
            give(&raw mut first);
            assert_eq!((irql(), locks_held()), (0, 0));
        },
        ..Wrong::default()
    });
}

#[test]
fn the_word_of_a_lock_that_nobody_holds_is_zero_and_may_be_moved() {
    run(Wrong {
        load: |_| {
            let (lock, other, mut handle) = (new_lock(), keep(allocate(8)).cast::<u64>(), EMPTY);
            for _ in 0..3 {
                take(lock, &raw mut handle);
                // SAFETY: a live block.
                assert_ne!(unsafe { lock.read_volatile() }, 0);
                give(&raw mut handle);
                // SAFETY: a live block.
                assert_eq!(unsafe { lock.read_volatile() }, 0);
            }
            // SAFETY: a live block.
            unsafe { other.write(0) };
            take(other, &raw mut handle);
            give(&raw mut handle);
        },
        ..Wrong::default()
    });
}

#[test]
fn a_level_may_be_raised_before_and_lowered_after() {
    run(Wrong {
        load: |_| {
            let (lock, mut handle) = (new_lock(), EMPTY);
            let before = raise(2);
            // SAFETY: at DISPATCH_LEVEL, and both live until the release.
            unsafe { KeAcquireInStackQueuedSpinLockAtDpcLevel(lock, &raw mut handle) };
            // SAFETY: it is held with this handle.
            unsafe { KeReleaseInStackQueuedSpinLockFromDpcLevel(&raw mut handle) };
            assert_eq!((irql(), locks_held()), (2, 0));
            lower(before);
        },
        ..Wrong::default()
    });
}

/// The lock is a queue: nobody passes anybody, and nothing that its holder does is lost.
#[test]
fn a_lock_lets_one_thread_go_on_at_a_time() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    const THREADS: u32 = 4;
    const EACH: u32 = 5_000;
    for processors in [2, 4] {
        COUNT.store(0, Relaxed);
        run_on(Kernel::threads().processors(processors), Wrong::default(), |driver, _| {
            let mut place = 0;
            driver.run(|| place = new_lock().addr());
            let count = || {
                let lock = ptr::without_provenance_mut(place);
                for _ in 0..EACH {
                    let mut handle = EMPTY;
                    take(lock, &raw mut handle);
                    // Not one operation: two at a time would lose some.
                    COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
                    give(&raw mut handle);
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| driver.run(count));
                }
            });
            assert_eq!(COUNT.load(Relaxed), THREADS * EACH);
        });
    }
}
