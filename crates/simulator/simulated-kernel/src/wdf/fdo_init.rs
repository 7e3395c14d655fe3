//! What a driver asks of a device of plug and play before it has made its own for it.

use std::sync::Arc;

use wdk_bindings::{
    ACCESS_MASK, NTSTATUS, PDEVICE_OBJECT, POOL_TYPE, PULONG, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    PWDFDEVICE_INIT, STATUS_INVALID_PARAMETER, ULONG, WDFKEY, WDFMEMORY,
};

use super::{device::DeviceObject, function::entry, property::in_memory, registry::open};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    wdm::io::{device::Device, property},
};

/// Ends the test if the structure is that of a control device.
fn check(state: &State, init: PWDFDEVICE_INIT, what: &str) {
    if state.with_init(init, |init| init.node.is_none()) {
        bug_check(Rule::BadArgument, format_args!("{what} of a control device"));
    }
}

/// The bus driver's device object, which the driver's will be attached to.
fn physical(state: &State, init: PWDFDEVICE_INIT) -> Arc<Device> {
    let below = state.with_init(init, |init| init.below);
    let lower: Option<Arc<DeviceObject>> = below.and_then(|below| state.object(below).part());
    let Some(lower) = lower else {
        let known = state.with_init(init, |init| init.physical.clone());
        return known.unwrap_or_else(|| {
            let new = state.new_physical_device();
            state.with_init(init, |init| init.physical = Some(new.clone()));
            new
        });
    };
    state.physical_device(&lower).unwrap_or_else(|| unreachable!("the device below is one of plug and play"))
}

pub extern "C" fn WdfFdoInitSetFilter(_globals: PWDF_DRIVER_GLOBALS, init: PWDFDEVICE_INIT) {
    routine!("WdfFdoInitSetFilter", DISPATCH_LEVEL, |state| {
        check(state, init, "a filter");
        state.with_init(init, |init| init.with.filter = true);
    });
}

pub extern "C" fn WdfFdoInitQueryProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    property: i32,
    length: ULONG,
    buffer: PVOID,
    result: PULONG,
) -> NTSTATUS {
    routine!("WdfFdoInitQueryProperty", PASSIVE_LEVEL, |state| {
        check(state, init, "a property");
        property::answer(property, length, buffer, result)
    })
}

pub extern "C" fn WdfFdoInitAllocAndQueryProperty(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    property: i32,
    pool: POOL_TYPE,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfFdoInitAllocAndQueryProperty", PASSIVE_LEVEL, |state| {
        check(state, init, "a property");
        in_memory(state, property, pool, attributes, place)
    })
}

pub extern "C" fn WdfFdoInitWdmGetPhysicalDevice(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
) -> PDEVICE_OBJECT {
    routine!("WdfFdoInitWdmGetPhysicalDevice", DISPATCH_LEVEL, |state| {
        check(state, init, "the device object below");
        physical(state, init).pointer()
    })
}

/// The key is an object of the driver, unless that says otherwise: there is no device yet.
pub extern "C" fn WdfFdoInitOpenRegistryKey(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    kind: ULONG,
    access: ACCESS_MASK,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFKEY,
) -> NTSTATUS {
    routine!("WdfFdoInitOpenRegistryKey", PASSIVE_LEVEL, |state| {
        check(state, init, "a key");
        let Some(path) = state.device_key(physical(state, init).address, kind) else { return STATUS_INVALID_PARAMETER };
        open(state, (path, access), attributes, state.driver_object(context::caller()), place)
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 5] {
    [
        entry!(WdfFdoInitSetFilter),
        entry!(WdfFdoInitQueryProperty),
        entry!(WdfFdoInitAllocAndQueryProperty),
        entry!(WdfFdoInitWdmGetPhysicalDevice),
        entry!(WdfFdoInitOpenRegistryKey),
    ]
}
