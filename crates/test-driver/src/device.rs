//! The one device of the driver: root-enumerated, without hardware.

use core::ptr;

use fallible::Arc;
use kernel::{
    WaitLock, check,
    wdf::{ContextType, ControlDevice, attributes, size},
};
use ndkpi::NtStatus;
use wdk_sys::{
    FILE_DEVICE_NETWORK, FILE_DEVICE_SECURE_OPEN, NTSTATUS, PWDFDEVICE_INIT, STATUS_SUCCESS,
    WDF_PNPPOWER_EVENT_CALLBACKS, WDFDEVICE, WDFDRIVER, WDFOBJECT, call_unsafe_wdf_function_binding,
};

use crate::{control, finder::Finder, run::Runs};

/// What the device carries.
pub struct Tester {
    driver: WDFDRIVER,
    device: WDFDEVICE,
    finder: Finder,
    runs: Runs,
    control: WaitLock<Option<ControlDevice>>,
}

// SAFETY: the framework's handles may be used on any thread.
unsafe impl Send for Tester {}
// SAFETY: as for `Send`; everything else in it is `Sync`.
unsafe impl Sync for Tester {}

// SAFETY: the address is that of this static.
static CONTEXT: ContextType<Tester> = unsafe { ContextType::new(c"ndktest device", &raw const CONTEXT) };

/// Plug and play has found the device.
///
/// # Safety
///
/// Only the framework calls this.
pub unsafe extern "C" fn add(driver: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    // SAFETY: the framework's own arguments.
    match unsafe { try_add(driver, init) } {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => status.0,
    }
}

/// # Safety
///
/// As for [`add`].
unsafe fn try_add(driver: WDFDRIVER, mut init: PWDFDEVICE_INIT) -> Result<(), NtStatus> {
    let mut callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        Size: size::<WDF_PNPPOWER_EVENT_CALLBACKS>(),
        EvtDeviceSelfManagedIoInit: Some(started),
        EvtDeviceSelfManagedIoFlush: Some(removed),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    // SAFETY: the framework's structure, before the device is made of it; the callbacks live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceInitSetPnpPowerEventCallbacks, init, &raw mut callbacks);
    }
    // SAFETY: the framework's structure, before the device is made of it.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetDeviceType, init, FILE_DEVICE_NETWORK) };
    // SAFETY: as above.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetCharacteristics, init, FILE_DEVICE_SECURE_OPEN, 1) };

    let mut attributes = attributes();
    CONTEXT.describe(&mut attributes, destroy);
    attributes.EvtCleanupCallback = Some(cleanup);
    let mut device = ptr::null_mut();
    // SAFETY: the framework's structure, and structures that live until the call returns.
    check(unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    })?;
    // From here on the framework deletes the device if this routine fails, and `cleanup` undoes the rest.
    let tester = Tester::try_new(driver, device)?;
    // SAFETY: the device is live and was created with a context of this kind.
    unsafe { CONTEXT.put(device.cast(), tester.clone()) };
    let control = control::create(&tester)?;
    tester.control.with(|place| *place = Some(control));
    Ok(())
}

unsafe extern "C" fn started(device: WDFDEVICE) -> NTSTATUS {
    // SAFETY: the framework's own argument, a device that was created with a context of this kind.
    let Some(tester) = (unsafe { CONTEXT.get(device.cast()) }) else { return STATUS_SUCCESS };
    // SAFETY: the driver object is live as long as its device.
    match unsafe { tester.finder.start(tester.driver) } {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => status.0,
    }
}

unsafe extern "C" fn removed(device: WDFDEVICE) {
    // SAFETY: as in `started`.
    if let Some(tester) = unsafe { CONTEXT.get(device.cast()) } {
        tester.stop();
    }
}

unsafe extern "C" fn cleanup(object: WDFOBJECT) {
    // SAFETY: the framework calls this for a device that was created with a context of this kind.
    let Some(tester) = (unsafe { CONTEXT.get(object) }) else { return };
    tester.stop();
    let control = tester.control.with(Option::take);
    // The requests that are being served are finished first, so this is not done under the lock.
    drop(control);
}

unsafe extern "C" fn destroy(object: WDFOBJECT) {
    // SAFETY: the framework calls this for a device that was created with a context of this kind.
    unsafe { CONTEXT.take(object) };
}

impl Tester {
    fn try_new(driver: WDFDRIVER, device: WDFDEVICE) -> Result<Arc<Self>, NtStatus> {
        let (finder, runs, control) = (Finder::try_new()?, Runs::try_new()?, WaitLock::try_new(None)?);
        Arc::try_new(Self { driver, device, finder, runs, control }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// The framework's driver object.
    pub const fn driver(&self) -> WDFDRIVER {
        self.driver
    }

    /// The framework's device object.
    pub const fn device(&self) -> WDFDEVICE {
        self.device
    }

    /// Where the provider is.
    pub const fn finder(&self) -> &Finder {
        &self.finder
    }

    /// What is being run.
    pub const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// No more runs, and none that is still going on.
    fn stop(&self) {
        self.finder.stop();
        self.runs.stop();
    }
}
