//! Reference counting with an allocation that can fail and a last release that the caller sees.

use alloc::alloc::{alloc, dealloc};
#[cfg(not(loom))]
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use core::{
    alloc::Layout,
    fmt,
    marker::PhantomData,
    mem::{ManuallyDrop, offset_of},
    ops::{Deref, DerefMut},
    ptr::NonNull,
};
#[cfg(loom)]
use loom::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::AllocError;

/// More references than this are a leak in a loop, not a use.
const MAX_REFERENCES: usize = isize::MAX as usize;

#[repr(C)]
struct Inner<T> {
    references: AtomicUsize,
    value: T,
}

/// A counted reference to a value on the heap, like `alloc::sync::Arc` without weak references.
///
/// # Invariants
///
/// `inner` points to a live `Inner<T>` that was allocated by the global allocator with its own layout, and this reference
/// is counted in `references`.
///
/// # Guarantees
///
/// The value does not move before the last reference is dropped.
pub struct Arc<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: an `Arc` gives `&T` to any thread that has it (`T: Sync`) and the last one drops the `T` there (`T: Send`).
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as for `Send`: `&Arc<T>` can be cloned, so it gives no less and no more than `Arc<T>` itself.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// Moves `value` to the heap and counts one reference.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        // SAFETY: an `Inner` holds a counter, so its size is not zero.
        let raw = unsafe { alloc(Layout::new::<Inner<T>>()) };
        let inner = NonNull::new(raw.cast::<Inner<T>>()).ok_or(AllocError)?;
        // Field by field, so that a large value does not pass through the stack once more.
        // SAFETY: `inner` is memory of the layout of `Inner<T>`, so the field lies inside of it.
        let (references, place) = unsafe { (&raw mut (*inner.as_ptr()).references, &raw mut (*inner.as_ptr()).value) };
        // SAFETY: the memory is fresh, aligned, and nobody else's.
        unsafe { references.write(AtomicUsize::new(1)) };
        // SAFETY: the memory is fresh, aligned, and nobody else's; now both fields have a value.
        unsafe { place.write(value) };
        Ok(Self { inner, owns: PhantomData })
    }

    /// Returns true if both refer to the same value.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.inner == other.inner
    }

    /// Returns the value's address, for [`Arc::from_raw`]. The reference stays counted.
    #[must_use]
    pub fn into_raw(this: Self) -> *const T {
        Self::as_ptr(&ManuallyDrop::new(this))
    }

    /// Returns the value's address. It stays the same, and valid as long as a reference is counted.
    #[must_use]
    pub const fn as_ptr(this: &Self) -> *const T {
        // SAFETY: `inner` is live (invariant), so the address of its field lies inside the same allocation.
        unsafe { &raw const (*this.inner.as_ptr()).value }
    }

    /// Takes back the reference that [`Arc::into_raw`] left counted.
    ///
    /// # Safety
    ///
    /// `value` came from `into_raw` of an `Arc` of the same type, and that reference is taken back only once.
    #[must_use]
    pub const unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: `value` is the field of an `Inner<T>` (`# Safety`), which begins `offset_of` bytes before it.
        let inner = unsafe { value.byte_sub(offset_of!(Inner<T>, value)) };
        // SAFETY: a field of a live allocation is not at address zero, nor is the allocation.
        let inner = unsafe { NonNull::new_unchecked(inner.cast_mut().cast::<Inner<T>>()) };
        Self { inner, owns: PhantomData }
    }

    /// Gives this reference back. Returns the value if it was the last reference.
    ///
    /// Of all releases of one value's references exactly one returns the value.
    #[must_use = "the value is dropped with the result"]
    pub fn release(self) -> Option<UniqueArc<T>> {
        let this = ManuallyDrop::new(self);
        if this.references().fetch_sub(1, Release) != 1 {
            return None;
        }
        // What the others did before they gave up their references happens before what the last one does. A load, not a fence:
        // ThreadSanitizer does not know fences.
        let last = this.references().load(Acquire);
        debug_assert_eq!(last, 0, "the last reference has gone, and nobody can make another");
        Some(UniqueArc { inner: this.inner, owns: PhantomData })
    }

    /// Counts the references. Another processor may change the count at any time: for tests and diagnosis only.
    #[must_use]
    pub fn references_now(this: &Self) -> usize {
        this.references().load(Relaxed)
    }

    /// Returns true if this is the only reference. What was done through the others happened before.
    #[must_use]
    pub fn is_sole(this: &Self) -> bool {
        this.references().load(Acquire) == 1
    }

    const fn references(&self) -> &AtomicUsize {
        // SAFETY: `inner` is live (invariant) and its counter is only ever used through shared references.
        &unsafe { self.inner.as_ref() }.references
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        let before = self.references().fetch_add(1, Relaxed);
        assert!(before <= MAX_REFERENCES, "references leak");
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        drop(Self { inner: self.inner, owns: PhantomData }.release());
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `inner` is live (invariant) and gives out shared references to the value only.
        &unsafe { self.inner.as_ref() }.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The only reference to a value, from [`Arc::release`]. Dropping it drops the value and frees its memory.
///
/// # Invariants
///
/// `inner` points to a live `Inner<T>` to which no other reference exists.
pub struct UniqueArc<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: a `UniqueArc` owns its `T` as a box would.
unsafe impl<T: Send> Send for UniqueArc<T> {}
// SAFETY: a `&UniqueArc` gives nothing but `&T`.
unsafe impl<T: Sync> Sync for UniqueArc<T> {}

impl<T> UniqueArc<T> {
    /// Returns the value's address, for [`UniqueArc::from_raw`]. The value stays where it is.
    ///
    /// ```
    /// use fallible::{Arc, UniqueArc};
    ///
    /// let only = Arc::try_new([1, 2])?.release().expect("the only reference");
    /// let address = UniqueArc::into_raw(only);
    /// // SAFETY: the address came from `into_raw`, and is used once.
    /// let only = unsafe { UniqueArc::from_raw(address) };
    /// assert_eq!(*only, [1, 2]);
    /// # Ok::<(), fallible::AllocError>(())
    /// ```
    #[must_use]
    pub fn into_raw(this: Self) -> *mut T {
        let this = ManuallyDrop::new(this);
        // SAFETY: `inner` is live (invariant), so the address of its field lies inside the same allocation.
        unsafe { &raw mut (*this.inner.as_ptr()).value }
    }

    /// Takes back the value of [`UniqueArc::into_raw`].
    ///
    /// # Safety
    ///
    /// `value` came from `into_raw` of a `UniqueArc` of the same type, and is taken back only once.
    #[must_use]
    pub const unsafe fn from_raw(value: *mut T) -> Self {
        // SAFETY: `value` is the field of an `Inner<T>` (`# Safety`), which begins `offset_of` bytes before it.
        let inner = unsafe { value.byte_sub(offset_of!(Inner<T>, value)) };
        // SAFETY: a field of a live allocation is not at address zero, nor is the allocation.
        let inner = unsafe { NonNull::new_unchecked(inner.cast::<Inner<T>>()) };
        Self { inner, owns: PhantomData }
    }
}

impl<T> Deref for UniqueArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `inner` is live (invariant), and the borrow of `self` keeps mutable references away.
        let inner = unsafe { self.inner.as_ref() };
        &inner.value
    }
}

impl<T> DerefMut for UniqueArc<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `inner` is live and no other reference to it exists (invariant).
        let inner = unsafe { self.inner.as_mut() };
        &mut inner.value
    }
}

impl<T> Drop for UniqueArc<T> {
    // Most references that are dropped are not the last one: their code is a decrement and a branch. And where a value ends is one
    // function of its type, by which `cargo xtask stack-depth` can tell which values end inside of which.
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: `inner` is live, nobody else refers to it (invariant), and it is not used again after this.
        unsafe { self.inner.drop_in_place() };
        // SAFETY: the memory was allocated with this layout by the same allocator (invariant of `Arc`).
        unsafe { dealloc(self.inner.as_ptr().cast::<u8>(), Layout::new::<Inner<T>>()) };
    }
}
