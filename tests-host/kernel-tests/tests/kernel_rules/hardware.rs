//! Devices with hardware: memory that drivers map, and interrupts.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};

use simulated_kernel::{Device, Driver, DuringRun, Kernel, Resources, Rule, caught, irql};
use wdk_sys::{
    KEVENT, MDL, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PHYSICAL_ADDRESS, POOL_FLAG_NON_PAGED, PVOID,
    PWDFDEVICE_INIT, SIZE_T, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG, WDF_OBJECT_ATTRIBUTES,
    WDF_PNPPOWER_EVENT_CALLBACKS, WDF_POWER_DEVICE_STATE, WDFCMRESLIST, WDFDEVICE, WDFDRIVER, WDFOBJECT,
    call_unsafe_wdf_function_binding,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoFreeMdl, KeInitializeEvent, KeSetEvent, MmMapLockedPagesSpecifyCache,
        MmUnmapLockedPages,
    },
};

use crate::{
    sent::framework,
    small_driver::{attributes, create_device, create_driver, size},
};

// The kit declares them, the bindings leave them out.
unsafe extern "C" {
    fn MmMapIoSpace(start: PHYSICAL_ADDRESS, length: SIZE_T, cache: i32) -> PVOID;
    fn MmMapIoSpaceEx(start: PHYSICAL_ADDRESS, length: SIZE_T, protect: ULONG) -> PVOID;
    fn MmUnmapIoSpace(address: PVOID, length: SIZE_T);
    fn MmGetPhysicalAddress(address: PVOID) -> PHYSICAL_ADDRESS;
    fn MmAllocateMdlForIoSpace(list: *const PhysicalRange, entries: SIZE_T, mdl: *mut *mut MDL) -> NTSTATUS;
}

const TAG: u32 = u32::from_ne_bytes(*b"Hard");

/// A `MM_PHYSICAL_ADDRESS_LIST`.
#[repr(C)]
struct PhysicalRange {
    start: PHYSICAL_ADDRESS,
    length: SIZE_T,
}

/// A `CM_PARTIAL_RESOURCE_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    kind: u8,
    share: u8,
    flags: u16,
    what: [u32; 4],
}

/// A `WDF_INTERRUPT_CONFIG` as of KMDF 1.13.
#[repr(C)]
struct Config {
    size: u32,
    spin_lock: PVOID,
    share_vector: i32,
    floating_save: u8,
    automatic_serialization: u8,
    isr: Option<unsafe extern "C" fn(PVOID, u32) -> u8>,
    deferred: Option<unsafe extern "C" fn(PVOID, WDFDEVICE)>,
    enable: Option<unsafe extern "C" fn(PVOID, WDFDEVICE) -> NTSTATUS>,
    disable: Option<unsafe extern "C" fn(PVOID, WDFDEVICE) -> NTSTATUS>,
    work_item: PVOID,
    raw: PVOID,
    translated: PVOID,
    wait_lock: PVOID,
    passive_handling: u8,
    report_inactive: i32,
    can_wake: u8,
}

const REGISTERS: u32 = 256;
const SHARED: u32 = 8192;
const INTERRUPT: u8 = 2;
const MEMORY: u8 = 3;
const USE_DEFAULT: i32 = 2;
const STATUS_INVALID_DEVICE_STATE: NTSTATUS = 0xC000_0184_u32.cast_signed();
const STATUS_INVALID_PARAMETER_1: NTSTATUS = 0xC000_00EF_u32.cast_signed();

/// What the driver does when its hardware is prepared and released, and in the routine of its first interrupt.
#[derive(Clone, Copy)]
struct Like {
    prepare: fn(WDFDEVICE, [WDFCMRESLIST; 2]),
    release: fn(),
    isr: fn(PVOID),
}

/// Maps what there is, and gives it back.
const RIGHT: Like = Like { prepare: take, release: give_back, isr: |_| () };

static LIKE: DuringRun<Mutex<Like>> = DuringRun::new(Mutex::new(RIGHT));
static SEEN: DuringRun<Mutex<Vec<(&str, u8)>>> = DuringRun::new(Mutex::new(Vec::new()));
static REGISTERS_AT: DuringRun<AtomicPtr<u32>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static SHARED_MDL: DuringRun<AtomicPtr<MDL>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static REGISTERS_START: DuringRun<AtomicU64> = DuringRun::new(AtomicU64::new(0));
static DEVICE: DuringRun<AtomicPtr<wdk_sys::WDFDEVICE__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static FIRST: DuringRun<AtomicPtr<core::ffi::c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// What the routine of the first interrupt has read of the registers.
static READ: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn like() -> Like {
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(what: &'static str) {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).push((what, irql()));
}

/// What was called since the last time that this was asked, and at which level.
fn seen() -> Vec<(&'static str, u8)> {
    // A driver that notes something must not allocate.
    std::mem::replace(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner), Vec::with_capacity(64))
}

fn descriptors(list: WDFCMRESLIST) -> Vec<*mut Descriptor> {
    let count = framework!(WdfCmResourceListGetCount(list => WDFCMRESLIST) -> u32);
    let get = |index| {
        framework!(WdfCmResourceListGetDescriptor(list => WDFCMRESLIST, index => u32) -> PVOID).cast::<Descriptor>()
    };
    assert!(get(count).is_null());
    (0..count).map(get).collect()
}

fn read(descriptor: *mut Descriptor) -> Descriptor {
    // SAFETY: a descriptor of a list that is there.
    unsafe { descriptor.read() }
}

fn physical(start: u64) -> PHYSICAL_ADDRESS {
    PHYSICAL_ADDRESS { QuadPart: start.cast_signed() }
}

/// Where a range of memory begins, and how long it is.
fn range(descriptor: Descriptor) -> (u64, u32) {
    let [low, high, length, _] = descriptor.what;
    assert_eq!(descriptor.kind, MEMORY);
    (u64::from(high) << 32 | u64::from(low), length)
}

fn map(start: u64, length: u32) -> *mut u32 {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { MmMapIoSpace(physical(start), length.into(), 0).cast() }
}

fn unmap(address: *mut u32, length: u32) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { MmUnmapIoSpace(address.cast(), length.into()) };
}

fn mdl_of(start: u64, length: u32) -> Result<*mut MDL, NTSTATUS> {
    let list = PhysicalRange { start: physical(start), length: length.into() };
    let mut mdl = ptr::null_mut();
    // SAFETY: the list and the place live until the call returns.
    let status = unsafe { MmAllocateMdlForIoSpace(&raw const list, 1, &raw mut mdl) };
    if status < 0 { Err(status) } else { Ok(mdl) }
}

fn map_registers(lists: [WDFCMRESLIST; 2]) {
    let (start, length) = range(read(descriptors(lists[1])[0]));
    REGISTERS_START.store(start, SeqCst);
    REGISTERS_AT.store(map(start, length), SeqCst);
}

fn take(_: WDFDEVICE, lists: [WDFCMRESLIST; 2]) {
    map_registers(lists);
    let (start, length) = range(read(descriptors(lists[1])[1]));
    assert_eq!(mdl_of(start + 1, length), Err(STATUS_INVALID_PARAMETER_1));
    assert_eq!(mdl_of(start, length - 1), Err(STATUS_INVALID_PARAMETER_1));
    assert_eq!(mdl_of(start, 2 * length), Err(STATUS_INVALID_PARAMETER_1));
    SHARED_MDL.store(mdl_of(start, length).expect("an MDL"), SeqCst);
}

fn give_back() {
    unmap(REGISTERS_AT.load(SeqCst), REGISTERS);
    free_mdl();
}

fn free_mdl() {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { IoFreeMdl(SHARED_MDL.load(SeqCst)) };
}

fn config(raw: *mut Descriptor, translated: *mut Descriptor) -> Config {
    Config {
        size: size::<Config>(),
        spin_lock: ptr::null_mut(),
        share_vector: USE_DEFAULT,
        floating_save: 0,
        automatic_serialization: 0,
        isr: Some(isr),
        deferred: Some(deferred),
        enable: Some(enable),
        disable: Some(disable),
        work_item: ptr::null_mut(),
        raw: raw.cast(),
        translated: translated.cast(),
        wait_lock: ptr::null_mut(),
        passive_handling: 0,
        report_inactive: USE_DEFAULT,
        can_wake: 0,
    }
}

fn create_interrupt(device: WDFDEVICE, config: &Config) -> Result<PVOID, NTSTATUS> {
    let mut interrupt: PVOID = ptr::null_mut();
    let status = framework!(WdfInterruptCreate(
        device => WDFDEVICE,
        ptr::from_ref(config) => *const Config,
        ptr::null_mut() => *mut WDF_OBJECT_ATTRIBUTES,
        &raw mut interrupt => *mut PVOID,
    ) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(interrupt) }
}

unsafe extern "C" fn isr(interrupt: PVOID, message: u32) -> u8 {
    note(if message == 0 { "isr 0" } else { "isr 1" });
    if message == 0 {
        (like().isr)(interrupt);
        framework!(WdfInterruptQueueDpcForIsr(interrupt => PVOID) -> u8);
    }
    // The second one is not its own.
    (message == 0).into()
}

unsafe extern "C" fn deferred(interrupt: PVOID, device: WDFDEVICE) {
    note("dpc");
    assert_eq!(framework!(WdfInterruptGetDevice(interrupt => PVOID) -> WDFDEVICE), device);
}

unsafe extern "C" fn enable(_: PVOID, _: WDFDEVICE) -> NTSTATUS {
    note("enable");
    STATUS_SUCCESS
}

unsafe extern "C" fn disable(_: PVOID, _: WDFDEVICE) -> NTSTATUS {
    note("disable");
    STATUS_SUCCESS
}

unsafe extern "C" fn power_up(device: WDFDEVICE, _: WDF_POWER_DEVICE_STATE) -> NTSTATUS {
    note("D0 entry");
    assert_eq!(create_interrupt(device, &config(ptr::null_mut(), ptr::null_mut())), Err(STATUS_INVALID_DEVICE_STATE));
    STATUS_SUCCESS
}

unsafe extern "C" fn enabled(_: WDFDEVICE, _: WDF_POWER_DEVICE_STATE) -> NTSTATUS {
    note("enabled");
    STATUS_SUCCESS
}

unsafe extern "C" fn disables(_: WDFDEVICE, _: WDF_POWER_DEVICE_STATE) -> NTSTATUS {
    note("disables");
    STATUS_SUCCESS
}

unsafe extern "C" fn power_down(_: WDFDEVICE, _: WDF_POWER_DEVICE_STATE) -> NTSTATUS {
    note("D0 exit");
    STATUS_SUCCESS
}

unsafe extern "C" fn prepare(device: WDFDEVICE, raw: WDFCMRESLIST, translated: WDFCMRESLIST) -> NTSTATUS {
    (like().prepare)(device, [raw, translated]);
    STATUS_SUCCESS
}

unsafe extern "C" fn release(_: WDFDEVICE, _: WDFCMRESLIST) -> NTSTATUS {
    (like().release)();
    STATUS_SUCCESS
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

unsafe extern "C" fn add(_: WDFDRIVER, new: PWDFDEVICE_INIT) -> NTSTATUS {
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        Size: size::<WDF_PNPPOWER_EVENT_CALLBACKS>(),
        EvtDeviceD0Entry: Some(power_up),
        EvtDeviceD0EntryPostInterruptsEnabled: Some(enabled),
        EvtDeviceD0ExitPreInterruptsDisabled: Some(disables),
        EvtDeviceD0Exit: Some(power_down),
        EvtDevicePrepareHardware: Some(prepare),
        EvtDeviceReleaseHardware: Some(release),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    // SAFETY: the framework's structure, and one that lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetPnpPowerEventCallbacks, new, &raw mut callbacks) };
    let device = create_device(new, attributes());
    DEVICE.store(device, SeqCst);
    let (none, mut descriptor) = (ptr::null_mut(), Descriptor { kind: INTERRUPT, share: 0, flags: 0, what: [0; 4] });
    assert_eq!(create_interrupt(device, &config(&raw mut descriptor, none)), Err(STATUS_INVALID_PARAMETER));
    assert_eq!(create_interrupt(device, &Config { isr: None, ..config(none, none) }), Err(STATUS_INVALID_PARAMETER));
    FIRST.store(create_interrupt(device, &config(none, none)).expect("an interrupt"), SeqCst);
    STATUS_SUCCESS
}

/// Starts a device with two ranges of memory and two interrupts, and has `work` happen to it.
fn scenario(like: Like, work: impl FnOnce(&Kernel, &Device)) {
    let kernel = Kernel::seeded(3).preemption(0).start();
    *LIKE.lock().unwrap_or_else(PoisonError::into_inner) = like;
    seen();
    let driver: Driver = kernel.load("hardware", entry).expect("the driver loads");
    let resources = Resources { memory: vec![REGISTERS, SHARED], interrupts: 2 };
    let device = driver.add_device_with(&resources, &[]).expect("the device starts");
    work(&kernel, &device);
    assert!(device.remove().is_ok());
    driver.unload();
}

#[test]
fn a_device_has_its_resources_in_two_lists() {
    fn look(device: WDFDEVICE, lists: [WDFCMRESLIST; 2]) {
        let [raw, translated] = lists.map(|list| descriptors(list).into_iter().map(read).collect::<Vec<_>>());
        assert_eq!(raw.iter().map(|one| one.kind).collect::<Vec<_>>(), [MEMORY, MEMORY, INTERRUPT, INTERRUPT]);
        assert_eq!(raw[..2], translated[..2]);
        let ((registers, length), (shared, shared_length)) = (range(raw[0]), range(raw[1]));
        assert_eq!((length, shared_length), (REGISTERS, SHARED));
        assert_eq!((registers % 4096, shared % u64::from(SHARED)), (0, 0));
        // Messages: their flags, and a vector of its own for each; the levels are those of devices.
        assert!(translated[2..].iter().all(|one| one.flags == 3 && (3..12).contains(&one.what[0])));
        assert_ne!(translated[2].what[1], translated[3].what[1]);
        take(device, lists);
    }
    scenario(Like { prepare: look, ..RIGHT }, |_, _| ());
}

#[test]
fn what_a_driver_writes_to_its_device_the_device_reads() {
    fn registers() -> *mut u32 {
        REGISTERS_AT.load(SeqCst)
    }
    scenario(RIGHT, |_, device| {
        assert_eq!(device.memory(0), [0; 256]);
        // SAFETY: the driver has its registers mapped, which are aligned to a page.
        unsafe { registers().add(3).write_volatile(0x0102_0304) };
        assert_eq!(device.memory(0)[12..16], [4, 3, 2, 1]);
        device.set_memory(0, 16, &[9, 0, 0, 0]);
        // SAFETY: the driver has its registers mapped, which are aligned to a page.
        assert_eq!(unsafe { registers().add(4).read_volatile() }, 9);
        let mdl = SHARED_MDL.load(SeqCst);
        // SAFETY: the driver's MDL, which is mapped once and unmapped here.
        unsafe {
            let shared: *mut u8 = MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16).cast();
            shared.add(8191).write(7);
            MmUnmapLockedPages(shared.cast(), mdl);
        }
        assert_eq!(device.memory(1)[8191], 7);
        // The same registers once more, in part and by the newer routine.
        // SAFETY: a range of the device, given back as it was mapped.
        unsafe {
            let again = MmMapIoSpaceEx(physical(REGISTERS_START.load(SeqCst) + 12), 4, 0x204);
            assert_eq!(again.cast::<u32>().read_volatile(), 0x0102_0304);
            MmUnmapIoSpace(again, 4);
        }
        // What the device holds does not go with the mapping.
        assert_eq!(device.stop_and_start(), Ok(()));
        // SAFETY: the driver has its registers mapped again.
        assert_eq!(unsafe { registers().add(3).read_volatile() }, 0x0102_0304);
    });
}

#[test]
fn an_interrupt_calls_its_routine_at_its_level_and_then_its_dpc() {
    /// The first interrupt was made with the device, the second is made of its descriptors.
    fn two(device: WDFDEVICE, lists: [WDFCMRESLIST; 2]) {
        take(device, lists);
        let none = ptr::null_mut();
        assert_eq!(create_interrupt(device, &config(none, none)), Err(STATUS_INVALID_DEVICE_STATE));
        let [raw, translated] = lists.map(|list| descriptors(list)[3]);
        assert!(create_interrupt(device, &config(raw, translated)).is_ok());
    }
    fn reads(_: PVOID) {
        // SAFETY: the driver has its registers mapped.
        READ.store(unsafe { REGISTERS_AT.load(SeqCst).read_volatile() }, SeqCst);
    }
    scenario(Like { prepare: two, isr: reads, ..RIGHT }, |kernel, device| {
        assert_eq!(seen(), [("D0 entry", 0), ("enable", 3), ("enable", 4), ("enabled", 0)]);
        device.set_memory(0, 0, &[5, 0, 0, 0]);
        assert_eq!([device.interrupt(0), device.interrupt(1), device.interrupt(2)], [Some(true), Some(false), None]);
        assert_eq!(READ.load(SeqCst), 5);
        kernel.sleep(1_000);
        let calls = seen();
        assert_eq!(calls.first(), Some(&("isr 0", 3)));
        assert!(calls.contains(&("dpc", 2)) && calls.contains(&("isr 1", 4)), "{calls:?}");

        device.sleep();
        assert_eq!(device.interrupt(0), None);
        device.wake();
        let asleep = ["disables", "disable", "disable", "D0 exit", "D0 entry", "enable", "enable", "enabled"];
        assert_eq!(seen().into_iter().map(|(what, _)| what).collect::<Vec<_>>(), asleep);
        assert_eq!(device.stop_and_start(), Ok(()));
        assert_eq!(device.interrupt(1), Some(false));
    });
}

fn synchronized_level() -> u8 {
    unsafe extern "C" fn level(_: PVOID, place: PVOID) -> u8 {
        // SAFETY: the caller's number.
        unsafe { place.cast::<u8>().write(irql()) };
        1
    }
    let mut seen = 0_u8;
    let called = framework!(WdfInterruptSynchronize(
        FIRST.load(SeqCst) => PVOID,
        level => unsafe extern "C" fn(PVOID, PVOID) -> u8,
        (&raw mut seen).cast() => PVOID,
    ) -> u8);
    assert_eq!(called, 1);
    seen
}

#[test]
fn who_has_the_lock_of_an_interrupt_is_at_its_level() {
    scenario(RIGHT, |_, _| {
        acquire_lock();
        assert_eq!(irql(), 3);
        release_lock();
        assert_eq!((irql(), synchronized_level(), irql()), (0, 3, 0));
        seen();
        framework!(WdfInterruptDisable(FIRST.load(SeqCst) => PVOID));
        framework!(WdfInterruptEnable(FIRST.load(SeqCst) => PVOID));
        assert_eq!(seen(), [("disable", 3), ("enable", 3)]);
    });
}

fn acquire_lock() {
    framework!(WdfInterruptAcquireLock(FIRST.load(SeqCst) => PVOID));
}

fn release_lock() {
    framework!(WdfInterruptReleaseLock(FIRST.load(SeqCst) => PVOID));
}

fn set_an_event(_: PVOID) {
    let mut event = KEVENT::default();
    // SAFETY: the event lives until both calls have returned. The second is not allowed here.
    unsafe {
        KeInitializeEvent(&raw mut event, 0, 0);
        KeSetEvent(&raw mut event, 0, 0);
    }
}

/// The registers are unmapped, and written after that.
fn write_after_unmapping() {
    let registers = REGISTERS_AT.load(SeqCst);
    give_back();
    // SAFETY: none: that is the mistake. The pool keeps the memory for now.
    unsafe { registers.write_volatile(1) };
}

fn of_two_lists(device: WDFDEVICE, lists: [WDFCMRESLIST; 2]) {
    let (raw, translated) = (descriptors(lists[0])[2], descriptors(lists[1])[3]);
    let _ = create_interrupt(device, &config(raw, translated));
}

/// Tests of drivers that are wrong in one thing.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $like:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || {
                    scenario($like, |_, device| assert_eq!(device.interrupt(0), Some(true)));
                });
            }
        )+
    };
}

wrong! {
    registers_that_stay_mapped breaks ReferenceLeak by Like { release: free_mdl, ..RIGHT };
    an_mdl_that_stays breaks ReferenceLeak by Like { release: || unmap(REGISTERS_AT.load(SeqCst), REGISTERS), ..RIGHT };
    an_unmapping_of_fewer_bytes breaks BadArgument by Like { release: || unmap(REGISTERS_AT.load(SeqCst), 8), ..RIGHT };
    an_unmapping_of_nothing breaks BadArgument by Like { release: || { give_back(); give_back() }, ..RIGHT };
    a_mapping_of_no_bytes breaks BadArgument by Like { prepare: |_, _| { map(0x1000, 0); }, ..RIGHT };
    a_mapping_of_nothing_that_stays breaks PoolLeak by Like {
        prepare: |device, lists| { map(0x1000, 16); take(device, lists) },
        ..RIGHT
    };
    a_mapping_of_memory_that_is_free breaks UseAfterFree by Like { prepare: |_, _| { map(freed(), 16); }, ..RIGHT };
    a_mapping_of_more_than_a_block breaks UseAfterFree by Like { prepare: |_, _| map_too_much(), ..RIGHT };
    a_mapping_beyond_the_end breaks BadArgument
        by Like { prepare: |_, lists| { map(range(read(descriptors(lists[1])[0])).0, REGISTERS + 1); }, ..RIGHT };
    registers_written_after_their_unmapping breaks UseAfterFree by Like { release: write_after_unmapping, ..RIGHT };
    an_event_set_by_the_routine_of_an_interrupt breaks IrqlTooHigh by Like { isr: set_an_event, ..RIGHT };
    a_lock_of_an_interrupt_acquired_in_its_routine breaks IrqlTooHigh by Like { isr: |_| acquire_lock(), ..RIGHT };
    a_lock_of_an_interrupt_released_by_nobody breaks LockNotHeld by Like { release: release_lock, ..RIGHT };
    an_interrupt_of_two_descriptors breaks BadArgument by Like { prepare: of_two_lists, ..RIGHT };
    an_interrupt_deleted_by_its_driver breaks BadHandle by Like { release: delete, ..RIGHT };
}

fn delete() {
    // SAFETY: the test's scenario, which is wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, FIRST.load(SeqCst) as WDFOBJECT) };
}

/// A block of the driver's, and its physical address.
fn block() -> (PVOID, u64) {
    // SAFETY: nothing is asked of a caller.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, 64, TAG) };
    // SAFETY: the driver's block.
    let address = unsafe { MmGetPhysicalAddress(block) };
    // SAFETY: every value of the union's numbers is one.
    (block, unsafe { address.QuadPart }.cast_unsigned())
}

/// The physical address of a block that is free again.
fn freed() -> u64 {
    let (block, address) = block();
    // SAFETY: the driver's block.
    unsafe { ExFreePoolWithTag(block, TAG) };
    address
}

fn map_too_much() {
    let (_, address) = block();
    map(address, 65);
}

/// What is no device's is mapped as well: memory of the system's as it is, and where nothing is all bits are set.
fn map_what_no_device_has() {
    let nothing = map(0x1010, 16);
    // SAFETY: sixteen bytes were mapped.
    assert_eq!(unsafe { nothing.wrapping_add(3).read_volatile() }, u32::MAX);
    assert_eq!(nothing.addr() % 4096, 0x10);
    unmap(nothing, 16);
    let (block, address) = block();
    let word = map(address + 8, 4);
    // SAFETY: four bytes of the driver's block were mapped.
    unsafe { word.write_volatile(7) };
    // SAFETY: the driver's block.
    assert_eq!(unsafe { block.cast::<u32>().wrapping_add(2).read() }, 7);
    unmap(word, 4);
    // SAFETY: the driver's block.
    unsafe { ExFreePoolWithTag(block, TAG) };
}

#[test]
fn a_driver_maps_what_no_device_has() {
    let prepare = |device, lists| {
        map_what_no_device_has();
        take(device, lists);
    };
    scenario(Like { prepare, ..RIGHT }, |_, _| ());
}
