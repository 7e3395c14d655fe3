//! The entry point of a KMDF driver, which the kit has in a static library (`WdfDriverEntry.lib`).
//!
//! It binds the driver to the framework, runs `DriverEntry`, and hooks the unload routine so that the driver unbinds when
//! everything else of it is done.

use core::{cell::UnsafeCell, mem::transmute, ptr};

use wdk_bindings::{
    _WDFFUNCENUM, NT_SUCCESS, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PDRIVER_UNLOAD, PUNICODE_STRING, PVOID,
    PWDF_DRIVER_GLOBALS, ULONG, UNICODE_STRING, WDFDRIVER, WDFFUNC, WdfDriverGlobals, WdfFunctions,
    ntddk::RtlCopyUnicodeString,
};

/// A driver binds to the framework of this version or any later one.
const VERSION: WdfVersion = WdfVersion { major: 1, minor: 15, build: 0 };

/// `KmdfLibrary`, the framework's name for itself.
static COMPONENT: [u16; 12] = {
    let name = b"KmdfLibrary";
    let mut wide = [0; 12];
    let mut index = 0;
    while index < name.len() {
        wide[index] = name[index] as u16;
        index += 1;
    }
    wide
};

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

#[link(name = "WDFLDR.SYS", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn WdfVersionBind(
        driver: PDRIVER_OBJECT,
        registry_path: PUNICODE_STRING,
        info: *mut WdfBindInfo,
        globals: *mut PWDF_DRIVER_GLOBALS,
    ) -> NTSTATUS;
    fn WdfVersionUnbind(
        registry_path: PUNICODE_STRING,
        info: *mut WdfBindInfo,
        globals: PWDF_DRIVER_GLOBALS,
    ) -> NTSTATUS;
}

unsafe extern "C" {
    /// The driver's own entry point.
    fn DriverEntry(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> NTSTATUS;
}

/// As many bytes as a registry path of a service can reasonably have; a longer one is cut, as the kit's library does.
const PATH_BYTES: u16 = 520;

/// What lives from the driver's load to its unload.
struct Stub {
    info: UnsafeCell<WdfBindInfo>,
    path_buffer: UnsafeCell<[u16; PATH_BYTES as usize / 2]>,
    path: UnsafeCell<UNICODE_STRING>,
    unload: UnsafeCell<PDRIVER_UNLOAD>,
    /// The driver is a client of the framework.
    bound: UnsafeCell<bool>,
}

// SAFETY: the cells are touched only at load and at unload, which the system serialises.
unsafe impl Sync for Stub {}

static STUB: Stub = Stub {
    info: UnsafeCell::new(WdfBindInfo {
        size: size_of::<WdfBindInfo>() as ULONG,
        component: COMPONENT.as_ptr(),
        version: VERSION,
        function_count: _WDFFUNCENUM::WdfFunctionTableNumEntries as ULONG,
        function_table: &raw mut WdfFunctions,
        module: ptr::null_mut(),
    }),
    path_buffer: UnsafeCell::new([0; PATH_BYTES as usize / 2]),
    path: UnsafeCell::new(UNICODE_STRING { Length: 0, MaximumLength: PATH_BYTES, Buffer: ptr::null_mut() }),
    unload: UnsafeCell::new(None),
    bound: UnsafeCell::new(false),
};

/// The place of `WdfDriverMiniportUnload` in the table of KMDF 1.15 and later.
const DRIVER_MINIPORT_UNLOAD: usize = 201;

/// What `WdfDriverMiniportUnload` of the headers calls, for drivers whose unload routine is that of NDIS: the framework lets go of the
/// driver, and the driver unbinds.
#[unsafe(no_mangle)]
pub static mut WdfDriverMiniportUnloadOverride: Option<unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER)> =
    Some(unload_miniport);

unsafe extern "C" fn unload_miniport(globals: PWDF_DRIVER_GLOBALS, driver: WDFDRIVER) {
    // SAFETY: the framework has put its table there when the driver was bound.
    let table = unsafe { WdfFunctions };
    // SAFETY: the table of KMDF 1.15 has 444 functions.
    let function = unsafe { table.add(DRIVER_MINIPORT_UNLOAD).read() };
    // SAFETY: the function in this place has this type (`wdfminiport.h`).
    let function =
        unsafe { transmute::<WDFFUNC, Option<unsafe extern "C" fn(PWDF_DRIVER_GLOBALS, WDFDRIVER)>>(function) };
    if let Some(function) = function {
        // SAFETY: the framework's own function and globals, and the driver's object, which it gives up.
        unsafe { function(globals, driver) };
    }
    unbind();
}

/// Where the system enters the driver.
///
/// # Safety
///
/// Only the system calls this, once, with a driver object and the path of the driver's service key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FxDriverEntry(driver: PDRIVER_OBJECT, registry_path: PUNICODE_STRING) -> NTSTATUS {
    let path = STUB.path.get();
    // SAFETY: the system serialises load and unload, so nobody else uses the cell.
    unsafe { (*path).Buffer = STUB.path_buffer.get().cast() };
    // SAFETY: the destination has a buffer of its maximal length that lives as long as the image.
    unsafe { RtlCopyUnicodeString(path, registry_path) };
    // SAFETY: the arguments are the system's own, and the information and the globals live as long as the image.
    let status = unsafe { WdfVersionBind(driver, path, STUB.info.get(), &raw mut WdfDriverGlobals) };
    if !NT_SUCCESS(status) {
        return status;
    }
    // SAFETY: the system serialises load and unload.
    unsafe { *STUB.bound.get() = true };
    // SAFETY: the driver's own entry point, with the system's arguments, after the framework was bound.
    let status = unsafe { DriverEntry(driver, registry_path) };
    if !NT_SUCCESS(status) {
        unbind();
        return status;
    }
    // SAFETY: the framework has set the globals when it was bound. The framework's globals live until the driver unbinds.
    let displace = unsafe {
        let globals = WdfDriverGlobals;
        (*globals).DisplaceDriverUnload
    };
    if displace != 0 {
        // SAFETY: the driver object is valid, and the system is not using the field while it loads the driver.
        let unload = unsafe { (*driver).DriverUnload };
        // SAFETY: the system serialises load and unload. The field is the driver's to set.
        unsafe {
            *STUB.unload.get() = unload;
            (*driver).DriverUnload = Some(unload_driver);
        }
    }
    status
}

/// Runs the framework's unload routine, which runs the driver's, and unbinds.
unsafe extern "C" fn unload_driver(driver: PDRIVER_OBJECT) {
    // SAFETY: the system serialises load and unload.
    let unload = unsafe { *STUB.unload.get() };
    if let Some(unload) = unload {
        // SAFETY: the routine that the framework had put into the driver object, with the system's argument.
        unsafe { unload(driver) };
    }
    unbind();
}

/// Unbinds, once: a miniport driver has done it when its entry fails late.
fn unbind() {
    // SAFETY: the system serialises load and unload.
    if !unsafe { STUB.bound.get().replace(false) } {
        return;
    }
    // SAFETY: the framework has set the globals when it was bound.
    let globals = unsafe { WdfDriverGlobals };
    // SAFETY: the driver is bound, by these very values, and makes no call of the framework after this.
    let _ = unsafe { WdfVersionUnbind(STUB.path.get(), STUB.info.get(), globals) };
}
