//! The driver as a whole: what all its adapters share, from load to unload.

use driver_common::{
    controls::Controls,
    numbers::{MAX_ADAPTERS, Numbers},
    os::{Kernel, KernelLock},
    settings::Settings,
};
use engine::{
    connection::Fabric,
    os::{Os, SpinLock},
};
use fallible::Arc;
use kernel::{
    WaitLock, context,
    wdf::{Key, attributes, create_driver},
};
use ndkpi::NtStatus;
use wdk_sys::{PCUNICODE_STRING, PDRIVER_OBJECT, ULONG, WDF_DRIVER_CONFIG, WDFDRIVER};

use crate::{
    control::Control,
    device::{self, Adapter},
};

/// The tag of what the framework allocates for the driver; the driver's own allocations have that of `wdk-alloc`.
const POOL_TAG: ULONG = u32::from_le_bytes(*b"Sndk");

/// What all adapters share.
pub struct Driver {
    handle: WDFDRIVER,
    controls: Controls,
    numbers: Arc<Numbers>,
    adapters: KernelLock<[Option<Arc<Adapter>>; MAX_ADAPTERS]>,
    /// The loopback network between the adapters.
    fabric: Arc<Fabric<Kernel>>,
    /// The control device, which exists as long as there is an adapter.
    pub(crate) control: WaitLock<Control>,
}

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for Driver {}
// SAFETY: as for `Send`; everything else in it is behind locks.
unsafe impl Sync for Driver {}

context!(Driver, c"softndk driver");

/// Registers the driver with the framework.
///
/// # Errors
///
/// What the framework says; then nothing is left behind.
///
/// # Safety
///
/// The arguments are those of `DriverEntry`, which calls this once.
pub unsafe fn create(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<(), NtStatus> {
    // SAFETY: `driver` is what Windows gave to `DriverEntry`: the driver's object.
    unsafe { driver_common::start(driver) }?;
    // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), which calls this once.
    unsafe { register(driver, registry_path) }.inspect_err(|_| driver_common::stop())
}

/// # Safety
///
/// As for [`create`].
unsafe fn register(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<(), NtStatus> {
    let config = WDF_DRIVER_CONFIG {
        EvtDriverDeviceAdd: Some(device::add),
        EvtDriverUnload: Some(unload),
        DriverPoolTag: POOL_TAG,
        ..WDF_DRIVER_CONFIG::default()
    };
    let mut attributes = attributes();
    CONTEXT.describe(&mut attributes);
    // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), which has not returned.
    let handle = unsafe { create_driver(driver, registry_path, config, attributes) }?;

    // SAFETY: the framework has just made the driver object. If this fails it deletes the object after `DriverEntry`.
    let settings = unsafe { Key::parameters(handle) }.map_or_else(|_| Settings::default(), |key| Settings::read(&key));
    let shared = Arc::try_new(Driver {
        handle,
        controls: Controls::try_new(settings)?,
        numbers: Numbers::try_new()?,
        adapters: Kernel.lock([const { None }; MAX_ADAPTERS])?,
        fabric: Fabric::try_new(&Kernel)?,
        control: WaitLock::try_new(Control::default())?,
    });
    let shared = shared.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    // SAFETY: the object is live and was created with attributes of this kind.
    unsafe { CONTEXT.put(handle.cast(), shared) };
    Ok(())
}

/// The driver behind a framework's driver object.
///
/// # Safety
///
/// `handle` is this driver's live object.
#[must_use]
pub unsafe fn of(handle: WDFDRIVER) -> Option<Arc<Driver>> {
    // SAFETY: this driver's object (`# Safety`), which is created with a context of this kind.
    unsafe { CONTEXT.get(handle.cast()) }
}

unsafe extern "C" fn unload(_driver: WDFDRIVER) {
    driver_common::stop();
}

impl Driver {
    /// The framework's driver object.
    #[must_use]
    pub const fn handle(&self) -> WDFDRIVER {
        self.handle
    }

    /// The loopback network between the adapters.
    #[must_use]
    pub const fn fabric(&self) -> &Arc<Fabric<Kernel>> {
        &self.fabric
    }

    /// What programs can change while the driver runs.
    #[must_use]
    pub const fn controls(&self) -> &Controls {
        &self.controls
    }

    /// The driver's registry parameters.
    ///
    /// # Errors
    ///
    /// What the framework says; `STATUS_OBJECT_NAME_NOT_FOUND` if there are none.
    pub fn parameters(&self) -> Result<Key, NtStatus> {
        // SAFETY: the driver object is live as long as this value: it carries it.
        unsafe { Key::parameters(self.handle) }
    }

    /// The adapters that there are now.
    pub fn adapters(&self) -> [Option<Arc<Adapter>>; MAX_ADAPTERS] {
        self.adapters.with(|adapters| adapters.clone())
    }

    /// The numbers of the adapters.
    #[must_use]
    pub const fn numbers(&self) -> &Arc<Numbers> {
        &self.numbers
    }

    /// Takes an adapter into the list.
    pub fn add(&self, adapter: &Arc<Adapter>) {
        // There is a place for each number.
        self.adapters.with(|adapters| adapters[adapter.number().index()] = Some(adapter.clone()));
    }

    /// Takes an adapter out of the list; `false` if it was not in it.
    pub fn remove(&self, adapter: &Arc<Adapter>) -> bool {
        let is_it = |place: &&mut Option<Arc<Adapter>>| place.as_ref().is_some_and(|one| Arc::ptr_eq(one, adapter));
        let found = self.adapters.with(|adapters| adapters.iter_mut().find(is_it).and_then(Option::take));
        found.is_some()
    }
}
