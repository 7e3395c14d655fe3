//! The device objects, files and IRPs behind the framework's objects, as a driver sees them.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    DEVICE_OBJECT, IO_STACK_LOCATION, IRP, IRP_MJ_DEVICE_CONTROL, IRP_MJ_READ, PDEVICE_OBJECT, PFILE_OBJECT, PIRP,
    STATUS_SUCCESS, WDFDEVICE, WDFIOTARGET, WDFQUEUE, WDFREQUEST, WDFREQUEST__, call_unsafe_wdf_function_binding,
    ntddk::{IofCallDriver, IofCompleteRequest},
};

use crate::{
    sent::{
        CODE, Like, NEITHER, RIGHT, SYNCHRONOUS, answer, buffer, device, forget, framework, send_to, stack, status_of,
        target,
    },
    skeleton::complete,
};

/// With an MDL for the output.
const DIRECT: u32 = 0x22_2002;

/// The device that a request came to.
static LOWER: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static LAST: DuringRun<AtomicPtr<IRP>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static GONE: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static CODES: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn irp_of(request: WDFREQUEST) -> PIRP {
    framework!(WdfRequestWdmGetIrp(request => WDFREQUEST) -> PIRP)
}

/// `IoGetCurrentIrpStackLocation`.
fn location_of(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: an IRP of a request that the driver has; the arm that the I/O manager uses.
    unsafe { (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation }
}

fn device_of(request: WDFREQUEST) -> WDFDEVICE {
    // SAFETY: the driver has the request.
    let queue: WDFQUEUE = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetIoQueue, request) };
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) }
}

fn object_of(device: WDFDEVICE) -> PDEVICE_OBJECT {
    framework!(WdfDeviceWdmGetDeviceObject(device => WDFDEVICE) -> PDEVICE_OBJECT)
}

fn below(device: WDFDEVICE) -> PDEVICE_OBJECT {
    framework!(WdfDeviceWdmGetAttachedDevice(device => WDFDEVICE) -> PDEVICE_OBJECT)
}

fn bus(device: WDFDEVICE) -> PDEVICE_OBJECT {
    framework!(WdfDeviceWdmGetPhysicalDevice(device => WDFDEVICE) -> PDEVICE_OBJECT)
}

/// Looks into a request, and answers it.
fn look(request: WDFREQUEST, length: usize) {
    let irp = irp_of(request);
    assert_eq!(irp_of(request), irp, "it has one");
    LOWER.store(object_of(device_of(request)), SeqCst);
    // SAFETY: the IRP and its location, of a request that the driver has.
    let (irp, location) = unsafe { (&*irp, &*location_of(irp)) };
    assert_eq!((irp.StackCount, irp.CurrentLocation), (2, 2));
    assert_eq!(location.DeviceObject, object_of(device_of(request)));
    // SAFETY: a file object of the system's.
    assert_eq!(unsafe { (*location.FileObject).Type }, 5);
    // SAFETY: the arm that buffered requests use.
    let system = unsafe { irp.AssociatedIrp.SystemBuffer };
    if u32::from(location.MajorFunction) == IRP_MJ_READ {
        // SAFETY: the arm of this kind of requests.
        let read = unsafe { location.Parameters.Read };
        // SAFETY: the arm that has the whole number.
        assert_eq!((read.Length as usize, unsafe { read.ByteOffset.QuadPart }), (length, 300));
        assert_eq!(buffer(request, false), Some((system.cast(), length)));
        return answer(request, length);
    }
    assert_eq!(u32::from(location.MajorFunction), IRP_MJ_DEVICE_CONTROL);
    // SAFETY: the arm of this kind of requests.
    let control = unsafe { location.Parameters.DeviceIoControl };
    CODES.store(control.IoControlCode, SeqCst);
    assert_eq!((control.InputBufferLength, control.OutputBufferLength as usize), (3, length));
    match control.IoControlCode % 4 {
        0 => assert_eq!(buffer(request, true), Some((system.cast(), 3))),
        3 => {
            assert!(system.is_null() && !irp.UserBuffer.is_null() && !control.Type3InputBuffer.is_null());
            return complete(request, STATUS_SUCCESS, 0);
        }
        _ => {
            assert_eq!(buffer(request, true), Some((system.cast(), 3)));
            // SAFETY: an MDL of the IRP.
            assert_eq!(unsafe { (*irp.MdlAddress).ByteCount } as usize, length);
        }
    }
    answer(request, length);
}

#[test]
fn a_driver_looks_into_the_irp_of_a_request_that_it_has() {
    stack(Like { below: look, ..RIGHT }, |_, file| {
        assert_eq!(file.control(CODE, &[6, 0, 0], 4).bytes, [7, 8, 9, 10]);
        assert_eq!(file.control(DIRECT, &[6, 0, 0], 4).bytes, [7, 8, 9, 10]);
        assert!(file.control(NEITHER, &[6, 0, 0], 4).is_success());
        assert_eq!(file.begin_read_at(300, 3).wait().bytes, [1, 2, 3]);
    });
}

#[test]
fn the_device_objects_of_a_stack_are_attached_to_each_other() {
    stack(Like { below: look, ..RIGHT }, |stack, file| {
        assert!(file.control(CODE, &[1, 2, 3], 4).is_success());
        stack.upper.run(|| {
            let (own, lower, bus) = (object_of(device()), below(device()), bus(device()));
            assert_eq!(lower, LOWER.load(SeqCst));
            // SAFETY: device objects that live.
            let (above_bus, above_lower, above_own, size) =
                unsafe { ((*bus).AttachedDevice, (*lower).AttachedDevice, (*own).AttachedDevice, (*own).StackSize) };
            assert_eq!((above_bus, above_lower, above_own, size), (lower, own, ptr::null_mut(), 3));
            let to = target();
            assert_eq!(framework!(WdfIoTargetWdmGetTargetDeviceObject(to => WDFIOTARGET) -> PDEVICE_OBJECT), lower);
            assert_eq!(framework!(WdfIoTargetWdmGetTargetPhysicalDevice(to => WDFIOTARGET) -> PDEVICE_OBJECT), bus);
            assert!(framework!(WdfIoTargetWdmGetTargetFileObject(to => WDFIOTARGET) -> PFILE_OBJECT).is_null());
            assert!(framework!(WdfIoTargetWdmGetTargetFileHandle(to => WDFIOTARGET) -> wdk_sys::HANDLE).is_null());
        });
    });
}

/// A copy of the request's stack location, changed, is what the driver below gets.
fn send_changed(request: WDFREQUEST, change: fn(&mut IO_STACK_LOCATION)) {
    // SAFETY: the location of a request that the driver has.
    let mut location = unsafe { location_of(irp_of(request)).read() };
    change(&mut location);
    framework!(WdfRequestWdmFormatUsingStackLocation(request => WDFREQUEST, &raw const location => *const IO_STACK_LOCATION));
    assert!(send_to(request, target(), SYNCHRONOUS, 0));
    complete(request, status_of(request), 3);
}

fn other_code(location: &mut IO_STACK_LOCATION) {
    location.Parameters.DeviceIoControl.IoControlCode = CODE + 8;
    location.Parameters.DeviceIoControl.OutputBufferLength = 3;
}

#[test]
fn a_request_goes_on_as_a_stack_location_says() {
    stack(Like { below: look, above: |request| send_changed(request, other_code), ..RIGHT }, |_, file| {
        assert_eq!(file.control(CODE, &[6, 0, 0], 4).bytes, [7, 8, 9]);
        assert_eq!(CODES.load(SeqCst), CODE + 8);
    });
}

fn wrong(like: Like) {
    stack(like, |_, file| {
        let _ = file.control(CODE, &[1, 2, 3], 4);
    });
}

fn written_late(request: WDFREQUEST, length: usize) {
    LAST.store(irp_of(request), SeqCst);
    answer(request, length);
    // SAFETY: the test's scenario, which is wrong.
    unsafe { (*LAST.load(SeqCst)).PendingReturned = 1 };
}

fn asked_late(request: WDFREQUEST, length: usize) {
    GONE.store(request, SeqCst);
    answer(request, length);
    irp_of(GONE.load(SeqCst));
}

fn completed_as_an_irp(request: WDFREQUEST, _: usize) {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { IofCompleteRequest(irp_of(request), 0) };
}

fn passed_on_as_an_irp(request: WDFREQUEST) {
    // SAFETY: the test's scenario, which is wrong.
    let _ = unsafe { IofCallDriver(below(device()), irp_of(request)) };
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
    an_irp_written_after_the_completion breaks UseAfterFree by wrong(Like { below: written_late, ..RIGHT });
    an_irp_asked_for_after_the_completion breaks RequestCompletedTwice by wrong(Like { below: asked_late, ..RIGHT });
    an_irp_asked_for_of_a_request_that_was_sent breaks RequestCancelable by wrong(Like {
        below: |_, _| (),
        above: |request| { forget(request); irp_of(request); },
        ..RIGHT
    });
    a_request_completed_as_an_irp breaks IrpNotOwned by wrong(Like { below: completed_as_an_irp, ..RIGHT });
    a_request_passed_on_as_an_irp breaks NotSimulated by wrong(Like { above: passed_on_as_an_irp, ..RIGHT });
    a_stack_location_with_more_bytes_than_there_are breaks BadArgument by wrong(Like {
        above: |request| send_changed(request, |location| location.Parameters.DeviceIoControl.OutputBufferLength = 5),
        ..RIGHT
    });
}
