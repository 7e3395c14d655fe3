//! Winsock Kernel: clients that register and capture the provider, the adapters that they open, and their sockets.

#![allow(non_snake_case, reason = "names of the C headers")]

mod address;
pub mod arrival;
mod broken;
mod buffer;
mod client;
pub mod clients;
pub mod clockwork;
mod close;
mod connect;
mod connected;
pub mod connection;
mod control;
pub mod host_stream;
mod indication;
pub mod joined;
mod listen;
mod make;
pub mod medium;
pub mod names;
mod ndk;
mod options;
pub mod program;
mod receive;
pub mod request;
pub mod segment;
mod send;
mod socket;
pub mod sockets;
pub mod status;
pub mod stream;
mod stream_receive;
mod stream_send;

pub use self::medium::Medium;
pub use network::{Impairment, lockstep};
