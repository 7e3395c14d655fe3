//! Requests that drivers send on: to the driver below, to another driver's device, and to the bus.

use std::{
    mem, ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
};

use simulated_kernel::{Device, Driver, DuringRun, File, Kernel, Rule, caught, irql};
use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_FILEOBJECT_CLASS, _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_IO_TARGET_STATE as state,
    _WDF_REQUEST_TYPE, GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, POOL_FLAG_NON_PAGED, PVOID,
    PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT, STATUS_ACCESS_VIOLATION, STATUS_BUFFER_TOO_SMALL, STATUS_CANCELLED,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    WDF_FILEOBJECT_CONFIG, WDF_IO_QUEUE_CONFIG, WDF_OBJECT_CONTEXT_TYPE_INFO, WDF_REQUEST_PARAMETERS, WDF_TIMER_CONFIG,
    WDFCONTEXT, WDFDEVICE, WDFDRIVER, WDFFILEOBJECT, WDFIOTARGET, WDFMEMORY, WDFOBJECT, WDFQUEUE, WDFREQUEST,
    WDFREQUEST__, WDFTIMER, call_unsafe_wdf_function_binding,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, KeLowerIrql, KfRaiseIrql},
};

use crate::small_driver::{attributes, create_device, create_driver, open_target, size};

const STATUS_IO_TIMEOUT: NTSTATUS = 0xC000_00B5_u32.cast_signed();
const TAG: u32 = u32::from_ne_bytes(*b"Sent");
static CLASS: GUID = GUID { Data1: 0x5E17_0001, Data2: 1, Data3: 2, Data4: [3; 8] };
/// Buffered, and as the program's own addresses.
pub const CODE: u32 = 0x22_2000;
pub const NEITHER: u32 = 0x22_2003;

/// `WDF_REQUEST_SEND_OPTIONS` and what it asks for.
#[repr(C)]
struct Options {
    size: u32,
    flags: u32,
    timeout: i64,
}
const TIMEOUT: u32 = 1;
pub const SYNCHRONOUS: u32 = 2;
const IGNORE_STATE: u32 = 4;
const FORGET: u32 = 8;

/// `WDF_REQUEST_COMPLETION_PARAMS`.
#[repr(C)]
struct Params {
    size: u32,
    kind: i32,
    status: NTSTATUS,
    information: usize,
    union: [usize; 6],
}

/// `WDFMEMORY_OFFSET`.
#[repr(C)]
struct Part {
    offset: usize,
    length: usize,
}

/// `WDF_MEMORY_DESCRIPTOR` of a buffer.
#[repr(C)]
struct Buffer {
    kind: i32,
    what: PVOID,
    length: u32,
}

/// `WDF_REQUEST_REUSE_PARAMS`.
#[repr(C)]
struct Reuse {
    size: u32,
    flags: u32,
    status: NTSTATUS,
    irp: PVOID,
}

type Routine = unsafe extern "C" fn(WDFREQUEST, WDFIOTARGET, *mut Params, WDFCONTEXT);

/// Calls a function of the framework that the bindings leave out, with the type that its header has.
macro_rules! framework {
    ($name:ident($($value:expr => $kind:ty),* $(,)?) $(-> $result:ty)?) => {{
        type Function = unsafe extern "C" fn(wdk_sys::PWDF_DRIVER_GLOBALS $(, $kind)*) $(-> $result)?;
        let mut names = image_loader::framework::FUNCTIONS.iter();
        let index = names.position(|&one| one == stringify!($name)).expect("a function of the framework");
        // SAFETY: the table of the kernel that runs, which has as many places as there are names.
        let entry = unsafe { wdk_sys::WdfFunctions.add(index).read() }.expect("every place has one");
        // SAFETY: the type that the framework's header has for the name.
        let function = unsafe { std::mem::transmute::<*const (), Function>(entry as *const ()) };
        // SAFETY: as wrong as the test wants it.
        unsafe { function(wdk_sys::WdfDriverGlobals $(, $value)*) }
    }};
}

pub(crate) use framework;

/// What the drivers of a test do.
#[derive(Clone, Copy)]
pub struct Like {
    /// The driver below, with a request; the number is the length of a read or write, or that of a control code's output.
    pub below: fn(WDFREQUEST, usize),
    /// The filter, with a request.
    pub above: fn(WDFREQUEST),
    /// The filter has a queue.
    pub queue: bool,
    /// That has a callback for control codes only.
    pub only_control: bool,
    /// The driver below, in the context of who asks.
    pub looks: Option<unsafe extern "C" fn(WDFDEVICE, WDFREQUEST)>,
}

pub const RIGHT: Like = Like { below: answer, above: forget, queue: true, only_control: false, looks: None };

static LIKE: DuringRun<Mutex<Like>> = DuringRun::new(Mutex::new(RIGHT));
static HEARD: DuringRun<[AtomicU32; 2]> = DuringRun::new([const { AtomicU32::new(0) }; 2]);
static OFFSET: DuringRun<AtomicI64> = DuringRun::new(AtomicI64::new(0));
static KEPT: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static SENT: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static STATUS: DuringRun<AtomicI32> = DuringRun::new(AtomicI32::new(0));
static CAME: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static DEVICE: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

fn like() -> Like {
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn device() -> WDFDEVICE {
    ptr::without_provenance_mut(DEVICE.load(SeqCst))
}

fn heard() -> [u32; 2] {
    [HEARD[0].swap(0, SeqCst), HEARD[1].swap(0, SeqCst)]
}

unsafe extern "system" fn lower_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, lower_add)
}

unsafe extern "system" fn upper_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, upper_add)
}

unsafe extern "system" fn consumer_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, consumer_add)
}

unsafe extern "C" fn created(_: WDFDEVICE, request: WDFREQUEST, _: WDFFILEOBJECT) {
    let asked = parameters(request);
    assert_eq!(asked.Type, _WDF_REQUEST_TYPE::WdfRequestTypeCreate);
    // SAFETY: for this type the union holds this member.
    let create = unsafe { asked.Parameters.Create };
    assert_eq!((create.ShareAccess, create.EaLength, create.Options >> 24), (3, 0, 1));
    complete(request, STATUS_SUCCESS, 0);
}

unsafe extern "C" fn lower_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let mut files = WDF_FILEOBJECT_CONFIG {
        Size: size::<WDF_FILEOBJECT_CONFIG>(),
        EvtDeviceFileCreate: Some(created),
        FileObjectClass: _WDF_FILEOBJECT_CLASS::WdfFileObjectWdfCannotUseFsContexts,
        ..WDF_FILEOBJECT_CONFIG::default()
    };
    let mut of_files = attributes();
    // SAFETY: the framework's structure, and others that live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetFileObjectConfig, init, &raw mut files, &raw mut of_files);
    }
    if let Some(looks) = like().looks {
        type Looks = unsafe extern "C" fn(WDFDEVICE, WDFREQUEST);
        framework!(WdfDeviceInitSetIoInCallerContextCallback(init => PWDFDEVICE_INIT, looks => Looks));
    }
    let device = create_device(init, attributes());
    queue(device, 0);
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "C" fn upper_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
    let device = create_device(init, attributes());
    DEVICE.store(device.addr(), SeqCst);
    if like().queue {
        queue(device, 1);
    }
    STATUS_SUCCESS
}

unsafe extern "C" fn consumer_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    DEVICE.store(create_device(init, attributes()).addr(), SeqCst);
    STATUS_SUCCESS
}

fn queue(device: WDFDEVICE, level: usize) {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel,
        DefaultQueue: 1,
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    config.Settings.Parallel.NumberOfPresentedRequests = u32::MAX;
    if level == 0 {
        config.EvtIoRead = Some(below);
        config.EvtIoWrite = Some(below);
        config.EvtIoDeviceControl = Some(control_below);
    } else if like().only_control {
        config.EvtIoDeviceControl = Some(control_above);
    } else {
        config.EvtIoDefault = Some(above);
    }
    // SAFETY: the device is live, and the structures live until the call returns.
    let queued = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), ptr::null_mut())
    };
    assert_eq!(queued, 0);
}

unsafe extern "C" fn below(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    HEARD[0].fetch_add(1, SeqCst);
    let asked = parameters(request);
    // SAFETY: for reads and writes the union holds these members, which are in the same places.
    OFFSET.store(unsafe { asked.Parameters.Read.DeviceOffset }, SeqCst);
    (like().below)(request, length);
}

unsafe extern "C" fn control_below(_: WDFQUEUE, request: WDFREQUEST, output: usize, _: usize, _: u32) {
    HEARD[0].fetch_add(1, SeqCst);
    (like().below)(request, output);
}

unsafe extern "C" fn control_above(queue: WDFQUEUE, request: WDFREQUEST, _: usize, _: usize, _: u32) {
    // SAFETY: the arguments of this call.
    unsafe { above(queue, request) };
}

unsafe extern "C" fn above(_: WDFQUEUE, request: WDFREQUEST) {
    HEARD[1].fetch_add(1, SeqCst);
    (like().above)(request);
}

fn parameters(request: WDFREQUEST) -> WDF_REQUEST_PARAMETERS {
    // SAFETY: zeros are a value of every field: numbers and pointers.
    let mut parameters = unsafe { mem::zeroed::<WDF_REQUEST_PARAMETERS>() };
    parameters.Size = u16::try_from(size_of::<WDF_REQUEST_PARAMETERS>()).expect("a small structure");
    // SAFETY: the driver has the request, and the structure lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetParameters, request, &raw mut parameters) };
    parameters
}

fn complete(request: WDFREQUEST, status: NTSTATUS, information: usize) {
    crate::skeleton::complete(request, status, information);
}

pub fn buffer(request: WDFREQUEST, of_input: bool) -> Option<(*mut u8, usize)> {
    let (mut place, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the driver has the request, and the places live until the call returns.
    let status = unsafe {
        if of_input {
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveInputBuffer,
                request,
                1,
                &raw mut place,
                &raw mut length
            )
        } else {
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveOutputBuffer,
                request,
                1,
                &raw mut place,
                &raw mut length
            )
        }
    };
    (status >= 0).then_some((place.cast(), length))
}

/// Answers with the first byte of the input, or 1, and the numbers that follow it.
pub fn answer(request: WDFREQUEST, length: usize) {
    // SAFETY: the buffer has a byte at least.
    let first = buffer(request, true).map_or(1, |(place, _)| unsafe { place.read() } + 1);
    if let Some((place, room)) = buffer(request, false) {
        for index in 0..room {
            // SAFETY: the buffer has that many bytes.
            unsafe { place.add(index).write(first + u8::try_from(index).expect("a small number")) };
        }
    }
    complete(request, STATUS_SUCCESS, length);
}

unsafe extern "C" fn cancelled(request: WDFREQUEST) {
    complete(request, STATUS_CANCELLED, 0);
}

/// Keeps the request, which can be cancelled.
fn keep(request: WDFREQUEST, _: usize) {
    KEPT.store(request, SeqCst);
    // SAFETY: the driver has the request.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelable, request, Some(cancelled)) };
}

fn kept() -> WDFREQUEST {
    KEPT.load(SeqCst)
}

pub fn target() -> WDFIOTARGET {
    let target = framework!(WdfDeviceGetIoTarget(device() => WDFDEVICE) -> WDFIOTARGET);
    assert!(!target.is_null());
    target
}

pub fn send_to(request: WDFREQUEST, target: WDFIOTARGET, flags: u32, timeout: i64) -> bool {
    let options = Options { size: size::<Options>(), flags, timeout };
    framework!(WdfRequestSend(request => WDFREQUEST, target => WDFIOTARGET, &raw const options => *const Options) -> u8)
        != 0
}

pub fn status_of(request: WDFREQUEST) -> NTSTATUS {
    framework!(WdfRequestGetStatus(request => WDFREQUEST) -> NTSTATUS)
}

pub fn forget(request: WDFREQUEST) {
    if !send_to(request, target(), FORGET, 0) {
        complete(request, status_of(request), 0);
    }
}

fn set_routine(request: WDFREQUEST, routine: Routine) {
    framework!(WdfRequestSetCompletionRoutine(request => WDFREQUEST, routine => Routine, ptr::without_provenance_mut(5) => WDFCONTEXT));
}

fn format(request: WDFREQUEST) {
    framework!(WdfRequestFormatRequestUsingCurrentType(request => WDFREQUEST));
}

/// Completes what has come back, as it came back.
unsafe extern "C" fn came_back(request: WDFREQUEST, of: WDFIOTARGET, params: *mut Params, context: WDFCONTEXT) {
    assert_eq!(context.addr(), 5);
    CAME.fetch_add(1, SeqCst);
    // SAFETY: the framework's structure, while the routine runs.
    let (status, information) = unsafe { ((*params).status, (*params).information) };
    STATUS.store(status, SeqCst);
    assert_eq!(of, target());
    assert_eq!(status_of(request), status);
    complete(request, status, information);
}

/// Sends it and has it back.
fn with_routine(request: WDFREQUEST) {
    SENT.store(request, SeqCst);
    format(request);
    set_routine(request, came_back);
    if !send_to(request, target(), 0, 0) {
        complete(request, status_of(request), 0);
    }
}

fn synchronously(request: WDFREQUEST) {
    format(request);
    let sent = send_to(request, target(), SYNCHRONOUS, 0);
    assert_eq!(sent, status_of(request) >= 0);
    // SAFETY: the driver has the request.
    let information = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetInformation, request) };
    complete(request, status_of(request), usize::try_from(information).expect("a small number"));
}

/// The drivers, and a program with the interface open.
pub struct Stack {
    kernel: Kernel,
    pub lower: Driver,
    pub upper: Driver,
    device: Option<Device>,
}

impl Stack {
    fn new(kernel: Kernel, like: Like) -> Self {
        *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = like;
        heard();
        CAME.store(0, SeqCst);
        let lower = kernel.load("lower", lower_entry).expect("the driver loads");
        let upper = kernel.load("upper", upper_entry).expect("the driver loads");
        let device = lower.add_device_under(&[&upper]).expect("the device starts");
        Self { kernel, lower, upper, device: Some(device) }
    }

    fn open(&self) -> File {
        let links = self.device.as_ref().expect("there is one").links();
        self.kernel.open(&links[0]).expect("the device opens")
    }

    fn end(mut self) {
        assert!(self.device.take().expect("there is one").remove().is_ok());
        self.upper.unload();
        self.lower.unload();
    }
}

fn seeded(seed: u64) -> Kernel {
    Kernel::seeded(seed).preemption(30).start()
}

pub fn stack(like: Like, work: impl Fn(&Stack, &File)) {
    for seed in 1..6 {
        let stack = Stack::new(seeded(seed), like);
        let file = stack.open();
        work(&stack, &file);
        drop(file);
        stack.end();
    }
}

#[test]
fn what_a_filter_sends_on_is_answered_below() {
    for (above, comes) in [(forget as fn(WDFREQUEST), 0), (with_routine, 3), (synchronously, 0)] {
        stack(Like { above, ..RIGHT }, |_, file| {
            CAME.store(0, SeqCst);
            let answer = file.control(CODE, &[6, 0, 0], 4);
            assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![7, 8, 9, 10]));
            assert_eq!(file.begin_read_at(300, 3).wait().bytes, [1, 2, 3]);
            assert_eq!(OFFSET.load(SeqCst), 300);
            assert_eq!(file.begin_write_at(1 << 40, &[7, 8]).wait().status, STATUS_SUCCESS);
            assert_eq!(OFFSET.load(SeqCst), 1 << 40);
            assert_eq!((heard(), CAME.load(SeqCst)), ([3, 3], comes));
        });
    }
}

#[test]
fn a_filter_without_a_queue_does_not_see_requests() {
    stack(Like { queue: false, ..RIGHT }, |_, file| {
        assert_eq!(file.control(CODE, &[6], 1).bytes, [7]);
        assert_eq!(heard(), [1, 0]);
    });
}

#[test]
fn a_filter_does_not_see_what_its_default_queue_has_no_callback_for() {
    stack(Like { only_control: true, ..RIGHT }, |_, file| {
        assert_eq!(file.begin_read(2).wait().bytes, [1, 2]);
        assert_eq!(heard(), [1, 0]);
        assert_eq!(file.control(CODE, &[6], 1).bytes, [7]);
        assert_eq!(heard(), [1, 1]);
    });
}

#[test]
fn what_a_program_cancels_is_cancelled_where_it_is() {
    for above in [forget as fn(WDFREQUEST), with_routine] {
        stack(Like { above, below: keep, ..RIGHT }, |_, file| {
            let pending = file.begin(CODE, &[], 1);
            assert!(!pending.is_complete());
            pending.cancel();
            assert_eq!(pending.wait().status, STATUS_CANCELLED);
        });
    }
}

#[test]
fn a_driver_cancels_what_it_has_sent() {
    stack(Like { above: with_routine, below: keep, ..RIGHT }, |stack, file| {
        let cancel = || framework!(WdfRequestCancelSentRequest(SENT.load(SeqCst) => WDFREQUEST) -> u8) != 0;
        let pending = file.begin(CODE, &[], 1);
        assert!(stack.upper.run(cancel));
        assert_eq!((pending.wait().status, STATUS.load(SeqCst)), (STATUS_CANCELLED, STATUS_CANCELLED));
    });
}

/// A cancellation and a completion of the driver below, at the same time: the request comes back once.
#[test]
fn a_cancellation_and_a_completion_below_that_race_come_back_once() {
    let like = Like { above: with_routine, below: |request, _| KEPT.store(request, SeqCst), ..RIGHT };
    let stack = Stack::new(Kernel::threads().start(), like);
    let file = stack.open();
    for round in 1..300 {
        let pending = file.begin(CODE, &[], 1);
        std::thread::scope(|scope| {
            scope.spawn(|| stack.lower.run(|| complete(kept(), STATUS_SUCCESS, 0)));
            pending.cancel();
        });
        assert!([STATUS_SUCCESS, STATUS_CANCELLED].contains(&pending.wait().status));
        assert_eq!(CAME.load(SeqCst), round);
    }
    drop(file);
    stack.end();
}

/// The time-out of what is sent: ten milliseconds from now.
const SOON: i64 = -100_000;

#[test]
fn a_request_whose_time_is_out_comes_back_with_io_timeout() {
    let late = |request| {
        format(request);
        set_routine(request, came_back);
        assert!(send_to(request, target(), TIMEOUT, SOON));
    };
    let waits = |request| {
        format(request);
        let sent = send_to(request, target(), TIMEOUT | SYNCHRONOUS, SOON);
        assert_eq!(sent, status_of(request) >= 0);
        complete(request, status_of(request), 0);
    };
    for above in [late as fn(WDFREQUEST), waits] {
        stack(Like { above, below: keep, ..RIGHT }, |_, file| {
            assert_eq!(file.control(CODE, &[], 1).status, STATUS_IO_TIMEOUT);
        });
        stack(Like { above, ..RIGHT }, |_, file| {
            assert_eq!(file.control(CODE, &[], 1).status, STATUS_SUCCESS, "it was in time");
        });
    }
}

fn state_of(target: WDFIOTARGET) -> i32 {
    framework!(WdfIoTargetGetState(target => WDFIOTARGET) -> i32)
}

fn start(target: WDFIOTARGET) -> NTSTATUS {
    framework!(WdfIoTargetStart(target => WDFIOTARGET) -> NTSTATUS)
}

fn stop(target: WDFIOTARGET, action: i32) {
    framework!(WdfIoTargetStop(target => WDFIOTARGET, action => i32));
}

fn purge(target: WDFIOTARGET, action: i32) {
    framework!(WdfIoTargetPurge(target => WDFIOTARGET, action => i32));
}

#[test]
fn what_is_sent_to_a_stopped_target_waits_until_it_is_started() {
    stack(Like { above: with_routine, ..RIGHT }, |stack, file| {
        stack.upper.run(|| stop(target(), 3));
        let waiting = [file.begin(CODE, &[6], 1), file.begin(CODE, &[7], 1), file.begin(CODE, &[8], 1)];
        assert_eq!(heard(), [0, 3]);
        waiting[1].cancel();
        stack.upper.run(|| {
            assert_eq!(state_of(target()), state::WdfIoTargetStopped);
            assert_eq!(start(target()), STATUS_SUCCESS);
            assert_eq!(state_of(target()), state::WdfIoTargetStarted);
        });
        let answers = waiting.map(|pending| pending.wait().bytes);
        assert_eq!((answers, heard()), ([vec![7], vec![], vec![9]], [2, 0]));
    });
}

#[test]
fn a_request_that_ignores_the_state_goes_to_a_stopped_target() {
    let above = |request| {
        format(request);
        set_routine(request, came_back);
        assert!(send_to(request, target(), IGNORE_STATE, 0));
    };
    stack(Like { above, ..RIGHT }, |stack, file| {
        stack.upper.run(|| stop(target(), 3));
        assert_eq!(file.control(CODE, &[6], 1).bytes, [7]);
    });
}

#[test]
fn a_stop_that_cancels_and_a_purge_wait_for_what_was_sent() {
    stack(Like { above: with_routine, below: keep, ..RIGHT }, |stack, file| {
        for end in [|| stop(target(), 1), || purge(target(), 1)] {
            let pending = file.begin(CODE, &[], 1);
            stack.upper.run(end);
            assert!(pending.is_complete());
            assert_eq!(pending.wait().status, STATUS_CANCELLED);
        }
        stack.upper.run(|| assert_eq!(state_of(target()), state::WdfIoTargetPurged));
        assert_eq!(file.control(CODE, &[], 1).status, STATUS_INVALID_DEVICE_STATE, "a purged target takes nothing");
        stack.upper.run(|| assert_eq!(start(target()), STATUS_SUCCESS));
        let pending = file.begin(CODE, &[], 1);
        stack.upper.run(|| purge(target(), 2));
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

#[test]
fn a_received_request_without_a_completion_routine_is_not_sent() {
    let above = |request| {
        format(request);
        assert!(!send_to(request, target(), 0, 0));
        complete(request, status_of(request), 0);
    };
    stack(Like { above, ..RIGHT }, |_, file| {
        assert_eq!(file.control(CODE, &[], 1).status, STATUS_INVALID_DEVICE_REQUEST);
        assert_eq!(heard(), [0, 1]);
    });
}

#[test]
fn the_target_of_a_filter_is_for_its_device() {
    stack(RIGHT, |stack, _| {
        stack.upper.run(|| {
            assert_eq!(framework!(WdfIoTargetGetDevice(target() => WDFIOTARGET) -> WDFDEVICE), device());
            let mut length = 7_u32;
            let none = ptr::null_mut();
            let asked = framework!(WdfIoTargetQueryTargetProperty(
                target() => WDFIOTARGET, 0 => i32, 0 => u32, none => PVOID, &raw mut length => *mut u32,
            ) -> NTSTATUS);
            assert_eq!((asked, length), (STATUS_OBJECT_NAME_NOT_FOUND, 0));
            let mut memory = ptr::null_mut();
            let asked = framework!(WdfIoTargetAllocAndQueryTargetProperty(
                target() => WDFIOTARGET, 0 => i32, 0 => i32, ptr::null_mut() => PWDF_OBJECT_ATTRIBUTES,
                &raw mut memory => *mut WDFMEMORY,
            ) -> NTSTATUS);
            assert_eq!((asked, memory.is_null()), (STATUS_OBJECT_NAME_NOT_FOUND, true));
        });
    });
}

/// A driver with the device of another one open, or with the bus below it.
fn consumer(work: impl Fn(&Kernel, &Driver, &Driver, &Device)) {
    for seed in 1..6 {
        let kernel = seeded(seed);
        *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = RIGHT;
        heard();
        CAME.store(0, SeqCst);
        let lower = kernel.load("lower", lower_entry).expect("the driver loads");
        let device = lower.add_device().expect("the device starts");
        let driver = kernel.load("consumer", consumer_entry).expect("the driver loads");
        let of_driver = driver.add_device().expect("the device starts");
        work(&kernel, &lower, &driver, &device);
        assert!(of_driver.remove().is_ok());
        driver.unload();
        assert!(device.remove().is_ok());
        lower.unload();
    }
}

unsafe extern "C" fn asked(target: WDFIOTARGET) -> NTSTATUS {
    // SAFETY: the target is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetCloseForQueryRemove, target) };
    STATUS_SUCCESS
}

unsafe extern "C" fn gone(_: WDFIOTARGET) {}

fn open(of: &Device) -> WDFIOTARGET {
    open_target(device(), &of.links()[0], asked, gone).expect("the device opens")
}

fn delete(object: WDFOBJECT) {
    // SAFETY: as wrong as the test wants it.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, object) };
}

fn make(target: WDFIOTARGET) -> WDFREQUEST {
    let (mut attributes, mut request) = (attributes(), ptr::null_mut());
    attributes.ParentObject = target.cast();
    let made = framework!(WdfRequestCreate(
        &raw mut attributes => PWDF_OBJECT_ATTRIBUTES, target => WDFIOTARGET, &raw mut request => *mut WDFREQUEST,
    ) -> NTSTATUS);
    assert_eq!(made, STATUS_SUCCESS);
    request
}

fn memory(parent: WDFREQUEST, bytes: &[u8]) -> (WDFMEMORY, *mut u8) {
    let (mut attributes, mut memory, mut place) = (attributes(), ptr::null_mut(), ptr::null_mut());
    attributes.ParentObject = parent.cast();
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(
            WdfMemoryCreate,
            &raw mut attributes,
            0,
            TAG,
            bytes.len(),
            &raw mut memory,
            &raw mut place
        )
    };
    assert_eq!(made, 0);
    let place = place.cast::<u8>();
    // SAFETY: a new block with room for the bytes.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    (memory, place)
}

fn format_read(target: WDFIOTARGET, request: WDFREQUEST, memory: WDFMEMORY, part: &Part, offset: i64) -> NTSTATUS {
    framework!(WdfIoTargetFormatRequestForRead(
        target => WDFIOTARGET, request => WDFREQUEST, memory => WDFMEMORY, &raw const *part => *const Part,
        &raw const offset => *const i64,
    ) -> NTSTATUS)
}

fn format_write(target: WDFIOTARGET, request: WDFREQUEST, memory: WDFMEMORY) -> NTSTATUS {
    framework!(WdfIoTargetFormatRequestForWrite(
        target => WDFIOTARGET, request => WDFREQUEST, memory => WDFMEMORY, ptr::null() => *const Part,
        ptr::null() => *const i64,
    ) -> NTSTATUS)
}

/// Notes how a request of the driver's own came back.
unsafe extern "C" fn made_came_back(request: WDFREQUEST, _: WDFIOTARGET, params: *mut Params, _: WDFCONTEXT) {
    // SAFETY: the framework's structure, while the routine runs.
    STATUS.store(unsafe { (*params).status }, SeqCst);
    assert_eq!(status_of(request), STATUS.load(SeqCst));
    CAME.fetch_add(1, SeqCst);
}

fn reuse(request: WDFREQUEST) -> NTSTATUS {
    let params = Reuse { size: size::<Reuse>(), flags: 0, status: STATUS_SUCCESS, irp: ptr::null_mut() };
    framework!(WdfRequestReuse(request => WDFREQUEST, &raw const params => *const Reuse) -> NTSTATUS)
}

fn params_of(request: WDFREQUEST) -> Params {
    let mut params = Params { size: size::<Params>(), kind: 0, status: 0, information: 0, union: [0; 6] };
    framework!(WdfRequestGetCompletionParams(request => WDFREQUEST, &raw mut params => *mut Params));
    params
}

fn send_made(request: WDFREQUEST, target: WDFIOTARGET) -> bool {
    set_routine(request, made_came_back);
    send_to(request, target, 0, 0)
}

#[test]
fn a_request_of_a_drivers_own_is_formatted_sent_and_used_again() {
    consumer(|_, _, driver, of| {
        driver.run(|| {
            let target = open(of);
            let request = make(target);
            let (read, place) = memory(request, &[0; 8]);
            let part = Part { offset: 2, length: 3 };
            assert_eq!(format_read(target, request, read, &Part { offset: 7, length: 3 }, 0), STATUS_BUFFER_TOO_SMALL);
            for round in 1..4 {
                assert_eq!(format_read(target, request, read, &part, 77), STATUS_SUCCESS);
                assert!(send_made(request, target));
                assert_eq!((CAME.load(SeqCst), STATUS.load(SeqCst), OFFSET.load(SeqCst)), (round, STATUS_SUCCESS, 77));
                let params = params_of(request);
                assert_eq!(params.kind, _WDF_REQUEST_TYPE::WdfRequestTypeRead);
                assert_eq!(params.union[..3], [read.addr(), 3, 2], "the buffer, how much was read, and to where");
                assert_eq!(reuse(request), STATUS_SUCCESS);
            }
            // SAFETY: the block has eight bytes.
            assert_eq!(unsafe { std::slice::from_raw_parts(place, 8) }, [0, 0, 1, 2, 3, 0, 0, 0]);
            let (write, _) = memory(request, &[1, 2]);
            assert_eq!(format_write(target, request, write), STATUS_SUCCESS);
            let changed = framework!(WdfRequestChangeTarget(request => WDFREQUEST, target => WDFIOTARGET) -> NTSTATUS);
            assert_eq!(changed, STATUS_SUCCESS);
            assert!(send_made(request, target));
            assert_eq!(params_of(request).union[..2], [write.addr(), 2]);
            assert_eq!(reuse(request), STATUS_SUCCESS);
            let none = ptr::null::<Part>();
            let asked = framework!(WdfIoTargetFormatRequestForIoctl(
                target => WDFIOTARGET, request => WDFREQUEST, CODE => u32, write => WDFMEMORY, none => *const Part,
                read => WDFMEMORY, &raw const part => *const Part,
            ) -> NTSTATUS);
            assert_eq!(asked, STATUS_SUCCESS);
            assert!(send_made(request, target));
            assert_eq!(params_of(request).union, [CODE as usize, write.addr(), 0, read.addr(), 2, 3]);
            // SAFETY: the block has eight bytes.
            assert_eq!(unsafe { std::slice::from_raw_parts(place, 8) }, [0, 0, 2, 3, 4, 0, 0, 0]);
            delete(target.cast());
        });
    });
}

#[test]
fn a_driver_waits_for_what_it_sends() {
    consumer(|_, _, driver, of| {
        driver.run(|| {
            let target = open(of);
            let (mut bytes, mut count) = ([9_u8; 4], 0_usize);
            let whole = Buffer { kind: 1, what: bytes.as_mut_ptr().cast(), length: 4 };
            let (none, offset) = (ptr::null_mut(), 12_i64);
            let read = framework!(WdfIoTargetSendReadSynchronously(
                target => WDFIOTARGET, none => WDFREQUEST, &raw const whole => *const Buffer, &raw const offset => *const i64,
                ptr::null() => *const Options, &raw mut count => *mut usize,
            ) -> NTSTATUS);
            assert_eq!((read, count, bytes, OFFSET.load(SeqCst)), (STATUS_SUCCESS, 4, [1, 2, 3, 4], 12));
            let request = make(target);
            let written = framework!(WdfIoTargetSendWriteSynchronously(
                target => WDFIOTARGET, request => WDFREQUEST, &raw const whole => *const Buffer, ptr::null() => *const i64,
                ptr::null() => *const Options, &raw mut count => *mut usize,
            ) -> NTSTATUS);
            assert_eq!((written, count, OFFSET.load(SeqCst)), (STATUS_SUCCESS, 4, 0));
            let mut output = [0_u8; 2];
            let room = Buffer { kind: 1, what: output.as_mut_ptr().cast(), length: 2 };
            let asked = framework!(WdfIoTargetSendIoctlSynchronously(
                target => WDFIOTARGET, none => WDFREQUEST, CODE => u32, &raw const whole => *const Buffer,
                &raw const room => *const Buffer, ptr::null() => *const Options, &raw mut count => *mut usize,
            ) -> NTSTATUS);
            assert_eq!((asked, count, output), (STATUS_SUCCESS, 2, [2, 3]));
            delete(target.cast());
        });
    });
}

#[test]
fn a_target_that_is_closed_ends_what_was_sent_and_takes_nothing() {
    consumer(|_, _, driver, of| {
        LIKE.lock().unwrap_or_else(PoisonError::into_inner).below = keep;
        driver.run(|| {
            let target = open(of);
            let request = make(target);
            let (write, _) = memory(request, &[1]);
            assert_eq!(format_write(target, request, write), STATUS_SUCCESS);
            assert!(send_made(request, target));
            assert_eq!(CAME.load(SeqCst), 0);
            // SAFETY: the target is live.
            unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetClose, target) };
            assert_eq!((CAME.load(SeqCst), STATUS.load(SeqCst)), (1, STATUS_CANCELLED));
            assert_eq!(state_of(target), state::WdfIoTargetClosed);
            assert_eq!(format_write(target, request, write), STATUS_INVALID_DEVICE_STATE);
            assert_eq!(start(target), STATUS_INVALID_DEVICE_STATE);
            delete(target.cast());
        });
    });
}

#[test]
fn the_bus_knows_no_requests_and_says_so_now_or_later() {
    consumer(|kernel, _, driver, _| {
        driver.run(|| {
            let request = make(target());
            let (write, _) = memory(request, &[1]);
            for round in 1..5 {
                assert_eq!(reuse(request), STATUS_SUCCESS);
                assert_eq!(format_write(target(), request, write), STATUS_SUCCESS);
                assert!(send_made(request, target()));
                kernel.sleep(1_000);
                assert_eq!((CAME.load(SeqCst), STATUS.load(SeqCst)), (round, STATUS_INVALID_DEVICE_REQUEST));
            }
            delete(request.cast());
        });
    });
}

fn unsafe_buffer(request: WDFREQUEST, of_input: bool) -> Result<(*mut u8, usize), NTSTATUS> {
    let (mut place, mut length) = (ptr::null_mut::<u8>(), 0_usize);
    let status = if of_input {
        framework!(WdfRequestRetrieveUnsafeUserInputBuffer(
            request => WDFREQUEST, 2 => usize, &raw mut place => *mut *mut u8, &raw mut length => *mut usize,
        ) -> NTSTATUS)
    } else {
        framework!(WdfRequestRetrieveUnsafeUserOutputBuffer(
            request => WDFREQUEST, 2 => usize, &raw mut place => *mut *mut u8, &raw mut length => *mut usize,
        ) -> NTSTATUS)
    };
    if status < 0 { Err(status) } else { Ok((place, length)) }
}

fn lock(request: WDFREQUEST, place: *mut u8, length: usize, writes: bool) -> Result<WDFMEMORY, NTSTATUS> {
    let mut memory = ptr::null_mut();
    let status = if writes {
        framework!(WdfRequestProbeAndLockUserBufferForWrite(
            request => WDFREQUEST, place => *mut u8, length => usize, &raw mut memory => *mut WDFMEMORY,
        ) -> NTSTATUS)
    } else {
        framework!(WdfRequestProbeAndLockUserBufferForRead(
            request => WDFREQUEST, place => *mut u8, length => usize, &raw mut memory => *mut WDFMEMORY,
        ) -> NTSTATUS)
    };
    if status < 0 { Err(status) } else { Ok(memory) }
}

/// The output of the request, as the driver has locked it in the context of who asks.
static LOCKED: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

unsafe extern "C" fn locks(device: WDFDEVICE, request: WDFREQUEST) {
    let asked = parameters(request);
    if asked.Type == _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl {
        // SAFETY: for this type the union holds this member.
        let control = unsafe { asked.Parameters.DeviceIoControl };
        if control.IoControlCode == CODE {
            assert_eq!(unsafe_buffer(request, true), Err(STATUS_INVALID_DEVICE_REQUEST), "the system has copied it");
        } else {
            let (input, length) = unsafe_buffer(request, true).expect("a buffer");
            assert_eq!((input.addr(), length), (control.Type3InputBuffer.addr(), 3));
            let (output, room) = unsafe_buffer(request, false).expect("a buffer");
            assert_eq!(lock(request, output.wrapping_add(1), room, true), Err(STATUS_ACCESS_VIOLATION));
            lock(request, input, length, false).expect("the input");
            LOCKED.store(lock(request, output, room, true).expect("the output").addr(), SeqCst);
        }
    }
    let put = framework!(WdfDeviceEnqueueRequest(device => WDFDEVICE, request => WDFREQUEST) -> NTSTATUS);
    assert_eq!(put, STATUS_SUCCESS);
}

#[test]
fn a_programs_own_buffers_are_locked_where_it_asks_and_used_later() {
    let below = |request, length| {
        assert_eq!(unsafe_buffer(request, true), Err(STATUS_INVALID_DEVICE_REQUEST), "not in the caller's context");
        assert_eq!(lock(request, ptr::null_mut(), 1, true), Err(STATUS_INVALID_DEVICE_REQUEST));
        let locked: WDFMEMORY = ptr::without_provenance_mut(LOCKED.swap(0, SeqCst));
        if locked.is_null() {
            return complete(request, STATUS_SUCCESS, 0);
        }
        let mut room = 0;
        // SAFETY: the request, and so its memory object, is not complete.
        let place = unsafe { call_unsafe_wdf_function_binding!(WdfMemoryGetBuffer, locked, &raw mut room) };
        assert_eq!(room, length);
        // SAFETY: the buffer has that many bytes.
        unsafe { place.cast::<u8>().write_bytes(5, room) };
        complete(request, STATUS_SUCCESS, room);
    };
    stack(Like { below, queue: false, looks: Some(locks), ..RIGHT }, |_, file| {
        let answer = file.control(NEITHER, &[1, 2, 3], 4);
        assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![5; 4]));
        assert!(file.control(CODE, &[1], 4).is_success());
    });
}

/// The types of the contexts of a test.
static TYPES: Mutex<[usize; 2]> = Mutex::new([0; 2]);
/// How many contexts their routines have seen.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Notes how many of an object's contexts are there when one of them is destroyed.
unsafe extern "C" fn destroyed(object: WDFOBJECT) {
    let types = *TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    for info in types {
        let info = ptr::with_exposed_provenance(info);
        // SAFETY: the object is there until the routine returns, and the description lives as long as the test.
        let found = unsafe { call_unsafe_wdf_function_binding!(WdfObjectGetTypedContextWorker, object, info) };
        SEEN.fetch_add(u32::from(!found.is_null()), SeqCst);
    }
}

#[test]
fn an_object_has_one_context_of_each_type() {
    let mut infos = [WDF_OBJECT_CONTEXT_TYPE_INFO::default(); 2].map(Box::new);
    for info in &mut infos {
        (info.Size, info.ContextSize) = (size::<WDF_OBJECT_CONTEXT_TYPE_INFO>(), 24);
        info.UniqueType = &raw const **info;
    }
    *TYPES.lock().unwrap_or_else(PoisonError::into_inner) =
        infos.each_ref().map(|info| (&raw const **info).expose_provenance());
    stack(RIGHT, |stack, _| {
        let types = *TYPES.lock().unwrap_or_else(PoisonError::into_inner);
        stack.upper.run(|| {
            let allocate = |info: usize| {
                let (mut attributes, mut place) = (attributes(), ptr::null_mut());
                attributes.ContextTypeInfo = ptr::with_exposed_provenance(info);
                attributes.EvtDestroyCallback = Some(destroyed);
                let status = framework!(WdfObjectAllocateContext(
                    device().cast() => WDFOBJECT, &raw mut attributes => PWDF_OBJECT_ATTRIBUTES, &raw mut place => *mut PVOID,
                ) -> NTSTATUS);
                (status, place)
            };
            let (first, second) = (allocate(types[0]), allocate(types[1]));
            assert_eq!([first.0, second.0], [STATUS_SUCCESS; 2]);
            assert_ne!(first.1, second.1);
            assert_eq!(allocate(types[0]), (0x4000_0000, first.1), "STATUS_OBJECT_NAME_EXISTS, with the one there is");
            for (info, place) in types.into_iter().zip([first.1, second.1]) {
                let (object, info) = (device().cast(), ptr::with_exposed_provenance(info));
                // SAFETY: the object is live, and the description lives as long as the test.
                let found = unsafe { call_unsafe_wdf_function_binding!(WdfObjectGetTypedContextWorker, object, info) };
                assert_eq!(found, place);
                // SAFETY: a context of the object.
                assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfObjectContextGetObject, place) }, object);
            }
            framework!(WdfVerifierDbgBreakPoint());
        });
    });
    // Five stacks, with two routines each, which see two contexts.
    assert_eq!(SEEN.load(SeqCst), 20);
    drop(infos);
}

static LEVEL: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn expired(timer: WDFTIMER) {
    LEVEL.store(u32::from(irql()) + 1, SeqCst);
    CAME.fetch_add(1, SeqCst);
    set(timer);
}

unsafe extern "C" fn stops_itself(timer: WDFTIMER) {
    stop_timer(timer);
}

fn set(timer: WDFTIMER) {
    // SAFETY: the timer is live.
    let _ = unsafe { call_unsafe_wdf_function_binding!(WdfTimerStart, timer, -10_000) };
}

fn stop_timer(timer: WDFTIMER) {
    // SAFETY: as wrong as the test wants it.
    let _ = unsafe { call_unsafe_wdf_function_binding!(WdfTimerStop, timer, 1) };
}

fn passive_timer(callback: unsafe extern "C" fn(WDFTIMER)) -> WDFTIMER {
    let mut config = WDF_TIMER_CONFIG {
        Size: size::<WDF_TIMER_CONFIG>(),
        EvtTimerFunc: Some(callback),
        ..WDF_TIMER_CONFIG::default()
    };
    let (mut attributes, mut timer) = (attributes(), ptr::null_mut());
    (attributes.ParentObject, attributes.ExecutionLevel) =
        (device().cast(), _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive);
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfTimerCreate, &raw mut config, &raw mut attributes, &raw mut timer)
    };
    assert_eq!(made, 0);
    timer
}

#[test]
fn a_timer_for_passive_level_calls_there_and_a_stop_that_waits_ends_it() {
    stack(RIGHT, |stack, _| {
        CAME.store(0, SeqCst);
        let timer = stack.upper.run(|| passive_timer(expired));
        stack.upper.run(|| set(timer));
        stack.kernel.sleep(10_000);
        stack.upper.run(|| stop_timer(timer));
        let calls = CAME.load(SeqCst);
        assert!(calls > 1, "{calls}");
        assert_eq!(LEVEL.load(SeqCst), 1, "PASSIVE_LEVEL");
        stack.kernel.sleep(10_000);
        assert_eq!(CAME.load(SeqCst), calls, "it was started while it was stopped, which does nothing");
        stack.upper.run(|| set(timer));
    });
}

fn wrong(like: Like, after: fn(&Stack)) {
    let stack = Stack::new(seeded(2), like);
    let file = stack.open();
    let pending = file.begin(CODE, &[1], 1);
    after(&stack);
    let _ = pending.wait();
    drop(file);
    stack.end();
}

fn wrong_above(above: fn(WDFREQUEST)) {
    wrong(Like { above, below: keep, ..RIGHT }, |_| ());
}

fn wrong_consumer(work: fn(WDFIOTARGET, WDFREQUEST)) {
    consumer(|_, _, driver, of| {
        LIKE.lock().unwrap_or_else(PoisonError::into_inner).below = keep;
        driver.run(|| {
            let target = open(of);
            work(target, make(target));
        });
    });
}

fn send_kept(target: WDFIOTARGET, request: WDFREQUEST) {
    let (write, _) = memory(request, &[1]);
    assert_eq!(format_write(target, request, write), STATUS_SUCCESS);
    assert!(send_made(request, target));
}

/// Sends memory of the driver's own, and frees it while the driver below has the request.
fn free_early(target: WDFIOTARGET, request: WDFREQUEST) {
    // SAFETY: the tag and the flags are right.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, 16, TAG) };
    let (mut attributes, mut memory) = (attributes(), ptr::null_mut());
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfMemoryCreatePreallocated, &raw mut attributes, block, 16, &raw mut memory)
    };
    assert_eq!(made, 0);
    assert_eq!(format_read(target, request, memory, &Part { offset: 0, length: 0 }, 0), STATUS_SUCCESS);
    assert!(send_made(request, target));
    // SAFETY: the test's scenario, which is wrong.
    unsafe { ExFreePoolWithTag(block, TAG) };
    // SAFETY: the driver below has the request: what it does is done here for it.
    let unmarked = unsafe { call_unsafe_wdf_function_binding!(WdfRequestUnmarkCancelable, kept()) };
    assert_eq!(unmarked, STATUS_SUCCESS);
    complete(kept(), STATUS_SUCCESS, 16);
}

fn at_dispatch_level(work: impl FnOnce()) {
    // SAFETY: as wrong as the test wants it.
    let before = unsafe { KfRaiseIrql(2) };
    work();
    // SAFETY: as wrong as the test wants it.
    unsafe { KeLowerIrql(before) };
}

macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || $work);
            }
        )+
    };
}

rules! {
    a_request_completed_while_it_is_sent breaks RequestCancelable by
        wrong_above(|request| { with_routine(request); complete(request, STATUS_SUCCESS, 0); });
    a_request_sent_while_it_is_sent breaks RequestCancelable by
        wrong_above(|request| { with_routine(request); send_to(request, target(), 0, 0); });
    a_request_formatted_while_it_is_sent breaks RequestCancelable by
        wrong_above(|request| { with_routine(request); format(request); });
    a_request_used_after_it_was_sent_and_forgotten breaks RequestCancelable by
        wrong_above(|request| { forget(request); complete(request, STATUS_SUCCESS, 0); });
    a_cancelable_request_that_is_sent breaks RequestCancelable by
        wrong_above(|request| { keep(request, 0); format(request); set_routine(request, came_back); send_to(request, target(), 0, 0); });
    a_request_sent_without_a_format breaks BadArgument by
        wrong_above(|request| { set_routine(request, came_back); send_to(request, target(), 0, 0); });
    a_request_forgotten_with_a_completion_routine breaks BadArgument by
        wrong_above(|request| { set_routine(request, came_back); forget(request); });
    a_request_forgotten_and_waited_for breaks BadArgument by
        wrong_above(|request| { send_to(request, target(), FORGET | SYNCHRONOUS, 0); });
    a_request_waited_for_at_dispatch_level breaks IrqlTooHigh by
        wrong_above(|request| at_dispatch_level(|| synchronously(request)));
    a_request_used_again_that_was_received breaks BadHandle by wrong_above(|request| { reuse(request); });
    a_target_of_what_is_below_that_is_closed breaks BadHandle by wrong_above(|_| {
        // SAFETY: the test's scenario, which is wrong.
        unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetClose, target()) };
    });
    a_target_of_what_is_below_that_is_deleted breaks BadHandle by wrong_above(|_| delete(target().cast()));
    a_target_stopped_without_an_action breaks BadArgument by wrong_above(|_| stop(target(), 0));
    a_stop_that_waits_at_dispatch_level breaks IrqlTooHigh by wrong_above(|_| at_dispatch_level(|| stop(target(), 1)));
    a_purge_without_an_action breaks BadArgument by wrong_above(|_| purge(target(), 0));
    a_request_that_the_driver_below_keeps_for_ever breaks RequestNeverCompleted by
        wrong(Like { above: with_routine, below: |_, _| (), ..RIGHT }, |_| ());
    a_request_of_a_drivers_own_that_is_completed breaks BadHandle by
        wrong_consumer(|_, request| complete(request, STATUS_SUCCESS, 0));
    a_request_of_a_drivers_own_that_is_deleted_while_it_is_sent breaks RequestCancelable by
        wrong_consumer(|target, request| { send_kept(target, request); delete(request.cast()); });
    a_request_of_a_drivers_own_that_is_used_again_while_it_is_sent breaks RequestCancelable by
        wrong_consumer(|target, request| { send_kept(target, request); reuse(request); });
    a_request_of_a_drivers_own_with_its_current_type breaks BadHandle by wrong_consumer(|_, request| format(request));
    a_request_of_a_drivers_own_that_is_forgotten breaks BadArgument by
        wrong_consumer(|target, request| { send_to(request, target, FORGET, 0); });
    the_completion_of_a_request_that_was_not_sent breaks BadArgument by
        wrong_consumer(|_, request| { params_of(request); });
    a_buffer_freed_while_its_request_is_sent breaks UseAfterFree by wrong_consumer(free_early);
    a_timer_for_passive_level_stopped_by_its_callback breaks Deadlock by wrong(
        Like { above: forget, ..RIGHT },
        |stack| { stack.upper.run(|| set(passive_timer(stops_itself))); stack.kernel.sleep(10_000); },
    );
}
