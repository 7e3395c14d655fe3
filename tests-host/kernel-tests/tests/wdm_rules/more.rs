//! Events with a handle, queues of the kernel, work items in memory of the driver's, what is initialised once, power settings, the limits of a
//! stack, who has asked for something.

use std::{
    ptr,
    sync::atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use simulated_kernel::{DuringRun, Rule, caught, object_attributes};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, ACCESS_MASK, GUID, HANDLE, KEVENT, LARGE_INTEGER, LIST_ENTRY, NTSTATUS,
    OBJECT_ATTRIBUTES, PDEVICE_OBJECT, PIO_WORKITEM, PIRP, POOL_FLAG_NON_PAGED, PVOID, STATUS_INVALID_PARAMETER,
    STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS, STATUS_TIMEOUT,
    STATUS_UNSUCCESSFUL, ULONG, UNICODE_STRING,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, KeInitializeEvent, KeLowerIrql, KeReadStateEvent, KeSetEvent,
        KeWaitForSingleObject, KfRaiseIrql, ObReferenceObjectByHandle, ObfDereferenceObject, PsGetCurrentProcessId,
        ZwClose, ZwWaitForSingleObject,
    },
};

use crate::{
    asked::{call, join, sleep, tests, thread},
    driver::{self, CODE, Parts, complete, run},
};

const TAG: u32 = u32::from_ne_bytes(*b"More");
/// `STATUS_OBJECT_NAME_EXISTS`.
const EXISTS: NTSTATUS = 0x4000_0000;
const INVALID_HANDLE: NTSTATUS = 0xC000_0008_u32.cast_signed();

/// `KQUEUE`.
#[repr(C, align(8))]
struct Queue([u8; 64]);

/// `SINGLE_LIST_ENTRY`.
#[repr(C)]
struct Single {
    next: *mut Self,
}

type WorkItem = unsafe extern "C" fn(PVOID, PVOID, PIO_WORKITEM);
type Once = unsafe extern "C" fn(*mut usize, PVOID, *mut PVOID) -> ULONG;
type Setting = unsafe extern "C" fn(*const GUID, PVOID, ULONG, PVOID) -> NTSTATUS;
type Processor = unsafe extern "C" fn(PVOID, *mut [u32; 4], *mut NTSTATUS);
type Callout = unsafe extern "C" fn(PVOID);

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn IoCreateNotificationEvent(name: *const UNICODE_STRING, handle: *mut HANDLE) -> *mut KEVENT;
    fn IoCreateSynchronizationEvent(name: *const UNICODE_STRING, handle: *mut HANDLE) -> *mut KEVENT;
    fn ZwCreateEvent(
        handle: *mut HANDLE,
        access: ACCESS_MASK,
        attributes: *mut OBJECT_ATTRIBUTES,
        kind: i32,
        set: u8,
    ) -> NTSTATUS;
    fn ZwOpenEvent(handle: *mut HANDLE, access: ACCESS_MASK, attributes: *mut OBJECT_ATTRIBUTES) -> NTSTATUS;
    fn ZwSetEvent(handle: HANDLE, previous: *mut i32) -> NTSTATUS;
    fn ObReferenceObjectByHandleWithTag(
        handle: HANDLE,
        access: ACCESS_MASK,
        kind: PVOID,
        mode: i8,
        tag: ULONG,
        object: *mut PVOID,
        information: PVOID,
    ) -> NTSTATUS;
    fn ObReferenceObjectByPointerWithTag(object: PVOID, access: u32, kind: PVOID, mode: i8, tag: ULONG) -> NTSTATUS;
    fn ObReferenceObjectSafe(object: PVOID) -> u8;
    fn KePulseEvent(event: *mut KEVENT, increment: i32, wait: u8) -> i32;
    fn KeInitializeQueue(queue: *mut Queue, threads: ULONG);
    fn KeInsertQueue(queue: *mut Queue, entry: *mut LIST_ENTRY) -> i32;
    fn KeInsertHeadQueue(queue: *mut Queue, entry: *mut LIST_ENTRY) -> i32;
    fn KeRemoveQueue(queue: *mut Queue, mode: i8, timeout: *mut LARGE_INTEGER) -> *mut LIST_ENTRY;
    fn KeRundownQueue(queue: *mut Queue) -> *mut LIST_ENTRY;
    fn KeReadStateQueue(queue: *mut Queue) -> i32;
    fn ExInterlockedPushEntryList(head: *mut Single, entry: *mut Single, lock: *mut u64) -> *mut Single;
    fn ExInterlockedPopEntryList(head: *mut Single, lock: *mut u64) -> *mut Single;
    fn IoSizeofWorkItem() -> ULONG;
    fn IoInitializeWorkItem(object: PVOID, item: PIO_WORKITEM);
    fn IoUninitializeWorkItem(item: PIO_WORKITEM);
    fn IoTryQueueWorkItem(item: PIO_WORKITEM, routine: Option<WorkItem>, queue: i32, context: PVOID) -> u8;
    fn IoAllocateWorkItem(object: PVOID) -> PIO_WORKITEM;
    fn IoFreeWorkItem(item: PIO_WORKITEM);
    fn RtlRunOnceInitialize(once: *mut usize);
    fn RtlRunOnceExecuteOnce(
        once: *mut usize,
        routine: Option<Once>,
        parameter: PVOID,
        context: *mut PVOID,
    ) -> NTSTATUS;
    fn RtlRunOnceBeginInitialize(once: *mut usize, flags: ULONG, context: *mut PVOID) -> NTSTATUS;
    fn RtlRunOnceComplete(once: *mut usize, flags: ULONG, context: PVOID) -> NTSTATUS;
    fn RtlRandom(seed: *mut ULONG) -> ULONG;
    fn RtlRandomEx(seed: *mut ULONG) -> ULONG;
    fn PoRegisterPowerSettingCallback(
        device: PDEVICE_OBJECT,
        setting: *const GUID,
        callback: Option<Setting>,
        context: PVOID,
        handle: *mut PVOID,
    ) -> NTSTATUS;
    fn PoUnregisterPowerSettingCallback(handle: PVOID) -> NTSTATUS;
    fn KeRegisterProcessorChangeCallback(callback: Option<Processor>, context: PVOID, flags: ULONG) -> PVOID;
    fn KeDeregisterProcessorChangeCallback(handle: PVOID);
    fn IoGetStackLimits(low: *mut usize, high: *mut usize);
    fn IoWithinStackLimits(start: usize, size: usize) -> ULONG;
    fn IoGetInitialStack() -> PVOID;
    fn KeExpandKernelStackAndCallout(callout: Option<Callout>, parameter: PVOID, size: u64) -> NTSTATUS;
    fn KeExpandKernelStackAndCalloutEx(
        callout: Option<Callout>,
        parameter: PVOID,
        size: u64,
        wait: u8,
        context: PVOID,
    ) -> NTSTATUS;
    fn IoGetRequestorProcess(irp: PIRP) -> PVOID;
    fn IoGetRequestorProcessId(irp: PIRP) -> ULONG;
    fn IoThreadToProcess(thread: PVOID) -> PVOID;
    fn PsGetThreadProcess(thread: PVOID) -> PVOID;
    fn PsGetCurrentProcess() -> PVOID;
    fn KeGetCurrentThread() -> PVOID;
    fn KeSetBasePriorityThread(thread: PVOID, increment: i32) -> i32;
    fn IoAllocateIrp(locations: i8, quota: u8) -> PIRP;
    fn IoFreeIrp(irp: PIRP);
    fn IoGetAttachedDevice(device: PDEVICE_OBJECT) -> PDEVICE_OBJECT;
    fn IoGetRelatedDeviceObject(file: PVOID) -> PDEVICE_OBJECT;
    fn SeSinglePrivilegeCheck(privilege: u64, mode: i8) -> u8;
    fn MmSizeOfMdl(address: PVOID, length: u64) -> u64;
    fn MmQuerySystemSize() -> i32;
    fn KeGetRecommendedSharedDataAlignment() -> ULONG;
}

/// Access to everything of an event.
const ALL: ACCESS_MASK = 0x001F_0003;

fn create(kind: i32, set: bool) -> HANDLE {
    let mut handle = ptr::null_mut();
    let mut attributes = object_attributes();
    assert_eq!(call!(ZwCreateEvent(&raw mut handle, ALL, &raw mut attributes, kind, set.into())), STATUS_SUCCESS);
    handle
}

fn close(handle: HANDLE) {
    assert_eq!(call!(ZwClose(handle)), STATUS_SUCCESS);
}

/// Waits for a handle, not at all.
fn look(handle: HANDLE) -> NTSTATUS {
    let mut now = LARGE_INTEGER { QuadPart: 0 };
    call!(ZwWaitForSingleObject(handle, 0, &raw mut now))
}

/// The event behind a handle, with a reference.
fn event(handle: HANDLE) -> *mut KEVENT {
    let mut object = ptr::null_mut();
    let status = call!(ObReferenceObjectByHandle(handle, ALL, ptr::null_mut(), 0, &raw mut object, ptr::null_mut()));
    assert_eq!(status, STATUS_SUCCESS);
    object.cast()
}

/// Something in the pool that the test writes to.
fn block<T>() -> *mut T {
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size_of::<T>() as u64, TAG)).cast()
}

fn free<T>(block: *mut T) {
    call!(ExFreePoolWithTag(block.cast(), TAG));
}

fn queue() -> *mut Queue {
    let queue = block();
    call!(KeInitializeQueue(queue, 0));
    queue
}

fn at_once() -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: 0 }
}

/// How often something was called, and with what.
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static WITH: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

unsafe extern "C" fn work(_: PVOID, context: PVOID, item: PIO_WORKITEM) {
    assert!(!item.is_null());
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the event of who waits.
    unsafe { KeSetEvent(context.cast(), 0, 0) };
}

unsafe extern "C" fn initialise(_: *mut usize, parameter: PVOID, context: *mut PVOID) -> ULONG {
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the routine's place.
    unsafe { context.write(parameter) };
    u32::from(!parameter.is_null())
}

unsafe extern "C" fn initialise_badly(_: *mut usize, _: PVOID, context: *mut PVOID) -> ULONG {
    // SAFETY: the routine's place.
    unsafe { context.write(ptr::without_provenance_mut(0x11)) };
    1
}

unsafe extern "C" fn hear(_: *const GUID, value: PVOID, length: ULONG, context: PVOID) -> NTSTATUS {
    assert_eq!(length, 4);
    // SAFETY: the setting's number.
    WITH.store(unsafe { value.cast::<u32>().read() } as usize, Relaxed);
    if !context.is_null() {
        // SAFETY: the event of who waits.
        unsafe { KeSetEvent(context.cast(), 0, 0) };
    }
    STATUS_SUCCESS
}

/// Refuses the processor whose number the context is.
unsafe extern "C" fn count_processors(context: PVOID, change: *mut [u32; 4], status: *mut NTSTATUS) {
    // SAFETY: the structure of the call: state, number, status, processor.
    let [state, number, ..] = unsafe { change.read() };
    CALLS.fetch_add(1 << (8 * state), SeqCst);
    if state == 0 && number as usize + 1 == context.addr() {
        // SAFETY: the place of the call.
        unsafe { status.write(STATUS_UNSUCCESSFUL) };
    }
}

unsafe extern "C" fn called(parameter: PVOID) {
    WITH.store(parameter.addr(), Relaxed);
}

/// `GUID_ACDC_POWER_SOURCE`.
static POWER_SOURCE: GUID =
    GUID { Data1: 0x5D3E_9A59, Data2: 0xE9D5, Data3: 0x4B00, Data4: [0xA6, 0xBD, 0xFF, 0x34, 0xFF, 0x51, 0x65, 0x48] };

fn listen(context: *mut KEVENT) -> PVOID {
    let mut handle = ptr::null_mut();
    let (setting, nobody) = (&raw const POWER_SOURCE, ptr::null_mut());
    let status = call!(PoRegisterPowerSettingCallback(nobody, setting, Some(hear), context.cast(), &raw mut handle));
    assert_eq!(status, STATUS_SUCCESS);
    handle
}

/// An event that stays set.
fn signal() -> *mut KEVENT {
    let event = block::<KEVENT>();
    call!(KeInitializeEvent(event, _EVENT_TYPE::NotificationEvent, 0));
    event
}

fn wait(event: *mut KEVENT) {
    let status = call!(KeWaitForSingleObject(event.cast(), _KWAIT_REASON::Executive, 0, 0, ptr::null_mut()));
    assert_eq!(status, STATUS_SUCCESS);
}

/// A name, and a string of it that lives as long.
fn with_name(text: &str, work: impl FnOnce(*mut UNICODE_STRING)) {
    let mut units: Vec<u16> = text.encode_utf16().collect();
    let bytes = u16::try_from(2 * units.len()).expect("a short name");
    let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
    work(&raw mut name);
}

fn item() -> PIO_WORKITEM {
    let size = call!(IoSizeofWorkItem());
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size.into(), TAG)).cast()
}

/// Waits at a queue, and says what it has got.
unsafe extern "C" fn serve(queue: PVOID) {
    // SAFETY: the queue lives as long as the thread.
    let entry = unsafe { KeRemoveQueue(queue.cast(), 0, ptr::null_mut()) };
    WITH.store(entry.addr(), SeqCst);
}

tests! {
    an_event_is_set_and_waited_for_by_its_handle by {
        let handle = create(_EVENT_TYPE::SynchronizationEvent, false);
        assert_eq!(look(handle), STATUS_TIMEOUT);
        let mut before = 7;
        assert_eq!(call!(ZwSetEvent(handle, &raw mut before)), STATUS_SUCCESS);
        assert_eq!(before, 0);
        let event = event(handle);
        assert_eq!(call!(KeReadStateEvent(event)), 1);
        assert_eq!((look(handle), look(handle)), (STATUS_SUCCESS, STATUS_TIMEOUT), "one waiter takes it");
        close(handle);
        call!(KeSetEvent(event, 0, 0));
        wait(event);
        call!(ObfDereferenceObject(event.cast()));
        assert_eq!(call!(ZwSetEvent(ptr::without_provenance_mut(0x99), ptr::null_mut())), INVALID_HANDLE);
    }
    an_event_has_a_name_that_others_open by {
        with_name(r"\BaseNamedObjects\Ready", |name| {
            let mut attributes = OBJECT_ATTRIBUTES { ObjectName: name, ..object_attributes() };
            let (mut one, mut two, mut three) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            let place = &raw mut attributes;
            assert_eq!(call!(ZwOpenEvent(&raw mut one, ALL, place)), STATUS_OBJECT_NAME_NOT_FOUND);
            let made = call!(IoCreateNotificationEvent(name, &raw mut one));
            assert_eq!(call!(KeReadStateEvent(made)), 1, "it is set at first");
            assert_eq!(call!(ZwOpenEvent(&raw mut two, ALL, place)), STATUS_SUCCESS);
            assert_eq!(call!(ZwCreateEvent(&raw mut three, ALL, place, 0, 0)), STATUS_OBJECT_NAME_COLLISION);
            // SAFETY: the test's own structure. `OBJ_OPENIF`.
            unsafe { (*place).Attributes |= 0x80 };
            assert_eq!(call!(ZwCreateEvent(&raw mut three, ALL, place, 0, 0)), EXISTS);
            assert_eq!(call!(ZwCreateEvent(&raw mut three, ALL, place, 9, 0)), STATUS_INVALID_PARAMETER);
            [one, two].into_iter().for_each(close);
            assert_eq!(look(three), STATUS_SUCCESS, "it is the same, and there as long as it has a handle");
            close(three);
            assert_eq!(call!(ZwOpenEvent(&raw mut two, ALL, place)), STATUS_OBJECT_NAME_NOT_FOUND);
        });
        let mut handle = ptr::null_mut();
        let event = call!(IoCreateSynchronizationEvent(ptr::null(), &raw mut handle));
        wait(event);
        assert_eq!(look(handle), STATUS_TIMEOUT);
        close(handle);
    }
    an_object_is_referred_to_with_a_tag by {
        let (handle, mut object) = (create(_EVENT_TYPE::NotificationEvent, true), ptr::null_mut());
        let place = &raw mut object;
        let (kind, more) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(call!(ObReferenceObjectByHandleWithTag(handle, ALL, kind, 0, TAG, place, more)), STATUS_SUCCESS);
        assert_eq!(call!(ObReferenceObjectByPointerWithTag(object, ALL, kind, 0, TAG)), STATUS_SUCCESS);
        assert_eq!(call!(ObReferenceObjectSafe(object)), 1);
        for _ in 0..3 {
            call!(ObfDereferenceObject(object));
        }
        close(handle);
    }
    an_event_that_is_pulsed_is_not_set_afterwards by {
        let event = signal();
        assert_eq!(call!(KePulseEvent(event, 0, 0)), 0);
        call!(KeSetEvent(event, 0, 0));
        assert_eq!(call!(KePulseEvent(event, 0, 0)), 1);
        assert_eq!(call!(KeReadStateEvent(event)), 0);
        free(event);
    }
    a_queue_gives_its_entries_in_their_order by {
        let (queue, mut entries) = (queue(), [LIST_ENTRY::default(); 3]);
        let [one, two, three] = entries.each_mut().map(|entry| &raw mut *entry);
        let mut now = at_once();
        assert_eq!(call!(KeRemoveQueue(queue, 0, &raw mut now)).addr(), 0x102);
        assert_eq!((call!(KeInsertQueue(queue, one)), call!(KeInsertQueue(queue, two))), (0, 1));
        assert_eq!((call!(KeInsertHeadQueue(queue, three)), call!(KeReadStateQueue(queue))), (2, 3));
        assert_eq!(call!(KeRemoveQueue(queue, 0, ptr::null_mut())), three);
        let rest = call!(KeRundownQueue(queue));
        assert_eq!(rest, one);
        // SAFETY: the test's entries.
        let after = unsafe { [(*one).Flink, (*(*one).Flink).Flink] };
        assert_eq!(after, [two, one], "they are linked to each other, and to no head");
        call!(KeInitializeQueue(queue, 0));
        assert!(call!(KeRundownQueue(queue)).is_null());
        free(queue);
    }
    a_thread_waits_for_an_entry by {
        let (queue, entry) = (queue(), block::<LIST_ENTRY>());
        let server = thread(serve, queue.cast());
        call!(KeInsertQueue(queue, entry));
        join(server);
        assert_eq!(WITH.load(SeqCst), entry.addr());
        free(queue);
        free(entry);
    }
    a_thread_that_waits_at_a_queue_that_is_run_down_goes_on by {
        let queue = queue();
        let server = thread(serve, queue.cast());
        sleep();
        assert!(call!(KeRundownQueue(queue)).is_null());
        free(queue);
        join(server);
        assert_eq!(WITH.load(SeqCst), 0x80, "the wait was abandoned");
    }
    an_entry_that_knows_the_next_one_is_pushed_and_popped by {
        let (mut head, mut lock) = (Single { next: ptr::null_mut() }, 0);
        let mut entries = [(); 2].map(|()| Single { next: ptr::null_mut() });
        let [one, two] = entries.each_mut().map(|entry| &raw mut *entry);
        let (head, lock) = (&raw mut head, &raw mut lock);
        assert!(call!(ExInterlockedPushEntryList(head, one, lock)).is_null());
        assert_eq!(call!(ExInterlockedPushEntryList(head, two, lock)), one);
        let popped = [(); 3].map(|()| call!(ExInterlockedPopEntryList(head, lock)));
        assert_eq!(popped, [two, one, ptr::null_mut()]);
    }
    what_is_initialised_once_is_so_once by {
        CALLS.store(0, SeqCst);
        let (mut once, mut context) = (7, ptr::null_mut());
        let (place, given) = (&raw mut once, &raw mut context);
        let wanted: PVOID = ptr::without_provenance_mut(0x40);
        call!(RtlRunOnceInitialize(place));
        let null = ptr::null_mut();
        assert_eq!(call!(RtlRunOnceExecuteOnce(place, Some(initialise), null, given)), STATUS_UNSUCCESSFUL);
        assert_eq!(call!(RtlRunOnceExecuteOnce(place, Some(initialise), wanted, given)), STATUS_SUCCESS);
        context = ptr::null_mut();
        assert_eq!(call!(RtlRunOnceExecuteOnce(place, Some(initialise), null, &raw mut context)), STATUS_SUCCESS);
        assert_eq!((CALLS.load(SeqCst), context), (2, wanted));
    }
    what_is_begun_once_is_completed by {
        let (mut once, mut context) = (0, ptr::null_mut());
        let (place, given) = (&raw mut once, &raw mut context);
        let (null, wanted) = (ptr::null_mut(), ptr::without_provenance_mut(0x80));
        assert_eq!(call!(RtlRunOnceComplete(place, 0, wanted)), STATUS_UNSUCCESSFUL, "nobody has begun");
        assert_eq!(call!(RtlRunOnceBeginInitialize(place, 1, given)), STATUS_UNSUCCESSFUL);
        assert_eq!(call!(RtlRunOnceBeginInitialize(place, 0, given)), STATUS_PENDING);
        assert_eq!(call!(RtlRunOnceComplete(place, 4, wanted)), STATUS_INVALID_PARAMETER, "a failure has no context");
        assert_eq!(call!(RtlRunOnceComplete(place, 4, null)), STATUS_SUCCESS);
        assert_eq!(call!(RtlRunOnceBeginInitialize(place, 0, given)), STATUS_PENDING);
        assert_eq!(call!(RtlRunOnceComplete(place, 0, wanted)), STATUS_SUCCESS);
        assert_eq!(call!(RtlRunOnceBeginInitialize(place, 1, given)), STATUS_SUCCESS);
        assert_eq!(context, wanted);
    }
    a_seed_leads_to_the_same_numbers by {
        let numbers = |mut seed: u32| [(); 2].map(|()| (call!(RtlRandom(&raw mut seed)), call!(RtlRandomEx(&raw mut seed))));
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(7).iter().all(|&(one, two)| one != two && one.max(two) < 0x7FFF_FFFF));
    }
    a_power_setting_is_told_once by {
        let event = signal();
        WITH.store(99, Relaxed);
        let handle = listen(event);
        wait(event);
        assert_eq!(WITH.load(Relaxed), 0, "the power comes from the mains");
        assert_eq!(call!(PoUnregisterPowerSettingCallback(handle)), STATUS_SUCCESS);
        free(event);
        let (mut handle, setting) = (ptr::null_mut(), &raw const POWER_SOURCE);
        let (device, context) = (ptr::null_mut(), ptr::null_mut());
        let status = call!(PoRegisterPowerSettingCallback(device, setting, None, context, &raw mut handle));
        assert_eq!(status, STATUS_INVALID_PARAMETER);
    }
    processors_that_are_there_are_told_of by {
        CALLS.store(0, SeqCst);
        let null = ptr::null_mut();
        let silent = call!(KeRegisterProcessorChangeCallback(Some(count_processors), null, 0));
        assert_eq!(CALLS.load(SeqCst), 0);
        let handle = call!(KeRegisterProcessorChangeCallback(Some(count_processors), null, 1));
        assert_eq!(CALLS.load(SeqCst), 0x00_04_04, "each of four begins and is complete");
        for handle in [silent, handle] {
            assert!(!handle.is_null());
            call!(KeDeregisterProcessorChangeCallback(handle));
        }
        CALLS.store(0, SeqCst);
        let third = ptr::without_provenance_mut(3);
        assert!(call!(KeRegisterProcessorChangeCallback(Some(count_processors), third, 1)).is_null());
        assert_eq!(CALLS.load(SeqCst), 0x02_00_03, "two hear that the third has failed");
    }
    a_stack_has_the_size_that_windows_gives_it by {
        let (mut low, mut high) = (0, 0);
        call!(IoGetStackLimits(&raw mut low, &raw mut high));
        assert_eq!((high - low, call!(IoGetInitialStack()).addr()), (0x6000, high));
        let here = (&raw const low).addr();
        assert!((low..high).contains(&here));
        assert_eq!([call!(IoWithinStackLimits(here, 8)), call!(IoWithinStackLimits(high, 8))], [1, 0]);
        for (size, status) in [(0x6000, STATUS_SUCCESS), (0x10_0000, STATUS_INVALID_PARAMETER)] {
            WITH.store(0, Relaxed);
            let argument = ptr::without_provenance_mut(0x5);
            assert_eq!(call!(KeExpandKernelStackAndCallout(Some(called), argument, size)), status);
            assert_eq!(WITH.load(Relaxed), if status == STATUS_SUCCESS { 5 } else { 0 });
            let nothing = ptr::null_mut();
            assert_eq!(call!(KeExpandKernelStackAndCalloutEx(Some(called), argument, size, 1, nothing)), status);
        }
    }
    a_thread_has_its_process_and_a_priority by {
        let here = call!(KeGetCurrentThread());
        assert_eq!(call!(PsGetThreadProcess(here)), call!(PsGetCurrentProcess()));
        assert_eq!(call!(IoThreadToProcess(here)), call!(PsGetCurrentProcess()));
        assert_eq!((call!(KeSetBasePriorityThread(here, 2)), call!(KeSetBasePriorityThread(here, -16))), (0, 2));
        assert_eq!(call!(SeSinglePrivilegeCheck(7, 1)), 1);
    }
    sizes_are_those_of_the_machine by {
        assert_eq!([(0x1000, 1), (0x1FFF, 2)].map(|(at, length)| call!(MmSizeOfMdl(ptr::without_provenance_mut(at), length))), [56, 64]);
        assert_eq!((call!(MmQuerySystemSize()), call!(KeGetRecommendedSharedDataAlignment())), (2, 64));
    }

    a_handle_of_an_event_that_is_left breaks ReferenceLeak by { create(_EVENT_TYPE::NotificationEvent, false); }
    a_reference_to_an_event_that_is_left breaks ReferenceLeak by {
        let handle = create(_EVENT_TYPE::NotificationEvent, false);
        event(handle);
        close(handle);
    }
    an_event_that_is_dereferenced_twice breaks ReferenceUnderflow by {
        let handle = create(_EVENT_TYPE::NotificationEvent, false);
        let event = event(handle);
        call!(ObfDereferenceObject(event.cast()));
        call!(ObfDereferenceObject(event.cast()));
    }
    an_event_that_is_used_after_its_last_handle_was_closed breaks UseAfterFree by {
        let mut handle = ptr::null_mut();
        let event = call!(IoCreateNotificationEvent(ptr::null(), &raw mut handle));
        close(handle);
        call!(KeSetEvent(event, 0, 0));
    }
    an_event_that_is_made_at_dispatch_level breaks IrqlTooHigh by {
        let before = call!(KfRaiseIrql(2));
        create(_EVENT_TYPE::NotificationEvent, false);
        call!(KeLowerIrql(before));
    }
    a_queue_that_was_not_initialised breaks Uninitialised by {
        call!(KeReadStateQueue(block::<Queue>()));
    }
    a_queue_that_was_run_down breaks Uninitialised by {
        let queue = queue();
        call!(KeRundownQueue(queue));
        call!(KeReadStateQueue(queue));
    }
    a_context_with_bits_of_the_state breaks BadArgument by {
        let mut once = 0;
        call!(RtlRunOnceExecuteOnce(&raw mut once, Some(initialise_badly), ptr::null_mut(), ptr::null_mut()));
    }
    a_word_that_is_no_state breaks Uninitialised by {
        let mut once = 3;
        call!(RtlRunOnceBeginInitialize(&raw mut once, 0, ptr::null_mut()));
    }
    a_power_setting_that_is_still_listened_for breaks ReferenceLeak by { listen(ptr::null_mut()); }
    a_power_setting_that_is_given_up_twice breaks BadHandle by {
        let handle = listen(ptr::null_mut());
        call!(PoUnregisterPowerSettingCallback(handle));
        call!(PoUnregisterPowerSettingCallback(handle));
    }
    a_registration_for_processors_that_is_left breaks ReferenceLeak by {
        call!(KeRegisterProcessorChangeCallback(Some(count_processors), ptr::null_mut(), 0));
    }
    a_registration_for_processors_that_is_ended_twice breaks BadHandle by {
        let handle = call!(KeRegisterProcessorChangeCallback(Some(count_processors), ptr::null_mut(), 0));
        call!(KeDeregisterProcessorChangeCallback(handle));
        call!(KeDeregisterProcessorChangeCallback(handle));
    }
    a_routine_with_a_larger_stack_that_is_none breaks BadArgument by {
        call!(KeExpandKernelStackAndCallout(None, ptr::null_mut(), 0));
    }
    a_priority_that_is_none breaks BadArgument by {
        let here = call!(KeGetCurrentThread());
        call!(KeSetBasePriorityThread(here, 100));
    }
}

#[test]
fn a_work_item_in_memory_of_the_driver_is_queued_and_queued_again() {
    driver::does(|device| {
        CALLS.store(0, SeqCst);
        let item = item();
        call!(IoInitializeWorkItem(device.cast(), item));
        for round in 1..3 {
            let event = signal();
            let first = call!(IoTryQueueWorkItem(item, Some(work), 1, event.cast()));
            assert_eq!(first, 1);
            wait(event);
            assert_eq!(CALLS.load(SeqCst), round);
            free(event);
        }
        call!(IoUninitializeWorkItem(item));
        free(item);
    });
}

macro_rules! of_a_device {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || driver::does($work));
            }
        )+
    };
}

of_a_device! {
    a_work_item_whose_memory_is_freed_while_it_is_queued breaks WorkItemQueued by |device| {
        let item = item();
        call!(IoInitializeWorkItem(device.cast(), item));
        call!(KfRaiseIrql(2));
        call!(IoTryQueueWorkItem(item, Some(work), 1, signal().cast()));
        free(item);
    };
    a_work_item_of_no_device breaks BadHandle by |_| { call!(IoInitializeWorkItem(ptr::null_mut(), item())); };
    a_work_item_that_was_allocated_is_uninitialised breaks BadHandle by |device| {
        let item = call!(IoAllocateWorkItem(device.cast()));
        call!(IoUninitializeWorkItem(item));
    };
    a_work_item_that_was_initialised_is_freed breaks BadHandle by |device| {
        let item = item();
        call!(IoInitializeWorkItem(device.cast(), item));
        call!(IoFreeWorkItem(item));
    };
    a_file_that_is_none_has_no_device breaks BadArgument by |_| { call!(IoGetRelatedDeviceObject(ptr::null_mut())); };
    an_irp_that_is_none_has_no_requestor breaks BadHandle by |_| { call!(IoGetRequestorProcess(ptr::null_mut())); };
}

#[test]
fn a_request_knows_its_process_and_its_file_the_device() {
    let control = |device, irp: PIRP| {
        let process = call!(PsGetCurrentProcessId()).addr();
        assert_eq!(call!(IoGetRequestorProcessId(irp)) as usize, process);
        assert_eq!(call!(IoGetRequestorProcess(irp)), call!(PsGetCurrentProcess()));
        // SAFETY: the location of a control code.
        let file = unsafe { (*driver::location(irp)).FileObject };
        assert_eq!(call!(IoGetRelatedDeviceObject(file.cast())), device);
        assert_eq!(call!(IoGetAttachedDevice(device)), device);
        let own = call!(IoAllocateIrp(1, 0));
        assert!(call!(IoGetRequestorProcess(own)).is_null(), "nobody has asked for it");
        assert_eq!(call!(IoGetRequestorProcessId(own)), 0);
        call!(IoFreeIrp(own));
        complete(irp, STATUS_SUCCESS, 0)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}
