//! Queues and power. A queue that is managed hands out nothing while its device is not in D0, and the driver says what becomes of each
//! request that it has (`EvtIoStop`, `EvtIoResume`). Order and conditions are those of the framework's published source (`FxIoQueue`,
//! `FxPkgIo`).

use std::{
    cell::Cell,
    ptr,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
};

use wdk_bindings::{BOOLEAN, PWDF_DRIVER_GLOBALS, ULONG, WDFREQUEST};

use super::{
    device::DeviceObject,
    function::entry,
    queue::{Phase, QueueObject},
    request::{Had, RequestObject, Stop, at_hand, owned},
};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    waiting,
};

/// What `EvtIoStop` is told: the device loses its power; it goes; the driver has marked the request cancelable.
const SUSPEND: ULONG = 1;
const PURGE: ULONG = 2;
const CANCELABLE: ULONG = 0x1000_0000;

thread_local! {
    /// The request for which `EvtIoStop` runs on this thread.
    static SHOWN: Cell<usize> = const { Cell::new(0) };
}

/// The driver has been told that the request is cancelled, and hears no more of it.
fn is_told_of_its_end(request: &RequestObject) -> bool {
    let progress = lock(&request.progress);
    progress.cancel_begun || progress.had == Had::CancelledOnQueue
}

/// Returns true if `EvtIoStop` runs on this thread for that request: until it returns the framework has a reference to it, so that its
/// handle is one, also when somebody else has completed it meanwhile.
pub fn is_shown_here<T>(handle: *mut T) -> bool {
    SHOWN.get() == handle.addr()
}

impl State {
    /// The queues of a device that follow its power, or those that do not.
    fn queues_of(&self, device: &DeviceObject, managed: bool) -> Vec<Arc<QueueObject>> {
        let handles = lock(&device.queues).clone();
        let queues = handles.into_iter().filter_map(|queue| self.object(queue).part::<QueueObject>());
        queues.filter(|queue| queue.power.managed == managed).collect()
    }

    /// The device leaves D0. Returns when no request of its managed queues needs it any more.
    pub fn hold_queues(self: &Arc<Self>, device: &DeviceObject) {
        device.powered.store(false, Release);
        let queues = self.queues_of(device, true);
        // None hands out anything when the driver hears of the first request.
        for queue in &queues {
            self.quiet(queue);
        }
        for queue in &queues {
            self.stop_requests(queue, SUSPEND);
            queue.set_phase(Phase::Off);
        }
    }

    /// The device is in D0: what the driver kept goes on, then what waits.
    pub fn release_queues(self: &Arc<Self>, device: &DeviceObject) {
        device.powered.store(true, Release);
        let queues = self.queues_of(device, true);
        for queue in &queues {
            queue.set_phase(Phase::Changing);
            for request in self.requests_of(queue) {
                self.resume(queue, &request);
            }
            queue.set_phase(Phase::On);
        }
        for queue in &queues {
            self.present(queue);
        }
    }

    /// The device goes, and with it what its queues have, managed or not. Returns when the driver has let all requests go.
    pub fn purge_queues(self: &Arc<Self>, device: &DeviceObject, managed: bool) {
        for queue in self.queues_of(device, managed) {
            queue.shut();
            self.purge_queue(&queue);
            self.quiet(&queue);
            self.stop_requests(&queue, PURGE);
            queue.set_phase(Phase::Off);
        }
    }

    /// Has a queue hand out nothing more, and waits for its handlers.
    fn quiet(self: &Arc<Self>, queue: &QueueObject) {
        queue.set_phase(Phase::Changing);
        if queue.is_handing_out() {
            let what = format!("the queue {:#x} to stop, for its request handlers,", queue.handle.load(Acquire));
            waiting::until(self, None, &*what, || !queue.is_handing_out());
        }
    }

    /// The requests that the driver has from a queue.
    fn requests_of(&self, queue: &Arc<QueueObject>) -> Vec<Arc<RequestObject>> {
        let mut requests = self.all_of::<RequestObject>();
        requests.retain(|request| request.is_of(queue));
        requests
    }

    /// Tells the driver of each request that it has from the queue, and waits for what it says.
    fn stop_requests(self: &Arc<Self>, queue: &Arc<QueueObject>, action: ULONG) {
        let requests = self.requests_of(queue);
        for request in &requests {
            lock(&request.progress).stop = Stop::Awaited;
        }
        for request in &requests {
            self.show(queue, request, action);
        }
        let how = if queue.power.stop.is_some() {
            "after EvtIoStop: neither completed nor acknowledged"
        } else {
            "without EvtIoStop: not completed"
        };
        for request in &requests {
            let is_awaited = || request.is_of(queue) && lock(&request.progress).stop == Stop::Awaited;
            if is_awaited() {
                let (of_queue, of_request) = (queue.handle.load(Acquire), request.handle.load(Acquire));
                let what = format!("the queue {of_queue:#x} to stop, for the request {of_request:#x}, {how},");
                waiting::until(self, None, &*what, || !is_awaited());
            }
            if request.is_of(queue) && lock(&request.progress).stop == Stop::PutBack {
                self.put_in_front(queue, request);
            }
        }
    }

    /// Calls `EvtIoStop` for a request, unless the driver knows that it is cancelled: then it is only waited for.
    fn show(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>, action: ULONG) {
        let Some(stop) = queue.power.stop.filter(|_| !is_told_of_its_end(request)) else { return };
        let handle = request.handle.load(Acquire);
        let Some((object, _)) = self.if_there::<RequestObject>(handle) else { return };
        let flags = {
            let mut progress = lock(&request.progress);
            if progress.stop != Stop::Awaited {
                return;
            }
            progress.stop = Stop::Shown;
            if progress.cancel.is_some() { action | CANCELABLE } else { action }
        };
        // Others may complete it while the driver looks at it.
        object.refer();
        self.preempt();
        let before = SHOWN.replace(handle);
        context::call(queue.owner, "EvtIoStop", || {
            let (queue, request) =
                (ptr::without_provenance_mut(queue.handle.load(Acquire)), ptr::without_provenance_mut(handle));
            // SAFETY: the driver's own callback, with handles that are live until it returns.
            unsafe { stop(queue, request, flags) };
        });
        SHOWN.set(before);
        let mut progress = lock(&request.progress);
        if progress.stop == Stop::Shown {
            progress.stop = Stop::Awaited;
        }
        drop(progress);
        self.dereference(&object);
    }

    /// Calls `EvtIoResume` for a request that the driver kept, unless it knows that it is cancelled.
    fn resume(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
        let Some(resume) = queue.power.resume.filter(|_| !is_told_of_its_end(request)) else { return };
        let handle = request.handle.load(Acquire);
        let Some((object, _)) = self.if_there::<RequestObject>(handle) else { return };
        object.refer();
        context::call(queue.owner, "EvtIoResume", || {
            let (queue, request) =
                (ptr::without_provenance_mut(queue.handle.load(Acquire)), ptr::without_provenance_mut(handle));
            // SAFETY: the driver's own callback, with handles that are live until it returns.
            unsafe { resume(queue, request) };
        });
        self.dereference(&object);
    }
}

/// What the driver says of a request that it has been shown by `EvtIoStop`: it keeps it, or gives it back to its queue. The framework looks
/// when that callback has returned.
pub extern "C" fn WdfRequestStopAcknowledge(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST, requeue: BOOLEAN) {
    routine!("WdfRequestStopAcknowledge", DISPATCH_LEVEL, |state| {
        let is_here = is_shown_here(handle);
        if is_here && state.was_request(handle.addr()) {
            // Somebody else was faster, which nobody needs to know.
            return;
        }
        let request = owned(state, handle);
        let (stop, is_cancelable) = {
            let progress = lock(&request.progress);
            (progress.stop, progress.cancel.is_some())
        };
        match stop {
            Stop::Kept | Stop::PutBack if is_here => {
                bug_check(Rule::RequestStop, format_args!("a request is acknowledged twice"))
            }
            Stop::Shown if is_here => {}
            Stop::Shown | Stop::Awaited => {
                bug_check(Rule::RequestStop, format_args!("a request is acknowledged outside of EvtIoStop for it"))
            }
            _ => bug_check(Rule::RequestStop, format_args!("a request is acknowledged that is not being stopped")),
        }
        if requeue != 0 {
            at_hand(state, handle);
            if is_cancelable {
                bug_check(Rule::RequestCancelable, format_args!("a cancelable request is put back by EvtIoStop"));
            }
        }
        lock(&request.progress).stop = if requeue == 0 { Stop::Kept } else { Stop::PutBack };
    });
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 1] {
    [entry!(WdfRequestStopAcknowledge)]
}
