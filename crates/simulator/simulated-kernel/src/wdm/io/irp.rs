//! IRPs: from whoever makes one down a stack of devices, and back up by their completion.
//!
//! A device's driver has the stack location that the request was passed to it with. When the driver is done with it, the completion routine
//! that the driver above has put there is called, then that driver's is looked at, and so on, until the one who made the request is told.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
};

use wdk_bindings::{
    CCHAR, FILE_OBJECT, IO_STACK_LOCATION, IO_TYPE_IRP, IRP, IRP_MJ_DEVICE_CONTROL, IRP_MJ_INTERNAL_DEVICE_CONTROL,
    IRP_MJ_PNP, METHOD_BUFFERED, NTSTATUS, PDEVICE_OBJECT, PDRIVER_CANCEL, PIRP, SL_INVOKE_ON_CANCEL,
    SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, SL_PENDING_RETURNED, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_MORE_PROCESSING_REQUIRED, STATUS_PENDING, UCHAR, ULONG, USHORT,
};

use super::{cancel, device::Device, own::Threaded, power::PowerRequest};
use crate::{
    context::{self, DriverId, NOBODY},
    kernel::{State, lock},
    pool,
    report::bug_check,
    rule::Rule,
    tracked::{self, Kind, Object},
    wdm::{mdl, routine},
};

const TAG: u32 = u32::from_ne_bytes(*b"Irp ");
/// How many bits of a control code say how its buffers come.
pub const METHOD: ULONG = 3;
/// `METHOD_NEITHER`: the driver gets the addresses as they are.
const NEITHER: ULONG = 3;

/// Who made a request, and so what becomes of it when every driver is done with it.
pub enum Maker {
    /// The system, for a program: it copies so many bytes of its output at most. The input is a block of its own unless the method is
    /// `METHOD_BUFFERED`.
    Program { input: usize, output: usize, room: usize },
    /// Plug and play.
    System,
    /// The system, for a driver that wants a device in another power state.
    Power(PowerRequest),
    /// A driver, which frees it.
    Driver(DriverId),
    /// The system, for a driver that waits.
    Threaded(Threaded),
}

/// A driver that has the request, or has passed it on.
struct Level {
    device: Arc<Device>,
    /// Which stack location it has: those of a driver that passes its own on are the same.
    location: u8,
    progress: Mutex<Progress>,
}

/// How far a driver is with a request.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// It has passed it on.
    passed_on: bool,
    /// What its dispatch routine has returned.
    returned: Option<NTSTATUS>,
    passed: Option<Passed>,
}

/// What a driver's stack location was when the driver was done with it.
#[derive(Clone, Copy)]
struct Passed {
    status: NTSTATUS,
    marked: bool,
}

/// A request that is on its way.
pub struct Request {
    pub address: usize,
    pub code: u32,
    locations: u8,
    pub maker: Maker,
    levels: Mutex<Vec<Arc<Level>>>,
    /// The device at the bottom of a stack, which is the system's own, has had it.
    pub reached_bottom: AtomicBool,
    /// Winsock Kernel has completed it, and its driver has not made it anew since.
    is_spent: AtomicBool,
    pub outcome: Mutex<Option<Outcome>>,
}

/// How a request ended.
#[derive(Clone)]
pub struct Outcome {
    pub status: NTSTATUS,
    pub bytes: Vec<u8>,
}

/// What is asked of a device.
pub struct Question<'input> {
    pub major: u32,
    pub code: u32,
    pub input: &'input [u8],
    pub output: usize,
    pub file: *mut FILE_OBJECT,
}

/// A block of the system's own.
pub fn block(size: usize, zeroed: bool) -> usize {
    pool::allocate(NOBODY, size.max(1), TAG, zeroed)
        .unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("no memory for a request")))
}

/// Frees it.
pub fn free_block(address: usize) {
    pool::free(address, Some(TAG));
}

/// The stack location that an IRP is at (`IoGetCurrentIrpStackLocation`).
pub fn current(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: an IRP that is not complete; the arm that the I/O manager uses.
    let place = unsafe { &raw mut (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation };
    // SAFETY: as above.
    unsafe { place.read() }
}

fn set_current(irp: PIRP, location: *mut IO_STACK_LOCATION, number: u8) {
    // SAFETY: an IRP that is not complete; the arm that the I/O manager uses.
    let place = unsafe { &raw mut (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation };
    // SAFETY: as above.
    unsafe { place.write(location) };
    // SAFETY: as above.
    unsafe { (*irp).CurrentLocation = CCHAR::try_from(number).unwrap_or(CCHAR::MAX) };
}

/// The number of the stack location that an IRP is at: the first driver has the highest.
fn number(irp: PIRP) -> u8 {
    // SAFETY: an IRP that is not complete.
    let number = unsafe { (*irp).CurrentLocation };
    u8::try_from(number).unwrap_or(0)
}

/// The status that an IRP has.
pub fn status_of(irp: PIRP) -> NTSTATUS {
    // SAFETY: an IRP that is not complete.
    let block = unsafe { (*irp).IoStatus };
    // SAFETY: the arm that drivers write.
    unsafe { block.__bindgen_anon_1.Status }
}

/// Gives an IRP a status.
pub fn set_status(irp: PIRP, status: NTSTATUS) {
    // SAFETY: an IRP that is not complete.
    let block = unsafe { &mut (*irp).IoStatus };
    block.__bindgen_anon_1.Status = status;
}

fn is_marked(location: *const IO_STACK_LOCATION) -> bool {
    // SAFETY: a location of an IRP that is not complete.
    let control = unsafe { (*location).Control };
    ULONG::from(control) & SL_PENDING_RETURNED != 0
}

fn mark(location: *mut IO_STACK_LOCATION) {
    // SAFETY: a location of an IRP that is not complete.
    unsafe { (*location).Control |= UCHAR::try_from(SL_PENDING_RETURNED).unwrap_or(0) };
}

impl Level {
    /// The driver is done with the request.
    fn pass(&self, passed: Passed) {
        let returned = {
            let mut progress = lock(&self.progress);
            progress.passed = Some(passed);
            progress.returned
        };
        if returned == Some(STATUS_PENDING) && !passed.marked {
            let words = format_args!("a dispatch routine returned STATUS_PENDING, and the IRP was never marked so");
            bug_check(Rule::IrpStatus, words);
        }
    }
}

impl Request {
    /// The structure as the drivers have it.
    pub const fn pointer(&self) -> PIRP {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    fn location(&self, number: u8) -> *mut IO_STACK_LOCATION {
        self.pointer().wrapping_add(1).cast::<IO_STACK_LOCATION>().wrapping_add(usize::from(number) - 1)
    }

    /// The location of the next driver (`IoGetNextIrpStackLocation`).
    pub fn next_location(&self) -> *mut IO_STACK_LOCATION {
        current(self.pointer()).wrapping_sub(1)
    }

    /// Returns true if drivers have it: it was sent, and is not complete.
    pub fn is_on_its_way(&self) -> bool {
        !lock(&self.levels).is_empty()
    }

    /// Returns true if a device of that driver has it, or has passed it on.
    pub fn is_at(&self, owner: DriverId) -> bool {
        lock(&self.levels).iter().any(|level| level.device.owner == owner)
    }

    /// Who has it now.
    pub fn holder(&self) -> Option<Arc<Device>> {
        lock(&self.levels).last().map(|level| level.device.clone())
    }

    fn owner_at(&self, location: u8) -> DriverId {
        let found = lock(&self.levels).iter().rfind(|level| level.location == location).map(|level| level.device.owner);
        found.unwrap_or(match &self.maker {
            Maker::Driver(owner) => *owner,
            Maker::Threaded(threaded) => threaded.owner,
            _ => NOBODY,
        })
    }
}

/// The structure, at its first location: that of whoever made it.
fn write(request: &Request) {
    let mut irp = std::mem::MaybeUninit::<IRP>::zeroed();
    // SAFETY: zeroes are a value of every field: numbers and pointers.
    let irp = unsafe { irp.assume_init_mut() };
    irp.Type = i16::try_from(IO_TYPE_IRP).unwrap_or(0);
    irp.Size = USHORT::try_from(size_of_irp(request.locations)).unwrap_or(0);
    irp.StackCount = CCHAR::try_from(request.locations).unwrap_or(CCHAR::MAX);
    // SAFETY: the request's own block, which has room for it.
    unsafe { request.pointer().write(*irp) };
    for number in 1..=request.locations {
        // SAFETY: as above; zeroes are a value of every field.
        unsafe { request.location(number).write_bytes(0, 1) };
    }
    set_current(request.pointer(), request.location(1).wrapping_add(request.locations.into()), request.locations + 1);
}

const fn size_of_irp(locations: u8) -> usize {
    size_of::<IRP>() + locations as usize * size_of::<IO_STACK_LOCATION>()
}

impl State {
    /// Makes a request with so many stack locations.
    pub fn make_irp(&self, locations: u8, code: u32, maker: Maker) -> Arc<Request> {
        let request = Arc::new(Request {
            address: block(size_of_irp(locations), true),
            code,
            locations,
            maker,
            levels: Mutex::default(),
            reached_bottom: AtomicBool::new(false),
            is_spent: AtomicBool::new(false),
            outcome: Mutex::default(),
        });
        write(&request);
        self.track(request.address, NOBODY, Object::Plain(Kind::Irp));
        lock(&self.wdm.io).requests.insert(request.address, request.clone());
        request
    }

    /// The request that an IRP is. `None` if it is none, or was complete.
    pub fn irp(&self, irp: PIRP) -> Option<Arc<Request>> {
        let found = lock(&self.wdm.io).requests.get(&irp.addr()).cloned();
        if found.is_none() {
            self.check_moved(irp.addr(), Kind::Irp);
        }
        found
    }

    /// Begins anew with a request that nobody has.
    pub fn reset_irp(request: &Request) {
        write(request);
        request.is_spent.store(false, Release);
        tracked::seal(request.address, Kind::Irp);
    }

    /// The memory of a request that has come to its end.
    pub fn free_irp(&self, request: &Request) {
        lock(&self.wdm.io).requests.remove(&request.address);
        self.untrack_and_remember(request.address, Kind::Irp, ", and completed or freed since");
        free_block(request.address);
    }

    /// Sends a program's request to a device, whose driver gets it before this returns.
    pub fn call_device(self: &Arc<Self>, device: &Arc<Device>, question: &Question<'_>) -> Arc<Request> {
        let method = question.code & METHOD;
        let (length, room) = (question.input.len(), question.output);
        let input = block(if method == METHOD_BUFFERED { length.max(room) } else { length }, false);
        let output = if method == METHOD_BUFFERED { input } else { block(room, false) };
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(input);
        // SAFETY: a new block with room for the input.
        unsafe { start.copy_from_nonoverlapping(question.input.as_ptr(), length) };
        let device = self.top_of(device);
        let request = self.make_irp(device.locations(), question.code, Maker::Program { input, output, room });
        let is_control = question.major == IRP_MJ_DEVICE_CONTROL;
        if is_control {
            self.give_buffers(&request, method, (input, length), (output, room));
        }
        // SAFETY: the location of the driver that gets it first, as the request's block has it.
        let location = unsafe { &mut *request.next_location() };
        location.MajorFunction = UCHAR::try_from(question.major).unwrap_or(0);
        location.FileObject = question.file;
        if is_control {
            // SAFETY: the arm of this kind of request.
            let control = unsafe { &mut location.Parameters.DeviceIoControl };
            control.IoControlCode = question.code;
            control.InputBufferLength = ULONG::try_from(length).unwrap_or(0);
            control.OutputBufferLength = ULONG::try_from(room).unwrap_or(0);
        }
        self.pass(&request, &device);
        request
    }

    /// Puts the buffers where the method of a control code has them. One without bytes is not there.
    pub fn give_buffers(&self, request: &Request, method: ULONG, input: (usize, usize), output: (usize, usize)) {
        let of = |(place, length): (usize, usize)| if length == 0 { 0 } else { place };
        let pointer = std::ptr::with_exposed_provenance_mut::<c_void>;
        // SAFETY: the request's own block, which nobody else has yet.
        let irp = unsafe { &mut *request.pointer() };
        match method {
            METHOD_BUFFERED => irp.AssociatedIrp.SystemBuffer = pointer(of((input.0, input.1.max(output.1)))),
            NEITHER => {
                irp.UserBuffer = pointer(of(output));
                // SAFETY: the location of the driver that gets it first.
                let location = unsafe { &mut *request.next_location() };
                // SAFETY: the arm of this kind of request.
                let control = unsafe { &mut location.Parameters.DeviceIoControl };
                control.Type3InputBuffer = pointer(of(input));
            }
            _ => {
                irp.AssociatedIrp.SystemBuffer = pointer(of(input));
                if output.1 > 0 {
                    irp.MdlAddress = mdl::allocate_locked(self, output.0, ULONG::try_from(output.1).unwrap_or(0));
                }
            }
        }
    }

    /// The next stack location of a request becomes that of a device.
    fn enter(request: &Request, device: &Arc<Device>) -> Arc<Level> {
        let irp = request.pointer();
        let number = number(irp).saturating_sub(1);
        if number == 0 {
            let words = format_args!("an IRP with {} stack locations has none for another driver", request.locations);
            bug_check(Rule::IrpStackLocations, words);
        }
        let location = request.next_location();
        set_current(irp, location, number);
        // SAFETY: a location of the request's own block.
        unsafe { (*location).DeviceObject = device.pointer() };
        // SAFETY: as above.
        let major = u32::from(unsafe { (*location).MajorFunction });
        let level = Arc::new(Level { device: device.clone(), location: number, progress: Mutex::default() });
        {
            let mut levels = lock(&request.levels);
            if let Some(above) = levels.last() {
                lock(&above.progress).passed_on = true;
            }
            levels.push(level.clone());
        }
        // A device is deleted while it is told of its removal.
        if major != IRP_MJ_PNP {
            device.users.fetch_add(1, AcqRel);
        }
        if device.owner == NOBODY {
            request.reached_bottom.store(true, Release);
        }
        level
    }

    /// Passes a request to a device: its driver gets it before this returns. What the driver says.
    pub fn pass(self: &Arc<Self>, request: &Arc<Request>, device: &Arc<Device>) -> NTSTATUS {
        let irp = request.pointer();
        let level = Self::enter(request, device);
        // SAFETY: the location of the device's driver.
        let major = u32::from(unsafe { (*current(irp)).MajorFunction });
        let Some(dispatch) = device.dispatch(major) else {
            set_status(irp, STATUS_INVALID_DEVICE_REQUEST);
            self.climb(request);
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        let status = context::call(device.owner, "a dispatch routine", || {
            // SAFETY: the driver's own routine, with its own device and an IRP that lives until it is complete.
            unsafe { dispatch(device.pointer(), irp) }
        });
        check_returned(request, &level, status);
        status
    }

    /// A part of the system that is no driver takes the IRP of a call, as Winsock Kernel does. It has a stack location for it and, if it is a
    /// driver's own, a completion routine for every end.
    pub fn take_irp(&self, irp: PIRP, device: &Arc<Device>, name: &str) -> Arc<Request> {
        if irp.is_null() {
            bug_check(Rule::WskIrp, format_args!("{name} without an IRP"));
        }
        let Some(request) = self.irp(irp) else {
            bug_check(
                Rule::IrpCompletedTwice,
                format_args!("{irp:p} is given to {name} and is no IRP, or was completed"),
            );
        };
        let is_own = matches!(request.maker, Maker::Driver(_));
        if is_own && request.is_spent.load(Acquire) {
            bug_check(Rule::WskIrp, format_args!("{name} with an IRP that it has completed, without IoReuseIrp"));
        }
        if number(irp) > 1 {
            check_cancel_routine(irp, "given away");
            // SAFETY: a location of the request's own block.
            let next = unsafe { &mut *request.next_location() };
            let every = SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL;
            let covers = next.CompletionRoutine.is_some() && ULONG::from(next.Control) & every == every;
            if is_own && !covers {
                let words = "whose completion routine is not for success, failure and cancellation";
                bug_check(Rule::WskIrp, format_args!("{name} with an IRP of the driver's own {words}"));
            }
            next.MajorFunction = UCHAR::try_from(IRP_MJ_INTERNAL_DEVICE_CONTROL).unwrap_or(0);
        }
        Self::enter(&request, device);
        request
    }

    /// What was taken is completed later: with `cancel` as its routine, if it can be cancelled.
    pub fn pend_irp(&self, request: &Request, cancel: PDRIVER_CANCEL) {
        mark(current(request.pointer()));
        let _held = self.hold_cancellation();
        // SAFETY: an IRP that is not complete, whose routine changes under that lock only.
        unsafe { (*request.pointer()).CancelRoutine = cancel };
    }

    /// Completes what was taken. The caller holds no lock.
    pub fn finish_irp(self: &Arc<Self>, request: &Arc<Request>, status: NTSTATUS, information: usize) {
        let irp = request.pointer();
        {
            let _held = self.hold_cancellation();
            // SAFETY: an IRP that is not complete, whose routine changes under that lock only.
            unsafe { (*irp).CancelRoutine = None };
        }
        set_status(irp, status);
        // SAFETY: an IRP that is not complete.
        unsafe { (*irp).IoStatus.Information = information as u64 };
        request.is_spent.store(true, Release);
        self.climb(request);
        self.preempt();
    }

    /// The driver that has a request is done with it: calls the completion routines of those above, until one keeps the request.
    fn climb(self: &Arc<Self>, request: &Arc<Request>) {
        let irp = request.pointer();
        loop {
            let (number, done) = (number(irp), current(irp));
            let (status, marked) = (status_of(irp), is_marked(done));
            // SAFETY: the location of a request that is not complete.
            let location = unsafe { done.read() };
            let gone = {
                let mut levels = lock(&request.levels);
                let gone: Vec<Arc<Level>> = levels.extract_if(.., |level| level.location == number).collect();
                for level in &gone {
                    level.pass(Passed { status, marked });
                }
                set_current(irp, done.wrapping_add(1), number + 1);
                gone
            };
            if u32::from(location.MajorFunction) != IRP_MJ_PNP {
                for level in gone {
                    self.leave_device(&level.device);
                }
            }
            // SAFETY: an IRP that is not complete.
            unsafe { (*irp).PendingReturned = marked.into() };
            let is_top = number == request.locations;
            if let Some(routine) = location.CompletionRoutine.filter(|_| is_wanted(irp, &location)) {
                // SAFETY: a location of a request that is not complete; there is one unless this was the highest.
                let above = if is_top { std::ptr::null_mut() } else { unsafe { (*current(irp)).DeviceObject } };
                // SAFETY: the location was the driver's that is done with it.
                unsafe { (*done).Control = 0 };
                if pool::is_live(location.Context.addr()) == Some(false) {
                    let words = format_args!(
                        "the context {:p} of a completion routine is in memory that is free",
                        location.Context
                    );
                    bug_check(Rule::UseAfterFree, words);
                }
                let answer = context::call(request.owner_at(number + 1), "a completion routine", || {
                    // SAFETY: the routine that the driver above has set, with its device, the IRP and the driver's own context.
                    unsafe { routine(above, irp, location.Context) }
                });
                if answer == STATUS_MORE_PROCESSING_REQUIRED {
                    return;
                }
            } else if marked && !is_top {
                mark(current(irp));
            }
            if is_top {
                self.end(request);
                return;
            }
        }
    }

    /// All drivers are done with a request.
    fn end(self: &Arc<Self>, request: &Arc<Request>) {
        let irp = request.pointer();
        let status = status_of(irp);
        // SAFETY: an IRP that is not complete.
        let information = unsafe { (*irp).IoStatus.Information };
        // SAFETY: as above. What the driver has added is unlocked and freed too.
        let chain = std::mem::replace(unsafe { &mut (*irp).MdlAddress }, std::ptr::null_mut());
        mdl::free_chain(self, chain);
        let mut bytes = Vec::new();
        match &request.maker {
            Maker::Program { input, output, room } => {
                let start: *const u8 = std::ptr::with_exposed_provenance(*output);
                let length = usize::try_from(information).unwrap_or(usize::MAX).min(*room);
                // SAFETY: the request's buffer has at least as many bytes.
                bytes = unsafe { std::slice::from_raw_parts(start, length) }.to_vec();
                free_block(*input);
                if output != input {
                    free_block(*output);
                }
            }
            Maker::System => {}
            Maker::Power(power) => power.tell(irp),
            Maker::Threaded(threaded) => threaded.tell(self, irp),
            Maker::Driver(_) => bug_check(
                Rule::IrpNotTaken,
                format_args!("an IRP that a driver allocated has come back, and no completion routine kept it"),
            ),
        }
        *lock(&request.outcome) = Some(Outcome { status, bytes });
        self.free_irp(request);
        self.dispatcher.signal();
    }
}

/// Returns true if the completion routine of a location is to be called for how the request ends.
fn is_wanted(irp: PIRP, location: &IO_STACK_LOCATION) -> bool {
    // SAFETY: an IRP that is not complete.
    let cancelled = unsafe { (*irp).Cancel } != 0;
    let by_status = if status_of(irp) >= 0 { SL_INVOKE_ON_SUCCESS } else { SL_INVOKE_ON_ERROR };
    let on = by_status | if cancelled { SL_INVOKE_ON_CANCEL } else { 0 };
    ULONG::from(location.Control) & on != 0
}

/// What a dispatch routine returns must be what it has done.
fn check_returned(request: &Request, level: &Level, status: NTSTATUS) {
    let (Progress { passed_on, passed, .. }, marked) = {
        // While the driver's location was not passed the request is not complete.
        let _still = lock(&request.levels);
        let mut progress = lock(&level.progress);
        progress.returned = Some(status);
        let marked = |passed: Passed| passed.marked;
        (*progress, progress.passed.map_or_else(|| is_marked(request.location(level.location)), marked))
    };
    if passed.is_none() && passed_on && status == STATUS_PENDING {
        // A completion routine marks it when the driver below is done; that is looked at then.
        return;
    }
    if (status == STATUS_PENDING) != marked {
        bug_check(
            Rule::IrpStatus,
            format_args!("a dispatch routine returned {status:#x} for an IRP that is marked as pending: {marked}"),
        );
    }
    match passed {
        None if !marked => {
            bug_check(
                Rule::IrpNeverCompleted,
                format_args!("a dispatch routine returned {status:#x} and did not complete"),
            );
        }
        Some(passed) if !marked && passed.status != status => bug_check(
            Rule::IrpStatus,
            format_args!("a dispatch routine returned {status:#x} for an IRP completed with {:#x}", passed.status),
        ),
        _ => {}
    }
}

/// What a driver may not do while it passes a request on, or completes it.
fn check_cancel_routine(irp: PIRP, what: &str) {
    // SAFETY: the IRP is the driver's until now.
    if unsafe { (*irp).CancelRoutine }.is_some() {
        bug_check(Rule::IrpCancelRoutine, format_args!("an IRP is {what} with its cancel routine set"));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn IofCallDriver(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    routine!("IofCallDriver", |state| state.call_driver(device, irp))
}

impl State {
    /// A driver passes a request to a device.
    pub fn call_driver(self: &Arc<Self>, device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
        let Some(request) = self.irp(irp) else {
            bug_check(Rule::IrpCompletedTwice, format_args!("{irp:p} is passed on and is no IRP, or was completed"));
        };
        let device = self.device_at(device);
        check_cancel_routine(irp, "passed on");
        let status = self.pass(&request, &device);
        self.preempt();
        status
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn IofCompleteRequest(irp: PIRP, _boost: CCHAR) {
    routine!("IofCompleteRequest", |state| {
        let Some(request) = state.irp(irp).filter(|request| number(irp) <= request.locations) else {
            bug_check(Rule::IrpCompletedTwice, format_args!("{irp:p} is no IRP, or was completed"));
        };
        if host::machine::locks_held() > 0 {
            bug_check(Rule::LockHeld, format_args!("an IRP is completed with a spin lock held"));
        }
        check_cancel_routine(irp, "completed");
        check_holder(&request, context::caller());
        cancel::check_status(irp, status_of(irp));
        if status_of(irp) == STATUS_PENDING {
            bug_check(Rule::IrpStatus, format_args!("an IRP is completed as pending"));
        }
        // SAFETY: the IRP is the driver's until now.
        let information = usize::try_from(unsafe { (*irp).IoStatus.Information }).unwrap_or(usize::MAX);
        let room = match &request.maker {
            Maker::Program { room, .. } => Some(*room),
            Maker::Threaded(threaded) => threaded.room(),
            _ => None,
        };
        // SAFETY: the location of a request that is not complete.
        let is_control = u32::from(unsafe { (*current(irp)).MajorFunction }) == IRP_MJ_DEVICE_CONTROL;
        if let Some(room) = room.filter(|&room| is_control && information > room) {
            let words = format_args!("an IRP is completed with {information} bytes of {room}");
            bug_check(Rule::RequestInformation, words);
        }
        state.climb(&request);
        state.preempt();
    });
}

/// A driver that has passed a request on does not have it any more.
fn check_holder(request: &Request, caller: DriverId) {
    let holder = request.holder().map(|device| device.owner);
    if holder != Some(caller) && request.is_at(caller) {
        bug_check(Rule::IrpNotOwned, format_args!("an IRP is completed by a driver that has passed it to another one"));
    }
}
