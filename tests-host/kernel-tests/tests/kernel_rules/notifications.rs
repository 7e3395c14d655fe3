//! Notifications of plug and play, and who may end a registration from inside of its own callback.

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{Driver, DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    _IO_NOTIFICATION_EVENT_CATEGORY, GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT,
    PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES, PVOID, PWDFDEVICE_INIT, STATUS_SUCCESS, WDFDRIVER,
    call_unsafe_wdf_function_binding,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoRegisterPlugPlayNotification, IoUnregisterPlugPlayNotificationEx,
        KeDelayExecutionThread,
    },
};

use crate::small_driver::{attributes, create_device, create_driver};

unsafe extern "C" {
    /// The kit declares it, the bindings leave it out.
    fn IoUnregisterPlugPlayNotification(entry: PVOID) -> NTSTATUS;
}

static CLASS: GUID = GUID { Data1: 0x0DD0_C1A5, Data2: 1, Data3: 2, Data4: [4; 8] };
const TAG: u32 = u32::from_ne_bytes(*b"Noti");

/// The driver object, the registration, and how often its callback was called.
static OBJECT: DuringRun<AtomicPtr<wdk_sys::DRIVER_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static ENTRY: DuringRun<AtomicPtr<core::ffi::c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static INSIDE: DuringRun<AtomicBool> = DuringRun::new(AtomicBool::new(false));

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    OBJECT.store(driver, SeqCst);
    create_driver(driver, path, add)
}

/// Makes a device with an interface.
unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

type Callback = unsafe extern "C" fn(PVOID, PVOID) -> NTSTATUS;

fn register(callback: Callback, flags: u32, context: PVOID) {
    let mut class = CLASS;
    // SAFETY: the identifier lives until the call returns, the place and the callback as long as the program.
    let status = unsafe {
        IoRegisterPlugPlayNotification(
            _IO_NOTIFICATION_EVENT_CATEGORY::EventCategoryDeviceInterfaceChange,
            flags,
            (&raw mut class).cast(),
            OBJECT.load(SeqCst),
            Some(callback),
            context,
            ENTRY.as_ptr(),
        )
    };
    assert_eq!(status, STATUS_SUCCESS);
}

fn unregister() -> NTSTATUS {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { IoUnregisterPlugPlayNotificationEx(ENTRY.load(SeqCst)) }
}

/// Ends its own registration, and frees its context then, as the reference has it.
unsafe extern "C" fn once(_: PVOID, context: PVOID) -> NTSTATUS {
    CALLS.fetch_add(1, SeqCst);
    assert_eq!(unregister(), STATUS_SUCCESS);
    if !context.is_null() {
        // SAFETY: a block of the driver, which no later callback gets.
        unsafe { ExFreePoolWithTag(context, TAG) };
    }
    STATUS_SUCCESS
}

/// Takes its time.
unsafe extern "C" fn slow(_: PVOID, _: PVOID) -> NTSTATUS {
    INSIDE.store(true, SeqCst);
    let mut interval = wdk_sys::LARGE_INTEGER { QuadPart: -10_000 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
    CALLS.fetch_add(1, SeqCst);
    INSIDE.store(false, SeqCst);
    STATUS_SUCCESS
}

/// Loads the driver, lets `work` use it, and unloads it.
fn with_driver(work: impl FnOnce(&Kernel, &Driver)) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    CALLS.store(0, SeqCst);
    let driver = kernel.load("notified", entry).expect("the driver loads");
    work(&kernel, &driver);
    driver.unload();
}

fn device_comes_and_goes(driver: &Driver) {
    assert!(driver.add_device().expect("the device starts").remove().is_ok());
}

/// One after the other: only one kernel runs at a time.
#[test]
fn a_callback_may_end_its_own_registration() {
    with_driver(|_, driver| {
        driver.run(|| {
            // SAFETY: an allocation like any other.
            let context = unsafe { ExAllocatePool2(wdk_sys::POOL_FLAG_NON_PAGED, 16, TAG) };
            register(once, 0, context);
        });
        device_comes_and_goes(driver);
        assert_eq!(CALLS.load(SeqCst), 1, "it is told of the arrival, and of nothing after it");
    });
    // The older routine waits for nobody.
    with_driver(|_, driver| {
        unsafe extern "C" fn older(_: PVOID, _: PVOID) -> NTSTATUS {
            CALLS.fetch_add(1, SeqCst);
            // SAFETY: the driver's registration, which is ended once.
            unsafe { IoUnregisterPlugPlayNotification(ENTRY.load(SeqCst)) }
        }
        driver.run(|| register(older, 0, ptr::null_mut()));
        device_comes_and_goes(driver);
        assert_eq!(CALLS.load(SeqCst), 1);
    });
    // Who is no callback waits for those that run.
    with_driver(|_, driver| {
        driver.run(|| register(slow, 0, ptr::null_mut()));
        let device = driver.add_device().expect("the device starts");
        assert_eq!(CALLS.load(SeqCst), 1);
        driver.run(|| {
            assert_eq!(unregister(), STATUS_SUCCESS);
        });
        assert!(!INSIDE.load(SeqCst));
        assert!(device.remove().is_ok());
        assert_eq!(CALLS.load(SeqCst), 1, "nobody is told of the removal");
    });
}

/// Tests that break a rule, each named after what it does.
macro_rules! breaks {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with_driver($work));
            }
        )+
    };
}

breaks! {
    a_callback_that_ends_a_registration_that_has_not_returned breaks Deadlock by |_, driver| {
        let device = driver.add_device().expect("the device starts");
        driver.run(|| register(once, PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES, ptr::null_mut()));
        drop(device);
    };
    a_registration_ended_twice breaks BadHandle by |_, driver| driver.run(|| {
        register(slow, 0, ptr::null_mut());
        unregister();
        unregister();
    });
    a_registration_for_notifications_left breaks ReferenceLeak by
        |_, driver| driver.run(|| register(slow, 0, ptr::null_mut()));
}
