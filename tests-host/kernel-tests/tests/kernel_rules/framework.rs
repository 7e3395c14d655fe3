//! The framework's timers, work items, collections and strings.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught, irql};
use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_IO_QUEUE_DISPATCH_TYPE, LARGE_INTEGER, NTSTATUS, PVOID, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_UNSUCCESSFUL, UNICODE_STRING, WDF_DPC_CONFIG, WDF_IO_QUEUE_CONFIG, WDF_OBJECT_ATTRIBUTES,
    WDF_OBJECT_CONTEXT_TYPE_INFO, WDF_TIMER_CONFIG, WDF_WORKITEM_CONFIG, WDFCOLLECTION, WDFDPC, WDFOBJECT, WDFQUEUE,
    WDFSTRING, WDFTIMER, WDFTIMER__, WDFWORKITEM, call_unsafe_wdf_function_binding, ntddk::KeDelayExecutionThread,
};

use crate::{
    lower, raise, rules,
    skeleton::{CODE, Loaded, Wrong, default_queue, manual_queue, run, run_in},
    small_driver::{attributes, size},
};

/// `STATUS_WDF_PARENT_NOT_SPECIFIED`.
const NO_PARENT: NTSTATUS = 0xC020_0212_u32.cast_signed();
/// `STATUS_WDF_NO_CALLBACK`.
const NO_CALLBACK: NTSTATUS = 0xC020_020B_u32.cast_signed();

/// How often a callback was called, and at which level the last time.
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static LEVEL: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn note() {
    CALLS.fetch_add(1, SeqCst);
    LEVEL.store(irql().into(), SeqCst);
}

/// How often a callback was called since the last time that this was asked, and at which level.
fn noted() -> (u32, u32) {
    (CALLS.swap(0, SeqCst), LEVEL.load(SeqCst))
}

fn sleep(milliseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -milliseconds * 10_000 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

/// Does `work` as the driver, when it has a device.
fn loads(work: fn(&Loaded)) {
    run(Wrong { load: work, ..Wrong::default() });
}

fn child_of(parent: WDFOBJECT) -> WDF_OBJECT_ATTRIBUTES {
    WDF_OBJECT_ATTRIBUTES { ParentObject: parent, ..attributes() }
}

fn delete<T>(object: *mut T) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, object.cast()) };
}

unsafe extern "C" fn expired(_: WDFTIMER) {
    note();
}

fn try_timer(parent: WDFOBJECT, period: u32) -> Result<WDFTIMER, NTSTATUS> {
    timer_with(expired, child_of(parent), period)
}

fn timer_with(
    callback: unsafe extern "C" fn(WDFTIMER),
    mut attributes: WDF_OBJECT_ATTRIBUTES,
    period: u32,
) -> Result<WDFTIMER, NTSTATUS> {
    let mut config = WDF_TIMER_CONFIG {
        Size: size::<WDF_TIMER_CONFIG>(),
        EvtTimerFunc: Some(callback),
        Period: period,
        ..WDF_TIMER_CONFIG::default()
    };
    let mut timer = ptr::null_mut();
    // SAFETY: the structures and the place live until the call returns.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfTimerCreate, &raw mut config, &raw mut attributes, &raw mut timer)
    };
    if status < 0 { Err(status) } else { Ok(timer) }
}

fn timer(period: u32) -> WDFTIMER {
    try_timer(default_queue().cast(), period).expect("a timer")
}

fn start(timer: WDFTIMER, milliseconds: i64) -> bool {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfTimerStart, timer, -milliseconds * 10_000) != 0 }
}

fn stop(timer: WDFTIMER, wait: bool) -> bool {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfTimerStop, timer, wait.into()) != 0 }
}

#[test]
fn a_timer_of_the_framework_calls_at_dispatch_level_until_it_is_stopped() {
    fn times(loaded: &Loaded) {
        noted();
        let once = timer(0);
        assert!(!start(once, 1) && start(once, 2), "the second finds it in the queue");
        sleep(10);
        assert_eq!(noted(), (1, 2));
        assert!(!stop(once, true), "it was called, and is in no queue");
        assert!(!start(once, 5) && stop(once, false));
        sleep(10);
        assert_eq!(noted().0, 0);

        let often = timer(1);
        start(often, 1);
        sleep(20);
        assert!(stop(often, true));
        assert!(noted().0 >= 3);
        sleep(5);
        assert_eq!(noted().0, 0);

        let queue = manual_queue();
        let of_queue = try_timer(queue.cast(), 0).expect("a timer");
        // SAFETY: the timer is live.
        let parent = unsafe { call_unsafe_wdf_function_binding!(WdfTimerGetParentObject, of_queue) };
        assert_eq!(parent, queue.cast());
        assert_eq!(try_timer(ptr::null_mut(), 0), Err(NO_PARENT));
        assert_eq!(try_timer(loaded.driver.cast(), 0), Err(STATUS_INVALID_DEVICE_REQUEST));
        // Deleted while it is set, by the driver and with the device.
        start(once, 1);
        delete(once);
        start(of_queue, 1_000);
    }
    let kernel = Kernel::seeded(1).preemption(0).start();
    let wrong = Wrong { load: times, ..Wrong::default() };
    run_in(&kernel, wrong, |_, file| assert!(file.control(CODE, &[1, 2, 3], 5).is_success()));
    assert_eq!(noted().0, 0);
}

/// The timer that two stop, whether its callback is kept from returning, and how many have stopped it.
static STOPPED: DuringRun<AtomicPtr<WDFTIMER__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static KEPT: DuringRun<AtomicBool> = DuringRun::new(AtomicBool::new(false));
static STOPS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn kept(_: WDFTIMER) {
    note();
    while KEPT.load(SeqCst) {
        sleep(1);
    }
}

/// Stops the timer, and starts it again if somebody else stops it still: that does nothing, and the other one hears of it.
fn stop_and_start(_: WDFWORKITEM) {
    let timer = STOPPED.load(SeqCst);
    let was_queued = stop(timer, true);
    let is_first = STOPS.fetch_add(1, SeqCst) == 0;
    assert_eq!(was_queued, !is_first);
    if is_first {
        assert!(!start(timer, 1));
    }
}

#[test]
fn a_timer_that_two_stop_does_not_start_until_the_last_has_returned() {
    loads(|_| {
        noted();
        let attributes = WDF_OBJECT_ATTRIBUTES {
            ExecutionLevel: _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive,
            ..child_of(default_queue().cast())
        };
        let timer = timer_with(kept, attributes, 0).expect("a timer");
        STOPPED.store(timer, SeqCst);
        KEPT.store(true, SeqCst);
        start(timer, 1);
        sleep(5);
        let items = [item(), item()];
        for item in items {
            then(stop_and_start);
            enqueue(item);
            sleep(1);
        }
        KEPT.store(false, SeqCst);
        items.into_iter().for_each(flush);
        assert_eq!(STOPS.load(SeqCst), 2);
        sleep(10);
        assert_eq!(noted(), (3, 0), "the two, and the timer once");
    });
}

type Work = fn(WDFWORKITEM);

/// What the next call of a work item does.
static NEXT: DuringRun<Mutex<Option<Work>>> = DuringRun::new(Mutex::new(None));

unsafe extern "C" fn work(item: WDFWORKITEM) {
    note();
    let next = NEXT.lock().unwrap_or_else(PoisonError::into_inner).take();
    next.map_or_else(|| sleep(1), |next| next(item));
}

/// Has the next call of a work item do this.
fn then(next: fn(WDFWORKITEM)) {
    *NEXT.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
}

fn try_item(parent: WDFOBJECT) -> Result<WDFWORKITEM, NTSTATUS> {
    let mut config = WDF_WORKITEM_CONFIG {
        Size: size::<WDF_WORKITEM_CONFIG>(),
        EvtWorkItemFunc: Some(work),
        ..WDF_WORKITEM_CONFIG::default()
    };
    let (mut attributes, mut item) = (child_of(parent), ptr::null_mut());
    // SAFETY: the structures and the place live until the call returns.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfWorkItemCreate, &raw mut config, &raw mut attributes, &raw mut item)
    };
    if status < 0 { Err(status) } else { Ok(item) }
}

fn item() -> WDFWORKITEM {
    try_item(default_queue().cast()).expect("a work item")
}

fn enqueue(item: WDFWORKITEM) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfWorkItemEnqueue, item) };
}

fn flush(item: WDFWORKITEM) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfWorkItemFlush, item) };
}

#[test]
fn a_work_item_of_the_framework_calls_once_at_passive_level_for_each_time_in_the_queue() {
    loads(|loaded| {
        noted();
        let one = item();
        flush(one);
        let before = raise(2);
        enqueue(one);
        enqueue(one);
        lower(before);
        flush(one);
        assert_eq!(noted(), (1, 0));
        // SAFETY: the work item is live.
        let parent = unsafe { call_unsafe_wdf_function_binding!(WdfWorkItemGetParentObject, one) };
        assert_eq!(parent, default_queue().cast());
        then(enqueue);
        enqueue(one);
        flush(one);
        assert_eq!(noted(), (2, 0), "it may queue itself again");
        enqueue(one);
        delete(one);
        assert_eq!(noted(), (1, 0), "the deletion waits");
        let two = item();
        then(delete);
        enqueue(two);
        sleep(5);
        assert_eq!(noted(), (1, 0), "it may delete itself");
        assert_eq!(try_item(ptr::null_mut()), Err(NO_PARENT));
        assert_eq!(try_item(loaded.driver.cast()), Err(STATUS_INVALID_DEVICE_REQUEST));
        // Deleted with the device.
        enqueue(item());
    });
}

fn collection() -> WDFCOLLECTION {
    let mut collection = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    let status =
        unsafe { call_unsafe_wdf_function_binding!(WdfCollectionCreate, ptr::null_mut(), &raw mut collection) };
    assert_eq!(status, 0);
    collection
}

fn add(collection: WDFCOLLECTION, object: WDFOBJECT) {
    // SAFETY: the test's scenario, right or wrong.
    assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfCollectionAdd, collection, object) }, 0);
}

fn count(collection: WDFCOLLECTION) -> u32 {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfCollectionGetCount, collection) }
}

fn member(collection: WDFCOLLECTION, index: u32) -> WDFOBJECT {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfCollectionGetItem, collection, index) }
}

unsafe extern "C" fn destroyed(_: WDFOBJECT) {
    note();
}

/// What a driver says of a context.
struct ContextType(WDF_OBJECT_CONTEXT_TYPE_INFO);

// SAFETY: nobody changes it.
unsafe impl Sync for ContextType {}

const _: () = assert!(size_of::<WDF_OBJECT_CONTEXT_TYPE_INFO>() == 40);

static CONTEXT: ContextType = ContextType(WDF_OBJECT_CONTEXT_TYPE_INFO {
    Size: 40,
    ContextName: ptr::null_mut(),
    ContextSize: 8,
    UniqueType: &raw const CONTEXT.0,
    EvtDriverGetUniqueContextType: None,
});

/// An object with a context, which notes its destruction.
fn object() -> WDFOBJECT {
    let mut attributes = WDF_OBJECT_ATTRIBUTES {
        EvtDestroyCallback: Some(destroyed),
        ContextTypeInfo: &raw const CONTEXT.0,
        ..attributes()
    };
    let mut object = ptr::null_mut();
    // SAFETY: the structures live until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfObjectCreate, &raw mut attributes, &raw mut object) };
    assert_eq!(status, 0);
    object
}

fn of_context(context: PVOID) -> WDFOBJECT {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectContextGetObject, context) }
}

#[test]
fn a_collection_keeps_its_members_and_a_context_leads_to_its_object() {
    loads(|_| {
        noted();
        let (all, one, two) = (collection(), object(), object());
        add(all, one);
        add(all, two);
        add(all, one);
        assert_eq!(count(all), 3);
        assert_eq!([0, 1, 2, 3].map(|index| member(all, index)), [one, two, one, ptr::null_mut()]);
        delete(one);
        assert_eq!(noted().0, 0, "the collection refers to it");
        delete(all);
        assert_eq!(noted().0, 1);
        // SAFETY: the object is live, and has such a context.
        let context =
            unsafe { call_unsafe_wdf_function_binding!(WdfObjectGetTypedContextWorker, two, &raw const CONTEXT.0) };
        assert_eq!(of_context(context), two);
        delete(two);
        assert_eq!(noted().0, 1);
    });
}

fn string(text: &[u16]) -> WDFSTRING {
    let bytes = u16::try_from(size_of_val(text)).expect("a short text");
    let text = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_ptr().cast_mut() };
    let mut string = ptr::null_mut();
    // SAFETY: the structures live until the call returns.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfStringCreate, &raw const text, ptr::null_mut(), &raw mut string)
    };
    assert_eq!(status, 0);
    string
}

fn text_of(string: WDFSTRING) -> UNICODE_STRING {
    let mut text = UNICODE_STRING::default();
    // SAFETY: the place lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfStringGetUnicodeString, string, &raw mut text) };
    text
}

#[test]
fn a_string_of_the_framework_is_a_copy() {
    loads(|_| {
        let mut units = [0x61, 0x62, 0x63];
        let copy = string(&units);
        units[0] = 0x7A;
        std::hint::black_box(&units);
        let text = text_of(copy);
        assert_eq!(text.Length, 6);
        // SAFETY: the string has three units, and lives.
        assert_eq!(unsafe { std::slice::from_raw_parts(text.Buffer, 3) }, [0x61, 0x62, 0x63]);
        delete(copy);
        let empty = string(&[]);
        assert_eq!((text_of(empty).Length, text_of(empty).Buffer), (0, ptr::null_mut()));
        delete(empty);
    });
}

unsafe extern "C" fn called(_: WDFDPC) {
    note();
}

fn dpc() -> WDFDPC {
    let mut config =
        WDF_DPC_CONFIG { Size: size::<WDF_DPC_CONFIG>(), EvtDpcFunc: Some(called), ..WDF_DPC_CONFIG::default() };
    let (mut attributes, mut dpc) = (child_of(default_queue().cast()), ptr::null_mut());
    // SAFETY: the structures and the place live until the call returns.
    let status =
        unsafe { call_unsafe_wdf_function_binding!(WdfDpcCreate, &raw mut config, &raw mut attributes, &raw mut dpc) };
    assert_eq!(status, 0);
    dpc
}

fn queue(dpc: WDFDPC) -> bool {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfDpcEnqueue, dpc) != 0 }
}

fn cancel(dpc: WDFDPC, wait: bool) -> bool {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfDpcCancel, dpc, wait.into()) != 0 }
}

#[test]
fn a_dpc_of_the_framework_calls_once_at_dispatch_level_for_each_time_in_the_queue() {
    loads(|_| {
        noted();
        let dpc = dpc();
        let before = raise(2);
        assert!(queue(dpc) && !queue(dpc), "once in the queue");
        assert!(cancel(dpc, false) && queue(dpc));
        lower(before);
        sleep(1);
        assert!(!cancel(dpc, true), "it was called");
        assert_eq!(noted(), (1, 2));
        delete(dpc);
    });
}

fn purge(queue: WDFQUEUE) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueuePurgeSynchronously, queue) };
}

#[test]
fn a_device_has_its_default_queue_and_a_queue_without_requests_is_purged_at_once() {
    loads(|_| {
        let queue = default_queue();
        // SAFETY: the queue is live.
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
        // SAFETY: the device is live.
        assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceGetDefaultQueue, device) }, queue);
        purge(manual_queue());
    });
}

#[test]
fn a_purge_that_waits_for_the_request_of_its_caller() {
    let test = concat!(module_path!(), "::a_purge_that_waits_for_the_request_of_its_caller");
    caught(test, Rule::Deadlock, || run(Wrong { control: |_, _| purge(default_queue()), ..Wrong::default() }));
}

#[test]
fn a_purge_of_another_queue_that_waits_in_a_request_handler() {
    let test = concat!(module_path!(), "::a_purge_of_another_queue_that_waits_in_a_request_handler");
    caught(test, Rule::Deadlock, || run(Wrong { control: |_, _| purge(manual_queue()), ..Wrong::default() }));
}

#[test]
fn a_driver_deletes_a_queue_of_its_own_and_a_device_has_one_default_queue() {
    loads(|_| {
        delete(manual_queue());
        // SAFETY: the queue is live.
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, default_queue()) };
        let create = |dispatch| {
            let mut config = WDF_IO_QUEUE_CONFIG {
                Size: size::<WDF_IO_QUEUE_CONFIG>(),
                DispatchType: dispatch,
                DefaultQueue: 1,
                ..WDF_IO_QUEUE_CONFIG::default()
            };
            let (nobody, nowhere) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the device is live, and the structure lives until the call returns.
            unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, nobody, nowhere) }
        };
        assert_eq!(create(_WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential), NO_CALLBACK);
        assert_eq!(create(_WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchManual), STATUS_UNSUCCESSFUL);
    });
}

#[test]
fn a_dpc_is_cancelled_at_any_level() {
    loads(|_| {
        let dpc = dpc();
        let before = raise(12);
        assert!(!cancel(dpc, false));
        lower(before);
        delete(dpc);
    });
}

rules! {
    a_default_queue_that_its_driver_deletes breaks BadHandle by |_| delete(default_queue());
    a_key_closed_that_is_none breaks BadHandle by |loaded| {
        // SAFETY: as wrong as the test wants it.
        unsafe { call_unsafe_wdf_function_binding!(WdfRegistryClose, loaded.driver.cast()) };
    };
    a_text_of_a_string_at_dispatch_level breaks PagedAtDispatch by |_| {
        let text = text_of(string(&[0x61; 8]));
        raise(2);
        // SAFETY: the string has as many units, and lives.
        assert_eq!(unsafe { text.Buffer.read_volatile() }, 0x61);
    };
    a_dpc_used_after_its_deletion breaks BadHandle by |_| { let dpc = dpc(); delete(dpc); queue(dpc); };
    a_dpc_that_is_something_else breaks BadHandle by |loaded| { queue(loaded.driver.cast()); };
    a_cancellation_of_a_dpc_that_waits_at_dispatch_level breaks IrqlTooHigh by
        |_| { let dpc = dpc(); raise(2); cancel(dpc, true); };
    a_timer_used_after_its_deletion breaks BadHandle by |_| { let timer = timer(0); delete(timer); start(timer, 1); };
    a_timer_that_is_something_else breaks BadHandle by |loaded| { start(loaded.driver.cast(), 1); };
    a_stop_of_a_timer_that_waits_at_dispatch_level breaks IrqlTooHigh by
        |_| { let timer = timer(0); raise(2); stop(timer, true); };
    a_timer_started_above_dispatch_level breaks IrqlTooHigh by |_| { let timer = timer(0); raise(3); start(timer, 1); };
    a_work_item_used_after_its_deletion breaks BadHandle by |_| { let item = item(); delete(item); enqueue(item); };
    a_work_item_that_waits_for_itself breaks Deadlock by |_| {
        let item = item();
        then(flush);
        enqueue(item);
        flush(item);
    };
    a_flush_of_a_work_item_at_dispatch_level breaks IrqlTooHigh by |_| { let item = item(); raise(2); flush(item); };
    a_collection_used_after_its_deletion breaks BadHandle by |_| { let all = collection(); delete(all); count(all); };
    an_object_added_after_its_deletion breaks BadHandle by
        |_| { let (all, one) = (collection(), object()); delete(one); add(all, one); };
    a_collection_that_is_something_else breaks BadHandle by |loaded| { count(loaded.driver.cast()); };
    a_text_written_after_its_string_is_deleted breaks UseAfterFree by |_| {
        let string = string(&[0x61; 8]);
        let text = text_of(string);
        delete(string);
        // SAFETY: as wrong as the test wants it.
        unsafe { text.Buffer.write(0x7A) };
    };
    a_string_that_is_something_else breaks BadHandle by |loaded| { text_of(loaded.driver.cast()); };
    a_string_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); string(&[]); };
    a_context_that_is_none breaks BadHandle by |_| { of_context(crate::keep(crate::allocate(8))); };
}
