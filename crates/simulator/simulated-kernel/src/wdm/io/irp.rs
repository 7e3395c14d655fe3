//! IRPs: from whoever makes one down a stack of devices, and back up by their completion.
//!
//! A device's driver has the stack location that the request was passed to it with. When the driver is done with it, the completion routine
//! that the driver above has put there is called, then that driver's is looked at, and so on, until the one who made the request is told.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::Ordering::{AcqRel, Acquire, Release},
    },
};

use wdk_bindings::{
    CCHAR, FILE_OBJECT, IO_STACK_LOCATION, IRP_MJ_DEVICE_CONTROL, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_PNP,
    IRP_MJ_READ, IRP_MJ_WRITE, LARGE_INTEGER, METHOD_BUFFERED, NTSTATUS, PDEVICE_OBJECT, PDRIVER_CANCEL, PIRP,
    SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_MORE_PROCESSING_REQUIRED, STATUS_PENDING, UCHAR, ULONG,
};

use super::{
    block, cancel,
    device::Device,
    request::{
        Done, Level, Maker, Outcome, Passed, Progress, Request, current, is_marked, mark, number, set_current,
        set_status, status_of,
    },
};
use crate::{
    context::{self, DriverId, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    wdm::mdl,
};

/// How many bits of a control code say how its buffers come.
pub const METHOD: ULONG = 3;
/// `METHOD_NEITHER`: the driver gets the addresses as they are.
const NEITHER: ULONG = 3;

/// What is asked of a device.
pub struct Question<'input> {
    pub major: u32,
    pub code: u32,
    pub input: &'input [u8],
    pub output: usize,
    /// Where a read or write begins.
    pub offset: i64,
    pub file: *mut FILE_OBJECT,
    /// What is told of its end: the file, which is there as long as the request. `None` for what a file begins and ends with.
    pub done: Option<Done>,
}

impl State {
    /// Sends a program's request to a device, whose driver gets it before this returns.
    pub fn call_device(self: &Arc<Self>, device: &Arc<Device>, question: &Question<'_>) -> Arc<Request> {
        let is_control = question.major == IRP_MJ_DEVICE_CONTROL;
        let device = self.top_of(device);
        let method = if is_control { question.code & METHOD } else { device.method() };
        let (length, room) = (question.input.len(), question.output);
        let input = block::allocate(if method == METHOD_BUFFERED { length.max(room) } else { length }, false);
        let output = if method == METHOD_BUFFERED { input } else { block::allocate(room, false) };
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(input);
        // SAFETY: a new block with room for the input.
        unsafe { start.copy_from_nonoverlapping(question.input.as_ptr(), length) };
        let maker = Maker::Program { input, output, room, done: question.done.clone() };
        let request = self.make_irp(device.locations(), question.code, maker);
        let is_transfer = [IRP_MJ_READ, IRP_MJ_WRITE].contains(&question.major);
        if is_transfer {
            let buffer = if room > 0 { (output, room) } else { (input, length) };
            self.give_buffer(&request, method, buffer);
        }
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
        if is_transfer {
            // The arm of these kinds of requests: both have the same fields, and zeros are the key.
            location.Parameters.Read.Length = ULONG::try_from(length.max(room)).unwrap_or(0);
            location.Parameters.Read.ByteOffset = LARGE_INTEGER { QuadPart: question.offset };
        }
        self.pass(&request, &device);
        request
    }

    /// Puts the buffer of a read or write where the device's flags want it. One without bytes is not there.
    fn give_buffer(&self, request: &Request, method: ULONG, (place, length): (usize, usize)) {
        if length == 0 {
            return;
        }
        let pointer = std::ptr::with_exposed_provenance_mut::<c_void>(place);
        // SAFETY: the request's own block, which nobody else has yet.
        let irp = unsafe { &mut *request.pointer() };
        match method {
            METHOD_BUFFERED => irp.AssociatedIrp.SystemBuffer = pointer,
            NEITHER => irp.UserBuffer = pointer,
            _ => irp.MdlAddress = mdl::allocate_locked(self, place, ULONG::try_from(length).unwrap_or(0)),
        }
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
        // SAFETY: a location of the request's own block.
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
                let context = location.Context;
                pool::check_live(context.addr(), format_args!("the context {context:p} of a completion routine is in"));
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
            Maker::Program { input, output, room, .. } => {
                let start: *const u8 = std::ptr::with_exposed_provenance(*output);
                let length = usize::try_from(information).unwrap_or(usize::MAX).min(*room);
                // SAFETY: the request's buffer has at least as many bytes.
                bytes = unsafe { std::slice::from_raw_parts(start, length) }.to_vec();
                block::free(*input);
                if output != input {
                    block::free(*output);
                }
            }
            Maker::System | Maker::Framework => {}
            Maker::Power(end) | Maker::Preprocessed(end) | Maker::Threaded { end, .. } => end(self, irp),
            Maker::Driver(_) => bug_check(
                Rule::IrpNotTaken,
                format_args!("an IRP that a driver allocated has come back, and no completion routine kept it"),
            ),
        }
        *lock(&request.outcome) = Some(Outcome { status, bytes });
        self.free_irp(request);
        if let Maker::Program { done: Some(done), .. } = &request.maker {
            done();
        }
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
        if request.is_with_framework.load(Acquire) {
            bug_check(
                Rule::NotSimulated,
                format_args!("the IRP of a framework's request is passed on by IoCallDriver"),
            );
        }
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
        if request.is_with_framework.load(Acquire) {
            let words = format_args!("the IRP of a framework's request is completed, which WdfRequestComplete does");
            bug_check(Rule::IrpNotOwned, words);
        }
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
            Maker::Threaded { room, .. } => *room,
            _ => None,
        };
        // SAFETY: the location of a request that is not complete.
        let location = unsafe { current(irp).read() };
        let room = match u32::from(location.MajorFunction) {
            IRP_MJ_DEVICE_CONTROL if request.is_seen() => {
                // SAFETY: the arm of this kind of request.
                Some(unsafe { location.Parameters.DeviceIoControl.OutputBufferLength } as usize)
            }
            // Of a request without output nothing is copied, and the number is its maker's to read.
            IRP_MJ_DEVICE_CONTROL => room.filter(|&room| room != 0),
            // SAFETY: the arm of these kinds of requests.
            IRP_MJ_READ | IRP_MJ_WRITE => Some(unsafe { location.Parameters.Read.Length } as usize),
            _ => None,
        };
        if let Some(room) = room.filter(|&room| information > room) {
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
