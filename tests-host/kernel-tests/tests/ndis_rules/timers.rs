//! Timers of NDIS.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use miniport::Handlers;
use ndis::NDIS_STATUS;
use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER, status::NDIS_STATUS_SUCCESS};
use simulated_kernel::{DuringRun, Rule, caught, irql};
use wdk_sys::{
    BOOLEAN, LARGE_INTEGER,
    ntddk::{KeLowerIrql, KfRaiseIrql},
};

use crate::{lifecycle::run, miniport, own::call};

/// `NDIS_TIMER_CHARACTERISTICS`.
#[repr(C)]
struct Characteristics {
    header: NDIS_OBJECT_HEADER,
    tag: u32,
    function: Option<unsafe extern "system" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void)>,
    context: *mut c_void,
}

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisAllocateTimerObject(
        handle: NDIS_HANDLE,
        characteristics: *const Characteristics,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    fn NdisSetTimerObject(timer: NDIS_HANDLE, due: LARGE_INTEGER, period: i32, context: *mut c_void) -> BOOLEAN;
    fn NdisSetCoalescableTimerObject(
        timer: NDIS_HANDLE,
        due: LARGE_INTEGER,
        period: u32,
        context: *mut c_void,
        tolerance: u32,
    ) -> BOOLEAN;
    fn NdisCancelTimerObject(timer: NDIS_HANDLE) -> BOOLEAN;
    fn NdisFreeTimerObject(timer: NDIS_HANDLE);
    fn NdisMSleep(microseconds: u32);
}

/// Millisecond, as a due time from now on.
const MILLISECOND: i64 = -10_000;

/// The sum of the contexts of the calls.
static SUM: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

unsafe extern "system" fn add(first: *mut c_void, context: *mut c_void, second: *mut c_void, third: *mut c_void) {
    assert_eq!(irql(), 2, "at DISPATCH_LEVEL");
    assert!([first, second, third].iter().all(|reserved| reserved.is_null()));
    SUM.fetch_add(context.addr(), SeqCst);
}

fn characteristics() -> Characteristics {
    Characteristics {
        header: NDIS_OBJECT_HEADER { Type: 0x97, Revision: 1, Size: 24 },
        tag: u32::from_ne_bytes(*b"Test"),
        function: Some(add),
        context: ptr::without_provenance_mut(1),
    }
}

/// Asks for a timer: the status, and its handle.
fn try_allocate(characteristics: *const Characteristics) -> (NDIS_STATUS, NDIS_HANDLE) {
    let (adapter, mut timer) = (miniport::with(|world| world.adapter), ptr::null_mut());
    let status = call!(NdisAllocateTimerObject(adapter, characteristics, &raw mut timer));
    (status, timer)
}

fn allocate() -> NDIS_HANDLE {
    let said = characteristics();
    let (status, timer) = try_allocate(&raw const said);
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    timer
}

fn set(timer: NDIS_HANDLE, due: i64, period: i32, context: usize) -> BOOLEAN {
    let context = ptr::without_provenance_mut(context);
    call!(NdisSetTimerObject(timer, LARGE_INTEGER { QuadPart: due }, period, context))
}

/// Has a miniport driver do something, after which its adapter is halted and it is unloaded.
fn does(work: fn()) {
    run(Handlers::default(), |_, driver, _| {
        SUM.store(0, SeqCst);
        driver.run(work);
    });
}

#[test]
fn a_timer_expires_once_with_the_context_that_was_said_last() {
    does(|| {
        let timer = allocate();
        assert_eq!(
            [set(timer, MILLISECOND, 0, 0), set(timer, MILLISECOND, 0, 20)],
            [0, 1],
            "it was set the second time"
        );
        call!(NdisMSleep(10_000));
        assert_eq!(SUM.load(SeqCst), 20);
        assert_eq!(set(timer, MILLISECOND, 0, 0), 0);
        call!(NdisMSleep(10_000));
        assert_eq!(SUM.load(SeqCst), 21, "with the usual context");
        assert_eq!(call!(NdisCancelTimerObject(timer)), 0, "it has expired");
        call!(NdisFreeTimerObject(timer));
    });
}

#[test]
fn a_periodic_timer_expires_until_it_is_cancelled() {
    does(|| {
        let timer = allocate();
        let before = call!(KfRaiseIrql(2));
        assert_eq!(set(timer, MILLISECOND, 2, 0), 0);
        call!(KeLowerIrql(before));
        call!(NdisMSleep(9500));
        assert_eq!(call!(NdisCancelTimerObject(timer)), 1);
        let calls = SUM.load(SeqCst);
        assert!((4..=5).contains(&calls), "{calls} calls after 1, 3, 5, 7 and 9 milliseconds");
        call!(NdisMSleep(10_000));
        assert_eq!(SUM.load(SeqCst), calls);
        call!(NdisFreeTimerObject(timer));
    });
}

#[test]
fn a_timer_that_is_cancelled_does_not_expire() {
    does(|| {
        let timer = allocate();
        set(timer, MILLISECOND, 0, 0);
        let before = call!(KfRaiseIrql(2));
        assert_eq!(call!(NdisCancelTimerObject(timer)), 1, "one that is not periodic at DISPATCH_LEVEL too");
        call!(NdisFreeTimerObject(timer));
        call!(KeLowerIrql(before));
        call!(NdisMSleep(10_000));
        assert_eq!(SUM.load(SeqCst), 0);
    });
}

#[test]
fn a_timer_that_may_wait_for_others_expires_too() {
    does(|| {
        let timer = allocate();
        let (due, said) = (LARGE_INTEGER { QuadPart: MILLISECOND }, ptr::without_provenance_mut(20));
        assert_eq!(call!(NdisSetCoalescableTimerObject(timer, due, 0, said, 50)), 0);
        assert_eq!(call!(NdisSetCoalescableTimerObject(timer, due, 0, said, 50)), 1, "it was set");
        call!(NdisMSleep(100_000));
        assert_eq!(SUM.load(SeqCst), 20);
        call!(NdisFreeTimerObject(timer));
    });
}

#[test]
fn a_timer_with_other_characteristics_is_refused() {
    /// `NDIS_STATUS_BAD_CHARACTERISTICS`.
    const BAD_CHARACTERISTICS: NDIS_STATUS = ndkpi::NtStatus(0xC001_0005_u32.cast_signed());
    does(|| {
        let header = NDIS_OBJECT_HEADER { Type: 0x97, Revision: 2, Size: 24 };
        for wrong in [
            Characteristics { header, ..characteristics() },
            Characteristics {
                header: NDIS_OBJECT_HEADER { Size: 16, ..characteristics().header },
                ..characteristics()
            },
            Characteristics { function: None, ..characteristics() },
        ] {
            assert_eq!(try_allocate(&raw const wrong).0, BAD_CHARACTERISTICS);
        }
        assert_eq!(try_allocate(ptr::null()).0, BAD_CHARACTERISTICS);
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
    a_timer_left_behind breaks ReferenceLeak by { allocate(); }
    a_timer_freed_while_it_is_set breaks TimerFreedWhileSet by {
        let timer = allocate();
        set(timer, MILLISECOND, 0, 0);
        call!(NdisFreeTimerObject(timer));
    }
    a_timer_freed_twice breaks BadHandle by {
        let timer = allocate();
        call!(NdisFreeTimerObject(timer));
        call!(NdisFreeTimerObject(timer));
    }
    a_timer_set_that_was_freed breaks BadHandle by {
        let timer = allocate();
        call!(NdisFreeTimerObject(timer));
        set(timer, MILLISECOND, 0, 0);
    }
    a_periodic_timer_cancelled_at_dispatch_level breaks IrqlTooHigh by {
        let timer = allocate();
        set(timer, MILLISECOND, 1, 0);
        call!(KfRaiseIrql(2));
        call!(NdisCancelTimerObject(timer));
    }
    a_timer_with_a_negative_period breaks BadArgument by { set(allocate(), MILLISECOND, -1, 0); }
    a_timer_without_a_tag breaks PoolTag by {
        let untagged = Characteristics { tag: 0, ..characteristics() };
        let _ = try_allocate(&raw const untagged);
    }
    a_timer_that_may_wait_with_a_period_that_is_too_long breaks BadArgument by {
        let due = LARGE_INTEGER { QuadPart: MILLISECOND };
        call!(NdisSetCoalescableTimerObject(allocate(), due, 0x8000_0000, ptr::null_mut(), 0));
    }
    a_timer_of_what_is_no_handle breaks BadHandle by {
        let (none, said, mut timer) = (ptr::without_provenance_mut(64), characteristics(), ptr::null_mut());
        let _ = call!(NdisAllocateTimerObject(none, &raw const said, &raw mut timer));
    }
}
