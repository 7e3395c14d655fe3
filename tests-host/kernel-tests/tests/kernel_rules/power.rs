//! Queues that power management stops: what the driver is told of the requests that it has, and what the device waits for.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use simulated_kernel::{Device, Driver, DuringRun, File, Kernel, Rule, caught, caught_saying};
use wdk_sys::{
    _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_IO_QUEUE_STATE, _WDF_TRI_STATE, GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT,
    PVOID, PWDFDEVICE_INIT, STATUS_CANCELLED, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING,
    STATUS_SUCCESS, WDF_IO_QUEUE_CONFIG, WDF_PNPPOWER_EVENT_CALLBACKS, WDF_POWER_DEVICE_STATE, WDF_TIMER_CONFIG,
    WDF_TRI_STATE, WDFCMRESLIST, WDFDEVICE, WDFDRIVER, WDFQUEUE, WDFQUEUE__, WDFREQUEST, WDFREQUEST__, WDFTIMER,
    WDFTIMER__, call_unsafe_wdf_function_binding,
};

use crate::{
    sent::framework,
    skeleton,
    small_driver::{attributes, create_device, create_driver, size},
};

const CODE: u32 = 0x22_2000;
const SUSPEND: u32 = 1;
const PURGE: u32 = 2;
const CANCELABLE: u32 = 0x1000_0000;
const STATUS_POWER_STATE_INVALID: NTSTATUS = 0xC000_02D3_u32.cast_signed();
const STATUS_WDF_PAUSED: NTSTATUS = 0xC020_0203_u32.cast_signed();
static CLASS: GUID = GUID { Data1: 0x5E17_0002, Data2: 1, Data3: 2, Data4: [3; 8] };

/// What the driver of a test does.
#[derive(Clone, Copy)]
struct Like {
    managed: WDF_TRI_STATE,
    /// A manual queue, from which the driver takes nothing by itself.
    manual: bool,
    /// With a request.
    control: fn(WDFREQUEST),
    /// In `EvtIoStop`.
    stop: Option<fn(WDFREQUEST, u32)>,
    /// In `EvtIoResume`.
    resume: fn(WDFREQUEST),
    /// When the timer of a request has expired.
    timer: fn(WDFREQUEST),
}

const RIGHT: Like = Like {
    managed: _WDF_TRI_STATE::WdfUseDefault,
    manual: false,
    control: keep,
    stop: Some(stay),
    resume: |_| (),
    timer: |request| complete(request, STATUS_SUCCESS),
};

static LIKE: DuringRun<Mutex<Like>> = DuringRun::new(Mutex::new(RIGHT));
static HEARD: DuringRun<Mutex<Vec<&str>>> = DuringRun::new(Mutex::new(Vec::new()));
static KEPT: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static QUEUE: DuringRun<AtomicPtr<WDFQUEUE__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static TIMER: DuringRun<AtomicPtr<WDFTIMER__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

fn like() -> Like {
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(what: &'static str) {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// What the driver heard since this was asked last.
fn heard() -> Vec<&'static str> {
    // A driver that notes something must not allocate.
    std::mem::replace(&mut *HEARD.lock().unwrap_or_else(PoisonError::into_inner), Vec::with_capacity(64))
}

fn complete(request: WDFREQUEST, status: NTSTATUS) {
    skeleton::complete(request, status, 0);
}

fn keep(request: WDFREQUEST) {
    KEPT.store(request, SeqCst);
}

fn kept() -> WDFREQUEST {
    KEPT.load(SeqCst)
}

fn acknowledge(request: WDFREQUEST, requeue: u8) {
    framework!(WdfRequestStopAcknowledge(request => WDFREQUEST, requeue => u8));
}

/// Keeps the request through the sleep; when the device goes the request does.
fn stay(request: WDFREQUEST, action: u32) {
    if action & SUSPEND != 0 { acknowledge(request, 0) } else { complete(request, STATUS_CANCELLED) }
}

unsafe extern "C" fn cancelled(request: WDFREQUEST) {
    note("cancel");
    complete(request, STATUS_CANCELLED);
}

unsafe extern "C" fn cancelled_later(request: WDFREQUEST) {
    note("cancel");
    later(request);
}

fn mark(request: WDFREQUEST, routine: unsafe extern "C" fn(WDFREQUEST)) {
    // SAFETY: the driver has the request.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelable, request, Some(routine)) };
}

fn keep_cancelable(request: WDFREQUEST) {
    keep(request);
    mark(request, cancelled);
}

fn keep_to_cancel_later(request: WDFREQUEST) {
    mark(request, cancelled_later);
}

fn unmark(request: WDFREQUEST) -> NTSTATUS {
    // SAFETY: the driver has the request.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestUnmarkCancelable, request) }
}

/// The timer has it, a millisecond later.
fn later(request: WDFREQUEST) {
    keep(request);
    // SAFETY: the timer is live.
    let _ = unsafe { call_unsafe_wdf_function_binding!(WdfTimerStart, TIMER.load(SeqCst), -10_000) };
}

unsafe extern "C" fn expired(_: WDFTIMER) {
    note("timer");
    (like().timer)(kept());
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

unsafe extern "system" fn filter_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add_filter)
}

/// Callbacks that note that they were called.
macro_rules! callbacks {
    ($($name:ident($($type:ty),*) $(-> $status:ident)?: $what:literal;)+) => {
        $(unsafe extern "C" fn $name($(_: $type),*) $(-> callbacks!(@ $status))? {
            note($what);
            $($status)?
        })+
    };
    (@ $status:ident) => { NTSTATUS };
}

callbacks! {
    suspend(WDFDEVICE) -> STATUS_SUCCESS: "suspend";
    restart(WDFDEVICE) -> STATUS_SUCCESS: "restart";
    flush(WDFDEVICE): "flush";
    cleanup(WDFDEVICE): "cleanup";
    surprise(WDFDEVICE): "surprise";
    release(WDFDEVICE, WDFCMRESLIST) -> STATUS_SUCCESS: "release";
    power_up(WDFDEVICE, WDF_POWER_DEVICE_STATE) -> STATUS_SUCCESS: "D0 entry";
    power_down(WDFDEVICE, WDF_POWER_DEVICE_STATE) -> STATUS_SUCCESS: "D0 exit";
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        Size: size::<WDF_PNPPOWER_EVENT_CALLBACKS>(),
        EvtDeviceD0Entry: Some(power_up),
        EvtDeviceD0Exit: Some(power_down),
        EvtDeviceReleaseHardware: Some(release),
        EvtDeviceSelfManagedIoSuspend: Some(suspend),
        EvtDeviceSelfManagedIoRestart: Some(restart),
        EvtDeviceSelfManagedIoFlush: Some(flush),
        EvtDeviceSelfManagedIoCleanup: Some(cleanup),
        EvtDeviceSurpriseRemoval: Some(surprise),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    // SAFETY: the framework's structure, before the device is made of it; the callbacks live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetPnpPowerEventCallbacks, init, &raw mut callbacks);
    }
    let device = create_device(init, attributes());
    create_queue(device);
    let mut config = WDF_TIMER_CONFIG {
        Size: size::<WDF_TIMER_CONFIG>(),
        EvtTimerFunc: Some(expired),
        ..WDF_TIMER_CONFIG::default()
    };
    let mut of_timer = attributes();
    of_timer.ParentObject = device.cast();
    let mut timer = ptr::null_mut();
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfTimerCreate, &raw mut config, &raw mut of_timer, &raw mut timer)
    };
    assert_eq!(made, 0);
    TIMER.store(timer, SeqCst);
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "C" fn add_filter(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
    create_queue(create_device(init, attributes()));
    STATUS_SUCCESS
}

fn create_queue(device: WDFDEVICE) {
    let like = like();
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel,
        PowerManaged: like.managed,
        DefaultQueue: 1,
        EvtIoStop: like.stop.map(|_| stopped as _),
        EvtIoResume: Some(resumed),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    config.Settings.Parallel.NumberOfPresentedRequests = u32::MAX;
    if like.manual {
        config.DispatchType = _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual;
    } else {
        config.EvtIoDeviceControl = Some(control);
    }
    let mut queue = ptr::null_mut();
    // SAFETY: the device is live, and the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, ptr::null_mut(), &raw mut queue)
    };
    assert_eq!(made, 0);
    QUEUE.store(queue, SeqCst);
}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, _: usize, _: usize, _: u32) {
    note("control");
    (like().control)(request);
}

unsafe extern "C" fn stopped(queue: WDFQUEUE, request: WDFREQUEST, action: u32) {
    assert_eq!(queue, QUEUE.load(SeqCst));
    note(if action & SUSPEND != 0 { "stop" } else { "purge" });
    like().stop.expect("there is one")(request, action);
}

unsafe extern "C" fn resumed(queue: WDFQUEUE, request: WDFREQUEST) {
    assert_eq!(queue, QUEUE.load(SeqCst));
    note("resume");
    (like().resume)(request);
}

fn has_state(flag: i32) -> bool {
    let (queue, none) = (QUEUE.load(SeqCst), ptr::null_mut());
    // SAFETY: the queue is live.
    let state = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetState, queue, none, none) };
    state & flag != 0
}

/// Returns true if the queue says that power management holds it.
fn is_held(driver: &Driver) -> bool {
    driver.run(|| has_state(_WDF_IO_QUEUE_STATE::WdfIoQueuePnpHeld))
}

/// A driver with a device, under a filter of the same kind or not, and a program that has it open.
fn with_stack(like: Like, filtered: bool, work: impl Fn(&Kernel, &Driver, Device, File)) {
    for seed in 1..6 {
        let kernel = Kernel::seeded(seed).preemption(30).start();
        *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = like;
        let driver = kernel.load("power", entry).expect("the driver loads");
        let filter = kernel.load("filter", filter_entry).expect("the driver loads");
        let filters = [&filter];
        let device = driver.add_device_under(if filtered { &filters } else { &[] }).expect("the device starts");
        let file = kernel.open(&device.links()[0]).expect("the device opens");
        heard();
        work(&kernel, &driver, device, file);
        heard();
        filter.unload();
        driver.unload();
    }
}

fn with_device(like: Like, work: impl Fn(&Kernel, &Driver, Device, File)) {
    with_stack(like, false, work);
}

fn remove(device: Device, file: File) {
    drop(file);
    assert!(device.remove().is_ok());
}

#[test]
fn a_request_that_the_driver_keeps_goes_on_after_the_sleep() {
    let like = Like { resume: |request| complete(request, STATUS_SUCCESS), ..RIGHT };
    with_device(like, |_, driver, device, file| {
        assert!(!is_held(driver));
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(heard(), ["control", "suspend", "stop", "D0 exit"]);
        assert!(is_held(driver) && !pending.is_complete());
        device.wake();
        assert_eq!(heard(), ["D0 entry", "resume", "restart"]);
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        assert!(!is_held(driver));
        remove(device, file);
    });
}

#[test]
fn what_comes_while_the_device_sleeps_waits_for_it() {
    let like = Like { control: |request| complete(request, STATUS_SUCCESS), ..RIGHT };
    with_device(like, |_, _, device, file| {
        device.sleep();
        let pending = file.begin(CODE, &[], 0);
        assert!(!pending.is_complete());
        assert_eq!(heard(), ["suspend", "D0 exit"]);
        device.wake();
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        assert_eq!(heard(), ["D0 entry", "control", "restart"]);
        remove(device, file);
    });
}

#[test]
fn a_request_that_is_put_back_is_handed_out_again() {
    let like = Like { stop: Some(|request, _| acknowledge(request, 1)), ..RIGHT };
    with_device(like, |_, driver, device, file| {
        let pending = file.begin(CODE, &[], 0);
        assert!(device.stop_and_start().is_ok());
        assert_eq!(
            heard(),
            ["control", "suspend", "stop", "D0 exit", "release", "D0 entry", "control", "restart"],
            "and it is not resumed"
        );
        driver.run(|| complete(kept(), STATUS_SUCCESS));
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        remove(device, file);
    });
}

#[test]
fn a_request_that_is_put_back_and_cancelled_meanwhile_is_at_its_end() {
    let like = Like { stop: Some(|request, _| acknowledge(request, 1)), ..RIGHT };
    with_device(like, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        pending.cancel();
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        device.wake();
        assert_eq!(heard(), ["control", "suspend", "stop", "D0 exit", "D0 entry", "restart"]);
        remove(device, file);
    });
}

#[test]
fn a_cancelable_request_is_shown_as_one() {
    let stop = |request, action| {
        assert_eq!(action, SUSPEND | CANCELABLE);
        assert_eq!(unmark(request), STATUS_SUCCESS);
        complete(request, STATUS_SUCCESS);
    };
    with_device(Like { control: keep_cancelable, stop: Some(stop), ..RIGHT }, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        device.wake();
        assert_eq!(heard(), ["control", "suspend", "stop", "D0 exit", "D0 entry", "restart"]);
        remove(device, file);
    });
}

#[test]
fn a_request_that_the_driver_is_cancelling_is_waited_for_and_not_shown() {
    with_device(Like { control: keep_to_cancel_later, ..RIGHT }, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        pending.cancel();
        device.sleep();
        assert_eq!(heard(), ["control", "cancel", "suspend", "timer", "D0 exit"]);
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        device.wake();
        remove(device, file);
    });
}

/// Nobody has told the driver.
#[test]
fn a_request_that_was_cancelled_and_is_not_cancelable_is_shown() {
    with_device(RIGHT, |_, driver, device, file| {
        let pending = file.begin(CODE, &[], 0);
        pending.cancel();
        device.sleep();
        device.wake();
        assert_eq!(heard(), ["control", "suspend", "stop", "D0 exit", "D0 entry", "resume", "restart"]);
        driver.run(|| complete(kept(), STATUS_CANCELLED));
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        remove(device, file);
    });
}

#[test]
fn without_the_callback_the_device_waits_for_the_completion() {
    with_device(Like { control: later, stop: None, ..RIGHT }, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(heard(), ["control", "suspend", "timer", "D0 exit"]);
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        device.wake();
        remove(device, file);
    });
}

#[test]
fn a_request_may_be_completed_after_the_callback_and_before_the_device_loses_power() {
    with_device(Like { stop: Some(|request, _| later(request)), ..RIGHT }, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(heard(), ["control", "suspend", "stop", "timer", "D0 exit"]);
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        device.wake();
        remove(device, file);
    });
}

/// While `EvtIoStop` runs the handle is one, whoever completes the request meanwhile.
#[test]
fn a_request_that_is_completed_while_it_is_shown_is_acknowledged_in_vain() {
    let stop = |request, _| {
        complete(request, STATUS_SUCCESS);
        acknowledge(request, 0);
    };
    with_device(Like { stop: Some(stop), ..RIGHT }, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        device.wake();
        remove(device, file);
    });
}

#[test]
fn a_queue_that_is_not_managed_goes_on_while_the_device_sleeps() {
    let like = Like { managed: _WDF_TRI_STATE::WdfFalse, ..RIGHT };
    with_device(like, |_, driver, device, file| {
        let first = file.begin(CODE, &[], 0);
        device.sleep();
        assert!(!is_held(driver));
        driver.run(|| complete(kept(), STATUS_SUCCESS));
        assert_eq!(first.wait().status, STATUS_SUCCESS);
        let second = file.begin(CODE, &[], 0);
        assert_eq!(heard(), ["control", "suspend", "D0 exit", "control"]);
        device.wake();
        driver.run(|| complete(kept(), STATUS_SUCCESS));
        assert_eq!(second.wait().status, STATUS_SUCCESS);
        remove(device, file);
    });
}

#[test]
fn the_queues_of_a_filter_are_not_managed_by_themselves() {
    for (managed, is_managed) in [(_WDF_TRI_STATE::WdfUseDefault, false), (_WDF_TRI_STATE::WdfTrue, true)] {
        with_stack(Like { managed, ..RIGHT }, true, |_, driver, device, file| {
            device.sleep();
            // The last queue that was made is the filter's.
            assert_eq!(is_held(driver), is_managed);
            device.wake();
            remove(device, file);
        });
    }
}

/// Begins a request, closes the file, and has the device go while the program waits for the request: how that ends, and what the driver has
/// heard.
fn gone(like: Like, sleeps: bool) -> (NTSTATUS, Vec<&'static str>) {
    let mut status = STATUS_SUCCESS;
    let kernel = Kernel::threads().start();
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = like;
    let driver = kernel.load("power", entry).expect("the driver loads");
    let device = driver.add_device().expect("the device starts");
    let file = kernel.open(&device.links()[0]).expect("the device opens");
    heard();
    let pending = file.begin(CODE, &[], 0);
    if sleeps {
        device.sleep();
    }
    drop(file);
    std::thread::scope(|scope| {
        scope.spawn(|| device.surprise_remove());
        status = pending.wait().status;
    });
    driver.unload();
    // Before the next test has a kernel.
    let calls = heard();
    drop(kernel);
    (status, calls)
}

#[test]
fn a_device_that_is_gone_lets_all_requests_go_before_the_flush() {
    let calls = ["control", "surprise", "suspend", "stop", "D0 exit", "release", "purge", "flush", "cleanup"];
    assert_eq!(gone(RIGHT, false), (STATUS_CANCELLED, calls.to_vec()));
    // It has lost its power already.
    let calls = ["control", "suspend", "stop", "D0 exit", "surprise", "release", "purge", "flush", "cleanup"];
    assert_eq!(gone(RIGHT, true), (STATUS_CANCELLED, calls.to_vec()));
}

#[test]
fn a_removal_cancels_what_can_be() {
    let calls = ["control", "surprise", "suspend", "stop", "D0 exit", "release", "cancel", "flush", "cleanup"];
    assert_eq!(gone(Like { control: keep_cancelable, ..RIGHT }, false), (STATUS_CANCELLED, calls.to_vec()));
}

#[test]
fn nothing_is_taken_from_a_manual_queue_while_the_device_sleeps() {
    with_device(Like { manual: true, ..RIGHT }, |_, driver, device, file| {
        let take = || {
            driver.run(|| {
                let mut request = ptr::null_mut();
                // SAFETY: the queue is live, and the place lives until the call returns.
                let status = unsafe {
                    call_unsafe_wdf_function_binding!(
                        WdfIoQueueRetrieveNextRequest,
                        QUEUE.load(SeqCst),
                        &raw mut request
                    )
                };
                (status, request)
            })
        };
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        assert_eq!(take().0, STATUS_WDF_PAUSED);
        device.wake();
        let (status, request) = take();
        assert_eq!(status, STATUS_SUCCESS);
        driver.run(|| complete(request, STATUS_SUCCESS));
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        remove(device, file);
    });
}

/// The driver starts its queue when it hears of the removal: nothing comes all the same.
#[test]
fn a_queue_whose_device_is_gone_is_not_started_again() {
    let start = |request, action| {
        stay(request, action);
        if action & PURGE == 0 {
            return;
        }
        // SAFETY: the queue is live.
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStart, QUEUE.load(SeqCst)) };
        note(if has_state(_WDF_IO_QUEUE_STATE::WdfIoQueueAcceptRequests) { "accepts" } else { "is shut" });
    };
    let (status, calls) = gone(Like { stop: Some(start), ..RIGHT }, true);
    assert_eq!(status, STATUS_CANCELLED);
    assert!(calls.ends_with(&["purge", "is shut", "flush", "cleanup"]), "{calls:?}");
}

/// The device sleeps with a request.
fn asleep(like: Like) {
    with_device(like, |_, _, device, file| {
        let pending = file.begin(CODE, &[], 0);
        device.sleep();
        device.wake();
        drop(pending.wait());
        remove(device, file);
    });
}

/// The driver completes a request that it has put back when it was shown it.
fn put_back_and_completed() {
    with_device(Like { stop: Some(|request, _| acknowledge(request, 1)), ..RIGHT }, |_, driver, device, file| {
        let _pending = file.begin(CODE, &[], 0);
        device.sleep();
        driver.run(|| complete(kept(), STATUS_SUCCESS));
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
    an_acknowledgement_of_what_is_not_stopped breaks RequestStop by
        asleep(Like { control: |request| acknowledge(request, 0), ..RIGHT });
    an_acknowledgement_after_the_device_is_awake breaks RequestStop by
        asleep(Like { resume: |request| acknowledge(request, 0), ..RIGHT });
    two_acknowledgements breaks RequestStop by
        asleep(Like { stop: Some(|request, _| { acknowledge(request, 0); acknowledge(request, 1); }), ..RIGHT });
    an_acknowledgement_outside_of_the_callback breaks RequestStop by asleep(Like {
        stop: Some(|request, _| later(request)),
        timer: |request| acknowledge(request, 0),
        ..RIGHT
    });
    a_cancelable_request_that_is_put_back breaks RequestCancelable by
        asleep(Like { control: keep_cancelable, stop: Some(|request, _| acknowledge(request, 1)), ..RIGHT });
    a_request_that_was_put_back_and_is_completed breaks RequestCancelable by put_back_and_completed();
}

#[test]
fn a_request_that_is_never_acknowledged_is_named() {
    let test = concat!(module_path!(), "::a_request_that_is_never_acknowledged_is_named");
    caught_saying(test, Rule::Deadlock, "after EvtIoStop: neither completed nor acknowledged", || {
        asleep(Like { stop: Some(|_, _| ()), ..RIGHT });
    });
}

#[test]
fn a_request_that_is_never_completed_and_has_no_callback_is_named() {
    let test = concat!(module_path!(), "::a_request_that_is_never_completed_and_has_no_callback_is_named");
    caught_saying(test, Rule::Deadlock, "without EvtIoStop: not completed", || asleep(Like { stop: None, ..RIGHT }));
}

fn stop_idle(device: WDFDEVICE, waits: u8) -> NTSTATUS {
    let none = ptr::null_mut();
    framework!(WdfDeviceStopIdleActual(device => WDFDEVICE, waits => u8, none => PVOID, 1 => i32, ptr::null() => *const i8) -> NTSTATUS)
}

fn resume_idle(device: WDFDEVICE) {
    let none = ptr::null_mut();
    framework!(WdfDeviceResumeIdleActual(device => WDFDEVICE, none => PVOID, 1 => i32, ptr::null() => *const i8));
}

/// The device of the queue that was made last.
fn device_of_queue() -> WDFDEVICE {
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, QUEUE.load(SeqCst)) }
}

#[test]
fn a_device_that_is_kept_awake_says_whether_it_is() {
    with_device(RIGHT, |_, driver, device, file| {
        driver.run(|| {
            let mine = device_of_queue();
            assert_eq!((stop_idle(mine, 0), stop_idle(mine, 1)), (STATUS_SUCCESS, STATUS_SUCCESS));
            resume_idle(mine);
            resume_idle(mine);
        });
        device.sleep();
        driver.run(|| {
            assert_eq!(stop_idle(device_of_queue(), 0), STATUS_PENDING);
            framework!(WdfDeviceResumeIdleNoTrack(device_of_queue() => WDFDEVICE));
        });
        device.wake();
        remove(device, file);
    });
    with_stack(RIGHT, true, |_, driver, device, file| {
        // That of the filter, which does not decide.
        driver.run(|| {
            let status = framework!(WdfDeviceStopIdleNoTrack(device_of_queue() => WDFDEVICE, 0 => u8) -> NTSTATUS);
            assert_eq!(status, STATUS_INVALID_DEVICE_STATE);
            resume_idle(device_of_queue());
        });
        remove(device, file);
    });
}

/// `WDF_DEVICE_POWER_POLICY_IDLE_SETTINGS`.
#[repr(C)]
struct Idle {
    size: u32,
    capabilities: i32,
    state: i32,
    timeout: u32,
    user_control: i32,
    enabled: i32,
    later: [i32; 3],
}

const IDLE: Idle =
    Idle { size: 36, capabilities: 1, state: 5, timeout: 0, user_control: 1, enabled: 1, later: [2, 0, 2] };

fn assign(settings: &Idle) -> NTSTATUS {
    let device = device_of_queue();
    framework!(WdfDeviceAssignS0IdleSettings(device => WDFDEVICE, ptr::from_ref(settings) => *const Idle) -> NTSTATUS)
}

#[test]
fn settings_for_an_idle_device_are_looked_at() {
    with_device(RIGHT, |_, driver, device, file| {
        driver.run(|| {
            assert_eq!(assign(&IDLE), STATUS_SUCCESS);
            assert_eq!(assign(&Idle { size: 28, ..IDLE }), STATUS_SUCCESS);
            assert_eq!(assign(&Idle { state: 1, ..IDLE }), STATUS_INVALID_PARAMETER);
            // The bus has no device that wakes itself.
            assert_eq!(assign(&Idle { capabilities: 2, ..IDLE }), STATUS_POWER_STATE_INVALID);
        });
        remove(device, file);
    });
}

/// Does something wrong as the driver of a device.
fn wrong(work: fn()) {
    with_device(RIGHT, |_, driver, device, file| {
        driver.run(work);
        remove(device, file);
    });
}

rules! {
    a_device_that_may_sleep_and_was_not_kept_awake breaks ReferenceUnderflow by wrong(|| resume_idle(device_of_queue()));
    settings_of_no_version breaks BadArgument by wrong(|| { assign(&Idle { size: 20, ..IDLE }); });
}
