//! KMDF in miniport mode: NDIS has the device objects and the dispatch table, and the framework lends its objects.
//!
//! The genuine bindings do not declare these two. A driver calls the first by its index in the table and the second by the
//! pointer of that name, which is a variable of the framework's stub library.

use std::sync::{Arc, atomic::Ordering::Release};

use host::machine::Irql;
use wdk_bindings::{
    NTSTATUS, PDEVICE_OBJECT, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_SUCCESS, WDFDEVICE, WDFDRIVER,
};

use super::{device::DeviceObject, function::Function};
use crate::{
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    wdf::object::Driver,
};

/// The place of `WdfDeviceMiniportCreate` in the table of KMDF 1.15 and later.
const DEVICE_MINIPORT_CREATE: usize = 200;

/// The place of `WdfDriverMiniportUnload`.
const DRIVER_MINIPORT_UNLOAD: usize = 201;

/// These functions and their places in the table.
pub fn entries() -> [(usize, Function); 2] {
    let create: DeviceMiniportCreate = WdfDeviceMiniportCreate;
    let unload: DriverMiniportUnload = WdfDriverMiniportUnload;
    // SAFETY: whoever calls it gives it back the type that is written here.
    let (create, unload) = unsafe {
        (
            std::mem::transmute::<DeviceMiniportCreate, Function>(create),
            std::mem::transmute::<DriverMiniportUnload, Function>(unload),
        )
    };
    [(DEVICE_MINIPORT_CREATE, create), (DRIVER_MINIPORT_UNLOAD, unload)]
}

/// `PFN_WDFDRIVERMINIPORTUNLOAD`.
type DriverMiniportUnload = unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER);

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

/// What `WdfDriverMiniportUnload` of the headers calls. An image brings its own.
#[cfg(unix)]
#[unsafe(no_mangle)]
pub static mut WdfDriverMiniportUnloadOverride: Option<unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER)> =
    Some(WdfDriverMiniportUnload);

unsafe extern "C" fn WdfDeviceMiniportCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    functional: PDEVICE_OBJECT,
    attached: PDEVICE_OBJECT,
    physical: PDEVICE_OBJECT,
    place: *mut WDFDEVICE,
) -> NTSTATUS {
    carry_out("WdfDeviceMiniportCreate", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let object = state.given(driver);
        let mode = state.drivers().get(&object.owner).is_some_and(|loaded| loaded.miniport_mode);
        if object.part::<Driver>().is_none() || !mode {
            bug_check(Rule::BadHandle, format_args!("a miniport's device of a driver that is not in miniport mode"));
        }
        if functional.is_null() || attached.is_null() || physical.is_null() {
            bug_check(Rule::BadArgument, format_args!("a miniport's device without its device objects"));
        }
        let device = Arc::new(DeviceObject::of_miniport(object.owner, functional.addr()));
        let parent = Some(object.handle);
        let Some(made) = state.create_object(device.clone(), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        device.handle.store(made.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(made.pointer()) };
        STATUS_SUCCESS
    })
}

unsafe extern "C" fn WdfDriverMiniportUnload(_globals: PWDF_DRIVER_GLOBALS, driver: WDFDRIVER) {
    carry_out("WdfDriverMiniportUnload", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let object = state.given(driver);
        let owner = object.owner;
        let mode = state.drivers().get(&owner).is_some_and(|loaded| loaded.miniport_mode);
        if object.part::<Driver>().is_none() || !mode {
            bug_check(
                Rule::BadHandle,
                format_args!("WdfDriverMiniportUnload of a driver that is not in miniport mode"),
            );
        }
        if let Some(loaded) = state.drivers().get_mut(&owner) {
            loaded.handle = None;
        }
        state.delete_object(object.handle);
    });
}
