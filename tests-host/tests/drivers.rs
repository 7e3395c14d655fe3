//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

#[path = "drivers/control.rs"]
mod control;
#[path = "drivers/exercise.rs"]
mod exercise;
#[path = "drivers/faults.rs"]
mod faults;
#[path = "drivers/fuzz.rs"]
mod fuzz;
#[path = "drivers/holder.rs"]
mod holder;
#[path = "drivers/interface.rs"]
mod interface;
#[path = "drivers/lifecycle.rs"]
mod lifecycle;
#[path = "drivers/provider_interface.rs"]
mod provider_interface;
#[path = "drivers/removal.rs"]
mod removal;
#[path = "wrong_drivers/small_driver.rs"]
mod small_driver;
#[path = "drivers/suite.rs"]
mod suite;
#[path = "drivers/world.rs"]
mod world;
