//! Who waits for the close of an object.

use alloc::boxed::Box;
use core::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Relaxed, Release},
    },
};

use fallible::{Arc, try_box};
use ndkpi::NtStatus;

use crate::request::State;

/// Requests that complete when this is dropped: each one that has given a reference to an object back, and waits.
///
/// # Invariants
///
/// `first` is null or came from `Box::into_raw`, and so is `next` of each waiter. They belong to this.
pub struct Waiters {
    first: AtomicPtr<Waiter>,
}

struct Waiter {
    request: Arc<State>,
    next: *mut Self,
}

impl Waiters {
    pub const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn add(&self, request: Arc<State>) -> Result<(), NtStatus> {
        let waiter = Box::into_raw(try_box(Waiter { request, next: ptr::null_mut() })?);
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: it was just made from a box, and nobody has seen it.
            unsafe { (*waiter).next = first };
            match self.first.compare_exchange_weak(first, waiter, Release, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => first = now,
            }
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let mut next = *self.first.get_mut();
        while !next.is_null() {
            // SAFETY: it came from a box (invariant), and is taken back once: nobody else has the list any more.
            let waiter = unsafe { Box::from_raw(next) };
            waiter.request.closed();
            next = waiter.next;
        }
    }
}
