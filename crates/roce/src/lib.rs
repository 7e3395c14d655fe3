//! RoCEv2: reliable connections and their connection manager, packets in and packets out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod mtu;
pub mod psn;
pub mod timeout;
pub mod vxlan;
pub mod wire;
