//! Which mistake is made: one at a time, in the whole program.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The number of the mistake; 0 is none.
static MADE: AtomicUsize = AtomicUsize::new(0);
static REMEMBERED: AtomicBool = AtomicBool::new(false);

/// Does `work` while the mistake of this name is made. What the mistake has begun is over when `work` returns.
pub fn making<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let number = broken::mistakes::number(name);
    REMEMBERED.store(false, Relaxed);
    let before = MADE.swap(number, Relaxed);
    assert_eq!(before, 0, "one mistake at a time");
    let result = work();
    MADE.store(0, Relaxed);
    result
}

/// Returns true if this mistake is made.
#[inline]
#[must_use]
pub fn on(number: usize) -> bool {
    MADE.load(Relaxed) == number
}

/// For a mistake that shows later: there is a reason to make it.
pub fn remember() {
    REMEMBERED.store(true, Relaxed);
}

/// For a mistake that shows later: returns true if there was a reason to make it, and forgets the reason.
pub fn recall() -> bool {
    REMEMBERED.swap(false, Relaxed)
}
