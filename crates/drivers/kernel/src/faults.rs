//! Failures on request: only in test builds.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Fails one of this many allocations.
struct Switch {
    every: AtomicU32,
    count: AtomicU32,
}

static ALLOCATIONS: Switch = Switch::new();

/// Makes every allocation fail whose number, counted from now on, is a multiple of `every`. Zero: none fails.
pub fn fail_every_allocation(every: u32) {
    ALLOCATIONS.set(every);
}

/// Returns true if the allocation that is about to be made is one of those.
pub fn allocation_fails() -> bool {
    ALLOCATIONS.fails()
}

impl Switch {
    const fn new() -> Self {
        Self { every: AtomicU32::new(0), count: AtomicU32::new(0) }
    }

    fn set(&self, every: u32) {
        self.count.store(0, Relaxed);
        self.every.store(every, Relaxed);
    }

    fn fails(&self) -> bool {
        match self.every.load(Relaxed) {
            0 => false,
            every => self.count.fetch_add(1, Relaxed).wrapping_add(1).is_multiple_of(every),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Switch;

    #[test]
    fn every_so_many_fail_until_it_is_switched_off() {
        let switch = Switch::new();
        assert!(!switch.fails());
        switch.set(3);
        let next = || [(); 6].map(|()| switch.fails());
        assert_eq!(next(), [false, false, true, false, false, true]);
        switch.set(1);
        assert_eq!(next(), [true; 6]);
        switch.set(0);
        assert_eq!(next(), [false; 6]);
    }
}
