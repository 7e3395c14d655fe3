//! Device queues (`KDEVICE_QUEUE`): what waits for a device, while it is busy with something else.
//!
//! The queue itself is kept here. The heads of lists in the driver's structures, by which Windows links the entries, point to themselves.

use std::{
    collections::BTreeMap,
    ops::Range,
    ptr,
    sync::{Arc, Mutex},
};

use wdk_bindings::{BOOLEAN, KDEVICE_QUEUE, KDEVICE_QUEUE_ENTRY, LIST_ENTRY, ULONG, USHORT};

use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State, Watch, lock},
    tracked::{Kind, Object, Structure},
    wdm::lock::at_dispatch,
};

/// `DeviceQueueObject`.
const TYPE: i16 = 20;

/// What a structure of a driver's stands for.
#[derive(Default)]
struct Queue(Mutex<Waiting>);

/// The state of a queue.
#[derive(Default)]
struct Waiting {
    busy: bool,
    /// The addresses of the entries, with their keys.
    entries: Vec<(usize, ULONG)>,
}

impl Structure for Queue {
    fn rule_if_freed(&self) -> Option<Rule> {
        (!lock(&self.0).entries.is_empty()).then_some(Rule::DeviceQueue)
    }
}

/// Where the entries were inserted that are in a queue, by their addresses.
#[derive(Default)]
pub struct Entries(BTreeMap<usize, Site>);

impl Part for Mutex<Entries> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<Entries> {
    fn memory_is_to_go(&self, freed: &Range<usize>) {
        let found = lock(self).0.range(freed.clone()).next().map(|(&entry, site)| (entry, site.clone()));
        if let Some((entry, site)) = found {
            let words = "is in memory that is freed while it is queued: it was inserted";
            bug_check(Rule::DeviceQueue, format_args!("the entry {entry:#x} of a device queue {words}{site}"));
        }
    }
}

fn queue_at(state: &State, place: *mut KDEVICE_QUEUE) -> Arc<Queue> {
    state.structure(place.expose_provenance(), Kind::DeviceQueue)
}

/// Says in the driver's structure whether it is busy.
fn set_busy(place: *mut KDEVICE_QUEUE, busy: bool) {
    // SAFETY: a queue that is known, and is there; the arm that says whether it is busy.
    unsafe { (&raw mut (*place).__bindgen_anon_1.Busy).write(busy.into()) };
}

fn set_inserted(entry: *mut KDEVICE_QUEUE_ENTRY, inserted: bool) {
    // SAFETY: the driver's entry, which is there as long as it is queued.
    unsafe { (&raw mut (*entry).Inserted).write(inserted.into()) };
}

/// Initialises a queue, which is not busy.
pub fn initialise(state: &State, place: *mut KDEVICE_QUEUE) {
    let size = USHORT::try_from(size_of::<KDEVICE_QUEUE>()).unwrap_or(0).cast_signed();
    let queue = KDEVICE_QUEUE { Type: TYPE, Size: size, ..KDEVICE_QUEUE::default() };
    // SAFETY: the driver's memory for a queue.
    let head = unsafe {
        place.write(queue);
        &raw mut (*place).DeviceListHead
    };
    // SAFETY: the head in what has just been written.
    unsafe { head.write(LIST_ENTRY { Flink: head, Blink: head }) };
    state.track(place.expose_provenance(), context::caller(), Object::new(Kind::DeviceQueue, Queue::default()));
}

/// Puts an entry into a queue that is busy: behind those whose keys are not greater than its own, or at the end if it has none. False if the
/// queue was not busy. It is then.
pub fn insert(state: &State, place: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY, key: Option<ULONG>) -> bool {
    let (queue, address) = (queue_at(state, place), entry.expose_provenance());
    let before = state.locked::<Entries>().0.get(&address).cloned();
    if let Some(site) = before {
        let words = "is inserted again while it is queued: it was inserted";
        bug_check(Rule::DeviceQueue, format_args!("the entry {address:#x} of a device queue {words}{site}"));
    }
    let was_busy = {
        let mut waiting = lock(&queue.0);
        let was_busy = std::mem::replace(&mut waiting.busy, true);
        if was_busy {
            let after = |&(_, other): &(usize, ULONG)| key.is_some_and(|key| other > key);
            let at = waiting.entries.iter().position(after).unwrap_or(waiting.entries.len());
            // One without a key goes in with that of the last one, behind which it is.
            let last = waiting.entries.last().map_or(0, |&(_, key)| key);
            waiting.entries.insert(at, (address, key.unwrap_or(last)));
        }
        was_busy
    };
    set_busy(place, true);
    set_inserted(entry, was_busy);
    if was_busy {
        state.locked::<Entries>().0.insert(address, Site::here());
    }
    was_busy
}

/// Takes the entry out that is the first, or the first whose key is not less than this one, if there is such an entry. Null if none waits:
/// the queue is not busy from then on.
pub fn remove(state: &State, place: *mut KDEVICE_QUEUE, key: Option<ULONG>) -> *mut KDEVICE_QUEUE_ENTRY {
    let queue = queue_at(state, place);
    let taken = {
        let mut waiting = lock(&queue.0);
        if !waiting.busy {
            drop(waiting);
            bug_check(
                Rule::DeviceQueue,
                format_args!("the next entry is taken out of a device queue that is not busy"),
            );
        }
        let at = waiting.entries.iter().position(|&(_, other)| key.is_none_or(|key| other >= key)).unwrap_or(0);
        let taken = (at < waiting.entries.len()).then(|| waiting.entries.remove(at).0);
        waiting.busy = taken.is_some();
        taken
    };
    let Some(address) = taken else {
        set_busy(place, false);
        return ptr::null_mut();
    };
    taken_out(state, address)
}

/// An entry has left its queue.
fn taken_out(state: &State, address: usize) -> *mut KDEVICE_QUEUE_ENTRY {
    state.locked::<Entries>().0.remove(&address);
    let entry = ptr::with_exposed_provenance_mut(address);
    set_inserted(entry, false);
    entry
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeDeviceQueue(place: *mut KDEVICE_QUEUE) {
    routine!("KeInitializeDeviceQueue", DISPATCH_LEVEL, |state| initialise(state, place));
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertDeviceQueue(place: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY) -> BOOLEAN {
    routine!("KeInsertDeviceQueue", DISPATCH_LEVEL, |state| {
        at_dispatch("KeInsertDeviceQueue");
        insert(state, place, entry, None).into()
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertByKeyDeviceQueue(
    place: *mut KDEVICE_QUEUE,
    entry: *mut KDEVICE_QUEUE_ENTRY,
    key: ULONG,
) -> BOOLEAN {
    routine!("KeInsertByKeyDeviceQueue", DISPATCH_LEVEL, |state| {
        at_dispatch("KeInsertByKeyDeviceQueue");
        // SAFETY: the driver's entry, which is in no queue.
        unsafe { (&raw mut (*entry).SortKey).write(key) };
        insert(state, place, entry, Some(key)).into()
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRemoveDeviceQueue(place: *mut KDEVICE_QUEUE) -> *mut KDEVICE_QUEUE_ENTRY {
    routine!("KeRemoveDeviceQueue", DISPATCH_LEVEL, |state| {
        at_dispatch("KeRemoveDeviceQueue");
        remove(state, place, None)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRemoveByKeyDeviceQueue(place: *mut KDEVICE_QUEUE, key: ULONG) -> *mut KDEVICE_QUEUE_ENTRY {
    routine!("KeRemoveByKeyDeviceQueue", DISPATCH_LEVEL, |state| {
        at_dispatch("KeRemoveByKeyDeviceQueue");
        remove(state, place, Some(key))
    })
}

/// As [`KeRemoveByKeyDeviceQueue`], and null if the queue is not busy.
#[unsafe(no_mangle)]
extern "C" fn KeRemoveByKeyDeviceQueueIfBusy(place: *mut KDEVICE_QUEUE, key: ULONG) -> *mut KDEVICE_QUEUE_ENTRY {
    routine!("KeRemoveByKeyDeviceQueueIfBusy", DISPATCH_LEVEL, |state| {
        at_dispatch("KeRemoveByKeyDeviceQueueIfBusy");
        if !lock(&queue_at(state, place).0).busy {
            return ptr::null_mut();
        }
        remove(state, place, Some(key))
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRemoveEntryDeviceQueue(place: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY) -> BOOLEAN {
    routine!("KeRemoveEntryDeviceQueue", DISPATCH_LEVEL, |state| {
        let (queue, address) = (queue_at(state, place), entry.expose_provenance());
        let was_queued = {
            let mut waiting = lock(&queue.0);
            let at = waiting.entries.iter().position(|&(other, _)| other == address);
            at.map(|at| waiting.entries.remove(at)).is_some()
        };
        if was_queued {
            taken_out(state, address);
        }
        state.preempt();
        was_queued.into()
    })
}
