//! A small KMDF driver of a device of plug and play, of which a test says how it is made.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use simulated_kernel::{Device, Driver, DuringRun, Kernel};
use wdk_sys::{
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDFDEVICE_INIT, STATUS_SUCCESS, WDFDEVICE, WDFDEVICE__, WDFDRIVER,
};

use crate::small_driver::{attributes, create_device, create_driver};

/// How the driver makes its device.
#[derive(Clone, Copy)]
pub struct Made {
    /// Before it is made.
    pub init: fn(PWDFDEVICE_INIT),
    /// In `EvtDriverDeviceAdd`, when it is made.
    pub device: fn(WDFDEVICE),
}

impl Default for Made {
    fn default() -> Self {
        Self { init: |_| (), device: |_| () }
    }
}

static MADE: DuringRun<Mutex<Option<Made>>> = DuringRun::new(Mutex::new(None));
static DEVICE: DuringRun<AtomicPtr<WDFDEVICE__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

/// The framework's device.
pub fn device() -> WDFDEVICE {
    DEVICE.load(SeqCst)
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
    (made.init)(init);
    let device = create_device(init, attributes());
    DEVICE.store(device, SeqCst);
    (made.device)(device);
    STATUS_SUCCESS
}

/// Loads the driver on a seeded kernel, gives it a device, lets `work` use that, and removes it.
pub fn with_device(made: Made, work: impl FnOnce(&Kernel, &Driver, &Device)) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    *MADE.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    let driver = kernel.load("made", entry).expect("the driver loads");
    let device = driver.add_device().expect("the driver takes the device");
    work(&kernel, &driver, &device);
    assert!(device.remove().is_ok(), "nobody refuses");
    driver.unload();
}
