//! A global allocator that counts what each thread does, and can fail.
//!
//! A test target that uses it says so:
//!
//! ```
//! use testing::allocation::Counting;
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(testing::allocation::count(|| drop(Box::new(7))), 1);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// The allocator of the system, with an eye on it.
pub struct Counting;

thread_local! {
    /// Allocations of the thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread allocated less those that it freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// How many allocations of the thread succeed before one fails; none fails if there is no number.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Notes an allocation. `false` if it has to fail.
fn begin() -> bool {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    match LEFT.get() {
        None => true,
        Some(0) => {
            LEFT.set(None);
            false
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            true
        }
    }
}

fn add(size: usize) {
    BYTES.set(BYTES.get() + i64::try_from(size).unwrap_or(i64::MAX));
}

fn subtract(size: usize) {
    BYTES.set(BYTES.get() - i64::try_from(size).unwrap_or(i64::MAX));
}

// SAFETY: everything is passed on to the system's allocator, or a null pointer is returned, which means failure.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !begin() {
            return ptr::null_mut();
        }
        add(layout.size());
        // SAFETY: the size of `layout` is not zero (the trait's `# Safety`).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: `place` came from `alloc` with this layout, and so from the system (the trait's `# Safety`).
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !begin() {
            return ptr::null_mut();
        }
        add(size);
        subtract(layout.size());
        // SAFETY: `place` came from `alloc` with this layout, and `size` is not zero (the trait's `# Safety`).
        unsafe { System.realloc(place, layout, size) }
    }
}

/// How many allocations `work` makes on this thread.
pub fn count(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// How many bytes more are allocated on this thread after `work` than before.
pub fn growth(work: impl FnOnce()) -> i64 {
    let before = BYTES.get();
    work();
    BYTES.get() - before
}

/// Runs `work` and fails the allocation on this thread that follows `nth` others. Its result, and whether there were so many.
///
/// An allocation that nobody expects to fail ends the process then, as it would in a kernel.
pub fn fail_nth<U>(nth: u32, work: impl FnOnce() -> U) -> (U, bool) {
    LEFT.set(Some(nth));
    let result = work();
    let failed = LEFT.replace(None).is_none();
    (result, failed)
}
