//! # `ndktest`, the consumer driver
//!
//! A KMDF driver that consumes NDKPI, to test providers in the kernel. [`finder`] waits for the device interfaces of
//! `SoftNDK`'s adapters, which [`provider`] opens; [`network`] opens any vendor's adapter by its network interface, [`run`] carries out a run on a thread of its own, [`suite`] and [`performance`] are
//! what a run does, on the [`platform`] of the kernel, and [`control`] is the device by which `ndkctl` starts, watches and
//! cancels runs.
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

#[cfg(all(windows, panic = "unwind"))]
compile_error!(
    "a driver is built in its own directory, whose .cargo/config.toml has panics abort (docs/cross-build.md)"
);

extern crate alloc;
#[cfg(not(windows))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(windows)]
extern crate wdk_panic;

pub mod adapter;
pub mod control;
pub mod device;
pub mod driver;
pub mod finder;
pub mod histogram;
pub mod locks;
pub mod network;
pub mod performance;
pub mod platform;
pub mod provider;
pub mod room;
pub mod run;
pub mod suite;
pub mod trace;

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
            wdk::println!("ndktest: {status}");
            status.0
        }
    }
}
