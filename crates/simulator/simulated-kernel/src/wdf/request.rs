//! Requests: each has one owner at a time and is completed once.

use std::{
    any::Any,
    collections::BTreeSet,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use host::machine::locks_held;
use wdk_bindings::{
    IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE, NTSTATUS,
    PFN_WDF_REQUEST_CANCEL, PVOID, PWDF_DRIVER_GLOBALS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_PENDING, STATUS_SUCCESS, ULONG_PTR, WDFREQUEST,
};

use super::{
    device::DeviceObject,
    file::FileObject,
    function::function,
    object::{Kind, Object, Part},
    queue::QueueObject,
};
use crate::{
    context::NOBODY,
    pages::LockedPages,
    pool,
    report::bug_check,
    rule::Rule,
    state::{self, State, lock},
    waiting,
    wdm::{
        io::request::{Maker, Request},
        mdl,
    },
};

/// The tag of the system's copies of buffers.
const TAG: u32 = u32::from_ne_bytes(*b"Io  ");

/// Who is told how a request has ended.
pub type Ended = Box<dyn FnOnce(NTSTATUS) + Send>;

/// Where an answer goes.
pub enum Output {
    /// Into a buffer of the system's, which is copied.
    Copied(usize),
    /// Into the process's memory, whose pages are locked.
    Locked(LockedPages),
}

/// Where a request is that a driver has sent on.
pub trait Below: Send + Sync {
    /// Whoever has it there is to end it: the driver has called `WdfRequestCancelSentRequest`, or its user has cancelled it.
    fn cancel(&self, state: &Arc<State>);
}

/// How a driver has a request that is in no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// It does not.
    No,
    /// It has made it.
    Made,
    /// `EvtIoInCallerContext` runs for it.
    LookedAt,
    /// It creates a file, or was looked at and not put into its queue.
    Kept,
}

/// Whether a driver has, or has had, a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Had {
    Never,
    Once,
    /// It was cancelled in a queue, and is the driver's to complete.
    CancelledOnQueue,
}

/// What has become of a request that a driver has when its queue stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nobody waits for it.
    No,
    /// It is waited for.
    Awaited,
    /// `EvtIoStop` runs for it.
    Shown,
    /// The driver keeps it.
    Kept,
    /// It goes back into its queue.
    PutBack,
}

/// Where a request is.
pub struct Progress {
    /// The queue from which the driver got it; `None` while the driver does not have it.
    pub queue: Option<Arc<QueueObject>>,
    /// How the driver has it, if it has it from no queue.
    pub outside: Outside,
    /// The driver's routine while the request can be cancelled.
    pub cancel: PFN_WDF_REQUEST_CANCEL,
    /// It is cancelled, and the driver's routine will be called.
    cancelling: bool,
    /// The driver's routine was called, or will be.
    pub cancel_begun: bool,
    /// Whether the driver has had it.
    pub had: Had,
    pub information: usize,
    /// How far it is with power management, which has its queue stop.
    pub stop: Stop,
    /// What `WdfRequestGetStatus` says: of the last time that it was sent, or was to be.
    pub status: NTSTATUS,
    /// Where it is, while the driver has sent it on.
    pub sent: Option<Arc<dyn Below>>,
    /// Status and number of bytes.
    pub outcome: Option<(NTSTATUS, usize)>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// What its driver says when it sends it: the driver has made it.
    Made,
    /// A file on the device.
    Create,
    /// What a control code means.
    Control,
    /// The same, of another driver's.
    Internal,
    /// Bytes of the device.
    Read,
    /// That the device takes bytes.
    Write,
}

impl Asks {
    /// The major function of its IRP.
    pub fn major(self) -> u8 {
        let major = match self {
            Self::Made | Self::Create => IRP_MJ_CREATE,
            Self::Control => IRP_MJ_DEVICE_CONTROL,
            Self::Internal => IRP_MJ_INTERNAL_DEVICE_CONTROL,
            Self::Read => IRP_MJ_READ,
            Self::Write => IRP_MJ_WRITE,
        };
        u8::try_from(major).unwrap_or(0)
    }
}

/// Where an IRP has its buffers, and how long they are in bytes.
#[derive(Default)]
pub struct WdmBuffers {
    /// The system's copy.
    pub system: (usize, usize),
    /// With locked pages, which an MDL describes.
    pub locked: (usize, usize),
    /// As the program's addresses: of the output, or of what is read or written; of the input of a control code.
    pub user: (usize, usize),
    pub type_3: (usize, usize),
}

/// A request.
pub struct RequestObject {
    pub handle: AtomicUsize,
    pub asks: Asks,
    pub code: u32,
    pub input: usize,
    pub output: usize,
    /// The system's copy of the input, and with `METHOD_BUFFERED` the place for the output.
    system: usize,
    /// The place for the output with the direct methods.
    direct: usize,
    /// With `METHOD_NEITHER`: the program's own buffers, of input and output.
    own: [usize; 2],
    was_locked: bool,
    /// Where a read or write begins, in bytes.
    pub offset: i64,
    /// The addresses that another driver sends with a control code instead of buffers.
    pub others: Option<[usize; 3]>,
    /// The process's memory that is locked as long as the request is not complete: instead of a place of the system's.
    pub locked: Mutex<Option<LockedPages>>,
    /// The file that it came by.
    pub file: Option<Arc<FileObject>>,
    /// Somebody has taken the outcome.
    pub collected: AtomicBool,
    /// Who is told of the end.
    ended: Mutex<Option<Ended>>,
    /// They were told.
    pub reported: AtomicBool,
    pub progress: Mutex<Progress>,
    pub cancelled: AtomicBool,
    /// The handles of the memory objects of input and output; 0 until the driver has asked for them.
    pub memory: [Mutex<usize>; 2],
    /// The addresses of the MDLs of output and input; 0 until the driver has asked for them.
    pub mdls: [Mutex<usize>; 2],
    /// Its IRP, when the driver has asked for that.
    pub irp: Mutex<Option<Arc<Request>>>,
    /// What it is when it is sent on, for the part of the framework that does so.
    pub outgoing: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the driver's routine is a function, which any thread may call.
unsafe impl Send for RequestObject {}
// SAFETY: as for `Send`; what changes is behind locks.
unsafe impl Sync for RequestObject {}

impl Part for RequestObject {
    const NAME: &'static str = "request";
}

impl Kind for RequestObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        if self.asks != Asks::Made {
            object.refuse_to_delete();
        }
        self.check_at_hand();
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        let sent = lock(&self.progress).sent.clone();
        if let Some(sent) = sent {
            sent.cancel(state);
            waiting::until(state, None, "the deletion of a request that is sent", || !self.is_sent());
        }
    }
}

/// Handles of requests that are complete.
#[derive(Default)]
pub struct Completed(BTreeSet<usize>);

impl state::Part for Mutex<Completed> {}

/// The request with a handle that a driver passes, which the driver must have.
pub fn owned(state: &State, handle: WDFREQUEST) -> Arc<RequestObject> {
    if state.was_request(handle.addr()) {
        bug_check(Rule::RequestCompletedTwice, format_args!("a request is used that is completed"));
    }
    let (_, request): (_, Arc<RequestObject>) = state.given_as(handle);
    let is_owned = {
        let progress = lock(&request.progress);
        progress.queue.is_some() || progress.outside != Outside::No
    };
    if !is_owned {
        bug_check(Rule::RequestCancelable, format_args!("a request is used by a driver that does not have it"));
    }
    request
}

/// As [`owned`], of a request that the driver may do something with: it is not with an I/O target.
pub fn at_hand(state: &State, handle: WDFREQUEST) -> Arc<RequestObject> {
    let request = owned(state, handle);
    request.check_at_hand();
    request
}

/// A copy of the bytes at an address; zeros if there is none.
///
/// # Safety
///
/// The address is zero, or there are so many bytes.
unsafe fn bytes_at(place: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    if place != 0 {
        let place: *const u8 = ptr::with_exposed_provenance(place);
        // SAFETY: there are so many bytes (`# Safety`), and the copy is new.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(place, length) };
    }
    bytes
}

/// How a control code passes its buffers: buffered, two direct methods, neither.
const fn method(code: u32) -> u32 {
    code % 4
}

impl RequestObject {
    /// A request with the system's copy of `input` and room for `output` bytes.
    pub fn new(asks: Asks, code: u32, input: &[u8], output: usize) -> Self {
        Self::of(asks, code, input, Output::Copied(output), None)
    }

    /// A request of a process, which came by `file`. A read or write has its method in the lowest bits of the code, as a control code.
    pub fn of(asks: Asks, code: u32, input: &[u8], output: Output, file: Option<Arc<FileObject>>) -> Self {
        let (output, locked) = match output {
            Output::Copied(output) => (output, None),
            Output::Locked(pages) => (pages.length(), Some(pages)),
        };
        let is_buffered = method(code) == 0;
        let is_direct = matches!(method(code), 1 | 2);
        let size = if is_buffered { input.len().max(output) } else { input.len() };
        // What the copy does not fill is whatever was in the memory before: not zeros.
        let block = |size: usize| if size == 0 { 0 } else { pool::allocate(NOBODY, size, TAG, false).unwrap_or(0) };
        let system = block(if method(code) == 3 { 0 } else { size });
        if system != 0 {
            let place: *mut u8 = ptr::with_exposed_provenance_mut(system);
            // SAFETY: a new block, as long as the input at least.
            unsafe { place.copy_from_nonoverlapping(input.as_ptr(), input.len()) };
        }
        let direct = locked.as_ref().map_or_else(|| block(if is_direct { output } else { 0 }), LockedPages::address);
        let progress = Progress {
            queue: None,
            outside: Outside::No,
            cancel: None,
            cancelling: false,
            cancel_begun: false,
            had: Had::Never,
            stop: Stop::No,
            information: 0,
            status: STATUS_SUCCESS,
            sent: None,
            outcome: None,
        };
        let has_own = method(code) == 3;
        let own = [if has_own { block(input.len()) } else { 0 }, if has_own { block(output) } else { 0 }];
        if own[0] != 0 {
            let place: *mut u8 = ptr::with_exposed_provenance_mut(own[0]);
            // SAFETY: a new block, as long as the input.
            unsafe { place.copy_from_nonoverlapping(input.as_ptr(), input.len()) };
        }
        Self {
            handle: AtomicUsize::new(0),
            asks,
            code,
            input: input.len(),
            output,
            system,
            direct,
            own,
            offset: 0,
            others: None,
            was_locked: locked.is_some(),
            locked: Mutex::new(locked),
            file,
            collected: AtomicBool::new(false),
            ended: Mutex::new(None),
            reported: AtomicBool::new(false),
            progress: Mutex::new(progress),
            cancelled: AtomicBool::new(false),
            memory: Default::default(),
            mdls: Default::default(),
            irp: Mutex::default(),
            outgoing: Mutex::default(),
        }
    }

    /// A request that a driver makes, to send it.
    pub fn made() -> Self {
        let request = Self::new(Asks::Made, 0, &[], 0);
        lock(&request.progress).outside = Outside::Made;
        request
    }

    /// The request, which begins so many bytes into what it reads or writes.
    pub fn at(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    /// The request, with addresses in place of buffers.
    pub fn with_others(self, others: Option<[usize; 3]>) -> Self {
        Self { others, ..self }
    }

    /// Somebody is to be told of its end.
    pub fn tell(&self, ended: Ended) {
        *lock(&self.ended) = Some(ended);
    }

    /// Returns true while it is with an I/O target.
    pub fn is_sent(&self) -> bool {
        lock(&self.progress).sent.is_some()
    }

    /// Ends the test if it is with an I/O target: the driver has only lent it its handle then.
    pub fn check_at_hand(&self) {
        if self.is_sent() {
            bug_check(Rule::RequestCancelable, format_args!("a request is used that was sent and has not come back"));
        }
    }

    /// The program's own buffer of input or output (`METHOD_NEITHER`), and how long it is.
    pub const fn own_buffer(&self, of_input: bool) -> (usize, usize) {
        if of_input { (self.own[0], self.input) } else { (self.own[1], self.output) }
    }

    /// The answer of the driver below, for who gets the same request back from it.
    pub fn put_answer(&self, bytes: &[u8]) {
        let place = self.users_place();
        let count = bytes.len().min(self.output);
        if place != 0 && count > 0 {
            let place: *mut u8 = ptr::with_exposed_provenance_mut(place);
            // SAFETY: the block has room for the output, of which these bytes are no more.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
    }

    /// What is in the second buffer of a direct method: with `METHOD_IN_DIRECT` what the driver reads.
    pub fn second_bytes(&self) -> Vec<u8> {
        // SAFETY: the block, or the locked pages, are as long as the output.
        unsafe { bytes_at(self.direct, if self.direct == 0 { 0 } else { self.output }) }
    }

    /// The input as it is now: a driver may have changed the system's copy.
    pub fn input_bytes(&self) -> Vec<u8> {
        let place = if self.has_own_buffers() { self.own[0] } else { self.system };
        // SAFETY: the block is as long as the input at least.
        unsafe { bytes_at(place, if place == 0 { 0 } else { self.input }) }
    }

    /// Where an IRP has its buffers.
    pub fn wdm_buffers(&self) -> WdmBuffers {
        let (input, output) = (self.input, self.output);
        let mut buffers = WdmBuffers::default();
        match (self.asks, method(self.code)) {
            (_, 0) => buffers.system = (self.system, input.max(output)),
            (Asks::Read, 3) => buffers.user = (self.own[1], output),
            (Asks::Write, 3) => buffers.user = (self.own[0], input),
            (_, 3) => (buffers.user, buffers.type_3) = ((self.own[1], output), (self.own[0], input)),
            (Asks::Write, _) => buffers.locked = (self.system, input),
            _ => (buffers.system, buffers.locked) = ((self.system, input), (self.direct, output)),
        }
        buffers
    }

    /// How many bytes it can be completed with: what a program reads, or has written.
    pub const fn room(&self) -> usize {
        if matches!(self.asks, Asks::Write) { self.input } else { self.output }
    }

    /// Returns true if it has no input by what it asks for, or no output.
    pub const fn is_one_sided(&self, of_input: bool) -> bool {
        matches!((self.asks, of_input), (Asks::Read, true) | (Asks::Write, false))
    }

    /// Its buffers are the caller's own, and the system knows only their addresses (`METHOD_NEITHER`).
    pub const fn has_own_buffers(&self) -> bool {
        method(self.code) == 3
    }

    /// Its buffers are the system's copies (`METHOD_BUFFERED`).
    pub const fn is_buffered(&self) -> bool {
        method(self.code) == 0
    }

    /// The input, and how long it is.
    pub const fn input_buffer(&self) -> (usize, usize) {
        (self.system, self.input)
    }

    /// The place for the output, and how long it is.
    pub const fn output_buffer(&self) -> (usize, usize) {
        (self.answer_place(), self.output)
    }

    /// The request, of whose end somebody is told.
    pub fn telling(self, ended: Option<Ended>) -> Self {
        Self { ended: Mutex::new(ended), ..self }
    }

    /// The driver has it now.
    pub fn deliver(&self, queue: &Arc<QueueObject>) {
        let mut progress = lock(&self.progress);
        progress.queue = Some(queue.clone());
        (progress.had, progress.stop) = (Had::Once, Stop::No);
    }

    /// Returns true if the driver has it, or has had it.
    pub fn was_delivered(&self) -> bool {
        lock(&self.progress).had != Had::Never
    }

    /// Returns true if it came by that file.
    pub fn is_by(&self, file: &Arc<FileObject>) -> bool {
        self.file.as_ref().is_some_and(|one| Arc::ptr_eq(one, file))
    }

    /// Returns true if the driver has it from that queue.
    pub fn is_of(&self, queue: &Arc<QueueObject>) -> bool {
        lock(&self.progress).queue.as_ref().is_some_and(|one| Arc::ptr_eq(one, queue))
    }

    const fn answer_place(&self) -> usize {
        if method(self.code) == 0 { self.system } else { self.direct }
    }

    /// Where the user's answer is: with `METHOD_NEITHER` in the program's own buffer.
    const fn users_place(&self) -> usize {
        if self.has_own_buffers() { self.own[1] } else { self.answer_place() }
    }

    /// What the user gets, after the completion; and the system's copies are freed.
    pub fn collect(&self) -> (NTSTATUS, Vec<u8>) {
        let (status, information) = lock(&self.progress).outcome.unwrap_or((STATUS_PENDING, 0));
        // With an error nothing is copied; a warning is not an error.
        let copied = if status.cast_unsigned() >> 30 == 3 { 0 } else { information.min(self.output) };
        if self.was_locked {
            // The answer lies in the process's own memory.
            self.free(&[self.system]);
            return (status, Vec::new());
        }
        // SAFETY: the block has room for the output, of which these bytes are a part.
        let bytes = unsafe { bytes_at(self.users_place(), copied) };
        self.free(&[self.system, self.direct, self.own[0], self.own[1]]);
        (status, bytes)
    }

    #[expect(clippy::unused_self, reason = "the blocks are its own")]
    fn free(&self, blocks: &[usize]) {
        for block in blocks.iter().copied().filter(|block| *block != 0) {
            pool::free(block, Some(TAG));
        }
    }
}

impl State {
    /// Returns true if a request with that handle is complete.
    pub fn was_request(&self, handle: usize) -> bool {
        self.locked::<Completed>().0.contains(&handle)
    }

    fn forget_request(&self, handle: usize) {
        self.locked::<Completed>().0.insert(handle);
    }

    /// A new request for a device gets a handle.
    pub fn register_request(self: &Arc<Self>, device: &DeviceObject, request: &Arc<RequestObject>) {
        let parent = Some(device.handle.load(Acquire));
        let attributes = device.with.requests.unwrap_or_default();
        // The framework has requests in reserve: this does not fail.
        let made = loop {
            let kind = request.clone();
            if let Some(made) = self.create_object_of(device.owner, kind, &attributes, parent) {
                break made;
            }
        };
        request.handle.store(made.handle, Release);
    }

    /// A driver completes a request that it has.
    pub fn complete_request(self: &Arc<Self>, request: &Arc<RequestObject>, status: NTSTATUS, information: usize) {
        if locks_held() > 0 {
            bug_check(Rule::LockHeld, format_args!("a request is completed while a spin lock is held"));
        }
        if request.asks == Asks::Made {
            bug_check(Rule::BadHandle, format_args!("a driver completes a request that it has made: it deletes it"));
        }
        request.check_at_hand();
        if status == STATUS_PENDING {
            bug_check(Rule::RequestInformation, format_args!("a request is completed with STATUS_PENDING"));
        }
        // Of a file that is created it says how.
        if request.asks != Asks::Create && information > request.room() {
            let room = request.room();
            bug_check(
                Rule::RequestInformation,
                format_args!("a request is completed with {information} bytes, but has room for {room}"),
            );
        }
        let queue = {
            let mut progress = lock(&request.progress);
            if progress.cancel.is_some() {
                drop(progress);
                bug_check(Rule::RequestCancelable, format_args!("a request is completed that can be cancelled"));
            }
            if progress.cancelling {
                drop(progress);
                bug_check(
                    Rule::RequestCancelable,
                    format_args!("a cancelled request is completed before EvtRequestCancel is called for it"),
                );
            }
            progress.queue.take()
        };
        if lock(&request.progress).outside != Outside::No {
            return self.finish_request(request, status, information);
        }
        if let Some(queue) = queue {
            queue.delivered.fetch_sub(1, AcqRel);
            self.finish_request(request, status, information);
            self.present(&queue);
        }
    }

    /// Gives a request back to its user.
    pub fn finish_request(self: &Arc<Self>, request: &Arc<RequestObject>, status: NTSTATUS, information: usize) {
        // The pages are unlocked before the process can know of the end.
        drop(lock(&request.locked).take());
        self.free_mdls(request);
        let irp = lock(&request.irp).take();
        if let Some(irp) = irp {
            if matches!(irp.maker, Maker::Preprocessed(_)) {
                // Which comes back here when the driver that saw it first is done with it too.
                irp.is_with_framework.store(false, Release);
                // SAFETY: an IRP that is not complete.
                unsafe { (*irp.pointer()).Cancel = request.cancelled.load(Acquire).into() };
                return self.finish_irp(&irp, status, information);
            }
            // SAFETY: an IRP that is not freed.
            let chain = std::mem::replace(unsafe { &mut (*irp.pointer()).MdlAddress }, ptr::null_mut());
            mdl::free_chain(self, chain);
            self.free_irp(&irp);
        }
        lock(&request.progress).outcome = Some((status, information));
        let handle = request.handle.load(Acquire);
        // A driver may have completed its IRP without a request.
        if handle != 0 {
            self.forget_request(handle);
            self.delete_object(handle);
        }
        if let Some(file) = &request.file {
            self.request_ended(file);
        }
        let ended = lock(&request.ended).take();
        if let Some(ended) = ended {
            ended(status);
            request.reported.store(true, Release);
        }
        self.dispatcher.signal();
    }

    /// The user, or the framework, wants the request to end.
    pub fn cancel_request(self: &Arc<Self>, request: &Arc<RequestObject>) {
        if let Some(routine) = self.begin_cancel(request) {
            self.preempt();
            self.call_cancel(&routine);
        }
    }

    /// The request is cancelled from now on; where it was sent on, there. The driver's routine that is to be called, if it has one.
    pub fn begin_cancel(self: &Arc<Self>, request: &Arc<RequestObject>) -> Option<Cancel> {
        request.cancelled.store(true, Release);
        let sent = lock(&request.progress).sent.clone();
        if let Some(sent) = sent {
            sent.cancel(self);
            return None;
        }
        let mut progress = lock(&request.progress);
        let routine = progress.cancel.take()?;
        let queue = progress.queue.clone()?;
        (progress.cancelling, progress.cancel_begun) = (true, true);
        Some(Cancel { routine, queue, request: request.clone() })
    }

    /// Calls the driver's routine, which completes the request, at once or later.
    #[expect(clippy::unused_self, reason = "only a running kernel has requests")]
    pub fn call_cancel(self: &Arc<Self>, cancel: &Cancel) {
        lock(&cancel.request.progress).cancelling = false;
        let handle = cancel.request.handle.load(Acquire);
        crate::context::call(cancel.queue.owner, "EvtRequestCancel", || {
            // SAFETY: the driver's own routine, with the handle of a request that it has.
            unsafe { (cancel.routine)(ptr::without_provenance_mut(handle)) };
        });
    }
}

/// A driver's routine for a request that is cancelled.
pub struct Cancel {
    routine: unsafe extern "C" fn(WDFREQUEST),
    queue: Arc<QueueObject>,
    request: Arc<RequestObject>,
}

/// Gives a driver one of the two buffers of a request; `METHOD_NEITHER` has none.
///
/// # Safety
///
/// The places are null or the driver's, and live until the call returns.
const unsafe fn answer(
    code: u32,
    (block, length): (usize, usize),
    minimum: usize,
    buffer: *mut PVOID,
    place: *mut usize,
) -> NTSTATUS {
    if method(code) == 3 {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    if length == 0 || length < minimum {
        return STATUS_BUFFER_TOO_SMALL;
    }
    if block == 0 {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    // SAFETY: not null, so it is the driver's, and lives until the call returns (`# Safety`).
    unsafe { buffer.write(ptr::with_exposed_provenance_mut(block)) };
    if !place.is_null() {
        // SAFETY: not null, so it is the driver's, and lives until the call returns (`# Safety`).
        unsafe { place.write(length) };
    }
    0
}

pub extern "C" fn WdfRequestRetrieveInputBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    minimum: usize,
    buffer: *mut PVOID,
    length: *mut usize,
) -> NTSTATUS {
    function!("WdfRequestRetrieveInputBuffer", |state| {
        let request = at_hand(state, handle);
        if request.is_one_sided(true) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        // SAFETY: the driver's places.
        unsafe { answer(request.code, (request.system, request.input), minimum, buffer, length) }
    })
}

pub extern "C" fn WdfRequestRetrieveOutputBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    minimum: usize,
    buffer: *mut PVOID,
    length: *mut usize,
) -> NTSTATUS {
    function!("WdfRequestRetrieveOutputBuffer", |state| {
        let request = at_hand(state, handle);
        if request.is_one_sided(false) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        // SAFETY: the driver's places.
        unsafe { answer(request.code, (request.answer_place(), request.output), minimum, buffer, length) }
    })
}

pub extern "C" fn WdfRequestSetInformation(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST, information: ULONG_PTR) {
    function!("WdfRequestSetInformation", |state| {
        lock(&at_hand(state, handle).progress).information = usize::try_from(information).unwrap_or(usize::MAX);
    });
}

pub extern "C" fn WdfRequestComplete(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST, status: NTSTATUS) {
    function!("WdfRequestComplete", |state| {
        let request = at_hand(state, handle);
        let information = lock(&request.progress).information;
        state.complete_request(&request, status, information);
    });
}

pub extern "C" fn WdfRequestCompleteWithInformation(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    status: NTSTATUS,
    information: ULONG_PTR,
) {
    function!("WdfRequestCompleteWithInformation", |state| {
        let request = at_hand(state, handle);
        state.complete_request(&request, status, usize::try_from(information).unwrap_or(usize::MAX));
    });
}
