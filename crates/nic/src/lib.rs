//! # `softndknic`, a virtual NIC with RDMA
//!
//! An NDIS 6.80 miniport over the same engine and provider as `softndk`. Two adapters are the two ends of a cable: frames that
//! one sends arrive at the other. RDMA does not go through frames, it is the engine's. KMDF is in miniport mode: NDIS has the
//! device objects and the dispatch table, the framework lends its driver object and the registry.
//!
//! | Module | Contents |
//! |---|---|
//! | [`driver`] | load, registration, unload; what all adapters share |
//! | [`handlers`] | what NDIS calls |
//! | [`adapter`] | one adapter from initialisation to halt |
//! | [`attributes`], [`configuration`] | what an adapter reports of itself, and its keywords |
//! | [`transmit`], [`receive`], [`frames`], [`filter`] | the cable |
//! | [`ndk`], [`addresses`] | NDK: enabled or not, capabilities; the addresses that Windows has on the interface |
//! | [`oid`] | requests |
//! | [`work`], [`framework`] | work items of NDIS, KMDF in miniport mode |
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
pub mod addresses;
pub mod attributes;
pub mod configuration;
pub mod driver;
pub mod filter;
pub mod frames;
pub mod framework;
pub mod handlers;
pub mod ndk;
pub mod oid;
pub mod receive;
pub mod transmit;
pub mod work;

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
            wdk::println!("softndknic: {status}");
            status.0
        }
    }
}
