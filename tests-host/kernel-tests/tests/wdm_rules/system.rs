//! Routines that many public drivers call and SoftNDK's own do not: what they register with the system, guarded mutexes, resources in a
//! critical region, extended cancel-safe queues, and what NDIS has for drivers that are no miniports.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught, irql};
use wdk_sys::{
    BOOLEAN, ERESOURCE, FAST_MUTEX, IO_CSQ, IO_CSQ_IRP_CONTEXT, KEVENT, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT,
    PIRP, PVOID, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{ExDeleteResourceLite, ExInitializeResourceLite, ExReleaseFastMutex, IoCsqRemoveNextIrp, KfRaiseIrql},
};

use crate::driver::{CODE, Parts, complete, does, run};

/// `STATUS_PROCEDURE_NOT_FOUND`, `STATUS_FLT_INSTANCE_ALTITUDE_COLLISION` and a status that the driver of the test makes up.
const NOT_FOUND: NTSTATUS = 0xC000_007A_u32.cast_signed();
const COLLISION: NTSTATUS = 0xC01C_0011_u32.cast_signed();
const REFUSED: NTSTATUS = 0xC000_00BB_u32.cast_signed();

type InsertEx = unsafe extern "C" fn(*mut IO_CSQ, PIRP, PVOID) -> NTSTATUS;

/// `OB_CALLBACK_REGISTRATION` and `OB_OPERATION_REGISTRATION` of the kit.
#[repr(C)]
struct ObjectRegistration {
    version: u16,
    count: u16,
    altitude: UNICODE_STRING,
    context: PVOID,
    operations: *const ObjectOperation,
}

#[repr(C)]
struct ObjectOperation {
    kind: PVOID,
    operations: u32,
    before: PVOID,
    after: PVOID,
}

// The kit declares them, the bindings leave them out: SoftNDK does not call them.
unsafe extern "C" {
    fn PsSetCreateProcessNotifyRoutine(routine: PVOID, remove: BOOLEAN) -> NTSTATUS;
    fn PsSetCreateProcessNotifyRoutineEx(routine: PVOID, remove: BOOLEAN) -> NTSTATUS;
    fn PsSetCreateThreadNotifyRoutine(routine: PVOID) -> NTSTATUS;
    fn PsRemoveCreateThreadNotifyRoutine(routine: PVOID) -> NTSTATUS;
    fn PsSetLoadImageNotifyRoutine(routine: PVOID) -> NTSTATUS;
    fn PsRemoveLoadImageNotifyRoutine(routine: PVOID) -> NTSTATUS;
    fn ObGetFilterVersion() -> u16;
    fn ObRegisterCallbacks(registration: *const ObjectRegistration, handle: *mut PVOID) -> NTSTATUS;
    fn ObUnRegisterCallbacks(handle: PVOID);
    fn CmRegisterCallbackEx(
        routine: PVOID,
        altitude: PCUNICODE_STRING,
        driver: PVOID,
        context: PVOID,
        cookie: *mut i64,
        reserved: PVOID,
    ) -> NTSTATUS;
    fn CmUnRegisterCallback(cookie: i64) -> NTSTATUS;
    fn KeInitializeGuardedMutex(place: *mut FAST_MUTEX);
    fn KeAcquireGuardedMutex(place: *mut FAST_MUTEX);
    fn KeTryToAcquireGuardedMutex(place: *mut FAST_MUTEX) -> BOOLEAN;
    fn KeReleaseGuardedMutex(place: *mut FAST_MUTEX);
    fn KeAreApcsDisabled() -> BOOLEAN;
    fn ExEnterCriticalRegionAndAcquireResourceExclusive(place: *mut ERESOURCE) -> PVOID;
    fn ExEnterCriticalRegionAndAcquireResourceShared(place: *mut ERESOURCE) -> PVOID;
    fn ExReleaseResourceAndLeaveCriticalRegion(place: *mut ERESOURCE);
    fn vDbgPrintEx(component: u32, level: u32, format: *const i8, arguments: *const u8) -> u32;
    fn vDbgPrintExWithPrefix(
        prefix: *const i8,
        component: u32,
        level: u32,
        format: *const i8,
        arguments: *const u8,
    ) -> u32;
    fn IoCsqInitializeEx(
        place: *mut IO_CSQ,
        insert: Option<InsertEx>,
        remove: Option<unsafe extern "C" fn(*mut IO_CSQ, PIRP)>,
        peek: Option<unsafe extern "C" fn(*mut IO_CSQ, PIRP, PVOID) -> PIRP>,
        acquire: Option<unsafe extern "C" fn(*mut IO_CSQ, *mut u8)>,
        release: Option<unsafe extern "C" fn(*mut IO_CSQ, u8)>,
        cancelled: Option<unsafe extern "C" fn(*mut IO_CSQ, PIRP)>,
    ) -> NTSTATUS;
    fn IoCsqInsertIrpEx(place: *mut IO_CSQ, irp: PIRP, context: *mut IO_CSQ_IRP_CONTEXT, argument: PVOID) -> NTSTATUS;
    fn NdisAllocateMemoryWithTag(place: *mut PVOID, length: u32, tag: u32) -> i32;
    fn NdisAllocateMemoryWithTagPriority(handle: PVOID, length: u32, tag: u32, priority: i32) -> PVOID;
    fn NdisFreeMemory(block: PVOID, length: u32, flags: u32);
    fn NdisInitializeEvent(place: *mut KEVENT);
    fn NdisSetEvent(place: *mut KEVENT);
    fn NdisResetEvent(place: *mut KEVENT);
    fn NdisWaitEvent(place: *mut KEVENT, milliseconds: u32) -> BOOLEAN;
    fn NdisMSleep(microseconds: u32);
    fn NdisGetVersion() -> u32;
    fn NdisRegisterProtocolDriver(context: PVOID, characteristics: *const u8, place: *mut PVOID) -> i32;
    fn NdisDeregisterProtocolDriver(handle: PVOID);
    fn NdisFRegisterFilterDriver(object: PVOID, context: PVOID, characteristics: *const u8, place: *mut PVOID) -> i32;
    fn NdisFDeregisterFilterDriver(handle: PVOID);
}

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them.
        unsafe { $name($($argument),*) }
    }};
}

macro_rules! rules {
    ($($name:ident $(breaks $rule:ident)? by $work:expr;)+) => {
        $(rules!(@ $name [$($rule)?] $work);)+
    };
    (@ $name:ident [] $work:expr) => {
        #[test]
        fn $name() {
            does($work);
        }
    };
    (@ $name:ident [$rule:ident] $work:expr) => {
        #[test]
        fn $name() {
            caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does($work));
        }
    };
}

rules! {
    callbacks_are_registered_and_taken_back by |_| callbacks();
    a_process_routine_that_is_left breaks ReferenceLeak by |_| {
        assert_eq!(call!(PsSetCreateProcessNotifyRoutineEx(routine(), 0)), STATUS_SUCCESS);
    };
    a_thread_routine_that_is_left breaks ReferenceLeak by |_| {
        assert_eq!(call!(PsSetCreateThreadNotifyRoutine(routine())), STATUS_SUCCESS);
    };
    an_image_routine_that_is_left breaks ReferenceLeak by |_| {
        assert_eq!(call!(PsSetLoadImageNotifyRoutine(routine())), STATUS_SUCCESS);
    };
    a_callback_for_objects_that_is_left breaks ReferenceLeak by |_| { object_callback("321"); };
    a_callback_for_the_registry_that_is_left breaks ReferenceLeak by |_| { registry_callback("7"); };
    a_callback_for_objects_taken_back_twice breaks BadHandle by |_| {
        let handle = object_callback("321");
        call!(ObUnRegisterCallbacks(handle));
        call!(ObUnRegisterCallbacks(handle));
    };
    a_process_routine_at_a_raised_level breaks IrqlTooHigh by |_| {
        call!(KfRaiseIrql(1));
        call!(PsSetCreateProcessNotifyRoutine(routine(), 0));
    };
    a_guarded_mutex_keeps_apcs_away by |_| guarded();
    a_guarded_mutex_acquired_twice breaks RecursiveLock by |_| {
        let mut mutex = FAST_MUTEX::default();
        call!(KeInitializeGuardedMutex(&raw mut mutex));
        call!(KeAcquireGuardedMutex(&raw mut mutex));
        call!(KeAcquireGuardedMutex(&raw mut mutex));
    };
    a_guarded_mutex_released_as_a_fast_mutex breaks LockPrimitive by |_| {
        let mut mutex = FAST_MUTEX::default();
        call!(KeInitializeGuardedMutex(&raw mut mutex));
        call!(KeAcquireGuardedMutex(&raw mut mutex));
        call!(ExReleaseFastMutex(&raw mut mutex));
    };
    a_guarded_mutex_that_nobody_has breaks LockNotHeld by |_| {
        let mut mutex = FAST_MUTEX::default();
        call!(KeInitializeGuardedMutex(&raw mut mutex));
        call!(KeReleaseGuardedMutex(&raw mut mutex));
    };
    a_resource_is_acquired_in_a_critical_region by |_| resource();
    a_resource_that_is_kept breaks CriticalRegion by |_| {
        let resource = Box::leak(Box::new(ERESOURCE::default()));
        call!(ExInitializeResourceLite(&raw mut *resource));
        call!(ExEnterCriticalRegionAndAcquireResourceExclusive(&raw mut *resource));
    };
    a_resource_that_nobody_has breaks LockNotHeld by |_| {
        let mut resource = Box::new(ERESOURCE::default());
        call!(ExInitializeResourceLite(&raw mut *resource));
        call!(ExReleaseResourceAndLeaveCriticalRegion(&raw mut *resource));
    };
    text_with_arguments_is_shown by |_| {
        call!(vDbgPrintEx(0, 0, c"%d\n".as_ptr().cast(), ptr::null()));
        call!(vDbgPrintExWithPrefix(c"driver: ".as_ptr().cast(), 0, 0, c"%d\n".as_ptr().cast(), ptr::null()));
    };
    memory_and_events_of_ndis by |_| ndis();
    memory_of_ndis_that_is_left breaks PoolLeak by |_| {
        let mut block = ptr::null_mut();
        call!(NdisAllocateMemoryWithTag(&raw mut block, 100, TAG));
    };
    memory_of_ndis_that_is_freed_twice breaks DoubleFree by |_| {
        let mut block = ptr::null_mut();
        call!(NdisAllocateMemoryWithTag(&raw mut block, 100, TAG));
        call!(NdisFreeMemory(block, 100, 0));
        call!(NdisFreeMemory(block, 100, 0));
    };
    memory_of_ndis_for_no_handle breaks BadHandle by |_| {
        call!(NdisAllocateMemoryWithTagPriority(ptr::null_mut(), 100, TAG, 0));
    };
    a_wait_for_an_event_of_ndis_at_a_raised_level breaks IrqlTooHigh by |_| {
        let mut event = KEVENT::default();
        call!(NdisInitializeEvent(&raw mut event));
        call!(KfRaiseIrql(1));
        call!(NdisWaitEvent(&raw mut event, 1));
    };
    protocols_and_filters_register by clients;
    a_protocol_that_is_left breaks ReferenceLeak by |_| { protocol(&characteristics(0x95, 1, 120)).expect("it registers"); };
    a_filter_that_is_left breaks ReferenceLeak by |device| {
        filter(device, &characteristics(FILTER, 1, 200)).expect("it registers");
    };
    a_protocol_that_deregisters_twice breaks BadHandle by |_| {
        let handle = protocol(&characteristics(0x95, 1, 120)).expect("it registers");
        call!(NdisDeregisterProtocolDriver(handle));
        call!(NdisDeregisterProtocolDriver(handle));
    };
    a_filter_that_deregisters_as_a_protocol breaks BadHandle by |device| {
        let handle = filter(device, &characteristics(FILTER, 2, 224)).expect("it registers");
        call!(NdisDeregisterProtocolDriver(handle));
    };
    a_protocol_with_the_header_of_a_filter breaks NdisHeader by |_| {
        let _ = protocol(&characteristics(FILTER, 1, 200));
    };
    a_protocol_that_is_shorter_than_its_revision breaks NdisHeader by |_| {
        let _ = protocol(&characteristics(0x95, 2, 120));
    };
}

const TAG: u32 = u32::from_ne_bytes(*b"Test");

extern "C" fn nothing() {}

fn routine() -> PVOID {
    nothing as *mut c_void
}

/// A string with these units, which stay as long as it is used.
fn string(units: &mut [u16]) -> UNICODE_STRING {
    let length = u16::try_from(units.len() * 2).expect("a short text");
    UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() }
}

fn try_object_callback(altitude: &str, operations: u32, before: PVOID) -> Result<PVOID, NTSTATUS> {
    let operation = ObjectOperation { kind: ptr::null_mut(), operations, before, after: ptr::null_mut() };
    let version = call!(ObGetFilterVersion());
    let mut units: Vec<u16> = altitude.encode_utf16().collect();
    let registration = ObjectRegistration {
        version,
        count: 1,
        altitude: string(&mut units),
        context: ptr::null_mut(),
        operations: &raw const operation,
    };
    let mut handle = ptr::null_mut();
    match call!(ObRegisterCallbacks(&raw const registration, &raw mut handle)) {
        STATUS_SUCCESS => Ok(handle),
        status => Err(status),
    }
}

fn object_callback(altitude: &str) -> PVOID {
    try_object_callback(altitude, 1, routine()).expect("it registers")
}

fn try_registry_callback(altitude: &str) -> Result<i64, NTSTATUS> {
    let mut units: Vec<u16> = altitude.encode_utf16().collect();
    let (altitude, mut cookie, nobody) = (string(&mut units), 0, ptr::null_mut());
    match call!(CmRegisterCallbackEx(routine(), &raw const altitude, nobody, nobody, &raw mut cookie, nobody)) {
        STATUS_SUCCESS => Ok(cookie),
        status => Err(status),
    }
}

fn registry_callback(altitude: &str) -> i64 {
    try_registry_callback(altitude).expect("it registers")
}

fn callbacks() {
    assert_eq!(call!(PsSetCreateProcessNotifyRoutine(routine(), 0)), STATUS_SUCCESS);
    assert_eq!(call!(PsSetCreateProcessNotifyRoutine(routine(), 0)), STATUS_INVALID_PARAMETER, "it is there");
    assert_eq!(call!(PsSetCreateProcessNotifyRoutine(routine(), 1)), STATUS_SUCCESS);
    assert_eq!(call!(PsSetCreateProcessNotifyRoutine(routine(), 1)), NOT_FOUND);
    assert_eq!(call!(PsSetCreateThreadNotifyRoutine(routine())), STATUS_SUCCESS);
    assert_eq!(call!(PsRemoveLoadImageNotifyRoutine(routine())), NOT_FOUND, "that is another kind");
    assert_eq!(call!(PsRemoveCreateThreadNotifyRoutine(routine())), STATUS_SUCCESS);
    assert_eq!(call!(PsSetLoadImageNotifyRoutine(routine())), STATUS_SUCCESS);
    assert_eq!(call!(PsRemoveLoadImageNotifyRoutine(routine())), STATUS_SUCCESS);

    let handle = object_callback("321");
    assert_eq!(try_object_callback("321", 1, routine()), Err(COLLISION));
    assert_eq!(try_object_callback("322", 0, routine()), Err(STATUS_INVALID_PARAMETER), "no operation");
    assert_eq!(try_object_callback("322", 4, routine()), Err(STATUS_INVALID_PARAMETER), "there is no such operation");
    assert_eq!(try_object_callback("322", 3, ptr::null_mut()), Err(STATUS_INVALID_PARAMETER), "no routine");
    call!(ObUnRegisterCallbacks(handle));

    let cookie = registry_callback("7");
    assert_eq!(try_registry_callback("7"), Err(COLLISION));
    assert_eq!(call!(CmUnRegisterCallback(cookie)), STATUS_SUCCESS);
    assert_eq!(call!(CmUnRegisterCallback(cookie)), STATUS_INVALID_PARAMETER);
}

fn guarded() {
    let mut mutex = FAST_MUTEX::default();
    let place = &raw mut mutex;
    call!(KeInitializeGuardedMutex(place));
    assert_eq!(call!(KeAreApcsDisabled()), 0);
    call!(KeAcquireGuardedMutex(place));
    assert_eq!((call!(KeAreApcsDisabled()), irql()), (1, 0), "the level is what it was");
    assert_eq!(call!(KeTryToAcquireGuardedMutex(place)), 0);
    call!(KeReleaseGuardedMutex(place));
    assert_eq!(call!(KeTryToAcquireGuardedMutex(place)), 1);
    call!(KeReleaseGuardedMutex(place));
    assert_eq!(call!(KeAreApcsDisabled()), 0);
}

fn resource() {
    let mut resource = Box::new(ERESOURCE::default());
    let place = &raw mut *resource;
    call!(ExInitializeResourceLite(place));
    for exclusive in [true, false] {
        if exclusive {
            call!(ExEnterCriticalRegionAndAcquireResourceExclusive(place));
        } else {
            call!(ExEnterCriticalRegionAndAcquireResourceShared(place));
        }
        assert_eq!(call!(KeAreApcsDisabled()), 1);
        call!(ExReleaseResourceAndLeaveCriticalRegion(place));
        assert_eq!(call!(KeAreApcsDisabled()), 0);
    }
    call!(ExDeleteResourceLite(place));
}

fn ndis() {
    let mut block = ptr::null_mut();
    assert_eq!(call!(NdisAllocateMemoryWithTag(&raw mut block, 100, TAG)), 0);
    assert!(!block.is_null());
    call!(NdisFreeMemory(block, 100, 0));
    let block = call!(NdisAllocateMemoryWithTagPriority(ptr::dangling_mut(), 100, TAG, 0));
    call!(NdisFreeMemory(block, 0, 0));

    let mut event = KEVENT::default();
    let place = &raw mut event;
    call!(NdisInitializeEvent(place));
    assert_eq!(call!(NdisWaitEvent(place, 5)), 0, "nobody sets it");
    call!(NdisSetEvent(place));
    assert_eq!((call!(NdisWaitEvent(place, 0)), call!(NdisWaitEvent(place, 5))), (1, 1), "it stays set");
    call!(NdisResetEvent(place));
    assert_eq!(call!(NdisWaitEvent(place, 5)), 0);
    call!(NdisMSleep(10));
    assert_eq!(call!(NdisGetVersion()) >> 16, 6);
}

/// `NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS`.
const FILTER: u8 = 0x8B;

/// The characteristics of a client of NDIS 6.30, with all handlers that there can be.
fn characteristics(kind: u8, revision: u8, size: u16) -> Vec<u64> {
    let mut words = vec![routine().addr() as u64; usize::from(size) / 8];
    words[0] = u64::from_le_bytes([kind, revision, size.to_le_bytes()[0], size.to_le_bytes()[1], 6, 30, 1, 0]);
    words[1] = 0;
    if kind == FILTER {
        // `SetOptionsHandler`, which is called, and need not be there.
        words[8] = 0;
    }
    words
}

fn protocol(characteristics: &[u64]) -> Result<PVOID, i32> {
    let mut handle = ptr::null_mut();
    match call!(NdisRegisterProtocolDriver(ptr::null_mut(), characteristics.as_ptr().cast(), &raw mut handle)) {
        0 => Ok(handle),
        status => Err(status),
    }
}

fn filter(device: PDEVICE_OBJECT, characteristics: &[u64]) -> Result<PVOID, i32> {
    // SAFETY: the driver's own device.
    let object = unsafe { (*device).DriverObject };
    let (mut handle, nobody) = (ptr::null_mut(), ptr::null_mut());
    match call!(NdisFRegisterFilterDriver(object.cast(), nobody, characteristics.as_ptr().cast(), &raw mut handle)) {
        0 => Ok(handle),
        status => Err(status),
    }
}

fn clients(device: PDEVICE_OBJECT) {
    let handle = protocol(&characteristics(0x95, 2, 128)).expect("it registers");
    call!(NdisDeregisterProtocolDriver(handle));
    let handle = filter(device, &characteristics(FILTER, 2, 224)).expect("it registers");
    call!(NdisFDeregisterFilterDriver(handle));

    // `BindAdapterHandlerEx` and `AttachHandler`.
    let mut wrong = characteristics(0x95, 1, 120);
    wrong[5] = 0;
    assert_eq!(protocol(&wrong), Err(0xC001_0005_u32.cast_signed()), "a handler is missing");
    let mut wrong = characteristics(FILTER, 1, 200);
    wrong[10] = 0;
    assert_eq!(filter(device, &wrong), Err(0xC001_0005_u32.cast_signed()), "a handler is missing");
    let mut old = characteristics(0x95, 1, 120);
    old[0] = old[0] & !(0xFF << 32) | 5 << 32;
    assert_eq!(protocol(&old), Err(0xC001_0004_u32.cast_signed()), "NDIS 5");
}

// An extended cancel-safe queue of one request: the driver says with an argument whether it takes a request.

static QUEUE: DuringRun<AtomicPtr<IO_CSQ>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static KEPT: DuringRun<AtomicPtr<c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static LOCKED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn insert(_: *mut IO_CSQ, irp: PIRP, argument: PVOID) -> NTSTATUS {
    assert_eq!(LOCKED.load(SeqCst), 1);
    if argument.is_null() {
        return REFUSED;
    }
    KEPT.store(irp.cast(), SeqCst);
    STATUS_SUCCESS
}

unsafe extern "C" fn remove(_: *mut IO_CSQ, irp: PIRP) {
    assert_eq!(KEPT.swap(ptr::null_mut(), SeqCst), irp.cast());
}

unsafe extern "C" fn peek(_: *mut IO_CSQ, after: PIRP, _: PVOID) -> PIRP {
    if after.is_null() { KEPT.load(SeqCst).cast() } else { ptr::null_mut() }
}

unsafe extern "C" fn acquire(_: *mut IO_CSQ, _: *mut u8) {
    LOCKED.fetch_add(1, SeqCst);
}

unsafe extern "C" fn release(_: *mut IO_CSQ, _: u8) {
    LOCKED.fetch_sub(1, SeqCst);
}

unsafe extern "C" fn cancelled(_: *mut IO_CSQ, _: PIRP) {}

#[test]
fn an_extended_queue_may_refuse_a_request() {
    let load = |_| {
        let queue = Box::leak(Box::new(IO_CSQ::default()));
        QUEUE.store(queue, SeqCst);
        let routines =
            (Some(insert as InsertEx), Some(remove as _), Some(peek as _), Some(acquire as _), Some(release as _));
        let (one, two, three, four, five) = routines;
        assert_eq!(call!(IoCsqInitializeEx(queue, one, two, three, four, five, Some(cancelled as _))), STATUS_SUCCESS);
    };
    let control = |_, irp| {
        let (queue, no_context) = (QUEUE.load(SeqCst), ptr::null_mut());
        if call!(IoCsqInsertIrpEx(queue, irp, no_context, ptr::null_mut())) != REFUSED {
            return STATUS_PENDING;
        }
        // It is the driver's still, and is not marked: it may be completed in the call.
        assert!(call!(IoCsqRemoveNextIrp(queue, ptr::null_mut())).is_null());
        // SAFETY: the driver has the IRP, whose input is there.
        if unsafe { crate::driver::buffer(irp).read() } == 0 {
            return complete(irp, REFUSED, 0);
        }
        assert_eq!(call!(IoCsqInsertIrpEx(queue, irp, no_context, ptr::dangling_mut())), STATUS_SUCCESS);
        let taken = call!(IoCsqRemoveNextIrp(queue, ptr::null_mut()));
        assert_eq!(taken, irp);
        complete(irp, 0, 0);
        STATUS_PENDING
    };
    let unload = |_| {
        // SAFETY: what the load has leaked; nothing is in it.
        drop(unsafe { Box::from_raw(QUEUE.swap(ptr::null_mut(), SeqCst)) });
    };
    run(Parts { load, control, unload, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[0], 1).status, REFUSED);
        assert_eq!(file.control(CODE, &[1], 1).status, STATUS_SUCCESS);
        assert_eq!(LOCKED.load(SeqCst), 0);
    });
}
