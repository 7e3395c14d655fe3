//! The rules of the simulated kernel, routine by routine: what keeps one works as documented, what breaks one is caught.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

mod contracts;
mod creates;
mod devices;
mod files;
mod framework;
mod hardware;
mod interfaces;
mod internal;
mod lookaside;
mod made;
mod memory;
mod netio;
mod netio_entries;
mod notifications;
mod policy;
mod power;
mod preprocess;
mod property;
mod queued_locks;
mod registry_keys;
mod removal;
mod request_mdls;
mod requests;
mod sent;
mod spin_locks;
mod turns;
mod wait_locks;
mod wdm_objects;
mod wsk;
mod wsk_sockets;
mod wsk_streams;

use rigs::{skeleton, small_driver};

use std::{hint::black_box, ptr};

use simulated_kernel::{Rule, caught, object_attributes};
use skeleton::{Loaded, Wrong, allocate, keep, run};
use wdk_sys::{
    _EVENT_TYPE, EX_RUNDOWN_REF, KDPC, KEVENT, KTIMER, LARGE_INTEGER, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, PVOID,
    call_unsafe_wdf_function_binding,
    ntddk::{
        ExAcquireRundownProtection, ExAllocatePool2, ExFreePoolWithTag, ExInitializeRundownProtection,
        ExReleaseRundownProtection, ExSetTimerResolution, IoAllocateMdl, IoFreeMdl, KeAcquireSpinLockAtDpcLevel,
        KeAcquireSpinLockRaiseToDpc, KeDelayExecutionThread, KeEnterCriticalRegion, KeFlushQueuedDpcs, KeInitializeDpc,
        KeInitializeEvent, KeInitializeSemaphore, KeInitializeSpinLock, KeInitializeTimer, KeInsertQueueDpc,
        KeLeaveCriticalRegion, KeLowerIrql, KeReleaseSemaphore, KeReleaseSpinLock, KeSetEvent, KeSetTimer,
        KeStallExecutionProcessor, KeWaitForSingleObject, KfRaiseIrql, MmBuildMdlForNonPagedPool, PsCreateSystemThread,
        ZwClose,
    },
};

const TAG: u32 = u32::from_ne_bytes(*b"Wrng");

/// Tests that break a rule, each named after what it does.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by $load:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || run(Wrong { load: $load, ..Wrong::default() }));
            }
        )+
    };
}
pub(crate) use rules;

rules! {
    raising_downwards breaks IrqlNotRaised by |_| { raise(2); raise(1); };
    lowering_upwards breaks IrqlNotLowered by |_| lower(2);
    lowering_with_a_lock_held breaks IrqlNotLowered by |_| { acquire(new_lock()); lower(0); };
    a_lock_at_dispatch_level_below_it breaks IrqlNotRaised by at_dispatch_below_it;
    a_lock_above_dispatch_level breaks IrqlTooHigh by |_| { raise(5); acquire(new_lock()); };
    a_release_of_a_free_lock breaks LockNotHeld by |_| { raise(2); release(new_lock(), 0); };
    two_locks_in_both_orders breaks LockOrder by both_orders;
    a_lock_held_at_the_end breaks LockHeld by |_| { acquire(new_lock()); };
    a_critical_region_not_left breaks CriticalRegion by |_| enter();
    a_critical_region_not_entered breaks CriticalRegion by |_| leave();
    a_flush_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); flush(); };
    an_event_above_dispatch_level breaks IrqlTooHigh by |_| { let event = new_event(); raise(3); set(event); };
    an_allocation_above_dispatch_level breaks IrqlTooHigh by |_| { raise(3); allocate(8); };
    a_box_above_dispatch_level breaks IrqlTooHigh by |_| { raise(3); drop(black_box(Box::new(1_u8))); lower(0); };
    an_object_above_dispatch_level breaks IrqlTooHigh by |loaded| { raise(3); reference(loaded); };
    a_semaphore_above_dispatch_level breaks IrqlTooHigh by |_| release_semaphore(keep(allocate(64)));
    a_semaphore_released_by_who_waits_next_at_dispatch_level breaks IrqlTooHigh by |_| {
        let semaphore = keep(allocate(64));
        raise(2);
        release_and_wait(semaphore);
    };
    paged_pool_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); pool(POOL_FLAG_PAGED); };
    paged_pool_touched_when_it_is_free breaks UseAfterFree by |_| {
        // Which frees it too.
        let block = pool(POOL_FLAG_PAGED);
        write_at(block, 0);
        write_at(block, 0);
    };
    flags_of_two_pools breaks PoolFlags by |_| { pool(POOL_FLAG_PAGED | POOL_FLAG_NON_PAGED); };
    a_free_with_another_tag breaks PoolTag by |_| free(allocate(8), TAG + 1);
    a_free_of_no_block breaks BadFree by |_| free(allocate(64).wrapping_byte_add(16), TAG);
    an_underrun breaks Overrun by |_| write_at(allocate(64), -1);
    an_event_that_is_not_initialised breaks Uninitialised by |_| set(keep(allocate(64)).cast());
    an_event_in_paged_pool breaks PagedAtDispatch by |_| initialise_event(pool(POOL_FLAG_PAGED).cast());
    a_dpc_freed_while_queued breaks DpcFreedWhileQueued by dpc_freed;
    a_dpc_initialised_while_queued breaks DpcFreedWhileQueued by dpc_initialised_again;
    a_timer_freed_while_set breaks TimerFreedWhileSet by timer_freed;
    a_rundown_released_too_often breaks RundownUnderflow by rundown_released_twice;
    a_clock_left_raised breaks ReferenceLeak by |_| raise_resolution();
    an_mdl_left breaks PoolLeak by |_| { new_mdl(keep(allocate(64))); };
    an_mdl_of_no_pool breaks BadMdl by |_| mdl_of_no_pool();
    a_handle_closed_twice breaks BadHandle by |_| close();
    a_stall_of_milliseconds breaks StallTooLong by |_| stall(2_000);
    a_clock_lowered_that_was_not_raised breaks ReferenceUnderflow by |_| lower_resolution();
    an_event_of_no_kind breaks BadArgument by |_| event_of_kind(7);
    a_wait_in_a_release_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); set_and_wait(new_event()); };
    a_thread_left_running breaks ThreadAtUnload by |_| start_thread();
}

fn raise(level: u8) -> u8 {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KfRaiseIrql(level) }
}

fn lower(level: u8) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeLowerIrql(level) };
}

/// A lock that lives as long as the driver.
fn new_lock() -> *mut u64 {
    let lock = keep(allocate(8)).cast::<u64>();
    initialise_lock(lock);
    lock
}

fn initialise_lock(lock: *mut u64) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeInitializeSpinLock(lock) };
}

fn acquire(lock: *mut u64) -> u8 {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeAcquireSpinLockRaiseToDpc(lock) }
}

fn release(lock: *mut u64, before: u8) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeReleaseSpinLock(lock, before) };
}

fn at_dispatch_below_it(_: &Loaded) {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { KeAcquireSpinLockAtDpcLevel(new_lock()) };
}

fn both_orders(_: &Loaded) {
    let locks = [new_lock(), new_lock()];
    for [first, second] in [locks, [locks[1], locks[0]]] {
        let outer = acquire(first);
        let inner = acquire(second);
        release(second, inner);
        release(first, outer);
    }
}

fn enter() {
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { KeEnterCriticalRegion() };
}

fn leave() {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { KeLeaveCriticalRegion() };
}

fn flush() {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeFlushQueuedDpcs() };
}

fn initialise_event(event: *mut KEVENT) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeInitializeEvent(event, _EVENT_TYPE::NotificationEvent, 0) };
}

fn new_event() -> *mut KEVENT {
    let event = keep(allocate(size_of::<KEVENT>())).cast();
    initialise_event(event);
    event
}

fn set(event: *mut KEVENT) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeSetEvent(event, 0, 0) };
}

fn pool(flags: u64) -> PVOID {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { ExAllocatePool2(flags, 64, TAG) }
}

fn free(block: PVOID, tag: u32) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { ExFreePoolWithTag(block, tag) };
}

fn write_at(block: PVOID, offset: isize) {
    let place = block.cast::<u8>().wrapping_offset(offset);
    // SAFETY: the test's scenario, which is wrong.
    unsafe { place.write_volatile(1) };
    free(block, TAG);
}

unsafe extern "C" fn nothing(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {}

fn queued_dpc() -> *mut KDPC {
    let dpc = allocate(size_of::<KDPC>()).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeDpc(dpc, Some(nothing), ptr::null_mut()) };
    // SAFETY: the DPC is initialised.
    unsafe { KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()) };
    dpc
}

fn dpc_freed(_: &Loaded) {
    free(queued_dpc().cast(), TAG);
}

fn dpc_initialised_again(_: &Loaded) {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { KeInitializeDpc(queued_dpc(), Some(nothing), ptr::null_mut()) };
}

fn timer_freed(_: &Loaded) {
    let timer = allocate(size_of::<KTIMER>()).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeTimer(timer) };
    // SAFETY: the timer is initialised.
    unsafe { KeSetTimer(timer, LARGE_INTEGER { QuadPart: -10_000 }, ptr::null_mut()) };
    free(timer.cast(), TAG);
}

fn rundown_released_twice(_: &Loaded) {
    let rundown = keep(allocate(size_of::<EX_RUNDOWN_REF>())).cast();
    // SAFETY: a new block.
    unsafe { ExInitializeRundownProtection(rundown) };
    // SAFETY: the protection is initialised.
    let _ = unsafe { ExAcquireRundownProtection(rundown) };
    // SAFETY: it was acquired.
    unsafe { ExReleaseRundownProtection(rundown) };
    // SAFETY: the test's scenario, which is wrong.
    unsafe { ExReleaseRundownProtection(rundown) };
}

fn raise_resolution() {
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { ExSetTimerResolution(10_000, 1) };
}

fn lower_resolution() {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { ExSetTimerResolution(0, 0) };
}

fn reference(loaded: &Loaded) {
    let (object, none) = (loaded.driver.cast(), ptr::null_mut());
    // SAFETY: the test's scenario, which is wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectReferenceActual, object, none, 0, ptr::null_mut()) };
}

fn release_semaphore(block: PVOID) {
    // SAFETY: a new block.
    unsafe { KeInitializeSemaphore(block.cast(), 0, 1) };
    raise(3);
    // SAFETY: the test's scenario, which is wrong.
    unsafe { KeReleaseSemaphore(block.cast(), 0, 1, 0) };
}

/// Releases it as one who waits next.
fn release_and_wait(block: PVOID) {
    // SAFETY: a new block.
    unsafe { KeInitializeSemaphore(block.cast(), 0, 1) };
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeReleaseSemaphore(block.cast(), 0, 1, 1) };
    // SAFETY: at PASSIVE_LEVEL; the semaphore lives until it was waited for.
    assert_eq!(unsafe { KeWaitForSingleObject(block, 0, 0, 0, ptr::null_mut()) }, 0);
}

#[test]
fn who_releases_a_semaphore_may_wait_next() {
    run(Wrong { load: |_| release_and_wait(keep(allocate(64))), ..Wrong::default() });
}

fn stall(microseconds: u32) {
    // SAFETY: the routine has no conditions.
    unsafe { KeStallExecutionProcessor(microseconds) };
}

fn event_of_kind(kind: i32) {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { KeInitializeEvent(keep(allocate(size_of::<KEVENT>())).cast(), kind, 0) };
}

fn set_and_wait(event: *mut KEVENT) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { KeSetEvent(event, 0, 1) };
}

unsafe extern "C" fn sleep(_: PVOID) {
    let mut interval = LARGE_INTEGER { QuadPart: -100_000_000 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

fn start_thread() {
    let mut attributes = object_attributes();
    let (mut handle, none) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the structures live until the call returns.
    let status = unsafe {
        PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, none, ptr::null_mut(), Some(sleep), none)
    };
    assert_eq!(status, 0);
    // SAFETY: the handle was just opened.
    let _ = unsafe { ZwClose(handle) };
}

fn new_mdl(block: PVOID) -> *mut wdk_sys::MDL {
    // SAFETY: the block has that many bytes.
    unsafe { IoAllocateMdl(block, 64, 0, 0, ptr::null_mut()) }
}

fn mdl_of_no_pool() {
    static NO_POOL: [u8; 64] = [0; 64];
    let mdl = new_mdl((&raw const NO_POOL).cast_mut().cast());
    // SAFETY: the test's scenario, which is wrong.
    unsafe { MmBuildMdlForNonPagedPool(mdl) };
    // SAFETY: the MDL is not used any more.
    unsafe { IoFreeMdl(mdl) };
}

fn close() {
    // SAFETY: the test's scenario, which is wrong.
    let _ = unsafe { ZwClose(ptr::without_provenance_mut(0x40)) };
}
