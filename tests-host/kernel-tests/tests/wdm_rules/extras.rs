//! Bits, guarded regions, local time, sections that are locked, the extended state of a processor, completion routines that keep their
//! driver loaded, copies of strings.

use std::ptr;

use simulated_kernel::{Rule, caught};
use wdk_sys::{
    IO_STACK_LOCATION, IRP, LARGE_INTEGER, NTSTATUS, PDEVICE_OBJECT, PIRP, POOL_FLAG_NON_PAGED, PVOID,
    STATUS_MORE_PROCESSING_REQUIRED, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateIrp, IoFreeIrp, IofCallDriver, KeAreAllApcsDisabled, KeLowerIrql,
        KfRaiseIrql,
    },
};

use crate::{
    asked::{call, tests},
    driver::{self, CODE, Parts, complete, run},
};

/// `RTL_BITMAP`.
#[repr(C)]
struct Bitmap {
    size: u32,
    words: *mut u32,
}

/// `XSTATE_SAVE`, which is opaque.
type ExtendedState = [u64; 8];

type Completion = unsafe extern "C" fn(PDEVICE_OBJECT, PIRP, PVOID) -> NTSTATUS;

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn RtlSetBit(bitmap: *mut Bitmap, bit: u32);
    fn RtlClearBit(bitmap: *mut Bitmap, bit: u32);
    fn RtlTestBit(bitmap: *const Bitmap, bit: u32) -> u8;
    fn KeEnterGuardedRegion();
    fn KeLeaveGuardedRegion();
    fn KeAreApcsDisabled() -> u8;
    fn ExSystemTimeToLocalTime(system: *const LARGE_INTEGER, local: *mut LARGE_INTEGER);
    fn ExLocalTimeToSystemTime(local: *const LARGE_INTEGER, system: *mut LARGE_INTEGER);
    fn MmLockPagableDataSection(address: PVOID) -> PVOID;
    fn MmLockPagableSectionByHandle(handle: PVOID);
    fn MmUnlockPagableImageSection(handle: PVOID);
    fn MmPageEntireDriver(address: PVOID) -> PVOID;
    fn MmResetDriverPaging(address: PVOID);
    fn KeSaveExtendedProcessorState(mask: u64, place: *mut ExtendedState) -> NTSTATUS;
    fn KeRestoreExtendedProcessorState(place: *mut ExtendedState);
    fn IoSetCompletionRoutineEx(
        device: PDEVICE_OBJECT,
        irp: PIRP,
        completion: Option<Completion>,
        argument: PVOID,
        on_success: u8,
        on_error: u8,
        on_cancel: u8,
    ) -> NTSTATUS;
    fn RtlDowncaseUnicodeString(target: *mut UNICODE_STRING, source: *const UNICODE_STRING, allocates: u8) -> NTSTATUS;
    fn RtlDuplicateUnicodeString(flags: u32, source: *const UNICODE_STRING, target: *mut UNICODE_STRING) -> NTSTATUS;
    fn RtlFreeUnicodeString(string: *mut UNICODE_STRING);
}

const TAG: u32 = u32::from_ne_bytes(*b"Extr");
const INVALID_PARAMETER: NTSTATUS = 0xC000_000D_u32.cast_signed();

/// Any AVX state.
const AVX: u64 = 4;

fn string(units: &mut [u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(size_of_val(units)).expect("a short string");
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() }
}

/// A string's units, and how many bytes it has room for.
fn units(string: &UNICODE_STRING) -> (Vec<u16>, u16) {
    // SAFETY: a string that a routine has made, or the test.
    let units = unsafe { std::slice::from_raw_parts(string.Buffer, usize::from(string.Length) / 2) };
    (units.to_vec(), string.MaximumLength)
}

fn letters(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

fn place() -> *mut ExtendedState {
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size_of::<ExtendedState>() as u64, TAG)).cast()
}

tests! {
    a_bit_is_set_tested_and_cleared by {
        let mut words = [0_u32; 2];
        let mut bitmap = Bitmap { size: 40, words: words.as_mut_ptr() };
        call!(RtlSetBit(&raw mut bitmap, 0));
        call!(RtlSetBit(&raw mut bitmap, 39));
        assert_eq!([0, 1, 38, 39].map(|bit| call!(RtlTestBit(&raw const bitmap, bit))), [1, 0, 0, 1]);
        call!(RtlClearBit(&raw mut bitmap, 39));
        assert_eq!(call!(RtlTestBit(&raw const bitmap, 39)), 0);
        assert_eq!(words, [1, 0]);
    }
    no_apc_comes_in_a_guarded_region by {
        assert_eq!((call!(KeAreApcsDisabled()), call!(KeAreAllApcsDisabled())), (0, 0));
        call!(KeEnterGuardedRegion());
        call!(KeEnterGuardedRegion());
        call!(KeLeaveGuardedRegion());
        assert_eq!((call!(KeAreApcsDisabled()), call!(KeAreAllApcsDisabled())), (1, 1));
        call!(KeLeaveGuardedRegion());
        assert_eq!((call!(KeAreApcsDisabled()), call!(KeAreAllApcsDisabled())), (0, 0));
    }
    the_local_time_is_that_of_the_system by {
        let (system, mut local, mut again) = (LARGE_INTEGER { QuadPart: 77 }, LARGE_INTEGER::default(), LARGE_INTEGER::default());
        call!(ExSystemTimeToLocalTime(&raw const system, &raw mut local));
        call!(ExLocalTimeToSystemTime(&raw const local, &raw mut again));
        // SAFETY: the arm that has the whole number.
        assert_eq!(unsafe { (local.QuadPart, again.QuadPart) }, (77, 77));
    }
    a_section_is_locked_as_often_as_it_is_unlocked by {
        let handle = call!(MmLockPagableDataSection(ptr::without_provenance_mut(0x1_2345)));
        call!(MmLockPagableSectionByHandle(handle));
        call!(MmUnlockPagableImageSection(handle));
        call!(MmUnlockPagableImageSection(handle));
        call!(MmLockPagableSectionByHandle(handle));
        assert_eq!(call!(MmPageEntireDriver(ptr::without_provenance_mut(0x1_2345))).addr(), 0x1_2000);
        call!(MmResetDriverPaging(handle));
    }
    two_addresses_may_be_in_one_section by {
        let one = call!(MmLockPagableDataSection(ptr::without_provenance_mut(0x1_2345)));
        call!(MmLockPagableDataSection(ptr::without_provenance_mut(0x1_6789)));
        call!(MmUnlockPagableImageSection(one));
        call!(MmUnlockPagableImageSection(one));
    }
    the_extended_state_is_saved_and_restored by {
        let place = place();
        assert_eq!(call!(KeSaveExtendedProcessorState(AVX, place)), STATUS_SUCCESS);
        call!(KeRestoreExtendedProcessorState(place));
        assert_eq!(call!(KeSaveExtendedProcessorState(AVX, place)), STATUS_SUCCESS);
        call!(KeRestoreExtendedProcessorState(place));
        call!(ExFreePoolWithTag(place.cast(), TAG));
    }
    a_string_is_copied_and_made_small by {
        let (mut source, mut empty) = (letters("NdK"), []);
        let (source, empty) = (string(&mut source), string(&mut empty));
        let mut copy = UNICODE_STRING::default();
        assert_eq!(call!(RtlDowncaseUnicodeString(&raw mut copy, &raw const source, 1)), STATUS_SUCCESS);
        assert_eq!(units(&copy), (letters("ndk"), 6));
        call!(RtlFreeUnicodeString(&raw mut copy));
        assert_eq!(call!(RtlDuplicateUnicodeString(1, &raw const source, &raw mut copy)), STATUS_SUCCESS);
        assert_eq!(units(&copy), (letters("NdK"), 8));
        call!(RtlFreeUnicodeString(&raw mut copy));
        assert_eq!(call!(RtlDuplicateUnicodeString(1, &raw const empty, &raw mut copy)), STATUS_SUCCESS);
        assert!(copy.Buffer.is_null());
        assert_eq!(call!(RtlDuplicateUnicodeString(3, &raw const empty, &raw mut copy)), STATUS_SUCCESS);
        assert_eq!((copy.Length, copy.MaximumLength), (0, 2));
        call!(RtlFreeUnicodeString(&raw mut copy));
        assert_eq!(call!(RtlDuplicateUnicodeString(2, &raw const source, &raw mut copy)), INVALID_PARAMETER);
    }

    a_bit_that_the_bitmap_does_not_have breaks BadArgument by {
        let mut words = [0_u32; 2];
        let mut bitmap = Bitmap { size: 40, words: words.as_mut_ptr() };
        call!(RtlSetBit(&raw mut bitmap, 40));
    }
    a_guarded_region_that_is_left_twice breaks CriticalRegion by {
        call!(KeEnterGuardedRegion());
        call!(KeLeaveGuardedRegion());
        call!(KeLeaveGuardedRegion());
    }
    a_guarded_region_that_is_not_left breaks CriticalRegion by { call!(KeEnterGuardedRegion()); }
    a_guarded_region_at_dispatch_level breaks IrqlTooHigh by {
        let before = call!(KfRaiseIrql(2));
        call!(KeEnterGuardedRegion());
        call!(KeLowerIrql(before));
    }
    a_section_that_is_unlocked_twice breaks ReferenceUnderflow by {
        let handle = call!(MmLockPagableDataSection(ptr::without_provenance_mut(0x1_2345)));
        call!(MmUnlockPagableImageSection(handle));
        call!(MmUnlockPagableImageSection(handle));
    }
    a_section_that_was_never_locked breaks BadHandle by {
        call!(MmLockPagableSectionByHandle(ptr::without_provenance_mut(0x1000)));
    }
    an_extended_state_that_is_restored_twice breaks BadArgument by {
        let place = place();
        call!(KeSaveExtendedProcessorState(AVX, place));
        call!(KeRestoreExtendedProcessorState(place));
        call!(KeRestoreExtendedProcessorState(place));
    }
    an_extended_state_that_is_restored_at_another_level breaks BadArgument by {
        let place = place();
        call!(KeSaveExtendedProcessorState(AVX, place));
        call!(KfRaiseIrql(2));
        call!(KeRestoreExtendedProcessorState(place));
    }
    an_extended_state_that_is_never_restored breaks ReferenceLeak by {
        call!(KeSaveExtendedProcessorState(AVX, Box::leak(Box::new([0; 8]))));
    }
}

/// Keeps the IRP, and marks its argument.
unsafe extern "C" fn completed(_: PDEVICE_OBJECT, _: PIRP, argument: PVOID) -> NTSTATUS {
    // SAFETY: the flag of who has sent the IRP, which waits.
    unsafe { *argument.cast::<bool>() = true };
    STATUS_MORE_PROCESSING_REQUIRED
}

/// A request of the driver's to its own device, of another control code than the test's.
fn to_itself(device: PDEVICE_OBJECT) -> *mut IRP {
    let irp = call!(IoAllocateIrp(1, 0));
    let next: *mut IO_STACK_LOCATION = driver::location(irp).wrapping_sub(1);
    // SAFETY: the next location of a new IRP.
    let next = unsafe { &mut *next };
    (next.MajorFunction, next.DeviceObject) = (14, device);
    irp
}

#[test]
fn a_completion_routine_that_keeps_its_driver_loaded_is_called() {
    let control = |device, irp| {
        // SAFETY: the location of a control code.
        let code = unsafe { (*driver::location(irp)).Parameters.DeviceIoControl.IoControlCode };
        if code != CODE {
            return complete(irp, STATUS_SUCCESS, 0);
        }
        let (own, mut is_called) = (to_itself(device), false);
        let argument = (&raw mut is_called).cast();
        assert_eq!(call!(IoSetCompletionRoutineEx(device, own, Some(completed), argument, 1, 1, 1)), STATUS_SUCCESS);
        assert_eq!(call!(IofCallDriver(device, own)), STATUS_SUCCESS);
        assert!(is_called);
        call!(IoFreeIrp(own));
        complete(irp, STATUS_SUCCESS, 0)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

#[test]
fn a_completion_routine_without_a_location_for_it() {
    let test = concat!(module_path!(), "::a_completion_routine_without_a_location_for_it");
    caught(test, Rule::IrpStackLocations, || {
        let control = |device, irp: PIRP| {
            // The lowest driver has nobody to pass it to.
            call!(IoSetCompletionRoutineEx(device, irp, Some(completed), ptr::null_mut(), 1, 1, 1));
            complete(irp, STATUS_SUCCESS, 0)
        };
        run(Parts { control, ..Parts::default() }, |_, _, file| drop(file.control(CODE, &[], 0)));
    });
}
