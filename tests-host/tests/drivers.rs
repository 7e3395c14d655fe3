//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(any(unix, feature = "images"))]

#[cfg(unix)]
extern crate wdk_bindings as wdk_sys;

#[path = "drivers/advise.rs"]
mod advise;
#[cfg(unix)]
#[path = "drivers/bytes.rs"]
mod bytes;
#[cfg(unix)]
#[path = "drivers/codes.rs"]
mod codes;
#[path = "drivers/control.rs"]
mod control;
#[cfg(unix)]
#[path = "drivers/exercise.rs"]
mod exercise;
#[cfg(unix)]
#[path = "drivers/fault_plan.rs"]
mod fault_plan;
#[path = "drivers/faults.rs"]
mod faults;
#[cfg(unix)]
#[path = "drivers/faulty.rs"]
mod faulty;
#[cfg(unix)]
#[path = "drivers/fuzz.rs"]
mod fuzz;
#[cfg(unix)]
#[path = "drivers/holder.rs"]
mod holder;
#[cfg(windows)]
#[path = "drivers/images.rs"]
mod images;
#[cfg(unix)]
#[path = "drivers/interface.rs"]
mod interface;
#[path = "drivers/lifecycle.rs"]
mod lifecycle;
#[path = "drivers/provider_interface.rs"]
mod provider_interface;
#[cfg(unix)]
#[path = "drivers/removal.rs"]
mod removal;
#[cfg(unix)]
#[path = "drivers/rows.rs"]
mod rows;
#[cfg(unix)]
#[path = "wrong_drivers/small_driver.rs"]
mod small_driver;
#[path = "drivers/suite.rs"]
mod suite;
#[path = "drivers/world.rs"]
mod world;
