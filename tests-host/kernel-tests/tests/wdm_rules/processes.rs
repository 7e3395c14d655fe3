//! Processes and threads as objects, the end of a thread, what probes a program's buffer, reads and writes, and data blocks of WMI.

use std::{
    ptr,
    sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught, irql, object_attributes};
use wdk_sys::{
    BOOLEAN, DO_DEVICE_INITIALIZING, GUID, HANDLE, IRP_MJ_READ, IRP_MJ_WRITE, NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID,
    SIZE_T, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, ULONG,
    ntddk::{
        KeLowerIrql, KeQueryPriorityThread, KeSetPriorityThread, KeWaitForSingleObject, KfRaiseIrql,
        ObReferenceObjectByHandle, ObfDereferenceObject, PsCreateSystemThread, PsGetCurrentThreadId,
        PsTerminateSystemThread, ZwClose,
    },
};

use crate::driver::{CODE, Parts, buffer, complete, does, location, run};

/// `STATUS_WMI_GUID_NOT_FOUND`.
const NO_BLOCK: NTSTATUS = 0xC000_0295_u32.cast_signed();
/// The system's own process.
const SYSTEM: usize = 4;

// The kit declares them, the bindings leave them out: SoftNDK does not call them.
unsafe extern "C" {
    fn IoGetCurrentProcess() -> PVOID;
    fn PsGetCurrentProcess() -> PVOID;
    fn PsGetCurrentThread() -> PVOID;
    fn KeGetCurrentThread() -> PVOID;
    fn PsGetProcessId(process: PVOID) -> HANDLE;
    fn PsGetProcessExitStatus(process: PVOID) -> NTSTATUS;
    fn PsGetThreadId(thread: PVOID) -> HANDLE;
    fn PsGetThreadProcessId(thread: PVOID) -> HANDLE;
    fn PsGetThreadExitStatus(thread: PVOID) -> NTSTATUS;
    fn PsIsSystemThread(thread: PVOID) -> BOOLEAN;
    fn PsLookupProcessByProcessId(id: HANDLE, place: *mut PVOID) -> NTSTATUS;
    fn PsLookupThreadByThreadId(id: HANDLE, place: *mut PVOID) -> NTSTATUS;
    fn ObReferenceObjectByPointer(object: PVOID, access: u32, kind: PVOID, mode: i8) -> NTSTATUS;
    fn ObDereferenceObjectDeferDelete(object: PVOID);
    fn ObfReferenceObjectWithTag(object: PVOID, tag: ULONG) -> i64;
    fn ObfDereferenceObjectWithTag(object: PVOID, tag: ULONG) -> i64;
    fn IoIs32bitProcess(irp: PIRP) -> BOOLEAN;
    fn ProbeForRead(address: PVOID, length: SIZE_T, alignment: ULONG);
    fn ProbeForWrite(address: PVOID, length: SIZE_T, alignment: ULONG);
    fn IoWMIOpenBlock(kind: *const GUID, access: ULONG, place: *mut PVOID) -> NTSTATUS;
    fn IoWMISetNotificationCallback(object: PVOID, callback: PVOID, context: PVOID) -> NTSTATUS;
    fn IoWMIDeviceObjectToProviderId(device: PDEVICE_OBJECT) -> ULONG;
    fn ExQueryTimerResolution(longest: *mut ULONG, shortest: *mut ULONG, now: *mut ULONG);
}

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them.
        unsafe { $name($($argument),*) }
    }};
}

macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does($work));
            }
        )+
    };
}

rules! {
    a_reference_to_a_process_that_is_left breaks ReferenceLeak by |_| { process(SYSTEM).expect("it runs"); };
    a_process_that_is_dereferenced_twice breaks ReferenceUnderflow by |_| {
        let process = process(SYSTEM).expect("it runs");
        call!(ObfDereferenceObject(process));
        call!(ObfDereferenceObject(process));
    };
    a_reference_to_a_thread_that_is_left breaks ReferenceLeak by |_| { thread(current()).expect("it runs"); };
    a_thread_that_is_no_process breaks BadHandle by |_| { let thread = call!(PsGetCurrentThread()); call!(PsGetProcessId(thread)); };
    a_process_that_is_no_thread breaks BadHandle by |_| { let process = call!(PsGetCurrentProcess()); call!(PsGetThreadId(process)); };
    a_process_looked_up_at_dispatch_level breaks IrqlTooHigh by |_| {
        call!(KfRaiseIrql(2));
        let _ = process(SYSTEM);
    };
    a_thread_of_the_system_that_is_ended breaks BadArgument by |_| {
        let _ = call!(PsTerminateSystemThread(STATUS_SUCCESS));
    };
    a_thread_that_ends_at_a_raised_level breaks IrqlTooHigh by |_| { end(begin(ends_raised)); };
    a_buffer_of_the_kernel_that_is_probed breaks UnhandledException by |_| {
        call!(ProbeForRead(ptr::without_provenance_mut(0xFFFF_8000_0000_0000), 8, 8));
    };
    a_buffer_that_is_not_aligned breaks UnhandledException by |_| {
        call!(ProbeForWrite(ptr::without_provenance_mut(0x1_0004), 8, 8));
    };
    a_buffer_that_is_no_programs_is_probed_for_writing breaks UnhandledException by |_| {
        call!(ProbeForWrite(ptr::null_mut(), 8, 8));
    };
    a_buffer_that_ends_behind_the_last_address breaks UnhandledException by |_| {
        call!(ProbeForRead(ptr::null_mut(), 0x7FFF_FFFF_0001, 1));
    };
    a_probe_with_an_alignment_that_is_none breaks BadArgument by |_| {
        call!(ProbeForRead(ptr::without_provenance_mut(0x1_0000), 8, 3));
    };
    a_probe_at_dispatch_level breaks IrqlTooHigh by |_| {
        call!(KfRaiseIrql(2));
        call!(ProbeForRead(ptr::without_provenance_mut(0x1_0000), 8, 8));
    };
    a_data_block_that_is_left breaks ReferenceLeak by |_| { block(4).expect("it opens"); };
    a_data_block_that_is_no_block breaks BadHandle by |_| {
        let block = block(4).expect("it opens");
        call!(ObfDereferenceObject(block));
        let _ = call!(IoWMISetNotificationCallback(block, block, ptr::null_mut()));
    };
}

fn process(number: usize) -> Result<PVOID, NTSTATUS> {
    let mut process = ptr::null_mut();
    match call!(PsLookupProcessByProcessId(ptr::without_provenance_mut(number), &raw mut process)) {
        STATUS_SUCCESS => Ok(process),
        status => Err(status),
    }
}

fn thread(number: usize) -> Result<PVOID, NTSTATUS> {
    let mut thread = ptr::null_mut();
    match call!(PsLookupThreadByThreadId(ptr::without_provenance_mut(number), &raw mut thread)) {
        STATUS_SUCCESS => Ok(thread),
        status => Err(status),
    }
}

/// The number of the process that the caller runs in.
fn own_number() -> HANDLE {
    let process = call!(IoGetCurrentProcess());
    call!(PsGetProcessId(process))
}

fn current() -> usize {
    call!(PsGetCurrentThreadId()).addr()
}

fn block(access: ULONG) -> Result<PVOID, NTSTATUS> {
    let mut block = ptr::null_mut();
    match call!(IoWMIOpenBlock(&GUID::default(), access, &raw mut block)) {
        STATUS_SUCCESS => Ok(block),
        status => Err(status),
    }
}

/// Starts a thread of the driver's, to which the caller has a reference.
fn begin(work: unsafe extern "C" fn(PVOID)) -> PVOID {
    let mut attributes = object_attributes();
    let (mut handle, mut object, nobody) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let made =
        call!(PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, nobody, nobody.cast(), Some(work), nobody));
    assert_eq!(made, STATUS_SUCCESS);
    let referred = call!(ObReferenceObjectByHandle(handle, 0, ptr::null_mut(), 0, &raw mut object, ptr::null_mut()));
    assert_eq!((referred, call!(ZwClose(handle))), (STATUS_SUCCESS, STATUS_SUCCESS));
    object
}

/// Waits for the end of a thread.
fn end(thread: PVOID) {
    assert_eq!(call!(KeWaitForSingleObject(thread, 0, 0, 0, ptr::null_mut())), STATUS_SUCCESS);
    call!(ObfDereferenceObject(thread));
}

/// What a thread has come to.
static STEPS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// What it was to itself.
static ITSELF: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

/// Ends three functions deep, in the middle of what would go on for ever.
unsafe extern "C" fn ends_in_the_middle(_: PVOID) {
    #[inline(never)]
    fn deeper(left: u32) {
        STEPS.fetch_add(1, SeqCst);
        if left > 0 {
            deeper(left - 1);
        } else {
            ITSELF.store(call!(KeGetCurrentThread()).addr(), SeqCst);
            let _ = call!(PsTerminateSystemThread(STATUS_INVALID_PARAMETER));
        }
        STEPS.fetch_add(100, SeqCst);
    }
    deeper(3);
    STEPS.fetch_add(1000, SeqCst);
}

unsafe extern "C" fn ends_raised(_: PVOID) {
    call!(KfRaiseIrql(1));
    let _ = call!(PsTerminateSystemThread(STATUS_SUCCESS));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_thread_that_ends_itself_does_not_go_on() {
    does(|_| {
        STEPS.store(0, SeqCst);
        let thread = begin(ends_in_the_middle);
        call!(ObfReferenceObjectWithTag(thread, 7));
        end(thread);
        assert_eq!(STEPS.load(SeqCst), 4, "nothing runs behind the end");
        assert_eq!(ITSELF.load(SeqCst), thread.addr(), "a thread is one object");
        assert_eq!(call!(PsGetThreadExitStatus(thread)), STATUS_INVALID_PARAMETER, "what it said at its end");
        call!(ObfDereferenceObjectWithTag(thread, 7));
    });
}

#[test]
fn processes_and_threads_are_found_by_their_numbers() {
    does(|_| {
        let own = call!(IoGetCurrentProcess());
        assert_eq!((own, call!(PsGetProcessId(own)).addr()), (call!(PsGetCurrentProcess()), SYSTEM));
        let system = process(SYSTEM).expect("it runs");
        assert_eq!(system, own);
        assert_eq!(call!(PsGetProcessExitStatus(system)), STATUS_PENDING);
        assert_eq!(call!(ObReferenceObjectByPointer(system, 0, ptr::null_mut(), 0)), STATUS_SUCCESS);
        call!(ObDereferenceObjectDeferDelete(system));
        call!(ObfDereferenceObject(system));
        assert_eq!(process(0x7FFF_0000), Err(STATUS_INVALID_PARAMETER));

        let me = thread(current()).expect("it runs");
        assert_eq!((me, me), (call!(PsGetCurrentThread()), call!(KeGetCurrentThread())));
        assert_eq!(call!(PsGetThreadId(me)).addr(), current());
        assert_eq!((call!(PsGetThreadProcessId(me)).addr(), call!(PsIsSystemThread(me))), (SYSTEM, 0));
        assert_eq!(call!(PsGetThreadExitStatus(me)), STATUS_PENDING);
        let before = call!(KeQueryPriorityThread(me.cast()));
        assert_eq!(call!(KeSetPriorityThread(me.cast(), 16)), before);
        assert_eq!(call!(KeQueryPriorityThread(me.cast())), 16);
        call!(ObfDereferenceObject(me));
        assert_eq!(thread(0x7FFF_0000), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(call!(IoIs32bitProcess(ptr::null_mut())), 0);
    });
}

/// The number of the process that a program's request was seen in.
static SEEN: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

#[test]
fn a_program_is_a_process_of_its_own_as_long_as_it_runs() {
    let control = |_, irp| {
        let number = own_number().addr();
        let process = process(number).expect("it runs");
        SEEN.store(number, SeqCst);
        call!(ObfDereferenceObject(process));
        complete(irp, 0, 0)
    };
    run(Parts { control, ..Parts::default() }, |kernel, driver, _| {
        let program = kernel.process();
        let file = program.open_device(crate::driver::LINK).expect("it opens");
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
        assert_eq!(SEEN.load(SeqCst), program.number() as usize);
        drop(file);
        program.kill();
        driver.run(|| assert_eq!(process(SEEN.load(SeqCst)), Err(STATUS_INVALID_PARAMETER), "it has ended"));
    });
}

#[test]
fn a_buffer_of_a_program_passes_a_probe() {
    does(|_| {
        let mut value = 0_u64;
        call!(ProbeForRead((&raw mut value).cast(), 8, 8));
        call!(ProbeForWrite((&raw mut value).cast(), 8, 1));
        call!(ProbeForWrite(ptr::null_mut(), 0, 16));
        // Nothing is touched: that a null pointer leads nowhere shows where the driver reads.
        call!(ProbeForRead(ptr::null_mut(), 8, 8));
        call!(ProbeForRead(ptr::null_mut(), 0x7FFF_FFFF_0000, 1));
        assert_eq!(irql(), 0);
    });
}

#[test]
fn a_driver_that_is_linked_in_has_no_image_of_its_own() {
    does(|device| {
        // SAFETY: the driver's device and object, which are there while it is loaded.
        let driver = unsafe { &*(*device).DriverObject };
        assert!(driver.DriverStart.is_null() && driver.DriverSize == 0);
    });
}

#[test]
fn data_blocks_of_wmi_are_opened_for_events_only() {
    does(|device| {
        assert_eq!(block(1), Err(NO_BLOCK), "nobody provides it");
        let events = block(4).expect("it opens");
        assert_eq!(
            call!(IoWMISetNotificationCallback(events, ptr::null_mut(), ptr::null_mut())),
            STATUS_INVALID_PARAMETER
        );
        assert_eq!(call!(IoWMISetNotificationCallback(events, events, ptr::null_mut())), STATUS_SUCCESS);
        assert_ne!(call!(IoWMIDeviceObjectToProviderId(device)), 0);
        call!(ObfDereferenceObject(events));
    });
}

#[test]
fn the_clock_has_a_longest_and_a_shortest_period() {
    does(|_| {
        let (mut longest, mut shortest, mut now) = (0, 0, 0);
        call!(ExQueryTimerResolution(&raw mut longest, &raw mut shortest, &raw mut now));
        assert!(shortest < longest && now == longest);
        // SAFETY: no arguments of it have to live.
        let raised = unsafe { wdk_sys::ntddk::ExSetTimerResolution(10_000, 1) };
        call!(ExQueryTimerResolution(&raw mut longest, &raw mut shortest, &raw mut now));
        assert!(now <= raised);
        // SAFETY: no arguments of it have to live.
        unsafe { wdk_sys::ntddk::ExSetTimerResolution(0, 0) };
    });
}

/// `DO_BUFFERED_IO` and `DO_DIRECT_IO`.
const BUFFERED: ULONG = 4;
const DIRECT: ULONG = 16;

/// Where the last read or write began.
static OFFSET: DuringRun<AtomicI64> = DuringRun::new(AtomicI64::new(-1));

/// Answers reads with the numbers from 1, and takes writes that begin with 7.
unsafe extern "C" fn transfer(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP, and its device.
    let (asked, flags, whole) = unsafe { (location(irp).read(), (*device).Flags, irp.read()) };
    // SAFETY: the arm of reads and writes, which have the same fields.
    let (length, offset) = unsafe { (asked.Parameters.Read.Length, asked.Parameters.Read.ByteOffset) };
    // SAFETY: the arm that has the whole number.
    OFFSET.store(unsafe { offset.QuadPart }, SeqCst);
    if length == 0 {
        assert!(buffer(irp).is_null() && whole.MdlAddress.is_null(), "a buffer without bytes is not there");
        return complete(irp, STATUS_SUCCESS, 0);
    }
    let bytes: *mut u8 = if flags & BUFFERED != 0 {
        buffer(irp)
    } else if flags & DIRECT != 0 {
        assert!(!whole.MdlAddress.is_null(), "with direct I/O there is an MDL");
        // SAFETY: an MDL of the system's, which describes memory of the system.
        let mdl = unsafe { &*whole.MdlAddress };
        assert_eq!(mdl.ByteCount, length);
        mdl.StartVa.cast::<u8>().wrapping_add(mdl.ByteOffset as usize)
    } else {
        whole.UserBuffer.cast()
    };
    for index in 0..length.min(3) {
        let place = bytes.wrapping_add(index as usize);
        if u32::from(asked.MajorFunction) == IRP_MJ_READ {
            // SAFETY: the buffer has that many bytes.
            unsafe { place.write(u8::try_from(index + 1).expect("a small number")) };
        } else {
            // SAFETY: the buffer has that many bytes.
            assert_eq!(unsafe { place.read() }, 7);
        }
    }
    let too_many = u64::from(length == 5);
    complete(irp, STATUS_SUCCESS, u64::from(length) + too_many)
}

/// The driver's device takes reads and writes, with these flags.
fn transfers(flags: fn(PDEVICE_OBJECT)) -> Parts {
    Parts { load: flags, ..Parts::default() }
}

fn takes(device: PDEVICE_OBJECT, flag: ULONG) {
    // SAFETY: the driver's own device and object.
    unsafe {
        (*device).Flags = (*device).Flags & !DO_DEVICE_INITIALIZING | flag;
        for major in [IRP_MJ_READ, IRP_MJ_WRITE] {
            (*(*device).DriverObject).MajorFunction[major as usize] = Some(transfer);
        }
    }
}

#[test]
fn reads_and_writes_have_their_buffer_where_the_device_wants_it() {
    for flags in [|device| takes(device, BUFFERED), |device| takes(device, DIRECT), |device| takes(device, 0)] {
        run(transfers(flags), |_, _, file| {
            let answer = file.begin_read(3).wait();
            assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![1, 2, 3]));
            assert_eq!(file.begin_write(&[7, 7]).wait().status, STATUS_SUCCESS);
            assert!(file.begin_read(0).wait().bytes.is_empty());
        });
    }
    run(transfers(|device| takes(device, BUFFERED)), |_, _, file| {
        for offset in [0, 300, i64::from(u32::MAX) + 2] {
            assert_eq!(file.begin_read_at(offset, 3).wait().bytes, [1, 2, 3]);
            assert_eq!(OFFSET.swap(-1, SeqCst), offset);
            assert_eq!(file.begin_write_at(offset, &[7]).wait().status, STATUS_SUCCESS);
            assert_eq!(OFFSET.swap(-1, SeqCst), offset);
        }
    });
    run(Parts::default(), |_, _, file| {
        assert_eq!(file.begin_read(3).wait().status, STATUS_INVALID_DEVICE_REQUEST, "the driver has no routine for it");
    });
}

#[test]
fn a_read_that_has_more_bytes_than_there_is_room_for() {
    let name = concat!(module_path!(), "::a_read_that_has_more_bytes_than_there_is_room_for");
    caught(name, Rule::RequestInformation, || {
        run(transfers(|device| takes(device, BUFFERED)), |_, _, file| drop(file.begin_read(5).wait()));
    });
}

#[test]
fn a_write_that_took_more_bytes_than_there_were() {
    let name = concat!(module_path!(), "::a_write_that_took_more_bytes_than_there_were");
    caught(name, Rule::RequestInformation, || {
        run(transfers(|device| takes(device, DIRECT)), |_, _, file| drop(file.begin_write(&[7; 5]).wait()));
    });
}

/// The level is that of before, so that a test of one does not spoil the next.
#[test]
fn numbers_are_told_at_any_level() {
    does(|_| {
        let before = call!(KfRaiseIrql(15));
        assert_eq!(own_number().addr(), SYSTEM);
        call!(KeLowerIrql(before));
    });
}
