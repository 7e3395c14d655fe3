//! The NetworkDirect SPI between processes: the device `\\.\SoftNdkNd` of the driver, in the simulated kernel, with processes that
//! have address spaces of their own and end at any moment. `selftest` has the cases of the self-test, the others programs of control codes.

#![cfg(unix)]

mod ending;
mod fuzz;
mod kernel_peer;
mod library;
mod owners;
mod security;
mod selftest;
mod traffic;
mod width;

use rigs::{
    nd2::{actor, program, reader, world},
    provider_interface, transport,
};
