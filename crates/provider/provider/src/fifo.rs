//! A queue of boxes that allocates nothing.

use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// A node of a [`Fifo`], allocated before it is needed.
pub struct Node<T> {
    /// What is queued. `None` as long as the node is in no queue.
    pub work: Option<T>,
    next: *mut Self,
}

// SAFETY: a node is used through the box or the queue that owns it; `next` is only followed by that queue.
unsafe impl<T: Send> Send for Node<T> {}

impl<T> Node<T> {
    /// A node without work.
    pub const fn new() -> Self {
        Self { work: None, next: ptr::null_mut() }
    }
}

/// Boxes, first in, first out.
///
/// # Invariants
///
/// From `first` on the nodes are linked by `next` up to `last`, whose `next` is null; the queue owns all of them. `last` is
/// null if and only if `first` is.
pub struct Fifo<T> {
    first: *mut Node<T>,
    last: *mut Node<T>,
}

// SAFETY: the queue owns its nodes as boxes would.
unsafe impl<T: Send> Send for Fifo<T> {}

impl<T> Fifo<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Appends `node`.
    pub fn push(&mut self, mut node: Box<Node<T>>) {
        node.next = ptr::null_mut();
        let node = Box::into_raw(node);
        if let Some(last) = NonNull::new(self.last) {
            // SAFETY: `last` is owned by the queue (invariant), which is borrowed mutably.
            unsafe { (*last.as_ptr()).next = node };
        } else {
            self.first = node;
        }
        self.last = node;
    }

    /// Removes the first box.
    pub fn pop(&mut self) -> Option<Box<Node<T>>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: `first` came from a box and is owned by the queue (invariant), which lets go of it now.
        let node = unsafe { Box::from_raw(first.as_ptr()) };
        self.first = node.next;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(node)
    }

    /// Returns true if there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

impl<T> Drop for Fifo<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
