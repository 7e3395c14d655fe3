//! Processors, what runs on which of them, and where APCs may come.

#![expect(clippy::unnecessary_box_returns, reason = "objects of the kernel stay where they were initialised")]

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::DuringRun;
use wdk_sys::{
    _KDPC_IMPORTANCE, ALL_PROCESSOR_GROUPS, BOOLEAN, FAST_MUTEX, GROUP_AFFINITY, KDPC, KSPIN_LOCK, PROCESSOR_NUMBER,
    PVOID, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
    ntddk::{
        KeAcquireSpinLockAtDpcLevel, KeAreAllApcsDisabled, KeEnterCriticalRegion, KeFlushQueuedDpcs,
        KeGetCurrentProcessorNumberEx, KeGetProcessorIndexFromNumber, KeGetProcessorNumberFromIndex, KeInitializeDpc,
        KeInitializeSpinLock, KeInsertQueueDpc, KeLeaveCriticalRegion, KeLowerIrql, KeQueryActiveGroupCount,
        KeQueryActiveProcessorCountEx, KeQueryGroupAffinity, KeQueryMaximumProcessorCountEx,
        KeReleaseSpinLockFromDpcLevel, KeRevertToUserGroupAffinityThread, KeSetImportanceDpc,
        KeSetSystemGroupAffinityThread, KeSetTargetProcessorDpcEx, KeShouldYieldProcessor, KfRaiseIrql,
    },
};

use crate::asked::{call, tests};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn KeInitializeGuardedMutex(place: *mut FAST_MUTEX);
    fn KeAcquireGuardedMutex(place: *mut FAST_MUTEX);
    fn KeReleaseGuardedMutex(place: *mut FAST_MUTEX);
    fn KeAreApcsDisabled() -> BOOLEAN;
}

fn here() -> u32 {
    call!(KeGetCurrentProcessorNumberEx(ptr::null_mut()))
}

fn affinity(group: u16, mask: u64) -> GROUP_AFFINITY {
    GROUP_AFFINITY { Mask: mask, Group: group, ..GROUP_AFFINITY::default() }
}

/// Binds the thread. What it says of the affinity before.
fn bind(mut to: GROUP_AFFINITY) -> (u16, u64) {
    let mut before = affinity(7, 7);
    call!(KeSetSystemGroupAffinityThread(&raw mut to, &raw mut before));
    (before.Group, before.Mask)
}

fn revert(group: u16, mask: u64) {
    let mut to = affinity(group, mask);
    call!(KeRevertToUserGroupAffinityThread(&raw mut to));
}

/// The calls that have run, a digit each, the first in front.
static RAN: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn ran(_: *mut KDPC, digit: PVOID, _: PVOID, _: PVOID) {
    let digit = u32::try_from(digit.addr()).expect("a digit");
    RAN.store(10 * RAN.load(SeqCst) + digit, SeqCst);
}

fn dpc(digit: usize) -> Box<KDPC> {
    let mut dpc = Box::new(KDPC::default());
    call!(KeInitializeDpc(&raw mut *dpc, Some(ran), ptr::without_provenance_mut(digit)));
    dpc
}

fn guarded_mutex() -> Box<FAST_MUTEX> {
    let mut mutex = Box::new(FAST_MUTEX::default());
    call!(KeInitializeGuardedMutex(&raw mut *mutex));
    mutex
}

tests! {
    there_is_one_group_of_processors by {
        let all_groups = u16::try_from(ALL_PROCESSOR_GROUPS).expect("a group");
        let before = call!(KfRaiseIrql(15));
        assert_eq!(call!(KeQueryActiveGroupCount()), 1);
        let count = call!(KeQueryActiveProcessorCountEx(0));
        assert!(count > 1);
        assert_eq!(call!(KeQueryActiveProcessorCountEx(all_groups)), count);
        assert_eq!(call!(KeQueryMaximumProcessorCountEx(all_groups)), count);
        assert_eq!(call!(KeQueryMaximumProcessorCountEx(0)), count);
        assert_eq!(call!(KeQueryGroupAffinity(0)).count_ones(), count);
        // A group that is not there has no processors.
        assert_eq!([call!(KeQueryActiveProcessorCountEx(1)), call!(KeQueryMaximumProcessorCountEx(1))], [0, 0]);
        assert_eq!(call!(KeQueryGroupAffinity(1)), 0);
        for index in 0..count {
            let mut number = PROCESSOR_NUMBER { Group: 9, Number: 9, Reserved: 9 };
            assert_eq!(call!(KeGetProcessorNumberFromIndex(index, &raw mut number)), STATUS_SUCCESS);
            assert_eq!((number.Group, u32::from(number.Number), number.Reserved), (0, index, 0));
            assert_eq!(call!(KeGetProcessorIndexFromNumber(&raw mut number)), index);
        }
        let mut number = PROCESSOR_NUMBER::default();
        assert_eq!(call!(KeGetProcessorNumberFromIndex(count, &raw mut number)), STATUS_INVALID_PARAMETER);
        let past = u8::try_from(count).expect("few processors");
        for (group, index, reserved) in [(0, past, 0), (1, 0, 0), (0, 0, 1)] {
            let mut number = PROCESSOR_NUMBER { Group: group, Number: index, Reserved: reserved };
            // `INVALID_PROCESSOR_INDEX`.
            assert_eq!(call!(KeGetProcessorIndexFromNumber(&raw mut number)), u32::MAX);
        }
        call!(KeLowerIrql(before));
    }

    a_thread_runs_where_it_is_bound_until_that_is_undone by {
        let count = call!(KeQueryActiveProcessorCountEx(0));
        let first = bind(affinity(0, 1));
        assert_eq!((first, here()), ((0, 0), 0), "it was bound to none");
        for index in 1..count {
            // Calls in each other: each gives back what was before it.
            let before = bind(affinity(0, 1 << index));
            assert_eq!((before, here()), ((0, 1), index));
            revert(before.0, before.1);
            assert_eq!(here(), 0);
        }
        let mut second = affinity(0, 0b10);
        call!(KeSetSystemGroupAffinityThread(&raw mut second, ptr::null_mut()));
        assert_eq!(here(), 1, "what was before is optional");
        revert(first.0, first.1);
    }
    processors_that_are_not_there_change_nothing by {
        let count = call!(KeQueryActiveProcessorCountEx(0));
        let before = bind(affinity(0, 0b10));
        // No such group, no processor, and one too many.
        for wrong in [affinity(1, 1), affinity(0, 0), affinity(0, 1 << count), affinity(0, (1 << count) | 1)] {
            assert_eq!((bind(wrong), here()), ((0, 0), 1));
        }
        assert_eq!(bind(affinity(0, 1)), (0, 0b10), "what holds is what was asked for last in vain or not");
        revert(before.0, before.1);
    }
    a_thread_is_bound_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        bind(affinity(0, 1));
    }
    a_thread_is_given_back_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        revert(0, 0);
    }

    a_call_of_high_importance_overtakes by {
        let mut dpcs = [dpc(1), dpc(2), dpc(3)];
        let mut here = PROCESSOR_NUMBER::default();
        for dpc in &mut dpcs {
            assert_eq!(call!(KeSetTargetProcessorDpcEx(&raw mut **dpc, &raw mut here)), STATUS_SUCCESS);
        }
        // Bound to the same processor at DISPATCH_LEVEL, so that none of them runs meanwhile.
        let bound = bind(affinity(0, 1));
        let mut runs = |importance| {
            RAN.store(0, SeqCst);
            let before = call!(KfRaiseIrql(2));
            call!(KeSetImportanceDpc(&raw mut *dpcs[2], importance));
            for dpc in &mut dpcs {
                assert_eq!(call!(KeInsertQueueDpc(&raw mut **dpc, ptr::null_mut(), ptr::null_mut())), 1);
            }
            call!(KeLowerIrql(before));
            call!(KeFlushQueuedDpcs());
            RAN.load(SeqCst)
        };
        assert_eq!(runs(_KDPC_IMPORTANCE::HighImportance), 312);
        for importance in [
            _KDPC_IMPORTANCE::LowImportance,
            _KDPC_IMPORTANCE::MediumImportance,
            _KDPC_IMPORTANCE::MediumHighImportance,
        ] {
            assert_eq!(runs(importance), 123, "at the end of the queue");
        }
        revert(bound.0, bound.1);
    }
    a_call_of_no_importance breaks BadArgument by { call!(KeSetImportanceDpc(&raw mut *dpc(1), 4)); }
    the_importance_of_a_call_that_is_none breaks Uninitialised by {
        call!(KeSetImportanceDpc(&raw mut *Box::new(KDPC::default()), _KDPC_IMPORTANCE::HighImportance));
    }

    a_lock_that_is_taken_at_dispatch_level_leaves_the_level by {
        let mut lock: Box<KSPIN_LOCK> = Box::new(0);
        call!(KeInitializeSpinLock(&raw mut *lock));
        let before = call!(KfRaiseIrql(2));
        for _ in 0..2 {
            call!(KeAcquireSpinLockAtDpcLevel(&raw mut *lock));
            call!(KeReleaseSpinLockFromDpcLevel(&raw mut *lock));
            assert_eq!(simulated_kernel::irql(), 2);
        }
        assert_eq!(call!(KeShouldYieldProcessor()), 0, "nobody waits for the processor");
        call!(KeLowerIrql(before));
    }
    a_lock_that_nobody_has_is_released_at_dispatch_level breaks LockNotHeld by {
        let mut lock: Box<KSPIN_LOCK> = Box::new(0);
        call!(KeInitializeSpinLock(&raw mut *lock));
        call!(KfRaiseIrql(2));
        call!(KeReleaseSpinLockFromDpcLevel(&raw mut *lock));
    }
    whether_to_yield_is_asked_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        call!(KeShouldYieldProcessor());
    }

    apcs_of_every_kind_are_kept_off_by_a_guarded_region_and_by_the_level by {
        let apcs = || (call!(KeAreApcsDisabled()), call!(KeAreAllApcsDisabled()));
        assert_eq!(apcs(), (0, 0));
        call!(KeEnterCriticalRegion());
        assert_eq!(apcs(), (1, 0), "a special one may come");
        let mut mutex = guarded_mutex();
        call!(KeAcquireGuardedMutex(&raw mut *mutex));
        assert_eq!(apcs(), (1, 1));
        call!(KeReleaseGuardedMutex(&raw mut *mutex));
        assert_eq!(apcs(), (1, 0));
        call!(KeLeaveCriticalRegion());
        for level in [1, 2] {
            let before = call!(KfRaiseIrql(level));
            assert_eq!(call!(KeAreAllApcsDisabled()), 1);
            call!(KeLowerIrql(before));
        }
        assert_eq!(apcs(), (0, 0));
    }
    whether_apcs_come_is_asked_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        call!(KeAreAllApcsDisabled());
    }
}
