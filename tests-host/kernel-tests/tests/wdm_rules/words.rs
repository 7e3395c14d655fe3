//! Strings, what a driver says (events, messages, a bug check), whose process it runs in, pages, and requests without a buffer.

#![expect(clippy::unnecessary_box_returns, reason = "objects of the kernel stay where they were initialised")]

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, GUID, IO_STATUS_BLOCK, IRP_MJ_READ, KEVENT, MDL, NTSTATUS, PDEVICE_OBJECT,
    PHYSICAL_ADDRESS, PIRP, POOL_FLAG_PAGED, PVOID, SIZE_T, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER,
    STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        DbgPrintEx, EtwRegister, EtwSetInformation, EtwUnregister, EtwWriteTransfer, ExAllocatePool2, ExFreePool,
        IoBuildAsynchronousFsdRequest, IoBuildSynchronousFsdRequest, IoFreeIrp, IofCallDriver, KeBugCheckEx,
        KeInitializeEvent, KeLowerIrql, KeWaitForSingleObject, KfRaiseIrql, MmFreePagesFromMdl,
        MmMapLockedPagesSpecifyCache, MmUnmapLockedPages, PsGetCurrentProcessId, RtlCopyUnicodeString,
        RtlInitUnicodeString,
    },
};

use crate::{
    asked::{call, does, tests},
    driver::{self, CODE, LINK, Parts, complete, run},
    stacks::{keep, set_completion},
};

const TAG: u32 = u32::from_ne_bytes(*b"Word");
/// `IRP_MJ_FLUSH_BUFFERS`.
const FLUSH: u32 = 9;

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn MmAllocatePagesForMdl(
        low: PHYSICAL_ADDRESS,
        high: PHYSICAL_ADDRESS,
        skip: PHYSICAL_ADDRESS,
        size: SIZE_T,
    ) -> *mut MDL;
    fn WmiTraceMessageVa(session: u64, flags: u32, message: *const GUID, number: u16, arguments: PVOID) -> NTSTATUS;
}

fn init(units: Option<&[u16]>) -> UNICODE_STRING {
    let mut string = UNICODE_STRING::default();
    call!(RtlInitUnicodeString(&raw mut string, units.map_or(ptr::null(), <[u16]>::as_ptr)));
    string
}

/// A string of which nothing is in use yet.
fn empty(room: &mut [u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(size_of_val(room)).expect("a short string");
    UNICODE_STRING { Length: 0, MaximumLength: bytes, Buffer: room.as_mut_ptr() }
}

/// A registered provider of events.
fn provider() -> u64 {
    let (id, mut handle) = (GUID::default(), 0);
    assert_eq!(call!(EtwRegister(&raw const id, None, ptr::null_mut(), &raw mut handle)), STATUS_SUCCESS);
    handle
}

/// Memory of the driver that is no device.
fn no_device() -> *mut u8 {
    Box::into_raw(Box::new([0_u8; 32])).cast()
}

const ANYWHERE: [PHYSICAL_ADDRESS; 3] =
    [PHYSICAL_ADDRESS { QuadPart: 0 }, PHYSICAL_ADDRESS { QuadPart: i64::MAX }, PHYSICAL_ADDRESS { QuadPart: 0 }];

fn pages(size: SIZE_T) -> *mut MDL {
    let [low, high, skip] = ANYWHERE;
    call!(MmAllocatePagesForMdl(low, high, skip, size))
}

tests! {
    a_string_is_as_long_as_its_text by {
        let text = [b'a'.into(), b'b'.into(), 0, b'c'.into()];
        let string = init(Some(&text));
        assert_eq!((string.Length, string.MaximumLength, string.Buffer.cast_const()), (4, 6, text.as_ptr()));
        let nothing = init(None);
        assert!(nothing.Length == 0 && nothing.MaximumLength == 0 && nothing.Buffer.is_null());
        let end = init(Some(&[0]));
        assert_eq!((end.Length, end.MaximumLength), (0, 2));
        // No length has room for more, with the terminator.
        let mut long = vec![1_u16; 40_000];
        long[39_999] = 0;
        let long = init(Some(&long));
        assert_eq!((long.Length, long.MaximumLength), (65_532, 65_534));
    }
    a_string_is_copied_as_far_as_there_is_room by {
        let text: Vec<u16> = "abc\0".encode_utf16().collect();
        let source = init(Some(&text));
        let before = call!(KfRaiseIrql(2));
        for room in 0..5 {
            let mut units = [9_u16; 5];
            let mut target = empty(&mut units[..room]);
            call!(RtlCopyUnicodeString(&raw mut target, &raw const source));
            let copied = room.min(3);
            assert_eq!((usize::from(target.Length), usize::from(target.MaximumLength)), (2 * copied, 2 * room));
            assert_eq!((&units[..copied], units[4]), (&text[..copied], 9), "and nothing behind it is written");
        }
        call!(KeLowerIrql(before));
        let mut units = [9_u16; 5];
        let mut target = empty(&mut units);
        target.Length = 4;
        call!(RtlCopyUnicodeString(&raw mut target, ptr::null()));
        assert_eq!((target.Length, units), (0, [9; 5]), "without a source it is empty");
    }
    a_string_that_is_longer_than_its_buffer_is_copied breaks BadArgument by {
        let mut units = [9_u16; 5];
        let mut target = empty(&mut units);
        let source = UNICODE_STRING { Length: 10, MaximumLength: 4, Buffer: units.as_mut_ptr() };
        call!(RtlCopyUnicodeString(&raw mut target, &raw const source));
    }

    an_event_that_belongs_to_an_activity_is_written_at_any_level by {
        let (handle, descriptor, activity) = (provider(), [0_u64; 2], GUID::default());
        let descriptor = descriptor.as_ptr().cast();
        let write = |handle, count| {
            call!(EtwWriteTransfer(handle, descriptor, &raw const activity, ptr::null(), count, ptr::null_mut()))
        };
        // `EventProviderSetTraits`.
        let mut traits = *b"\x05\0P\0\0";
        let set = |handle, traits: *mut [u8; 5]| call!(EtwSetInformation(handle, 2, traits.cast(), 5));
        assert_eq!([set(handle, &raw mut traits), set(0, &raw mut traits)], [STATUS_SUCCESS, STATUS_INVALID_HANDLE]);
        let before = call!(KfRaiseIrql(15));
        assert_eq!([write(handle, 0), write(handle, 129)], [STATUS_SUCCESS, STATUS_INVALID_PARAMETER]);
        call!(KeLowerIrql(before));
        assert_eq!(call!(EtwUnregister(handle)), STATUS_SUCCESS);
        assert_eq!(write(0, 0), STATUS_INVALID_HANDLE, "nobody is registered");
    }
    an_event_after_the_end_of_its_provider breaks BadHandle by {
        let (handle, descriptor) = (provider(), [0_u64; 2]);
        call!(EtwUnregister(handle));
        let (descriptor, nobody) = (descriptor.as_ptr().cast(), ptr::null());
        call!(EtwWriteTransfer(handle, descriptor, nobody, nobody, 0, ptr::null_mut()));
    }
    a_provider_is_described_at_dispatch_level breaks IrqlTooHigh by {
        let (handle, mut traits) = (provider(), *b"\x05\0P\0\0");
        call!(KfRaiseIrql(2));
        call!(EtwSetInformation(handle, 2, traits.as_mut_ptr().cast(), 5));
    }
    a_provider_that_is_left breaks ReferenceLeak by {
        let (handle, descriptor) = (provider(), [0_u64; 2]);
        let (descriptor, nobody) = (descriptor.as_ptr().cast(), ptr::null());
        call!(EtwWriteTransfer(handle, descriptor, nobody, nobody, 0, ptr::null_mut()));
    }

    messages_are_for_whom_they_reach by {
        let (component, level) = (101, 0);
        let before = call!(KfRaiseIrql(2));
        assert_eq!(call!(DbgPrintEx(component, level, c"%d of %d\n".as_ptr(), 1, 2)), 0);
        // No session listens: its handle is of none.
        assert_eq!(call!(WmiTraceMessageVa(1, 0, &raw const MESSAGE, 10, ptr::null_mut())), STATUS_INVALID_HANDLE);
        call!(KeLowerIrql(before));
        assert_eq!(call!(DbgPrintEx(component, level, c"%wZ\n".as_ptr(), &NOTHING)), 0);
    }
    a_message_with_wide_letters_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        call!(DbgPrintEx(101, 0, c"%wZ\n".as_ptr(), &NOTHING));
    }
    the_driver_stops_the_machine_and_says_why breaks DriverPanicked by { stop(); }

    pages_are_zeroed_and_whole by {
        let mdl = pages(5_000);
        assert!(!mdl.is_null());
        // SAFETY: the driver's MDL.
        let (count, offset) = unsafe { ((*mdl).ByteCount, (*mdl).ByteOffset) };
        assert_eq!((count, offset), (8_192, 0));
        let place = call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16));
        // SAFETY: the mapping has as many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), 8_192) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        call!(MmUnmapLockedPages(place, mdl));
        call!(MmFreePagesFromMdl(mdl));
        call!(ExFreePool(mdl.cast()));
        assert!(pages(0).is_null());
    }
    pages_are_taken_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        pages(5_000);
    }
    pages_that_are_left breaks PoolLeak by { pages(5_000); }
}

fn stop() {
    call!(KeBugCheckEx(0xE2, 1, 2, 3, 4));
}

static MESSAGE: GUID = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
const NOTHING: UNICODE_STRING = UNICODE_STRING { Length: 0, MaximumLength: 0, Buffer: ptr::null_mut() };

#[test]
fn an_event_is_read_when_it_is_written() {
    caught(concat!(module_path!(), "::an_event_is_read_when_it_is_written"), Rule::PagedAtDispatch, || {
        does(|_, irp| {
            let handle = provider();
            // The descriptor lies in pageable memory.
            let place = call!(ExAllocatePool2(POOL_FLAG_PAGED, 64, TAG));
            call!(KfRaiseIrql(2));
            call!(EtwWriteTransfer(handle, place.cast(), ptr::null(), ptr::null(), 0, ptr::null_mut()));
            complete(irp, 0, 0)
        });
    });
}

/// In whose process the driver was called.
static PROCESS: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

#[test]
fn a_driver_runs_in_the_process_that_asks_it() {
    let control = |_, irp| {
        let before = call!(KfRaiseIrql(15));
        PROCESS.store(call!(PsGetCurrentProcessId()).addr(), SeqCst);
        call!(KeLowerIrql(before));
        complete(irp, 0, 0)
    };
    run(Parts { control, ..Parts::default() }, |kernel, driver, file| {
        let asked_by = |file: &simulated_kernel::IoFile| {
            assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
            u32::try_from(PROCESS.load(SeqCst)).expect("a number")
        };
        let processes = [kernel.process(), kernel.process()];
        for process in &processes {
            let file = process.open_device(LINK).expect("the device opens");
            assert_eq!(asked_by(&file), process.number());
        }
        assert_ne!(processes[0].number(), processes[1].number());
        assert_eq!(asked_by(file), 4, "the system's own");
        driver.run(|| assert_eq!(call!(PsGetCurrentProcessId()).addr(), 4, "as on a thread of the driver's"));
    });
}

/// A device below that takes what is flushed, and how often it was.
static BELOW: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static FLUSHED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn flush(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let location = unsafe { driver::location(irp).read() };
    assert_eq!(u32::from(location.MajorFunction), FLUSH);
    FLUSHED.fetch_add(1, SeqCst);
    complete(irp, STATUS_SUCCESS, 3)
}

fn flushes(device: PDEVICE_OBJECT) {
    BELOW.store(device, SeqCst);
    FLUSHED.store(0, SeqCst);
    // SAFETY: the driver's own device and object.
    unsafe {
        (*device).Flags &= !DO_DEVICE_INITIALIZING;
        (*(*device).DriverObject).MajorFunction[FLUSH as usize] = Some(flush);
    }
}

fn event() -> Box<KEVENT> {
    let mut event = Box::new(KEVENT::default());
    call!(KeInitializeEvent(&raw mut *event, 0, 0));
    event
}

fn wait(event: &mut KEVENT) {
    let event: *mut KEVENT = event;
    assert_eq!(call!(KeWaitForSingleObject(event.cast(), 0, 0, 0, ptr::null_mut())), STATUS_SUCCESS);
}

/// Asks for a flush and waits: the system frees the request and sets the event.
fn flush_and_wait() -> NTSTATUS {
    let (mut event, mut block, nobody) = (event(), Box::new(IO_STATUS_BLOCK::default()), ptr::null_mut());
    let (below, place, result) = (BELOW.load(SeqCst), &raw mut *event, &raw mut *block);
    let irp = call!(IoBuildSynchronousFsdRequest(FLUSH, below, nobody, 0, ptr::null_mut(), place, result));
    assert!(!irp.is_null());
    let status = call!(IofCallDriver(below, irp));
    if status == STATUS_PENDING {
        wait(&mut event);
    }
    assert_eq!(block.Information, 3, "the status block is filled");
    status
}

/// Asks for a flush with a completion routine of the driver's own, which keeps the request, and frees that.
fn flush_and_free() -> NTSTATUS {
    let (mut event, nobody) = (event(), ptr::null_mut());
    let below = BELOW.load(SeqCst);
    let (offset, block) = (ptr::null_mut(), ptr::null_mut());
    let irp = call!(IoBuildAsynchronousFsdRequest(FLUSH, below, nobody, 0, offset, block));
    assert!(!irp.is_null());
    set_completion(irp, Some(keep), (&raw mut *event).cast());
    call!(IofCallDriver(below, irp));
    wait(&mut event);
    let status = driver::status(irp);
    call!(IoFreeIrp(irp));
    status
}

fn with_flushes(control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { load: flushes, control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

#[test]
fn a_driver_asks_for_what_has_no_buffer() {
    with_flushes(|_, irp| {
        assert_eq!([flush_and_wait(), flush_and_free()], [STATUS_SUCCESS; 2]);
        assert_eq!(FLUSHED.load(SeqCst), 2);
        complete(irp, 0, 0)
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with_flushes(|_, irp| {
                    $work;
                    complete(irp, 0, 0)
                }));
            }
        )+
    };
}

fn build(major: u32, device: PDEVICE_OBJECT) -> PIRP {
    let (nobody, offset, block) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    call!(IoBuildAsynchronousFsdRequest(major, device, nobody, 0, offset, block))
}

wrong! {
    a_request_that_comes_back_to_nobody breaks IrpNotTaken by {
        let below = BELOW.load(SeqCst);
        call!(IofCallDriver(below, build(FLUSH, below)))
    };
    a_request_that_is_built_and_left breaks ReferenceLeak by build(FLUSH, BELOW.load(SeqCst));
    a_request_for_no_device breaks BadHandle by build(FLUSH, no_device().cast());
    a_read_of_a_drivers_own breaks NotSimulated by build(IRP_MJ_READ, BELOW.load(SeqCst));
    a_request_that_is_built_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        build(FLUSH, BELOW.load(SeqCst))
    };
    a_request_that_the_system_frees_is_freed breaks IrpFreed by {
        let (mut event, mut block, below) = (event(), Box::new(IO_STATUS_BLOCK::default()), BELOW.load(SeqCst));
        let (nobody, place, result) = (ptr::null_mut(), &raw mut *event, &raw mut *block);
        let major = FLUSH;
        let irp = call!(IoBuildSynchronousFsdRequest(major, below, nobody, 0, ptr::null_mut(), place, result));
        call!(IoFreeIrp(irp));
    };
}
