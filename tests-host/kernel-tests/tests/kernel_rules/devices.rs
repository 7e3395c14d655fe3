//! What a framework driver says of a device before it is made, and what reads and writes are like on it.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use kernel::{
    unicode,
    wdf::{attributes, create_driver},
};
use simulated_kernel::{DuringRun, File, Kernel, Rule, caught};
use wdk_sys::{
    _WDF_DEVICE_IO_TYPE, _WDF_DRIVER_INIT_FLAGS, _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_REQUEST_TYPE, NTSTATUS,
    PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT, PVOID, PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT,
    STATUS_ACCESS_DENIED, STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG,
    WDF_DRIVER_CONFIG, WDF_IO_QUEUE_CONFIG, WDF_REQUEST_PARAMETERS, WDFDEVICE, WDFDRIVER, WDFMEMORY, WDFQUEUE,
    WDFREQUEST, call_unsafe_wdf_function_binding, ntddk::PsGetCurrentProcessId,
};

use crate::{
    sent::framework,
    small_driver::{create_device as create_pnp_device, size},
};

/// What a driver is like.
#[derive(Clone, Copy)]
struct Like {
    /// The driver is one of plug and play, whose device the system finds; else it makes a control device.
    pnp: bool,
    /// Said of the device before it is made.
    init: fn(PWDFDEVICE_INIT),
    /// How its queue is configured, besides.
    queue: fn(&mut WDF_IO_QUEUE_CONFIG),
}

const CONTROL: Like = Like { pnp: false, init: |_| (), queue: |_| () };
const PNP: Like = Like { pnp: true, ..CONTROL };

static LIKE: DuringRun<Mutex<Like>> = DuringRun::new(Mutex::new(CONTROL));

fn like() -> Like {
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_exclusive(init: PWDFDEVICE_INIT) {
    // SAFETY: the framework's structure.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetExclusive, init, 1) };
}

type Callback = unsafe extern "C" fn(WDFDEVICE, WDFREQUEST);

fn enqueue(device: WDFDEVICE, request: WDFREQUEST) -> NTSTATUS {
    framework!(WdfDeviceEnqueueRequest(device => WDFDEVICE, request => WDFREQUEST) -> NTSTATUS)
}

/// A control code that the driver answers when it looks at it, one whose process it notes, and one that it puts into no queue.
const ANSWERED: u32 = 0x22_2004;
const NOTED: u32 = 0x22_2008;
const KEPT: u32 = 0x22_200C;

/// In whose process the driver was asked.
static PROCESS: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

unsafe extern "C" fn looks(device: WDFDEVICE, request: WDFREQUEST) {
    // SAFETY: the driver has the request.
    let queue = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetIoQueue, request) };
    assert!(queue.is_null(), "it is in no queue yet");
    let asked = parameters(request);
    if asked.Type == _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl {
        // SAFETY: for this type the union holds this member.
        match unsafe { asked.Parameters.DeviceIoControl.IoControlCode } {
            ANSWERED => return complete(request, 7),
            // SAFETY: the routine has no conditions.
            NOTED => PROCESS.store(unsafe { PsGetCurrentProcessId() }.addr(), SeqCst),
            KEPT => return,
            _ => {}
        }
    }
    assert_eq!(enqueue(device, request), STATUS_SUCCESS);
}

/// Puts the request into its queue when it has come out of it.
unsafe extern "C" fn enqueues_late(queue: WDFQUEUE, request: WDFREQUEST, _: usize, _: usize, _: u32) {
    // SAFETY: the queue is live.
    let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
    enqueue(device, request);
}

fn late(config: &mut WDF_IO_QUEUE_CONFIG) {
    config.EvtIoDeviceControl = Some(enqueues_late);
}

/// Puts a request into its queue and uses it then, when the driver has completed it.
unsafe extern "C" fn looks_twice(device: WDFDEVICE, request: WDFREQUEST) {
    enqueue(device, request);
    enqueue(device, request);
}

fn set_caller_context(init: PWDFDEVICE_INIT) {
    set_look(init, looks);
}

fn set_look(init: PWDFDEVICE_INIT, look: Callback) {
    framework!(WdfDeviceInitSetIoInCallerContextCallback(
        init => PWDFDEVICE_INIT, Some(look) => Option<Callback>
    ));
}

unsafe extern "C" fn shuts_down(_: WDFDEVICE) {}

fn set_shutdown(init: PWDFDEVICE_INIT, flags: u8) {
    type Callback = unsafe extern "C" fn(WDFDEVICE);
    framework!(WdfControlDeviceInitSetShutdownNotification(
        init => PWDFDEVICE_INIT, Some(shuts_down) => Option<Callback>, flags => u8
    ));
}

fn set_filter(init: PWDFDEVICE_INIT) {
    framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
}

fn query_property(init: PWDFDEVICE_INIT, buffer: PVOID, length: ULONG, place: *mut ULONG) -> NTSTATUS {
    framework!(WdfFdoInitQueryProperty(
        init => PWDFDEVICE_INIT, 0 => i32, length => ULONG, buffer => PVOID, place => *mut ULONG
    ) -> NTSTATUS)
}

/// A property in a memory object: the status, and how many bytes there are.
fn property_in_memory(init: PWDFDEVICE_INIT, property: i32) -> (NTSTATUS, usize) {
    let (mut memory, none): (WDFMEMORY, _) = (ptr::null_mut(), ptr::null_mut());
    let status = framework!(WdfFdoInitAllocAndQueryProperty(
        init => PWDFDEVICE_INIT, property => i32, 512 => i32, none => PWDF_OBJECT_ATTRIBUTES,
        &raw mut memory => *mut WDFMEMORY
    ) -> NTSTATUS);
    let mut length = 0;
    if status == STATUS_SUCCESS {
        // SAFETY: the memory object was just made, and the place lives until the call returns.
        let _ = unsafe { call_unsafe_wdf_function_binding!(WdfMemoryGetBuffer, memory, &raw mut length) };
    }
    (status, length)
}

fn set_io_type(init: PWDFDEVICE_INIT, kind: _WDF_DEVICE_IO_TYPE::Type) {
    // SAFETY: the framework's structure.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetIoType, init, kind) };
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let Like { pnp, .. } = like();
    let config = WDF_DRIVER_CONFIG {
        EvtDriverDeviceAdd: if pnp { Some(add) } else { None },
        EvtDriverUnload: Some(unload),
        DriverInitFlags: if pnp { 0 } else { _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNonPnpDriver.cast_unsigned() },
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments of this call.
    let driver = unsafe { create_driver(driver, path, config, attributes()) }.expect("a driver object");
    if !pnp {
        control_device(driver);
    }
    STATUS_SUCCESS
}

fn control_device(driver: WDFDRIVER) {
    let (access, name, link) = (wide("D:P(A;;GA;;;SY)"), wide(r"\Device\Said"), wide(r"\DosDevices\Said"));
    let (access, name, link) = (unicode(&access), unicode(&name), unicode(&link));
    // SAFETY: the driver is live, and the string lives until the call returns.
    let mut init: PWDFDEVICE_INIT =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver, &raw const access) };
    // SAFETY: the structure was just made, and the string lives until the call returns.
    assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, init, &raw const name) }, 0);
    (like().init)(init);
    let (mut attributes, mut device) = (attributes(), ptr::null_mut());
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    };
    assert_eq!(made, 0);
    // SAFETY: the device is live, and the string lives until the call returns.
    let linked = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateSymbolicLink, device, &raw const link) };
    assert_eq!(linked, 0);
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential,
        DefaultQueue: 1,
        EvtIoDeviceControl: Some(control),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    (like().queue)(&mut config);
    // SAFETY: the device is live, and the structures live until the call returns.
    let queued = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), ptr::null_mut())
    };
    assert_eq!(queued, 0);
    // SAFETY: the device is complete.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    (like().init)(init);
    create_pnp_device(init, attributes());
    STATUS_SUCCESS
}

unsafe extern "C" fn unload(_: WDFDRIVER) {}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, _: usize, _: usize, _: u32) {
    complete(request, 0);
}

fn complete(request: WDFREQUEST, information: usize) {
    // SAFETY: the driver has the request.
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfRequestCompleteWithInformation,
            request,
            STATUS_SUCCESS,
            information as u64
        );
    }
}

fn buffer(request: WDFREQUEST, of_input: bool) -> Result<*mut u8, NTSTATUS> {
    let mut place = ptr::null_mut();
    let nobody = ptr::null_mut();
    // SAFETY: the driver has the request, and the place lives until the call returns.
    let status = unsafe {
        if of_input {
            call_unsafe_wdf_function_binding!(WdfRequestRetrieveInputBuffer, request, 1, &raw mut place, nobody)
        } else {
            call_unsafe_wdf_function_binding!(WdfRequestRetrieveOutputBuffer, request, 1, &raw mut place, nobody)
        }
    };
    if status < 0 { Err(status) } else { Ok(place.cast()) }
}

fn parameters(request: WDFREQUEST) -> WDF_REQUEST_PARAMETERS {
    // SAFETY: zeros are a value of every field: numbers and pointers.
    let mut parameters = unsafe { std::mem::zeroed::<WDF_REQUEST_PARAMETERS>() };
    parameters.Size = u16::try_from(size_of::<WDF_REQUEST_PARAMETERS>()).expect("a small structure");
    // SAFETY: the driver has the request, and the structure lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetParameters, request, &raw mut parameters) };
    parameters
}

/// Answers with the numbers from 1; a read of five bytes with one more than there is room for.
unsafe extern "C" fn read(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    let asked = parameters(request);
    assert_eq!(asked.Type, _WDF_REQUEST_TYPE::WdfRequestTypeRead);
    // SAFETY: for this type the union holds this member.
    assert_eq!(unsafe { asked.Parameters.Read.Length }, length);
    assert_eq!(buffer(request, true), Err(STATUS_INVALID_DEVICE_REQUEST), "a read has no input");
    if let Ok(place) = buffer(request, false) {
        for index in 0..length {
            // SAFETY: the buffer has that many bytes.
            unsafe { place.add(index).write(u8::try_from(index + 1).expect("a small number")) };
        }
    }
    complete(request, length + usize::from(length == 5));
}

unsafe extern "C" fn write(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    let asked = parameters(request);
    assert_eq!(asked.Type, _WDF_REQUEST_TYPE::WdfRequestTypeWrite);
    // SAFETY: for this type the union holds this member.
    assert_eq!(unsafe { asked.Parameters.Write.Length }, length);
    assert_eq!(buffer(request, false), Err(STATUS_INVALID_DEVICE_REQUEST), "a write has no output");
    if length > 0 {
        // SAFETY: the buffer has a byte at least.
        assert_eq!(unsafe { buffer(request, true).expect("there is one").read() }, 7);
    }
    complete(request, length + usize::from(length == 5));
}

/// Loads a driver with a control device, lets `work` use it, and unloads it.
fn control_driver(like: Like, work: impl FnOnce(&Kernel, &File)) {
    // One kernel runs at a time, and so one of these drivers.
    let kernel = Kernel::seeded(1).preemption(0).start();
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = like;
    let driver = kernel.load("said", entry).expect("the driver loads");
    let file = kernel.open(r"\DosDevices\Said").expect("the device opens");
    work(&kernel, &file);
    drop(file);
    // It does not delete its device, which a driver without plug and play need not do.
    driver.unload();
    assert_eq!(kernel.open(r"\DosDevices\Said").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND), "it went with the driver");
}

/// Loads a driver of plug and play, which gets a device, and loses it again.
fn pnp_driver(init: fn(PWDFDEVICE_INIT)) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = Like { init, ..PNP };
    let driver = kernel.load("said", entry).expect("the driver loads");
    let device = driver.add_device().expect("the device starts");
    assert!(device.remove().is_ok());
    driver.unload();
}

#[test]
fn an_exclusive_device_has_one_file_at_a_time() {
    control_driver(Like { init: set_exclusive, ..CONTROL }, |kernel, _| {
        assert_eq!(kernel.open(r"\DosDevices\Said").err(), Some(STATUS_ACCESS_DENIED));
    });
    control_driver(CONTROL, |kernel, _| assert!(kernel.open(r"\DosDevices\Said").is_ok()));
}

#[test]
fn a_control_device_hears_of_the_shutdown() {
    // `WdfDeviceShutdown` and `WdfDeviceLastChanceShutdown`.
    control_driver(Like { init: |init| set_shutdown(init, 3), ..CONTROL }, |_, file| {
        assert!(file.control(0x22_2000, &[], 0).is_success());
    });
}

#[test]
fn a_driver_looks_at_requests_in_the_context_of_who_asks_and_then_has_them_from_its_queue() {
    control_driver(Like { init: set_caller_context, queue: both, ..CONTROL }, |kernel, file| {
        let answer = file.control(ANSWERED, &[], 8);
        assert_eq!((answer.status, answer.bytes.len()), (STATUS_SUCCESS, 7), "it was answered at once");
        assert_eq!(file.control(0x22_2000, &[], 0).status, STATUS_SUCCESS);
        assert_eq!(file.begin_read(3).wait().bytes, [1, 2, 3], "reads and writes are looked at too");
        assert_eq!(file.begin_write(&[7]).wait().status, STATUS_SUCCESS);
        let process = kernel.process();
        let of_process = process.open(r"\DosDevices\Said").expect("the device opens");
        assert_eq!(of_process.control(NOTED, &[], 0).status, STATUS_SUCCESS);
        assert_eq!(PROCESS.load(SeqCst), process.number() as usize);
    });
}

#[test]
fn a_filter_says_so_and_a_bus_without_properties_too() {
    pnp_driver(|init| {
        set_filter(init);
        let (mut buffer, mut length) = ([0_u8; 8], 7);
        let status = query_property(init, buffer.as_mut_ptr().cast(), 8, &raw mut length);
        assert_eq!((status, length, buffer), (STATUS_OBJECT_NAME_NOT_FOUND, 0, [0; 8]));
        assert_eq!(property_in_memory(init, 0), (STATUS_OBJECT_NAME_NOT_FOUND, 0));
        // `DevicePropertyEnumeratorName`: the letters of ROOT, and the end.
        assert_eq!(property_in_memory(init, 15), (STATUS_SUCCESS, 10));
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || $work);
            }
        )+
    };
}

fn said(init: fn(PWDFDEVICE_INIT)) {
    control_driver(Like { init, ..CONTROL }, |_, _| ());
}

fn transfers(kind: fn(PWDFDEVICE_INIT), queue: fn(&mut WDF_IO_QUEUE_CONFIG), work: impl FnOnce(&Kernel, &File)) {
    control_driver(Like { init: kind, queue, ..CONTROL }, work);
}

fn both(config: &mut WDF_IO_QUEUE_CONFIG) {
    config.EvtIoRead = Some(read);
    config.EvtIoWrite = Some(write);
}

wrong! {
    a_notification_of_no_shutdown breaks BadArgument by said(|init| set_shutdown(init, 0));
    a_notification_of_another_shutdown breaks BadArgument by said(|init| set_shutdown(init, 4));
    a_device_of_plug_and_play_that_hears_of_the_shutdown breaks BadArgument by pnp_driver(|init| set_shutdown(init, 1));
    a_control_device_that_is_a_filter breaks BadArgument by said(set_filter);
    a_property_of_a_control_device breaks BadArgument by said(|init| {
        let mut length = 0;
        query_property(init, ptr::null_mut(), 0, &raw mut length);
    });
    a_control_device_on_a_bus breaks BadArgument by said(|init| {
        framework!(WdfFdoInitWdmGetPhysicalDevice(init => PWDFDEVICE_INIT) -> PDEVICE_OBJECT);
    });
    a_property_without_a_place_for_its_length breaks BadArgument by
        pnp_driver(|init| { query_property(init, ptr::null_mut(), 0, ptr::null_mut()); });
    a_property_without_a_place breaks BadArgument by pnp_driver(|init| {
        let mut length = 0;
        query_property(init, ptr::null_mut(), 8, &raw mut length);
    });
    a_request_that_is_looked_at_and_then_forgotten breaks RequestNeverCompleted by
        control_driver(Like { init: set_caller_context, ..CONTROL }, |_, file| drop(file.control(KEPT, &[], 0)));
    a_request_that_is_put_into_its_queue_when_it_has_left_it breaks RequestCancelable by
        control_driver(Like { queue: late, ..CONTROL }, |_, file| drop(file.control(0x22_2000, &[], 0)));
    a_request_that_is_used_when_it_is_in_its_queue breaks RequestCompletedTwice by control_driver(
        Like { init: |init| set_look(init, looks_twice), ..CONTROL },
        |_, file| drop(file.control(0x22_2000, &[], 0)),
    );
    a_read_completed_with_more_bytes_than_it_wants breaks RequestInformation by
        transfers(|_| (), both, |_, file| drop(file.begin_read(5).wait()));
    a_write_completed_with_more_bytes_than_it_has breaks RequestInformation by
        transfers(|_| (), both, |_, file| drop(file.begin_write(&[7; 5]).wait()));
}

#[test]
fn reads_and_writes_come_to_their_callbacks_with_one_buffer() {
    let kinds: [fn(PWDFDEVICE_INIT); 3] = [
        |_| (),
        |init| set_io_type(init, _WDF_DEVICE_IO_TYPE::WdfDeviceIoBuffered),
        |init| set_io_type(init, _WDF_DEVICE_IO_TYPE::WdfDeviceIoDirect),
    ];
    for kind in kinds {
        transfers(kind, both, |_, file| {
            let answer = file.begin_read(3).wait();
            assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![1, 2, 3]));
            assert_eq!(file.begin_write(&[7, 8]).wait().status, STATUS_SUCCESS);
        });
    }
    // The framework gives out no address of a program's.
    transfers(
        |init| set_io_type(init, _WDF_DEVICE_IO_TYPE::WdfDeviceIoNeither),
        both,
        |_, file| {
            assert!(file.begin_read(3).wait().is_success());
        },
    );
}

#[test]
fn a_queue_without_a_callback_for_reads_refuses_them() {
    transfers(
        |_| (),
        |_| (),
        |_, file| {
            assert_eq!(file.begin_read(3).wait().status, STATUS_INVALID_DEVICE_REQUEST);
            assert_eq!(file.begin_write(&[7]).wait().status, STATUS_INVALID_DEVICE_REQUEST);
        },
    );
}

/// How often the driver has heard of a request without bytes.
static EMPTY: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

unsafe extern "C" fn count_empty(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    assert_eq!(length, 0);
    EMPTY.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    complete(request, 0);
}

#[test]
fn a_read_of_nothing_is_the_drivers_only_if_it_wants_it() {
    fn counting(config: &mut WDF_IO_QUEUE_CONFIG) {
        config.EvtIoRead = Some(count_empty);
    }
    fn wanting(config: &mut WDF_IO_QUEUE_CONFIG) {
        config.EvtIoRead = Some(count_empty);
        config.AllowZeroLengthRequests = 1;
    }
    let heard = |queue| {
        EMPTY.store(0, std::sync::atomic::Ordering::SeqCst);
        transfers(|_| (), queue, |_, file| assert!(file.begin_read(0).wait().is_success()));
        EMPTY.load(std::sync::atomic::Ordering::SeqCst)
    };
    assert_eq!([heard(counting), heard(wanting)], [0, 1]);
}
