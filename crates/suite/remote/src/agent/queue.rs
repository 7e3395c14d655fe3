//! The callbacks that have come, in their order, until the other machine fetches them.

use alloc::boxed::Box;
use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use conformance::Platform;
use fallible::{Arc, try_box};
use ndkpi::NtStatus;

use super::object::Entry;
use crate::{
    lock::{Guard, Lock},
    wire::Happened,
};

/// A callback that has come, or may come: its memory is there before the call that it ends.
pub struct Node {
    next: *mut Self,
    /// What it is.
    pub happened: Happened,
    /// Its status.
    pub status: NtStatus,
    /// What the other machine knows the object or the request by.
    pub cookie: u64,
    /// The handle of the object or the mapping that it is about, or the reason of a disconnect.
    pub value: u64,
    /// The object that it brings.
    pub object: *mut c_void,
    /// The adapter of that object.
    pub adapter: Option<Arc<Entry>>,
    /// The object's entry, which the table keeps until the node is fetched.
    pub entry: *const Entry,
    /// Where it goes.
    pub queue: *const Queue,
}

impl Node {
    /// A node for this queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(queue: *const Queue, happened: Happened, cookie: u64) -> Result<Box<Self>, NtStatus> {
        let node = Self {
            next: ptr::null_mut(),
            happened,
            status: NtStatus::SUCCESS,
            cookie,
            value: 0,
            object: ptr::null_mut(),
            adapter: None,
            entry: ptr::null(),
            queue,
        };
        Ok(try_box(node)?)
    }
}

/// The queue.
///
/// # Invariants
///
/// `newest` leads by `next` through the nodes that were put in since the last fetch, the newest first. They are owned by the queue.
pub struct Queue {
    newest: AtomicPtr<Node>,
    taken: Lock<Taken>,
    count: AtomicU64,
    lost: AtomicU32,
}

/// Nodes in their order: those that a fetch has found and not returned yet.
pub struct Taken {
    first: *mut Node,
    last: *mut Node,
    /// How many nodes were returned since the beginning.
    pub count: u64,
}

// SAFETY: the nodes belong to the queue, and what they point to is used on any thread.
unsafe impl Send for Taken {}

impl Queue {
    /// Empty.
    pub const fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            taken: Lock::new(Taken { first: ptr::null_mut(), last: ptr::null_mut(), count: 0 }),
            count: AtomicU64::new(0),
            lost: AtomicU32::new(0),
        }
    }

    /// Puts a node in. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn push(&self, node: Box<Node>) {
        let node = Box::into_raw(node);
        let mut newest = self.newest.load(Relaxed);
        loop {
            // SAFETY: the node is not in the list yet: nobody else knows it.
            unsafe { (*node).next = newest };
            match self.newest.compare_exchange_weak(newest, node, Release, Relaxed) {
                Ok(_) => break,
                Err(changed) => newest = changed,
            }
        }
        self.count.fetch_add(1, AcqRel);
    }

    /// There was no memory for a callback that nobody could reserve it for. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// How many were lost since this was asked.
    pub fn take_lost(&self) -> u32 {
        self.lost.swap(0, Relaxed)
    }

    /// How many nodes were put in since the beginning.
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Begins a fetch. One at a time.
    pub fn fetch(&self, platform: &dyn Platform) -> Guard<'_, Taken> {
        self.taken.lock(platform)
    }

    /// The next node.
    pub fn next(&self, taken: &mut Taken) -> Option<Box<Node>> {
        taken.append(self.newest.swap(ptr::null_mut(), Acquire));
        let node = taken.pop()?;
        taken.count += 1;
        Some(node)
    }

    /// Returns true if a fetch that has found nothing finds something now.
    pub fn has_news(&self) -> bool {
        !self.newest.load(Relaxed).is_null()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let newest = *self.newest.get_mut();
        let Some(mut taken) = self.taken.try_lock() else { return };
        taken.append(newest);
        while taken.pop().is_some() {}
    }
}

impl Taken {
    /// Appends nodes that lie with the newest first.
    fn append(&mut self, newest: *mut Node) {
        let (mut node, last) = (newest, newest);
        let mut first: *mut Node = ptr::null_mut();
        while !node.is_null() {
            // SAFETY: the node came out of the queue's list and is in no other.
            let next = unsafe { core::mem::replace(&mut (*node).next, first) };
            first = node;
            node = next;
        }
        if first.is_null() {
            return;
        }
        // SAFETY: the last node of the list, which this owns, if there is one.
        match unsafe { self.last.as_mut() } {
            Some(before) => before.next = first,
            None => self.first = first,
        }
        self.last = last;
    }

    fn pop(&mut self) -> Option<Box<Node>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: the first node came from a box, and leaves the list here.
        let node = unsafe { Box::from_raw(self.first) };
        self.first = node.next;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(node)
    }
}
