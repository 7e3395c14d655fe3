//! What the tests of one program share with their drivers, while a kernel runs and no longer.

use std::{cell::Cell, ops::Deref};

use crate::running;

thread_local! {
    /// Whether the thread has the kernel that runs.
    static HAS_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// The current thread has the kernel from here on.
pub fn enter() {
    HAS_KERNEL.set(true);
}

/// The current thread's kernel ends.
pub fn leave() {
    HAS_KERNEL.set(false);
}

/// A static that several tests of a program share with their drivers' callbacks.
///
/// One kernel runs at a time in a process, so tests that run side by side may use the same static: each while it has the kernel.
/// Before its kernel starts and after it has ended a test would see, or overwrite, what belongs to another one. That goes wrong once in
/// some thousand runs, so it is refused in every run.
///
/// # Panics
///
/// Each use panics on a thread that neither has the [`Kernel`](crate::Kernel) nor runs a driver.
pub struct DuringRun<T>(T);

impl<T> DuringRun<T> {
    /// For a static.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for DuringRun<T> {
    type Target = T;

    fn deref(&self) -> &T {
        assert!(
            HAS_KERNEL.get() || running::in_driver(),
            "a test uses what it shares with its driver while it has no kernel: another test may have it"
        );
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::catch_unwind,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    use super::DuringRun;
    use crate::Kernel;

    static SHARED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

    #[test]
    fn what_tests_share_is_theirs_while_their_kernel_runs() {
        let is_refused = || catch_unwind(|| SHARED.load(Relaxed)).is_err();
        assert!(is_refused(), "before");
        let kernel = Kernel::seeded(1).start();
        SHARED.store(1, Relaxed);
        assert_eq!(SHARED.load(Relaxed), 1);
        assert!(std::thread::spawn(is_refused).join().expect("it ends"), "another thread");
        drop(kernel);
        assert!(is_refused(), "after");
    }
}
