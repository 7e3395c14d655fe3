//! Runs of `ndktest` as a program sees them, through the crate that `ndkctl` uses; and a removal as a consumer sees it.

#![cfg(unix)]

#[path = "driver_runs/client.rs"]
mod client;
#[path = "driver_runs/consumer.rs"]
mod consumer;
#[path = "driver_runs/faults.rs"]
mod faults;
#[path = "driver_runs/histogram.rs"]
mod histogram;
#[path = "driver_runs/load.rs"]
mod load;
#[path = "driver_runs/locks.rs"]
mod locks;
#[path = "driver_runs/memory.rs"]
mod memory;
#[path = "driver_runs/network.rs"]
mod network;
#[path = "drivers/provider_interface.rs"]
mod provider_interface;
#[path = "driver_runs/removal.rs"]
mod removal;
#[path = "drivers/transport.rs"]
mod transport;
#[expect(dead_code, reason = "the other tests of the drivers need more of it")]
#[path = "drivers/world.rs"]
mod world;
