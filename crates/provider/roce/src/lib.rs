//! RoCEv2: reliable connections and their connection manager, packets in and packets out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod adapter;
mod bounded;
pub mod cm;
mod counters;
mod failure;
mod interface;
pub mod mtu;
mod neighbours;
pub mod path;
pub mod psn;
pub mod qp;
mod queue_pairs;
mod stack;
pub mod timeout;
pub mod vxlan;
pub mod wire;

pub use counters::Counters;
pub use failure::Failure;
pub use interface::{NETWORKS, Network};
pub use stack::{Config, ConnectionInfo, FRAME, Stack};
