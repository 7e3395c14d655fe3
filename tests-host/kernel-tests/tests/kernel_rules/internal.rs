//! Control codes that drivers send to each other, and queues for one kind of requests.

use std::{
    mem, ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_REQUEST_TYPE as request_type, GUID, MDL, NTSTATUS, PCUNICODE_STRING,
    PDRIVER_OBJECT, PVOID, PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_IO_QUEUE_CONFIG, WDF_REQUEST_PARAMETERS,
    WDFDEVICE, WDFDRIVER, WDFIOTARGET, WDFMEMORY, WDFOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
    ntddk::{IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool},
};

use crate::{
    sent::framework,
    skeleton::{allocate, complete, output_buffer},
    small_driver::{attributes, create_device, create_driver, size},
};

/// Buffered, and with an MDL for the output.
const CODE: u32 = 0x22_2000;
const DIRECT: u32 = 0x22_2002;
const STATUS_WDF_BUSY: NTSTATUS = 0xC020_0204_u32.cast_signed();
static CLASS: GUID = GUID { Data1: 0x5E17_0004, Data2: 1, Data3: 2, Data4: [3; 8] };

static HEARD: DuringRun<Mutex<Vec<&str>>> = DuringRun::new(Mutex::new(Vec::new()));
static DEVICE: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
/// The default queue of the function driver's device, and the other one.
static QUEUES: DuringRun<[AtomicUsize; 2]> = DuringRun::new([const { AtomicUsize::new(0) }; 2]);

fn note(what: &'static str) {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

fn heard() -> Vec<&'static str> {
    // A driver that notes something must not allocate.
    mem::replace(&mut *HEARD.lock().unwrap_or_else(PoisonError::into_inner), Vec::with_capacity(64))
}

fn handle<T>(place: &AtomicUsize) -> *mut T {
    ptr::without_provenance_mut(place.load(SeqCst))
}

pub fn parameters(request: WDFREQUEST) -> WDF_REQUEST_PARAMETERS {
    // SAFETY: zeros are a value of every field: numbers and pointers.
    let mut parameters = unsafe { mem::zeroed::<WDF_REQUEST_PARAMETERS>() };
    parameters.Size = u16::try_from(size_of::<WDF_REQUEST_PARAMETERS>()).expect("a small structure");
    // SAFETY: the driver has the request, and the structure lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetParameters, request, &raw mut parameters) };
    parameters
}

/// Adds one to each byte of the input.
fn answer(request: WDFREQUEST, output: usize) {
    let (mut place, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the driver has the request, and the places live until the call returns.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfRequestRetrieveInputBuffer, request, 1, &raw mut place, &raw mut length)
    };
    assert_eq!((status, length), (STATUS_SUCCESS, output));
    let answer = output_buffer(request);
    for index in 0..output {
        // SAFETY: both buffers have that many bytes, of which the first may be the second.
        unsafe { answer.add(index).write(place.cast::<u8>().add(index).read() + 1) };
    }
    complete(request, STATUS_SUCCESS, output);
}

unsafe extern "C" fn control(queue: WDFQUEUE, request: WDFREQUEST, output: usize, _: usize, code: u32) {
    note(if queue == handle(&QUEUES[0]) { "control" } else { "control elsewhere" });
    assert_eq!((parameters(request).Type, code), (request_type::WdfRequestTypeDeviceControl, CODE));
    answer(request, output);
}

unsafe extern "C" fn internal(_: WDFQUEUE, request: WDFREQUEST, output: usize, input: usize, code: u32) {
    note("internal");
    let parameters = parameters(request);
    assert_eq!(parameters.Type, request_type::WdfRequestTypeDeviceControlInternal);
    if code != CODE + 4 {
        return answer(request, output);
    }
    // SAFETY: what the sender has put there.
    let others = unsafe { parameters.Parameters.Others };
    assert_eq!(others.IoControlCode, code);
    assert_eq!((output, input), (others.Arg1.addr() & 0xFFFF_FFFF, others.Arg2.addr() & 0xFFFF_FFFF));
    assert!(others.Arg4.is_null());
    // SAFETY: two addresses of memory that the sender has.
    unsafe { others.Arg2.cast::<u8>().write(others.Arg1.cast::<u8>().read() + 1) };
    complete(request, STATUS_SUCCESS, 0);
}

unsafe extern "C" fn other(_: WDFQUEUE, request: WDFREQUEST) {
    note("other");
    complete(request, STATUS_SUCCESS, 0);
}

unsafe extern "system" fn lower_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, lower_add)
}

unsafe extern "system" fn upper_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, upper_add)
}

pub fn queue(device: WDFDEVICE, default: bool, fill: impl FnOnce(&mut WDF_IO_QUEUE_CONFIG)) -> WDFQUEUE {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential,
        DefaultQueue: default.into(),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    fill(&mut config);
    let mut queue = ptr::null_mut();
    // SAFETY: the device is live, and the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), &raw mut queue)
    };
    assert_eq!(made, 0);
    queue
}

pub fn dispatch(device: WDFDEVICE, queue: WDFQUEUE, kind: i32) -> NTSTATUS {
    framework!(WdfDeviceConfigureRequestDispatching(device => WDFDEVICE, queue => WDFQUEUE, kind => i32) -> NTSTATUS)
}

unsafe extern "C" fn lower_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    let first = queue(device, true, |config| {
        config.EvtIoDeviceControl = Some(control);
        config.EvtIoInternalDeviceControl = Some(internal);
    });
    let second = queue(device, false, |config| config.EvtIoDefault = Some(other));
    let control_only = queue(device, false, |config| config.EvtIoDeviceControl = Some(control));
    QUEUES[0].store(first.addr(), SeqCst);
    QUEUES[1].store(second.addr(), SeqCst);
    let (read, write) = (request_type::WdfRequestTypeRead, request_type::WdfRequestTypeWrite);
    assert_eq!(dispatch(device, second, 16), STATUS_INVALID_PARAMETER);
    assert_eq!(dispatch(device, first, read), STATUS_INVALID_DEVICE_REQUEST, "the default queue");
    assert_eq!(dispatch(device, control_only, read), STATUS_INVALID_DEVICE_REQUEST, "no callback for it");
    assert_eq!([dispatch(device, second, read), dispatch(device, second, read)], [STATUS_SUCCESS, STATUS_WDF_BUSY]);
    assert_eq!(dispatch(device, second, write), STATUS_SUCCESS);
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "C" fn upper_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
    let device = create_device(init, attributes());
    DEVICE.store(device.addr(), SeqCst);
    // The function driver's, which is another device's.
    let theirs = handle(&QUEUES[1]);
    assert_eq!(dispatch(device, theirs, request_type::WdfRequestTypeRead), STATUS_INVALID_DEVICE_REQUEST);
    STATUS_SUCCESS
}

/// `WDF_MEMORY_DESCRIPTOR`: of a buffer, or of an MDL.
#[repr(C)]
struct Descriptor {
    kind: i32,
    what: PVOID,
    length: u32,
}

fn buffer(bytes: &mut [u8]) -> Descriptor {
    Descriptor { kind: 1, what: bytes.as_mut_ptr().cast(), length: u32::try_from(bytes.len()).expect("a few") }
}

fn target() -> WDFIOTARGET {
    framework!(WdfDeviceGetIoTarget(handle(&DEVICE) => WDFDEVICE) -> WDFIOTARGET)
}

fn send(code: u32, input: &Descriptor, output: &Descriptor) -> (NTSTATUS, usize) {
    let mut returned = 0_usize;
    let (target, none) = (target(), ptr::null_mut());
    let status = framework!(WdfIoTargetSendInternalIoctlSynchronously(
        target => WDFIOTARGET, none => WDFREQUEST, code => u32, ptr::from_ref(input) => *const Descriptor,
        ptr::from_ref(output) => *const Descriptor, ptr::null() => *const u8, &raw mut returned => *mut usize
    ) -> NTSTATUS);
    (status, returned)
}

/// A stack of both drivers, of which `work` is done as the filter.
fn with_stack(work: impl Fn()) {
    for seed in 1..4 {
        let kernel = Kernel::seeded(seed).preemption(30).start();
        let below = kernel.load("below", lower_entry).expect("the driver loads");
        let above = kernel.load("above", upper_entry).expect("the driver loads");
        let device = below.add_device_under(&[&above]).expect("the device starts");
        heard();
        above.run(&work);
        assert!(device.remove().is_ok());
        above.unload();
        below.unload();
    }
}

#[test]
fn a_code_of_another_driver_has_a_callback_of_its_own() {
    with_stack(|| {
        let (mut input, mut output) = ([1_u8, 2], [0_u8; 2]);
        let (input, output) = (buffer(&mut input), buffer(&mut output));
        assert_eq!(send(CODE, &input, &output), (STATUS_SUCCESS, 2));
        // SAFETY: the buffer of two bytes, which lives.
        assert_eq!(unsafe { output.what.cast::<[u8; 2]>().read() }, [2, 3]);
        assert_eq!(*HEARD.lock().unwrap_or_else(PoisonError::into_inner), ["internal"]);
    });
}

fn mdl_of(block: PVOID, length: u32) -> *mut MDL {
    // SAFETY: the block has that many bytes.
    let mdl = unsafe { IoAllocateMdl(block, length, 0, 0, ptr::null_mut()) };
    assert!(!mdl.is_null());
    mdl
}

fn free(mdl: *mut MDL, block: PVOID) {
    // SAFETY: the MDL is not used any more.
    unsafe { IoFreeMdl(mdl) };
    // SAFETY: nor is the block.
    unsafe { wdk_sys::ntddk::ExFreePoolWithTag(block, u32::from_ne_bytes(*b"Wrng")) };
}

#[test]
fn a_buffer_may_be_described_by_an_mdl() {
    with_stack(|| {
        let block = allocate(4);
        let mdl = mdl_of(block, 4);
        // SAFETY: an MDL of non-paged pool.
        unsafe { MmBuildMdlForNonPagedPool(mdl) };
        let mut input = [4_u8, 5, 6];
        assert_eq!(send(DIRECT, &buffer(&mut input), &Descriptor { kind: 2, what: mdl.cast(), length: 3 }).1, 3);
        // SAFETY: the block has as many bytes.
        assert_eq!(unsafe { block.cast::<[u8; 3]>().read() }, [5, 6, 7]);
        free(mdl, block);
    });
}

#[test]
fn a_driver_may_send_addresses() {
    with_stack(|| {
        let (mut from, mut to, mut returned) = ([8_u8], [0_u8], 9_usize);
        let (from, to, none) = (buffer(&mut from), buffer(&mut to), ptr::null());
        let target = target();
        let status = framework!(WdfIoTargetSendInternalIoctlOthersSynchronously(
            target => WDFIOTARGET, ptr::null_mut() => WDFREQUEST, CODE + 4 => u32, &raw const from => *const Descriptor,
            &raw const to => *const Descriptor, none => *const Descriptor, ptr::null() => *const u8,
            &raw mut returned => *mut usize
        ) -> NTSTATUS);
        assert_eq!((status, returned), (STATUS_SUCCESS, 0));
        // SAFETY: the buffer of one byte, which lives.
        assert_eq!(unsafe { to.what.cast::<u8>().read() }, 9);
    });
}

fn memory(parent: WDFOBJECT, bytes: &[u8]) -> (WDFMEMORY, *mut u8) {
    let (mut attributes, mut memory, mut place) = (attributes(), ptr::null_mut(), ptr::null_mut());
    attributes.ParentObject = parent;
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(
            WdfMemoryCreate,
            &raw mut attributes,
            512,
            u32::from_ne_bytes(*b"Wrng"),
            bytes.len(),
            &raw mut memory,
            &raw mut place
        )
    };
    assert_eq!(made, 0);
    let place = place.cast::<u8>();
    // SAFETY: the new buffer is as long.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    (memory, place)
}

#[test]
fn a_request_of_a_driver_is_formatted_for_both() {
    with_stack(|| {
        let (mut attributes, mut request, target) = (attributes(), ptr::null_mut(), target());
        let made = framework!(WdfRequestCreate(
            &raw mut attributes => PWDF_OBJECT_ATTRIBUTES, target => WDFIOTARGET, &raw mut request => *mut WDFREQUEST
        ) -> NTSTATUS);
        assert_eq!(made, 0);
        let ((first, _), (second, place)) = (memory(request.cast(), &[3]), memory(request.cast(), &[0]));
        let (none, part) = (ptr::null_mut(), ptr::null());
        let formatted = framework!(WdfIoTargetFormatRequestForInternalIoctl(
            target => WDFIOTARGET, request => WDFREQUEST, CODE => u32, first => WDFMEMORY, part => *const u8,
            second => WDFMEMORY, part => *const u8
        ) -> NTSTATUS);
        assert_eq!(formatted, 0);
        let options = [(u64::from(2_u32) << 32) | 16, 0];
        let send = || framework!(WdfRequestSend(request => WDFREQUEST, target => WDFIOTARGET, options.as_ptr() => *const u64) -> u8);
        assert_eq!(send(), 1);
        // SAFETY: the request's memory.
        assert_eq!(unsafe { place.read() }, 4);
        let formatted = framework!(WdfIoTargetFormatRequestForInternalIoctlOthers(
            target => WDFIOTARGET, request => WDFREQUEST, CODE + 4 => u32, first => WDFMEMORY, part => *const u8,
            second => WDFMEMORY, part => *const u8, none => WDFMEMORY, part => *const u8
        ) -> NTSTATUS);
        assert_eq!((formatted, send()), (0, 1));
        // SAFETY: the request's memory.
        assert_eq!(unsafe { place.read() }, 4);
        // SAFETY: the request is the driver's own, and is not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, request.cast()) };
    });
}

#[test]
fn a_kind_of_requests_may_have_a_queue_of_its_own() {
    let kernel = Kernel::seeded(1).start();
    let driver = kernel.load("below", lower_entry).expect("the driver loads");
    let device = driver.add_device().expect("the device starts");
    let file = kernel.open(&device.links()[0]).expect("the device opens");
    heard();
    assert_eq!(file.control(CODE, &[1], 1).bytes, [2]);
    assert!(file.begin_read(1).wait().is_success() && file.begin_write(&[1]).wait().is_success());
    assert_eq!(heard(), ["control", "other", "other"]);
    driver.run(|| {
        let (queue, kind) = (handle(&QUEUES[1]), request_type::WdfRequestTypeDeviceControl);
        // SAFETY: the queue is live.
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
        assert_eq!(dispatch(device, queue, kind), STATUS_INVALID_DEVICE_STATE, "it has started");
    });
    drop(file);
    assert!(device.remove().is_ok());
    driver.unload();
}

fn send_mdl(built: bool, length: u32) {
    with_stack(|| {
        let mdl = mdl_of(allocate(4), 4);
        if built {
            // SAFETY: an MDL of non-paged pool.
            unsafe { MmBuildMdlForNonPagedPool(mdl) };
        }
        let mut input = [1_u8];
        send(DIRECT, &buffer(&mut input), &Descriptor { kind: 2, what: mdl.cast(), length });
    });
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
    an_mdl_that_was_not_built_is_sent breaks BadMdl by send_mdl(false, 1);
    more_bytes_than_an_mdl_has_are_sent breaks BadArgument by send_mdl(true, 5);
    a_queue_that_requests_are_dispatched_to_is_deleted breaks BadHandle by with_stack(|| {
        // SAFETY: the test's scenario, which is wrong.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, handle(&QUEUES[1])) };
    });
}
