//! Device queues, and requests that a driver starts one at a time by its `StartIo` routine.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, IoFile, Kernel, Rule, caught};
use wdk_sys::{
    DEVICE_OBJECT, IRP, KDEVICE_QUEUE, KDEVICE_QUEUE_ENTRY, NTSTATUS, PDEVICE_OBJECT, PDRIVER_CANCEL, PIRP,
    POOL_FLAG_NON_PAGED, PULONG, STATUS_CANCELLED, STATUS_PENDING,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, KeLowerIrql, KfRaiseIrql},
};

use crate::{
    asked::{call, tests},
    driver::{self, CODE, Parts, complete, run},
};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn KeInitializeDeviceQueue(queue: *mut KDEVICE_QUEUE);
    fn KeInsertDeviceQueue(queue: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY) -> u8;
    fn KeInsertByKeyDeviceQueue(queue: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY, key: u32) -> u8;
    fn KeRemoveDeviceQueue(queue: *mut KDEVICE_QUEUE) -> *mut KDEVICE_QUEUE_ENTRY;
    fn KeRemoveByKeyDeviceQueue(queue: *mut KDEVICE_QUEUE, key: u32) -> *mut KDEVICE_QUEUE_ENTRY;
    fn KeRemoveByKeyDeviceQueueIfBusy(queue: *mut KDEVICE_QUEUE, key: u32) -> *mut KDEVICE_QUEUE_ENTRY;
    fn KeRemoveEntryDeviceQueue(queue: *mut KDEVICE_QUEUE, entry: *mut KDEVICE_QUEUE_ENTRY) -> u8;
    fn IoStartPacket(device: PDEVICE_OBJECT, irp: PIRP, key: PULONG, cancel: PDRIVER_CANCEL);
    fn IoStartNextPacket(device: PDEVICE_OBJECT, cancelable: u8);
    fn IoStartNextPacketByKey(device: PDEVICE_OBJECT, cancelable: u8, key: u32);
    fn IoSetStartIoAttributes(device: PDEVICE_OBJECT, deferred: u8, not_cancelable: u8);
}

const TAG: u32 = u32::from_ne_bytes(*b"Queu");
/// Room for a queue, three entries behind it, and nothing more.
const BYTES: u64 = 256;
const _: () = assert!(size_of::<KDEVICE_QUEUE>() + 3 * size_of::<KDEVICE_QUEUE_ENTRY>() <= 256);

/// A queue of the driver's in a block of its own, at `DISPATCH_LEVEL` until `end`.
struct Queue {
    place: *mut KDEVICE_QUEUE,
}

impl Queue {
    fn new() -> Self {
        let place: *mut KDEVICE_QUEUE = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES, TAG)).cast();
        call!(KeInitializeDeviceQueue(place));
        call!(KfRaiseIrql(2));
        Self { place }
    }

    fn entry(&self, number: usize) -> *mut KDEVICE_QUEUE_ENTRY {
        self.place.wrapping_add(1).cast::<KDEVICE_QUEUE_ENTRY>().wrapping_add(number)
    }

    fn insert(&self, number: usize) -> bool {
        call!(KeInsertDeviceQueue(self.place, self.entry(number))) != 0
    }

    fn insert_by(&self, number: usize, key: u32) -> bool {
        call!(KeInsertByKeyDeviceQueue(self.place, self.entry(number), key)) != 0
    }

    /// The number of the entry that comes next. `None` if none waits.
    fn next(&self) -> Option<usize> {
        self.number(call!(KeRemoveDeviceQueue(self.place)))
    }

    fn number(&self, entry: *mut KDEVICE_QUEUE_ENTRY) -> Option<usize> {
        (0..3).find(|&number| self.entry(number) == entry)
    }

    fn end(self) {
        call!(KeLowerIrql(0));
        call!(ExFreePoolWithTag(self.place.cast(), TAG));
    }
}

tests! {
    entries_wait_while_the_queue_is_busy by {
        let queue = Queue::new();
        // SAFETY: the driver's queue. Only an address is taken.
        let head = unsafe { &raw mut (*queue.place).DeviceListHead };
        // SAFETY: the list in it.
        let links = unsafe { [(*head).Flink, (*head).Blink] };
        assert_eq!(links, [head; 2], "an empty list");
        assert!(!queue.insert(0), "the queue is not busy: the entry is the driver's");
        assert!(queue.insert(1) && queue.insert(2));
        // SAFETY: the driver's entries.
        let inserted = [0, 1].map(|number| unsafe { (*queue.entry(number)).Inserted });
        assert_eq!(inserted, [0, 1]);
        assert_eq!([queue.next(), queue.next(), queue.next()], [Some(1), Some(2), None]);
        assert!(!queue.insert(0), "not busy any more");
        assert_eq!(queue.next(), None);
        queue.end();
    }
    entries_wait_in_the_order_of_their_keys by {
        let queue = Queue::new();
        assert!(!queue.insert_by(0, 9));
        assert!(queue.insert_by(0, 5) && queue.insert_by(1, 3) && queue.insert_by(2, 5));
        let by_key = |key| queue.number(call!(KeRemoveByKeyDeviceQueue(queue.place, key)));
        assert_eq!(by_key(4), Some(0), "the first of those with the key, or more");
        assert_eq!(by_key(6), Some(1), "none has as much: the first of all");
        assert_eq!(queue.number(call!(KeRemoveByKeyDeviceQueueIfBusy(queue.place, 0))), Some(2));
        assert_eq!(by_key(0), None);
        assert!(call!(KeRemoveByKeyDeviceQueueIfBusy(queue.place, 0)).is_null(), "not busy");
        queue.end();
    }
    an_entry_is_taken_out_of_the_middle by {
        let queue = Queue::new();
        assert!(!queue.insert(0) && queue.insert(1) && queue.insert(2));
        assert_eq!(call!(KeRemoveEntryDeviceQueue(queue.place, queue.entry(1))), 1);
        assert_eq!(call!(KeRemoveEntryDeviceQueue(queue.place, queue.entry(1))), 0, "it is out");
        assert_eq!([queue.next(), queue.next()], [Some(2), None]);
        queue.end();
    }

    the_next_of_a_queue_that_is_not_busy breaks DeviceQueue by { let _ = Queue::new().next(); }
    the_next_by_key_of_a_queue_that_is_not_busy breaks DeviceQueue by {
        call!(KeRemoveByKeyDeviceQueue(Queue::new().place, 1));
    }
    an_entry_inserted_twice breaks DeviceQueue by {
        let queue = Queue::new();
        queue.insert(0);
        queue.insert(1);
        queue.insert(1);
    }
    a_queue_freed_with_entries breaks DeviceQueue by {
        let queue = Queue::new();
        queue.insert(0);
        queue.insert(1);
        queue.end();
    }
    a_queue_initialised_again_with_entries breaks DeviceQueue by {
        let queue = Queue::new();
        queue.insert(0);
        queue.insert(1);
        call!(KeInitializeDeviceQueue(queue.place));
    }
    a_queue_that_was_not_initialised breaks Uninitialised by {
        let place = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES, TAG));
        call!(KfRaiseIrql(2));
        call!(KeRemoveDeviceQueue(place.cast()));
    }
    a_copy_of_a_queue breaks MovedObject by {
        let queue = Queue::new();
        let place: *mut KDEVICE_QUEUE = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES, TAG)).cast();
        // SAFETY: two places of the driver's for a queue.
        unsafe { place.copy_from_nonoverlapping(queue.place, 1) };
        call!(KeInsertDeviceQueue(place, queue.entry(0)));
    }
    an_insertion_at_passive_level breaks IrqlNotRaised by {
        let queue = Queue::new();
        call!(KeLowerIrql(0));
        queue.insert(0);
    }
}

/// What the `StartIo` routine does, with which attributes, and whether requests are started with a cancel routine.
#[derive(Clone, Copy)]
struct Starting {
    start: fn(PDEVICE_OBJECT, PIRP),
    attributes: [u8; 2],
    cancel: PDRIVER_CANCEL,
}

static STARTING: DuringRun<Mutex<Starting>> =
    DuringRun::new(Mutex::new(Starting { start: |_, _| (), attributes: [0; 2], cancel: None }));
/// How deep in calls of the routine this is, and how deep it was at most; how often it was called.
static DEPTH: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static DEEPEST: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static STARTED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn starting() -> Starting {
    *STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn start_io(device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    STARTED.fetch_add(1, SeqCst);
    DEEPEST.fetch_max(DEPTH.fetch_add(1, SeqCst) + 1, SeqCst);
    // SAFETY: the driver's device.
    assert_eq!(unsafe { (*device).CurrentIrp }, irp);
    (starting().start)(device, irp);
    DEPTH.fetch_sub(1, SeqCst);
}

/// The first byte of a request's input is its key.
fn start(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    driver::mark(irp);
    // SAFETY: the input of one byte.
    let mut key = u32::from(unsafe { driver::buffer(irp).read() });
    let key = if key == 0 { ptr::null_mut() } else { &raw mut key };
    call!(IoStartPacket(device, irp, key, starting().cancel));
    STATUS_PENDING
}

/// A request that waits is cancelled: it is taken out of the queue. The one that the driver has is its own to complete.
unsafe extern "C" fn cancel(device: PDEVICE_OBJECT, irp: PIRP) {
    // SAFETY: the driver's device and request; only addresses are taken.
    let (queue, entry) = unsafe { (&raw mut (*device).DeviceQueue, (&raw mut (*irp).Tail).cast()) };
    let was_queued = call!(KeRemoveEntryDeviceQueue(queue, entry)) != 0;
    driver::release_cancel(irp);
    if was_queued {
        complete(irp, STATUS_CANCELLED, 0);
    }
}

/// Completes the current request of the device, and has the next one started.
fn finish(device: PDEVICE_OBJECT, next: fn(PDEVICE_OBJECT)) {
    // SAFETY: the driver's device, whose current request is the driver's.
    let irp = unsafe { (*device).CurrentIrp };
    let level = call!(KfRaiseIrql(2));
    driver::set_cancel(irp, None);
    next(device);
    complete(irp, 0, 0);
    call!(KeLowerIrql(level));
}

/// The driver's device.
static HERE: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

/// Loads the driver with these parts, and has `work` use it.
fn runs(starting: Starting, work: impl FnOnce(&simulated_kernel::Driver, &IoFile)) {
    let load = |device: PDEVICE_OBJECT| {
        HERE.store(device, SeqCst);
        // SAFETY: the driver's own objects.
        unsafe { (*(*device).DriverObject).DriverStartIo = Some(start_io) };
    };
    run(Parts { load, control: start, ..Parts::default() }, |_, driver, file| {
        *STARTING.lock().unwrap_or_else(PoisonError::into_inner) = starting;
        for count in [&STARTED, &DEPTH, &DEEPEST] {
            count.store(0, SeqCst);
        }
        driver.run(|| {
            let [deferred, not_cancelable] = self::starting().attributes;
            call!(IoSetStartIoAttributes(HERE.load(SeqCst), deferred, not_cancelable));
        });
        work(driver, file);
    });
}

const KEEPS: Starting = Starting { start: |_, _| (), attributes: [0; 2], cancel: Some(cancel) };

#[test]
fn requests_are_started_one_after_the_other() {
    runs(KEEPS, |driver, file| {
        let all = [0, 0, 0].map(|key| file.begin(CODE, &[key], 0));
        for (number, pending) in all.into_iter().enumerate() {
            assert_eq!(STARTED.load(SeqCst) as usize, number + 1);
            assert!(!pending.is_complete());
            driver.run(|| finish(HERE.load(SeqCst), |device| call!(IoStartNextPacket(device, 1))));
            assert!(pending.wait().is_success());
        }
        assert_eq!(STARTED.load(SeqCst), 3);
    });
}

#[test]
fn requests_are_started_by_their_keys() {
    runs(KEEPS, |driver, file| {
        let first = file.begin(CODE, &[1], 0);
        let (high, low) = (file.begin(CODE, &[9], 0), file.begin(CODE, &[5], 0));
        let next = |device| call!(IoStartNextPacketByKey(device, 1, 6));
        driver.run(move || finish(HERE.load(SeqCst), next));
        assert!(first.wait().is_success());
        driver.run(move || finish(HERE.load(SeqCst), next));
        assert!(high.wait().is_success(), "the first with a key of at least six");
        assert!(!low.is_complete());
        driver.run(move || finish(HERE.load(SeqCst), next));
        assert!(low.wait().is_success());
    });
}

#[test]
fn a_request_that_waits_is_cancelled() {
    runs(KEEPS, |driver, file| {
        let [first, second, third] = [0; 3].map(|key| file.begin(CODE, &[key], 0));
        second.cancel();
        assert_eq!(second.wait().status, STATUS_CANCELLED);
        driver.run(|| finish(HERE.load(SeqCst), |device| call!(IoStartNextPacket(device, 1))));
        assert!(first.wait().is_success());
        driver.run(|| finish(HERE.load(SeqCst), |device| call!(IoStartNextPacket(device, 1))));
        assert!(third.wait().is_success());
        assert_eq!(STARTED.load(SeqCst), 2);
    });
}

#[test]
fn a_request_that_is_not_cancelable_loses_its_routine_when_its_turn_comes() {
    let start = |_, irp: PIRP| {
        // SAFETY: the driver's request.
        assert!(unsafe { (*irp).CancelRoutine }.is_none());
    };
    runs(Starting { start, attributes: [0, 1], ..KEEPS }, |driver, file| {
        let [first, second] = [0; 2].map(|key| file.begin(CODE, &[key], 0));
        first.cancel();
        for pending in [first, second] {
            driver.run(|| finish(HERE.load(SeqCst), |device| call!(IoStartNextPacket(device, 1))));
            assert!(pending.wait().is_success());
        }
    });
}

/// Completes each request while it is being started, but for the first, behind which the others wait.
fn complete_all_but_the_first(device: PDEVICE_OBJECT, _: PIRP) {
    if STARTED.load(SeqCst) > 1 {
        finish(device, |device| call!(IoStartNextPacket(device, 1)));
    }
}

fn depth_of(attributes: [u8; 2]) -> u32 {
    let mut deepest = 0;
    runs(Starting { start: complete_all_but_the_first, attributes, ..KEEPS }, |driver, file| {
        let all = [0; 4].map(|key| file.begin(CODE, &[key], 0));
        driver.run(|| finish(HERE.load(SeqCst), |device| call!(IoStartNextPacket(device, 1))));
        for pending in all {
            assert!(pending.wait().is_success());
        }
        assert_eq!(STARTED.load(SeqCst), 4);
        deepest = DEEPEST.load(SeqCst);
    });
    deepest
}

#[test]
fn the_routine_is_called_inside_of_itself_unless_that_is_deferred() {
    assert_eq!(depth_of([0, 0]), 3);
    assert_eq!(depth_of([1, 0]), 1);
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || runs(KEEPS, $work));
            }
        )+
    };
}

wrong! {
    a_request_completed_while_it_is_queued breaks DeviceQueue by |driver, file| {
        let _pending = file.begin(CODE, &[0], 0);
        driver.run(|| {
            // SAFETY: the driver's device.
            let irp = unsafe { (*HERE.load(SeqCst)).CurrentIrp };
            driver::set_cancel(irp, None);
            // The device is busy with it, so it waits for itself.
            call!(IoStartPacket(HERE.load(SeqCst), irp, ptr::null_mut(), None));
            complete(irp, 0, 0);
        });
    };
    the_next_request_at_passive_level breaks IrqlNotRaised by |driver, _| {
        driver.run(|| call!(IoStartNextPacket(HERE.load(SeqCst), 1)));
    };
    the_next_request_when_none_was_started breaks DeviceQueue by |driver, _| {
        driver.run(|| {
            call!(KfRaiseIrql(2));
            call!(IoStartNextPacket(HERE.load(SeqCst), 1));
        });
    };
    a_current_request_completed_with_its_cancel_routine_set breaks IrpCancelRoutine by |driver, file| {
        let _pending = file.begin(CODE, &[0], 0);
        driver.run(|| {
            // SAFETY: the driver's device.
            complete(unsafe { (*HERE.load(SeqCst)).CurrentIrp }, 0, 0);
        });
    };
}

#[test]
fn a_driver_without_the_routine_starts_nothing() {
    let test = concat!(module_path!(), "::a_driver_without_the_routine_starts_nothing");
    caught(test, Rule::BadArgument, || {
        run(Parts { control: start, ..Parts::default() }, |_: &Kernel, _, file| drop(file.begin(CODE, &[0], 0)));
    });
}
