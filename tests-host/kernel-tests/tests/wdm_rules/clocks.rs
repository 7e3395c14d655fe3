//! Clocks, timers and events: what they are when somebody asks.

#![expect(clippy::unnecessary_box_returns, reason = "objects of the kernel stay where they were initialised")]

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::DuringRun;
use wdk_sys::{
    _TIMER_TYPE, EX_RUNDOWN_REF, KDPC, KEVENT, KTIMER, LARGE_INTEGER, NTSTATUS, PVOID, STATUS_SUCCESS, STATUS_TIMEOUT,
    ntddk::{
        ExAcquireRundownProtection, ExInitializeRundownProtection, ExReInitializeRundownProtection,
        ExReleaseRundownProtection, ExWaitForRundownProtectionRelease, KeCancelTimer, KeClearEvent,
        KeDelayExecutionThread, KeFlushQueuedDpcs, KeInitializeDpc, KeInitializeEvent, KeInitializeTimerEx,
        KeLowerIrql, KeQueryInterruptTimePrecise, KeQueryPerformanceCounter, KeQuerySystemTimePrecise,
        KeQueryUnbiasedInterruptTime, KeReadStateEvent, KeReadStateTimer, KeResetEvent, KeSetCoalescableTimer,
        KeSetEvent, KeSetTimer, KeWaitForSingleObject, KfRaiseIrql,
    },
};

use crate::asked::{call, tests};

fn sleep(microseconds: i64) {
    let mut interval = due(microseconds);
    assert_eq!(call!(KeDelayExecutionThread(0, 0, &raw mut interval)), STATUS_SUCCESS);
}

fn due(microseconds: i64) -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: -10 * microseconds }
}

fn wait_no_time(object: PVOID) -> NTSTATUS {
    let mut none = LARGE_INTEGER { QuadPart: 0 };
    call!(KeWaitForSingleObject(object, 0, 0, 0, &raw mut none))
}

fn number(of: LARGE_INTEGER) -> u64 {
    // SAFETY: every value of the union's numbers is one.
    unsafe { of.QuadPart }.cast_unsigned()
}

fn date() -> u64 {
    let mut date = LARGE_INTEGER::default();
    call!(KeQuerySystemTimePrecise(&raw mut date));
    number(date)
}

/// What each clock says, in units of 100 nanoseconds.
fn clocks() -> [u64; 4] {
    let (mut counter, mut frequency) = (0, LARGE_INTEGER::default());
    let interrupt = call!(KeQueryInterruptTimePrecise(&raw mut counter));
    assert!(counter.abs_diff(interrupt) < 100, "both are of one time");
    let performance = number(call!(KeQueryPerformanceCounter(&raw mut frequency)));
    assert_eq!(number(frequency), 10_000_000);
    assert!(number(call!(KeQueryPerformanceCounter(ptr::null_mut()))) > performance, "the frequency is optional");
    [interrupt, call!(KeQueryUnbiasedInterruptTime()), performance, date()]
}

static EXPIRED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn expired(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {
    EXPIRED.fetch_add(1, SeqCst);
}

fn timer(kind: _TIMER_TYPE::Type) -> Box<KTIMER> {
    let mut timer = Box::new(KTIMER::default());
    call!(KeInitializeTimerEx(&raw mut *timer, kind));
    timer
}

fn event(kind: i32, set: u8) -> Box<KEVENT> {
    let mut event = Box::new(KEVENT::default());
    call!(KeInitializeEvent(&raw mut *event, kind, set));
    event
}

fn rundown() -> Box<EX_RUNDOWN_REF> {
    let mut rundown = Box::new(EX_RUNDOWN_REF::default());
    call!(ExInitializeRundownProtection(&raw mut *rundown));
    rundown
}

tests! {
    clocks_go_forward_together_at_any_level by {
        let first = clocks();
        sleep(1_000);
        let second = clocks();
        for (before, after) in first.into_iter().zip(second) {
            assert!((10_000..20_000).contains(&(after - before)), "a millisecond is {}", after - before);
        }
        let before = call!(KfRaiseIrql(15));
        let third = clocks();
        assert!(second.into_iter().zip(third).all(|(before, after)| before < after));
        call!(KeLowerIrql(before));
    }

    an_event_is_set_until_it_is_reset_or_taken by {
        for (kind, stays) in [(0, true), (1, false)] {
            let mut event = event(kind, 0);
            let place = &raw mut *event;
            assert_eq!(call!(KeReadStateEvent(place)), 0);
            assert_eq!([call!(KeSetEvent(place, 0, 0)), call!(KeSetEvent(place, 0, 0))], [0, 1], "what it was before");
            assert_eq!(call!(KeReadStateEvent(place)), 1, "a look takes nothing");
            assert_eq!(wait_no_time(place.cast()), STATUS_SUCCESS);
            assert_eq!(call!(KeReadStateEvent(place)), i32::from(stays), "kind {kind}");
            call!(KeSetEvent(place, 0, 0));
            assert_eq!([call!(KeResetEvent(place)), call!(KeResetEvent(place))], [1, 0]);
            assert_eq!(wait_no_time(place.cast()), STATUS_TIMEOUT);
            call!(KeSetEvent(place, 0, 0));
            let before = call!(KfRaiseIrql(2));
            call!(KeClearEvent(place));
            assert_eq!(call!(KeReadStateEvent(place)), 0);
            call!(KeLowerIrql(before));
        }
    }
    an_event_is_cleared_above_dispatch_level breaks IrqlTooHigh by {
        let mut event = event(0, 1);
        call!(KfRaiseIrql(3));
        call!(KeClearEvent(&raw mut *event));
    }
    an_event_is_reset_above_dispatch_level breaks IrqlTooHigh by {
        let mut event = event(0, 1);
        call!(KfRaiseIrql(3));
        call!(KeResetEvent(&raw mut *event));
    }
    an_event_is_read_above_dispatch_level breaks IrqlTooHigh by {
        let mut event = event(0, 1);
        call!(KfRaiseIrql(3));
        call!(KeReadStateEvent(&raw mut *event));
    }
    an_event_that_was_copied_is_reset breaks MovedObject by {
        let event = event(0, 1);
        // SAFETY: an event of the driver's.
        let mut copy = Box::new(unsafe { ptr::from_ref(&*event).read() });
        call!(KeResetEvent(&raw mut *copy));
    }
    an_event_that_is_none_is_cleared breaks Uninitialised by {
        call!(KeClearEvent(&raw mut *Box::new(KEVENT::default())));
    }

    a_timer_is_set_until_it_is_due_and_one_kind_is_taken by {
        for (kind, stays) in [(_TIMER_TYPE::NotificationTimer, true), (_TIMER_TYPE::SynchronizationTimer, false)] {
            let mut timer = timer(kind);
            let (place, no_dpc) = (&raw mut *timer, ptr::null_mut());
            assert_eq!(call!(KeReadStateTimer(place)), 0);
            assert_eq!([call!(KeSetTimer(place, due(500), no_dpc)), call!(KeSetTimer(place, due(500), no_dpc))], [0, 1]);
            assert_eq!(call!(KeReadStateTimer(place)), 0);
            sleep(1_000);
            assert_eq!(call!(KeReadStateTimer(place)), 1, "and nobody has waited for it");
            assert_eq!(wait_no_time(place.cast()), STATUS_SUCCESS);
            assert_eq!(call!(KeReadStateTimer(place)), u8::from(stays));
            assert_eq!(call!(KeSetTimer(place, due(1_000_000), no_dpc)), 0, "it was in no queue");
            let before = call!(KfRaiseIrql(2));
            assert_eq!(call!(KeReadStateTimer(place)), 0, "it is set anew");
            call!(KeLowerIrql(before));
            assert_eq!([call!(KeCancelTimer(place)), call!(KeCancelTimer(place))], [1, 0]);
        }
    }
    a_timer_that_may_be_late_comes_and_comes_again by {
        EXPIRED.store(0, SeqCst);
        let (mut timer, mut dpc) = (timer(_TIMER_TYPE::NotificationTimer), Box::new(KDPC::default()));
        let (place, call) = (&raw mut *timer, &raw mut *dpc);
        call!(KeInitializeDpc(call, Some(expired), ptr::null_mut()));
        // Once: the tolerance is in milliseconds, as the period is.
        assert_eq!(call!(KeSetCoalescableTimer(place, due(1_000), 0, 5, call)), 0);
        sleep(20_000);
        assert_eq!(EXPIRED.swap(0, SeqCst), 1);
        assert_eq!(call!(KeSetCoalescableTimer(place, due(1_000), 2, 1, call)), 0);
        sleep(20_000);
        assert_eq!(call!(KeSetCoalescableTimer(place, due(1_000_000), 0, 0, call)), 1, "it is set still");
        assert_eq!(call!(KeCancelTimer(place)), 1);
        assert!(EXPIRED.load(SeqCst) >= 5, "{}", EXPIRED.load(SeqCst));
        flush();
    }
    a_timer_of_no_kind breaks BadArgument by { timer(2); }
    a_timer_is_made_above_dispatch_level breaks IrqlTooHigh by {
        let mut timer = Box::new(KTIMER::default());
        call!(KfRaiseIrql(3));
        call!(KeInitializeTimerEx(&raw mut *timer, _TIMER_TYPE::NotificationTimer));
    }
    a_timer_is_read_above_dispatch_level breaks IrqlTooHigh by {
        let mut timer = timer(_TIMER_TYPE::NotificationTimer);
        call!(KfRaiseIrql(3));
        call!(KeReadStateTimer(&raw mut *timer));
    }
    a_timer_that_may_be_late_is_set_with_a_call_that_is_none breaks Uninitialised by {
        let (mut timer, mut dpc) = (timer(_TIMER_TYPE::NotificationTimer), Box::new(KDPC::default()));
        call!(KeSetCoalescableTimer(&raw mut *timer, due(1_000), 0, 5, &raw mut *dpc));
    }
    a_timer_that_may_be_late_is_freed_while_it_is_set breaks TimerFreedWhileSet by {
        let mut timer = timer(_TIMER_TYPE::NotificationTimer);
        call!(KeSetCoalescableTimer(&raw mut *timer, due(1_000_000), 0, 5, ptr::null_mut()));
        drop(timer);
    }

    protection_that_has_run_down_begins_again by {
        let mut rundown = rundown();
        let place = &raw mut *rundown;
        assert_eq!(call!(ExAcquireRundownProtection(place)), 1);
        call!(ExReleaseRundownProtection(place));
        call!(ExWaitForRundownProtectionRelease(place));
        assert_eq!(call!(ExAcquireRundownProtection(place)), 0);
        call!(ExReInitializeRundownProtection(place));
        assert_eq!(call!(ExAcquireRundownProtection(place)), 1);
        call!(ExReleaseRundownProtection(place));
    }
    protection_that_has_not_run_down_begins_again breaks BadArgument by {
        let mut rundown = rundown();
        call!(ExReInitializeRundownProtection(&raw mut *rundown));
    }
    protection_begins_again_at_dispatch_level breaks IrqlTooHigh by {
        let mut rundown = rundown();
        call!(ExWaitForRundownProtectionRelease(&raw mut *rundown));
        call!(KfRaiseIrql(2));
        call!(ExReInitializeRundownProtection(&raw mut *rundown));
    }
}

/// The DPC's memory goes next.
fn flush() {
    call!(KeFlushQueuedDpcs());
}
