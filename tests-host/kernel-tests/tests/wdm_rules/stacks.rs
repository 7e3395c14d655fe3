//! Devices above devices, completion routines, and requests that drivers make: the small driver with a second device above its own.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{Driver, DuringRun, Rule, caught};
use wdk_sys::{
    BOOLEAN, DEVICE_OBJECT, DO_DEVICE_INITIALIZING, FILE_DEVICE_UNKNOWN, FILE_OBJECT, IO_STACK_LOCATION,
    IO_STATUS_BLOCK, IRP, IRP_MJ_DEVICE_CONTROL, KEVENT, NTSTATUS, PDEVICE_OBJECT, PIO_COMPLETION_ROUTINE, PIRP, PVOID,
    SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, STATUS_CANCELLED, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_MORE_PROCESSING_REQUIRED, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        IoAllocateIrp, IoAttachDeviceToDeviceStack, IoBuildDeviceIoControlRequest, IoCancelIrp, IoCreateDevice,
        IoDeleteDevice, IoDetachDevice, IoFreeIrp, IoGetDeviceObjectPointer, IoReuseIrp, IofCallDriver,
        KeInitializeEvent, KeSetEvent, KeWaitForSingleObject, ObfDereferenceObject,
    },
};

use crate::driver::{self, CODE, LINK, Parts, complete, run};

/// The device below, which is the driver's first one, and how many completion routines were called.
static BELOW: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static CALLED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

/// Makes a second device, and attaches it to the first.
fn attach(below: PDEVICE_OBJECT) {
    BELOW.store(below, SeqCst);
    CALLED.store(0, SeqCst);
    let mut above = ptr::null_mut();
    // SAFETY: the driver's device.
    let driver = unsafe { (*below).DriverObject };
    let status = call!(IoCreateDevice(driver, 0, ptr::null_mut(), FILE_DEVICE_UNKNOWN, 0, 0, &raw mut above));
    assert_eq!(status, STATUS_SUCCESS);
    assert_eq!(call!(IoAttachDeviceToDeviceStack(above, below)), below);
    // SAFETY: the driver's device.
    assert_eq!(unsafe { (*below).AttachedDevice }, above);
    // SAFETY: the driver's device.
    let above = unsafe { &mut *above };
    assert_eq!(above.StackSize, 2);
    above.Flags &= !DO_DEVICE_INITIALIZING;
}

fn below() -> PDEVICE_OBJECT {
    BELOW.load(SeqCst)
}

/// Takes the second device away. The driver's newest device is the first in its list.
fn detach(above: PDEVICE_OBJECT) {
    call!(IoDetachDevice(below()));
    call!(IoDeleteDevice(above));
}

/// `IoCopyCurrentIrpStackLocationToNext`.
fn copy_to_next(irp: PIRP) {
    let here = driver::location(irp);
    let next = here.wrapping_sub(1);
    // SAFETY: the driver has the IRP.
    let copy = IO_STACK_LOCATION { Control: 0, CompletionRoutine: None, ..unsafe { here.read() } };
    // SAFETY: the driver has the IRP, which has a location more.
    unsafe { next.write(copy) };
}

/// `IoSkipCurrentIrpStackLocation`.
pub fn skip(irp: PIRP) {
    // SAFETY: the driver has the IRP.
    let irp = unsafe { &mut *irp };
    irp.CurrentLocation += 1;
    // SAFETY: the arm that the I/O manager uses.
    let overlay = unsafe { &mut irp.Tail.Overlay };
    // SAFETY: the arm that the I/O manager uses.
    let place = unsafe { &mut overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation };
    *place = place.wrapping_add(1);
}

/// `IoSetCompletionRoutine`, for whatever end the request has.
pub fn set_completion(irp: PIRP, routine: PIO_COMPLETION_ROUTINE, context: PVOID) {
    // SAFETY: the driver has the IRP, which has a location more.
    let next = unsafe { &mut *driver::location(irp).wrapping_sub(1) };
    (next.CompletionRoutine, next.Context) = (routine, context);
    next.Control = u8::try_from(SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL).expect("flags");
}

/// Lets the request go on, as a completion routine has to: marked as pending if it was below.
unsafe extern "C" fn go_on(_: PDEVICE_OBJECT, irp: PIRP, _: PVOID) -> NTSTATUS {
    CALLED.fetch_add(1, SeqCst);
    // SAFETY: the routine has the IRP.
    if unsafe { (*irp).PendingReturned } != 0 {
        driver::mark(irp);
    }
    STATUS_SUCCESS
}

/// The same, but that is forgotten.
unsafe extern "C" fn forget_to_mark(_: PDEVICE_OBJECT, _: PIRP, _: PVOID) -> NTSTATUS {
    STATUS_SUCCESS
}

/// Keeps the request, and tells who waits.
pub unsafe extern "C" fn keep(_: PDEVICE_OBJECT, _: PIRP, event: PVOID) -> NTSTATUS {
    CALLED.fetch_add(1, SeqCst);
    call!(KeSetEvent(event.cast(), 0, 0));
    STATUS_MORE_PROCESSING_REQUIRED
}

/// Keeps the request.
unsafe extern "C" fn keep_quietly(_: PDEVICE_OBJECT, _: PIRP, _: PVOID) -> NTSTATUS {
    CALLED.fetch_add(1, SeqCst);
    STATUS_MORE_PROCESSING_REQUIRED
}

/// Passes a request on and waits until it is back. The driver has it again then.
pub fn pass_and_wait(device: PDEVICE_OBJECT, irp: PIRP) {
    let mut event = KEVENT::default();
    let place: *mut KEVENT = &raw mut event;
    call!(KeInitializeEvent(place, 0, 0));
    copy_to_next(irp);
    set_completion(irp, Some(keep), place.cast());
    if call!(IofCallDriver(device, irp)) == STATUS_PENDING {
        call!(KeWaitForSingleObject(place.cast(), 0, 0, 0, ptr::null_mut()));
    }
}

/// What the device below does: answers with a byte.
fn answer(irp: PIRP) -> NTSTATUS {
    // SAFETY: the buffer has room.
    unsafe { driver::buffer(irp).write(7) };
    complete(irp, 0, 1)
}

fn pass_on(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    if device == below() {
        return answer(irp);
    }
    copy_to_next(irp);
    set_completion(irp, Some(go_on), ptr::null_mut());
    call!(IofCallDriver(below(), irp))
}

const STACK: Parts =
    Parts { load: attach, control: pass_on, unload: detach, deletes_device: false, deletes_link: true };

/// The driver with two devices. The first is deleted by a wrapper of `detach`.
fn two(control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) -> Parts {
    Parts { control, unload: detach_and_delete, ..STACK }
}

fn detach_and_delete(above: PDEVICE_OBJECT) {
    detach(above);
    call!(IoDeleteDevice(below()));
}

#[test]
fn a_request_goes_down_a_stack_and_comes_back() {
    run(two(pass_on), |_, _, file| {
        let answer = file.control(CODE, &[1], 4);
        assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![7]));
        assert_eq!(CALLED.load(SeqCst), 1);
    });
}

#[test]
fn a_request_that_pends_below_is_completed_or_cancelled_through_the_stack() {
    let pend = |device: PDEVICE_OBJECT, irp| {
        if device == below() { driver::pend(device, irp) } else { pass_on(device, irp) }
    };
    run(two(pend), |_, driver, file| {
        driver::completes_and_cancels(driver, file);
        assert_eq!(CALLED.load(SeqCst), 2);
    });
}

#[test]
fn a_driver_skips_its_own_stack_location() {
    let skip_on = |device: PDEVICE_OBJECT, irp| {
        if device == below() {
            return answer(irp);
        }
        skip(irp);
        call!(IofCallDriver(below(), irp))
    };
    run(two(skip_on), |_, _, file| assert_eq!(file.control(CODE, &[], 1).bytes, [7]));
}

#[test]
fn a_completion_routine_keeps_a_request_that_the_driver_completes_later() {
    let wait = |device: PDEVICE_OBJECT, irp| {
        if device == below() {
            return answer(irp);
        }
        pass_and_wait(below(), irp);
        complete(irp, 0, 0)
    };
    run(two(wait), |_, _, file| assert!(file.control(CODE, &[], 1).bytes.is_empty()));
}

/// Makes a request for the device below.
fn allocate(locations: i8) -> PIRP {
    let irp = call!(IoAllocateIrp(locations, 0));
    if !irp.is_null() {
        address(irp);
    }
    irp
}

/// Says what the request is: a control code without buffers.
fn address(irp: PIRP) {
    // SAFETY: the IRP was just made, and has a location.
    let next = unsafe { &mut *driver::location(irp).wrapping_sub(1) };
    next.MajorFunction = u8::try_from(IRP_MJ_DEVICE_CONTROL).expect("a small number");
    set_completion(irp, Some(keep_quietly), ptr::null_mut());
}

/// Sends its own request twice, and frees it.
fn send_own(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    if device == below() {
        return complete(irp, 0, 0);
    }
    let own = allocate(1);
    for _ in 0..2 {
        assert_eq!(call!(IofCallDriver(below(), own)), STATUS_SUCCESS);
        call!(IoReuseIrp(own, STATUS_SUCCESS));
        address(own);
    }
    call!(IoFreeIrp(own));
    complete(irp, 0, 0)
}

#[test]
fn a_driver_sends_a_request_of_its_own_again() {
    run(two(send_own), |_, _, file| {
        assert!(file.control(CODE, &[], 0).is_success());
        assert_eq!(CALLED.load(SeqCst), 2);
    });
}

#[test]
fn a_driver_cancels_a_request_of_its_own() {
    let cancel_own = |device: PDEVICE_OBJECT, irp| {
        if device == below() {
            return driver::pend(device, irp);
        }
        let own = allocate(1);
        assert_eq!(call!(IofCallDriver(below(), own)), STATUS_PENDING);
        assert_eq!(call!(IoCancelIrp(own)), BOOLEAN::from(true));
        assert_eq!(driver::status(own), STATUS_CANCELLED);
        call!(IoFreeIrp(own));
        complete(irp, 0, 0)
    };
    run(two(cancel_own), |_, _, file| assert!(file.control(CODE, &[], 0).is_success()));
}

/// Has the system make a request with an event and buffers, and waits.
fn ask_below(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    if device == below() {
        // SAFETY: the buffer has the input.
        assert_eq!(unsafe { driver::buffer(irp).read() }, 5);
        return answer(irp);
    }
    let (mut event, mut status, mut bytes) = (KEVENT::default(), IO_STATUS_BLOCK::default(), [5_u8, 0]);
    let (place, data): (*mut KEVENT, *mut u8) = (&raw mut event, bytes.as_mut_ptr());
    call!(KeInitializeEvent(place, 0, 0));
    let result = &raw mut status;
    let data = data.cast();
    let own = call!(IoBuildDeviceIoControlRequest(CODE, below(), data, 2, data, 2, 0, place, result));
    if own.is_null() {
        return complete(irp, wdk_sys::STATUS_INSUFFICIENT_RESOURCES, 0);
    }
    if call!(IofCallDriver(below(), own)) == STATUS_PENDING {
        call!(KeWaitForSingleObject(place.cast(), 0, 0, 0, ptr::null_mut()));
    }
    assert_eq!((bytes, status.Information), ([7, 0], 1));
    complete(irp, 0, 0)
}

#[test]
fn a_driver_has_the_system_make_a_request() {
    run(two(ask_below), |_, _, file| assert!(file.control(CODE, &[], 0).is_success()));
}

/// A name as the kernel has it.
fn string(units: &mut Vec<u16>) -> UNICODE_STRING {
    let bytes = u16::try_from(2 * units.len()).expect("a short string");
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() }
}

#[test]
fn a_driver_opens_a_device_by_its_name() {
    run(two(pass_on), |_, driver: &Driver, _| {
        driver.run(|| {
            for (name, status) in
                [(LINK, STATUS_SUCCESS), (r"\Device\Plain", STATUS_SUCCESS), ("other", STATUS_OBJECT_NAME_NOT_FOUND)]
            {
                let mut units = name.encode_utf16().collect();
                let mut name = string(&mut units);
                let (mut file, mut device): (*mut FILE_OBJECT, PDEVICE_OBJECT) = (ptr::null_mut(), ptr::null_mut());
                let found = call!(IoGetDeviceObjectPointer(&raw mut name, 0, &raw mut file, &raw mut device));
                assert_eq!(found, status);
                if found == STATUS_SUCCESS {
                    // SAFETY: the driver's first device.
                    assert_eq!(device, unsafe { (*below()).AttachedDevice });
                    call!(ObfDereferenceObject(file.cast()));
                }
            }
        });
    });
}

#[test]
fn what_can_fail_fails_once() {
    run(two(ask_below), |kernel, _, file| {
        let failures = kernel.fail_each(1.., || {
            let status = file.control(CODE, &[], 0).status;
            assert!([STATUS_SUCCESS, wdk_sys::STATUS_INSUFFICIENT_RESOURCES].contains(&status));
        });
        assert!(failures >= 1, "the request can fail");
    });
}

#[test]
fn a_device_without_a_routine_for_a_request_refuses_it() {
    let other = |device: PDEVICE_OBJECT, irp| {
        if device == below() {
            return complete(irp, 0, 0);
        }
        let own = allocate(1);
        // SAFETY: the IRP was just made. The driver has no routine for reads.
        unsafe { (*driver::location(own).wrapping_sub(1)).MajorFunction = 3 };
        assert_eq!(call!(IofCallDriver(below(), own)), STATUS_INVALID_DEVICE_REQUEST);
        call!(IoFreeIrp(own));
        complete(irp, 0, 0)
    };
    run(two(other), |_, _, file| assert!(file.control(CODE, &[], 0).is_success()));
}

/// What the device above does wrong, with its request; the one below completes it.
fn wrong(test: &str, rule: Rule, above: fn(PIRP) -> NTSTATUS, below_does: fn(PIRP) -> NTSTATUS) {
    type Part = fn(PIRP) -> NTSTATUS;
    static PARTS: DuringRun<Mutex<[Part; 2]>> = DuringRun::new(Mutex::new([|_| STATUS_SUCCESS; 2]));
    caught(&format!("{}::{test}", module_path!()), rule, || {
        let control = |device: PDEVICE_OBJECT, irp| {
            let part = PARTS.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(device == below())];
            part(irp)
        };
        run(two(control), |_, driver, file| {
            *PARTS.lock().unwrap_or_else(PoisonError::into_inner) = [above, below_does];
            let pending = file.begin(CODE, &[], 0);
            if !pending.is_complete() {
                driver.run(driver::complete_pending);
            }
            let _ = pending.wait();
        });
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $above:expr, $below:expr;)+) => {
        $(
            #[test]
            fn $name() {
                wrong(stringify!($name), Rule::$rule, $above, $below);
            }
        )+
    };
}

fn done(irp: PIRP) -> NTSTATUS {
    complete(irp, 0, 0)
}

/// Keeps its request, which can be cancelled.
fn pend(irp: PIRP) -> NTSTATUS {
    driver::pend(ptr::null_mut(), irp)
}

/// Passes the request on by its own means, and does something when that has returned.
fn pass(irp: PIRP, routine: PIO_COMPLETION_ROUTINE) -> NTSTATUS {
    copy_to_next(irp);
    set_completion(irp, routine, ptr::null_mut());
    call!(IofCallDriver(below(), irp))
}

/// A request of its own, with something done to it; then the other one is completed.
fn with_own(irp: PIRP, work: fn(*mut IRP)) -> NTSTATUS {
    work(allocate(1));
    complete(irp, 0, 0)
}

wrong! {
    an_irp_without_a_stack_location_for_the_next breaks IrpStackLocations by
        |irp| with_own(irp, |own| { call!(IofCallDriver(below(), own)); }),
        |irp| { call!(IofCallDriver(below(), irp)) };
    an_irp_that_is_passed_on_after_its_completion breaks IrpCompletedTwice by
        |irp| { complete(irp, 0, 0); call!(IofCallDriver(below(), irp)) }, done;
    an_irp_that_is_passed_on_with_its_cancel_routine breaks IrpCancelRoutine by
        |irp| { driver::set_cancel(irp, Some(driver::cancel)); pass(irp, Some(go_on)) }, done;
    a_completion_routine_that_does_not_mark breaks IrpStatus by
        |irp| pass(irp, Some(forget_to_mark)), pend;
    a_status_that_is_not_that_of_the_driver_below breaks IrpStatus by
        |irp| { pass(irp, Some(go_on)); STATUS_SUCCESS }, |irp| complete(irp, STATUS_CANCELLED, 0);
    an_irp_that_a_completion_routine_keeps_for_good breaks IrpNeverCompleted by
        |irp| pass(irp, Some(keep_quietly)), done;
    an_own_irp_that_nobody_keeps breaks IrpNotTaken by
        |irp| with_own(irp, |own| { set_completion(own, None, ptr::null_mut()); call!(IofCallDriver(below(), own)); }),
        done;
    an_own_irp_that_is_freed_on_its_way breaks IrpFreed by
        |irp| with_own(irp, |own| { call!(IofCallDriver(below(), own)); call!(IoFreeIrp(own)); }), pend;
    an_irp_that_is_freed_by_who_did_not_make_it breaks IrpFreed by
        |irp| { call!(IoFreeIrp(irp)); done(irp) }, done;
    an_own_irp_that_is_left_behind breaks ReferenceLeak by |irp| with_own(irp, |_| ()), done;
    an_own_irp_that_is_used_after_it_was_freed breaks UseAfterFree by
        |irp| with_own(irp, |own| { call!(IoFreeIrp(own)); driver::mark_freed(own); }), done;
    a_device_that_is_deleted_below_another breaks DeviceAttached by
        |irp| { call!(IoDeleteDevice(below())); done(irp) }, done;
    a_device_that_is_detached_twice breaks DeviceAttached by
        |irp| { call!(IoDetachDevice(below())); call!(IoDetachDevice(below())); done(irp) }, done;
}

#[test]
fn an_irp_that_is_completed_by_who_has_passed_it_on() {
    let test = concat!(module_path!(), "::an_irp_that_is_completed_by_who_has_passed_it_on");
    caught(test, Rule::IrpNotOwned, super::plug::complete_what_was_passed_on);
}

#[test]
fn a_device_that_is_deleted_and_not_detached() {
    caught(concat!(module_path!(), "::a_device_that_is_deleted_and_not_detached"), Rule::DeviceAttached, || {
        run(Parts { unload: |above| call!(IoDeleteDevice(above)), ..STACK }, |_, _, _| ());
    });
}

#[test]
fn a_device_that_is_attached_twice() {
    caught(concat!(module_path!(), "::a_device_that_is_attached_twice"), Rule::DeviceAttached, || {
        let twice = |device| {
            attach(device);
            // SAFETY: the driver's device.
            let above = unsafe { (*device).AttachedDevice };
            call!(IoAttachDeviceToDeviceStack(above, device));
        };
        run(Parts { load: twice, ..STACK }, |_, _, _| ());
    });
}
