//! KMDF in miniport mode: a driver object without callbacks, and a device object beside that of NDIS.

use core::{mem::transmute, ptr};

use kernel::{
    check,
    wdf::{attributes, create_driver},
};
use ndis::NdisMGetDeviceProperty;
use ndkpi::{NDIS_HANDLE, NtStatus};
use wdk_sys::{
    _WDF_DRIVER_INIT_FLAGS, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT, PWDF_DRIVER_GLOBALS,
    PWDF_OBJECT_ATTRIBUTES, ULONG, WDF_DRIVER_CONFIG, WDFDEVICE, WDFDRIVER, WDFFUNC, WdfDriverGlobals, WdfFunctions,
    call_unsafe_wdf_function_binding,
};

/// The tag of what the framework allocates for the driver.
const POOL_TAG: ULONG = u32::from_le_bytes(*b"Snic");

/// The place of `WdfDeviceMiniportCreate` in the table of KMDF 1.15 and later. The bindings do not declare it.
const DEVICE_MINIPORT_CREATE: usize = 200;

/// `PFN_WDFDEVICEMINIPORTCREATE`.
type DeviceMiniportCreate = unsafe extern "C" fn(
    PWDF_DRIVER_GLOBALS,
    WDFDRIVER,
    PWDF_OBJECT_ATTRIBUTES,
    PDEVICE_OBJECT,
    PDEVICE_OBJECT,
    PDEVICE_OBJECT,
    *mut WDFDEVICE,
) -> NTSTATUS;

unsafe extern "C" {
    /// What `WdfDriverMiniportUnload` of the headers calls: a variable of the framework's stub library, which unbinds the driver
    /// after the framework has let it go.
    static mut WdfDriverMiniportUnloadOverride: Option<unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER)>;
}

/// The framework's driver object. Dropped, the driver is no client of the framework any more.
///
/// # Invariants
///
/// `driver` is live, and nobody else deletes it.
pub struct Framework {
    driver: WDFDRIVER,
}

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for Framework {}
// SAFETY: as for `Send`.
unsafe impl Sync for Framework {}

impl Framework {
    /// Registers with the framework, which leaves plug and play and the dispatch table to NDIS.
    ///
    /// # Errors
    ///
    /// What the framework says.
    ///
    /// # Safety
    ///
    /// The arguments are those of `DriverEntry`.
    pub unsafe fn try_new(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> Result<Self, NtStatus> {
        let config = WDF_DRIVER_CONFIG {
            DriverInitFlags: _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNoDispatchOverride.cast_unsigned(),
            DriverPoolTag: POOL_TAG,
            ..WDF_DRIVER_CONFIG::default()
        };
        // SAFETY: the arguments are those of `DriverEntry` (`# Safety`), which has not returned.
        unsafe { create_driver(driver, registry_path, config, attributes()) }.map(|driver| Self { driver })
    }

    /// The framework's driver object.
    #[must_use]
    pub const fn handle(&self) -> WDFDRIVER {
        self.driver
    }
}

impl Drop for Framework {
    fn drop(&mut self) {
        // SAFETY: the variable of the stub library, and the framework's: nobody writes them after the driver was loaded.
        let (unload, globals) = unsafe { (WdfDriverMiniportUnloadOverride, WdfDriverGlobals) };
        if let Some(unload) = unload {
            // SAFETY: the driver object is live and ours (invariant), and not used again.
            unsafe { unload(globals, self.driver) };
        }
    }
}

/// The framework's device object of an adapter. Deleted when dropped.
///
/// # Invariants
///
/// `device` is live, and nobody else deletes it.
pub struct Device {
    device: WDFDEVICE,
}

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

impl Device {
    /// Makes a device object for the adapter with this handle of NDIS. `PASSIVE_LEVEL`, in `MiniportInitializeEx`.
    ///
    /// # Errors
    ///
    /// What the framework says.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter that is being initialised.
    pub unsafe fn try_new(framework: &Framework, adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        let (mut physical, mut functional, mut next) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is NDIS's (`# Safety`), and the places live until the call returns.
        unsafe {
            NdisMGetDeviceProperty(
                adapter,
                &raw mut physical,
                &raw mut functional,
                &raw mut next,
                ptr::null_mut(),
                ptr::null_mut(),
            );
        }
        // SAFETY: the framework has put its table there before `DriverEntry`.
        let table: *const WDFFUNC = unsafe { WdfFunctions };
        // SAFETY: the table of KMDF 1.15 has 444 functions.
        let function = unsafe { table.add(DEVICE_MINIPORT_CREATE).read() };
        // SAFETY: the function in this place has this type (`wdfminiport.h`).
        let create = unsafe { transmute::<WDFFUNC, Option<DeviceMiniportCreate>>(function) };
        let create = create.ok_or(NtStatus::NOT_SUPPORTED)?;
        // SAFETY: the framework has set the globals when the driver was bound.
        let globals = unsafe { WdfDriverGlobals };
        let mut attributes = attributes();
        let mut device = ptr::null_mut();
        let [functional, next, physical] = [functional, next, physical].map(<*mut ndis::DEVICE_OBJECT>::cast);
        // SAFETY: the driver object is live, the device objects are NDIS's, and the structures live until the call returns.
        check(unsafe {
            create(globals, framework.driver, &raw mut attributes, functional, next, physical, &raw mut device)
        })?;
        Ok(Self { device })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the device is live and ours (invariant), and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, self.device.cast()) };
    }
}
