//! Queues of the kernel, at which threads wait for entries that others put in.
//!
//! How many threads may be at work for a queue at a time is not looked at: a thread waits for an entry only.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use wdk_bindings::{KPROCESSOR_MODE, LARGE_INTEGER, LIST_ENTRY, LONG, PLIST_ENTRY, ULONG};

use super::{list, timeout};
use crate::{
    context,
    routine::routine,
    state::State,
    tracked::{Kind, Object, Structure},
    waiting::{self, Wait},
};

/// `KQUEUE`: a header, as events have it, and the head of the entries.
#[repr(C)]
pub struct Queue {
    header: [u64; 3],
    entries: LIST_ENTRY,
    counts: [u32; 2],
    threads: LIST_ENTRY,
}

const _: () = assert!(size_of::<Queue>() == 64);

/// What a queue stands for, beside its bytes.
#[derive(Default)]
struct Waited {
    /// It was run down: who waits goes on without an entry.
    is_over: AtomicBool,
}

impl Structure for Waited {}

/// The head of the entries of a queue that was initialised.
fn head(state: &State, queue: *mut Queue) -> PLIST_ENTRY {
    drop(state.find(queue.expose_provenance(), Kind::Queue));
    // SAFETY: the driver's structure, of which only an address is taken.
    unsafe { &raw mut (*queue).entries }
}

fn is_empty(head: PLIST_ENTRY) -> bool {
    // SAFETY: the head of a queue that was initialised.
    ptr::eq(unsafe { (*head).Flink }, head)
}

/// How many entries a queue has.
fn count(head: PLIST_ENTRY) -> LONG {
    let mut count = 0;
    // SAFETY: the head of a queue that was initialised.
    let mut entry = unsafe { (*head).Flink };
    while entry != head {
        count += 1;
        entry = list::read(entry).Flink;
    }
    count
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeQueue(queue: *mut Queue, _threads: ULONG) {
    routine!("KeInitializeQueue", DISPATCH_LEVEL, |state| {
        state.track(queue.expose_provenance(), context::caller(), Object::new(Kind::Queue, Waited::default()));
        // SAFETY: the driver's memory for it; only an address is taken.
        let head = unsafe { &raw mut (*queue).entries };
        // SAFETY: the driver's memory for it, which nobody uses yet.
        unsafe { head.write(LIST_ENTRY { Flink: head, Blink: head }) };
    });
}

/// Puts an entry in, in front or at the end. How many there were.
fn insert(state: &State, queue: *mut Queue, entry: PLIST_ENTRY, in_front: bool) -> LONG {
    let head = head(state, queue);
    let before = count(head);
    let links = list::read(head);
    let (previous, next) = if in_front { (head, links.Flink) } else { (links.Blink, head) };
    list::put_between(entry, previous, next);
    state.dispatcher.signal_of(queue.addr());
    before
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertQueue(queue: *mut Queue, entry: PLIST_ENTRY) -> LONG {
    routine!("KeInsertQueue", DISPATCH_LEVEL, |state| {
        let before = insert(state, queue, entry, false);
        state.preempt();
        before
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertHeadQueue(queue: *mut Queue, entry: PLIST_ENTRY) -> LONG {
    routine!("KeInsertHeadQueue", DISPATCH_LEVEL, |state| {
        let before = insert(state, queue, entry, true);
        state.preempt();
        before
    })
}

/// The first entry, or a status in place of one: `STATUS_TIMEOUT`, or `STATUS_ABANDONED` of a queue that was run down.
#[unsafe(no_mangle)]
extern "C" fn KeRemoveQueue(queue: *mut Queue, _mode: KPROCESSOR_MODE, time: *mut LARGE_INTEGER) -> PLIST_ENTRY {
    const TIMEOUT: usize = 0x102;
    const ABANDONED: usize = 0x80;
    routine!("KeRemoveQueue", DISPATCH_LEVEL, |state: &Arc<State>| {
        let end = timeout::end(state, time);
        super::event::check_wait("KeRemoveQueue", end);
        let (head, waited) = (head(state, queue), state.structure::<Waited>(queue.expose_provenance(), Kind::Queue));
        let (objects, mut entry) = ([queue.addr()], ptr::null_mut());
        let found = waiting::until(state, end, Wait::of("KeRemoveQueue", &objects), || {
            // Of a queue that was run down the memory may be gone.
            if waited.is_over.load(Acquire) {
                entry = ptr::without_provenance_mut(ABANDONED);
            } else if !is_empty(head) {
                entry = list::take_first(head);
            }
            !entry.is_null()
        });
        if found { entry } else { ptr::without_provenance_mut(TIMEOUT) }
    })
}

/// The entries, which are linked to each other and to no head. The queue is over, and who waits goes on.
#[unsafe(no_mangle)]
extern "C" fn KeRundownQueue(queue: *mut Queue) -> PLIST_ENTRY {
    routine!("KeRundownQueue", DISPATCH_LEVEL, |state| {
        let (head, waited) = (head(state, queue), state.structure::<Waited>(queue.expose_provenance(), Kind::Queue));
        waited.is_over.store(true, Release);
        let first = if is_empty(head) { ptr::null_mut() } else { list::unlink_head(head) };
        state.untrack_and_remember(queue.addr(), Kind::Queue, ", and run down since");
        state.dispatcher.signal_of(queue.addr());
        first
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateQueue(queue: *mut Queue) -> LONG {
    routine!("KeReadStateQueue", DISPATCH_LEVEL, |state| count(head(state, queue)))
}
