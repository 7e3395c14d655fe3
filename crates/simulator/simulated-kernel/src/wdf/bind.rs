//! How an image binds to the framework: what its entry point calls before and after `DriverEntry`.
//!
//! The structures are those of the kit's static library, which the image has in it, in the words of its published source.

use std::{ptr, sync::Arc};

use host::machine::Irql;
use wdk_bindings::{
    BOOLEAN, DRIVER_OBJECT, NTSTATUS, PDRIVER_OBJECT, PUNICODE_STRING, PVOID, PWDF_DRIVER_GLOBALS,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG, WDF_DRIVER_GLOBALS, WDFFUNC,
};

use super::{COUNT, function::Function, functions, object::Object};
use crate::{
    context::{self, DriverId},
    image::code::Writer,
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    sites::images,
    state::State,
};

/// `STATUS_REVISION_MISMATCH`: what the loader of the framework says to a driver for a later one.
const STATUS_REVISION_MISMATCH: NTSTATUS = 0xC000_0059_u32.cast_signed();
/// Drivers of KMDF 1.1 and before have room for the table itself; later ones for a pointer to it.
const COPIED: ULONG = 386;

/// `WDF_VERSION`.
#[repr(C)]
struct WdfVersion {
    major: ULONG,
    minor: ULONG,
    build: ULONG,
}

/// `WDF_BIND_INFO`.
#[repr(C)]
struct WdfBindInfo {
    size: ULONG,
    component: *const u16,
    version: WdfVersion,
    function_count: ULONG,
    function_table: *mut *const WDFFUNC,
    module: PVOID,
}

/// `WDF_BIND_INFO2`, of drivers that are built for 1.25 and later: they can be loaded by an older framework, and ask what it has.
#[repr(C)]
struct WdfBindInfo2 {
    first: WdfBindInfo,
    minimum_minor_version: *mut ULONG,
    /// Set if the driver is for a later version than the framework's.
    client_is_higher: *mut BOOLEAN,
    function_count: *mut ULONG,
    structure_count: *mut ULONG,
    structure_table: PVOID,
}

/// What the framework has for a driver that is bound to it. It lives as long as the kernel: a late call finds its memory.
struct Bound {
    globals: WDF_DRIVER_GLOBALS,
    table: Vec<WDFFUNC>,
}

#[unsafe(no_mangle)]
extern "C" fn WdfVersionBind(
    driver: PDRIVER_OBJECT,
    registry_path: PUNICODE_STRING,
    info: *mut WdfBindInfo,
    globals: *mut PWDF_DRIVER_GLOBALS,
) -> NTSTATUS {
    carry_out("WdfVersionBind", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        if driver.is_null() || registry_path.is_null() || info.is_null() || globals.is_null() {
            bug_check(Rule::BadArgument, format_args!("WdfVersionBind without its arguments"));
        }
        // SAFETY: the driver's structure, which lives as long as its image.
        let asked = unsafe { &mut *info };
        let sizes = [size_of::<WdfBindInfo>(), size_of::<WdfBindInfo2>()];
        if !sizes.contains(&(asked.size as usize)) || asked.function_table.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        // A driver for a minor version works with any later one. Which functions there are, and not what the framework calls
        // itself, decides what it can use.
        if asked.version.major != 1 || asked.function_count as usize > COUNT {
            return STATUS_REVISION_MISMATCH;
        }
        let caller = context::caller();
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(table) = table_of(caller) else { return STATUS_INSUFFICIENT_RESOURCES };
        let bound: &'static mut Bound = Box::leak(Box::new(Bound { globals: WDF_DRIVER_GLOBALS::default(), table }));
        if asked.function_count <= COPIED {
            let place = asked.function_table.cast::<WDFFUNC>();
            // SAFETY: the driver has room for as many functions as it says, in these versions.
            unsafe { place.copy_from_nonoverlapping(bound.table.as_ptr(), asked.function_count as usize) };
        } else {
            // SAFETY: the driver's variable.
            unsafe { asked.function_table.write(bound.table.as_ptr()) };
        }
        if asked.size as usize == size_of::<WdfBindInfo2>() {
            let later = info.cast::<WdfBindInfo2>();
            // SAFETY: the driver's structure is this one, by its size.
            let higher = unsafe { (*later).client_is_higher };
            if !higher.is_null() {
                // SAFETY: the driver's variable: everything that its version has is here.
                unsafe { higher.write(0) };
            }
        }
        bound.globals.DisplaceDriverUnload = 1;
        // SAFETY: the driver's variable.
        unsafe { globals.write(&raw mut bound.globals) };
        if let Some(loaded) = state.drivers().get_mut(&caller) {
            loaded.bound = Some((&raw mut bound.globals).expose_provenance());
        }
        STATUS_SUCCESS
    })
}

/// The framework's table with the driver's own thunks.
fn table_of(driver: DriverId) -> Option<Vec<WDFFUNC>> {
    let mut writer = Writer::default();
    let targets = functions().iter().map(|function| function.map_or(0, |function| function as *const () as usize));
    let thunks: Vec<usize> = targets.map(|target| writer.thunk(driver, target)).collect();
    let code = writer.finish()?;
    let function = |thunk: usize| {
        let place = ptr::with_exposed_provenance::<()>(code.at(thunk));
        // SAFETY: the thunk takes any arguments along; whoever calls it gives it the type of the function it leads to.
        Some(unsafe { std::mem::transmute::<*const (), Function>(place) })
    };
    let table = thunks.into_iter().map(function).collect();
    images::keep(driver, Arc::new(code));
    Some(table)
}

#[unsafe(no_mangle)]
extern "C" fn WdfVersionUnbind(
    _registry_path: PUNICODE_STRING,
    _info: *mut WdfBindInfo,
    globals: PWDF_DRIVER_GLOBALS,
) -> NTSTATUS {
    carry_out("WdfVersionUnbind", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let caller = context::caller();
        let (bound, handle) = {
            let mut drivers = state.drivers();
            drivers.get_mut(&caller).map_or((None, None), |driver| (driver.bound.take(), driver.handle.take()))
        };
        if bound != Some(globals.addr()) {
            bug_check(Rule::BadArgument, format_args!("WdfVersionUnbind of a driver that is not bound"));
        }
        if let Some(handle) = handle {
            state.delete_object(handle);
        }
        STATUS_SUCCESS
    })
}

impl State {
    /// A driver has made its framework object: its globals have it, and the framework's routine unloads the driver.
    pub fn driver_created(&self, driver: PDRIVER_OBJECT, made: &Object, miniport_mode: bool) {
        let Some(bound) = self.drivers().get(&made.owner).and_then(|loaded| loaded.bound) else {
            bug_check(
                Rule::BadArgument,
                format_args!("WdfDriverCreate of a driver that is not bound to the framework"),
            );
        };
        let globals: *mut WDF_DRIVER_GLOBALS = ptr::with_exposed_provenance_mut(bound);
        // SAFETY: the globals that the driver was bound with, which are never freed.
        let displace = unsafe { &mut (*globals).DisplaceDriverUnload };
        *displace = u8::from(!miniport_mode);
        // SAFETY: the globals that the driver was bound with, which are never freed.
        unsafe { (*globals).Driver = made.pointer() };
        if !miniport_mode {
            let object: *mut DRIVER_OBJECT = driver;
            // SAFETY: the driver object, of which the field is the framework's to set.
            unsafe { (*object).DriverUnload = Some(unload) };
        }
    }
}

impl State {
    /// A driver is unloaded: it must not be bound any more.
    pub fn check_bound(&self, driver: DriverId, name: &str) {
        if self.drivers().get(&driver).is_some_and(|loaded| loaded.bound.is_some()) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left itself bound to the framework"));
        }
    }
}

/// What the framework puts into the driver object, and the driver's entry code calls at its unload.
unsafe extern "C" fn unload(_driver: PDRIVER_OBJECT) {
    carry_out("the framework's DriverUnload", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let caller = context::caller();
        let (handle, unload) = {
            let drivers = state.drivers();
            drivers.get(&caller).map_or((None, None), |driver| (driver.handle, driver.unload))
        };
        if let (Some(handle), Some(unload)) = (handle, unload) {
            context::call(caller, "EvtDriverUnload", || {
                // SAFETY: the driver's own callback, with its live object.
                unsafe { unload(ptr::without_provenance_mut(handle)) };
            });
        }
    });
}
