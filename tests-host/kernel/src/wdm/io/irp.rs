//! IRPs: from the I/O manager to a driver's dispatch routine, and back by their completion.

use std::sync::{Arc, Mutex, atomic::Ordering::AcqRel};

use wdk_bindings::{
    CCHAR, FILE_OBJECT, IO_STACK_LOCATION, IO_TYPE_IRP, IRP, IRP_MJ_DEVICE_CONTROL, METHOD_BUFFERED, NTSTATUS, PIRP,
    SL_PENDING_RETURNED, STATUS_INVALID_DEVICE_REQUEST, STATUS_PENDING, UCHAR, ULONG, USHORT,
};

use super::device::Device;
use crate::{
    context::{self, NOBODY},
    kernel::{State, lock},
    pool,
    report::bug_check,
    rule::Rule,
    wdm::routine,
};

const TAG: u32 = u32::from_ne_bytes(*b"Irp ");

/// A request that is on its way.
pub struct Request {
    pub device: Arc<Device>,
    pub address: usize,
    major: u32,
    pub code: u32,
    buffer: usize,
    output: usize,
    pub outcome: Mutex<Option<Outcome>>,
}

/// How a request ended.
#[derive(Clone)]
pub struct Outcome {
    pub status: NTSTATUS,
    pub bytes: Vec<u8>,
    /// It was marked as pending.
    marked: bool,
}

/// What is asked of a device.
pub struct Question<'input> {
    pub major: u32,
    pub code: u32,
    pub input: &'input [u8],
    pub output: usize,
    pub file: *mut FILE_OBJECT,
}

fn block(size: usize, zeroed: bool) -> usize {
    pool::allocate(NOBODY, size.max(1), TAG, zeroed)
        .unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("no memory for a request")))
}

impl Request {
    /// The structure as the driver has it.
    pub const fn pointer(&self) -> PIRP {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    fn stack(&self) -> *mut IO_STACK_LOCATION {
        self.pointer().wrapping_add(1).cast()
    }

    fn is_marked(&self) -> bool {
        // SAFETY: the request's own block, which lives until the request is complete.
        let control = unsafe { (*self.stack()).Control };
        ULONG::from(control) & SL_PENDING_RETURNED != 0
    }
}

/// The structure and its only stack location.
fn write(request: &Request, question: &Question<'_>) {
    let mut irp = std::mem::MaybeUninit::<IRP>::zeroed();
    // SAFETY: zeroes are a value of every field: numbers and pointers.
    let irp = unsafe { irp.assume_init_mut() };
    irp.Type = i16::try_from(IO_TYPE_IRP).unwrap_or(0);
    irp.Size = USHORT::try_from(size_of::<IRP>() + size_of::<IO_STACK_LOCATION>()).unwrap_or(0);
    (irp.StackCount, irp.CurrentLocation) = (1, 1);
    if question.code & 3 == METHOD_BUFFERED {
        irp.AssociatedIrp.SystemBuffer = std::ptr::with_exposed_provenance_mut(request.buffer);
    }
    // SAFETY: the arm that the I/O manager uses.
    let overlay = unsafe { &mut irp.Tail.Overlay };
    overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation = request.stack();
    let mut stack = std::mem::MaybeUninit::<IO_STACK_LOCATION>::zeroed();
    // SAFETY: zeroes are a value of every field: numbers and pointers.
    let stack = unsafe { stack.assume_init_mut() };
    stack.MajorFunction = UCHAR::try_from(question.major).unwrap_or(0);
    stack.DeviceObject = request.device.pointer();
    stack.FileObject = question.file;
    if question.major == IRP_MJ_DEVICE_CONTROL {
        // SAFETY: the arm of this kind of request.
        let control = unsafe { &mut stack.Parameters.DeviceIoControl };
        control.IoControlCode = question.code;
        control.InputBufferLength = ULONG::try_from(question.input.len()).unwrap_or(0);
        control.OutputBufferLength = ULONG::try_from(question.output).unwrap_or(0);
    }
    // SAFETY: the request's new block, which has room for both.
    unsafe { request.pointer().write(*irp) };
    // SAFETY: as above.
    unsafe { request.stack().write(*stack) };
}

impl State {
    /// Sends a request to a device, whose driver gets it before this returns.
    pub fn call_device(self: &Arc<Self>, device: &Arc<Device>, question: &Question<'_>) -> Arc<Request> {
        let size = question.input.len().max(question.output);
        let buffer = block(size, false);
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(buffer);
        // SAFETY: a new block with room for the input.
        unsafe { start.copy_from_nonoverlapping(question.input.as_ptr(), question.input.len()) };
        let request = Arc::new(Request {
            device: device.clone(),
            address: block(size_of::<IRP>() + size_of::<IO_STACK_LOCATION>(), true),
            major: question.major,
            code: question.code,
            buffer,
            output: question.output,
            outcome: Mutex::default(),
        });
        write(&request, question);
        device.users.fetch_add(1, AcqRel);
        lock(&self.wdm.io).requests.insert(request.address, request.clone());
        let Some(dispatch) = device.dispatch(question.major) else {
            self.finish(&request, STATUS_INVALID_DEVICE_REQUEST, Vec::new());
            return request;
        };
        let status = context::call(device.owner, "a dispatch routine", || {
            // SAFETY: the driver's own routine, with its own device and an IRP that lives until it is complete.
            unsafe { dispatch(device.pointer(), request.pointer()) }
        });
        check_returned(&request, status);
        request
    }

    fn finish(&self, request: &Request, status: NTSTATUS, bytes: Vec<u8>) {
        let marked = request.is_marked();
        lock(&self.wdm.io).requests.remove(&request.address);
        *lock(&request.outcome) = Some(Outcome { status, bytes, marked });
        pool::free(request.address, Some(TAG));
        pool::free(request.buffer, Some(TAG));
        self.leave_device(&request.device);
        self.dispatcher.signal();
    }
}

/// What a dispatch routine returns must be what it has done.
fn check_returned(request: &Request, status: NTSTATUS) {
    let outcome = lock(&request.outcome).clone();
    let marked = outcome.as_ref().map_or_else(|| request.is_marked(), |outcome| outcome.marked);
    if (status == STATUS_PENDING) != marked {
        bug_check(
            Rule::IrpStatus,
            format_args!("a dispatch routine returned {status:#x} for an IRP that is marked as pending: {marked}"),
        );
    }
    match outcome {
        None if !marked => {
            bug_check(
                Rule::IrpNeverCompleted,
                format_args!("a dispatch routine returned {status:#x} and did not complete"),
            );
        }
        Some(outcome) if !marked && outcome.status != status => bug_check(
            Rule::IrpStatus,
            format_args!("a dispatch routine returned {status:#x} for an IRP completed with {:#x}", outcome.status),
        ),
        _ => {}
    }
}

#[unsafe(no_mangle)]
extern "C" fn IofCompleteRequest(irp: PIRP, _boost: CCHAR) {
    routine!("IofCompleteRequest", |state| {
        let found = lock(&state.wdm.io).requests.get(&irp.addr()).cloned();
        let Some(request) = found else {
            bug_check(Rule::IrpCompletedTwice, format_args!("{irp:p} is no IRP, or was completed"));
        };
        if host::machine::locks_held() > 0 {
            bug_check(Rule::LockHeld, format_args!("an IRP is completed with a spin lock held"));
        }
        // SAFETY: the IRP is the driver's until now.
        let done = unsafe { irp.read() };
        if done.CancelRoutine.is_some() {
            bug_check(Rule::IrpCancelRoutine, format_args!("an IRP is completed with its cancel routine set"));
        }
        // SAFETY: the arm that drivers write.
        let status = unsafe { done.IoStatus.__bindgen_anon_1.Status };
        if status == STATUS_PENDING {
            bug_check(Rule::IrpStatus, format_args!("an IRP is completed as pending"));
        }
        let information = usize::try_from(done.IoStatus.Information).unwrap_or(usize::MAX);
        let bytes = if request.major == IRP_MJ_DEVICE_CONTROL {
            if information > request.output {
                bug_check(
                    Rule::RequestInformation,
                    format_args!("an IRP is completed with {information} bytes of {}", request.output),
                );
            }
            let start: *const u8 = std::ptr::with_exposed_provenance(request.buffer);
            // SAFETY: the request's buffer has at least as many bytes.
            unsafe { std::slice::from_raw_parts(start, information) }.to_vec()
        } else {
            Vec::new()
        };
        state.finish(&request, status, bytes);
        state.preempt();
    });
}
