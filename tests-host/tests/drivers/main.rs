//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(any(unix, feature = "images"))]

#[cfg(unix)]
extern crate wdk_bindings as wdk_sys;

mod advise;
#[cfg(unix)]
mod bytes;
#[cfg(unix)]
mod codes;
mod control;
#[cfg(unix)]
mod exercise;
#[cfg(unix)]
mod fault_plan;
mod faults;
#[cfg(unix)]
mod faulty;
#[cfg(unix)]
mod fuzz;
#[cfg(unix)]
mod holder;
#[cfg(windows)]
mod images;
#[cfg(unix)]
mod interface;
mod lifecycle;
mod provider_interface;
#[cfg(unix)]
mod removal;
#[cfg(unix)]
mod rows;
#[cfg(unix)]
#[path = "../wrong_drivers/small_driver.rs"]
mod small_driver;
mod suite;
mod world;
