//! What the reference asks of arguments, levels and pairs of routines, each with a driver that does otherwise.

use std::{ffi::c_char, ptr};

use simulated_kernel::{Kernel, Rule, caught, object_attributes};
use wdk_sys::{
    ERESOURCE, EX_RUNDOWN_REF, FAST_MUTEX, FILE_DEVICE_UNKNOWN, HANDLE, IO_REMOVE_LOCK, IO_STATUS_BLOCK, KDPC, KEVENT,
    LOOKASIDE_LIST_EX, NTSTATUS, PDEVICE_OBJECT, PIRP, POOL_FLAG_NON_PAGED, PVOID, STATUS_INVALID_PARAMETER_4,
    STATUS_INVALID_PARAMETER_5, STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING, WORK_QUEUE_ITEM,
    ntddk::{
        ExAcquireFastMutex, ExAcquireFastMutexUnsafe, ExAcquireResourceSharedLite, ExAcquireSpinLockExclusive,
        ExAcquireSpinLockShared, ExAllocatePool2, ExAllocateTimer, ExCancelTimer, ExDeleteResourceLite, ExFreePool,
        ExInitializeLookasideListEx, ExInitializeResourceLite, ExInitializeRundownProtection, ExQueueWorkItem,
        ExReleaseFastMutex, ExReleaseFastMutexUnsafe, ExReleaseResourceLite, ExReleaseSpinLockExclusive,
        ExReleaseSpinLockShared, IoAcquireRemoveLockEx, IoAllocateWorkItem, IoBuildDeviceIoControlRequest,
        IoCreateDevice, IoInitializeRemoveLockEx, IoQueueWorkItem, IoReleaseRemoveLockAndWaitEx, KeEnterCriticalRegion,
        KeFlushQueuedDpcs, KeInitializeDpc, KeInitializeEvent, KeInsertQueueDpc, KeLeaveCriticalRegion, KeLowerIrql,
        KeQueryTimeIncrement, KeWaitForMultipleObjects, KfRaiseIrql, MmFreePagesFromMdl, PsCreateSystemThread, ZwClose,
        ZwSetValueKey, ZwWaitForSingleObject,
    },
};

use super::routines::{open_key, pages};
use crate::driver::{self, CODE, Parts, complete, run};

unsafe extern "C" {
    // The bindings leave these out, or have them with arguments of any number.
    fn DbgPrint(format: *const c_char) -> u32;
    fn ExRundownCompleted(place: *mut EX_RUNDOWN_REF);
    fn ExSetTimerResolution(desired: u32, set: u8) -> u32;
}

const TAG: u32 = u32::from_ne_bytes(*b"Refe");
const NON_PAGED: i32 = 512;

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn does(control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

/// Tests that break a rule by what they do before the driver completes its request.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by |$device:pat_param| $work:block)+) => {
        $(
            #[test]
            fn $name() {
                #[inline(never)]
                fn control($device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
                    $work
                    complete(irp, 0, 0)
                }
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(control));
            }
        )+
    };
}

/// A structure that stays where it is.
fn leak<T: Default>() -> *mut T {
    Box::leak(Box::default())
}

fn event() -> *mut KEVENT {
    let event = leak();
    call!(KeInitializeEvent(event, 0, 0));
    event
}

/// `ExInitializeFastMutex`, which is inline.
fn fast_mutex() -> *mut FAST_MUTEX {
    let place = leak::<FAST_MUTEX>();
    // SAFETY: a structure that nobody else knows.
    let mutex = unsafe { &mut *place };
    mutex.Count = 1;
    call!(KeInitializeEvent(&raw mut mutex.Event, 1, 0));
    place
}

fn remove_lock() -> *mut IO_REMOVE_LOCK {
    let place = leak();
    call!(IoInitializeRemoveLockEx(place, 0, 0, 0, BYTES));
    place
}

const BYTES: u32 = 32;
const _: () = assert!(size_of::<IO_REMOVE_LOCK>() == BYTES as usize);

unsafe extern "C" fn go_below(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {
    call!(KeLowerIrql(0));
    call!(KfRaiseIrql(2));
}

unsafe extern "C" fn nothing(_: PDEVICE_OBJECT, _: PVOID) {}

rules! {
    a_fast_mutex_released_below_apc_level breaks IrqlNotRaised by |_| {
        let mutex = fast_mutex();
        call!(ExAcquireFastMutex(mutex));
        call!(KeLowerIrql(0));
        call!(ExReleaseFastMutex(mutex));
    }

    a_fast_mutex_acquired_without_a_level_and_released_with_one breaks LockPrimitive by |_| {
        let mutex = fast_mutex();
        let before = call!(KfRaiseIrql(1));
        call!(ExAcquireFastMutexUnsafe(mutex));
        call!(ExReleaseFastMutex(mutex));
        call!(KeLowerIrql(before));
    }

    a_fast_mutex_acquired_with_a_level_and_released_without_one breaks LockPrimitive by |_| {
        let mutex = fast_mutex();
        call!(ExAcquireFastMutex(mutex));
        call!(ExReleaseFastMutexUnsafe(mutex));
    }

    a_resource_released_outside_of_a_critical_region breaks CriticalRegion by |_| {
        let resource = leak::<ERESOURCE>();
        call!(ExInitializeResourceLite(resource));
        call!(KeEnterCriticalRegion());
        call!(ExAcquireResourceSharedLite(resource, 1));
        call!(KeLeaveCriticalRegion());
        call!(ExReleaseResourceLite(resource));
    }

    a_lock_acquired_to_read_and_released_as_by_a_writer breaks LockPrimitive by |_| {
        let word = leak();
        let before = call!(ExAcquireSpinLockShared(word));
        call!(ExReleaseSpinLockExclusive(word, before));
    }

    a_lock_acquired_to_write_and_released_as_by_a_reader breaks LockPrimitive by |_| {
        let word = leak();
        let before = call!(ExAcquireSpinLockExclusive(word));
        call!(ExReleaseSpinLockShared(word, before));
    }

    run_down_protection_that_nobody_has_waited_for breaks BadArgument by |_| {
        let place = leak();
        call!(ExInitializeRundownProtection(place));
        call!(ExRundownCompleted(place));
    }

    a_remove_lock_used_again_after_the_removal breaks RemoveLock by |_| {
        let place = remove_lock();
        call!(IoAcquireRemoveLockEx(place, ptr::null_mut(), ptr::null_mut(), 0, BYTES));
        call!(IoReleaseRemoveLockAndWaitEx(place, ptr::null_mut(), BYTES));
        call!(IoInitializeRemoveLockEx(place, 0, 0, 0, BYTES));
    }

    a_dpc_that_goes_below_its_level breaks IrqlNotRestored by |_| {
        let dpc = leak::<KDPC>();
        call!(KeInitializeDpc(dpc, Some(go_below), ptr::null_mut()));
        call!(KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()));
        call!(KeFlushQueuedDpcs());
    }

    a_wait_of_no_kind breaks BadArgument by |_| {
        let mut objects: [PVOID; 1] = [event().cast()];
        let (nobody, blocks) = (ptr::null_mut(), ptr::null_mut());
        call!(KeWaitForMultipleObjects(1, objects.as_mut_ptr(), 2, 0, 0, 0, nobody, blocks));
    }

    a_tag_that_is_no_text breaks PoolTag by |_| {
        call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 16, 0x7469_0074));
        call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 16, 0x0102_0304));
    }

    a_lookaside_list_of_a_depth breaks BadArgument by |_| {
        let list = leak::<LOOKASIDE_LIST_EX>();
        call!(ExInitializeLookasideListEx(list, None, None, NON_PAGED, 0, 24, TAG, 8));
    }

    a_timer_cancelled_with_parameters breaks BadArgument by |_| {
        let timer = call!(ExAllocateTimer(None, ptr::null_mut(), 0));
        call!(ExCancelTimer(timer, leak::<[u64; 2]>().cast()));
    }

    a_work_item_for_a_queue_of_the_systems breaks BadArgument by |_| {
        call!(ExQueueWorkItem(leak::<WORK_QUEUE_ITEM>(), 2));
    }

    a_work_item_of_a_driver_queued_as_one_of_a_device breaks BadArgument by |device| {
        // SAFETY: the driver's device.
        let object = unsafe { (*device).DriverObject };
        let item = call!(IoAllocateWorkItem(object.cast()));
        call!(IoQueueWorkItem(item, Some(nothing), 1, ptr::null_mut()));
    }

    wide_text_printed_above_passive_level breaks IrqlTooHigh by |_| {
        let before = call!(KfRaiseIrql(2));
        call!(DbgPrint(c"100%% of %s, %%ws and %08lx\n".as_ptr()));
        call!(DbgPrint(c"%d: %-8wZ\n".as_ptr()));
        call!(KeLowerIrql(before));
    }

    a_control_code_with_bytes_that_are_not_there breaks BadArgument by |device| {
        let nobody = ptr::null_mut();
        let block = leak::<IO_STATUS_BLOCK>();
        call!(IoBuildDeviceIoControlRequest(CODE, device, nobody, 4, nobody, 0, 0, event(), block));
    }

    a_device_whose_name_is_no_path breaks BadArgument by |device| {
        let mut units = *b"P\0l\0a\0i\0n\0";
        let mut name = UNICODE_STRING { Length: 10, MaximumLength: 10, Buffer: units.as_mut_ptr().cast() };
        // SAFETY: the driver's device.
        let object = unsafe { (*device).DriverObject };
        let mut made = ptr::null_mut();
        call!(IoCreateDevice(object, 0, &raw mut name, FILE_DEVICE_UNKNOWN, 0, 0, &raw mut made));
    }
}

#[test]
fn a_string_set_without_its_zero() {
    caught(concat!(module_path!(), "::a_string_set_without_its_zero"), Rule::BadArgument, || {
        let load = |_| {
            let key = open_key(r"plain\Parameters").expect("its values");
            let mut units = [u16::from(b'a'); 2];
            let mut name = UNICODE_STRING { Length: 2, MaximumLength: 2, Buffer: units.as_mut_ptr() };
            call!(ZwSetValueKey(key, &raw mut name, 0, 1, units.as_mut_ptr().cast(), 4));
            call!(ZwClose(key));
        };
        let kernel = Kernel::seeded(1).start();
        driver::prepare(Parts { load, ..Parts::default() });
        kernel.load("plain", driver::entry).expect("it loads").unload();
    });
}

unsafe extern "C" fn cancel_as_done(_: PDEVICE_OBJECT, irp: PIRP) {
    driver::release_cancel(irp);
    complete(irp, STATUS_SUCCESS, 0);
}

#[test]
fn a_cancelled_request_that_says_otherwise() {
    caught(concat!(module_path!(), "::a_cancelled_request_that_says_otherwise"), Rule::IrpStatus, || {
        let control = |_, irp| {
            driver::mark(irp);
            driver::set_cancel(irp, Some(cancel_as_done));
            STATUS_PENDING
        };
        run(Parts { control, ..Parts::default() }, |_, _, file| {
            let pending = file.begin(CODE, &[], 0);
            pending.cancel();
            assert_eq!(pending.wait().status, STATUS_SUCCESS);
        });
    });
}

unsafe extern "C" fn reads(resource: PVOID) {
    assert_eq!(call!(ExAcquireResourceSharedLite(resource.cast(), 1)), 1);
    call!(ExReleaseResourceLite(resource.cast()));
}

/// A thread of a driver's gets no normal APCs, as the reference of `PsCreateSystemThread` has it. Its handle is the kernel's.
#[test]
fn a_system_thread_is_in_a_critical_region() {
    does(|_, irp| {
        let mut memory = Box::<ERESOURCE>::default();
        let resource = &raw mut *memory;
        call!(ExInitializeResourceLite(resource));
        let (mut handle, nobody): (HANDLE, _) = (ptr::null_mut(), ptr::null_mut());
        let (mut attributes, routine) = (object_attributes(), Some(reads as _));
        let place = resource.cast();
        let status =
            call!(PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, nobody, nobody.cast(), routine, place));
        assert_eq!(status, STATUS_SUCCESS);
        assert_eq!(call!(ZwWaitForSingleObject(handle, 0, ptr::null_mut())), STATUS_SUCCESS);
        call!(ZwClose(handle));
        call!(ExDeleteResourceLite(resource));
        complete(irp, 0, 0)
    });
}

#[test]
fn pages_are_freed_while_they_are_mapped() {
    does(|_, irp| {
        let (mdl, _) = pages();
        call!(MmFreePagesFromMdl(mdl));
        call!(ExFreePool(mdl.cast()));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_lookaside_list_of_no_pool_or_no_flags() {
    does(|_, irp| {
        let mut list = Box::<LOOKASIDE_LIST_EX>::default();
        let place = &raw mut *list;
        let make = |kind, flags| call!(ExInitializeLookasideListEx(place, None, None, kind, flags, 24, TAG, 0));
        assert_eq!(make(2, 0), STATUS_INVALID_PARAMETER_4);
        assert_eq!(make(NON_PAGED, 3), STATUS_INVALID_PARAMETER_5);
        complete(irp, 0, 0)
    });
}

#[test]
fn the_time_increment_is_what_it_was_at_the_start() {
    does(|_, irp| {
        let before = call!(KeQueryTimeIncrement());
        call!(ExSetTimerResolution(5_000, 1));
        assert_eq!(call!(KeQueryTimeIncrement()), before);
        call!(ExSetTimerResolution(0, 0));
        complete(irp, 0, 0)
    });
}
