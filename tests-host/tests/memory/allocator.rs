//! An allocator that counts, for the thread that asks, and that can be told to fail.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Allocations so far.
    static MADE: Cell<u64> = const { Cell::new(0) };
    /// Allocations that were not freed by this thread.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// How many more allocations succeed.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Whether another allocation may succeed.
fn admit() -> bool {
    MADE.set(MADE.get() + 1);
    match LEFT.get() {
        0 => false,
        u64::MAX => true,
        left => {
            LEFT.set(left - 1);
            true
        }
    }
}

// SAFETY: every call is passed on to the system's allocator or fails, which an allocator may.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !admit() {
            return std::ptr::null_mut();
        }
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the caller's promise about the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the caller's promise: it came from `alloc` or `realloc`, so from the system's allocator.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !admit() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise, as for `dealloc`.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// How many allocations `work` makes on this thread.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = MADE.get();
    let result = work();
    (result, MADE.get() - before)
}

/// How many allocations more than before are alive after `work`, as far as this thread is concerned.
pub fn leaked(work: impl FnOnce()) -> i64 {
    let before = LIVE.get();
    work();
    LIVE.get() - before
}

/// Lets all allocations of this thread fail after `successes` more, while `work` runs.
pub fn failing_after<T>(successes: u64, work: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(u64::MAX);
        }
    }
    let restore = Restore;
    LEFT.set(successes);
    let result = work();
    drop(restore);
    result
}
