//! The drivers' heap.

use core::alloc::{GlobalAlloc, Layout};

/// The alignment of every allocation of the pool on 64-bit Windows.
const POOL_ALIGNMENT: usize = 16;

/// An allocator that keeps alignments above the pool's, on top of one that does not.
///
/// `wdk-alloc` ignores the alignment of a layout, and the engine keeps data of different processors on different cache
/// lines. A layout with more alignment than the pool's gets room for the difference; the pool's own address is kept in the
/// eight bytes before the aligned one.
pub struct Aligned<A>(pub A);

// SAFETY: a layout of at most the pool's alignment is passed on as it is. For others, `alloc` returns an address inside of a
// block of the inner allocator, followed by at least `size` bytes of that block and preceded by the block's address, which
// `dealloc` passes back with the block's layout.
#[expect(clippy::cast_ptr_alignment, reason = "an address aligned to more than 16 bytes")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Aligned<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(feature = "faults")]
        if crate::faults::allocation_fails() {
            return core::ptr::null_mut();
        }
        if layout.align() <= POOL_ALIGNMENT {
            // SAFETY: the layout is not of zero bytes, as `GlobalAlloc` asks of who calls.
            return unsafe { self.0.alloc(layout) };
        }
        let Some(block_layout) = block_layout(layout) else {
            return core::ptr::null_mut();
        };
        // SAFETY: the block has more bytes than the alignment, so not zero.
        let block = unsafe { self.0.alloc(block_layout) };
        if block.is_null() {
            return block;
        }
        // A multiple of the pool's alignment and not zero, so there is room for an address in front.
        let skipped = layout.align() - block.addr() % layout.align();
        // SAFETY: `skipped` is at most the alignment, by which the block is larger than the layout.
        let aligned = unsafe { block.add(skipped) };
        // SAFETY: at least eight bytes of the block are in front of `aligned`.
        let place = unsafe { aligned.cast::<*mut u8>().sub(1) };
        // SAFETY: those bytes belong to this allocation, and `place` is aligned because `aligned` is.
        unsafe { place.write(block) };
        aligned
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if layout.align() <= POOL_ALIGNMENT {
            // SAFETY: `alloc` passed this layout on, and returned this address (`GlobalAlloc`).
            return unsafe { self.0.dealloc(address, layout) };
        }
        let Some(block_layout) = block_layout(layout) else {
            return;
        };
        // SAFETY: `address` came from `alloc`, which kept the block's address in the eight bytes before it. Nobody else writes
        // there.
        let block = unsafe { address.cast::<*mut u8>().sub(1).read() };
        // SAFETY: the block came from the inner allocator with this layout.
        unsafe { self.0.dealloc(block, block_layout) };
    }
}

/// The layout to ask the pool for when `layout` wants more alignment than the pool's.
const fn block_layout(layout: Layout) -> Option<Layout> {
    let Some(size) = layout.size().checked_add(layout.align()) else {
        return None;
    };
    match Layout::from_size_align(size, POOL_ALIGNMENT) {
        Ok(block) => Some(block),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::{
        alloc::{GlobalAlloc, Layout},
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };
    use std::alloc::System;

    use super::{Aligned, POOL_ALIGNMENT};

    /// Returns addresses that are aligned to sixteen bytes and never to more.
    struct Pool {
        live: AtomicUsize,
    }

    // SAFETY: a block of the system's allocator with 32 bytes more than asked for, of which the second half begins sixteen
    // bytes after a multiple of 4096.
    unsafe impl GlobalAlloc for Pool {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            assert!(layout.align() <= POOL_ALIGNMENT);
            self.live.fetch_add(layout.size(), Relaxed);
            let outer = Layout::from_size_align(layout.size() + 32, 4096).expect("a small layout");
            // SAFETY: the size is not zero.
            let block = unsafe { System.alloc(outer) };
            // SAFETY: the block has 32 bytes more than the caller asked for.
            unsafe { block.add(POOL_ALIGNMENT) }
        }

        unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
            self.live.fetch_sub(layout.size(), Relaxed);
            let outer = Layout::from_size_align(layout.size() + 32, 4096).expect("a small layout");
            // SAFETY: `alloc` moved the block's address by as much.
            let block = unsafe { address.sub(POOL_ALIGNMENT) };
            // SAFETY: the block and its layout are those of `alloc`.
            unsafe { System.dealloc(block, outer) };
        }
    }

    #[test]
    fn alignments_above_the_pools_are_kept_and_nothing_leaks() {
        let pool = Aligned(Pool { live: AtomicUsize::new(0) });
        for align in [1, 8, 16, 32, 64, 128, 4096] {
            for size in [1, 15, 64, 1000] {
                let layout = Layout::from_size_align(size, align).expect("a small layout");
                // SAFETY: the size is not zero.
                let address = unsafe { pool.alloc(layout) };
                assert_eq!(address.addr() % align, 0, "{layout:?}");
                // SAFETY: the allocation has that many bytes.
                unsafe { address.write_bytes(0xAB, size) };
                // SAFETY: `address` came from `alloc` with this layout.
                unsafe { pool.dealloc(address, layout) };
            }
        }
        assert_eq!(pool.0.live.load(Relaxed), 0);
    }

    #[test]
    fn a_size_that_overflows_is_refused() {
        let pool = Aligned(Pool { live: AtomicUsize::new(0) });
        let layout = Layout::from_size_align(isize::MAX as usize - 63, 64).expect("a valid layout");
        // SAFETY: the size is not zero.
        assert!(unsafe { pool.alloc(layout) }.is_null());
    }
}
