//! Simulated plain WDM: a driver that keeps its rules works, and one that breaks a rule is caught.
//!
//! Each driver that is wrong runs in a process of its own, which the bug check ends.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

mod addresses;
mod affinity;
mod asked;
mod bug_check_callbacks;
mod callbacks;
mod clocks;
mod conversions;
mod driver;
mod extras;
mod files;
mod guards;
mod interfaces;
mod keys;
mod manager;
mod more;
mod moved;
mod objects;
mod opened;
mod partial_mdls;
mod plug;
mod pool_variants;
mod processes;
mod processors;
mod reference;
mod registry;
mod right;
mod routines;
mod secure;
mod security;
mod stacks;
mod start_io;
mod system;
mod tables;
mod turns;
mod words;
mod wsk;

use std::ptr;

use driver::{CODE, LINK, Parts, complete, run};
use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID, STATUS_CANCELLED, STATUS_DELETE_PENDING, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS,
    ntddk::{
        IoAcquireCancelSpinLock, IoAllocateWorkItem, IoDeleteDevice, IoFreeWorkItem, IoQueueWorkItem,
        IoQueueWorkItemEx, KeInitializeEvent, KeSetEvent,
    },
};

#[test]
fn a_control_code_is_answered() {
    let answer = |_, irp| {
        // SAFETY: the driver has the IRP.
        let location = unsafe { driver::location(irp).read() };
        // SAFETY: the arm of a control code.
        let parameters = unsafe { location.Parameters.DeviceIoControl };
        assert_eq!(
            (parameters.IoControlCode, parameters.InputBufferLength, parameters.OutputBufferLength),
            (CODE, 3, 5)
        );
        // SAFETY: the buffer has at least as many bytes.
        unsafe { driver::buffer(irp).wrapping_add(1).write(9) };
        complete(irp, 0, 3)
    };
    run(Parts { control: answer, ..Parts::default() }, |kernel, _, file| {
        let answer = file.control(CODE, &[1, 2, 3], 5);
        assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![1, 9, 3]));
        assert_eq!(kernel.open_device(r"\DosDevices\Other").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
    });
}

#[test]
fn a_request_pends_and_is_completed_or_cancelled() {
    run(Parts { control: driver::pend, ..Parts::default() }, |_, driver, file| {
        driver::completes_and_cancels(driver, file);
    });
}

#[test]
fn a_remove_lock_refuses_when_the_device_leaves() {
    let use_it = |device, irp| {
        assert_eq!(driver::acquire(device, 1), STATUS_SUCCESS);
        driver::release(device, 1);
        complete(irp, 0, 0)
    };
    let leave = |device| {
        assert_eq!(driver::acquire(device, 2), STATUS_SUCCESS);
        driver::release_and_wait(device, 2);
        assert_eq!(driver::acquire(device, 3), STATUS_DELETE_PENDING);
    };
    run(Parts { control: use_it, unload: leave, ..Parts::default() }, |_, _, file| {
        assert!(file.control(CODE, &[], 0).is_success());
    });
}

/// Completes the IRP that pends, and frees its own work item, whose address is the argument.
unsafe extern "C" fn complete_in_work(_: PDEVICE_OBJECT, _: PVOID) {
    driver::complete_pending();
}

#[test]
fn a_work_item_completes_a_request() {
    let pend = |device: PDEVICE_OBJECT, irp| {
        let status = driver::pend(device, irp);
        let item = allocate(device);
        // SAFETY: the work item was just made.
        unsafe { IoQueueWorkItem(item, Some(complete_in_work), 1, ptr::null_mut()) };
        keep(item);
        status
    };
    let free = |_| {
        // SAFETY: the work item has run.
        unsafe { IoFreeWorkItem(kept()) };
    };
    run(Parts { control: pend, unload: free, ..Parts::default() }, |_, _, file| {
        assert!(file.control(CODE, &[], 0).is_success());
    });
}

/// Completes the IRP that pends, and frees the work item that it is called with.
unsafe extern "C" fn complete_and_free(_: PVOID, _: PVOID, item: wdk_sys::PIO_WORKITEM) {
    // SAFETY: the work item is the one that runs.
    unsafe { IoFreeWorkItem(item) };
    driver::complete_pending();
}

#[test]
fn a_work_item_is_told_which_it_is() {
    let pend = |device: PDEVICE_OBJECT, irp| {
        let status = driver::pend(device, irp);
        // SAFETY: the work item was just made.
        unsafe { IoQueueWorkItemEx(allocate(device), Some(complete_and_free), 1, ptr::null_mut()) };
        status
    };
    run(Parts { control: pend, ..Parts::default() }, |_, _, file| {
        assert!(file.control(CODE, &[], 0).is_success());
    });
}

#[test]
fn a_number_is_only_a_number_where_there_is_no_output() {
    let count = |_, irp| complete(irp, 0, 8);
    run(Parts { control: count, ..Parts::default() }, |_, _, file| {
        assert!(file.control(CODE, &[1; 8], 0).is_success());
    });
}

#[test]
fn what_can_fail_fails_once() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    driver::prepare(Parts::default());
    let failures = kernel.fail_each(1.., || match kernel.load("plain", driver::entry) {
        Ok(driver) => driver.unload(),
        Err(status) => assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES),
    });
    assert!(failures >= 2, "a device and a link can fail");
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by { $($part:ident: $value:expr),* };)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || {
                    run(Parts { $($part: $value,)* ..Parts::default() }, |_, _, file| {
                        let _ = file.control(CODE, &[1, 2, 3], 5);
                    });
                });
            }
        )+
    };
}

wrong! {
    an_irp_completed_twice breaks IrpCompletedTwice by { control: complete_twice };
    an_irp_never_completed breaks IrpNeverCompleted by { control: |_, _| STATUS_SUCCESS };
    a_pending_irp_never_completed breaks IrpNeverCompleted by { control: |_, irp| {
        driver::mark(irp);
        STATUS_PENDING
    } };
    an_irp_completed_with_its_cancel_routine_set breaks IrpCancelRoutine by { control: |_, irp| {
        driver::set_cancel(irp, Some(driver::cancel));
        complete(irp, 0, 0)
    } };
    an_irp_that_pends_and_is_not_marked breaks IrpStatus by { control: |_, _| STATUS_PENDING };
    an_irp_that_is_marked_and_does_not_pend breaks IrpStatus by { control: |_, irp| {
        driver::mark(irp);
        complete(irp, 0, 0)
    } };
    an_irp_completed_with_another_status breaks IrpStatus by { control: |_, irp| {
        complete(irp, 0, 0);
        STATUS_CANCELLED
    } };
    an_irp_completed_as_pending breaks IrpStatus by { control: |_, irp| complete(irp, STATUS_PENDING, 0) };
    an_irp_with_more_bytes_than_its_buffer breaks RequestInformation by { control: |_, irp| complete(irp, 0, 6) };
    an_irp_used_after_its_completion breaks UseAfterFree by { control: |_, irp| {
        let status = complete(irp, 0, 0);
        driver::mark_freed(irp);
        status
    } };
    an_irp_completed_under_the_cancel_lock breaks LockHeld by { control: |_, irp| {
        let mut irql = 0;
        // SAFETY: a place that lives until the call returns.
        unsafe { IoAcquireCancelSpinLock(&raw mut irql) };
        complete(irp, 0, 0)
    } };
    a_device_left_behind breaks ReferenceLeak by { deletes_device: false };
    a_link_left_behind breaks ReferenceLeak by { deletes_link: false };
    a_device_deleted_while_it_is_open breaks DeviceInUse by { control: |device, irp| {
        let status = complete(irp, 0, 0);
        // SAFETY: as wrong as the test wants it.
        unsafe { IoDeleteDevice(device) };
        status
    } };
    a_work_item_left_behind breaks ReferenceLeak by { load: |device| assert!(!allocate(device).is_null()) };
    a_work_item_queued_twice breaks WorkItemQueued by { load: |device| {
        let item = allocate(device);
        for _ in 0..2 {
            // SAFETY: as wrong as the test wants it.
            unsafe { IoQueueWorkItem(item, Some(complete_in_work), 1, ptr::null_mut()) };
        }
    } };
    a_remove_lock_released_and_not_acquired breaks RemoveLock by { load: |device| driver::release(device, 1) };
    a_remove_lock_held_when_the_device_goes breaks RemoveLock by
        { load: |device| assert_eq!(driver::acquire(device, 1), STATUS_SUCCESS) };
    an_event_on_the_stack_of_a_function_that_has_returned breaks StackObject by { control: |_, irp| {
        let place = event_on_the_stack();
        // Between the two, as a request that completes late would.
        // SAFETY: as wrong as the test wants it.
        unsafe { KeSetEvent(ptr::with_exposed_provenance_mut(place), 0, 0) };
        complete(irp, 0, 0)
    } };
    a_null_pointer breaks AccessViolation by { control: |_, irp| {
        // SAFETY: as wrong as the test wants it.
        let byte = unsafe { ptr::without_provenance::<u8>(8).read_volatile() };
        complete(irp, NTSTATUS::from(byte), 0)
    } };
    an_address_out_of_memory_that_is_free breaks UseAfterFree by { control: |_, irp| {
        let poison = ptr::without_provenance::<u8>(0xDDDD_DDDD_DDDD_DDDD);
        // SAFETY: as wrong as the test wants it.
        let byte = unsafe { poison.read_volatile() };
        complete(irp, NTSTATUS::from(byte), 0)
    } };
    a_remove_lock_that_is_never_released breaks Deadlock by { unload: |device| {
        assert_eq!(driver::acquire(device, 1), STATUS_SUCCESS);
        assert_eq!(driver::acquire(device, 2), STATUS_SUCCESS);
        driver::release_and_wait(device, 2);
    } };
}

/// Initialises an event on its own stack, and says where that was.
#[inline(never)]
fn event_on_the_stack() -> usize {
    let mut event = wdk_sys::KEVENT::default();
    let place: *mut wdk_sys::KEVENT = &raw mut event;
    // SAFETY: a place that lives until the function returns.
    unsafe { KeInitializeEvent(place, 0, 0) };
    place.expose_provenance()
}

/// Sets an event that its caller has on the stack.
#[inline(never)]
fn set(place: *mut wdk_sys::KEVENT) {
    // SAFETY: the caller's event lives.
    unsafe { KeSetEvent(place, 0, 0) };
}

/// Sets an event of its own, while those of others come and go below it. A function, for a closure may become a part of `core`, which
/// is not the driver's.
#[inline(never)]
fn set_own_event(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    event_on_the_stack();
    let mut event = wdk_sys::KEVENT::default();
    let place: *mut wdk_sys::KEVENT = &raw mut event;
    // SAFETY: a place that lives until the function returns.
    unsafe { KeInitializeEvent(place, 0, 0) };
    event_on_the_stack();
    set(place);
    // SAFETY: a place that lives until the function returns.
    let before = unsafe { KeSetEvent(place, 0, 0) };
    complete(irp, before, 0)
}

#[test]
fn an_event_on_the_stack_is_there_as_long_as_its_function_runs() {
    run(Parts { control: set_own_event, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, 1);
    });
}

#[test]
fn a_cancel_routine_that_keeps_the_lock() {
    caught(concat!(module_path!(), "::a_cancel_routine_that_keeps_the_lock"), Rule::LockHeld, || {
        unsafe extern "C" fn keep_the_lock(_: PDEVICE_OBJECT, _: PIRP) {}
        let pend = |device, irp| {
            let status = driver::pend(device, irp);
            driver::set_cancel(irp, Some(keep_the_lock));
            status
        };
        run(Parts { control: pend, ..Parts::default() }, |_, _, file| file.begin(CODE, &[], 0).cancel());
    });
}

#[test]
fn a_device_that_is_not_initialised_cannot_be_opened() {
    let kernel = Kernel::seeded(1).start();
    assert_eq!(kernel.open_device(LINK).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
}

fn complete_twice(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    complete(irp, 0, 0);
    // SAFETY: as wrong as the test wants it.
    unsafe { wdk_sys::ntddk::IofCompleteRequest(irp, 0) };
    0
}

fn allocate(device: PDEVICE_OBJECT) -> wdk_sys::PIO_WORKITEM {
    // SAFETY: the driver's device.
    unsafe { IoAllocateWorkItem(device) }
}

/// A work item that is kept until the unload.
static ITEM: DuringRun<std::sync::atomic::AtomicUsize> = DuringRun::new(std::sync::atomic::AtomicUsize::new(0));

fn keep(item: wdk_sys::PIO_WORKITEM) {
    ITEM.store(item.addr(), std::sync::atomic::Ordering::Relaxed);
}

fn kept() -> wdk_sys::PIO_WORKITEM {
    ptr::without_provenance_mut(ITEM.load(std::sync::atomic::Ordering::Relaxed))
}
