//! The NetworkDirect SPI over control codes: a program's side.
//!
//! The same tables of functions as in `nd2`, and behind each function one control code of [`nd2_control::wire`] instead of the
//! engine. How a control code gets to the driver is a [`Transport`]. Nothing here decides anything: what a method answers is
//! what the driver says, except where the interface has something that no driver needs to know: lengths of the client's buffers, the
//! client's result blocks of version 1, which file handles are its own.

mod adapter;
mod choice;
mod connection;
mod held;
mod key;
mod memory;
mod post;
mod provider;
mod queues;
mod transport;

pub use choice::{Choice, DEVICE, choose};
pub use key::Key;
pub use provider::get_class_object;
pub use queues::queue_handle;
pub use transport::{Registration, RemoteFile, Transport};
