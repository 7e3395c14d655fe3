//! IRPs that a driver of the framework sees before the framework does.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, File, Rule, caught};
use wdk_sys::{
    _WDF_IO_QUEUE_DISPATCH_TYPE, GUID, IO_STACK_LOCATION, IRP, IRP_MJ_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE,
    NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID, PWDFDEVICE_INIT, SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR,
    SL_INVOKE_ON_SUCCESS, SL_PENDING_RETURNED, STATUS_CANCELLED, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, WDF_IO_QUEUE_CONFIG, WDFDEVICE, WDFQUEUE, WDFREQUEST,
    call_unsafe_wdf_function_binding,
    ntddk::{IoReleaseCancelSpinLock, IofCompleteRequest},
};

use crate::{
    made::{Made, device, with_device},
    sent::framework,
    skeleton::complete,
    small_driver::size,
};

const CODE: u32 = 0x22_2000;
static CLASS: GUID = GUID { Data1: 0x5E17_0003, Data2: 1, Data3: 2, Data4: [3; 8] };

type Preprocess = unsafe extern "C" fn(WDFDEVICE, PIRP) -> NTSTATUS;
type Look = fn(PIRP) -> NTSTATUS;

/// What the driver does with an IRP that it sees first.
static LOOK: DuringRun<Mutex<Look>> = DuringRun::new(Mutex::new(give));
/// The IRP that it saw last, how many requests came to it, and completion routines.
static IRP_OF: DuringRun<AtomicPtr<IRP>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static REQUESTS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static COMPLETIONS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn see(_: WDFDEVICE, irp: PIRP) -> NTSTATUS {
    IRP_OF.store(irp, SeqCst);
    let look = *LOOK.lock().unwrap_or_else(PoisonError::into_inner);
    look(irp)
}

fn register(init: PWDFDEVICE_INIT, routine: Option<Preprocess>, major: u32, minors: &[u8]) -> NTSTATUS {
    let major = u8::try_from(major).expect("a small number");
    let (place, count) = (minors.as_ptr(), u32::try_from(minors.len()).expect("few"));
    framework!(WdfDeviceInitAssignWdmIrpPreprocessCallback(
        init => PWDFDEVICE_INIT,
        routine => Option<Preprocess>,
        major => u8,
        place => *const u8,
        count => u32,
    ) -> NTSTATUS)
}

fn sees_all(init: PWDFDEVICE_INIT) {
    for major in [IRP_MJ_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE] {
        assert_eq!(register(init, Some(see), major, &[]), STATUS_SUCCESS);
    }
}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, output: usize, _: usize, _: u32) {
    arrived(request, output);
}

unsafe extern "C" fn transfer(_: WDFQUEUE, request: WDFREQUEST, length: usize) {
    arrived(request, length);
}

/// The framework's request has the IRP that the driver saw.
fn arrived(request: WDFREQUEST, bytes: usize) {
    REQUESTS.fetch_add(1, SeqCst);
    let irp = framework!(WdfRequestWdmGetIrp(request => WDFREQUEST) -> PIRP);
    let seen = IRP_OF.load(SeqCst);
    assert!(seen.is_null() || seen == irp);
    complete(request, STATUS_SUCCESS, bytes);
}

/// A queue for every kind of requests, and an interface to open.
fn finish(device: WDFDEVICE) {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel,
        DefaultQueue: 1,
        EvtIoDeviceControl: Some(control),
        EvtIoRead: Some(transfer),
        EvtIoWrite: Some(transfer),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    config.Settings.Parallel.NumberOfPresentedRequests = u32::MAX;
    let (nobody, mut queue) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the device is live, and the structures live until the call returns.
    let made =
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, nobody, &raw mut queue) };
    assert_eq!(made, STATUS_SUCCESS);
    expose(device);
}

fn expose(device: WDFDEVICE) {
    // SAFETY: the device is live, and the class lives.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null())
    };
    assert_eq!(made, STATUS_SUCCESS);
}

/// Opens a device whose driver does that with each IRP.
fn with_file(look: Look, work: impl FnOnce(&simulated_kernel::Driver, &File)) {
    with(Made { init: sees_all, device: finish }, look, work);
}

fn with(made: Made, look: Look, work: impl FnOnce(&simulated_kernel::Driver, &File)) {
    with_device(made, |kernel, driver, device| {
        *LOOK.lock().unwrap_or_else(PoisonError::into_inner) = look;
        IRP_OF.store(ptr::null_mut(), SeqCst);
        for count in [&REQUESTS, &COMPLETIONS] {
            count.store(0, SeqCst);
        }
        let file = kernel.open(&device.links()[0]).expect("the device opens");
        work(driver, &file);
    });
}

fn current(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: an IRP that the driver has; the arm that the I/O manager uses.
    unsafe { (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation }
}

/// `IoSkipCurrentIrpStackLocation`.
fn skip(irp: PIRP) {
    let above = current(irp).wrapping_add(1);
    // SAFETY: an IRP that the driver has; the arm that the I/O manager uses.
    unsafe {
        (*irp).CurrentLocation += 1;
        (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation = above;
    }
}

/// `IoCopyCurrentIrpStackLocationToNext` and `IoSetCompletionRoutine`, for every end.
fn copy(irp: PIRP, routine: unsafe extern "C" fn(PDEVICE_OBJECT, PIRP, PVOID) -> NTSTATUS) {
    let here = current(irp);
    // SAFETY: the driver's location, and the next one, which the IRP has for it.
    unsafe {
        let mut next = here.read();
        next.CompletionRoutine = Some(routine);
        next.Control = u8::try_from(SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL).expect("bits");
        here.wrapping_sub(1).write(next);
    }
}

/// `IoMarkIrpPending`.
fn mark(irp: PIRP) {
    // SAFETY: the driver's location.
    unsafe { (*current(irp)).Control |= u8::try_from(SL_PENDING_RETURNED).expect("a bit") };
}

fn dispatch(irp: PIRP) -> NTSTATUS {
    framework!(WdfDeviceWdmDispatchPreprocessedIrp(device() => WDFDEVICE, irp => PIRP) -> NTSTATUS)
}

/// Gives the IRP to the framework.
fn give(irp: PIRP) -> NTSTATUS {
    skip(irp);
    dispatch(irp)
}

unsafe extern "C" fn done(of: PDEVICE_OBJECT, irp: PIRP, _: PVOID) -> NTSTATUS {
    COMPLETIONS.fetch_add(1, SeqCst);
    assert_eq!(of, framework!(WdfDeviceWdmGetDeviceObject(device() => WDFDEVICE) -> PDEVICE_OBJECT));
    // SAFETY: the driver has the IRP in its completion routine.
    unsafe {
        if (*irp).PendingReturned != 0 {
            mark(irp);
        }
        // One byte less than the driver's queue has said.
        (*irp).IoStatus.Information -= 1;
    }
    STATUS_SUCCESS
}

/// The driver looks again when the framework is done.
fn copy_and_give(irp: PIRP) -> NTSTATUS {
    copy(irp, done);
    dispatch(irp)
}

fn finish_irp(irp: PIRP, status: NTSTATUS, bytes: u64) -> NTSTATUS {
    // SAFETY: the driver has the IRP, or is as wrong as the test wants it.
    unsafe {
        (*irp).IoStatus.__bindgen_anon_1.Status = status;
        (*irp).IoStatus.Information = bytes;
        IofCompleteRequest(irp, 0);
    }
    status
}

/// The driver answers itself.
fn answer(irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP; the arm of buffered requests, with room for a byte.
    unsafe { (*irp).AssociatedIrp.SystemBuffer.cast::<u8>().write(9) };
    finish_irp(irp, STATUS_SUCCESS, 1)
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    // SAFETY: a cancel routine has the lock, and the IRP.
    unsafe { IoReleaseCancelSpinLock((*irp).CancelIrql) };
    finish_irp(irp, STATUS_CANCELLED, 0);
}

/// The driver has the IRP until it is cancelled.
fn keep(irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    unsafe { (*irp).CancelRoutine = Some(cancel) };
    mark(irp);
    STATUS_PENDING
}

#[test]
fn an_irp_that_its_driver_gives_to_the_framework_becomes_a_request() {
    with_file(give, |_, file| {
        assert_eq!(file.control(CODE, &[1, 2, 3], 3).bytes, [1, 2, 3]);
        assert!(!IRP_OF.load(SeqCst).is_null());
        assert!(file.begin_read(4).wait().is_success());
        assert!(file.begin_write(&[1]).wait().is_success());
        assert_eq!(REQUESTS.load(SeqCst), 3);
    });
}

#[test]
fn the_completion_routine_of_who_sees_an_irp_first_is_called_when_the_framework_is_done() {
    with_file(copy_and_give, |_, file| {
        assert_eq!(file.control(CODE, &[1, 2, 3], 3).bytes, [1, 2]);
        assert_eq!((REQUESTS.load(SeqCst), COMPLETIONS.load(SeqCst)), (1, 1));
    });
}

#[test]
fn a_driver_answers_an_irp_and_the_framework_sees_no_request() {
    with_file(answer, |_, file| {
        assert_eq!(file.control(CODE, &[1, 2, 3], 3).bytes, [9]);
        assert_eq!(file.begin_read(2).wait().bytes, [9]);
        assert_eq!(REQUESTS.load(SeqCst), 0);
    });
}

#[test]
fn an_irp_that_its_driver_keeps_is_cancelled_or_given_later() {
    with_file(keep, |driver, file| {
        let cancelled = file.begin(CODE, &[], 0);
        assert!(!cancelled.is_complete());
        cancelled.cancel();
        assert_eq!(cancelled.wait().status, STATUS_CANCELLED);

        let later = file.begin(CODE, &[5], 1);
        driver.run(|| {
            let irp = IRP_OF.load(SeqCst);
            // SAFETY: the driver has the IRP.
            unsafe { (*irp).CancelRoutine = None };
            assert_eq!(give(irp), STATUS_PENDING);
        });
        assert_eq!(later.wait().bytes, [5]);
    });
}

#[test]
fn a_device_without_a_queue_refuses_what_it_has_seen() {
    with(Made { init: sees_all, device: expose }, give, |_, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_INVALID_DEVICE_REQUEST);
        assert!(!IRP_OF.load(SeqCst).is_null());
    });
}

#[test]
fn what_is_seen_first_is_said_by_major_and_minor_function() {
    fn init(init: PWDFDEVICE_INIT) {
        assert_eq!(register(init, Some(see), 28, &[]), STATUS_INVALID_PARAMETER);
        assert_eq!(register(init, Some(see), IRP_MJ_READ, &[1, 2]), STATUS_SUCCESS);
        assert_eq!(register(init, Some(see), IRP_MJ_READ, &[0]), STATUS_INVALID_DEVICE_REQUEST);
        assert_eq!(register(init, Some(see), IRP_MJ_READ, &[]), STATUS_SUCCESS, "another routine for the same");
        assert_eq!(register(init, Some(see), IRP_MJ_WRITE, &[7, 0]), STATUS_SUCCESS);
    }
    with(Made { init, device: finish }, answer, |_, file| {
        assert!(file.begin_read(2).wait().is_success());
        assert_eq!(REQUESTS.load(SeqCst), 1, "no read has one of these minor functions");
        assert!(file.begin_write(&[1]).wait().is_success());
        assert_eq!(REQUESTS.load(SeqCst), 1);
    });
}

/// Drivers that are wrong with an IRP that they see first.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $look:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || with_file($look, |_, file| {
                    let _ = file.control(CODE, &[1, 2, 3], 3);
                }));
            }
        )+
    };
}

wrong! {
    an_irp_given_to_the_framework_at_its_own_location breaks IrpStackLocations by dispatch;
    an_irp_skipped_twice breaks IrpStackLocations by |irp| {
        skip(irp);
        give(irp)
    };
    an_irp_given_to_the_framework_twice breaks IrpCompletedTwice by |irp| {
        give(irp);
        give(irp)
    };
    an_irp_completed_and_given_to_the_framework breaks IrpCompletedTwice by |irp| {
        finish_irp(irp, STATUS_SUCCESS, 0);
        dispatch(irp)
    };
    an_irp_seen_first_and_forgotten breaks IrpNeverCompleted by |_| STATUS_SUCCESS;
    an_irp_kept_without_a_mark breaks IrpStatus by |_| STATUS_PENDING;
    another_status_than_that_of_the_framework breaks IrpStatus by |irp| {
        give(irp);
        STATUS_SUCCESS
    };
    an_irp_answered_with_too_many_bytes breaks RequestInformation by |irp| finish_irp(irp, STATUS_SUCCESS, 4);
}

#[test]
fn no_routine_to_see_irps_first() {
    let test = concat!(module_path!(), "::no_routine_to_see_irps_first");
    let init = |init| {
        register(init, None, IRP_MJ_READ, &[]);
    };
    caught(test, Rule::BadArgument, || with_device(Made { init, ..Made::default() }, |_, _, _| ()));
}
