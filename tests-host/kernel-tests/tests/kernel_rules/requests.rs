//! Requests that can be cancelled, that move to another queue, and queues that are stopped, drained and purged: as documented
//! for those who keep the rules, and caught for those who do not.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed},
};

use simulated_kernel::{Driver, DuringRun, File, Pending, Rule, caught};
use wdk_sys::{
    NTSTATUS, STATUS_CANCELLED, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
    STATUS_NO_MORE_ENTRIES, STATUS_OBJECT_NAME_COLLISION, STATUS_SUCCESS, WDFQUEUE, WDFQUEUE__, WDFREQUEST,
    WDFREQUEST__, call_unsafe_wdf_function_binding,
};

use crate::{
    sent::framework,
    skeleton::{CODE, Loaded, Wrong, complete, create_device, default_queue, delete_device, manual_queue, run_with},
};

/// Statuses of the framework: the queue takes no requests; it hands none out.
const STATUS_WDF_BUSY: NTSTATUS = 0xC020_0204_u32.cast_signed();
const STATUS_WDF_PAUSED: NTSTATUS = 0xC020_0203_u32.cast_signed();

/// The request that the driver has, and its manual queue.
static REQUEST: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static QUEUE: DuringRun<AtomicPtr<WDFQUEUE__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// Requests that were delivered.
static DELIVERED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn begin(file: &File) -> Pending {
    file.begin(CODE, &[1, 2, 3], 5)
}

/// Keeps the request.
fn keep(request: WDFREQUEST, _: usize) {
    REQUEST.store(request, Relaxed);
    DELIVERED.fetch_add(1, Relaxed);
}

fn kept() -> WDFREQUEST {
    REQUEST.load(Relaxed)
}

fn queue() -> WDFQUEUE {
    QUEUE.load(Relaxed)
}

fn make_queue(_: &Loaded) {
    QUEUE.store(manual_queue(), Relaxed);
}

unsafe extern "C" fn cancel(request: WDFREQUEST) {
    complete(request, STATUS_CANCELLED, 0);
}

fn mark(request: WDFREQUEST) -> NTSTATUS {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelableEx, request, Some(cancel)) }
}

fn unmark(request: WDFREQUEST) -> NTSTATUS {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestUnmarkCancelable, request) }
}

fn forward(request: WDFREQUEST, to: WDFQUEUE) -> NTSTATUS {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestForwardToIoQueue, request, to) }
}

fn put_back(request: WDFREQUEST) -> NTSTATUS {
    framework!(WdfRequestRequeue(request => WDFREQUEST) -> NTSTATUS)
}

fn next() -> Result<WDFREQUEST, NTSTATUS> {
    let mut request = ptr::null_mut();
    // SAFETY: the queue is live, and the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueRetrieveNextRequest, queue(), &raw mut request) };
    if status < 0 { Err(status) } else { Ok(request) }
}

fn purge(queue: WDFQUEUE) {
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueuePurge, queue, None, ptr::null_mut()) };
}

fn start(queue: WDFQUEUE) {
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStart, queue) };
}

/// Makes every request cancelable and keeps it.
fn mark_and_keep(request: WDFREQUEST, output: usize) {
    keep(request, output);
    assert_eq!(mark(request), STATUS_SUCCESS);
}

/// Moves every request to the manual queue.
fn move_on(request: WDFREQUEST, _: usize) {
    DELIVERED.fetch_add(1, Relaxed);
    assert_eq!(forward(request, queue()), STATUS_SUCCESS);
}

fn with(control: fn(WDFREQUEST, usize), work: impl FnOnce(&Driver, &File)) {
    run_with(Wrong { load: make_queue, control, ..Wrong::default() }, |driver, file| {
        DELIVERED.store(0, Relaxed);
        work(driver, file);
    });
}

#[test]
fn a_cancelable_request_is_cancelled_or_completed() {
    with(mark_and_keep, |driver, file| {
        let pending = begin(file);
        assert!(!pending.is_complete());
        pending.cancel();
        assert_eq!(pending.wait().status, STATUS_CANCELLED);

        let pending = begin(file);
        driver.run(|| {
            assert_eq!(mark(kept()), STATUS_INVALID_DEVICE_REQUEST, "it is cancelable already");
            assert_eq!(unmark(kept()), STATUS_SUCCESS);
            assert_eq!(unmark(kept()), STATUS_INVALID_PARAMETER, "it is not cancelable any more");
        });
        pending.cancel();
        assert!(!pending.is_complete(), "its cancellation is only noted");
        driver.run(|| {
            assert_eq!(mark(kept()), STATUS_CANCELLED);
            complete(kept(), STATUS_CANCELLED, 0);
        });
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

/// As in the framework's published source: the name goes with the deletion, and the link of `WdfDeviceCreateSymbolicLink` with the
/// device, which is served until its last file is closed.
#[test]
fn a_control_device_with_an_open_file_loses_its_name_at_once_and_its_link_at_the_end() {
    run_with(Wrong::default(), |driver, file| {
        for _ in 0..2 {
            driver.run(|| {
                delete_device();
                assert_eq!(
                    create_device(),
                    STATUS_OBJECT_NAME_COLLISION,
                    "the device of that name could be made, the link not"
                );
            });
            assert!(file.control(CODE, &[1, 2, 3], 5).is_success(), "who has it open is served");
        }
    });
}

#[test]
fn a_request_in_a_queue_is_cancelled_without_the_driver() {
    with(move_on, |driver, file| {
        let (first, second) = (begin(file), begin(file));
        assert_eq!(DELIVERED.load(Relaxed), 2, "what has moved on does not hold up the next one");
        first.cancel();
        assert_eq!(first.wait().status, STATUS_CANCELLED);
        driver.run(|| {
            complete(next().expect("the second one"), STATUS_SUCCESS, 5);
            assert_eq!(next(), Err(STATUS_NO_MORE_ENTRIES));
        });
        assert_eq!(second.wait().status, STATUS_SUCCESS);
    });
}

#[test]
fn a_request_that_is_put_back_is_the_first_in_its_queue() {
    with(move_on, |driver, file| {
        let (first, second) = (begin(file), begin(file));
        driver.run(|| {
            let request = next().expect("the first one");
            assert_eq!(put_back(request), STATUS_SUCCESS);
            assert_eq!(next(), Ok(request));
            complete(request, STATUS_SUCCESS, 5);
            keep(next().expect("the second one"), 0);
        });
        assert!(first.wait().is_success());
        second.cancel();
        assert!(!second.is_complete(), "its cancellation is only noted");
        driver.run(|| assert_eq!(put_back(kept()), STATUS_SUCCESS));
        assert_eq!(second.wait().status, STATUS_CANCELLED, "in the queue it is nobody's");
    });
    with(keep, |driver, file| {
        let pending = begin(file);
        driver.run(|| {
            assert_eq!(put_back(kept()), STATUS_INVALID_DEVICE_REQUEST, "its queue hands out by itself");
            complete(kept(), STATUS_SUCCESS, 0);
        });
        assert!(pending.wait().is_success());
    });
}

#[test]
fn a_queue_that_takes_nothing_refuses_what_is_forwarded() {
    with(keep, |driver, file| {
        let pending = begin(file);
        driver.run(|| {
            assert_eq!(forward(kept(), default_queue()), STATUS_INVALID_DEVICE_REQUEST, "it comes from there");
            purge(queue());
            assert_eq!(forward(kept(), queue()), STATUS_WDF_BUSY);
            // The driver has it still.
            complete(kept(), STATUS_SUCCESS, 0);
        });
        assert!(pending.wait().is_success());
    });
}

#[test]
fn a_stopped_queue_takes_requests_and_gives_none() {
    with(keep, |driver, file| {
        let pending = begin(file);
        driver.run(|| {
            purge(queue());
            // SAFETY: the queue is live.
            unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStop, queue(), None, ptr::null_mut()) };
            assert_eq!(forward(kept(), queue()), STATUS_SUCCESS, "it takes what comes again");
            assert_eq!(next(), Err(STATUS_WDF_PAUSED));
            start(queue());
            complete(next().expect("what was forwarded"), STATUS_SUCCESS, 0);
        });
        assert!(pending.wait().is_success());
    });
}

#[test]
fn a_purged_queue_ends_what_waits_and_refuses_what_comes() {
    with(keep, |driver, file| {
        let (first, second) = (begin(file), begin(file));
        driver.run(|| purge(default_queue()));
        assert_eq!(second.wait().status, STATUS_CANCELLED);
        assert_eq!(begin(file).wait().status, STATUS_INVALID_DEVICE_STATE);
        driver.run(|| {
            complete(kept(), STATUS_SUCCESS, 0);
            start(default_queue());
        });
        assert!(first.wait().is_success());
        let third = begin(file);
        driver.run(|| complete(kept(), STATUS_SUCCESS, 0));
        assert!(third.wait().is_success());
    });
}

#[test]
fn a_drained_queue_delivers_what_waits_and_refuses_what_comes() {
    with(keep, |driver, file| {
        let waiting = [begin(file), begin(file)];
        // SAFETY: the queue is live.
        driver.run(|| unsafe {
            call_unsafe_wdf_function_binding!(WdfIoQueueDrain, default_queue(), None, ptr::null_mut());
        });
        assert_eq!(begin(file).wait().status, STATUS_INVALID_DEVICE_STATE);
        for pending in waiting {
            driver.run(|| complete(kept(), STATUS_SUCCESS, 0));
            assert!(pending.wait().is_success());
        }
    });
}

#[test]
fn a_stopped_queue_keeps_what_comes_until_it_is_started() {
    with(keep, |driver, file| {
        // SAFETY: the queue is live.
        driver.run(|| unsafe {
            call_unsafe_wdf_function_binding!(WdfIoQueueStop, default_queue(), None, ptr::null_mut());
        });
        let pending = begin(file);
        assert_eq!(DELIVERED.load(Relaxed), 0);
        driver.run(|| {
            start(default_queue());
            assert_eq!(DELIVERED.load(Relaxed), 1);
            complete(kept(), STATUS_SUCCESS, 0);
        });
        assert!(pending.wait().is_success());
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $control:ident and $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || with($control, $work));
            }
        )+
    };
}

wrong! {
    a_completion_of_a_cancelable_request breaks RequestCancelable by mark_and_keep and complete_cancelable;
    a_completion_before_the_cancel_routine breaks RequestCancelable by move_on and complete_before_routine;
    an_unmark_after_the_cancel_routine_has_completed breaks RequestCompletedTwice by mark_and_keep and unmark_too_late;
    a_cancelable_request_that_is_forwarded breaks RequestCancelable by mark_and_keep and forward_cancelable;
    a_use_of_a_request_that_was_forwarded breaks RequestCancelable by move_and_keep and |_, file| drop(begin(file));
    a_cancelable_request_that_is_put_back breaks RequestCancelable by mark_and_keep and put_back_cancelable;
    a_use_of_a_request_that_was_put_back breaks RequestCancelable by move_on and use_after_it_was_put_back;
    a_request_left_in_a_manual_queue breaks RequestNeverCompleted by move_on and |_, file| drop(begin(file).wait());
}

fn complete_cancelable(driver: &Driver, file: &File) {
    let _pending = begin(file);
    driver.run(|| complete(kept(), STATUS_SUCCESS, 0));
}

/// Two requests are cancelled together. In the routine for one of them the driver learns that the other one is cancelled, and
/// completes it, though its own routine is still to come.
fn complete_before_routine(driver: &Driver, file: &File) {
    static BOTH: DuringRun<[AtomicPtr<WDFREQUEST__>; 2]> =
        DuringRun::new([const { AtomicPtr::new(ptr::null_mut()) }; 2]);

    unsafe extern "C" fn complete_the_other(request: WDFREQUEST) {
        for other in BOTH.iter().map(|other| other.load(Relaxed)).filter(|&other| other != request) {
            assert_eq!(unmark(other), STATUS_CANCELLED);
            complete(other, STATUS_CANCELLED, 0);
        }
    }

    let _pending = [begin(file), begin(file)];
    driver.run(|| {
        for place in BOTH.iter() {
            let request = next().expect("two were sent");
            place.store(request, Relaxed);
            // SAFETY: the driver has the request.
            let marked = unsafe {
                call_unsafe_wdf_function_binding!(WdfRequestMarkCancelableEx, request, Some(complete_the_other))
            };
            assert_eq!(marked, STATUS_SUCCESS);
        }
        purge(queue());
    });
}

fn unmark_too_late(driver: &Driver, file: &File) {
    begin(file).cancel();
    driver.run(|| unmark(kept()));
}

fn forward_cancelable(driver: &Driver, file: &File) {
    let _pending = begin(file);
    driver.run(|| forward(kept(), queue()));
}

fn put_back_cancelable(driver: &Driver, file: &File) {
    let _pending = begin(file);
    driver.run(|| put_back(kept()));
}

fn use_after_it_was_put_back(driver: &Driver, file: &File) {
    let _pending = begin(file);
    driver.run(|| {
        let request = next().expect("one was sent");
        put_back(request);
        complete(request, STATUS_SUCCESS, 0);
    });
}

fn move_and_keep(request: WDFREQUEST, output: usize) {
    move_on(request, output);
    complete(request, STATUS_SUCCESS, 0);
}

/// A cancellation and a completion at the same time, on two threads: whoever comes first, the request is completed once.
#[test]
fn a_cancellation_and_a_completion_that_race_complete_once() {
    use simulated_kernel::Kernel;
    use wdk_sys::ntddk::{KeAcquireSpinLockRaiseToDpc, KeInitializeSpinLock, KeReleaseSpinLock};

    /// The driver's lock, and whether the cancel routine has come: what must not be asked for any more then.
    static LOCK: DuringRun<AtomicPtr<u64>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
    static GONE: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

    fn locked<R>(work: impl FnOnce() -> R) -> R {
        let lock = LOCK.load(Relaxed);
        // SAFETY: the lock is initialised.
        let before = unsafe { KeAcquireSpinLockRaiseToDpc(lock) };
        let result = work();
        // SAFETY: the lock is held.
        unsafe { KeReleaseSpinLock(lock, before) };
        result
    }

    unsafe extern "C" fn cancelled(request: WDFREQUEST) {
        locked(|| GONE.store(1, Relaxed));
        complete(request, STATUS_CANCELLED, 0);
    }

    fn hold(request: WDFREQUEST, output: usize) {
        GONE.store(0, Relaxed);
        keep(request, output);
        // SAFETY: the driver has the request.
        let marked = unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelableEx, request, Some(cancelled)) };
        assert_eq!(marked, STATUS_SUCCESS);
    }

    let load = |_: &Loaded| {
        let lock = crate::skeleton::keep(crate::skeleton::allocate(8)).cast::<u64>();
        // SAFETY: a new block.
        unsafe { KeInitializeSpinLock(lock) };
        LOCK.store(lock, Relaxed);
    };
    let wrong = Wrong { load, control: hold, ..Wrong::default() };
    crate::skeleton::run_on(Kernel::threads(), wrong, |driver, file| {
        let mut outcomes = [0, 0];
        for _ in 0..300 {
            let pending = begin(file);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    driver.run(|| {
                        let mine = locked(|| GONE.load(Relaxed) == 0 && unmark(kept()) == STATUS_SUCCESS);
                        if mine {
                            complete(kept(), STATUS_SUCCESS, 0);
                        }
                    });
                });
                pending.cancel();
            });
            match pending.wait().status {
                STATUS_SUCCESS => outcomes[0] += 1,
                STATUS_CANCELLED => outcomes[1] += 1,
                other => panic!("{other:#x}"),
            }
        }
        assert_eq!(outcomes[0] + outcomes[1], 300, "{outcomes:?}");
    });
}
