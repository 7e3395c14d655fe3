//! # `softndk`, the provider driver
//!
//! A KMDF driver that offers NDKPI over a loopback adapter. It is thin: [`driver`] and [`device`] are what plug and play
//! needs, [`interface`] is how a consumer opens the adapter, [`control`] is the device for `ndkctl`. What it shares with the
//! miniport `softndknic` is the crate `driver-common`. The adapter itself is the crate `provider`.
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

#[cfg(all(windows, panic = "unwind"))]
compile_error!(
    "a driver is built in its own directory, whose .cargo/config.toml has panics abort (docs/cross-build.md)"
);

#[cfg(not(windows))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(windows)]
extern crate wdk_panic;

pub mod control;
pub mod device;
pub mod driver;
pub mod interface;

use wdk_sys::{NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT};

#[cfg(windows)]
#[global_allocator]
static ALLOCATOR: kernel::Aligned<kernel::WdkAllocator> = kernel::Aligned(kernel::WdkAllocator);

/// Where the framework's stub enters the driver.
///
/// # Safety
///
/// Called once, by the system, with a driver object and the path of the service key.
#[cfg_attr(windows, unsafe(export_name = "DriverEntry"))]
pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the arguments are the system's own.
    match unsafe { driver::create(driver, registry_path) } {
        Ok(()) => wdk_sys::STATUS_SUCCESS,
        Err(status) => {
            // For who has a debugger attached: the system only says that the driver did not start.
            #[cfg(windows)]
            wdk::println!("softndk: {status}");
            status.0
        }
    }
}
