//! Who asks, and what an object may be asked for; threads in the context of another process; resources in each way.

use std::ptr;

use simulated_kernel::{Rule, caught};
use wdk_sys::{
    ERESOURCE, HANDLE, NTSTATUS, PERESOURCE, POOL_FLAG_NON_PAGED, PVOID, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
    ntddk::{
        ExAcquireResourceExclusiveLite, ExAcquireResourceSharedLite, ExAllocatePool2, ExDeleteResourceLite,
        ExFreePoolWithTag, ExInitializeResourceLite, ExReleaseResourceLite, KeEnterCriticalRegion,
        KeLeaveCriticalRegion, KfRaiseIrql, PsGetCurrentProcessId,
    },
};

use crate::{
    asked::{call, tests},
    driver::{CODE, LINK, Parts, complete, run},
};

/// `SECURITY_SUBJECT_CONTEXT` and `KAPC_STATE`, which are opaque.
type Subject = [u64; 4];
type Attachment = [u64; 6];
/// `GENERIC_MAPPING`.
type Mapping = [u32; 4];

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn SeCaptureSubjectContext(place: *mut Subject);
    fn SeReleaseSubjectContext(place: *mut Subject);
    fn SeLockSubjectContext(place: *mut Subject);
    fn SeUnlockSubjectContext(place: *mut Subject);
    fn SeAccessCheck(
        descriptor: *const u8,
        subject: *const Subject,
        locked: u8,
        wanted: u32,
        before: u32,
        privileges: *mut PVOID,
        mapping: *const Mapping,
        mode: i8,
        place: *mut u32,
        status: *mut NTSTATUS,
    ) -> u8;
    fn IoGetFileObjectGenericMapping() -> *const Mapping;
    fn MmIsVerifierEnabled(flags: *mut u32) -> NTSTATUS;
    fn MmIsDriverVerifying(driver: PVOID) -> u32;
    fn KeStackAttachProcess(process: PVOID, place: *mut Attachment);
    fn KeUnstackDetachProcess(place: *mut Attachment);
    fn PsLookupProcessByProcessId(id: HANDLE, place: *mut PVOID) -> NTSTATUS;
    fn ObfDereferenceObject(object: PVOID) -> i64;
    fn ObCloseHandle(handle: HANDLE, mode: i8) -> NTSTATUS;
    fn ZwYieldExecution() -> NTSTATUS;
    fn ExAcquireSharedStarveExclusive(resource: PERESOURCE, wait: u8) -> u8;
    fn ExAcquireSharedWaitForExclusive(resource: PERESOURCE, wait: u8) -> u8;
    fn ExConvertExclusiveToSharedLite(resource: PERESOURCE);
    fn ExIsResourceAcquiredExclusiveLite(resource: PERESOURCE) -> u8;
    fn ExIsResourceAcquiredSharedLite(resource: PERESOURCE) -> u32;
}

const TAG: u32 = u32::from_ne_bytes(*b"Secu");
/// `GENERIC_READ` and `MAXIMUM_ALLOWED`.
const GENERIC_READ: u32 = 1 << 31;
const MOST: u32 = 1 << 25;
/// A descriptor begins with its revision.
const DESCRIPTOR: [u8; 20] = {
    let mut descriptor = [0; 20];
    descriptor[0] = 1;
    descriptor
};

/// What is granted of what a program wants.
fn granted(descriptor: &[u8], wanted: u32, before: u32) -> u32 {
    let (mut subject, mut privileges, mut place, mut status) = ([0; 4], ptr::dangling_mut(), 0, 1);
    call!(SeCaptureSubjectContext(&raw mut subject));
    call!(SeLockSubjectContext(&raw mut subject));
    let mapping = call!(IoGetFileObjectGenericMapping());
    let is_granted = call!(SeAccessCheck(
        descriptor.as_ptr(),
        &raw const subject,
        1,
        wanted,
        before,
        &raw mut privileges,
        mapping,
        1,
        &raw mut place,
        &raw mut status
    ));
    assert_eq!((is_granted, status, privileges.is_null()), (1, STATUS_SUCCESS, true));
    call!(SeUnlockSubjectContext(&raw mut subject));
    call!(SeReleaseSubjectContext(&raw mut subject));
    place
}

/// A resource of the driver's, in a critical region.
fn resource() -> PERESOURCE {
    let size = size_of::<ERESOURCE>() as u64;
    let place: PERESOURCE = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG)).cast();
    call!(ExInitializeResourceLite(place));
    call!(KeEnterCriticalRegion());
    place
}

/// Releases it so often, and frees it.
fn end(place: PERESOURCE, times: u32) {
    for _ in 0..times {
        call!(ExReleaseResourceLite(place));
    }
    call!(KeLeaveCriticalRegion());
    call!(ExDeleteResourceLite(place));
    call!(ExFreePoolWithTag(place.cast(), TAG));
}

fn process(number: usize) -> PVOID {
    let mut process = ptr::null_mut();
    let id = ptr::without_provenance_mut(number);
    assert_eq!(call!(PsLookupProcessByProcessId(id, &raw mut process)), STATUS_SUCCESS);
    process
}

/// The system's own process.
const SYSTEM: usize = 4;

tests! {
    a_program_is_granted_what_it_wants by {
        assert_eq!(granted(&DESCRIPTOR, 2, 0x10_0000), 0x10_0002);
        assert_eq!(granted(&DESCRIPTOR, GENERIC_READ | 2, 0), 0x12_008B, "the rights of a file that reading is");
        assert_eq!(granted(&DESCRIPTOR, MOST, 0), 0x1F_01FF);
    }
    nobody_is_verified_by_windows by {
        let mut flags = 9;
        assert_eq!((call!(MmIsVerifierEnabled(&raw mut flags)), flags), (STATUS_SUCCESS, 0));
        assert_eq!(call!(MmIsDriverVerifying(ptr::null_mut())), 0);
        assert_eq!(call!(ZwYieldExecution()), STATUS_SUCCESS);
    }
    a_thread_is_attached_to_its_own_process_too by {
        let (before, system) = (call!(PsGetCurrentProcessId()).addr(), process(SYSTEM));
        let (mut outer, mut inner) = ([0; 6], [0; 6]);
        call!(KeStackAttachProcess(system, &raw mut outer));
        assert_eq!(call!(PsGetCurrentProcessId()).addr(), SYSTEM);
        call!(KeStackAttachProcess(system, &raw mut inner));
        call!(KeUnstackDetachProcess(&raw mut inner));
        call!(KeUnstackDetachProcess(&raw mut outer));
        assert_eq!(call!(PsGetCurrentProcessId()).addr(), before);
        call!(ObfDereferenceObject(system));
    }
    a_resource_is_read_in_each_way_and_shared_by_who_writes_it by {
        let place = resource();
        assert_eq!(call!(ExAcquireResourceExclusiveLite(place, 1)), 1);
        assert_eq!(call!(ExAcquireSharedStarveExclusive(place, 0)), 1, "who writes it may have it again");
        assert_eq!(call!(ExAcquireSharedWaitForExclusive(place, 0)), 1);
        assert_eq!(call!(ExIsResourceAcquiredExclusiveLite(place)), 1);
        assert_eq!(call!(ExIsResourceAcquiredSharedLite(place)), 3);
        call!(ExConvertExclusiveToSharedLite(place));
        assert_eq!(call!(ExIsResourceAcquiredExclusiveLite(place)), 0);
        assert_eq!(call!(ExIsResourceAcquiredSharedLite(place)), 3);
        end(place, 3);
    }

    a_subject_that_is_not_released breaks ReferenceLeak by { let mut place = [0; 4]; call!(SeCaptureSubjectContext(&raw mut place)); }
    a_subject_released_twice breaks BadHandle by {
        let mut subject = [0; 4];
        call!(SeCaptureSubjectContext(&raw mut subject));
        call!(SeReleaseSubjectContext(&raw mut subject));
        call!(SeReleaseSubjectContext(&raw mut subject));
    }
    a_subject_locked_that_is_not_captured breaks BadHandle by { let mut place = [0; 4]; call!(SeLockSubjectContext(&raw mut place)); }
    a_check_against_what_is_no_descriptor breaks BadArgument by { granted(&[0; 20], 2, 0); }
    a_subject_captured_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        let mut place = [0; 4];
        call!(SeCaptureSubjectContext(&raw mut place));
    }
    a_thread_that_stays_attached breaks BadArgument by {
        let mut place = [0; 6];
        call!(KeStackAttachProcess(process(SYSTEM), &raw mut place));
    }
    a_thread_detached_in_another_order breaks BadArgument by {
        let (mut outer, mut inner) = ([0; 6], [0; 6]);
        let system = process(SYSTEM);
        call!(KeStackAttachProcess(system, &raw mut outer));
        call!(KeStackAttachProcess(system, &raw mut inner));
        call!(KeUnstackDetachProcess(&raw mut outer));
    }
    a_thread_attached_to_what_is_no_process breaks BadHandle by {
        let mut place = [0; 6];
        call!(KeStackAttachProcess(ptr::without_provenance_mut(64), &raw mut place));
    }
    a_resource_shared_by_a_reader breaks LockNotHeld by {
        let place = resource();
        call!(ExAcquireResourceSharedLite(place, 1));
        call!(ExConvertExclusiveToSharedLite(place));
    }
    a_handle_closed_that_is_not_open breaks BadHandle by { call!(ObCloseHandle(ptr::without_provenance_mut(4), 0)); }
}

#[test]
fn a_resource_is_read_outside_of_a_critical_region() {
    let test = concat!(module_path!(), "::a_resource_is_read_outside_of_a_critical_region");
    caught(test, Rule::CriticalRegion, || {
        let control = |_, irp| {
            let place = resource();
            call!(KeLeaveCriticalRegion());
            call!(ExAcquireSharedStarveExclusive(place, 1));
            complete(irp, 0, 0)
        };
        run(Parts { control, ..Parts::default() }, |_, _, file| drop(file.control(CODE, &[], 0)));
    });
}

#[test]
fn a_thread_is_in_the_context_of_the_process_that_it_is_attached_to() {
    let control = |_, irp| {
        let (before, system, mut place) = (call!(PsGetCurrentProcessId()).addr(), process(SYSTEM), [0; 6]);
        call!(KeStackAttachProcess(system, &raw mut place));
        let inside = call!(PsGetCurrentProcessId()).addr();
        call!(KeUnstackDetachProcess(&raw mut place));
        assert_eq!((inside, call!(PsGetCurrentProcessId()).addr()), (SYSTEM, before));
        call!(ObfDereferenceObject(system));
        complete(irp, if before == SYSTEM { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }, 0)
    };
    run(Parts { control, ..Parts::default() }, |kernel, _, _| {
        let program = kernel.process();
        let file = program.open_device(LINK).expect("the device opens");
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS, "it was in that of the program");
        drop(file);
        program.kill();
    });
}
