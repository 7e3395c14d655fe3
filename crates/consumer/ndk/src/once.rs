//! A value that is set once and shared from then on.

use core::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicU8,
        Ordering::{Acquire, Relaxed, Release},
    },
};

const EMPTY: u8 = 0;
const TAKEN: u8 = 1;
const SET: u8 = 2;

/// Like `std::sync::OnceLock`, but the second caller does not wait.
///
/// # Invariants
///
/// Only the thread that moved `state` from `EMPTY` to `TAKEN` writes the value. After `SET` nobody does.
pub struct SetOnce<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: it gives `&T` to whoever shares it (`T: Sync`), and takes a `T` from any of them (`T: Send`).
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T> SetOnce<T> {
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(None) }
    }

    /// Sets the value. Drops `value` and returns false if there is one, or another thread is setting it.
    pub fn set(&self, value: T) -> bool {
        if self.state.compare_exchange(EMPTY, TAKEN, Relaxed, Relaxed).is_err() {
            return false;
        }
        // SAFETY: this thread has moved the state from `EMPTY`, so nobody else writes, and nobody reads before `SET`.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(SET, Release);
        true
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Acquire) != SET {
            return None;
        }
        // SAFETY: nobody writes from `SET` on.
        unsafe { &*self.value.get() }.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::SetOnce;

    #[test]
    fn the_first_value_stays() {
        let once = SetOnce::new();
        assert_eq!(once.get(), None);
        assert!(once.set(1));
        assert!(!once.set(2));
        assert_eq!(once.get(), Some(&1));
    }
}
