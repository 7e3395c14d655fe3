//! The driver as a whole: load, registration with NDIS, unload, and what all its adapters share.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

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
use kernel::{WaitLock, wdf::Key};
use ndis::{DRIVER_OBJECT, NDIS_STATUS, NDIS_WDM_DRIVER, NdisMDeregisterMiniportDriver, NdisMRegisterMiniportDriver};
use ndkpi::{NDIS_HANDLE, NtStatus};
use wdk_sys::{PCUNICODE_STRING, PDRIVER_OBJECT};

use crate::{adapter::Adapter, control::Control, framework::Framework, handlers};

/// What all adapters share.
pub struct Driver {
    framework: Framework,
    /// The handle of the registration; null before it.
    ndis: AtomicPtr<c_void>,
    controls: Controls,
    numbers: Arc<Numbers>,
    adapters: KernelLock<[Option<Arc<Adapter>>; MAX_ADAPTERS]>,
    /// The loopback network between the adapters, for RDMA.
    fabric: Arc<Fabric<Kernel>>,
    /// The control device.
    control: WaitLock<Control>,
}

/// The driver, from load to unload: `MiniportDriverUnload` is not told which driver it is. A counted reference, or null.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(ptr::null_mut());

/// Registers the driver with the framework and with NDIS.
///
/// # Errors
///
/// What they say; then nothing is left behind.
///
/// # Safety
///
/// The arguments are those of `DriverEntry`, which calls this once.
pub unsafe fn create(object: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<(), NtStatus> {
    // SAFETY: `object` is what Windows gave to `DriverEntry`: the driver's object.
    unsafe { driver_common::start(object) }?;
    // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), which calls this once.
    let registered = unsafe { prepare(object, registry_path) }
        // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), and nothing has registered with NDIS before.
        .and_then(|driver| unsafe { register(driver, object, registry_path) });
    registered.inspect_err(|_| driver_common::stop())
}

/// # Safety
///
/// As for [`create`].
unsafe fn prepare(object: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<Arc<Driver>, NtStatus> {
    // SAFETY: the arguments are those of `DriverEntry` (`# Safety`).
    let framework = unsafe { Framework::try_new(object, registry_path) }?;
    // SAFETY: the framework has just made the driver object.
    let key = unsafe { Key::parameters(framework.handle()) };
    let settings = key.map_or_else(|_| Settings::default(), |key| Settings::read(&key));
    let driver = Driver {
        framework,
        ndis: AtomicPtr::new(ptr::null_mut()),
        controls: Controls::try_new(settings)?,
        numbers: Numbers::try_new()?,
        adapters: Kernel.lock([const { None }; MAX_ADAPTERS])?,
        fabric: Fabric::try_new(&Kernel)?,
        control: WaitLock::try_new(Control::default())?,
    };
    Arc::try_new(driver).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
}

/// # Safety
///
/// As for [`create`].
unsafe fn register(
    driver: Arc<Driver>,
    object: PDRIVER_OBJECT,
    registry_path: PCUNICODE_STRING,
) -> Result<(), NtStatus> {
    let context = Arc::into_raw(driver);
    DRIVER.store(context.cast_mut(), Release);
    let mut characteristics = handlers::CHARACTERISTICS;
    characteristics.Flags = NDIS_WDM_DRIVER;
    let mut handle = ptr::null_mut();
    // SAFETY: the arguments of `DriverEntry` (`# Safety`); the context lives until the driver is unloaded, and the
    // structure until the call returns.
    let status = unsafe {
        NdisMRegisterMiniportDriver(
            object.cast(),
            registry_path.cast(),
            context.cast_mut().cast(),
            &raw const characteristics,
            &raw mut handle,
        )
    };
    if status != NDIS_STATUS::SUCCESS {
        drop(take());
        return Err(status);
    }
    // SAFETY: the context is a counted reference until `take`.
    unsafe { &*context }.ndis.store(handle, Release);
    Ok(())
}

/// Takes the driver's own reference to itself.
fn take() -> Option<Arc<Driver>> {
    let raw = DRIVER.swap(ptr::null_mut(), AcqRel);
    // SAFETY: not null, so it came from `into_raw`, and it is taken once.
    (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw.cast_const()) })
}

/// The driver, if it is registered.
///
/// # Safety
///
/// The driver is not unloaded meanwhile.
#[must_use]
pub unsafe fn current() -> Option<Arc<Driver>> {
    let context = DRIVER.load(Acquire);
    // SAFETY: not null, so it came from `into_raw` and is counted until the driver is unloaded (`# Safety`).
    (!context.is_null()).then(|| unsafe { Driver::of(context.cast()) })
}

/// `MiniportDriverUnload`: there are no adapters any more. `PASSIVE_LEVEL`.
///
/// # Safety
///
/// Only NDIS calls this.
pub unsafe extern "system" fn unload(_object: *mut DRIVER_OBJECT) {
    let Some(driver) = take() else { return };
    // SAFETY: the handle of the registration, which is not used again.
    unsafe { NdisMDeregisterMiniportDriver(driver.handle()) };
    // DPCs that have nothing to do any more may have references to adapters, and those to the driver.
    driver_common::stop();
    drop(driver);
}

impl Driver {
    /// The driver behind the context of its registration.
    ///
    /// # Safety
    ///
    /// NDIS has passed the context, to a handler of the driver.
    #[must_use]
    pub unsafe fn of(context: NDIS_HANDLE) -> Arc<Self> {
        // SAFETY: the context came from `into_raw` and is counted until the driver is unloaded (`# Safety`).
        let counted = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(context.cast_const().cast::<Self>()) });
        (*counted).clone()
    }

    /// The framework's driver object.
    #[must_use]
    pub const fn framework(&self) -> &Framework {
        &self.framework
    }

    /// What programs can change while the driver runs.
    #[must_use]
    pub const fn controls(&self) -> &Controls {
        &self.controls
    }

    /// The control device.
    #[must_use]
    pub const fn control(&self) -> &WaitLock<Control> {
        &self.control
    }

    /// The handle of the registration with NDIS.
    #[must_use]
    pub fn handle(&self) -> NDIS_HANDLE {
        self.ndis.load(Acquire)
    }

    /// The adapters that there are now.
    #[must_use]
    pub fn adapters(&self) -> [Option<Arc<Adapter>>; MAX_ADAPTERS] {
        self.adapters.with(|adapters| adapters.clone())
    }

    /// The numbers of the adapters.
    #[must_use]
    pub const fn numbers(&self) -> &Arc<Numbers> {
        &self.numbers
    }

    /// The loopback network between the adapters, for RDMA.
    #[must_use]
    pub const fn fabric(&self) -> &Arc<Fabric<Kernel>> {
        &self.fabric
    }

    /// The adapter at the other end of the cable of the one with this index, if there is one. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// Adapters are paired in the order of their numbers: 1 and 2, 3 and 4, and so on.
    #[must_use]
    pub fn partner(&self, index: usize) -> Option<Arc<Adapter>> {
        self.adapters.with(|adapters| adapters[index ^ 1].clone())
    }

    /// Takes an adapter into the list.
    pub fn add(&self, adapter: &Arc<Adapter>) {
        self.adapters.with(|adapters| adapters[adapter.index()] = Some(adapter.clone()));
    }

    /// Takes an adapter out of the list.
    pub fn remove(&self, index: usize) {
        // The reference is dropped after the lock is released.
        drop(self.adapters.with(|adapters| adapters[index].take()));
    }
}
