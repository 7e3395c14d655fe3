//! Driver objects.

use std::sync::Arc;

use wdk_bindings::{
    _WDF_DRIVER_INIT_FLAGS, BOOLEAN, DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDF_DRIVER_CONFIG,
    PWDF_DRIVER_GLOBALS, PWDF_DRIVER_VERSION_AVAILABLE_PARAMS, PWDF_OBJECT_ATTRIBUTES, STATUS_DRIVER_INTERNAL_ERROR,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, ULONG, WDF_DRIVER_CONFIG, WDF_DRIVER_VERSION_AVAILABLE_PARAMS,
    WDFDEVICE, WDFDRIVER, WDFSTRING,
};

use super::{
    collection::StringObject,
    device::device,
    function::function,
    object::{Driver, STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED, has_parent},
};
use crate::{argument::check_size, context, report::bug_check, rule::Rule};

pub extern "C" fn WdfDriverCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: PDRIVER_OBJECT,
    path: PCUNICODE_STRING,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    config: PWDF_DRIVER_CONFIG,
    place: *mut WDFDRIVER,
) -> NTSTATUS {
    function!("WdfDriverCreate", |state| {
        let id = context::caller();
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_DRIVER_CONFIG>(config.Size, "WDF_DRIVER_CONFIG");
        if driver.is_null() || path.is_null() {
            bug_check(Rule::BadArgument, format_args!("WdfDriverCreate without the arguments of DriverEntry"));
        }
        let miniport_mode =
            config.DriverInitFlags & _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNoDispatchOverride.cast_unsigned() != 0;
        if miniport_mode && (config.EvtDriverDeviceAdd.is_some() || config.EvtDriverUnload.is_some()) {
            bug_check(Rule::BadArgument, format_args!("a driver in miniport mode with callbacks that NDIS replaces"));
        }
        if state.driver_object(id).is_some() {
            return STATUS_DRIVER_INTERNAL_ERROR;
        }
        if has_parent(attributes) {
            return STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED;
        }
        let Some(object) = state.create_object(Arc::new(Driver), attributes, None) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        if let Some(loaded) = state.drivers().get_mut(&id) {
            loaded.handle = Some(object.handle);
            loaded.add = config.EvtDriverDeviceAdd;
            loaded.unload = config.EvtDriverUnload;
            loaded.miniport_mode = miniport_mode;
            loaded.non_pnp =
                config.DriverInitFlags & _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNonPnpDriver.cast_unsigned() != 0;
        }
        #[cfg(windows)]
        state.driver_created(driver, &object, miniport_mode);
        if !place.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { place.write(object.pointer()) };
        }
        STATUS_SUCCESS
    })
}

/// The version that the framework says it is: the last one whose functions it has the names of.
const VERSION: (ULONG, ULONG) = (1, 33);

pub extern "C" fn WdfDriverIsVersionAvailable(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    asked: PWDF_DRIVER_VERSION_AVAILABLE_PARAMS,
) -> BOOLEAN {
    function!("WdfDriverIsVersionAvailable", |state| {
        state.given(driver);
        // SAFETY: the driver's structure, which lives until the call returns.
        let asked = unsafe { asked.read() };
        check_size::<WDF_DRIVER_VERSION_AVAILABLE_PARAMS>(asked.Size, "WDF_DRIVER_VERSION_AVAILABLE_PARAMS");
        BOOLEAN::from(asked.MajorVersion == VERSION.0 && asked.MinorVersion <= VERSION.1)
    })
}

pub extern "C" fn WdfDriverRetrieveVersionString(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    string: WDFSTRING,
) -> NTSTATUS {
    function!("WdfDriverRetrieveVersionString", |state| {
        let owner = state.given(driver).owner;
        let (_, string): (_, Arc<StringObject>) = state.given_as(string);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let words = format!("Kernel Mode Driver Framework version {}.{}.0", VERSION.0, VERSION.1);
        let units: Vec<u16> = words.encode_utf16().collect();
        string.set(owner, &units).map_or(STATUS_INSUFFICIENT_RESOURCES, |()| STATUS_SUCCESS)
    })
}

pub extern "C" fn WdfDeviceGetDriver(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDEVICE) -> WDFDRIVER {
    function!("WdfDeviceGetDriver", |state| {
        let owner = device(state, handle).1.owner;
        std::ptr::without_provenance_mut(state.driver_object(owner).unwrap_or(0))
    })
}

pub extern "C" fn WdfDriverWdmGetDriverObject(_globals: PWDF_DRIVER_GLOBALS, driver: WDFDRIVER) -> *mut DRIVER_OBJECT {
    function!("WdfDriverWdmGetDriverObject", |state| {
        let object = state.given(driver);
        let place = state.drivers().get(&object.owner).map_or(0, |driver| driver.object);
        std::ptr::with_exposed_provenance_mut(place)
    })
}
