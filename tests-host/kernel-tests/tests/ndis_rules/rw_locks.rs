//! Locks of NDIS for readers and writers.

use std::{
    hint, ptr,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use miniport::Handlers;
use ndkpi::NDIS_HANDLE;
use simulated_kernel::{Driver, DuringRun, Kernel, Rule, caught, irql};
use wdk_sys::{
    GROUP_AFFINITY, KDPC, PROCESSOR_NUMBER, PVOID, STATUS_SUCCESS,
    ntddk::{
        KeFlushQueuedDpcs, KeInitializeDpc, KeInsertQueueDpc, KeLowerIrql, KeRevertToUserGroupAffinityThread,
        KeSetSystemGroupAffinityThread, KeSetTargetProcessorDpcEx, KfRaiseIrql,
    },
};

use crate::{lifecycle::run, miniport, own::call};

/// `LOCK_STATE_EX`.
type LockState = [u8; 3];

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisAllocateRWLock(handle: NDIS_HANDLE) -> NDIS_HANDLE;
    fn NdisAcquireRWLockRead(lock: NDIS_HANDLE, state: *mut LockState, flags: u8);
    fn NdisAcquireRWLockWrite(lock: NDIS_HANDLE, state: *mut LockState, flags: u8);
    fn NdisReleaseRWLock(lock: NDIS_HANDLE, state: *mut LockState);
    fn NdisFreeRWLock(lock: NDIS_HANDLE);
}

/// `NDIS_RWL_AT_DISPATCH_LEVEL`.
const AT_DISPATCH_LEVEL: u8 = 1;

fn allocate() -> NDIS_HANDLE {
    let lock = call!(NdisAllocateRWLock(miniport::with(|world| world.adapter)));
    assert!(!lock.is_null());
    lock
}

/// Has a miniport driver do something, after which its adapter is halted and it is unloaded.
fn does(work: fn()) {
    run(Handlers::default(), |_, driver, _| driver.run(work));
}

#[test]
fn a_lock_is_acquired_at_dispatch_level_and_goes_back_to_the_level_before() {
    does(|| {
        let (lock, mut state) = (allocate(), LockState::default());
        for acquire in [NdisAcquireRWLockRead, NdisAcquireRWLockWrite] {
            call!(acquire(lock, &raw mut state, 0));
            assert_eq!(irql(), 2);
            call!(NdisReleaseRWLock(lock, &raw mut state));
            assert_eq!(irql(), 0);
            let before = call!(KfRaiseIrql(2));
            for flags in [AT_DISPATCH_LEVEL, 0] {
                call!(acquire(lock, &raw mut state, flags));
                call!(NdisReleaseRWLock(lock, &raw mut state));
                assert_eq!(irql(), 2, "with or without the flag");
            }
            call!(KeLowerIrql(before));
        }
        call!(NdisFreeRWLock(lock));
    });
}

#[test]
fn a_lock_is_acquired_again_by_who_has_it_in_the_same_way() {
    does(|| {
        let (lock, mut outer, mut inner) = (allocate(), LockState::default(), LockState::default());
        for acquire in [NdisAcquireRWLockRead, NdisAcquireRWLockWrite] {
            call!(acquire(lock, &raw mut outer, 0));
            call!(acquire(lock, &raw mut inner, 0));
            call!(NdisReleaseRWLock(lock, &raw mut inner));
            assert_eq!(irql(), 2, "it is held");
            call!(NdisReleaseRWLock(lock, &raw mut outer));
            assert_eq!(irql(), 0);
        }
        call!(NdisFreeRWLock(lock));
    });
}

#[test]
fn a_lock_may_be_allocated_before_there_is_a_handle() {
    does(|| {
        let lock = call!(NdisAllocateRWLock(ptr::null_mut()));
        call!(NdisFreeRWLock(lock));
    });
}

/// How many readers have the lock, and what they count.
static READERS: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

/// Comes, and waits until another reader is there too.
fn meet() {
    READERS.fetch_add(1, SeqCst);
    let end = Instant::now() + Duration::from_secs(20);
    while READERS.load(SeqCst) < 2 {
        assert!(Instant::now() < end, "the other reader does not get the lock");
        hint::spin_loop();
    }
}

unsafe extern "C" fn read_too(_: *mut KDPC, lock: PVOID, _: PVOID, _: PVOID) {
    let mut state = LockState::default();
    call!(NdisAcquireRWLockRead(lock, &raw mut state, AT_DISPATCH_LEVEL));
    meet();
    call!(NdisReleaseRWLock(lock, &raw mut state));
}

/// Reads on the first processor, while a DPC reads on the second.
fn read_on_two_processors() {
    let (lock, mut state, mut dpc) = (allocate(), LockState::default(), Box::new(KDPC::default()));
    let mut second = PROCESSOR_NUMBER { Group: 0, Number: 1, Reserved: 0 };
    let (mut first, mut before) = (GROUP_AFFINITY { Mask: 1, ..Default::default() }, GROUP_AFFINITY::default());
    call!(KeSetSystemGroupAffinityThread(&raw mut first, &raw mut before));
    call!(KeInitializeDpc(&raw mut *dpc, Some(read_too), lock.cast()));
    assert_eq!(call!(KeSetTargetProcessorDpcEx(&raw mut *dpc, &raw mut second)), STATUS_SUCCESS);
    call!(NdisAcquireRWLockRead(lock, &raw mut state, 0));
    call!(KeInsertQueueDpc(&raw mut *dpc, ptr::null_mut(), ptr::null_mut()));
    meet();
    call!(NdisReleaseRWLock(lock, &raw mut state));
    call!(KeFlushQueuedDpcs());
    call!(KeRevertToUserGroupAffinityThread(&raw mut before));
    call!(NdisFreeRWLock(lock));
}

/// Loads the miniport driver on a kernel of threads, and has it do something with its adapter.
fn with_threads(work: impl FnOnce(&Driver)) {
    let kernel = Kernel::threads().start();
    miniport::prepare(Handlers::default());
    let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
    let nic = driver.add_nic(&[("Test", "42")]).expect("the adapter starts");
    work(&driver);
    nic.remove();
    driver.unload();
}

#[test]
fn readers_share_a_lock() {
    with_threads(|driver| driver.run(read_on_two_processors));
}

/// A sum that is not one operation, and so is right only if nobody gets in between.
static SUM: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
const ROUNDS: usize = 2000;

unsafe extern "C" fn write_too(_: *mut KDPC, lock: PVOID, _: PVOID, _: PVOID) {
    write(lock.cast());
}

fn write(lock: NDIS_HANDLE) {
    let mut state = LockState::default();
    for _ in 0..ROUNDS {
        call!(NdisAcquireRWLockWrite(lock, &raw mut state, 0));
        let before = SUM.load(SeqCst);
        hint::spin_loop();
        SUM.store(before + 1, SeqCst);
        call!(NdisReleaseRWLock(lock, &raw mut state));
    }
}

#[test]
fn a_writer_has_the_lock_alone() {
    with_threads(|driver| {
        driver.run(|| {
            let (lock, mut dpc) = (allocate(), Box::new(KDPC::default()));
            call!(KeInitializeDpc(&raw mut *dpc, Some(write_too), lock.cast()));
            call!(KeInsertQueueDpc(&raw mut *dpc, ptr::null_mut(), ptr::null_mut()));
            write(lock);
            call!(KeFlushQueuedDpcs());
            assert_eq!(SUM.load(SeqCst), 2 * ROUNDS);
            call!(NdisFreeRWLock(lock));
        });
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(|| $work));
            }
        )+
    };
}

wrong! {
    a_lock_left_behind breaks ReferenceLeak by { allocate(); }
    a_lock_freed_twice breaks BadHandle by {
        let lock = allocate();
        call!(NdisFreeRWLock(lock));
        call!(NdisFreeRWLock(lock));
    }
    a_lock_freed_while_it_is_held breaks LockHeld by {
        let (lock, mut state) = (allocate(), LockState::default());
        call!(NdisAcquireRWLockRead(lock, &raw mut state, 0));
        call!(NdisFreeRWLock(lock));
    }
    a_lock_that_is_kept breaks LockHeld by {
        let mut state = LockState::default();
        call!(NdisAcquireRWLockWrite(allocate(), &raw mut state, 0));
    }
    a_reader_who_becomes_a_writer breaks RecursiveLock by {
        let (lock, mut outer, mut inner) = (allocate(), LockState::default(), LockState::default());
        call!(NdisAcquireRWLockRead(lock, &raw mut outer, 0));
        call!(NdisAcquireRWLockWrite(lock, &raw mut inner, 0));
    }
    one_state_for_two_acquisitions breaks BadArgument by {
        let (lock, mut state) = (allocate(), LockState::default());
        call!(NdisAcquireRWLockRead(lock, &raw mut state, 0));
        call!(NdisAcquireRWLockRead(lock, &raw mut state, 0));
    }
    an_outer_acquisition_released_first breaks LockNotHeld by {
        let (lock, mut outer, mut inner) = (allocate(), LockState::default(), LockState::default());
        call!(NdisAcquireRWLockRead(lock, &raw mut outer, 0));
        call!(NdisAcquireRWLockRead(lock, &raw mut inner, 0));
        call!(NdisReleaseRWLock(lock, &raw mut outer));
    }
    a_state_that_is_overwritten breaks Uninitialised by {
        let (lock, mut state) = (allocate(), LockState::default());
        call!(NdisAcquireRWLockRead(lock, &raw mut state, 0));
        state[0] = 1;
        call!(NdisReleaseRWLock(lock, &raw mut state));
    }
    a_lock_released_that_is_not_held breaks LockNotHeld by {
        let mut state = LockState::default();
        call!(NdisReleaseRWLock(allocate(), &raw mut state));
    }
    a_flag_that_is_not_true breaks IrqlNotRaised by {
        let mut state = LockState::default();
        call!(NdisAcquireRWLockRead(allocate(), &raw mut state, AT_DISPATCH_LEVEL));
    }
    a_flag_that_is_none breaks BadArgument by {
        let mut state = LockState::default();
        call!(NdisAcquireRWLockRead(allocate(), &raw mut state, 2));
    }
}
