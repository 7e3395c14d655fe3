//! A consumer as consumers are in earnest: it opens the adapter when it starts, and keeps it until plug and play tells it that
//! the adapter goes.

use std::sync::{Mutex, PoisonError};

use control::{SOFTNDK_INTERFACE_VERSION, interface::SOFTNDK_INTERFACE_SIZE};
use ndkpi::{NDK_ADAPTER, NDK_VERSION};
use simulated_kernel::{Device, Driver, DuringRun, Kernel};
use wdk_sys::{
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDFDEVICE_INIT, STATUS_SUCCESS, WDFDRIVER, WDFIOTARGET,
    call_unsafe_wdf_function_binding,
};

use crate::{
    provider_interface::Interface,
    small_driver::{attributes, create_device, create_driver, open_target},
};

/// An adapter that is open.
struct OpenAdapter {
    interface: Interface,
    adapter: *mut NDK_ADAPTER,
}

// SAFETY: the provider's functions may be called on any thread.
unsafe impl Send for OpenAdapter {}

static HELD: DuringRun<Mutex<Option<OpenAdapter>>> = DuringRun::new(Mutex::new(None));
static LINK: DuringRun<Mutex<String>> = DuringRun::new(Mutex::new(String::new()));

/// Loads the consumer, which opens the adapter of `provider`. To be unloaded when it has closed it.
pub fn load(kernel: &Kernel, provider: &Device) -> (Driver, Device) {
    *LINK.lock().unwrap_or_else(PoisonError::into_inner) = provider.links().remove(0);
    let driver = kernel.load("holder", entry).expect("the consumer loads");
    let device = driver.add_device().expect("the consumer opens the adapter");
    (driver, device)
}

/// Returns true if it has the adapter open.
pub fn holds() -> bool {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    let link = LINK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match open_target(device, &link, asked, gone) {
        Ok(target) => open_adapter(target),
        Err(status) => status,
    }
}

fn open_adapter(target: WDFIOTARGET) -> NTSTATUS {
    let queried = Interface::query(|kind, place| {
        // SAFETY: the target is open; the identifier and the place live until the call returns, and the place has the size that
        // is said.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfIoTargetQueryForInterface,
                target,
                kind,
                place.cast(),
                SOFTNDK_INTERFACE_SIZE,
                SOFTNDK_INTERFACE_VERSION,
                std::ptr::null_mut()
            )
        };
        if status < 0 { Err(status) } else { Ok(()) }
    });
    let interface = match queried {
        Ok(interface) => interface,
        Err(status) => return status,
    };
    let adapter = interface.open(NDK_VERSION::V2_1).expect("the adapter opens");
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(OpenAdapter { interface, adapter });
    STATUS_SUCCESS
}

fn let_go() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(OpenAdapter { interface, adapter }) = held else { return };
    // SAFETY: the adapter came from the interface and is not used again.
    unsafe { interface.close(adapter) };
}

unsafe extern "C" fn asked(target: WDFIOTARGET) -> NTSTATUS {
    let_go();
    // SAFETY: the framework's own argument.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetCloseForQueryRemove, target) };
    STATUS_SUCCESS
}

unsafe extern "C" fn gone(target: WDFIOTARGET) {
    let_go();
    // SAFETY: the framework's own argument.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetClose, target) };
}
