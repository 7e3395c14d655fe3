//! How much memory is in use, and how often it is asked for. Whoever links this crate has its allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The system's allocator, with a count of what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Allocations of the thread.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Notes an allocation of this thread.
fn made() {
    MADE.set(MADE.get() + 1);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        made();
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the same call of the system's allocator, with the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        made();
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the same call of the system's allocator, with the same layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the address came from this allocator (`GlobalAlloc`), and so from the system's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        made();
        IN_USE.fetch_add(size, Relaxed);
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the address came from this allocator (`GlobalAlloc`), and so from the system's.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Bytes in use now.
#[must_use]
pub fn in_use() -> usize {
    IN_USE.load(Relaxed)
}

/// How many allocations `work` makes on this thread, whether they are freed or not.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = MADE.get();
    work();
    MADE.get() - before
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::allocations;

    #[test]
    fn what_is_freed_again_was_an_allocation() {
        let reallocated = || {
            let mut list = black_box(Vec::<u8>::with_capacity(1));
            list.reserve_exact(100);
            black_box(list);
        };
        assert_eq!(allocations(|| drop(black_box(Box::new(7)))), 1);
        assert_eq!(allocations(|| drop(black_box(vec![0_u8; 7]))), 1, "zeroed");
        assert_eq!(allocations(reallocated), 2);
    }
}
