//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(unix)]

#[path = "drivers/lifecycle.rs"]
mod lifecycle;
#[path = "drivers/world.rs"]
mod world;
