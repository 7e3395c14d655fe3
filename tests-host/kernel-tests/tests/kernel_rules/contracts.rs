//! What the routines do for those who keep the rules.

use std::{
    ptr,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
};

use simulated_kernel::DuringRun;
use wdk_sys::{
    KDPC, KTIMER, LARGE_INTEGER, PROCESSOR_NUMBER, PVOID,
    ntddk::{
        KeCancelTimer, KeDelayExecutionThread, KeFlushQueuedDpcs, KeGetCurrentProcessorNumberEx, KeInitializeDpc,
        KeInitializeTimer, KeInsertQueueDpc, KeRemoveQueueDpc, KeSetTargetProcessorDpcEx, KeSetTimer, KeSetTimerEx,
    },
};

use crate::skeleton::{Loaded, Wrong, allocate, keep, run};

static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static FIRST: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
static PLACE: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn note(_: *mut KDPC, _: PVOID, first: PVOID, _: PVOID) {
    CALLS.fetch_add(1, Relaxed);
    FIRST.store(first.addr(), Relaxed);
    // SAFETY: a null pointer says that only the index is wanted.
    let processor = unsafe { KeGetCurrentProcessorNumberEx(ptr::null_mut()) };
    PLACE.store(processor << 8 | u32::from(simulated_kernel::irql()), Relaxed);
}

fn new_dpc() -> *mut KDPC {
    CALLS.store(0, Relaxed);
    let dpc = keep(allocate(size_of::<KDPC>())).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeDpc(dpc, Some(note), ptr::null_mut()) };
    dpc
}

fn queue(dpc: *mut KDPC, argument: usize) -> u8 {
    // SAFETY: the DPC is initialised.
    unsafe { KeInsertQueueDpc(dpc, ptr::without_provenance_mut(argument), ptr::null_mut()) }
}

fn flush() {
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { KeFlushQueuedDpcs() };
}

/// One after the other: the statics are everybody's, and `run` lets one driver run at a time.
fn with(load: fn(&Loaded)) {
    run(Wrong { load, ..Wrong::default() });
}

#[test]
fn a_dpc_is_queued_once_with_its_first_arguments_and_runs_at_dispatch_level_on_its_target() {
    with(|_| {
        let dpc = new_dpc();
        let mut number = PROCESSOR_NUMBER { Group: 0, Number: 2, Reserved: 0 };
        // SAFETY: the DPC is initialised, and the number lives until the call returns.
        assert_eq!(unsafe { KeSetTargetProcessorDpcEx(dpc, &raw mut number) }, 0);
        assert_eq!((queue(dpc, 7), queue(dpc, 8)), (1, 0));
        flush();
        assert_eq!((CALLS.load(Relaxed), FIRST.load(Relaxed), PLACE.load(Relaxed)), (1, 7, 2 << 8 | 2));
        assert_eq!(queue(dpc, 9), 1);
        flush();
        assert_eq!((CALLS.load(Relaxed), FIRST.load(Relaxed)), (2, 9));
    });
}

#[test]
fn a_removed_dpc_does_not_run() {
    with(|_| {
        let dpc = new_dpc();
        queue(dpc, 1);
        // SAFETY: the DPC is initialised.
        assert_eq!(unsafe { KeRemoveQueueDpc(dpc) }, 1);
        // SAFETY: the DPC is initialised.
        assert_eq!(unsafe { KeRemoveQueueDpc(dpc) }, 0);
        flush();
        assert_eq!(CALLS.load(Relaxed), 0);
    });
}

fn sleep(milliseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -milliseconds * 10_000 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

#[test]
fn timers_expire_once_or_periodically_until_they_are_cancelled() {
    with(|_| {
        let (dpc, timer) = (new_dpc(), keep(allocate(size_of::<KTIMER>())).cast());
        // SAFETY: a new block.
        unsafe { KeInitializeTimer(timer) };
        let due = LARGE_INTEGER { QuadPart: -10_000 };
        // SAFETY: both are initialised.
        assert_eq!(unsafe { KeSetTimer(timer, due, dpc) }, 0);
        // SAFETY: both are initialised.
        assert_eq!(unsafe { KeSetTimer(timer, due, dpc) }, 1);
        sleep(10);
        flush();
        assert_eq!(CALLS.load(Relaxed), 1);
        // SAFETY: the timer is initialised.
        assert_eq!(unsafe { KeCancelTimer(timer) }, 0);
        // SAFETY: both are initialised.
        unsafe { KeSetTimerEx(timer, due, 2, dpc) };
        sleep(20);
        // SAFETY: the timer is initialised.
        assert_eq!(unsafe { KeCancelTimer(timer) }, 1);
        flush();
        let calls = CALLS.load(Relaxed);
        assert!(calls >= 4, "{calls} expiries");
        sleep(20);
        assert_eq!(CALLS.load(Relaxed), calls);
    });
}
