//! Driver objects.

use wdk_bindings::{
    _WDF_DRIVER_INIT_FLAGS, DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDF_DRIVER_CONFIG,
    PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_DRIVER_INTERNAL_ERROR, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_SUCCESS, WDF_DRIVER_CONFIG, WDFDRIVER,
};

use super::{
    Kind, function,
    object::{STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED, check_size, has_parent},
};
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
};

impl State {
    /// The handle of a driver's object.
    pub fn driver_object(&self, driver: DriverId) -> Option<usize> {
        lock(&self.pnp).drivers.get(&driver).and_then(|driver| driver.handle)
    }
}

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
        let Some(object) = state.create_object(Kind::Driver, attributes, None) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        if let Some(loaded) = lock(&state.pnp).drivers.get_mut(&id) {
            loaded.handle = Some(object.handle);
            loaded.add = config.EvtDriverDeviceAdd;
            loaded.unload = config.EvtDriverUnload;
            loaded.miniport_mode = miniport_mode;
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

pub extern "C" fn WdfDriverWdmGetDriverObject(_globals: PWDF_DRIVER_GLOBALS, driver: WDFDRIVER) -> *mut DRIVER_OBJECT {
    function!("WdfDriverWdmGetDriverObject", |state| {
        let object = state.given(driver);
        let place = lock(&state.pnp).drivers.get(&object.owner).map_or(0, |driver| driver.object);
        std::ptr::with_exposed_provenance_mut(place)
    })
}
