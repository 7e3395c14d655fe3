//! Threads beside a test, which end with it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Lets the other threads end when it is dropped, also if the one that has it fails: their scope waits for them.
#[derive(Debug)]
pub struct Done<'a>(pub &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
