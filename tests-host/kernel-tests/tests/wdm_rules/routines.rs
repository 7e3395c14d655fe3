//! Routines that SoftNDK's own drivers do not call, and others do.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Kernel, Rule, Value, caught, irql, object_attributes};
use wdk_sys::{
    _KEY_VALUE_INFORMATION_CLASS, APC_LEVEL, DISPATCH_LEVEL, ERESOURCE, FAST_MUTEX, HANDLE, IO_CSQ, IO_CSQ_IRP_CONTEXT,
    IRP, KDPC, KEVENT, LARGE_INTEGER, LIST_ENTRY, LOOKASIDE_LIST_EX, NTSTATUS, OBJECT_ATTRIBUTES, PDEVICE_OBJECT, PIRP,
    POOL_TYPE, PVOID, RTL_OSVERSIONINFOEXW, SIZE_T, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_CANCELLED,
    STATUS_INVALID_PARAMETER_5, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS, STATUS_TIMEOUT, ULONG,
    UNICODE_STRING, WORK_QUEUE_ITEM,
    ntddk::{
        EtwEventEnabled, EtwProviderEnabled, EtwRegister, EtwUnregister, EtwWrite, ExAcquireFastMutex,
        ExAcquireFastMutexUnsafe, ExAcquireResourceExclusiveLite, ExAcquireResourceSharedLite,
        ExAcquireSpinLockExclusive, ExAcquireSpinLockExclusiveAtDpcLevel, ExAcquireSpinLockShared,
        ExAcquireSpinLockSharedAtDpcLevel, ExDeleteLookasideListEx, ExDeleteNPagedLookasideList,
        ExDeletePagedLookasideList, ExDeleteResourceLite, ExFlushLookasideListEx, ExFreePool, ExFreePoolWithTag,
        ExInitializeLookasideListEx, ExInitializeNPagedLookasideList, ExInitializePagedLookasideList,
        ExInitializeResourceLite, ExInterlockedInsertHeadList, ExInterlockedInsertTailList,
        ExInterlockedRemoveHeadList, ExQueueWorkItem, ExReleaseFastMutex, ExReleaseFastMutexUnsafe,
        ExReleaseResourceLite, ExReleaseSpinLockExclusive, ExReleaseSpinLockExclusiveFromDpcLevel,
        ExReleaseSpinLockShared, ExReleaseSpinLockSharedFromDpcLevel, ExTryToAcquireFastMutex, IoCsqInitialize,
        IoCsqInsertIrp, IoCsqRemoveIrp, IoCsqRemoveNextIrp, KeAcquireSpinLockRaiseToDpc, KeBugCheck,
        KeEnterCriticalRegion, KeFlushQueuedDpcs, KeInitializeEvent, KeInitializeMutex, KeInitializeSemaphore,
        KeInitializeThreadedDpc, KeInsertQueueDpc, KeLeaveCriticalRegion, KeLowerIrql, KeQueryActiveProcessorCount,
        KeQueryActiveProcessors, KeQueryMaximumProcessorCount, KeQueryPriorityThread, KeReadStateMutex,
        KeReadStateSemaphore, KeReleaseMutex, KeReleaseSpinLock, KeSetEvent, KeSetPriorityThread,
        KeSetTargetProcessorDpc, KeWaitForSingleObject, KfRaiseIrql, MmAllocatePagesForMdlEx, MmFreePagesFromMdl,
        MmMapLockedPagesSpecifyCache, MmUnmapLockedPages, PsGetVersion, RtlGetVersion, RtlIsNtDdiVersionAvailable,
        ZwClose, ZwOpenKey, ZwQueryValueKey,
    },
};

use crate::{
    asked::{join, thread},
    driver::{self, CODE, Parts, complete, run},
};

unsafe extern "C" {
    /// The kit declares it, the bindings leave it out.
    fn ExAllocatePoolWithTag(kind: POOL_TYPE, size: SIZE_T, tag: ULONG) -> PVOID;
}

const TAG: ULONG = u32::from_ne_bytes(*b"Test");
const NON_PAGED: POOL_TYPE = 512;
const ZEROED: POOL_TYPE = 1024;
const PAGED: POOL_TYPE = 1;

/// Has the driver do something when it answers a control code.
fn does(work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control: work, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

/// As [`does`], but that breaks a rule.
fn breaks(test: &str, rule: Rule, work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    caught(&format!("{}::{test}", module_path!()), rule, || does(work));
}

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them.
        unsafe { $name($($argument),*) }
    }};
}

/// `ExInitializeFastMutex`, which is inline.
fn fast_mutex(place: &mut FAST_MUTEX) -> *mut FAST_MUTEX {
    place.Count = 1;
    let place: *mut FAST_MUTEX = place;
    // SAFETY: the structure lives; only the address is taken.
    let event = unsafe { &raw mut (*place).Event };
    call!(KeInitializeEvent(event, 1, 0));
    place
}

fn wait(object: PVOID) -> NTSTATUS {
    call!(KeWaitForSingleObject(object, 0, 0, 0, ptr::null_mut()))
}

fn wait_no_time(object: PVOID) -> NTSTATUS {
    let mut none = LARGE_INTEGER { QuadPart: 0 };
    call!(KeWaitForSingleObject(object, 0, 0, 0, &raw mut none))
}

/// What two threads do with a lock: one waits with it for the other to begin, which cannot enter before.
#[repr(C)]
struct TwoThreads {
    lock: FAST_MUTEX,
    /// As large as a `KMUTANT`, which is opaque.
    mutex: [u64; 7],
    begun: KEVENT,
    entered: AtomicU32,
}

impl TwoThreads {
    fn new() -> Box<Self> {
        let mut shared = Box::new(Self {
            lock: FAST_MUTEX::default(),
            mutex: [0; 7],
            begun: KEVENT::default(),
            entered: AtomicU32::new(0),
        });
        fast_mutex(&mut shared.lock);
        call!(KeInitializeMutex((&raw mut shared.mutex).cast(), 0));
        call!(KeInitializeEvent(&raw mut shared.begun, 0, 0));
        shared
    }
}

unsafe extern "C" fn with_the_fast_mutex(argument: PVOID) {
    let shared: *mut TwoThreads = argument.cast();
    // SAFETY: lives until the thread has ended, and only the address is taken of what others change.
    let lock = unsafe { &raw mut (*shared).lock };
    // SAFETY: lives until the thread has ended, and only the address is taken of what others change.
    let begun = unsafe { &raw mut (*shared).begun };
    // SAFETY: as above; it is atomic.
    let entered = unsafe { &(*shared).entered };
    call!(KeSetEvent(begun, 0, 0));
    call!(ExAcquireFastMutex(lock));
    entered.fetch_add(1, SeqCst);
    call!(ExReleaseFastMutex(lock));
}

unsafe extern "C" fn with_the_mutex(argument: PVOID) {
    let shared: *mut TwoThreads = argument.cast();
    // SAFETY: lives until the thread has ended, and only the address is taken of what others change.
    let mutex = unsafe { &raw mut (*shared).mutex };
    // SAFETY: lives until the thread has ended, and only the address is taken of what others change.
    let begun = unsafe { &raw mut (*shared).begun };
    // SAFETY: as above; it is atomic.
    let entered = unsafe { &(*shared).entered };
    call!(KeSetEvent(begun, 0, 0));
    assert_eq!(wait(mutex.cast()), STATUS_SUCCESS);
    entered.fetch_add(1, SeqCst);
    call!(KeReleaseMutex(mutex.cast(), 0));
}

#[test]
fn a_fast_mutex_keeps_others_out_and_its_owner_may_wait() {
    does(|_, irp| {
        let mut shared = TwoThreads::new();
        let lock: *mut FAST_MUTEX = &raw mut shared.lock;
        let other = thread(with_the_fast_mutex, (&raw mut *shared).cast());
        call!(ExAcquireFastMutex(lock));
        assert_eq!(u32::from(irql()), APC_LEVEL);
        assert_eq!(call!(ExTryToAcquireFastMutex(lock)), 0);
        assert_eq!(wait((&raw mut shared.begun).cast()), STATUS_SUCCESS);
        assert_eq!(shared.entered.load(SeqCst), 0, "the other thread waits");
        call!(ExReleaseFastMutex(lock));
        assert_eq!(irql(), 0);
        join(other);
        assert_eq!(shared.entered.load(SeqCst), 1);
        assert_ne!(call!(ExTryToAcquireFastMutex(lock)), 0);
        call!(ExReleaseFastMutex(lock));
        call!(KeEnterCriticalRegion());
        call!(ExAcquireFastMutexUnsafe(lock));
        call!(ExReleaseFastMutexUnsafe(lock));
        call!(KeLeaveCriticalRegion());
        complete(irp, 0, 0)
    });
}

#[test]
fn a_mutex_is_its_threads_as_often_as_it_has_waited() {
    does(|_, irp| {
        let mut shared = TwoThreads::new();
        let mutex: wdk_sys::PRKMUTEX = (&raw mut shared.mutex).cast();
        assert_eq!(call!(KeReadStateMutex(mutex)), 1);
        assert_eq!([wait(mutex.cast()), wait_no_time(mutex.cast())], [STATUS_SUCCESS; 2]);
        assert_eq!(call!(KeReadStateMutex(mutex)), -1);
        let other = thread(with_the_mutex, (&raw mut *shared).cast());
        assert_eq!(wait((&raw mut shared.begun).cast()), STATUS_SUCCESS);
        assert_eq!(call!(KeReleaseMutex(mutex, 0)), -1);
        assert_eq!(shared.entered.load(SeqCst), 0, "the other thread waits");
        assert_eq!(call!(KeReleaseMutex(mutex, 0)), 0);
        join(other);
        assert_eq!((shared.entered.load(SeqCst), call!(KeReadStateMutex(mutex))), (1, 1));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_semaphores_state_is_its_count() {
    does(|_, irp| {
        let mut semaphore = Box::new(wdk_sys::KSEMAPHORE::default());
        let place: *mut _ = &raw mut *semaphore;
        call!(KeInitializeSemaphore(place, 1, 2));
        assert_eq!(call!(KeReadStateSemaphore(place)), 1);
        assert_eq!([wait_no_time(place.cast()), wait_no_time(place.cast())], [STATUS_SUCCESS, STATUS_TIMEOUT]);
        assert_eq!(call!(KeReadStateSemaphore(place)), 0);
        complete(irp, 0, 0)
    });
}

#[test]
fn a_lock_for_readers_and_writers_is_a_spin_lock() {
    does(|_, irp| {
        let mut word = Box::new(0);
        let word: *mut i32 = &raw mut *word;
        let before = call!(ExAcquireSpinLockExclusive(word));
        assert_eq!((before, u32::from(irql())), (0, DISPATCH_LEVEL));
        call!(ExReleaseSpinLockExclusive(word, before));
        let before = call!(ExAcquireSpinLockShared(word));
        call!(ExReleaseSpinLockShared(word, before));
        let before = call!(KfRaiseIrql(2));
        call!(ExAcquireSpinLockExclusiveAtDpcLevel(word));
        call!(ExReleaseSpinLockExclusiveFromDpcLevel(word));
        call!(ExAcquireSpinLockSharedAtDpcLevel(word));
        call!(ExReleaseSpinLockSharedFromDpcLevel(word));
        call!(KeLowerIrql(before));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_lookaside_list_allocates_by_the_functions_in_it() {
    does(|_, irp| {
        let mut list = Box::new(LOOKASIDE_LIST_EX::default());
        let place: *mut LOOKASIDE_LIST_EX = &raw mut *list;
        assert_eq!(
            call!(ExInitializeLookasideListEx(place, None, None, NON_PAGED, 3, 24, TAG, 0)),
            STATUS_INVALID_PARAMETER_5
        );
        assert_eq!(call!(ExInitializeLookasideListEx(place, None, None, NON_PAGED, 0, 24, TAG, 0)), STATUS_SUCCESS);
        // What `ExAllocateFromLookasideListEx` does with an empty list.
        assert_eq!((list.L.Depth, list.L.Size, list.L.Tag, list.L.Type), (0, 24, TAG, NON_PAGED));
        // SAFETY: the list has one of the two forms of the function, and they have the same address.
        let allocate = unsafe { list.L.__bindgen_anon_4.Allocate }.expect("a function");
        // SAFETY: the list has one of the two forms of the function, and they have the same address.
        let free = unsafe { list.L.__bindgen_anon_5.Free }.expect("a function");
        // SAFETY: the arguments that the list says.
        let block = unsafe { allocate(list.L.Type, list.L.Size.into(), list.L.Tag) };
        assert!(!block.is_null());
        // SAFETY: the block has as many bytes.
        unsafe { block.cast::<[u8; 24]>().write([7; 24]) };
        // SAFETY: a block of the list.
        unsafe { free(block) };
        call!(ExFlushLookasideListEx(place));
        call!(ExDeleteLookasideListEx(place));
        // The older kinds begin with the same fields, and are a little longer.
        let mut older = Box::new([LOOKASIDE_LIST_EX::default(), LOOKASIDE_LIST_EX::default()]);
        let place: *mut LOOKASIDE_LIST_EX = older.as_mut_ptr();
        call!(ExInitializeNPagedLookasideList(place.cast(), None, None, 0, 24, TAG, 0));
        call!(ExDeleteNPagedLookasideList(place.cast()));
        call!(ExInitializePagedLookasideList(place.cast(), None, None, 0, 24, TAG, 0));
        assert_eq!(older[0].L.Type, PAGED);
        call!(ExDeletePagedLookasideList(place.cast()));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_list_is_changed_under_its_lock() {
    does(|_, irp| {
        let mut entries = Box::new([LIST_ENTRY::default(); 3]);
        let [head, one, two]: [*mut LIST_ENTRY; 3] = entries.each_mut().map(|entry| &raw mut *entry);
        // SAFETY: `InitializeListHead`.
        unsafe { head.write(LIST_ENTRY { Flink: head, Blink: head }) };
        let mut word = Box::new(0);
        let word: *mut u64 = &raw mut *word;
        let none: *mut LIST_ENTRY = ptr::null_mut();
        assert_eq!(call!(ExInterlockedInsertTailList(head, two, word)), none, "it was empty");
        assert_eq!(call!(ExInterlockedInsertHeadList(head, one, word)), two);
        let taken = [(); 3].map(|()| call!(ExInterlockedRemoveHeadList(head, word)));
        assert_eq!(taken, [one, two, none]);
        complete(irp, 0, 0)
    });
}

#[test]
fn memory_of_the_older_kinds_of_pool() {
    does(|_, irp| {
        let block = call!(ExAllocatePoolWithTag(NON_PAGED | ZEROED, 16, TAG));
        // SAFETY: as many bytes.
        assert_eq!(unsafe { block.cast::<[u8; 16]>().read() }, [0; 16]);
        call!(ExFreePoolWithTag(block, TAG));
        let block = call!(ExAllocatePoolWithTag(0, 16, TAG));
        // SAFETY: as many bytes.
        assert_ne!(unsafe { block.cast::<[u8; 16]>().read() }, [0; 16], "nobody has said what it holds");
        call!(ExFreePool(block));
        complete(irp, 0, 0)
    });
}

/// All addresses.
const ANYWHERE: [LARGE_INTEGER; 3] =
    [LARGE_INTEGER { QuadPart: 0 }, LARGE_INTEGER { QuadPart: -1 }, LARGE_INTEGER { QuadPart: 0 }];

/// Pages for an MDL, mapped.
pub fn pages() -> (*mut wdk_sys::MDL, PVOID) {
    let [low, high, skip] = ANYWHERE;
    let mdl = call!(MmAllocatePagesForMdlEx(low, high, skip, 5000, 1, 4));
    let place = call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16));
    (mdl, place)
}

#[test]
fn pages_for_an_mdl() {
    does(|_, irp| {
        let (mdl, place) = pages();
        // SAFETY: the driver's MDL.
        assert_eq!(unsafe { (*mdl).ByteCount }, 8192, "whole pages");
        // SAFETY: two pages are mapped there.
        assert_eq!(unsafe { place.cast::<[u8; 8192]>().read() }, [0; 8192]);
        call!(MmUnmapLockedPages(place, mdl));
        call!(MmFreePagesFromMdl(mdl));
        call!(ExFreePool(mdl.cast()));
        complete(irp, 0, 0)
    });
}

#[test]
fn processors_versions_and_priorities() {
    does(|_, irp| {
        let mut mask = 0;
        let count = call!(KeQueryActiveProcessorCount(&raw mut mask));
        assert_eq!((count, mask, call!(KeQueryActiveProcessors())), (4, 0xF, 0xF));
        assert_eq!(call!(KeQueryMaximumProcessorCount()), 4);
        let thread = ptr::without_provenance_mut(0x1000);
        assert_eq!(call!(KeSetPriorityThread(thread, 16)), 8);
        assert_eq!(call!(KeQueryPriorityThread(thread)), 16);
        let size = u32::try_from(size_of::<RTL_OSVERSIONINFOEXW>()).expect("a small structure");
        let mut version = RTL_OSVERSIONINFOEXW { dwOSVersionInfoSize: size, ..RTL_OSVERSIONINFOEXW::default() };
        assert_eq!(call!(RtlGetVersion((&raw mut version).cast())), STATUS_SUCCESS);
        assert_eq!((version.dwMajorVersion, version.dwBuildNumber, version.wProductType), (10, 19041, 1));
        let (mut major, mut build) = (0, 0);
        call!(PsGetVersion(&raw mut major, ptr::null_mut(), &raw mut build, ptr::null_mut()));
        assert_eq!((major, build), (10, 19041));
        let (windows_7, later) = (0x0601_0000, 0x0B00_0000);
        assert_eq!([windows_7, later, windows_7 + 1].map(|asked| call!(RtlIsNtDdiVersionAvailable(asked))), [1, 0, 0]);
        complete(irp, 0, 0)
    });
}

unsafe extern "C" fn count_call(_: *mut KDPC, context: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: the number lives until the DPC has run.
    let count = unsafe { &*context.cast::<AtomicU32>() };
    count.fetch_add(1, SeqCst);
}

#[test]
fn a_threaded_dpc_runs_where_it_is_to() {
    does(|_, irp| {
        let (mut dpc, count) = (Box::new(KDPC::default()), Box::new(AtomicU32::new(0)));
        let place: *mut KDPC = &raw mut *dpc;
        call!(KeInitializeThreadedDpc(place, Some(count_call), (&raw const *count).cast_mut().cast()));
        call!(KeSetTargetProcessorDpc(place, 2));
        assert_eq!(call!(KeInsertQueueDpc(place, ptr::null_mut(), ptr::null_mut())), 1);
        call!(KeFlushQueuedDpcs());
        assert_eq!(count.load(SeqCst), 1);
        complete(irp, 0, 0)
    });
}

unsafe extern "C" fn enabled(
    _: *const wdk_sys::GUID,
    code: u32,
    level: u8,
    any: u64,
    all: u64,
    _: wdk_sys::PEVENT_FILTER_DESCRIPTOR,
    said: PVOID,
) {
    // SAFETY: the place that was registered with the callback.
    unsafe { said.cast::<(u32, u8, u64, u64)>().write((code, level, any, all)) };
}

fn writes_events(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    /// `EVENT_DATA_DESCRIPTOR`, with the type of the part in the last field.
    #[repr(C)]
    struct Part(u64, u32, u32);
    let (provider, mut handle, mut said) = (wdk_sys::GUID::default(), 0, (0_u32, 0_u8, 0_u64, 0_u64));
    let registered = call!(EtwRegister(&raw const provider, Some(enabled), (&raw mut said).cast(), &raw mut handle));
    assert_eq!((registered, said), (STATUS_SUCCESS, (1, 0xFF, u64::MAX, 0)), "every event is wanted");
    let descriptor = [0_u64; 2];
    let descriptor = descriptor.as_ptr().cast();
    assert_eq!([call!(EtwEventEnabled(handle, descriptor)), call!(EtwProviderEnabled(handle, 4, 0))], [1, 1]);
    assert_eq!(call!(EtwWrite(handle, descriptor, ptr::null(), 0, ptr::null_mut())), STATUS_SUCCESS);
    // As TraceLogging has it: the size, the tags, the name, and the fields, of which there are none.
    let text = b"\x0A\0\x81\x01Event\0";
    let mut parts = [Part(descriptor.addr() as u64, 16, 2), Part(text.as_ptr().expose_provenance() as u64, 10, 1)];
    assert_eq!(call!(EtwWrite(handle, descriptor, ptr::null(), 2, parts.as_mut_ptr().cast())), STATUS_SUCCESS);
    call!(EtwUnregister(handle));
    assert_eq!(call!(EtwEventEnabled(0, descriptor)), 0, "nobody is registered");
    complete(irp, 0, 0)
}

#[test]
fn events_are_written() {
    run(Parts { control: writes_events, ..Parts::default() }, |kernel, _, file| {
        for count in 1..3 {
            assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
            assert_eq!(kernel.events().into_iter().collect::<Vec<_>>(), [("Event".to_owned(), count)]);
        }
    });
}

/// Opens the key of the driver's values.
pub fn open_key(name: &str) -> Result<HANDLE, NTSTATUS> {
    let path = format!(r"\registry\machine\SYSTEM\CurrentControlSet\Services\{name}");
    let path: Vec<u16> = path.encode_utf16().collect();
    let bytes = u16::try_from(2 * path.len()).expect("a short path");
    let mut path = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: path.as_ptr().cast_mut() };
    let mut attributes = OBJECT_ATTRIBUTES { ObjectName: &raw mut path, ..object_attributes() };
    let mut handle = ptr::null_mut();
    match call!(ZwOpenKey(&raw mut handle, wdk_sys::KEY_READ, &raw mut attributes)) {
        STATUS_SUCCESS => Ok(handle),
        status => Err(status),
    }
}

/// Asks for a value as `KEY_VALUE_PARTIAL_INFORMATION`: the status, the bytes that it needs, and those that there are.
pub fn query(key: HANDLE, name: &str, room: u32) -> (NTSTATUS, u32, Vec<u8>) {
    let name: Vec<u16> = name.encode_utf16().collect();
    let bytes = u16::try_from(2 * name.len()).expect("a short name");
    let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() };
    let (mut place, mut needed) = (vec![0_u8; 64], 0);
    let class = _KEY_VALUE_INFORMATION_CLASS::KeyValuePartialInformation;
    let status = call!(ZwQueryValueKey(key, &raw mut name, class, place.as_mut_ptr().cast(), room, &raw mut needed));
    place.truncate(needed as usize);
    (status, needed, place)
}

#[test]
fn a_driver_reads_its_values() {
    let load = |_| {
        assert_eq!(open_key("other").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(open_key(r"plain\Other").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        let service = open_key("plain").expect("the service");
        let key = open_key(r"plain\parameters").expect("its values");
        let number = [0, 4, 4, 7_u32].map(u32::to_le_bytes).concat();
        assert_eq!(query(key, "DEPTH", 64), (STATUS_SUCCESS, 16, number));
        assert_eq!(query(key, "Depth", 12).0, STATUS_BUFFER_OVERFLOW);
        assert_eq!(query(key, "Depth", 11).0, STATUS_BUFFER_TOO_SMALL);
        assert_eq!(query(key, "Width", 64).0, STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!([call!(ZwClose(key)), call!(ZwClose(service))], [STATUS_SUCCESS; 2]);
    };
    let kernel = Kernel::seeded(1).start();
    driver::prepare(Parts { load, ..Parts::default() });
    kernel.load_with("plain", driver::entry, &[("Depth", Value::Number(7))]).expect("it loads").unload();
}

#[test]
fn a_resource_has_one_writer_or_several_readers() {
    does(|_, irp| {
        let mut resource = Box::new(ERESOURCE::default());
        let place: *mut ERESOURCE = &raw mut *resource;
        call!(ExInitializeResourceLite(place));
        call!(KeEnterCriticalRegion());
        assert_eq!(call!(ExAcquireResourceSharedLite(place, 1)), 1);
        assert_eq!(call!(ExAcquireResourceSharedLite(place, 1)), 1);
        assert_eq!(call!(ExAcquireResourceExclusiveLite(place, 0)), 0, "the thread reads");
        call!(ExReleaseResourceLite(place));
        call!(ExReleaseResourceLite(place));
        assert_eq!(call!(ExAcquireResourceExclusiveLite(place, 1)), 1);
        assert_eq!(call!(ExAcquireResourceSharedLite(place, 0)), 1, "who writes may read");
        let other = thread(tries_to_read, place.cast());
        join(other);
        call!(ExReleaseResourceLite(place));
        call!(ExReleaseResourceLite(place));
        call!(KeLeaveCriticalRegion());
        call!(ExDeleteResourceLite(place));
        complete(irp, 0, 0)
    });
}

unsafe extern "C" fn tries_to_read(resource: PVOID) {
    call!(KeEnterCriticalRegion());
    assert_eq!(call!(ExAcquireResourceSharedLite(resource.cast(), 0)), 0, "another thread writes");
    call!(KeLeaveCriticalRegion());
}

#[test]
fn a_resource_left_behind() {
    breaks("a_resource_left_behind", Rule::ReferenceLeak, |_, irp| {
        call!(ExInitializeResourceLite(&raw mut *Box::leak(Box::new(ERESOURCE::default()))));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_resource_that_a_reader_wants_to_write() {
    breaks("a_resource_that_a_reader_wants_to_write", Rule::RecursiveLock, |_, irp| {
        let mut resource = Box::new(ERESOURCE::default());
        call!(ExInitializeResourceLite(&raw mut *resource));
        call!(KeEnterCriticalRegion());
        call!(ExAcquireResourceSharedLite(&raw mut *resource, 1));
        call!(ExAcquireResourceExclusiveLite(&raw mut *resource, 1));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_resource_outside_of_a_critical_region() {
    breaks("a_resource_outside_of_a_critical_region", Rule::CriticalRegion, |_, irp| {
        let mut resource = Box::new(ERESOURCE::default());
        call!(ExInitializeResourceLite(&raw mut *resource));
        call!(ExAcquireResourceSharedLite(&raw mut *resource, 1));
        complete(irp, 0, 0)
    });
}

/// A work item with an event that its routine sets.
#[repr(C)]
struct Work {
    item: WORK_QUEUE_ITEM,
    done: KEVENT,
}

impl Work {
    /// `ExInitializeWorkItem`, which is inline.
    #[expect(clippy::unnecessary_box_returns, reason = "the item has the address of the event")]
    fn new() -> Box<Self> {
        let mut work = Box::new(Self { item: WORK_QUEUE_ITEM::default(), done: KEVENT::default() });
        call!(KeInitializeEvent(&raw mut work.done, 0, 0));
        work.item.WorkerRoutine = Some(set_event);
        work.item.Parameter = (&raw mut work.done).cast();
        work
    }
}

unsafe extern "C" fn set_event(event: PVOID) {
    call!(KeSetEvent(event.cast(), 0, 0));
}

#[test]
fn a_work_item_without_a_device_runs() {
    does(|_, irp| {
        let mut work = Work::new();
        for _ in 0..2 {
            call!(KeInitializeEvent(&raw mut work.done, 0, 0));
            call!(ExQueueWorkItem(&raw mut work.item, 1));
            assert_eq!(wait((&raw mut work.done).cast()), STATUS_SUCCESS);
        }
        complete(irp, 0, 0)
    });
}

#[test]
fn a_work_item_without_a_device_queued_twice() {
    breaks("a_work_item_without_a_device_queued_twice", Rule::WorkItemQueued, |_, irp| {
        let work = Box::leak(Work::new());
        call!(ExQueueWorkItem(&raw mut work.item, 1));
        call!(ExQueueWorkItem(&raw mut work.item, 1));
        complete(irp, 0, 0)
    });
}

/// A queue of one request.
static QUEUE: DuringRun<AtomicPtr<IO_CSQ>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static QUEUED: DuringRun<AtomicPtr<IRP>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static LOCK: DuringRun<AtomicU64> = DuringRun::new(AtomicU64::new(0));

unsafe extern "C" fn insert(_: *mut IO_CSQ, irp: PIRP) {
    QUEUED.store(irp, SeqCst);
}

unsafe extern "C" fn remove(_: *mut IO_CSQ, irp: PIRP) {
    assert_eq!(QUEUED.swap(ptr::null_mut(), SeqCst), irp);
}

unsafe extern "C" fn peek(_: *mut IO_CSQ, after: PIRP, _: PVOID) -> PIRP {
    if after.is_null() { QUEUED.load(SeqCst) } else { ptr::null_mut() }
}

unsafe extern "C" fn acquire(_: *mut IO_CSQ, level: *mut u8) {
    let before = call!(KeAcquireSpinLockRaiseToDpc(LOCK.as_ptr()));
    // SAFETY: the caller's place.
    unsafe { level.write(before) };
}

unsafe extern "C" fn release(_: *mut IO_CSQ, level: u8) {
    call!(KeReleaseSpinLock(LOCK.as_ptr(), level));
}

unsafe extern "C" fn complete_cancelled(_: *mut IO_CSQ, irp: PIRP) {
    complete(irp, STATUS_CANCELLED, 0);
}

fn make_queue(_: PDEVICE_OBJECT) {
    let queue: *mut IO_CSQ = &raw mut *Box::leak(Box::new(IO_CSQ::default()));
    QUEUE.store(queue, SeqCst);
    call!(IoCsqInitialize(
        queue,
        Some(insert),
        Some(remove),
        Some(peek),
        Some(acquire),
        Some(release),
        Some(complete_cancelled)
    ));
}

#[test]
fn a_request_in_a_cancel_safe_queue_is_taken_out_or_cancelled() {
    let parts = Parts {
        load: make_queue,
        control: |_, irp| {
            call!(IoCsqInsertIrp(QUEUE.load(SeqCst), irp, ptr::null_mut()));
            STATUS_PENDING
        },
        unload: |_| {
            // SAFETY: made when the driver was loaded, and nothing is in it.
            drop(unsafe { Box::from_raw(QUEUE.load(SeqCst)) });
        },
        ..Parts::default()
    };
    run(parts, |_, driver, file| {
        let pending = file.begin(CODE, &[], 0);
        assert!(!pending.is_complete());
        driver.run(|| {
            let irp = call!(IoCsqRemoveNextIrp(QUEUE.load(SeqCst), ptr::null_mut()));
            complete(irp, STATUS_SUCCESS, 0);
            assert!(call!(IoCsqRemoveNextIrp(QUEUE.load(SeqCst), ptr::null_mut())).is_null());
        });
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        let pending = file.begin(CODE, &[], 0);
        pending.cancel();
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

#[test]
fn a_request_is_found_by_its_context() {
    does(|device, irp| {
        make_queue(device);
        let (queue, mut context) = (QUEUE.load(SeqCst), IO_CSQ_IRP_CONTEXT::default());
        call!(IoCsqInsertIrp(queue, irp, &raw mut context));
        assert_eq!(call!(IoCsqRemoveIrp(queue, &raw mut context)), irp);
        assert!(call!(IoCsqRemoveIrp(queue, &raw mut context)).is_null(), "it is out");
        // SAFETY: `make_queue` made it of a box, and nothing is in it.
        drop(unsafe { Box::from_raw(queue) });
        complete(irp, STATUS_SUCCESS, 0);
        STATUS_PENDING
    });
}

#[test]
fn a_key_left_open() {
    breaks("a_key_left_open", Rule::ReferenceLeak, |_, irp| {
        open_key("plain").expect("the service");
        complete(irp, 0, 0)
    });
}

#[test]
fn a_fast_mutex_acquired_twice() {
    breaks("a_fast_mutex_acquired_twice", Rule::RecursiveLock, |_, irp| {
        let mut shared = TwoThreads::new();
        call!(ExAcquireFastMutex(&raw mut shared.lock));
        call!(ExAcquireFastMutex(&raw mut shared.lock));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_fast_mutex_released_by_nobody() {
    breaks("a_fast_mutex_released_by_nobody", Rule::LockNotHeld, |_, irp| {
        let mut shared = TwoThreads::new();
        let before = call!(KfRaiseIrql(1));
        call!(ExReleaseFastMutex(&raw mut shared.lock));
        call!(KeLowerIrql(before));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_fast_mutex_that_is_none() {
    breaks("a_fast_mutex_that_is_none", Rule::Uninitialised, |_, irp| {
        let mut mutex = Box::new(FAST_MUTEX { Count: 1, ..FAST_MUTEX::default() });
        call!(ExAcquireFastMutex(&raw mut *mutex));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_fast_mutex_kept() {
    breaks("a_fast_mutex_kept", Rule::IrqlNotRestored, |_, irp| {
        call!(ExAcquireFastMutex(&raw mut Box::leak(TwoThreads::new()).lock));
        complete(irp, 0, 0)
    });
}

#[test]
fn apcs_may_come_with_an_unsafe_fast_mutex() {
    breaks("apcs_may_come_with_an_unsafe_fast_mutex", Rule::CriticalRegion, |_, irp| {
        let mut shared = TwoThreads::new();
        call!(ExAcquireFastMutexUnsafe(&raw mut shared.lock));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_mutex_released_by_nobody() {
    breaks("a_mutex_released_by_nobody", Rule::LockNotHeld, |_, irp| {
        let mut shared = TwoThreads::new();
        call!(KeReleaseMutex((&raw mut shared.mutex).cast(), 0));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_mutex_kept() {
    breaks("a_mutex_kept", Rule::CriticalRegion, |_, irp| {
        wait((&raw mut Box::leak(TwoThreads::new()).mutex).cast());
        complete(irp, 0, 0)
    });
}

#[test]
fn a_mutex_freed_while_it_is_held() {
    breaks("a_mutex_freed_while_it_is_held", Rule::LockHeld, |_, irp| {
        let mut shared = TwoThreads::new();
        wait((&raw mut shared.mutex).cast());
        drop(shared);
        complete(irp, 0, 0)
    });
}

#[test]
fn a_lock_for_readers_acquired_twice() {
    breaks("a_lock_for_readers_acquired_twice", Rule::RecursiveLock, |_, irp| {
        let mut word = Box::new(0);
        let before = call!(ExAcquireSpinLockShared(&raw mut *word));
        call!(ExAcquireSpinLockSharedAtDpcLevel(&raw mut *word));
        call!(ExReleaseSpinLockShared(&raw mut *word, before));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_lookaside_list_left_behind() {
    breaks("a_lookaside_list_left_behind", Rule::ReferenceLeak, |_, irp| {
        let mut list = Box::new(LOOKASIDE_LIST_EX::default());
        call!(ExInitializeLookasideListEx(&raw mut *list, None, None, NON_PAGED, 0, 24, TAG, 0));
        drop(list);
        complete(irp, 0, 0)
    });
}

#[test]
fn a_mapping_that_is_to_end_in_a_bug_check() {
    breaks("a_mapping_that_is_to_end_in_a_bug_check", Rule::BadArgument, |_, irp| {
        let [low, high, skip] = ANYWHERE;
        let mdl = call!(MmAllocatePagesForMdlEx(low, high, skip, 5000, 1, 4));
        call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 1, 16));
        complete(irp, 0, 0)
    });
}

#[test]
fn an_mdl_of_pages_left_behind() {
    breaks("an_mdl_of_pages_left_behind", Rule::PoolLeak, |_, irp| {
        let (mdl, place) = pages();
        call!(MmUnmapLockedPages(place, mdl));
        call!(MmFreePagesFromMdl(mdl));
        complete(irp, 0, 0)
    });
}

#[test]
fn paged_pool_at_dispatch_level() {
    breaks("paged_pool_at_dispatch_level", Rule::IrqlTooHigh, |_, irp| {
        let before = call!(KfRaiseIrql(2));
        call!(ExAllocatePoolWithTag(PAGED, 16, TAG));
        call!(KeLowerIrql(before));
        complete(irp, 0, 0)
    });
}

#[test]
fn memory_without_a_tag() {
    breaks("memory_without_a_tag", Rule::PoolTag, |_, irp| {
        call!(ExAllocatePoolWithTag(NON_PAGED, 16, 0));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_list_that_is_corrupt() {
    breaks("a_list_that_is_corrupt", Rule::BadArgument, |_, irp| {
        let mut entries = Box::new([LIST_ENTRY::default(); 2]);
        let [head, other]: [*mut LIST_ENTRY; 2] = entries.each_mut().map(|entry| &raw mut *entry);
        // SAFETY: as wrong as the test wants it: the neighbour knows nothing of the head.
        unsafe { head.write(LIST_ENTRY { Flink: other, Blink: head }) };
        // SAFETY: as wrong as the test wants it: the neighbour knows nothing of the head.
        unsafe { other.write(LIST_ENTRY { Flink: other, Blink: other }) };
        let mut word = Box::new(0);
        call!(ExInterlockedRemoveHeadList(head, &raw mut *word));
        complete(irp, 0, 0)
    });
}

#[test]
fn the_driver_stops_the_machine() {
    breaks("the_driver_stops_the_machine", Rule::DriverPanicked, |_, _| call!(KeBugCheck(0xE2)));
}
