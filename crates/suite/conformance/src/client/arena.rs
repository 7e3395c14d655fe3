//! Values that live as long as a session: what callbacks point to must outlive every callback, also a wrong one.

use alloc::boxed::Box;
use core::{
    mem::needs_drop,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use fallible::try_box;
use ndkpi::NtStatus;

/// Keeps values at fixed addresses until it is dropped. Any number of threads may add values, at any `IRQL <=
/// DISPATCH_LEVEL`.
///
/// # Invariants
///
/// `newest` leads through all slots by their `older`. A slot is owned by the arena and is not changed once it is in the list.
pub struct Arena {
    newest: AtomicPtr<Slot>,
}

/// The beginning of a kept value: how to find the next one, and how to give the memory back.
struct Slot {
    older: *mut Self,
    free: unsafe fn(*mut Self),
}

#[repr(C)]
struct Kept<T> {
    slot: Slot,
    value: T,
}

impl Arena {
    /// Without values.
    pub const fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Keeps a value that needs no clean-up, so that it may refer to others that are kept.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn keep<T: Send + Sync>(&self, value: T) -> Result<&T, NtStatus> {
        const { assert!(!needs_drop::<T>(), "a kept value must not need a clean-up") };
        self.insert(value)
    }

    /// Keeps a value and drops it at the end.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn own<T: Send + Sync + 'static>(&self, value: T) -> Result<&T, NtStatus> {
        self.insert(value)
    }

    fn insert<T: Send + Sync>(&self, value: T) -> Result<&T, NtStatus> {
        let slot = Slot { older: ptr::null_mut(), free: free::<T> };
        let kept = try_box(Kept { slot, value }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let kept = Box::into_raw(kept);
        let slot: *mut Slot = kept.cast();
        let mut newest = self.newest.load(Relaxed);
        loop {
            // SAFETY: the slot is not in the list yet: nobody else knows it.
            unsafe { (*slot).older = newest };
            match self.newest.compare_exchange_weak(newest, slot, Release, Relaxed) {
                Ok(_) => break,
                Err(changed) => newest = changed,
            }
        }
        // SAFETY: the value stays where it is until the arena is dropped, and is only shared from now on.
        Ok(unsafe { &(*kept).value })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut slot = self.newest.load(Acquire);
        while !slot.is_null() {
            // SAFETY: the slot is in the list, so it is live until it is freed below.
            let (older, free) = unsafe { ((*slot).older, (*slot).free) };
            // SAFETY: `free` is that of the slot's type; the slot is freed once, for the list is walked once.
            unsafe { free(slot) };
            slot = older;
        }
    }
}

/// Drops a `Kept<T>`.
///
/// # Safety
///
/// `slot` begins a `Kept<T>` that came from a box and is not used any more.
unsafe fn free<T>(slot: *mut Slot) {
    // SAFETY: `slot` begins a `Kept<T>` that came from a box, which nobody uses any more (`# Safety`).
    drop(unsafe { Box::from_raw(slot.cast::<Kept<T>>()) });
}

/// A reference that is set later, once: for what callbacks need that are made before it.
pub struct Later<'s, T>(AtomicPtr<T>, core::marker::PhantomData<&'s T>);

// SAFETY: it gives out `&T` only.
unsafe impl<T: Sync> Send for Later<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Later<'_, T> {}

impl<'s, T> Later<'s, T> {
    /// Not set yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), core::marker::PhantomData)
    }

    /// Sets it. `false` if it was set before; it stays as it was then.
    pub fn set(&self, value: &'s T) -> bool {
        let value = ptr::from_ref(value).cast_mut();
        self.0.compare_exchange(ptr::null_mut(), value, Release, Relaxed).is_ok()
    }

    /// Takes the reference out.
    pub fn take(&self) -> Option<&'s T> {
        // SAFETY: the pointer is null or came from a `&'s T`.
        unsafe { self.0.swap(ptr::null_mut(), AcqRel).as_ref() }
    }

    /// The reference, if it is set.
    #[must_use]
    pub fn get(&self) -> Option<&'s T> {
        // SAFETY: the pointer is null or came from a `&'s T`.
        unsafe { self.0.load(Acquire).as_ref() }
    }
}

impl<T> Default for Later<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::{Arena, Later};

    #[test]
    fn kept_values_stay_and_owned_ones_are_dropped_with_the_arena() {
        static DROPPED: AtomicU32 = AtomicU32::new(0);
        struct Bell;
        impl Drop for Bell {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Relaxed);
            }
        }
        let arena = Arena::new();
        let first = arena.keep(7_u64).expect("memory");
        let refers = arena.keep(first).expect("memory");
        arena.own(Bell).expect("memory");
        for number in 0..100_u64 {
            arena.keep(number).expect("memory");
        }
        assert_eq!((**refers, DROPPED.load(Relaxed)), (7, 0));
        drop(arena);
        assert_eq!(DROPPED.load(Relaxed), 1);
    }

    #[test]
    fn a_later_reference_is_set_once() {
        let later = Later::new();
        assert_eq!(later.get(), None);
        assert!(later.set(&1));
        assert!(!later.set(&2));
        assert_eq!(later.get(), Some(&1));
    }
}
