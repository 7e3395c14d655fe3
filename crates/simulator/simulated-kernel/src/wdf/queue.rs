//! Queues: what hands requests to the driver.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_IO_QUEUE_STATE, NTSTATUS, PFN_WDF_IO_QUEUE_IO_CANCELED_ON_QUEUE,
    PFN_WDF_IO_QUEUE_IO_DEFAULT, PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL, PFN_WDF_IO_QUEUE_IO_READ,
    PFN_WDF_IO_QUEUE_IO_WRITE, PFN_WDF_IO_QUEUE_STATE, PULONG, PWDF_DRIVER_GLOBALS, PWDF_IO_QUEUE_CONFIG,
    PWDF_OBJECT_ATTRIBUTES, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
    ULONG, WDF_IO_QUEUE_CONFIG, WDF_IO_QUEUE_DISPATCH_TYPE, WDF_IO_QUEUE_STATE, WDFCONTEXT, WDFDEVICE, WDFQUEUE,
    WDFREQUEST,
};

use super::{
    device::{DeviceObject, device},
    function::function,
    object::{Kind, Object, Part},
    request::{Asks, Had, Outside, RequestObject, owned},
};
use crate::{
    argument::check_size,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    waiting,
    wdm::system_thread,
};

/// A queue.
pub struct QueueObject {
    pub owner: DriverId,
    pub handle: AtomicUsize,
    pub device: Arc<DeviceObject>,
    dispatch: WDF_IO_QUEUE_DISPATCH_TYPE,
    control: PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL,
    read: PFN_WDF_IO_QUEUE_IO_READ,
    write: PFN_WDF_IO_QUEUE_IO_WRITE,
    /// Reads and writes of no bytes are the driver's too.
    takes_nothing: bool,
    /// For what has no callback of its own.
    other: PFN_WDF_IO_QUEUE_IO_DEFAULT,
    /// For what the driver has had before, and is cancelled while it waits here.
    cancelled: PFN_WDF_IO_QUEUE_IO_CANCELED_ON_QUEUE,
    waiting: Mutex<VecDeque<Arc<RequestObject>>>,
    /// Requests that the driver has.
    pub delivered: AtomicU32,
    most: u32,
    accepts: AtomicBool,
    /// It keeps what it has.
    stopped: AtomicBool,
}

// SAFETY: the callback is a function, which any thread may call.
unsafe impl Send for QueueObject {}
// SAFETY: as for `Send`; what changes is behind locks.
unsafe impl Sync for QueueObject {}

impl Part for QueueObject {
    const NAME: &'static str = "queue";
}

impl Kind for QueueObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        if self.device.default_queue.load(Acquire) == object.handle {
            bug_check(Rule::BadHandle, format_args!("a driver may not delete the default queue of a device"));
        }
        lock(&self.device.queues).retain(|&one| one != object.handle);
    }

    fn device_stops(&self, state: &Arc<State>, object: &Object) {
        if let Some(queue) = object.part() {
            state.purge_queue(&queue);
        }
    }

    fn end(&self, state: &Arc<State>, object: &Object) {
        self.device_stops(state, object);
        if self.delivered.load(Acquire) > 0 {
            waiting::until(state, None, "the deletion of a queue", || self.delivered.load(Acquire) == 0);
        }
    }
}

thread_local! {
    /// How many request handlers run on this thread.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// The queue with a handle that a driver passes.
pub fn queue<T>(state: &State, handle: *mut T) -> Arc<QueueObject> {
    state.given_as(handle).1
}

impl State {
    /// The queue that a device's requests go to, while the device is there.
    fn queue_of(&self, device: &DeviceObject) -> Option<Arc<QueueObject>> {
        let queue = device.default_queue.load(Acquire);
        let queue = (queue != 0 && device.finished.load(Acquire)).then(|| self.object(queue));
        queue.and_then(|object| object.part())
    }

    /// A request comes to a device: its driver looks at it first, if it wants to, and puts it into its queue then.
    pub fn request_arrives(self: &Arc<Self>, device: &Arc<DeviceObject>, request: &Arc<RequestObject>) {
        if let Some(look) = device.with.looks_first {
            {
                let mut progress = lock(&request.progress);
                (progress.outside, progress.had) = (Outside::LookedAt, Had::Once);
            }
            let (of_device, of_request) = (device.handle.load(Acquire), request.handle.load(Acquire));
            context::call(device.owner, "EvtIoInCallerContext", || {
                let (device, request) =
                    (std::ptr::without_provenance_mut(of_device), std::ptr::without_provenance_mut(of_request));
                // SAFETY: the driver's own callback, with live handles.
                unsafe { look(device, request) };
            });
            let mut progress = lock(&request.progress);
            if progress.outside == Outside::LookedAt {
                progress.outside = Outside::Kept;
            }
            return;
        }
        match self.queue_of(device) {
            Some(queue) => self.enqueue(&queue, request),
            None => self.finish_request(request, STATUS_INVALID_DEVICE_REQUEST, 0),
        }
    }

    /// Whether the framework passes requests of that kind on from a filter, because they have no callback there. So its published source
    /// has it: unless the driver looks at them first, and only of the default queue (`FxPkgIo::Dispatch`).
    pub fn passes_on(&self, device: &DeviceObject, asks: Asks) -> bool {
        let has_callback = |queue: &QueueObject| {
            let of_its_kind = match asks {
                Asks::Read => queue.read.is_some(),
                Asks::Write => queue.write.is_some(),
                _ => queue.control.is_some(),
            };
            let is_manual = queue.dispatch == _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual;
            of_its_kind || is_manual || queue.other.is_some()
        };
        let queue = device.default_queue.load(Acquire);
        let queue = (queue != 0).then(|| self.object(queue)).and_then(|object| object.part());
        device.with.filter && device.with.looks_first.is_none() && !queue.is_some_and(|queue| has_callback(&queue))
    }

    /// The highest device of a stack, from that one down, whose driver has requests of that kind.
    pub fn first_that_looks(&self, top: &Arc<DeviceObject>, asks: Asks) -> Arc<DeviceObject> {
        let mut device = top.clone();
        while self.passes_on(&device, asks)
            && let Some(lower) = device.lower.get().cloned()
        {
            device = lower;
        }
        device
    }

    /// Cancels a request for a device: where it waits, or with the driver that has it.
    pub fn cancel_for(self: &Arc<Self>, device: &DeviceObject, request: &Arc<RequestObject>) {
        // First, so that it does not come into a queue that was looked at already.
        request.cancelled.store(true, Release);
        let queues = lock(&device.queues).clone();
        for queue in queues {
            if let Some(queue) = self.object(queue).part()
                && self.cancel_waiting(&queue, |one| Arc::ptr_eq(one, request))
            {
                return;
            }
        }
        self.cancel_request(request);
    }

    /// Puts a request into a queue and has it presented.
    pub fn enqueue(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
        if !queue.accepts.load(Acquire) {
            self.finish_request(request, STATUS_INVALID_DEVICE_STATE, 0);
            return;
        }
        self.put(queue, request);
        self.present(queue);
    }

    /// A request waits in a queue from now on; one that was cancelled meanwhile has waited.
    fn put(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
        let waits = {
            let mut waiting = lock(&queue.waiting);
            let waits = !request.cancelled.load(Acquire);
            if waits {
                waiting.push_back(request.clone());
            }
            waits
        };
        if !waits {
            self.cancelled_on_queue(queue, request);
        }
    }

    /// Hands waiting requests to the driver, as many as the queue lets it have at a time; at `PASSIVE_LEVEL`, and so perhaps later.
    pub fn present(self: &Arc<Self>, queue: &Arc<QueueObject>) {
        loop {
            if queue.dispatch == _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual
                || queue.delivered.load(Acquire) >= queue.most
                || queue.stopped.load(Acquire)
            {
                return;
            }
            if machine::current_irql() > Irql::PASSIVE_LEVEL {
                if !lock(&queue.waiting).is_empty() {
                    let (state, of_thread) = (self.clone(), queue.clone());
                    system_thread::spawn_for_work_item(self, queue.owner, move || state.present(&of_thread));
                }
                return;
            }
            let Some(request) = lock(&queue.waiting).pop_front() else { return };
            queue.delivered.fetch_add(1, AcqRel);
            request.deliver(queue);
            let is_transfer = [Asks::Read, Asks::Write].contains(&request.asks);
            let of_its_kind = match request.asks {
                Asks::Read => queue.read.is_some(),
                Asks::Write => queue.write.is_some(),
                _ => queue.control.is_some(),
            };
            if !of_its_kind && queue.other.is_none() {
                self.complete_request(&request, STATUS_INVALID_DEVICE_REQUEST, 0);
                continue;
            }
            if is_transfer && request.input.max(request.output) == 0 && !queue.takes_nothing {
                self.complete_request(&request, STATUS_SUCCESS, 0);
                continue;
            }
            let (output, input, code) = (request.output, request.input, request.code);
            let (of_queue, of_request) = (queue.handle.load(Acquire), request.handle.load(Acquire));
            let of_queue: WDFQUEUE = std::ptr::without_provenance_mut(of_queue);
            let of_request: WDFREQUEST = std::ptr::without_provenance_mut(of_request);
            INSIDE.set(INSIDE.get() + 1);
            if let Some(read) = queue.read.filter(|_| request.asks == Asks::Read) {
                context::call(queue.owner, "EvtIoRead", || {
                    // SAFETY: the driver's own callback, with live handles.
                    unsafe { read(of_queue, of_request, output) };
                });
            } else if let Some(write) = queue.write.filter(|_| request.asks == Asks::Write) {
                context::call(queue.owner, "EvtIoWrite", || {
                    // SAFETY: as above.
                    unsafe { write(of_queue, of_request, input) };
                });
            } else if let Some(control) = queue.control.filter(|_| request.asks == Asks::Control) {
                context::call(queue.owner, "EvtIoDeviceControl", || {
                    // SAFETY: the driver's own callback, with live handles.
                    unsafe { control(of_queue, of_request, output, input, code) };
                });
            } else if let Some(other) = queue.other {
                context::call(queue.owner, "EvtIoDefault", || {
                    // SAFETY: as above.
                    unsafe { other(of_queue, of_request) };
                });
            }
            INSIDE.set(INSIDE.get() - 1);
        }
    }

    /// Refuses what comes and ends what waits, as cancelled. What the driver has is cancelled if it can be.
    pub fn purge_queue(self: &Arc<Self>, queue: &Arc<QueueObject>) {
        queue.accepts.store(false, Release);
        self.cancel_waiting(queue, |_| true);
        let mut delivered = self.all_of::<RequestObject>();
        delivered.retain(|request| request.is_of(queue));
        // All are cancelled before the driver hears of the first.
        let routines: Vec<_> = delivered.iter().filter_map(|request| self.begin_cancel(request)).collect();
        for routine in routines {
            self.call_cancel(&routine);
        }
    }

    /// Takes a request that moves to it from another queue. Whether it does.
    pub fn accept(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) -> bool {
        let accepts = queue.accepts.load(Acquire);
        if accepts {
            let before = lock(&request.progress).queue.take();
            self.put(queue, request);
            if let Some(before) = before {
                before.delivered.fetch_sub(1, AcqRel);
                self.present(&before);
            }
            self.present(queue);
        }
        accepts
    }

    /// Takes a request back that the driver has had from it, as the first; `STATUS_INVALID_DEVICE_REQUEST` if it is no manual queue,
    /// `STATUS_WDF_BUSY` if it takes none.
    pub fn put_back(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) -> NTSTATUS {
        if queue.dispatch != _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        if !queue.accepts.load(Acquire) {
            return STATUS_WDF_BUSY;
        }
        lock(&request.progress).queue = None;
        queue.delivered.fetch_sub(1, AcqRel);
        let waits = {
            let mut waiting = lock(&queue.waiting);
            let waits = !request.cancelled.load(Acquire);
            if waits {
                waiting.push_front(request.clone());
            }
            waits
        };
        if !waits {
            self.cancelled_on_queue(queue, request);
        }
        self.dispatcher.signal();
        STATUS_SUCCESS
    }

    /// Takes the requests that are meant out of their queue, as cancelled. Whether there were any.
    pub fn cancel_waiting(
        self: &Arc<Self>,
        queue: &Arc<QueueObject>,
        is_meant: impl Fn(&Arc<RequestObject>) -> bool,
    ) -> bool {
        let taken: VecDeque<_> = {
            let mut waiting = lock(&queue.waiting);
            let (taken, left) = waiting.drain(..).partition(is_meant);
            *waiting = left;
            taken
        };
        for request in &taken {
            self.cancelled_on_queue(queue, request);
        }
        !taken.is_empty()
    }

    /// Ends a request that was cancelled in a queue. One that the driver has had before is the driver's again, if it wants to know.
    fn cancelled_on_queue(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
        request.cancelled.store(true, Release);
        let Some(cancelled) = queue.cancelled.filter(|_| request.was_delivered()) else {
            self.finish_request(request, STATUS_CANCELLED, 0);
            return;
        };
        queue.delivered.fetch_add(1, AcqRel);
        request.deliver(queue);
        lock(&request.progress).had = Had::CancelledOnQueue;
        let (owner, of_queue) = (queue.owner, queue.handle.load(Acquire));
        let of_request = request.handle.load(Acquire);
        let tell = move || {
            context::call(owner, "EvtIoCanceledOnQueue", || {
                let (queue, request) =
                    (std::ptr::without_provenance_mut(of_queue), std::ptr::without_provenance_mut(of_request));
                // SAFETY: the driver's own callback, with live handles.
                unsafe { cancelled(queue, request) };
            });
        };
        // Its requests come at `PASSIVE_LEVEL` here, and so does this.
        if machine::current_irql() > Irql::PASSIVE_LEVEL {
            system_thread::spawn_for_work_item(self, owner, tell);
        } else {
            tell();
        }
    }
}

/// What the framework says, which the bindings leave out.
pub const STATUS_WDF_BUSY: NTSTATUS = 0xC020_0204_u32.cast_signed();
const STATUS_WDF_PAUSED: NTSTATUS = 0xC020_0203_u32.cast_signed();
const STATUS_WDF_NO_CALLBACK: NTSTATUS = 0xC020_020B_u32.cast_signed();

/// Returns true if a queue hands any kind of request to the driver.
const fn has_callback(config: &WDF_IO_QUEUE_CONFIG) -> bool {
    config.EvtIoDefault.is_some()
        || config.EvtIoRead.is_some()
        || config.EvtIoWrite.is_some()
        || config.EvtIoDeviceControl.is_some()
        || config.EvtIoInternalDeviceControl.is_some()
}

pub extern "C" fn WdfIoQueueCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    config: PWDF_IO_QUEUE_CONFIG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFQUEUE,
) -> NTSTATUS {
    function!("WdfIoQueueCreate", |state| {
        let (object, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_IO_QUEUE_CONFIG>(config.Size, "WDF_IO_QUEUE_CONFIG");
        let most = match config.DispatchType {
            _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential => 1,
            // SAFETY: for this type the union holds this member.
            _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel => unsafe {
                config.Settings.Parallel.NumberOfPresentedRequests
            },
            _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual => u32::MAX,
            _ => return STATUS_INVALID_PARAMETER,
        };
        if most == 0 {
            bug_check(Rule::BadArgument, format_args!("a parallel queue that presents no requests"));
        }
        if device.is_of_miniport() {
            bug_check(Rule::BadHandle, format_args!("a queue of a miniport's device, whose requests are NDIS's"));
        }
        let manual = config.DispatchType == _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual;
        if !manual && !has_callback(&config) {
            return STATUS_WDF_NO_CALLBACK;
        }
        if config.DefaultQueue != 0 && device.default_queue.load(Acquire) != 0 {
            return STATUS_UNSUCCESSFUL;
        }
        let queue = Arc::new(QueueObject {
            owner: device.owner,
            handle: AtomicUsize::new(0),
            device: device.clone(),
            dispatch: config.DispatchType,
            control: config.EvtIoDeviceControl,
            read: config.EvtIoRead,
            write: config.EvtIoWrite,
            takes_nothing: config.AllowZeroLengthRequests != 0,
            other: config.EvtIoDefault,
            cancelled: config.EvtIoCanceledOnQueue,
            waiting: Mutex::default(),
            delivered: AtomicU32::new(0),
            most,
            accepts: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
        });
        let Some(new) = state.create_object(queue.clone(), attributes, Some(object.handle)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        queue.handle.store(new.handle, Release);
        lock(&device.queues).push(new.handle);
        if config.DefaultQueue != 0 {
            device.default_queue.store(new.handle, Release);
        }
        if !place.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { place.write(new.pointer()) };
        }
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfIoQueueGetDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) -> WDFDEVICE {
    function!("WdfIoQueueGetDevice", |state| {
        std::ptr::without_provenance_mut(queue(state, handle).device.handle.load(Acquire))
    })
}

pub extern "C" fn WdfIoQueueRetrieveNextRequest(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFQUEUE,
    place: *mut WDFREQUEST,
) -> NTSTATUS {
    function!("WdfIoQueueRetrieveNextRequest", |state| {
        let queue = queue(state, handle);
        if queue.dispatch == _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel {
            return STATUS_INVALID_DEVICE_STATE;
        }
        if queue.stopped.load(Acquire) {
            return STATUS_WDF_PAUSED;
        }
        let Some(request) = lock(&queue.waiting).pop_front() else {
            // SAFETY: the driver's place, which lives until the call returns.
            unsafe { place.write(std::ptr::null_mut()) };
            return STATUS_NO_MORE_ENTRIES;
        };
        queue.delivered.fetch_add(1, AcqRel);
        request.deliver(&queue);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(std::ptr::without_provenance_mut(request.handle.load(Acquire))) };
        STATUS_SUCCESS
    })
}

fn no_callback(callback: PFN_WDF_IO_QUEUE_STATE) {
    if callback.is_some() {
        bug_check(Rule::NotSimulated, format_args!("a callback for the state of a queue"));
    }
}

pub extern "C" fn WdfIoQueuePurge(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFQUEUE,
    done: PFN_WDF_IO_QUEUE_STATE,
    _context: WDFCONTEXT,
) {
    function!("WdfIoQueuePurge", |state| {
        no_callback(done);
        let queue = queue(state, handle);
        state.purge_queue(&queue);
    });
}

/// Returns when the driver has completed what it has.
pub extern "C" fn WdfIoQueuePurgeSynchronously(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) {
    function!("WdfIoQueuePurgeSynchronously", |state| {
        let queue = queue(state, handle);
        not_in_a_handler("WdfIoQueuePurgeSynchronously");
        state.purge_queue(&queue);
        until_all_are_back(state, &queue, "WdfIoQueuePurgeSynchronously");
    });
}

pub extern "C" fn WdfDeviceGetDefaultQueue(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> WDFQUEUE {
    function!("WdfDeviceGetDefaultQueue", |state| {
        std::ptr::without_provenance_mut(device(state, handle).1.default_queue.load(Acquire))
    })
}

pub extern "C" fn WdfIoQueueDrain(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFQUEUE,
    done: PFN_WDF_IO_QUEUE_STATE,
    _context: WDFCONTEXT,
) {
    function!("WdfIoQueueDrain", |state| {
        no_callback(done);
        queue(state, handle).accepts.store(false, Release);
    });
}

pub extern "C" fn WdfIoQueueStop(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFQUEUE,
    done: PFN_WDF_IO_QUEUE_STATE,
    _context: WDFCONTEXT,
) {
    function!("WdfIoQueueStop", |state| {
        no_callback(done);
        let queue = queue(state, handle);
        queue.stopped.store(true, Release);
        queue.accepts.store(true, Release);
    });
}

/// A request handler that waits for the requests of its driver waits for itself.
fn not_in_a_handler(what: &'static str) {
    if INSIDE.get() > 0 {
        bug_check(Rule::Deadlock, format_args!("{what} in a request handler"));
    }
}

/// Waits until the driver has completed the queue's requests that it owns.
fn until_all_are_back(state: &Arc<State>, queue: &QueueObject, what: &'static str) {
    if queue.delivered.load(Acquire) > 0 {
        waiting::until(state, None, what, || queue.delivered.load(Acquire) == 0);
    }
}

pub extern "C" fn WdfIoQueueStopSynchronously(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) {
    function!("WdfIoQueueStopSynchronously", |state| {
        let queue = queue(state, handle);
        not_in_a_handler("WdfIoQueueStopSynchronously");
        queue.stopped.store(true, Release);
        queue.accepts.store(true, Release);
        until_all_are_back(state, &queue, "WdfIoQueueStopSynchronously");
    });
}

/// Returns when the queue is empty too: what it has goes on to the driver.
pub extern "C" fn WdfIoQueueDrainSynchronously(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) {
    function!("WdfIoQueueDrainSynchronously", |state| {
        let queue = queue(state, handle);
        if queue.stopped.load(Acquire) {
            bug_check(Rule::Deadlock, format_args!("WdfIoQueueDrainSynchronously of a queue that is stopped"));
        }
        not_in_a_handler("WdfIoQueueDrainSynchronously");
        queue.accepts.store(false, Release);
        let is_empty = || queue.delivered.load(Acquire) == 0 && lock(&queue.waiting).is_empty();
        if !is_empty() {
            waiting::until(state, None, "WdfIoQueueDrainSynchronously", is_empty);
        }
    });
}

pub extern "C" fn WdfIoQueueGetState(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFQUEUE,
    waiting: PULONG,
    delivered: PULONG,
) -> WDF_IO_QUEUE_STATE {
    function!("WdfIoQueueGetState", |state| {
        let queue = queue(state, handle);
        let counts = [
            (waiting, ULONG::try_from(lock(&queue.waiting).len()).unwrap_or(ULONG::MAX)),
            (delivered, queue.delivered.load(Acquire)),
        ];
        for (place, count) in counts.into_iter().filter(|(place, _)| !place.is_null()) {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { place.write(count) };
        }
        let flags = [
            (queue.accepts.load(Acquire), _WDF_IO_QUEUE_STATE::WdfIoQueueAcceptRequests),
            (!queue.stopped.load(Acquire), _WDF_IO_QUEUE_STATE::WdfIoQueueDispatchRequests),
            (counts[0].1 == 0, _WDF_IO_QUEUE_STATE::WdfIoQueueNoRequests),
            (counts[1].1 == 0, _WDF_IO_QUEUE_STATE::WdfIoQueueDriverNoRequests),
        ];
        flags.into_iter().filter(|(is_so, _)| *is_so).fold(0, |all, (_, flag)| all | flag)
    })
}

pub extern "C" fn WdfIoQueueStart(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) {
    function!("WdfIoQueueStart", |state| {
        let queue = queue(state, handle);
        queue.accepts.store(true, Release);
        queue.stopped.store(false, Release);
        state.present(&queue);
    });
}

/// From `EvtIoInCallerContext`: the request goes to the queue that it is for. With an error it is the driver's still.
pub extern "C" fn WdfDeviceEnqueueRequest(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    request: WDFREQUEST,
) -> NTSTATUS {
    routine!("WdfDeviceEnqueueRequest", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        let request = owned(state, request);
        let (is_looked_at, is_cancelable) = {
            let progress = lock(&request.progress);
            (progress.outside == Outside::LookedAt, progress.cancel.is_some())
        };
        if !is_looked_at {
            let words = format_args!("WdfDeviceEnqueueRequest outside of EvtIoInCallerContext for that request");
            bug_check(Rule::RequestCancelable, words);
        }
        if is_cancelable {
            bug_check(Rule::RequestCancelable, format_args!("a cancelable request is put into its queue"));
        }
        let Some(queue) = state.queue_of(&device) else { return STATUS_INVALID_DEVICE_REQUEST };
        if !queue.accepts.load(Acquire) {
            return STATUS_WDF_BUSY;
        }
        lock(&request.progress).outside = Outside::No;
        state.enqueue(&queue, &request);
        STATUS_SUCCESS
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 1] {
    [(
        "WdfDeviceEnqueueRequest",
        WdfDeviceEnqueueRequest as extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDEVICE, WDFREQUEST) -> NTSTATUS as *const (),
    )]
}
