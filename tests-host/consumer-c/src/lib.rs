//! `samples/consumer-c` in this process: the entry of the sample, and of each of its wrong variants.
//!
//! The C code is compiled for this machine and linked with the routines of `simulated-kernel`, as the drivers in Rust are.

#![cfg(unix)]

use simulated_kernel::Entry;

/// A variant of the sample.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// `right`, or the name of the patch.
    pub name: &'static str,
    /// Its `DriverEntry`.
    pub entry: Entry,
}

include!(concat!(env!("OUT_DIR"), "/variants.rs"));
