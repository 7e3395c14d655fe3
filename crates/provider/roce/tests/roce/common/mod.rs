//! What the tests of this crate, and its examples, have in common.

#![allow(dead_code, reason = "an example uses a part")]

pub mod memory;
pub mod pcap;
pub mod rig;
pub mod world;
