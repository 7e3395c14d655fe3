//! Drivers that are wrong on purpose: each breaks one rule, and the simulated kernel catches it.
//!
//! Each runs in a process of its own, which the bug check ends.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

use std::{hint::black_box, ptr};

use rigs::skeleton::{Loaded, Wrong, allocate, complete, keep, kept, output_buffer, run};
use simulated_kernel::{Rule, caught};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, KDPC, KEVENT, KLOCK_QUEUE_HANDLE, KTIMER, LARGE_INTEGER, POOL_FLAG_NON_PAGED,
    POOL_FLAG_PAGED, PVOID, WDFREQUEST, call_unsafe_wdf_function_binding,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, KeAcquireInStackQueuedSpinLock, KeAcquireSpinLockRaiseToDpc,
        KeInitializeDpc, KeInitializeEvent, KeInitializeSpinLock, KeInitializeTimer, KeInsertQueueDpc, KeLowerIrql,
        KeReleaseSpinLock, KeSetTimer, KeStallExecutionProcessor, KeWaitForSingleObject, KfRaiseIrql,
    },
};

const TAG: u32 = u32::from_ne_bytes(*b"Wrng");

macro_rules! wrong {
    ($($(#[$meta:meta])* $name:ident breaks $rule:ident by $wrong:expr;)+) => {
        $(
            $(#[$meta])*
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || run($wrong));
            }
        )+

        /// One driver without a fault: what is caught is not the skeleton.
        #[test]
        fn the_skeleton_breaks_no_rule() {
            run(Wrong::default());
        }
    };
}

wrong! {
    a_leak breaks PoolLeak by Wrong { load: |_| { allocate(100); }, ..Wrong::default() };
    a_leak_of_a_box breaks PoolLeak by Wrong { load: |_| { let _ = Box::leak(black_box(Box::new(7_u64))); }, ..Wrong::default() };
    a_double_free breaks DoubleFree by Wrong { load: double_free, ..Wrong::default() };
    a_touch_of_paged_memory_at_dispatch_level breaks PagedAtDispatch by Wrong { load: touch_paged, ..Wrong::default() };
    a_call_into_paged_memory breaks AccessViolation by Wrong { load: call_paged, ..Wrong::default() };
    a_lock_held_over_a_completion breaks LockHeld by Wrong { control: complete_under_a_lock, ..Wrong::default() };
    a_lock_held_over_a_callback breaks LockHeld by Wrong { load: call_back_under_a_lock, ..Wrong::default() };
    a_missed_completion breaks RequestNeverCompleted by Wrong { control: |_, _| (), ..Wrong::default() };
    a_dpc_queued_at_unload breaks DpcAtUnload by Wrong { unload: |_| queue_dpc(), ..Wrong::default() };
    an_irql_that_is_not_restored breaks IrqlNotRestored by Wrong { control: forget_the_irql, ..Wrong::default() };
    a_buffer_overrun_in_a_control_code breaks Overrun by Wrong { control: overrun, ..Wrong::default() };
    a_reference_leak breaks ReferenceLeak by Wrong { load: reference_leak, ..Wrong::default() };
    a_wait_at_dispatch_level breaks IrqlTooHigh by Wrong { load: wait_at_dispatch, ..Wrong::default() };
    a_request_completed_twice breaks RequestCompletedTwice by Wrong { control: complete_twice, ..Wrong::default() };
    a_timer_set_at_unload breaks TimerAtUnload by Wrong { unload: |_| set_timer(), ..Wrong::default() };
    a_pool_tag_of_zero breaks PoolTag by Wrong { load: no_tag, ..Wrong::default() };
    a_write_after_free breaks UseAfterFree by Wrong { load: write_after_free, ..Wrong::default() };
    an_event_in_freed_memory breaks UseAfterFree by Wrong { load: event_after_free, ..Wrong::default() };
    a_dpc_that_runs_too_long breaks DpcTooLong by Wrong { load: long_dpc, ..Wrong::default() };
    a_dpc_that_queues_itself_for_ever breaks DpcWatchdog by Wrong { load: endless_dpc, ..Wrong::default() };
    too_many_bytes_in_an_answer breaks RequestInformation by
        Wrong { control: |request, output| complete(request, 0, output + 1), ..Wrong::default() };
    a_lock_acquired_twice breaks RecursiveLock by Wrong { load: lock_twice, ..Wrong::default() };
    a_panic breaks DriverPanicked by Wrong { load: |_| panic!("on purpose"), ..Wrong::default() };
}

fn free(block: PVOID) {
    // SAFETY: as wrong as the test wants it.
    unsafe { ExFreePoolWithTag(block, TAG) };
}

fn double_free(_: &Loaded) {
    let block = allocate(64);
    free(block);
    free(block);
}

fn call_paged(_: &Loaded) {
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_PAGED, 64, TAG) };
    // SAFETY: no function is there, which is what the test is about.
    let nothing: unsafe extern "C" fn() = unsafe { std::mem::transmute(block) };
    // SAFETY: no function is there, which is what the test is about.
    unsafe { nothing() };
}

fn touch_paged(_: &Loaded) {
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_PAGED, 64, TAG) }.cast::<u8>();
    // SAFETY: the block is new; at this level it may be touched.
    unsafe { block.write_volatile(1) };
    // SAFETY: raised from PASSIVE_LEVEL.
    let before = unsafe { KfRaiseIrql(2) };
    // SAFETY: what the test is about.
    unsafe { block.write_volatile(2) };
    // SAFETY: lowered to where it was.
    unsafe { KeLowerIrql(before) };
}

/// A lock that lives as long as the driver.
fn new_lock() -> *mut u64 {
    let lock = keep(allocate(8)).cast::<u64>();
    // SAFETY: a new block.
    unsafe { KeInitializeSpinLock(lock) };
    lock
}

fn complete_under_a_lock(request: WDFREQUEST, _: usize) {
    let lock = new_lock();
    // SAFETY: the lock is initialised.
    let before = unsafe { KeAcquireSpinLockRaiseToDpc(lock) };
    complete(request, 0, 0);
    // SAFETY: the lock is held.
    unsafe { KeReleaseSpinLock(lock, before) };
}

fn call_back_under_a_lock(_: &Loaded) {
    let lock = new_lock();
    // SAFETY: the lock is initialised.
    let before = unsafe { KeAcquireSpinLockRaiseToDpc(lock) };
    // What a consumer's callback would do.
    simulated_kernel::assert_consumer_callback();
    // SAFETY: the lock is held.
    unsafe { KeReleaseSpinLock(lock, before) };
}

const unsafe extern "C" fn nothing(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {}

fn new_dpc(routine: unsafe extern "C" fn(*mut KDPC, PVOID, PVOID, PVOID)) -> *mut KDPC {
    let dpc = Box::leak(Box::new(KDPC::default()));
    // SAFETY: memory for a DPC.
    unsafe { KeInitializeDpc(dpc, Some(routine), ptr::null_mut()) };
    dpc
}

fn queue_dpc() {
    static mut DPC: std::mem::MaybeUninit<KDPC> = std::mem::MaybeUninit::zeroed();
    let dpc = (&raw mut DPC).cast::<KDPC>();
    // SAFETY: memory for a DPC.
    unsafe { KeInitializeDpc(dpc, Some(nothing), ptr::null_mut()) };
    // SAFETY: raised from PASSIVE_LEVEL: a seeded kernel runs nothing before the driver is gone.
    unsafe { KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()) };
}

fn set_timer() {
    static mut TIMER: std::mem::MaybeUninit<KTIMER> = std::mem::MaybeUninit::zeroed();
    let timer = (&raw mut TIMER).cast::<KTIMER>();
    // SAFETY: memory for a timer.
    unsafe { KeInitializeTimer(timer) };
    // SAFETY: the timer is initialised.
    unsafe { KeSetTimer(timer, LARGE_INTEGER { QuadPart: -10_000_000 }, ptr::null_mut()) };
}

fn forget_the_irql(request: WDFREQUEST, _: usize) {
    complete(request, 0, 0);
    // SAFETY: raised from PASSIVE_LEVEL.
    let _ = unsafe { KfRaiseIrql(2) };
}

fn overrun(request: WDFREQUEST, output: usize) {
    let beyond = output_buffer(request).wrapping_add(output);
    // SAFETY: what the test is about.
    unsafe { beyond.write_volatile(1) };
    complete(request, 0, output);
}

fn reference_leak(loaded: &Loaded) {
    // SAFETY: the driver's own object.
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfObjectReferenceActual,
            loaded.driver.cast(),
            ptr::null_mut(),
            0,
            ptr::null_mut()
        );
    }
}

fn wait_at_dispatch(_: &Loaded) {
    let event = keep(allocate(size_of::<KEVENT>())).cast::<KEVENT>();
    // SAFETY: a new block.
    unsafe { KeInitializeEvent(event, _EVENT_TYPE::NotificationEvent, 1) };
    // SAFETY: raised from PASSIVE_LEVEL.
    let before = unsafe { KfRaiseIrql(2) };
    // SAFETY: what the test is about.
    let _ = unsafe { KeWaitForSingleObject(event.cast(), _KWAIT_REASON::Executive, 0, 0, ptr::null_mut()) };
    // SAFETY: lowered to where it was.
    unsafe { KeLowerIrql(before) };
}

fn complete_twice(request: WDFREQUEST, _: usize) {
    complete(request, 0, 0);
    complete(request, 0, 0);
}

fn no_tag(_: &Loaded) {
    // SAFETY: what the test is about.
    let _ = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, 64, 0) };
}

fn write_after_free(_: &Loaded) {
    let block = allocate(64);
    free(block);
    let inside = block.cast::<u8>().wrapping_add(8);
    // SAFETY: what the test is about.
    unsafe { inside.write_volatile(1) };
}

fn event_after_free(_: &Loaded) {
    let event = allocate(size_of::<KEVENT>()).cast::<KEVENT>();
    // SAFETY: a new block.
    unsafe { KeInitializeEvent(event, _EVENT_TYPE::NotificationEvent, 0) };
    free(event.cast());
    // SAFETY: what the test is about.
    unsafe { wdk_sys::ntddk::KeSetEvent(event, 0, 0) };
}

unsafe extern "C" fn dawdle(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: the routine has no conditions.
    unsafe { KeStallExecutionProcessor(5_000_000) };
}

fn long_dpc(_: &Loaded) {
    let dpc = new_dpc(dawdle);
    // SAFETY: the DPC is initialised.
    unsafe { KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { wdk_sys::ntddk::KeFlushQueuedDpcs() };
}

unsafe extern "C" fn again(dpc: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: the DPC is initialised, and this call does not need it any more.
    unsafe { KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()) };
}

/// Each run is short. Together they never end.
fn endless_dpc(_: &Loaded) {
    let dpc = new_dpc(again);
    // SAFETY: the DPC is initialised.
    unsafe { KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()) };
    let mut interval = LARGE_INTEGER { QuadPart: -10_000_000 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { wdk_sys::ntddk::KeDelayExecutionThread(0, 0, &raw mut interval) };
}

fn lock_twice(_: &Loaded) {
    let lock = new_lock();
    let (mut one, mut two) = (KLOCK_QUEUE_HANDLE::default(), KLOCK_QUEUE_HANDLE::default());
    // SAFETY: the lock is initialised.
    unsafe { KeAcquireInStackQueuedSpinLock(lock, &raw mut one) };
    // SAFETY: what the test is about.
    unsafe { KeAcquireInStackQueuedSpinLock(lock, &raw mut two) };
}

#[test]
fn what_the_skeleton_keeps_it_frees() {
    run(Wrong {
        load: |_| {
            keep(allocate(10));
            assert_eq!(kept(), 1);
        },
        ..Wrong::default()
    });
}
