//! What was allocated is given back. One test in a program of its own: it counts every allocation.

#![cfg(not(loom))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use fallible::{Arc, try_box, try_slice};

/// The system's allocator, and how many bytes of it are in use.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the size of `layout` is not zero (the trait's `# Safety`).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `place` came from `alloc` with this layout, and so from the system (the trait's `# Safety`).
        unsafe { System.dealloc(place, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that `work` leaves in use.
fn left_by(work: impl FnOnce()) -> usize {
    let before = BYTES.load(Relaxed);
    work();
    BYTES.load(Relaxed) - before
}

fn main() {
    let value = [0_u64; 500];
    let held = left_by(|| std::mem::forget(Arc::try_new(value)));
    assert!(held >= size_of_val(&value), "{held} bytes: the count counts");
    let works: [(&str, fn()); 4] = [
        ("the last reference", || {
            let first = Arc::try_new([0_u64; 500]).expect("memory");
            let second = first.clone();
            drop(first);
            assert_eq!(Arc::references_now(&second), 1);
        }),
        ("a released value", || drop(Arc::try_new([0_u64; 500]).expect("memory").release())),
        ("a box", || drop(try_box([0_u64; 500]))),
        ("a slice", || drop(try_slice(500, |index| index))),
    ];
    for (what, work) in works {
        assert_eq!(left_by(work), 0, "{what} leaves memory in use");
    }
    println!("{} kinds of values give their memory back", works.len());
}
