//! What drivers want called at a bug check: registered once, and removed before its memory and the driver go.

use std::ptr;

use wdk_sys::{
    BOOLEAN, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, PVOID, ULONG,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, KeLowerIrql, KfRaiseIrql},
};

use crate::asked::{call, tests};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn KeRegisterBugCheckCallback(
        record: PVOID,
        routine: PVOID,
        buffer: PVOID,
        length: ULONG,
        component: *const u8,
    ) -> BOOLEAN;
    fn KeDeregisterBugCheckCallback(record: PVOID) -> BOOLEAN;
    fn KeRegisterBugCheckReasonCallback(record: PVOID, routine: PVOID, reason: ULONG, component: *const u8) -> BOOLEAN;
    fn KeDeregisterBugCheckReasonCallback(record: PVOID) -> BOOLEAN;
}

const TAG: u32 = u32::from_ne_bytes(*b"Test");
const COMPONENT: *const u8 = c"plain".as_ptr().cast();
/// `KbCallbackSecondaryDumpData`.
const SECONDARY_DATA: ULONG = 2;

/// A routine, which nobody calls.
extern "C" fn at_a_bug_check(_: PVOID, _: ULONG) {}

fn routine() -> PVOID {
    let routine: extern "C" fn(PVOID, ULONG) = at_a_bug_check;
    routine as PVOID
}

/// A record, initialised as the kit's macro does it: all zeros.
fn record(flags: u64) -> PVOID {
    let record = call!(ExAllocatePool2(flags, 64, TAG));
    assert!(!record.is_null());
    record
}

fn register(record: PVOID) -> BOOLEAN {
    call!(KeRegisterBugCheckCallback(record, routine(), ptr::null_mut(), 0, COMPONENT))
}

tests! {
    a_callback_is_registered_once_and_removed_once by {
        let record = record(POOL_FLAG_NON_PAGED);
        let before = call!(KfRaiseIrql(15));
        assert_eq!([register(record), register(record)], [1, 0]);
        assert_eq!(call!(KeDeregisterBugCheckReasonCallback(record)), 0, "it has no reason");
        assert_eq!([call!(KeDeregisterBugCheckCallback(record)), call!(KeDeregisterBugCheckCallback(record))], [1, 0]);
        call!(KeLowerIrql(before));
        call!(ExFreePoolWithTag(record, TAG));
    }
    a_callback_with_a_reason_is_registered_again by {
        let record = record(POOL_FLAG_NON_PAGED);
        let with_reason = || call!(KeRegisterBugCheckReasonCallback(record, routine(), SECONDARY_DATA, COMPONENT));
        assert_eq!([with_reason(), with_reason()], [1, 0]);
        assert_eq!(call!(KeDeregisterBugCheckReasonCallback(record)), 1);
        assert_eq!(with_reason(), 1, "again");
        assert_eq!(call!(KeDeregisterBugCheckReasonCallback(record)), 1);
        call!(ExFreePoolWithTag(record, TAG));
    }
    a_callback_left_behind breaks ReferenceLeak by { register(record(POOL_FLAG_NON_PAGED)); }
    a_record_freed_that_is_registered breaks ReferenceLeak by {
        let record = record(POOL_FLAG_NON_PAGED);
        register(record);
        call!(ExFreePoolWithTag(record, TAG));
    }
    a_record_in_pageable_memory breaks PagedAtDispatch by { register(record(POOL_FLAG_PAGED)); }
    a_callback_without_a_routine breaks BadArgument by {
        let record = record(POOL_FLAG_NON_PAGED);
        call!(KeRegisterBugCheckCallback(record, ptr::null_mut(), ptr::null_mut(), 0, COMPONENT));
    }
}
