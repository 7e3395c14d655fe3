//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(unix)]

#[path = "drivers/control.rs"]
mod control;
#[path = "drivers/faults.rs"]
mod faults;
#[path = "drivers/fuzz.rs"]
mod fuzz;
#[path = "drivers/lifecycle.rs"]
mod lifecycle;
#[path = "drivers/removal.rs"]
mod removal;
#[path = "drivers/suite.rs"]
mod suite;
#[path = "drivers/world.rs"]
mod world;
