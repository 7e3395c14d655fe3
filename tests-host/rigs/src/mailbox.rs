//! A small KMDF driver whose device has files and reads that pend: what is written goes to the read that waits longest.
//!
//! Its control device has the files `\box\a.txt`, `\box\b.txt` and the one without a name. Reads wait in a manual queue, which tells the driver
//! of those that are cancelled there.

use std::{
    mem, ptr,
    sync::{Mutex, PoisonError},
};

use image_loader::framework::FUNCTIONS;
use kernel::{
    unicode,
    wdf::{attributes, create_driver},
};
use simulated_kernel::{DuringRun, irql};
use wdk_sys::{
    _WDF_DRIVER_INIT_FLAGS, _WDF_FILEOBJECT_CLASS, _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_TRI_STATE, NTSTATUS,
    PCUNICODE_STRING, PDRIVER_OBJECT, PUNICODE_STRING, PWDF_DRIVER_GLOBALS, PWDFDEVICE_INIT, STATUS_CANCELLED,
    STATUS_DEVICE_NOT_READY, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, WDF_DRIVER_CONFIG, WDF_FILEOBJECT_CONFIG,
    WDF_IO_QUEUE_CONFIG, WDFDEVICE, WDFDRIVER, WDFFILEOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
};

use crate::{skeleton::complete, small_driver::size};

/// Its device, as programs open it.
pub const LINK: &str = r"\DosDevices\Mailbox";
/// Its files besides the one without a name.
const FILES: [&str; 2] = [r"\box\a.txt", r"\box\b.txt"];

/// What the driver does otherwise than above.
#[derive(Clone, Copy)]
pub struct Like {
    /// Its default queue presents nothing, and is told of what is cancelled there.
    pub presents_nothing: bool,
    /// It keeps each read, and moves none to the queue.
    pub keeps: bool,
    /// It wants no file objects.
    pub without_objects: bool,
    /// When a file is created, with its object.
    pub created: fn(WDFFILEOBJECT),
    /// When the last handle is closed.
    pub cleanup: fn(WDFFILEOBJECT),
    /// With a read that was cancelled in the queue; the second argument is the queue.
    pub cancelled: fn(WDFREQUEST, WDFQUEUE),
}

/// What it does if no test has said otherwise.
pub const RIGHT: Like = Like {
    presents_nothing: false,
    keeps: false,
    without_objects: false,
    created: |_| (),
    cleanup: |_| (),
    cancelled: |request, _| complete(request, STATUS_CANCELLED, 0),
};

struct State {
    like: Like,
    /// The queue of reads.
    reads: WDFQUEUE,
    /// The read that is kept.
    kept: WDFREQUEST,
    /// What has happened, a letter each, and how many letters there are.
    steps: [u8; 32],
    count: usize,
    /// The level at which the last of these came.
    level: u8,
}

// SAFETY: handles, used by one thread at a time.
unsafe impl Send for State {}

static STATE: DuringRun<Mutex<State>> = DuringRun::new(Mutex::new(State {
    like: RIGHT,
    reads: ptr::null_mut(),
    kept: ptr::null_mut(),
    steps: [0; 32],
    count: 0,
    level: 0,
}));

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    work(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The driver begins anew, like this. Before it is loaded.
pub fn prepare(like: Like) {
    with(|state| (state.like, state.reads, state.kept, state.count) = (like, ptr::null_mut(), ptr::null_mut(), 0));
}

/// What has happened since the last call: a file is opened (`o`), its last handle closed (`l`), it is gone (`g`), a read waits (`r`), was
/// cancelled in its queue (`c`).
pub fn steps() -> String {
    with(|state| {
        let count = mem::take(&mut state.count);
        String::from_utf8_lossy(&state.steps[..count]).into_owned()
    })
}

/// The IRQL at which the last of them came.
pub fn level() -> u8 {
    with(|state| state.level)
}

/// The read that the driver keeps.
pub fn kept() -> WDFREQUEST {
    with(|state| state.kept)
}

/// The queue of reads.
pub fn reads() -> WDFQUEUE {
    with(|state| state.reads)
}

fn note(step: u8) {
    with(|state| {
        state.steps[state.count] = step;
        state.count += 1;
        state.level = irql();
    });
}

fn like() -> Like {
    with(|state| state.like)
}

/// Moves a request to the queue of reads.
pub fn forward(request: WDFREQUEST) -> NTSTATUS {
    // SAFETY: as wrong as the test wants it.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestForwardToIoQueue, request, reads()) }
}

/// The name of a file (`WdfFileObjectGetFileName`, which the bindings leave out).
pub fn name_of(file: WDFFILEOBJECT) -> PUNICODE_STRING {
    type Function = unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFFILEOBJECT) -> PUNICODE_STRING;
    let index = FUNCTIONS.iter().position(|&name| name == "WdfFileObjectGetFileName").expect("it is one");
    // SAFETY: the table of the kernel that runs, which has as many places as there are names.
    let entry = unsafe { wdk_sys::WdfFunctions.add(index).read() }.expect("every place has one");
    // SAFETY: the type that the framework's header has for the name.
    let function = unsafe { mem::transmute::<*const (), Function>(entry as *const ()) };
    // SAFETY: as wrong as the test wants it.
    unsafe { function(wdk_sys::WdfDriverGlobals, file) }
}

/// Whether a string of the kernel is that text.
fn is(name: PUNICODE_STRING, text: &str) -> bool {
    // SAFETY: the framework's string, while the file is created.
    let name = unsafe { name.read() };
    let units = usize::from(name.Length / 2);
    // SAFETY: the string has that many units.
    let at = |index| unsafe { name.Buffer.add(index).read() };
    text.len() == units && text.bytes().enumerate().all(|(index, letter)| at(index) == u16::from(letter))
}

/// Its entry.
///
/// # Safety
///
/// The arguments of `DriverEntry`.
pub unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let config = WDF_DRIVER_CONFIG {
        EvtDriverUnload: Some(unload),
        DriverInitFlags: _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNonPnpDriver.cast_unsigned(),
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments of this call.
    match unsafe { create_driver(driver, path, config, attributes()) } {
        Ok(driver) => create_device(driver),
        Err(status) => status.0,
    }
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

fn create_device(driver: WDFDRIVER) -> NTSTATUS {
    let (access, name, link) = (wide("D:P(A;;GA;;;SY)"), wide(r"\Device\Mailbox"), wide(LINK));
    let (access, name, link) = (unicode(&access), unicode(&name), unicode(&link));
    // SAFETY: the driver is live, and the string lives until the call returns.
    let mut init: PWDFDEVICE_INIT =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver, &raw const access) };
    assert!(!init.is_null());
    // SAFETY: the structure was just made, and the string lives until the call returns.
    assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, init, &raw const name) }, 0);
    let mut files = WDF_FILEOBJECT_CONFIG {
        Size: size::<WDF_FILEOBJECT_CONFIG>(),
        EvtDeviceFileCreate: Some(create),
        EvtFileClose: Some(close),
        EvtFileCleanup: Some(cleanup),
        AutoForwardCleanupClose: _WDF_TRI_STATE::WdfUseDefault,
        FileObjectClass: if like().without_objects {
            _WDF_FILEOBJECT_CLASS::WdfFileObjectNotRequired
        } else {
            _WDF_FILEOBJECT_CLASS::WdfFileObjectWdfCannotUseFsContexts
        },
    };
    let mut of_files = attributes();
    // SAFETY: the structure was just made, and the others live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetFileObjectConfig, init, &raw mut files, &raw mut of_files);
    }
    let (mut attributes, mut device) = (attributes(), ptr::null_mut());
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    };
    assert_eq!(made, 0);
    // SAFETY: the device is live, and the string lives until the call returns.
    let linked = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateSymbolicLink, device, &raw const link) };
    assert_eq!(linked, 0);
    let presents = if like().presents_nothing {
        _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual
    } else {
        _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential
    };
    create_queue(device, presents, true);
    let reads = create_queue(device, _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual, false);
    with(|state| state.reads = reads);
    // SAFETY: the device is complete.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
    STATUS_SUCCESS
}

fn create_queue(device: WDFDEVICE, dispatch: _WDF_IO_QUEUE_DISPATCH_TYPE::Type, default: bool) -> WDFQUEUE {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: dispatch,
        DefaultQueue: default.into(),
        EvtIoRead: default.then_some(read as _),
        EvtIoWrite: default.then_some(write as _),
        EvtIoCanceledOnQueue: Some(cancelled),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    let mut queue = ptr::null_mut();
    // SAFETY: the device is live, and the structures live until the call returns.
    let queued = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), &raw mut queue)
    };
    assert_eq!(queued, 0);
    queue
}

unsafe extern "C" fn create(_: WDFDEVICE, request: WDFREQUEST, file: WDFFILEOBJECT) {
    if like().without_objects {
        assert!(file.is_null(), "the driver wants none");
        note(b'o');
        complete(request, STATUS_SUCCESS, 0);
        return;
    }
    let name = name_of(file);
    let is_known = is(name, "") || FILES.iter().any(|known| is(name, known));
    if is_known {
        note(b'o');
        (like().created)(file);
    }
    complete(request, if is_known { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }, 0);
}

unsafe extern "C" fn cleanup(file: WDFFILEOBJECT) {
    note(b'l');
    (like().cleanup)(file);
}

unsafe extern "C" fn close(_: WDFFILEOBJECT) {
    note(b'g');
}

unsafe extern "C" fn read(_: WDFQUEUE, request: WDFREQUEST, _: usize) {
    note(b'r');
    if like().keeps {
        with(|state| state.kept = request);
        return;
    }
    assert_eq!(forward(request), STATUS_SUCCESS);
}

unsafe extern "C" fn write(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    let mut reader = ptr::null_mut();
    // SAFETY: the queue is live, and the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueRetrieveNextRequest, reads(), &raw mut reader) };
    if status < 0 {
        complete(request, STATUS_DEVICE_NOT_READY, 0);
        return;
    }
    let (mut from, mut to, mut room) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: the driver has both requests, and the places live until the calls return.
    let found = unsafe {
        [
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveInputBuffer,
                request,
                1,
                &raw mut from,
                ptr::null_mut()
            ),
            call_unsafe_wdf_function_binding!(WdfRequestRetrieveOutputBuffer, reader, 1, &raw mut to, &raw mut room),
        ]
    };
    assert_eq!(found, [STATUS_SUCCESS; 2]);
    let copied = length.min(room);
    // SAFETY: the buffers have as many bytes, and are two.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast(), copied) };
    complete(reader, STATUS_SUCCESS, copied);
    complete(request, STATUS_SUCCESS, copied);
}

unsafe extern "C" fn cancelled(queue: WDFQUEUE, request: WDFREQUEST) {
    note(b'c');
    (like().cancelled)(request, queue);
}

unsafe extern "C" fn unload(_: WDFDRIVER) {}
