//! Work items: a call in a system thread.

use std::sync::{Arc, Mutex};

use wdk_bindings::{
    PDEVICE_OBJECT, PIO_WORKITEM, PIO_WORKITEM_ROUTINE, PIO_WORKITEM_ROUTINE_EX, PVOID, WORK_QUEUE_TYPE,
};

use crate::{
    argument::Argument,
    context::{self, DriverId},
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    wdm::{self, routine},
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
        wdm::spawn_for_work_item(state, driver, move || {
            *lock(&mine.0) = false;
            drop(mine);
            context::call(driver, "a work item", work);
        });
        state.preempt();
    }

    /// The work item is freed.
    pub fn check_free(&self) {
        if *lock(&self.0) {
            bug_check(Rule::WorkItemQueued, format_args!("a work item is freed while it is queued"));
        }
    }
}

/// A work item of a device or of a driver.
pub struct WorkItem {
    pub owner: DriverId,
    /// The device object or the driver object.
    device: usize,
    queued: Arc<Queued>,
}

fn find(state: &State, item: PIO_WORKITEM) -> Arc<WorkItem> {
    let found = lock(&state.wdm.io).work_items.get(&item.addr()).cloned();
    found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{item:p} is no work item, or was one")))
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateWorkItem(device: PDEVICE_OBJECT) -> PIO_WORKITEM {
    routine!("IoAllocateWorkItem", |state| {
        let is_driver = || lock(&state.pnp).drivers.values().any(|driver| driver.object == device.addr());
        let is_device = lock(&state.wdm.io).devices.contains_key(&device.addr());
        if !is_device && !is_driver() {
            bug_check(Rule::BadHandle, format_args!("{device:p} is no device object and no driver object, or was one"));
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let place = 0xFC00_0000_0000 + usize::try_from(state.next()).unwrap_or(0) * 16;
        let item = WorkItem { owner: context::caller(), device: device.expose_provenance(), queued: Arc::default() };
        lock(&state.wdm.io).work_items.insert(place, Arc::new(item));
        std::ptr::without_provenance_mut(place)
    })
}

/// `CriticalWorkQueue` and `DelayedWorkQueue` are the drivers', others are the system's or none.
pub fn check_queue(queue: WORK_QUEUE_TYPE) {
    if queue == HYPER_CRITICAL || (MAXIMUM..CUSTOM).contains(&queue) {
        bug_check(Rule::BadArgument, format_args!("a work item for the queue {queue}, which is not for drivers"));
    }
}

/// `HyperCriticalWorkQueue`, `MaximumWorkQueue`, `CustomPriorityWorkQueue`.
const HYPER_CRITICAL: WORK_QUEUE_TYPE = 2;
const MAXIMUM: WORK_QUEUE_TYPE = 7;
const CUSTOM: WORK_QUEUE_TYPE = 32;

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
        check_queue(kind);
        let device = find(state, item).device;
        if !lock(&state.wdm.io).devices.contains_key(&device) {
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
        check_queue(kind);
        let place = item.addr();
        queue(state, item, routine, argument, move |routine, device, argument| {
            // SAFETY: the driver's own routine, device, argument and work item, at `PASSIVE_LEVEL`.
            unsafe { routine(device.cast(), argument, std::ptr::without_provenance_mut(place)) };
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoFreeWorkItem(item: PIO_WORKITEM) {
    routine!("IoFreeWorkItem", |state| {
        find(state, item).queued.check_free();
        lock(&state.wdm.io).work_items.remove(&item.addr());
    });
}
