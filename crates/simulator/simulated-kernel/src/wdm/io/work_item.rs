//! Work items: a call in a system thread.

use std::sync::{Arc, Mutex};

use litemap::LiteMap;
use wdk_bindings::{
    PDEVICE_OBJECT, PIO_WORKITEM, PIO_WORKITEM_ROUTINE, PIO_WORKITEM_ROUTINE_EX, PVOID, WORK_QUEUE_TYPE,
};

use super::device::Devices;
use crate::{
    argument::Argument,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State, lock},
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

    /// The work item is freed.
    pub fn check_free(&self) {
        if *lock(&self.0) {
            bug_check(Rule::WorkItemQueued, format_args!("a work item is freed while it is queued"));
        }
    }
}

/// A work item of a device or of a driver.
struct WorkItem {
    owner: DriverId,
    /// The device object or the driver object.
    device: usize,
    queued: Arc<Queued>,
}

/// Those that drivers have allocated.
#[derive(Default)]
pub struct WorkItems(LiteMap<usize, Arc<WorkItem>>);

impl Part for Mutex<WorkItems> {}

impl WorkItems {
    /// Returns true if there are some of that driver.
    pub fn are_of(&self, owner: DriverId) -> bool {
        self.0.values().any(|item| item.owner == owner)
    }
}

fn find(state: &State, item: PIO_WORKITEM) -> Arc<WorkItem> {
    let found = state.locked::<WorkItems>().0.get(&item.addr()).cloned();
    found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{item:p} is no work item, or was one")))
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateWorkItem(device: PDEVICE_OBJECT) -> PIO_WORKITEM {
    routine!("IoAllocateWorkItem", |state| {
        let is_driver = || state.drivers().values().any(|driver| driver.object == device.addr());
        let is_device = state.locked::<Devices>().has(device.addr());
        if !is_device && !is_driver() {
            bug_check(Rule::BadHandle, format_args!("{device:p} is no device object and no driver object, or was one"));
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let place = 0xFC00_0000_0000 + usize::try_from(state.next()).unwrap_or(0) * 16;
        let item = WorkItem { owner: context::caller(), device: device.expose_provenance(), queued: Arc::default() };
        state.locked::<WorkItems>().0.insert(place, Arc::new(item));
        std::ptr::without_provenance_mut(place)
    })
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
        state.locked::<WorkItems>().0.remove(&item.addr());
    });
}
