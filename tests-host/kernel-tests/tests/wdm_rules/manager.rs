//! What drivers of plain WDM ask the I/O manager for: extensions of the driver object, the top of a stack, the shutdown, the error log.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught, irql};
use wdk_sys::{
    LARGE_INTEGER, NTSTATUS, PDEVICE_OBJECT, PDRIVER_OBJECT, PULONG, PVOID, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_OBJECT_NAME_COLLISION, STATUS_SUCCESS,
    ntddk::{KeDelayExecutionThread, ObfDereferenceObject, ObfReferenceObject},
};

use crate::driver::does;

unsafe extern "C" {
    // The bindings leave these out.
    fn IoAllocateDriverObjectExtension(driver: PDRIVER_OBJECT, name: PVOID, size: u32, place: *mut PVOID) -> NTSTATUS;
    fn IoGetDriverObjectExtension(driver: PDRIVER_OBJECT, name: PVOID) -> PVOID;
    fn IoGetAttachedDeviceReference(device: PDEVICE_OBJECT) -> PDEVICE_OBJECT;
    fn IoRegisterShutdownNotification(device: PDEVICE_OBJECT) -> NTSTATUS;
    fn IoUnregisterShutdownNotification(device: PDEVICE_OBJECT);
    fn IoAllocateErrorLogEntry(object: PVOID, size: u8) -> PVOID;
    fn IoWriteErrorLogEntry(entry: PVOID);
    fn IoFreeErrorLogEntry(entry: PVOID);
    fn IoInitializeTimer(device: PDEVICE_OBJECT, routine: Option<IoTimer>, context: PVOID) -> NTSTATUS;
    fn IoStartTimer(device: PDEVICE_OBJECT);
    fn IoStopTimer(device: PDEVICE_OBJECT);
    fn IoGetDeviceProperty(
        device: PDEVICE_OBJECT,
        property: i32,
        length: u32,
        buffer: PVOID,
        result: PULONG,
    ) -> NTSTATUS;
}

type IoTimer = unsafe extern "C" fn(PDEVICE_OBJECT, PVOID);

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn driver_of(device: PDEVICE_OBJECT) -> PDRIVER_OBJECT {
    // SAFETY: the driver's device.
    unsafe { (*device).DriverObject }
}

fn name() -> PVOID {
    (&raw const DOES_NOT_MATTER).cast_mut().cast()
}

static DOES_NOT_MATTER: u8 = 0;

fn extend(device: PDEVICE_OBJECT, name: PVOID) -> Result<PVOID, NTSTATUS> {
    let mut extension = ptr::null_mut();
    let status = call!(IoAllocateDriverObjectExtension(driver_of(device), name, 16, &raw mut extension));
    if status < 0 { Err(status) } else { Ok(extension) }
}

/// How often a timer has called.
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn expired(device: PDEVICE_OBJECT, context: PVOID) {
    assert_eq!((device.cast(), irql()), (context, 2));
    CALLS.fetch_add(1, SeqCst);
}

unsafe extern "C" fn stop_here(device: PDEVICE_OBJECT, _: PVOID) {
    call!(IoStopTimer(device));
}

fn start(device: PDEVICE_OBJECT, routine: IoTimer) {
    assert_eq!(call!(IoInitializeTimer(device, Some(routine), device.cast())), STATUS_SUCCESS);
    call!(IoStartTimer(device));
}

fn sleep(milliseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -milliseconds * 10_000 };
    assert_eq!(call!(KeDelayExecutionThread(0, 0, &raw mut interval)), STATUS_SUCCESS);
}

fn entry(device: PDEVICE_OBJECT) -> PVOID {
    let entry = call!(IoAllocateErrorLogEntry(device.cast(), 56));
    assert!(!entry.is_null());
    entry
}

#[test]
fn an_extension_of_a_driver_object_is_found_by_its_name_and_goes_with_the_driver() {
    does(|device| {
        assert!(call!(IoGetDriverObjectExtension(driver_of(device), name())).is_null());
        let extension = extend(device, name()).expect("an extension");
        // SAFETY: the extension has as many bytes.
        unsafe { extension.cast::<u8>().write_bytes(7, 16) };
        assert_eq!(extend(device, name()), Err(STATUS_OBJECT_NAME_COLLISION));
        assert_eq!(call!(IoGetDriverObjectExtension(driver_of(device), name())), extension);
        let other = extend(device, device.cast()).expect("another one");
        assert_ne!(other, extension);
    });
}

#[test]
fn the_top_of_a_stack_is_referred_to() {
    does(|device| {
        assert_eq!(call!(IoGetAttachedDeviceReference(device)), device);
        assert_eq!(call!(ObfReferenceObject(device.cast())), 2);
        for _ in 0..2 {
            call!(ObfDereferenceObject(device.cast()));
        }
    });
}

#[test]
fn a_device_is_registered_for_the_shutdown() {
    const REGISTERED: u32 = 0x800;
    does(|device| {
        let flags = |device: PDEVICE_OBJECT| {
            // SAFETY: the driver's device.
            unsafe { (*device).Flags }
        };
        let before = flags(device);
        assert_eq!(call!(IoRegisterShutdownNotification(device)), STATUS_SUCCESS);
        assert_eq!(flags(device), before | REGISTERED);
        call!(IoUnregisterShutdownNotification(device));
        assert_eq!(flags(device), before);
    });
}

#[test]
fn the_timer_of_a_device_calls_once_a_second_until_it_is_stopped() {
    does(|device| {
        CALLS.store(0, SeqCst);
        start(device, expired);
        call!(IoStartTimer(device));
        sleep(2_500);
        assert_eq!(CALLS.load(SeqCst), 2);
        call!(IoStopTimer(device));
        call!(IoStopTimer(device));
        sleep(2_000);
        assert_eq!(CALLS.load(SeqCst), 2);
        call!(IoStartTimer(device));
        sleep(1_500);
        assert_eq!(CALLS.load(SeqCst), 3);
        // It goes with its device.
    });
}

#[test]
fn an_entry_of_the_error_log_is_written_or_freed() {
    does(|device| {
        let first = entry(device);
        // SAFETY: the entry has as many bytes.
        unsafe { first.cast::<u8>().write_bytes(1, 56) };
        call!(IoWriteErrorLogEntry(first));
        let second = call!(IoAllocateErrorLogEntry(driver_of(device).cast(), 240));
        call!(IoFreeErrorLogEntry(second));
        for size in [0, 47, 241] {
            assert!(call!(IoAllocateErrorLogEntry(device.cast(), size)).is_null());
        }
    });
}

#[test]
fn a_device_of_a_driver_has_no_properties() {
    does(|device| {
        let mut result = 0;
        let status = call!(IoGetDeviceProperty(device, 15, 0, ptr::null_mut(), &raw mut result));
        assert_eq!(status, STATUS_INVALID_DEVICE_REQUEST);
    });
}

/// Drivers that are wrong with these.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || does($work));
            }
        )+
    };
}

wrong! {
    an_extension_of_no_driver_object breaks BadHandle by |device| {
        call!(IoGetDriverObjectExtension(device.cast(), name()));
    };
    a_reference_to_the_top_of_a_stack_left breaks ReferenceLeak by |device| {
        call!(IoGetAttachedDeviceReference(device));
    };
    an_entry_of_the_error_log_left breaks ReferenceLeak by |device| { entry(device); };
    an_entry_of_the_error_log_written_twice breaks BadHandle by |device| {
        let entry = entry(device);
        call!(IoWriteErrorLogEntry(entry));
        call!(IoWriteErrorLogEntry(entry));
    };
    an_entry_of_the_error_log_filled_in_after_it_is_written breaks UseAfterFree by |device| {
        let entry = entry(device);
        call!(IoWriteErrorLogEntry(entry));
        // SAFETY: as wrong as the test wants it.
        unsafe { entry.cast::<u8>().write(0x7A) };
    };
    more_in_an_entry_than_it_has_room_for breaks Overrun by |device| {
        let entry = entry(device);
        // SAFETY: as wrong as the test wants it.
        unsafe { entry.cast::<u8>().write_bytes(1, 57) };
        call!(IoWriteErrorLogEntry(entry));
    };
    a_device_with_two_timers breaks BadArgument by |device| {
        start(device, expired);
        start(device, expired);
    };
    a_timer_of_a_device_that_has_none breaks BadArgument by |device| call!(IoStartTimer(device));
    a_timer_stopped_by_its_own_routine breaks BadArgument by |device| {
        start(device, stop_here);
        sleep(1_500);
    };
    an_entry_of_the_error_log_of_nothing breaks BadHandle by |_| {
        call!(IoAllocateErrorLogEntry(name(), 56));
    };
}
