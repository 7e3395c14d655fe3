//! Objects live at their address: one that was moved, copied, initialised again while it was in use, freed or left on a stack is found
//! out by the routine that gets it, and a driver that has boxed them or never moves them is not accused.

use std::{
    alloc::Layout,
    mem::{self, MaybeUninit},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    ERESOURCE, EX_RUNDOWN_REF, FAST_MUTEX, IO_CSQ, IO_CSQ_IRP_CONTEXT, IO_REMOVE_LOCK, IRP, KDPC, KEVENT, KSEMAPHORE,
    KTIMER, LARGE_INTEGER, LIST_ENTRY, LOOKASIDE_LIST_EX, MDL, NTSTATUS, PDEVICE_OBJECT, PEX_TIMER, PIRP, PVOID,
    SLIST_HEADER, WORK_QUEUE_ITEM,
    ntddk::{
        ExAcquireFastMutex, ExAcquireRundownProtection, ExAcquireSpinLockExclusive, ExAcquireSpinLockShared,
        ExAllocateTimer, ExCancelTimer, ExDeleteLookasideListEx, ExDeleteResourceLite, ExDeleteTimer,
        ExInitializeLookasideListEx, ExInitializeResourceLite, ExInitializeRundownProtection,
        ExInterlockedInsertTailList, ExInterlockedRemoveHeadList, ExQueueWorkItem, ExReleaseFastMutex,
        ExReleaseRundownProtection, ExReleaseSpinLockExclusive, ExSetTimer, IoAcquireRemoveLockEx, IoAllocateMdl,
        IoCsqInitialize, IoCsqInsertIrp, IoCsqRemoveIrp, IoCsqRemoveNextIrp, IoFreeMdl, IoInitializeRemoveLockEx,
        IofCompleteRequest, KeCancelTimer, KeDelayExecutionThread, KeFlushQueuedDpcs, KeInitializeDpc,
        KeInitializeEvent, KeInitializeMutex, KeInitializeSemaphore, KeInitializeTimer, KeInsertQueueDpc,
        KeReleaseMutex, KeReleaseSemaphore, KeSetEvent, KeSetTimer, KeWaitForSingleObject, MmBuildMdlForNonPagedPool,
        MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnmapLockedPages, PsCreateSystemThread,
    },
};

use crate::driver::{CODE, Parts, complete, run};

unsafe extern "C" {
    /// The kit declares these, the bindings leave them out.
    fn InitializeSListHead(list: *mut SLIST_HEADER);
    fn ExQueryDepthSList(list: *mut SLIST_HEADER) -> u16;
    fn ExpInterlockedPushEntrySList(list: *mut SLIST_HEADER, entry: *mut SequencedEntry) -> *mut SequencedEntry;
    fn ExpInterlockedPopEntrySList(list: *mut SLIST_HEADER) -> *mut SequencedEntry;
    fn ExpInterlockedFlushSList(list: *mut SLIST_HEADER) -> *mut SequencedEntry;
}

/// `SLIST_ENTRY`.
#[repr(C, align(16))]
struct SequencedEntry {
    next: *mut Self,
}

const TAG: u32 = u32::from_ne_bytes(*b"Move");
const LOCK_BYTES: u32 = 32;

/// A call of the kernel, as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn does(work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control: work, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, 0);
    });
}

/// Tests that break a rule by what they do before the driver completes its request.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                #[inline(never)]
                fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
                    $work
                    complete(irp, 0, 0)
                }
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(control));
            }
        )+
    };
}

/// What [`place`] has allocated.
static PLACES: DuringRun<Mutex<Vec<(usize, Layout)>>> = DuringRun::new(Mutex::new(Vec::new()));

/// Memory of the driver for a structure, which stays where it is until [`free_places`].
fn place<T>() -> *mut T {
    let place = Box::leak(Box::new(MaybeUninit::<T>::zeroed())).as_mut_ptr();
    PLACES.lock().expect("nobody has panicked").push((place.expose_provenance(), Layout::new::<T>()));
    place
}

/// Frees what [`place`] has allocated.
fn free_places() {
    let places = mem::take(&mut *PLACES.lock().expect("nobody has panicked"));
    for (place, layout) in places {
        // SAFETY: it was allocated in a box of this layout, and nobody uses it any more.
        unsafe { std::alloc::dealloc(ptr::with_exposed_provenance_mut(place), layout) };
    }
}

/// The bytes of a structure at another place, as `RtlCopyMemory` and the assignment of a structure make them.
fn copy<T>(from: *mut T) -> *mut T {
    let to = place::<T>();
    // SAFETY: both are memory for a structure of this type.
    unsafe { to.copy_from_nonoverlapping(from, 1) };
    to
}

/// As [`copy`], and the first place is freed, as when a vector grows.
fn moved<T>(from: *mut T) -> *mut T {
    let to = copy(from);
    // SAFETY: `place` made it.
    drop(unsafe { Box::from_raw(from.cast::<MaybeUninit<T>>()) });
    to
}

fn event() -> *mut KEVENT {
    let event = place();
    call!(KeInitializeEvent(event, 0, 0));
    event
}

fn timer() -> *mut KTIMER {
    let timer = place();
    call!(KeInitializeTimer(timer));
    timer
}

fn sequenced_list() -> *mut SLIST_HEADER {
    let list = place();
    call!(InitializeSListHead(list));
    list
}

fn push(list: *mut SLIST_HEADER, entry: *mut SequencedEntry) {
    call!(ExpInterlockedPushEntrySList(list, entry));
}

/// How often the callback of a timer has come, by the context of each.
unsafe extern "C" fn count(_: PEX_TIMER, context: PVOID) {
    // SAFETY: each of these timers has a number as its context.
    unsafe { &*context.cast::<AtomicU32>() }.fetch_add(1, SeqCst);
}

/// A timer that the system has allocated, with a number that its callback counts in.
fn allocated_timer(attributes: u32) -> (PEX_TIMER, *mut AtomicU32) {
    let counter = place::<AtomicU32>();
    let timer = call!(ExAllocateTimer(Some(count), counter.cast(), attributes));
    assert!(!timer.is_null());
    (timer, counter)
}

/// A millisecond from now.
const SOON: i64 = -10_000;

/// Has a timer of the system go.
fn delete(timer: PEX_TIMER, cancel: bool, wait: bool) -> bool {
    call!(ExDeleteTimer(timer, cancel.into(), wait.into(), ptr::null_mut())) != 0
}

fn set(timer: PEX_TIMER, due: i64, period: i64) -> bool {
    call!(ExSetTimer(timer, due, period, ptr::null_mut())) != 0
}

unsafe extern "C" fn nothing(_: *mut KDPC, _: PVOID, _: PVOID, _: PVOID) {}
unsafe extern "C" fn work_nothing(_: PVOID) {}

fn dpc() -> *mut KDPC {
    let dpc = place();
    call!(KeInitializeDpc(dpc, Some(nothing), ptr::null_mut()));
    dpc
}

fn semaphore() -> *mut KSEMAPHORE {
    let semaphore = place();
    call!(KeInitializeSemaphore(semaphore, 1, 2));
    semaphore
}

/// `KMUTANT` is opaque, and has as many words.
fn mutex() -> *mut [u64; 7] {
    let mutex = place::<[u64; 7]>();
    call!(KeInitializeMutex(mutex.cast(), 0));
    mutex
}

fn fast_mutex() -> *mut FAST_MUTEX {
    let mutex: *mut FAST_MUTEX = place();
    // SAFETY: memory for one.
    let fields = unsafe { &mut *mutex };
    fields.Count = 1;
    call!(KeInitializeEvent(&raw mut fields.Event, 1, 0));
    mutex
}

fn resource() -> *mut ERESOURCE {
    let resource = place();
    assert_eq!(call!(ExInitializeResourceLite(resource)), 0);
    resource
}

fn rundown() -> *mut EX_RUNDOWN_REF {
    let rundown = place();
    call!(ExInitializeRundownProtection(rundown));
    rundown
}

fn remove_lock() -> *mut IO_REMOVE_LOCK {
    let lock = place();
    call!(IoInitializeRemoveLockEx(lock, TAG, 0, 0, LOCK_BYTES));
    lock
}

fn lookaside() -> *mut LOOKASIDE_LIST_EX {
    let list = place();
    assert_eq!(call!(ExInitializeLookasideListEx(list, None, None, 512, 0, 24, TAG, 0)), 0);
    list
}

fn work_item() -> *mut WORK_QUEUE_ITEM {
    let item: *mut WORK_QUEUE_ITEM = place();
    // SAFETY: memory for one (`ExInitializeWorkItem`).
    unsafe { (*item).WorkerRoutine = Some(work_nothing) };
    item
}

fn mdl() -> *mut MDL {
    call!(IoAllocateMdl(place::<[u8; 64]>().cast(), 64, 0, 0, ptr::null_mut()))
}

unsafe extern "C" fn wait_for_event(event: PVOID) {
    wait(event);
}

/// Lets others run, until one of them is found out.
fn wait_for_ever() {
    wait(event().cast());
}

fn wait(object: PVOID) {
    assert_eq!(call!(KeWaitForSingleObject(object, 0, 0, 0, ptr::null_mut())), 0);
}

rules! {
    an_event_that_was_copied breaks MovedObject by { call!(KeSetEvent(copy(event()), 0, 0)); }
    an_event_whose_memory_moved breaks MovedObject by { call!(KeSetEvent(moved(event()), 0, 0)); }
    an_event_that_was_copied_and_is_waited_for breaks MovedObject by { wait(copy(event()).cast()); }
    an_event_that_was_overwritten breaks Uninitialised by {
        let event = event();
        // SAFETY: as wrong as the test wants it.
        unsafe { event.write_bytes(0, 1) };
        call!(KeSetEvent(event, 0, 0));
    }
    an_event_on_the_stack_that_was_overwritten breaks StackObject by {
        let mut event = MaybeUninit::<KEVENT>::uninit();
        let event = event.as_mut_ptr();
        call!(KeInitializeEvent(event, 0, 0));
        // SAFETY: as wrong as the test wants it: what a deeper call does to the event of a function that has returned.
        unsafe { event.write_bytes(0, 1) };
        call!(KeSetEvent(event, 0, 0));
    }
    an_event_where_a_timer_is breaks Uninitialised by { call!(KeSetEvent(timer().cast(), 0, 0)); }
    a_timer_that_was_copied breaks MovedObject by { call!(KeCancelTimer(copy(timer()))); }
    a_timer_set_with_a_copied_dpc breaks MovedObject by {
        call!(KeSetTimer(timer(), LARGE_INTEGER { QuadPart: -10_000 }, copy(dpc())));
    }
    a_dpc_that_was_copied breaks MovedObject by {
        call!(KeInsertQueueDpc(copy(dpc()), ptr::null_mut(), ptr::null_mut()));
    }
    a_semaphore_that_was_copied breaks MovedObject by { call!(KeReleaseSemaphore(copy(semaphore()), 0, 1, 0)); }
    a_mutex_that_was_copied breaks MovedObject by { wait(copy(mutex()).cast()); }
    a_fast_mutex_that_was_copied breaks MovedObject by { call!(ExAcquireFastMutex(copy(fast_mutex()))); }
    a_resource_that_was_copied breaks MovedObject by { call!(ExDeleteResourceLite(copy(resource()))); }
    a_resource_initialised_again breaks Uninitialised by { call!(ExInitializeResourceLite(resource())); }
    a_rundown_that_was_copied breaks MovedObject by { call!(ExAcquireRundownProtection(copy(rundown()))); }
    a_rundown_initialised_again_with_somebody_inside breaks Uninitialised by {
        let rundown = rundown();
        call!(ExAcquireRundownProtection(rundown));
        call!(ExInitializeRundownProtection(rundown));
    }
    a_remove_lock_that_was_copied breaks MovedObject by {
        call!(IoAcquireRemoveLockEx(copy(remove_lock()), ptr::null_mut(), ptr::null(), 0, LOCK_BYTES));
    }
    a_lookaside_list_that_was_copied breaks MovedObject by { call!(ExDeleteLookasideListEx(copy(lookaside()))); }
    a_lookaside_list_that_is_not_aligned breaks BadArgument by {
        let place = place::<[LOOKASIDE_LIST_EX; 2]>().cast::<LOOKASIDE_LIST_EX>().wrapping_byte_add(8);
        call!(ExInitializeLookasideListEx(place, None, None, 512, 0, 24, TAG, 0));
    }
    a_work_item_that_was_copied_while_queued breaks MovedObject by {
        let item = work_item();
        call!(ExQueueWorkItem(item, 1));
        call!(ExQueueWorkItem(copy(item), 1));
    }
    a_work_item_freed_while_queued breaks WorkItemQueued by {
        let item = work_item();
        call!(ExQueueWorkItem(item, 1));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(item) });
    }
    a_work_item_initialised_again_while_queued breaks WorkItemQueued by {
        let item = work_item();
        call!(ExQueueWorkItem(item, 1));
        // SAFETY: as wrong as the test wants it (`ExInitializeWorkItem`).
        unsafe { (*item).List.Flink = ptr::null_mut() };
        call!(ExQueueWorkItem(item, 1));
    }
    an_mdl_that_was_copied breaks MovedObject by { call!(MmBuildMdlForNonPagedPool(copy(mdl()))); }
    an_mdl_freed_as_memory breaks BadMdl by { call!(ExFreePool(mdl().cast())); }
    a_spin_lock_for_readers_that_moved_while_held breaks MovedObject by {
        let lock: *mut i32 = place();
        let before = call!(ExAcquireSpinLockExclusive(lock));
        call!(ExReleaseSpinLockExclusive(copy(lock), before));
    }
    a_spin_lock_for_readers_freed_while_held breaks LockHeld by {
        let lock: *mut i32 = place();
        call!(ExAcquireSpinLockExclusive(lock));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(lock) });
    }
    a_spin_lock_for_readers_that_was_not_initialised breaks Uninitialised by {
        let lock: *mut i32 = place();
        // SAFETY: memory for one.
        unsafe { lock.write(7) };
        call!(ExAcquireSpinLockShared(lock));
    }
    a_list_whose_head_moved breaks MovedObject by {
        let (lock, head, entry) = (place::<u64>(), head(), place::<LIST_ENTRY>());
        call!(ExInterlockedInsertTailList(head, entry, lock));
        call!(ExInterlockedRemoveHeadList(copy(head), lock));
    }
    a_sequenced_list_whose_head_moved breaks MovedObject by {
        let list = sequenced_list();
        push(list, place());
        call!(ExpInterlockedPopEntrySList(copy(list)));
    }
    a_sequenced_list_that_nobody_initialised breaks Uninitialised by { push(place(), place()); }
    a_sequenced_list_that_is_not_aligned breaks BadArgument by {
        call!(InitializeSListHead(place::<[SLIST_HEADER; 2]>().wrapping_byte_add(8).cast()));
    }
    an_entry_of_a_sequenced_list_that_is_not_aligned breaks BadArgument by {
        push(sequenced_list(), place::<[SequencedEntry; 2]>().wrapping_byte_add(8).cast());
    }
    an_entry_that_is_in_the_sequenced_list_already breaks BadArgument by {
        let (list, entry) = (sequenced_list(), place());
        push(list, entry);
        push(list, entry);
    }
    a_sequenced_list_with_an_entry_that_is_free breaks UseAfterFree by {
        let (list, entry) = (sequenced_list(), place::<SequencedEntry>());
        push(list, entry);
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(entry) });
        call!(ExpInterlockedPopEntrySList(list));
    }
    a_timer_that_was_deleted breaks BadHandle by {
        let (timer, _) = allocated_timer(0);
        delete(timer, true, true);
        set(timer, SOON, 0);
    }
    a_timer_of_another_kind breaks BadHandle by { set(timer().cast(), SOON, 0); }
    a_timer_of_high_resolution_that_does_not_wake breaks BadArgument by { allocated_timer(4 | 8); }
    a_timer_of_high_resolution_that_is_due_at_a_point_in_time breaks BadArgument by {
        set(allocated_timer(4).0, 10_000, 0);
    }
    a_timer_with_a_period_that_is_too_long breaks BadArgument by {
        set(allocated_timer(0).0, SOON, i64::from(i32::MAX) + 1);
    }
    a_timer_that_is_waited_for_and_not_cancelled breaks BadArgument by {
        delete(allocated_timer(0).0, false, true);
    }
    a_timer_that_is_left breaks ReferenceLeak by { allocated_timer(0); }
    a_timer_that_is_deleted_and_stays_set breaks TimerAtUnload by {
        let (timer, _) = allocated_timer(0);
        set(timer, -36_000_000_000, 0);
        delete(timer, false, false);
    }
    an_empty_list_whose_head_moved breaks MovedObject by {
        call!(ExInterlockedInsertTailList(copy(head()), place::<LIST_ENTRY>(), place::<u64>()));
    }
    a_list_with_an_entry_that_is_free breaks UseAfterFree by {
        let (lock, head, entry) = (place::<u64>(), head(), place::<LIST_ENTRY>());
        call!(ExInterlockedInsertTailList(head, entry, lock));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(entry) });
        call!(ExInterlockedRemoveHeadList(head, lock));
    }
    a_queue_that_was_copied breaks MovedObject by { call!(IoCsqRemoveNextIrp(copy(queue()), ptr::null_mut())); }
    a_dpc_whose_context_was_freed breaks UseAfterFree by {
        let (dpc, context) = (place::<KDPC>(), place::<[u8; 40]>());
        call!(KeInitializeDpc(dpc, Some(nothing), context.cast()));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(context) });
        call!(KeInsertQueueDpc(dpc, ptr::null_mut(), ptr::null_mut()));
        call!(KeFlushQueuedDpcs());
    }
    a_work_item_whose_argument_was_freed breaks UseAfterFree by {
        let (item, argument) = (work_item(), place::<[u8; 40]>());
        // SAFETY: memory for one.
        unsafe { (*item).Parameter = argument.cast() };
        call!(ExQueueWorkItem(item, 1));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(argument) });
        wait_for_ever();
    }
    an_event_freed_while_a_thread_waits_for_it breaks UseAfterFree by {
        let event = event();
        let mut handle = ptr::null_mut();
        let (mut attributes, nobody) = (simulated_kernel::object_attributes(), ptr::null_mut());
        call!(PsCreateSystemThread(
            &raw mut handle, 0, &raw mut attributes, nobody, nobody.cast(), Some(wait_for_event), event.cast()
        ));
        let mut while_it_begins = LARGE_INTEGER { QuadPart: -1_000 };
        call!(KeDelayExecutionThread(0, 0, &raw mut while_it_begins));
        // SAFETY: `place` made it.
        drop(unsafe { Box::from_raw(event) });
    }
    a_wait_in_user_mode_for_an_event_on_the_stack breaks StackObject by {
        let mut event = KEVENT::default();
        call!(KeInitializeEvent(&raw mut event, 0, 1));
        call!(KeWaitForSingleObject((&raw mut event).cast(), 0, 1, 0, ptr::null_mut()));
    }
    a_semaphore_without_a_limit breaks BadArgument by { call!(KeInitializeSemaphore(place(), 0, 0)); }
    a_semaphore_beyond_its_limit_at_once breaks BadArgument by { call!(KeInitializeSemaphore(place(), 3, 2)); }
    a_semaphore_released_by_nothing breaks BadArgument by { call!(KeReleaseSemaphore(semaphore(), 0, 0, 0)); }
    an_mdl_unmapped_from_another_place breaks BadMdl by {
        let mdl = mdl();
        call!(MmProbeAndLockPages(mdl, 0, 0));
        let mapped: PVOID = call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16));
        call!(MmUnmapLockedPages(mapped.wrapping_byte_add(1), mdl));
    }
    a_timer_left_set_on_the_stack breaks TimerFreedWhileSet by {
        timer_on_the_stack();
        call!(KeSetEvent(event(), 0, 0));
    }
    a_dpc_left_queued_on_the_stack breaks DpcFreedWhileQueued by {
        dpc_on_the_stack();
        call!(KeSetEvent(event(), 0, 0));
    }
}

unsafe extern "C" {
    fn ExFreePool(block: PVOID);
}

fn head() -> *mut LIST_ENTRY {
    let head = place::<LIST_ENTRY>();
    // SAFETY: memory for one (`InitializeListHead`).
    unsafe { head.write(LIST_ENTRY { Flink: head, Blink: head }) };
    head
}

#[inline(never)]
fn timer_on_the_stack() {
    let mut timer = KTIMER::default();
    call!(KeInitializeTimer(&raw mut timer));
    call!(KeSetTimer(&raw mut timer, LARGE_INTEGER { QuadPart: -10_000_000 }, ptr::null_mut()));
}

#[inline(never)]
fn dpc_on_the_stack() {
    let mut dpc = KDPC::default();
    call!(KeInitializeDpc(&raw mut dpc, Some(nothing), ptr::null_mut()));
    call!(KeInsertQueueDpc(&raw mut dpc, ptr::null_mut(), ptr::null_mut()));
}

/// A queue of one request.
static QUEUED: DuringRun<AtomicPtr<IRP>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

unsafe extern "C" fn insert(_: *mut IO_CSQ, irp: PIRP) {
    QUEUED.store(irp, SeqCst);
}

unsafe extern "C" fn remove(_: *mut IO_CSQ, _: PIRP) {
    QUEUED.store(ptr::null_mut(), SeqCst);
}

unsafe extern "C" fn peek(_: *mut IO_CSQ, _: PIRP, _: PVOID) -> PIRP {
    QUEUED.load(SeqCst)
}

unsafe extern "C" fn acquire(_: *mut IO_CSQ, _: *mut u8) {}

unsafe extern "C" fn release(_: *mut IO_CSQ, _: u8) {}

unsafe extern "C" fn complete_cancelled(_: *mut IO_CSQ, irp: PIRP) {
    complete(irp, wdk_sys::STATUS_CANCELLED, 0);
}

fn queue() -> *mut IO_CSQ {
    let queue = place();
    call!(IoCsqInitialize(
        queue,
        Some(insert),
        Some(remove),
        Some(peek),
        Some(acquire),
        Some(release),
        Some(complete_cancelled)
    ));
    queue
}

/// As [`rules`], but the driver does not complete the request.
fn breaks(test: &str, rule: Rule, work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    caught(&format!("{}::{test}", module_path!()), rule, || does(work));
}

#[test]
fn a_context_in_a_queue_that_was_copied() {
    breaks("a_context_in_a_queue_that_was_copied", Rule::MovedObject, |_, irp| {
        let (queue, context) = (queue(), place::<IO_CSQ_IRP_CONTEXT>());
        call!(IoCsqInsertIrp(queue, irp, context));
        call!(IoCsqRemoveIrp(queue, copy(context)));
        complete(irp, 0, 0)
    });
}

#[test]
fn an_irp_that_was_copied() {
    breaks("an_irp_that_was_copied", Rule::MovedObject, |_, irp| {
        call!(IofCompleteRequest(copy(irp), 0));
        complete(irp, 0, 0)
    });
}

#[test]
fn what_stays_where_it_is_works() {
    fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
        let (event, timer, rundown) = (event(), timer(), rundown());
        call!(KeSetEvent(event, 0, 0));
        wait(event.cast());
        call!(KeSetTimer(timer, LARGE_INTEGER { QuadPart: -10 }, dpc()));
        wait(timer.cast());
        wait(semaphore().cast());
        let mutex = mutex();
        wait(mutex.cast());
        call!(KeReleaseMutex(mutex.cast(), 0));
        let lock = fast_mutex();
        call!(ExAcquireFastMutex(lock));
        call!(ExReleaseFastMutex(lock));
        call!(ExAcquireRundownProtection(rundown));
        call!(ExReleaseRundownProtection(rundown));
        // Initialised again when nobody uses it, by the same and by another routine.
        call!(ExInitializeRundownProtection(rundown));
        call!(KeInitializeEvent(timer.cast(), 0, 0));
        call!(KeSetEvent(timer.cast(), 0, 0));
        call!(KeInitializeTimer(timer));
        call!(KeCancelTimer(timer));
        let lock: *mut i32 = place();
        let before = call!(ExAcquireSpinLockExclusive(lock));
        call!(ExReleaseSpinLockExclusive(lock, before));
        // A copy of a free one is a free one, which has nothing that points to itself.
        let lock = copy(lock);
        let before = call!(ExAcquireSpinLockExclusive(lock));
        call!(ExReleaseSpinLockExclusive(lock, before));
        let list = lookaside();
        call!(ExDeleteLookasideListEx(list));
        let resource = resource();
        call!(ExDeleteResourceLite(resource));
        let mdl = mdl();
        call!(IoFreeMdl(mdl));
        free_places();
        complete(irp, 0, 0)
    }
    does(control);
}

#[test]
fn a_sequenced_list_gives_back_the_last_entry_first() {
    fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
        let (list, none) = (sequenced_list(), ptr::null_mut());
        let [one, two, three] = [(); 3].map(|()| place::<SequencedEntry>());
        assert_eq!(call!(ExpInterlockedPushEntrySList(list, one)), none, "it was empty");
        assert_eq!(call!(ExpInterlockedPushEntrySList(list, two)), one);
        push(list, three);
        assert_eq!(call!(ExQueryDepthSList(list)), 3);
        assert_eq!(call!(ExpInterlockedPopEntrySList(list)), three);
        let all = call!(ExpInterlockedFlushSList(list));
        assert_eq!(all, two);
        // SAFETY: the driver's entry, and the list is empty.
        assert_eq!(unsafe { (*all).next }, one);
        assert_eq!(call!(ExpInterlockedPopEntrySList(list)), none);
        assert_eq!(call!(ExQueryDepthSList(list)), 0);
        // What was taken out may be put back, and into another list.
        push(sequenced_list(), one);
        push(list, two);
        free_places();
        complete(irp, 0, 0)
    }
    does(control);
}

#[test]
fn a_timer_of_the_system_calls_back_until_it_is_deleted() {
    fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
        let (timer, counter) = allocated_timer(4);
        assert!(!set(timer, SOON, 10_000), "it was not set");
        for _ in 0..2 {
            wait(timer.cast());
        }
        assert!(set(timer, -36_000_000_000, 0), "a periodic one stays set");
        assert_ne!(call!(ExCancelTimer(timer, ptr::null_mut())), 0);
        assert_eq!(call!(ExCancelTimer(timer, ptr::null_mut())), 0, "it was not set any more");
        assert!(!set(timer, -36_000_000_000, 0));
        assert!(delete(timer, true, true));
        // SAFETY: no callback comes any more.
        assert!(unsafe { &*counter }.load(SeqCst) >= 1, "two expiries are one call if the first has not come yet");
        // One without a callback can be waited for, and goes when it has expired.
        let timer = call!(ExAllocateTimer(None, ptr::null_mut(), 1 << 31));
        set(timer, SOON, 0);
        wait(timer.cast());
        assert!(!delete(timer, true, false));
        free_places();
        complete(irp, 0, 0)
    }
    does(control);
}
