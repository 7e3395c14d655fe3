//! Boxes and boxed slices whose allocation can fail.

use alloc::{alloc::alloc, boxed::Box, vec::Vec};
use core::{alloc::Layout, ptr::NonNull};

use crate::AllocError;

/// Moves `value` to the heap.
///
/// # Errors
///
/// [`AllocError`] when there is no memory; `value` is dropped.
pub fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    let layout = Layout::new::<T>();
    let place = if layout.size() == 0 {
        NonNull::<T>::dangling()
    } else {
        // SAFETY: the layout has a size other than zero.
        let raw = unsafe { alloc(layout) };
        NonNull::new(raw.cast::<T>()).ok_or(AllocError)?
    };
    // SAFETY: `place` is fresh memory of `T`'s layout, or dangling and aligned for a `T` of no size: valid for one write.
    unsafe { place.write(value) };
    // SAFETY: `place` holds an initialised `T`, was allocated by the global allocator with `T`'s layout (or `T` has no
    // size), and nobody else owns it.
    Ok(unsafe { Box::from_raw(place.as_ptr()) })
}

/// Makes a boxed slice of `len` elements; `element(index)` makes the one at `index`.
///
/// # Errors
///
/// [`AllocError`] when there is no memory; no element was made.
pub fn try_slice<T>(len: usize, element: impl FnMut(usize) -> T) -> Result<Box<[T]>, AllocError> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len)?;
    elements.extend((0..len).map(element));
    // The global allocator gives exactly what was asked for, so this does not move the elements.
    debug_assert!(elements.capacity() == len || size_of::<T>() == 0);
    Ok(elements.into_boxed_slice())
}
