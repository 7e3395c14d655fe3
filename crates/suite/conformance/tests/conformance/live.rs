//! An allocator that counts what is in use by the whole program.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), SeqCst);
        // SAFETY: the same call of the system's allocator, with the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the address came from this allocator (`GlobalAlloc`), and so from the system's.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Bytes in use now.
pub fn bytes() -> usize {
    LIVE.load(SeqCst)
}
