//! # `ndktest`, the consumer driver
//!
//! A KMDF driver that consumes NDKPI, to test providers in the kernel. [`finder`] waits for the device interfaces of
//! `SoftNDK`'s adapters, which [`provider`] opens; [`network`] opens any vendor's adapter by its network interface,
//! [`machine`] is the way to one of another machine, [`run`] carries out a run on a thread of its own, [`suite`] and [`performance`] are
//! what a run does, on the [`platform`] of the kernel, and [`control`] is the device by which `ndkctl` starts, watches and
//! cancels runs.
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

extern crate alloc;
#[cfg(not(windows))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(windows)]
extern crate wdk_panic;
#[cfg(not(windows))]
extern crate wdk_tracelogging as tracelogging;

pub mod adapter;
pub mod control;
pub mod device;
pub mod driver;
pub mod finder;
pub mod histogram;
pub mod locks;
pub mod machine;
pub mod network;
pub mod peers;
pub mod performance;
pub mod platform;
pub mod provider;
pub mod room;
pub mod run;
pub mod suite;
pub mod trace;

kernel::driver_entry!("ndktest", driver::create);
