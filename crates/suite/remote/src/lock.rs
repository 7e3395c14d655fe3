//! A lock for `PASSIVE_LEVEL`, whose waiters wait as their platform does.

use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use conformance::Platform;

/// Microseconds between two looks at a lock that somebody has.
const PAUSE: u64 = 50;

/// A value that one thread at a time may use.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time, that which has set `held`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A value that nobody uses.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody uses the value. At `PASSIVE_LEVEL`.
    pub fn lock(&self, platform: &dyn Platform) -> Guard<'_, T> {
        // Asleep in between, not by `Platform::wait`: what a case waits for has deep stacks, and whoever takes a lock may be deep already.
        while self.held.swap(true, Acquire) {
            platform.sleep(PAUSE);
        }
        Guard(self)
    }

    /// The value, if nobody uses it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.held.swap(true, Acquire) { None } else { Some(Guard(self)) }
    }
}

/// The right to use the value.
pub struct Guard<'l, T>(&'l Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard has set `held`, so nobody else uses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has set `held`, so nobody else uses the value.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Release);
    }
}
