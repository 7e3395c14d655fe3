//! Work items: a call in a system thread.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, PDEVICE_OBJECT, PIO_WORKITEM, PIO_WORKITEM_ROUTINE, PIO_WORKITEM_ROUTINE_EX, PVOID, ULONG, WORK_QUEUE_TYPE,
};

use super::device::Devices;
use crate::{
    argument::Argument,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State, Watch, lock},
    tracked::check_memory_of,
    wdm::{system_thread, thread},
};

/// The state of a work item: queued or not.
#[derive(Default)]
pub struct Queued(Mutex<bool>);

impl Queued {
    /// Queues the work item: `work` runs as the driver's code, and may queue it again or free it.
    pub fn queue(self: &Arc<Self>, state: &Arc<State>, driver: DriverId, work: impl FnOnce() + Send + 'static) {
        if std::mem::replace(&mut *lock(&self.0), true) {
            bug_check(Rule::WorkItemQueued, format_args!("a work item is queued that is queued already"));
        }
        let mine = self.clone();
        system_thread::spawn_for_work_item(state, driver, move || {
            *lock(&mine.0) = false;
            drop(mine);
            context::call(driver, "a work item", work);
        });
        state.preempt();
    }

    /// Returns true if it is queued.
    pub fn is_queued(&self) -> bool {
        *lock(&self.0)
    }

    /// The work item is freed.
    pub fn check_free(&self) {
        if *lock(&self.0) {
            bug_check(Rule::WorkItemQueued, format_args!("a work item is freed while it is queued"));
        }
    }
}

/// A work item of a device or of a driver.
struct WorkItem {
    /// It lies in the driver's memory.
    is_drivers: bool,
    owner: DriverId,
    /// The device object or the driver object.
    device: usize,
    queued: Arc<Queued>,
}

/// Those that drivers have allocated.
#[derive(Default)]
pub struct WorkItems(LiteMap<usize, Arc<WorkItem>>);

impl Part for Mutex<WorkItems> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<WorkItems> {
    /// Those in memory that is freed are gone, and may not be queued.
    fn memory_is_gone(&self, _: &State, freed: &Range<usize>) {
        let mut gone = Vec::new();
        lock(self).0.retain(|address, item| {
            let goes = item.is_drivers && freed.contains(address);
            if goes {
                gone.push(item.clone());
            }
            !goes
        });
        for item in &gone {
            item.queued.check_free();
        }
    }
}

impl WorkItems {
    /// Returns true if there are some of that driver that it has allocated.
    pub fn are_of(&self, owner: DriverId) -> bool {
        self.0.values().any(|item| item.owner == owner && !item.is_drivers)
    }
}

impl WorkItem {
    /// One of the calling driver.
    fn new(device: usize, is_drivers: bool) -> Arc<Self> {
        Arc::new(Self { is_drivers, owner: context::caller(), device, queued: Arc::default() })
    }
}

fn find(state: &State, item: PIO_WORKITEM) -> Arc<WorkItem> {
    let found = state.locked::<WorkItems>().0.get(&item.addr()).cloned();
    found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{item:p} is no work item, or was one")))
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateWorkItem(device: PDEVICE_OBJECT) -> PIO_WORKITEM {
    routine!("IoAllocateWorkItem", |state| {
        check_object(state, device.addr());
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let place = 0xFC00_0000_0000 + usize::try_from(state.next()).unwrap_or(0) * 16;
        state.locked::<WorkItems>().0.insert(place, WorkItem::new(device.expose_provenance(), false));
        std::ptr::without_provenance_mut(place)
    })
}

/// Ends the test unless a device or driver object lies there.
fn check_object(state: &State, object: usize) {
    if !state.is_device_or_driver(object) {
        let words = "is no device object and no driver object, or was one";
        bug_check(Rule::BadHandle, format_args!("{object:#x} {words}"));
    }
}

/// How many bytes a work item has in a driver's memory. On Windows they depend on the version.
const SIZE: ULONG = 64;

#[unsafe(no_mangle)]
extern "C" fn IoSizeofWorkItem() -> ULONG {
    routine!("IoSizeofWorkItem", DISPATCH_LEVEL, |_| SIZE)
}

#[unsafe(no_mangle)]
extern "C" fn IoInitializeWorkItem(object: PVOID, item: PIO_WORKITEM) {
    routine!("IoInitializeWorkItem", DISPATCH_LEVEL, |state| {
        check_object(state, object.addr());
        let place = item.expose_provenance();
        check_memory_of(place, "work item");
        let before = state.locked::<WorkItems>().0.insert(place, WorkItem::new(object.expose_provenance(), true));
        if let Some(before) = before {
            before.queued.check_free();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoUninitializeWorkItem(item: PIO_WORKITEM) {
    routine!("IoUninitializeWorkItem", DISPATCH_LEVEL, |state| give_up(state, item, true));
}

/// The work item is not used any more: one in the driver's memory, or one that was allocated.
fn give_up(state: &State, item: PIO_WORKITEM, is_drivers: bool) {
    let found = find(state, item);
    if found.is_drivers != is_drivers {
        let words = if is_drivers { "was allocated, and is IoFreeWorkItem's" } else { "is IoUninitializeWorkItem's" };
        bug_check(Rule::BadHandle, format_args!("the work item {item:p} {words}"));
    }
    found.queued.check_free();
    state.locked::<WorkItems>().0.remove(&item.addr());
}

/// Queues a work item, whose routine `call` calls with the device and the argument.
fn queue<R: Send + 'static>(
    state: &Arc<State>,
    item: PIO_WORKITEM,
    routine: Option<R>,
    argument: PVOID,
    call: impl FnOnce(R, PDEVICE_OBJECT, PVOID) + Send + 'static,
) {
    let found = find(state, item);
    let Some(routine) = routine else { bug_check(Rule::BadArgument, format_args!("a work item without a routine")) };
    let (device, argument) = (found.device, Argument::of(argument));
    found.queued.queue(state, found.owner, move || {
        let device = std::ptr::with_exposed_provenance_mut(device);
        call(routine, device, argument.pointer("a work item"));
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoQueueWorkItem(
    item: PIO_WORKITEM,
    routine: PIO_WORKITEM_ROUTINE,
    kind: WORK_QUEUE_TYPE,
    argument: PVOID,
) {
    routine!("IoQueueWorkItem", |state| {
        thread::check_queue(kind);
        let device = find(state, item).device;
        if !state.locked::<Devices>().has(device) {
            let words = format_args!("IoQueueWorkItem, which passes a device, of a work item that has none");
            bug_check(Rule::BadArgument, words);
        }
        queue(state, item, routine, argument, |routine, device, argument| {
            // SAFETY: the driver's own routine, device and argument, at `PASSIVE_LEVEL`.
            unsafe { routine(device, argument) };
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoQueueWorkItemEx(
    item: PIO_WORKITEM,
    routine: PIO_WORKITEM_ROUTINE_EX,
    kind: WORK_QUEUE_TYPE,
    argument: PVOID,
) {
    routine!("IoQueueWorkItemEx", |state| {
        thread::check_queue(kind);
        queue_ex(state, item, routine, argument);
    });
}

/// Queues a work item whose routine gets the work item too.
fn queue_ex(state: &Arc<State>, item: PIO_WORKITEM, routine: PIO_WORKITEM_ROUTINE_EX, argument: PVOID) {
    let place = item.addr();
    queue(state, item, routine, argument, move |routine, device, argument| {
        // SAFETY: the driver's own routine, device, argument and work item, at `PASSIVE_LEVEL`.
        unsafe { routine(device.cast(), argument, std::ptr::with_exposed_provenance_mut(place)) };
    });
}

/// As [`IoQueueWorkItemEx`], unless it is queued already. Whether it was queued.
#[unsafe(no_mangle)]
extern "C" fn IoTryQueueWorkItem(
    item: PIO_WORKITEM,
    routine: PIO_WORKITEM_ROUTINE_EX,
    kind: WORK_QUEUE_TYPE,
    argument: PVOID,
) -> BOOLEAN {
    routine!("IoTryQueueWorkItem", DISPATCH_LEVEL, |state| {
        thread::check_queue(kind);
        if find(state, item).queued.is_queued() {
            return 0;
        }
        queue_ex(state, item, routine, argument);
        1
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoFreeWorkItem(item: PIO_WORKITEM) {
    routine!("IoFreeWorkItem", |state| give_up(state, item, false));
}
