//! Requests that drivers send to I/O targets: made or passed on, what they are below, and how they come back.

use std::{
    any::Any,
    mem, ptr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    _WDF_IO_TARGET_STATE, _WDF_REQUEST_TYPE, BOOLEAN, LONGLONG, MDL, NTSTATUS, PVOID, PWDF_DRIVER_GLOBALS,
    PWDF_OBJECT_ATTRIBUTES, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_SUCCESS, ULONG, WDFCONTEXT, WDFDEVICE, WDFIOTARGET, WDFMEMORY, WDFREQUEST,
};

use super::{
    device::DeviceObject,
    function::entry,
    memory::MemoryObject,
    object::check_level,
    power::is_shown_here,
    request::{Asks, Below, Outside, RequestObject, at_hand, owned},
    target::{OnItsWay, TargetObject, target},
};
use crate::{
    argument::{Argument, check_size},
    context::{self, NOBODY},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{self, State, lock},
    waiting,
    wdm::{mdl, system_thread},
};

/// What `WdfRequestSend` is asked for: a time-out; that it waits; that the target's state does not matter; that the driver does not get the
/// request back.
pub const TIMEOUT: ULONG = 1;
const SYNCHRONOUS: ULONG = 2;
const IGNORE_TARGET_STATE: ULONG = 4;
const SEND_AND_FORGET: ULONG = 8;

const STATUS_IO_TIMEOUT: NTSTATUS = 0xC000_00B5_u32.cast_signed();
const STATUS_INTEGER_OVERFLOW: NTSTATUS = 0xC000_0095_u32.cast_signed();
const STATUS_BUFFER_TOO_SMALL: NTSTATUS = wdk_bindings::STATUS_BUFFER_TOO_SMALL;

/// `WDF_REQUEST_SEND_OPTIONS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendOptions {
    size: ULONG,
    flags: ULONG,
    timeout: LONGLONG,
}

/// `WDFMEMORY_OFFSET`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryOffset {
    pub offset: usize,
    pub length: usize,
}

/// `WDF_REQUEST_REUSE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReuseParams {
    size: ULONG,
    flags: ULONG,
    status: NTSTATUS,
    irp: PVOID,
}

/// `WDF_REQUEST_COMPLETION_PARAMS`, whose union begins after the status block: for reads and writes the memory object, how many bytes
/// and from where; for control codes the code, then the input's memory object and where it begins, then the output's, with the bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CompletionParams {
    size: ULONG,
    kind: i32,
    /// The status block: a status where a pointer has room, and how many bytes.
    status: NTSTATUS,
    _room: u32,
    information: usize,
    union: [usize; 6],
}

const _: () = assert!(size_of::<CompletionParams>() == 72 && mem::offset_of!(CompletionParams, union) == 24);
const _: () = assert!(size_of::<SendOptions>() == 16 && size_of::<ReuseParams>() == 24);

/// `EvtRequestCompletionRoutine`.
pub type CompletionRoutine = unsafe extern "C" fn(WDFREQUEST, WDFIOTARGET, *mut CompletionParams, WDFCONTEXT);

/// A buffer of a request that is sent.
#[derive(Clone)]
pub struct Piece {
    /// The memory object, which stays as long as the request has it, and its handle; zero of what is none.
    handle: usize,
    _memory: Option<Arc<MemoryObject>>,
    argument: Argument,
    offset: usize,
    pub length: usize,
}

impl Piece {
    /// A buffer that is the driver's.
    pub fn of_driver<T>(buffer: *mut T, length: usize) -> Self {
        Self { handle: 0, _memory: None, argument: Argument::of(buffer), offset: 0, length }
    }

    /// A part of a memory object.
    ///
    /// # Errors
    ///
    /// `STATUS_INTEGER_OVERFLOW`, `STATUS_BUFFER_TOO_SMALL`.
    ///
    /// # Safety
    ///
    /// `offset` is null or the driver's structure.
    pub unsafe fn of_memory(state: &State, handle: WDFMEMORY, offset: *const MemoryOffset) -> Result<Self, NTSTATUS> {
        let (_, memory): (_, Arc<MemoryObject>) = state.given_as(handle);
        let (address, whole) = memory.whole();
        // SAFETY: null or the driver's structure (`# Safety`).
        let part = unsafe { offset.as_ref() }.copied().unwrap_or(MemoryOffset { offset: 0, length: 0 });
        let end = part.offset.checked_add(part.length).ok_or(STATUS_INTEGER_OVERFLOW)?;
        if end > whole {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        let length = if part.length == 0 { whole - part.offset } else { part.length };
        let argument = Argument::of(ptr::with_exposed_provenance_mut::<u8>(address));
        Ok(Self { handle: handle.addr(), _memory: Some(memory), argument, offset: part.offset, length })
    }

    /// The beginning of what an MDL describes, in so many bytes.
    pub fn of_mdl(state: &State, mdl: *mut MDL, length: usize) -> Self {
        let Some(address) = mdl::memory_of(state, mdl) else {
            bug_check(
                Rule::BadMdl,
                format_args!("a request with an MDL that was not built, and whose pages are not locked"),
            );
        };
        // SAFETY: a known MDL, whose driver does not change it meanwhile.
        let room = unsafe { (*mdl).ByteCount } as usize;
        if length > room {
            let words = format_args!("a request with {length} bytes of an MDL that describes {room}");
            bug_check(Rule::BadArgument, words);
        }
        Self::of_driver(ptr::with_exposed_provenance_mut::<u8>(address), length)
    }

    fn place(&self) -> *mut u8 {
        // As long as the request has the memory object, so long does that have its buffer; one of the driver's must be there still.
        self.argument.pointer::<u8>("a request that is sent").wrapping_add(self.offset)
    }

    /// Where it begins, for a driver that gets the address.
    fn address(&self) -> usize {
        self.place().expose_provenance()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        if self.length > 0 {
            // SAFETY: a buffer of as many bytes, which is there.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.place(), self.length) };
        }
        bytes
    }

    fn put(&self, bytes: &[u8]) {
        let count = bytes.len().min(self.length);
        if count > 0 {
            // SAFETY: a buffer of as many bytes, which is there.
            unsafe { self.place().copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
    }
}

/// What a request is when it is sent.
#[derive(Clone)]
pub enum Form {
    /// What it was when the driver got it.
    Current,
    /// The same, but for what the driver has said of it.
    Located(Located),
    /// A read, a write or a control code.
    Of { asks: Asks, code: u32, offset: i64, input: Option<Piece>, output: Option<Piece> },
    /// A control code for another driver, with addresses: what is there is between the two.
    Others { code: u32, arguments: [Option<Piece>; 3] },
}

/// What a driver says of a request that goes on: code, offset and lengths.
#[derive(Clone, Copy)]
pub struct Located {
    pub code: u32,
    pub offset: i64,
    pub input: usize,
    pub output: usize,
}

/// A request is to go as the driver says.
pub fn format_as(request: &RequestObject, located: Located) {
    outgoing(request, |outgoing| outgoing.form = Some(Form::Located(located)));
}

/// What a request has for its way.
#[derive(Default)]
struct Outgoing {
    form: Option<Form>,
    routine: Option<CompletionRoutine>,
    context: usize,
    /// How it came back.
    came: Option<CompletionParams>,
}

/// Looks at what a request has for its way, or changes it.
fn outgoing<R>(request: &RequestObject, work: impl FnOnce(&mut Outgoing) -> R) -> R {
    let mut place = lock(&request.outgoing);
    let any: &mut Box<dyn Any + Send> = place.get_or_insert_with(|| Box::new(Outgoing::default()));
    let Some(outgoing) = any.downcast_mut() else { unreachable!("only this file puts something there") };
    work(outgoing)
}

/// A request on its way.
pub struct Sent {
    request: Arc<RequestObject>,
    target: Arc<TargetObject>,
    form: Form,
    /// The driver does not get it back.
    forget: bool,
    /// Its sender waits for it, and has no routine.
    waits: bool,
    ignores: bool,
    is_at: Mutex<At>,
    /// It is to be cancelled, also if it has not arrived below yet.
    cancelled: AtomicBool,
    timed_out: AtomicBool,
    over: AtomicBool,
}

/// Where a request is.
enum At {
    /// It waits for its target.
    Target,
    Bus,
    /// With that device's driver, as that request.
    Device(Arc<DeviceObject>, Arc<RequestObject>),
    Back,
}

/// The next request that a bus gets from a driver of the framework is completed later.
#[derive(Default)]
pub struct BusIsLate(AtomicBool);

impl state::Part for BusIsLate {}

impl Below for Sent {
    fn cancel(&self, state: &Arc<State>) {
        self.cancelled.store(true, Release);
        let below = match &*lock(&self.is_at) {
            At::Target => None,
            At::Device(device, lower) => Some((device.clone(), lower.clone())),
            // The bus has no cancel routine: it answers soon.
            At::Bus | At::Back => return,
        };
        if let Some((device, lower)) = below {
            return state.cancel_for(&device, &lower);
        }
        let was_there = {
            let mut flow = lock(&self.target.flow);
            let before = flow.waiting.len();
            flow.waiting.retain(|one| !ptr::addr_eq(one.place(), self.place()));
            flow.waiting.len() < before
        };
        if was_there {
            self.come_back(state, STATUS_CANCELLED, 0, &[]);
        }
    }
}

impl OnItsWay for Sent {
    fn go(self: Arc<Self>, state: &Arc<State>) {
        let below = match self.target.leads_to() {
            Ok(below) => below,
            Err(status) => return self.come_back(state, status, 0, &[]),
        };
        match below {
            None => self.go_to_the_bus(state),
            Some((device, file)) => self.go_to(state, device, file),
        }
    }

    fn ignores_the_state(&self) -> bool {
        self.ignores
    }

    fn place(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

impl Sent {
    /// What is below gets it.
    fn go_to(
        self: Arc<Self>,
        state: &Arc<State>,
        mut device: Arc<DeviceObject>,
        file: Option<Arc<super::file::FileObject>>,
    ) {
        let request = &self.request;
        let (asks, code, offset, input, output, second) = match &self.form {
            Form::Current => {
                let second = if request.code % 4 == 1 { request.second_bytes() } else { Vec::new() };
                (request.asks, request.code, request.offset, request.input_bytes(), request.output, second)
            }
            Form::Located(Located { code, offset, input, output }) => {
                let mut bytes = request.input_bytes();
                bytes.truncate(*input);
                let mut second = if request.code % 4 == 1 { request.second_bytes() } else { Vec::new() };
                second.truncate(*output);
                (request.asks, *code, *offset, bytes, *output, second)
            }
            Form::Of { asks, code, offset, input, output } => {
                let bytes = input.as_ref().map_or_else(Vec::new, Piece::bytes);
                (*asks, *code, *offset, bytes, output.as_ref().map_or(0, |piece| piece.length), Vec::new())
            }
            Form::Others { code, .. } => (Asks::Internal, *code, 0, Vec::new(), 0, Vec::new()),
        };
        let others = match &self.form {
            Form::Others { arguments, .. } => {
                Some(arguments.each_ref().map(|piece| piece.as_ref().map_or(0, Piece::address)))
            }
            Form::Current | Form::Located(_) => request.others,
            Form::Of { .. } => None,
        };
        if asks == Asks::Create {
            bug_check(Rule::NotSimulated, format_args!("a request that creates a file is sent on"));
        }
        // From filters that have no callback for it the framework passes it on.
        while state.passes_on(&device, asks) {
            let Some(lower) = device.lower.get().cloned() else { return self.go_to_the_bus(state) };
            device = lower;
        }
        let is_control = [Asks::Control, Asks::Internal].contains(&asks);
        let code = if is_control { code } else { device.method_of_transfers(asks == Asks::Write) };
        let file = file.or_else(|| request.file.clone());
        if let Some(file) = &file {
            file.request_begins();
        }
        let output = super::request::Output::Copied(output);
        let lower = Arc::new(RequestObject::of(asks, code, &input, output, file).at(offset).with_others(others));
        if !second.is_empty() {
            lower.put_answer(&second);
        }
        let (sent, of_state) = (self.clone(), state.clone());
        let (of_lower, of_device) = (lower.clone(), device.clone());
        lower.tell(Box::new(move |_| {
            of_lower.collected.store(true, Release);
            let information = lock(&of_lower.progress).outcome.map_or(0, |(_, information)| information);
            let (status, bytes) = of_lower.collect();
            of_device.requests.fetch_sub(1, AcqRel);
            sent.come_back(&of_state, status, information, &bytes);
        }));
        device.requests.fetch_add(1, AcqRel);
        *lock(&self.is_at) = At::Device(device.clone(), lower.clone());
        state.preempt();
        if request.cancelled.load(Acquire) || self.cancelled.load(Acquire) {
            lower.cancelled.store(true, Release);
        }
        state.request_comes(&device, &lower);
    }

    /// The bus's device knows no requests of programs. It says so at once or, every second time, later and at `DISPATCH_LEVEL`, as a driver
    /// above has to expect.
    fn go_to_the_bus(self: Arc<Self>, state: &Arc<State>) {
        *lock(&self.is_at) = At::Bus;
        state.preempt();
        if !state.part::<BusIsLate>().0.fetch_xor(true, Relaxed) {
            return self.come_back(state, STATUS_INVALID_DEVICE_REQUEST, 0, &[]);
        }
        let of_thread = state.clone();
        system_thread::spawn_for_work_item(state, NOBODY, move || {
            let before = machine::raise(Irql::DISPATCH_LEVEL);
            self.come_back(&of_thread, STATUS_INVALID_DEVICE_REQUEST, 0, &[]);
            machine::lower(before);
        });
    }

    /// It is complete below: its driver gets it back, or it is complete altogether.
    fn come_back(&self, state: &Arc<State>, status: NTSTATUS, information: usize, bytes: &[u8]) {
        *lock(&self.is_at) = At::Back;
        let is_late = status == STATUS_CANCELLED && self.timed_out.load(Acquire);
        let status = if is_late { STATUS_IO_TIMEOUT } else { status };
        let request = &self.request;
        match &self.form {
            Form::Current | Form::Located(_) => request.put_answer(bytes),
            Form::Of { output: Some(output), .. } => output.put(bytes),
            Form::Of { .. } | Form::Others { .. } => {}
        }
        let mut params = self.params(status, information);
        let (routine, context) = outgoing(request, |outgoing| {
            outgoing.came = Some(params);
            (outgoing.routine.take(), outgoing.context)
        });
        {
            let mut progress = lock(&request.progress);
            (progress.sent, progress.status, progress.information) = (None, status, information);
        }
        lock(&self.target.flow).sent.retain(|one| !ptr::addr_eq(one.place(), self.place()));
        self.over.store(true, Release);
        if self.forget {
            state.finish_request(request, status, information);
        } else if let Some(routine) = routine.filter(|_| !self.waits) {
            let (of_request, of_target) = (request.handle.load(Acquire), self.target.handle.load(Acquire));
            context::call(self.target.owner, "EvtRequestCompletionRoutine", || {
                let (request, target) =
                    (ptr::without_provenance_mut(of_request), ptr::without_provenance_mut(of_target));
                // SAFETY: the driver's own routine, with live handles and a structure that lives until it returns.
                unsafe { routine(request, target, &raw mut params, ptr::with_exposed_provenance_mut(context)) };
            });
        }
        state.dispatcher.signal();
    }

    fn params(&self, status: NTSTATUS, information: usize) -> CompletionParams {
        let part = |piece: &Option<Piece>| piece.as_ref().map_or((0, 0), |piece| (piece.handle, piece.offset));
        let (kind, union) = match &self.form {
            Form::Current | Form::Located(_) | Form::Others { .. } => {
                (_WDF_REQUEST_TYPE::WdfRequestTypeNoFormat, [0; 6])
            }
            Form::Of { asks, code, input, output, .. } => {
                let ((from, begins), (to, starts)) = (part(input), part(output));
                match asks {
                    Asks::Read => (_WDF_REQUEST_TYPE::WdfRequestTypeRead, [to, information, starts, 0, 0, 0]),
                    Asks::Write => (_WDF_REQUEST_TYPE::WdfRequestTypeWrite, [from, information, begins, 0, 0, 0]),
                    _ => {
                        let all = [*code as usize, from, begins, to, starts, information];
                        let kind = if *asks == Asks::Internal {
                            _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControlInternal
                        } else {
                            _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl
                        };
                        (kind, all)
                    }
                }
            }
        };
        let size = u32::try_from(size_of::<CompletionParams>()).unwrap_or(0);
        CompletionParams { size, kind, status, _room: 0, information, union }
    }
}

/// What a driver says of a send.
#[derive(Clone, Copy, Default)]
pub struct Options {
    flags: ULONG,
    /// In microseconds; zero without a limit.
    limit: u64,
}

impl Options {
    /// # Safety
    ///
    /// The structure is the driver's, or null.
    pub unsafe fn read(options: *const SendOptions) -> Self {
        // SAFETY: null or the driver's structure (`# Safety`).
        let Some(options) = (unsafe { options.as_ref() }) else { return Self::default() };
        check_size::<SendOptions>(options.size, "WDF_REQUEST_SEND_OPTIONS");
        let known = TIMEOUT | SYNCHRONOUS | IGNORE_TARGET_STATE | SEND_AND_FORGET;
        if options.flags & !known != 0 {
            bug_check(Rule::NotSimulated, format_args!("a request sent with the options {:#x}", options.flags));
        }
        let ticks = if options.flags & TIMEOUT == 0 { 0 } else { options.timeout };
        if ticks > 0 {
            bug_check(Rule::NotSimulated, format_args!("a request sent with a time-out that is a time of day"));
        }
        Self { flags: options.flags, limit: ticks.unsigned_abs().div_ceil(10) }
    }

    const fn has(self, flag: ULONG) -> bool {
        self.flags & flag != 0
    }

    /// The same, for a function that waits.
    pub const fn waiting(self) -> Self {
        Self { flags: self.flags | SYNCHRONOUS, ..self }
    }
}

/// Sends a request. With an error the driver has it still.
pub fn send(
    state: &Arc<State>,
    target: &Arc<TargetObject>,
    request: &Arc<RequestObject>,
    form: Form,
    options: Options,
) -> Result<(), NTSTATUS> {
    let (waits, forget, ignores) =
        (options.has(SYNCHRONOUS), options.has(SEND_AND_FORGET), options.has(IGNORE_TARGET_STATE));
    let limit = options.limit;
    let sent = Arc::new(Sent {
        request: request.clone(),
        target: target.clone(),
        form,
        forget,
        waits,
        ignores,
        is_at: Mutex::new(At::Target),
        cancelled: AtomicBool::new(false),
        timed_out: AtomicBool::new(false),
        over: AtomicBool::new(false),
    });
    let goes = {
        let mut flow = lock(&target.flow);
        let goes = match flow.state {
            _WDF_IO_TARGET_STATE::WdfIoTargetStarted => true,
            _WDF_IO_TARGET_STATE::WdfIoTargetStopped => ignores,
            _ => return Err(STATUS_INVALID_DEVICE_STATE),
        };
        if request.cancelled.load(Acquire) {
            return Err(STATUS_CANCELLED);
        }
        lock(&request.progress).sent = Some(sent.clone());
        if goes {
            flow.sent.push(sent.clone());
        } else {
            flow.waiting.push_back(sent.clone());
        }
        goes
    };
    let queue = if forget {
        let mut progress = lock(&request.progress);
        progress.outside = Outside::No;
        progress.queue.take()
    } else {
        None
    };
    if goes {
        sent.clone().go(state);
    }
    if let Some(queue) = queue {
        queue.delivered.fetch_sub(1, AcqRel);
        state.present(&queue);
    }
    let end = (limit > 0).then(|| state.machine.now().saturating_add(limit));
    if waits {
        let is_over = || sent.over.load(Acquire);
        if !waiting::until(state, end, "a request that is sent", is_over) {
            sent.timed_out.store(true, Release);
            sent.cancel(state);
            waiting::until(state, None, "a request that is sent, and cancelled", is_over);
        }
    } else if end.is_some() && !sent.over.load(Acquire) {
        let of_thread = state.clone();
        system_thread::spawn_for_work_item(state, target.owner, move || {
            if !waiting::until(&of_thread, end, "the time-out of a request that is sent", || sent.over.load(Acquire)) {
                sent.timed_out.store(true, Release);
                sent.cancel(&of_thread);
            }
        });
    }
    Ok(())
}

/// Returns true if the target has the request now, or has had it; with `WDF_REQUEST_SEND_OPTION_SYNCHRONOUS` only if it succeeded.
pub extern "C" fn WdfRequestSend(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    to: WDFIOTARGET,
    options: *const SendOptions,
) -> BOOLEAN {
    routine!("WdfRequestSend", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        let target = target(state, to);
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let options = unsafe { Options::read(options) };
        check_level("WdfRequestSend", options.has(SYNCHRONOUS));
        if lock(&request.progress).cancel.is_some() {
            bug_check(Rule::RequestCancelable, format_args!("a cancelable request is sent"));
        }
        let (form, has_routine) = outgoing(&request, |outgoing| (outgoing.form.take(), outgoing.routine.is_some()));
        let is_made = request.asks == Asks::Made;
        let forget = options.has(SEND_AND_FORGET);
        if forget && (is_made || has_routine || options.flags & !IGNORE_TARGET_STATE != SEND_AND_FORGET) {
            let words = "a request is sent and forgotten that the driver has made, with a completion routine, or with other options";
            bug_check(Rule::BadArgument, format_args!("{words}"));
        }
        let form = match form {
            Some(form) => form,
            None if forget => Form::Current,
            None => bug_check(Rule::BadArgument, format_args!("a request is sent that was not formatted")),
        };
        let waits = options.has(SYNCHRONOUS);
        let sent = if waits || forget || is_made || has_routine {
            send(state, &target, &request, form.clone(), options)
        } else {
            // Nobody would complete it.
            Err(STATUS_INVALID_DEVICE_REQUEST)
        };
        match sent {
            Ok(()) if waits => BOOLEAN::from(lock(&request.progress).status >= 0),
            Ok(()) => 1,
            Err(status) => {
                // It is as it was, and can be sent again.
                outgoing(&request, |outgoing| outgoing.form = Some(form));
                lock(&request.progress).status = status;
                0
            }
        }
    })
}

pub extern "C" fn WdfRequestGetStatus(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> NTSTATUS {
    routine!("WdfRequestGetStatus", DISPATCH_LEVEL, |state| lock(&owned(state, handle).progress).status)
}

pub extern "C" fn WdfRequestSetCompletionRoutine(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    routine: Option<CompletionRoutine>,
    context: WDFCONTEXT,
) {
    routine!("WdfRequestSetCompletionRoutine", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        let context = context.expose_provenance();
        outgoing(&request, |outgoing| (outgoing.routine, outgoing.context) = (routine, context));
    });
}

pub extern "C" fn WdfRequestGetCompletionParams(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: *mut CompletionParams,
) {
    routine!("WdfRequestGetCompletionParams", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        check_size::<CompletionParams>(unsafe { (*place).size }, "WDF_REQUEST_COMPLETION_PARAMS");
        let Some(came) = outgoing(&request, |outgoing| outgoing.came) else {
            bug_check(Rule::BadArgument, format_args!("the completion parameters of a request that was not sent"));
        };
        // SAFETY: the driver's structure, which lives until the call returns.
        unsafe { place.write(came) };
    });
}

/// What is known of a request's way is forgotten, so that it can be sent anew.
pub extern "C" fn WdfRequestReuse(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    params: *const ReuseParams,
) -> NTSTATUS {
    routine!("WdfRequestReuse", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let params = unsafe { params.read() };
        check_size::<ReuseParams>(params.size, "WDF_REQUEST_REUSE_PARAMS");
        if params.flags != 0 {
            bug_check(Rule::NotSimulated, format_args!("a request that is used again with another IRP"));
        }
        if request.asks != Asks::Made {
            bug_check(Rule::BadHandle, format_args!("WdfRequestReuse of a request that its driver has not made"));
        }
        outgoing(&request, |outgoing| *outgoing = Outgoing::default());
        request.cancelled.store(false, Release);
        let mut progress = lock(&request.progress);
        (progress.status, progress.information) = (params.status, 0);
        STATUS_SUCCESS
    })
}

/// A request of the driver's own, whose child it is without a word of the driver's.
pub extern "C" fn WdfRequestCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    to: WDFIOTARGET,
    place: *mut WDFREQUEST,
) -> NTSTATUS {
    routine!("WdfRequestCreate", DISPATCH_LEVEL, |state| {
        if !to.is_null() {
            target(state, to);
        }
        let request = Arc::new(RequestObject::made());
        let parent = state.driver_object(context::caller());
        let Some(made) = state.create_object(request.clone(), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        request.handle.store(made.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(made.pointer()) };
        STATUS_SUCCESS
    })
}

/// Returns true if who has the request was told to end it; it comes back by its completion routine all the same.
pub extern "C" fn WdfRequestCancelSentRequest(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> BOOLEAN {
    routine!("WdfRequestCancelSentRequest", DISPATCH_LEVEL, |state| {
        if is_shown_here(handle) && state.was_request(handle.addr()) {
            return 0;
        }
        let request = owned(state, handle);
        state.preempt();
        let sent = lock(&request.progress).sent.clone();
        let Some(sent) = sent else { return 0 };
        if request.asks == Asks::Made {
            request.cancelled.store(true, Release);
        }
        sent.cancel(state);
        1
    })
}

pub extern "C" fn WdfRequestFormatRequestUsingCurrentType(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) {
    routine!("WdfRequestFormatRequestUsingCurrentType", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        if request.asks == Asks::Made {
            bug_check(Rule::BadHandle, format_args!("a request that the driver has made is formatted by its type"));
        }
        outgoing(&request, |outgoing| outgoing.form = Some(Form::Current));
    });
}

/// Every request here can go to every target.
pub extern "C" fn WdfRequestChangeTarget(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    to: WDFIOTARGET,
) -> NTSTATUS {
    routine!("WdfRequestChangeTarget", DISPATCH_LEVEL, |state| {
        at_hand(state, handle);
        target(state, to);
        if state.strikes() { STATUS_INSUFFICIENT_RESOURCES } else { STATUS_SUCCESS }
    })
}

/// Says what a request is to be when it is sent.
pub fn format(
    state: &Arc<State>,
    to: WDFIOTARGET,
    handle: WDFREQUEST,
    form: impl FnOnce() -> Result<Form, NTSTATUS>,
) -> NTSTATUS {
    let request = at_hand(state, handle);
    if let Err(status) = target(state, to).leads_to() {
        return status;
    }
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    match form() {
        Ok(form) => {
            outgoing(&request, |outgoing| outgoing.form = Some(form));
            STATUS_SUCCESS
        }
        Err(status) => status,
    }
}

/// The device whose target it is.
pub extern "C" fn WdfIoTargetGetDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFIOTARGET) -> WDFDEVICE {
    routine!("WdfIoTargetGetDevice", DISPATCH_LEVEL, |state| {
        ptr::without_provenance_mut(target(state, handle).device.handle.load(Acquire))
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 10] {
    [
        entry!(WdfRequestSend),
        entry!(WdfRequestGetStatus),
        entry!(WdfRequestSetCompletionRoutine),
        entry!(WdfRequestGetCompletionParams),
        entry!(WdfRequestReuse),
        entry!(WdfRequestCreate),
        entry!(WdfRequestCancelSentRequest),
        entry!(WdfRequestFormatRequestUsingCurrentType),
        entry!(WdfRequestChangeTarget),
        entry!(WdfIoTargetGetDevice),
    ]
}
