//! The NetworkDirect SPI between processes: the device `\\.\SoftNdkNd` of the driver, in the simulated kernel, with processes that
//! have address spaces of their own and end at any moment. `selftest` has the cases of the self-test, the others programs of control codes.

#![cfg(unix)]

#[path = "nd2_processes/actor.rs"]
mod actor;
#[path = "nd2_processes/ending.rs"]
mod ending;
#[path = "nd2_processes/fuzz.rs"]
mod fuzz;
#[path = "nd2_processes/kernel_peer.rs"]
mod kernel_peer;
#[path = "nd2_processes/library.rs"]
mod library;
#[path = "nd2_processes/owners.rs"]
mod owners;
#[path = "nd2_processes/program.rs"]
mod program;
#[path = "drivers/provider_interface.rs"]
mod provider_interface;
#[path = "nd2_processes/security.rs"]
mod security;
#[path = "nd2_processes/selftest.rs"]
mod selftest;
#[path = "nd2_processes/traffic.rs"]
mod traffic;
#[path = "drivers/transport.rs"]
mod transport;
#[path = "nd2_processes/width.rs"]
mod width;
#[path = "nd2_processes/world.rs"]
mod world;
