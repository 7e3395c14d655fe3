//! The kernel's objects that live in a driver's memory, by their address.
//!
//! The structures themselves are opaque to drivers, so what is in them does not matter; what they stand for is kept here. A
//! structure whose memory is freed is forgotten, after a look whether that was allowed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU64, AtomicUsize},
    },
};

use host::machine::{Dpc, Event, Timer};

use crate::{
    context::DriverId,
    kernel::{State, lock},
    pool,
    report::bug_check,
    rule::Rule,
    stack,
    wdm::{Mutex, RemoveLock, Resource},
};

/// What a structure stands for.
#[derive(Clone)]
pub enum Object {
    Dpc(Arc<Dpc>),
    Timer(Arc<KernelTimer>),
    Event(Arc<Event>),
    Semaphore(Arc<Semaphore>),
    Mutex(Arc<Mutex>),
    Rundown(Arc<Rundown>),
    RemoveLock(Arc<RemoveLock>),
    Resource(Arc<Resource>),
    Lookaside,
}

/// A timer, and the DPC that it was set with last.
pub struct KernelTimer {
    pub timer: Timer,
    pub signalled: Arc<Event>,
    pub dpc: Arc<AtomicUsize>,
}

/// A semaphore.
pub struct Semaphore {
    pub count: AtomicI32,
    pub limit: i32,
}

/// Run-down protection: twice the number of those inside, plus one when it is shut.
pub struct Rundown {
    pub state: AtomicU64,
}

struct Entry {
    owner: DriverId,
    object: Object,
    /// It lay on the stack of a function that has returned.
    gone: bool,
}

/// All of them.
#[derive(Default)]
pub struct Tracked {
    objects: BTreeMap<usize, Entry>,
}

impl Object {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Dpc(_) => "DPC",
            Self::Timer(_) => "timer",
            Self::Event(_) => "event",
            Self::Semaphore(_) => "semaphore",
            Self::Mutex(_) => "mutex",
            Self::Rundown(_) => "run-down protection",
            Self::RemoveLock(_) => "remove lock",
            Self::Resource(_) => "resource",
            Self::Lookaside => "lookaside list",
        }
    }

    /// The rule that freeing it now would break.
    fn rule_if_freed(&self) -> Option<Rule> {
        match self {
            Self::Dpc(dpc) if dpc.is_queued() => Some(Rule::DpcFreedWhileQueued),
            Self::Timer(timer) if timer.timer.is_set() => Some(Rule::TimerFreedWhileSet),
            Self::RemoveLock(lock) if lock.is_held() => Some(Rule::RemoveLock),
            Self::Mutex(mutex) if mutex.is_held() => Some(Rule::LockHeld),
            // Both are in lists of the system until they are deleted.
            Self::Resource(_) | Self::Lookaside => Some(Rule::ReferenceLeak),
            _ => None,
        }
    }
}

impl State {
    /// A structure was initialised.
    pub fn track(&self, address: usize, owner: DriverId, object: Object) {
        check_memory(address, object.kind());
        let before = {
            let mut tracked = lock(&self.tracked);
            let broken = tracked.objects.get(&address).and_then(|entry| entry.object.rule_if_freed());
            if let Some(rule) = broken {
                drop(tracked);
                bug_check(rule, format_args!("initialised again at {address:#x}"));
            }
            tracked.objects.insert(address, Entry { owner, object, gone: false })
        };
        drop(before);
        stack::note(address);
    }

    /// Objects on a stack whose functions have returned.
    pub fn stack_objects_are_gone(&self, addresses: &[usize]) {
        let mut tracked = lock(&self.tracked);
        for address in addresses {
            if let Some(entry) = tracked.objects.get_mut(address) {
                entry.gone = true;
            }
        }
    }

    /// The event at that address, if there is one already, and not on the stack of a function that has returned.
    pub fn tracked_event(&self, address: usize) -> Option<Arc<Event>> {
        match lock(&self.tracked).objects.get(&address) {
            Some(Entry { object: Object::Event(event), gone: false, .. }) => Some(event.clone()),
            _ => None,
        }
    }

    /// What the structure at that address stands for.
    pub fn tracked(&self, address: usize, kind: &'static str) -> Object {
        check_memory(address, kind);
        let found = lock(&self.tracked).objects.get(&address).map(|entry| (entry.object.clone(), entry.gone));
        if matches!(found, Some((_, true))) {
            let words = "lay on the stack of a function that has returned";
            bug_check(Rule::StackObject, format_args!("the {kind} at {address:#x} {words}"));
        }
        let Some((object, _)) = found else {
            bug_check(Rule::Uninitialised, format_args!("the {kind} at {address:#x} was not initialised there"))
        };
        object
    }

    /// A structure is given up, and its memory may be used for anything.
    pub fn untrack(&self, address: usize) {
        let gone = lock(&self.tracked).objects.remove(&address);
        drop(gone);
    }

    /// The memory of so many bytes is free.
    pub fn forget_range(&self, address: usize, size: usize) {
        let mut gone = Vec::new();
        let mut tracked = lock(&self.tracked);
        if tracked.objects.is_empty() {
            return;
        }
        while let Some((&place, entry)) = tracked.objects.range(address..address + size).next() {
            if let Some(rule) = entry.object.rule_if_freed() {
                let kind = entry.object.kind();
                drop(tracked);
                bug_check(rule, format_args!("{kind} in a block that is freed, at offset {}", place - address));
            }
            gone.extend(tracked.objects.remove(&place));
        }
        drop(tracked);
        drop(gone);
    }

    /// A driver was unloaded: nothing in its image or elsewhere may be queued or set.
    pub fn forget_driver(&self, owner: DriverId, name: &str) {
        let mut tracked = lock(&self.tracked);
        let addresses: Vec<usize> =
            tracked.objects.iter().filter(|(_, entry)| entry.owner == owner).map(|(&address, _)| address).collect();
        let gone: Vec<Entry> = addresses.iter().filter_map(|address| tracked.objects.remove(address)).collect();
        drop(tracked);
        for entry in &gone {
            let rule = match entry.object.rule_if_freed() {
                Some(Rule::DpcFreedWhileQueued) => Rule::DpcAtUnload,
                Some(rule @ (Rule::RemoveLock | Rule::LockHeld | Rule::ReferenceLeak)) => rule,
                Some(_) => Rule::TimerAtUnload,
                None => continue,
            };
            bug_check(rule, format_args!("a {} of driver {name} is left at its unload", entry.object.kind()));
        }
        drop(gone);
    }
}

/// A structure may not be in free memory, nor in memory that can be paged out.
fn check_memory(address: usize, kind: &str) {
    if pool::is_live(address) == Some(false) {
        bug_check(Rule::UseAfterFree, format_args!("the {kind} at {address:#x} is in memory that is free"));
    }
    if crate::paged::contains(address) {
        bug_check(Rule::PagedAtDispatch, format_args!("the {kind} at {address:#x} is in pageable memory"));
    }
}
