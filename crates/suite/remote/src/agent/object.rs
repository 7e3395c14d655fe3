//! The objects of the agent: who uses them, and that a closed one is not used.

use alloc::{boxed::Box, vec::Vec};
use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use conformance::Platform;
use fallible::Arc;
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

use super::{
    memory::Memory,
    queue::{Node, Queue},
};
use crate::{
    lock::{Guard, Lock},
    wire::{Carried, Happened},
};

/// It is made, and nobody has it yet.
const CREATING: u32 = 0;
const OPEN: u32 = 1;
/// Its close has begun, or its creation has failed.
const CLOSED: u32 = 2;

/// An object, from the call that creates it to the fetch of the completion of its close.
pub struct Entry {
    kind: NDK_OBJECT_TYPE,
    state: AtomicU32,
    raw: AtomicPtr<c_void>,
    /// Calls that use it.
    users: AtomicU32,
    /// A call of its own functions runs: one at a time.
    turn: Lock<()>,
    /// What the other machine knows it by.
    cookie: AtomicU64,
    handle: AtomicU64,
    /// Its adapter, unless it is one.
    adapter: Option<Arc<Self>>,
    /// Of an adapter: its objects whose close has not completed.
    objects: AtomicU32,
    /// Of an adapter: the inline bytes of a request at most.
    inline: AtomicU32,
    /// Of a queue pair and a shared receive queue: the token of logical addresses in their protection domain.
    privileged: AtomicU32,
    /// It has callbacks of its own: memory for the next one.
    spare: AtomicPtr<Node>,
    /// Memory for the completion of its close.
    ending: AtomicPtr<Node>,
    /// What was registered, which stays pinned until the region is closed.
    memories: Lock<Vec<Arc<Memory>>>,
    queue: *const Queue,
    /// The close has completed.
    ended: AtomicBool,
}

// SAFETY: the pointers are to the provider's object, which any thread may use, and to the agent's queue, which outlives it.
unsafe impl Send for Entry {}
// SAFETY: as for `Send`.
unsafe impl Sync for Entry {}

impl Entry {
    /// An object that is yet to be made.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        kind: NDK_OBJECT_TYPE,
        cookie: u64,
        adapter: Option<&Arc<Self>>,
        queue: *const Queue,
    ) -> Result<Arc<Self>, NtStatus> {
        let entry = Self {
            kind,
            state: AtomicU32::new(CREATING),
            raw: AtomicPtr::new(ptr::null_mut()),
            users: AtomicU32::new(0),
            turn: Lock::new(()),
            cookie: AtomicU64::new(cookie),
            handle: AtomicU64::new(0),
            adapter: adapter.cloned(),
            objects: AtomicU32::new(0),
            inline: AtomicU32::new(0),
            privileged: AtomicU32::new(0),
            spare: AtomicPtr::new(ptr::null_mut()),
            ending: AtomicPtr::new(ptr::null_mut()),
            memories: Lock::new(Vec::new()),
            queue,
            ended: AtomicBool::new(false),
        };
        if let Some(adapter) = adapter {
            adapter.objects.fetch_add(1, AcqRel);
        }
        entry.ending.store(Box::into_raw(Node::try_new(queue, Happened::Closed, cookie)?), Relaxed);
        Ok(Arc::try_new(entry)?)
    }

    /// What it is.
    pub const fn kind(&self) -> NDK_OBJECT_TYPE {
        self.kind
    }

    /// What the other machine knows it by.
    pub const fn cookie(&self) -> &AtomicU64 {
        &self.cookie
    }

    /// Its number in the table.
    pub fn handle(&self) -> u64 {
        self.handle.load(Acquire)
    }

    /// Sets its number in the table.
    pub fn set_handle(&self, handle: u64) {
        self.handle.store(handle, Release);
    }

    /// Its adapter.
    pub const fn adapter(&self) -> Option<&Arc<Self>> {
        self.adapter.as_ref()
    }

    /// Of an adapter: its objects whose close has not completed.
    pub fn objects(&self) -> u32 {
        self.objects.load(Acquire)
    }

    /// The inline bytes of a request of the adapter at most.
    pub fn inline(&self) -> &AtomicU32 {
        self.adapter.as_ref().map_or(&self.inline, |adapter| &adapter.inline)
    }

    /// The token of logical addresses.
    pub const fn privileged(&self) -> &AtomicU32 {
        &self.privileged
    }

    /// Keeps what is about to be registered.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn keep(&self, memory: &Arc<Memory>, platform: &dyn Platform) -> Result<(), Carried> {
        let mut kept = self.memories.lock(platform);
        if !kept.iter().any(|known| Arc::ptr_eq(known, memory)) {
            kept.try_reserve(1).map_err(|_| Carried::NoMemory)?;
            kept.push(memory.clone());
        }
        Ok(())
    }

    /// Where its callbacks go.
    pub const fn queue(&self) -> *const Queue {
        self.queue
    }

    /// It is made. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn open(&self, raw: *mut c_void) {
        self.raw.store(raw, Release);
        self.state.store(OPEN, Release);
    }

    /// It has ended: its creation has failed, or its close has completed. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn end(&self) {
        self.state.store(CLOSED, Release);
        if !self.ended.swap(true, AcqRel)
            && let Some(adapter) = &self.adapter
        {
            adapter.objects.fetch_sub(1, AcqRel);
        }
    }

    /// Returns true if it can be closed.
    pub fn is_open(&self) -> bool {
        self.state.load(Acquire) == OPEN
    }

    /// Makes sure that there is memory for the next callback of its own.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn have_spare(&self) -> Result<(), Carried> {
        if self.spare.load(Acquire).is_null() {
            let node = Node::try_new(self.queue, Happened::Notified, 0).map_err(|_| Carried::NoMemory)?;
            let before = self.spare.swap(Box::into_raw(node), AcqRel);
            release(before);
        }
        Ok(())
    }

    /// Memory for a callback of its own. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn take_spare(&self, happened: Happened) -> Option<Box<Node>> {
        let spare = self.spare.swap(ptr::null_mut(), AcqRel);
        let mut node = if spare.is_null() {
            Node::try_new(self.queue, happened, 0).ok()?
        } else {
            // SAFETY: the node came from a box, and whoever takes it out of the place owns it.
            unsafe { Box::from_raw(spare) }
        };
        node.happened = happened;
        node.cookie = self.cookie.load(Acquire);
        Some(node)
    }

    /// Memory for the completion of the close, once. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn take_ending(&self) -> Option<Box<Node>> {
        let ending = self.ending.swap(ptr::null_mut(), AcqRel);
        if ending.is_null() {
            return None;
        }
        // SAFETY: as in `take_spare`.
        let mut node = unsafe { Box::from_raw(ending) };
        node.value = self.handle();
        node.cookie = self.cookie.load(Acquire);
        Some(node)
    }
}

fn release(node: *mut Node) {
    if !node.is_null() {
        // SAFETY: the node came from a box, and was taken out of the only place that knew it.
        drop(unsafe { Box::from_raw(node) });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end();
        release(*self.spare.get_mut());
        release(*self.ending.get_mut());
    }
}

/// A call that uses an open object: it is not closed until this is dropped.
pub struct Used(Arc<Entry>);

impl Used {
    /// Begins to use an object.
    ///
    /// # Errors
    ///
    /// It is not open.
    pub fn begin(entry: Arc<Entry>) -> Result<Self, Carried> {
        entry.users.fetch_add(1, AcqRel);
        let used = Self(entry);
        if used.0.is_open() { Ok(used) } else { Err(Carried::Stale) }
    }

    /// The object.
    pub const fn entry(&self) -> &Arc<Entry> {
        &self.0
    }

    /// The provider's object.
    pub fn raw<T>(&self) -> *mut T {
        self.0.raw.load(Acquire).cast()
    }

    /// Waits until no other call of the object's own functions runs.
    ///
    /// # Errors
    ///
    /// It was closed meanwhile.
    pub fn turn(&self, platform: &dyn Platform) -> Result<Guard<'_, ()>, Carried> {
        let turn = self.0.turn.lock(platform);
        if self.0.is_open() { Ok(turn) } else { Err(Carried::Stale) }
    }

    /// Lets no call begin any more, and waits for those that run.
    ///
    /// # Errors
    ///
    /// Somebody else closes it, or a call does not return: then it is open again.
    pub fn shut(&self, platform: &dyn Platform) -> Result<(), Carried> {
        self.0.state.compare_exchange(OPEN, CLOSED, AcqRel, Relaxed).map_err(|_| Carried::Stale)?;
        if platform.wait(platform.patience(), &|| self.0.users.load(Acquire) == 1) {
            return Ok(());
        }
        self.0.state.store(OPEN, Release);
        Err(Carried::Stuck)
    }

    /// What [`Used::shut`] was for does not come about.
    pub fn open_again(&self) {
        self.0.state.store(OPEN, Release);
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, AcqRel);
    }
}
