//! Winsock Kernel: clients that register and capture the provider, the adapters that they open, and their datagram sockets.

#![allow(non_snake_case, reason = "names of the C headers")]

mod absent;
mod buffer;
mod client;
pub mod clients;
pub mod clockwork;
mod control;
mod indication;
pub mod joined;
pub mod medium;
mod ndk;
mod receive;
pub mod request;
mod send;
mod socket;
pub mod sockets;
mod status;

pub use self::medium::Medium;
pub use network::{Impairment, lockstep};
