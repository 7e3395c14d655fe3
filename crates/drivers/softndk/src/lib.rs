//! # `softndk`, the provider driver
//!
//! A KMDF driver that offers NDKPI over a loopback adapter. It is thin: [`driver`] and [`device`] are what plug and play
//! needs, [`interface`] is how a consumer opens the adapter, [`control`] is the device for `ndkctl`. What it shares with the
//! miniport `softndknic` is the crate `driver-common`. The adapter itself is the crate `provider`.
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

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
pub mod nd;

kernel::driver_entry!("softndk", driver::create);
