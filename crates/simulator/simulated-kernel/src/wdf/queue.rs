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
    _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_IO_QUEUE_STATE, _WDF_REQUEST_TYPE, _WDF_TRI_STATE, NTSTATUS,
    PFN_WDF_IO_QUEUE_IO_CANCELED_ON_QUEUE, PFN_WDF_IO_QUEUE_IO_DEFAULT, PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL,
    PFN_WDF_IO_QUEUE_IO_INTERNAL_DEVICE_CONTROL, PFN_WDF_IO_QUEUE_IO_READ, PFN_WDF_IO_QUEUE_IO_RESUME,
    PFN_WDF_IO_QUEUE_IO_STOP, PFN_WDF_IO_QUEUE_IO_WRITE, PFN_WDF_IO_QUEUE_STATE, PULONG, PWDF_DRIVER_GLOBALS,
    PWDF_IO_QUEUE_CONFIG, PWDF_OBJECT_ATTRIBUTES, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES,
    STATUS_SUCCESS, STATUS_UNSUCCESSFUL, ULONG, WDF_IO_QUEUE_CONFIG, WDF_IO_QUEUE_DISPATCH_TYPE, WDF_IO_QUEUE_STATE,
    WDF_REQUEST_TYPE, WDFCONTEXT, WDFDEVICE, WDFQUEUE, WDFREQUEST,
};

use super::{
    device::{DeviceObject, device},
    function::{entry, function},
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
    internal: PFN_WDF_IO_QUEUE_IO_INTERNAL_DEVICE_CONTROL,
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
    /// Its device is being removed: it accepts nothing any more, whatever the driver says.
    shut: AtomicBool,
    /// Request handlers that run for it.
    handlers: AtomicU32,
    pub power: Power,
}

/// What power management does with a queue.
pub struct Power {
    /// The queue follows the power of its device.
    pub managed: bool,
    /// Where it is: changed under the lock of what waits, so that nothing is handed out afterwards.
    phase: Mutex<Phase>,
    pub stop: PFN_WDF_IO_QUEUE_IO_STOP,
    pub resume: PFN_WDF_IO_QUEUE_IO_RESUME,
}

/// How far power management is with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    On,
    /// It hands out nothing, and the driver is told. A driver may still take requests from it.
    Changing,
    /// Nothing comes out of it.
    Off,
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
        if lock(&self.device.dispatching).contains(&object.handle) {
            bug_check(
                Rule::BadHandle,
                format_args!("a driver may not delete a queue to which requests are dispatched"),
            );
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

impl QueueObject {
    /// From now on it is in that phase. A handler may be about to run: [`QueueObject::is_handing_out`].
    pub fn set_phase(&self, phase: Phase) {
        let waiting = lock(&self.waiting);
        *lock(&self.power.phase) = phase;
        drop(waiting);
    }

    /// Returns true while a request handler runs for it.
    pub fn is_handing_out(&self) -> bool {
        self.handlers.load(Acquire) > 0
    }

    /// Returns true if it has a callback for that kind of requests only.
    const fn has_own_callback(&self, asks: Asks) -> bool {
        match asks {
            Asks::Read => self.read.is_some(),
            Asks::Write => self.write.is_some(),
            Asks::Internal => self.internal.is_some(),
            Asks::Control => self.control.is_some(),
            Asks::Made | Asks::Create => false,
        }
    }

    /// Returns true if the driver gets requests of that kind from it.
    fn is_for(&self, asks: Asks) -> bool {
        let is_manual = self.dispatch == _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual;
        is_manual || self.other.is_some() || self.has_own_callback(asks)
    }

    /// It accepts nothing any more.
    pub fn shut(&self) {
        self.shut.store(true, Release);
    }

    fn phase(&self) -> Phase {
        *lock(&self.power.phase)
    }

    /// It takes requests again, unless its device is being removed.
    fn accept_again(&self) {
        self.accepts.store(!self.shut.load(Acquire), Release);
    }

    /// The next request for a handler, if the driver may have one more.
    fn take_next(&self) -> Option<Arc<RequestObject>> {
        let mut waiting = lock(&self.waiting);
        if self.delivered.load(Acquire) >= self.most || self.stopped.load(Acquire) || self.phase() != Phase::On {
            return None;
        }
        let request = waiting.pop_front()?;
        self.delivered.fetch_add(1, AcqRel);
        self.handlers.fetch_add(1, AcqRel);
        Some(request)
    }
}

/// The queue with a handle that a driver passes.
pub fn queue<T>(state: &State, handle: *mut T) -> Arc<QueueObject> {
    state.given_as(handle).1
}

impl State {
    /// The queue that a device's requests of that kind go to.
    fn queue_for(&self, device: &DeviceObject, asks: Asks) -> Option<Arc<QueueObject>> {
        let of_its_own = dispatched(device, asks).unwrap_or(0);
        let queue = if of_its_own == 0 { device.default_queue.load(Acquire) } else { of_its_own };
        (queue != 0).then(|| self.object(queue)).and_then(|object| object.part())
    }

    /// The same, while the device is there.
    pub fn queue_of(&self, device: &DeviceObject, asks: Asks) -> Option<Arc<QueueObject>> {
        if device.finished.load(Acquire) { self.queue_for(device, asks) } else { None }
    }

    /// The queue that the driver has named for requests that create files. The default queue has none of them.
    pub fn queue_for_files(&self, device: &DeviceObject) -> Option<Arc<QueueObject>> {
        let queue = dispatched(device, Asks::Create).filter(|&queue| queue != 0)?;
        self.object(queue).part()
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
        match self.queue_of(device, request.asks) {
            Some(queue) => self.enqueue(&queue, request),
            None => self.finish_request(request, STATUS_INVALID_DEVICE_REQUEST, 0),
        }
    }

    /// Whether the framework passes requests of that kind on from a filter, because they have no callback there. So its published source
    /// has it: unless the driver looks at them first, and only of the default queue (`FxPkgIo::Dispatch`).
    pub fn passes_on(&self, device: &DeviceObject, asks: Asks) -> bool {
        let queue = self.queue_for(device, asks);
        device.with.filter && device.with.looks_first.is_none() && !queue.is_some_and(|queue| queue.is_for(asks))
    }

    /// The highest device of a stack, from that one down, whose driver has requests of that kind.
    pub fn first_that_looks(&self, top: &Arc<DeviceObject>, asks: Asks) -> Arc<DeviceObject> {
        let mut device = top.clone();
        while !device.first.sees(asks.major())
            && self.passes_on(&device, asks)
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
        let seen = lock(&request.irp).clone().filter(|irp| irp.is_seen());
        if let Some(irp) = seen {
            self.cancel_irp(&irp);
            return;
        }
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
                || queue.phase() != Phase::On
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
            let Some(request) = queue.take_next() else { return };
            request.deliver(queue);
            self.hand_out(queue, &request);
            queue.handlers.fetch_sub(1, AcqRel);
            self.dispatcher.signal();
        }
    }

    /// Gives a request to the queue's handler for its kind.
    fn hand_out(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
        let is_transfer = [Asks::Read, Asks::Write].contains(&request.asks);
        if !queue.has_own_callback(request.asks) && queue.other.is_none() {
            self.complete_request(request, STATUS_INVALID_DEVICE_REQUEST, 0);
            return;
        }
        if is_transfer && request.input.max(request.output) == 0 && !queue.takes_nothing {
            self.complete_request(request, STATUS_SUCCESS, 0);
            return;
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
                // SAFETY: the driver's own callback, with live handles.
                unsafe { write(of_queue, of_request, input) };
            });
        } else if let Some(control) = queue.control.filter(|_| request.asks == Asks::Control) {
            context::call(queue.owner, "EvtIoDeviceControl", || {
                // SAFETY: the driver's own callback, with live handles.
                unsafe { control(of_queue, of_request, output, input, code) };
            });
        } else if let Some(internal) = queue.internal.filter(|_| request.asks == Asks::Internal) {
            // What the structure has in these places, whatever it is.
            let low = |argument: usize| argument & 0xFFFF_FFFF;
            let (output, input) = request.others.map_or((output, input), |others| (low(others[0]), low(others[1])));
            context::call(queue.owner, "EvtIoInternalDeviceControl", || {
                // SAFETY: the driver's own callback, with live handles.
                unsafe { internal(of_queue, of_request, output, input, code) };
            });
        } else if let Some(other) = queue.other {
            context::call(queue.owner, "EvtIoDefault", || {
                // SAFETY: the driver's own callback, with live handles.
                unsafe { other(of_queue, of_request) };
            });
        }
        INSIDE.set(INSIDE.get() - 1);
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
        self.put_in_front(queue, request);
        STATUS_SUCCESS
    }

    /// A request that the driver has had from a queue is the first in it again; one that was cancelled meanwhile has waited there.
    pub fn put_in_front(self: &Arc<Self>, queue: &Arc<QueueObject>, request: &Arc<RequestObject>) {
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
        let managed = match config.PowerManaged {
            _WDF_TRI_STATE::WdfFalse => false,
            _WDF_TRI_STATE::WdfTrue => true,
            _WDF_TRI_STATE::WdfUseDefault => !device.with.filter,
            other => bug_check(Rule::BadArgument, format_args!("a queue with PowerManaged {other}")),
        };
        // A control device has no power.
        let managed = managed && !device.control;
        let is_off = managed && !device.powered.load(Acquire);
        let queue = Arc::new(QueueObject {
            owner: device.owner,
            handle: AtomicUsize::new(0),
            device: device.clone(),
            dispatch: config.DispatchType,
            control: config.EvtIoDeviceControl,
            internal: config.EvtIoInternalDeviceControl,
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
            shut: AtomicBool::new(false),
            handlers: AtomicU32::new(0),
            power: Power {
                managed,
                phase: Mutex::new(if is_off { Phase::Off } else { Phase::On }),
                stop: config.EvtIoStop,
                resume: config.EvtIoResume,
            },
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
        if queue.stopped.load(Acquire) || queue.phase() == Phase::Off {
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
        queue.accept_again();
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
        queue.accept_again();
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
            (queue.power.managed && queue.phase() != Phase::On, _WDF_IO_QUEUE_STATE::WdfIoQueuePnpHeld),
        ];
        flags.into_iter().filter(|(is_so, _)| *is_so).fold(0, |all, (_, flag)| all | flag)
    })
}

pub extern "C" fn WdfIoQueueStart(_globals: PWDF_DRIVER_GLOBALS, handle: WDFQUEUE) {
    function!("WdfIoQueueStart", |state| {
        let queue = queue(state, handle);
        queue.accept_again();
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
        let Some(queue) = state.queue_of(&device, request.asks) else { return STATUS_INVALID_DEVICE_REQUEST };
        if !queue.accepts.load(Acquire) {
            return STATUS_WDF_BUSY;
        }
        lock(&request.progress).outside = Outside::No;
        state.enqueue(&queue, &request);
        STATUS_SUCCESS
    })
}

/// The kinds of requests that may have a queue of their own, by their numbers for the framework.
const KINDS: [(WDF_REQUEST_TYPE, Asks); 5] = [
    (_WDF_REQUEST_TYPE::WdfRequestTypeCreate, Asks::Create),
    (_WDF_REQUEST_TYPE::WdfRequestTypeRead, Asks::Read),
    (_WDF_REQUEST_TYPE::WdfRequestTypeWrite, Asks::Write),
    (_WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl, Asks::Control),
    (_WDF_REQUEST_TYPE::WdfRequestTypeDeviceControlInternal, Asks::Internal),
];

/// The queue that the driver has named for a kind of requests; zero without one. `None` if there is none for that kind.
fn dispatched(device: &DeviceObject, asks: Asks) -> Option<usize> {
    let place = KINDS.iter().position(|(_, kind)| *kind == asks)?;
    Some(lock(&device.dispatching)[place])
}

/// Requests of one kind go to a queue of their own.
pub extern "C" fn WdfDeviceConfigureRequestDispatching(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    to: WDFQUEUE,
    kind: WDF_REQUEST_TYPE,
) -> NTSTATUS {
    routine!("WdfDeviceConfigureRequestDispatching", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        let Some(place) = KINDS.iter().position(|(number, _)| *number == kind) else {
            return STATUS_INVALID_PARAMETER;
        };
        let to = queue(state, to);
        if !Arc::ptr_eq(&to.device, &device) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        // When requests may come it is too late.
        if device.finished.load(Acquire) {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let of_queue = to.handle.load(Acquire);
        // Files are created by no other queue, so that it may be the default one.
        let creates = KINDS[place].1 == Asks::Create;
        if !to.is_for(KINDS[place].1) || !creates && device.default_queue.load(Acquire) == of_queue {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        let mut dispatching = lock(&device.dispatching);
        if dispatching[place] != 0 {
            return if creates { STATUS_INVALID_PARAMETER } else { STATUS_WDF_BUSY };
        }
        dispatching[place] = of_queue;
        STATUS_SUCCESS
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfDeviceEnqueueRequest), entry!(WdfDeviceConfigureRequestDispatching)]
}
