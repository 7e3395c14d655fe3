//! The drivers themselves, from load to unload, in the simulated kernel.

#![cfg(any(unix, feature = "images"))]

#[cfg(unix)]
extern crate wdk_bindings as wdk_sys;

mod advise;
mod control;
#[cfg(unix)]
mod fault_plan;
mod faults;
#[cfg(unix)]
mod fuzz;
#[cfg(unix)]
mod holder;
#[cfg(unix)]
mod interface;
mod lifecycle;
#[cfg(unix)]
mod removal;
mod suite;

#[cfg(unix)]
use rigs::{exercise, faulty, rows, small_driver};
use rigs::{provider_interface, world};
