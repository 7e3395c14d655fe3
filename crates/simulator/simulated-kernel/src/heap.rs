//! The global allocator of a test with drivers: what a driver allocates comes out of the simulated pool.
//!
//! In the kernel the drivers' allocator is `wdk-alloc`, wrapped by [`kernel::Aligned`]. The wrapper is the drivers' own here
//! too; beneath it `ExAllocatePool2` is called with the arguments that `wdk-alloc` passes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use crate::{context, pool, report::bug_check, rule::Rule, state};

/// The allocator.
pub struct Heap;

/// The pool, as `wdk-alloc` uses it: it ignores the alignment.
struct WdkAllocator;

/// A violation that was seen where there can be no panic. Reported at the next call of a routine.
static VIOLATION: AtomicU8 = AtomicU8::new(0);

/// Ends the test if the allocator has seen something.
pub fn report_violation() {
    if VIOLATION.swap(0, Relaxed) != 0 {
        bug_check(Rule::IrqlTooHigh, format_args!("the driver's allocator was used above DISPATCH_LEVEL"));
    }
}

// SAFETY: the pool gives non-overlapping blocks of at least `size` bytes, aligned to sixteen, and takes them back.
unsafe impl GlobalAlloc for WdkAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate_for_driver(layout.size())
    }

    unsafe fn dealloc(&self, address: *mut u8, _layout: Layout) {
        free_for_driver(address.addr());
    }
}

/// What the drivers' allocator gets.
fn allocate_for_driver(size: usize) -> *mut u8 {
    let state = state::current();
    state.preempt();
    if state.strikes() {
        return ptr::null_mut();
    }
    let address = pool::allocate(context::caller(), size, pool::HEAP_TAG, true);
    address.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// What the drivers' allocator gives back.
fn free_for_driver(address: usize) {
    pool::free(address, None);
}

static POOL: kernel::Aligned<WdkAllocator> = kernel::Aligned(WdkAllocator);

// SAFETY: each address goes back to the allocator it came from, which the address itself tells.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if context::in_driver() {
            if host::machine::current_irql() > host::machine::Irql::DISPATCH_LEVEL {
                VIOLATION.store(1, Relaxed);
            }
            let _inside = context::Inside::new("the driver's allocator");
            // SAFETY: the same call with the same layout.
            return unsafe { POOL.alloc(layout) };
        }
        // SAFETY: the same call with the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if pool::contains(address.addr()) {
            let _inside = context::Inside::new("the driver's allocator");
            // SAFETY: an address of the pool came from `POOL.alloc` above, with this layout (`GlobalAlloc`).
            return unsafe { POOL.dealloc(address, layout) };
        }
        // SAFETY: any other address came from the system's allocator.
        unsafe { System.dealloc(address, layout) };
    }
}
