//! The one device of the driver: root-enumerated, without hardware.

use fallible::Arc;
use kernel::{
    WaitLock, context,
    wdf::{ControlDevice, attributes, create_device},
};
use ndkpi::NtStatus;
use wdk_sys::{
    NTSTATUS, PWDFDEVICE_INIT, STATUS_SUCCESS, WDF_PNPPOWER_EVENT_CALLBACKS, WDFDEVICE, WDFDRIVER, WDFOBJECT,
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

context!(Tester, c"ndktest device");

/// Plug and play has found the device.
///
/// # Safety
///
/// Only the framework calls this.
pub unsafe extern "C" fn add(driver: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    // SAFETY: the framework's own arguments.
    NtStatus::from(unsafe { try_add(driver, init) }).0
}

/// # Safety
///
/// As for [`add`].
unsafe fn try_add(driver: WDFDRIVER, init: PWDFDEVICE_INIT) -> Result<(), NtStatus> {
    let callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        EvtDeviceSelfManagedIoInit: Some(started),
        EvtDeviceSelfManagedIoFlush: Some(removed),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    let mut attributes = attributes();
    CONTEXT.describe(&mut attributes);
    attributes.EvtCleanupCallback = Some(cleanup);
    // SAFETY: the framework's own argument.
    let device = unsafe { create_device(init, callbacks, attributes) }?;
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
    NtStatus::from(unsafe { tester.finder.start(tester.driver) }).0
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
    // Requests that are being served may be finished first, so this is not done under the lock.
    drop(control);
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
