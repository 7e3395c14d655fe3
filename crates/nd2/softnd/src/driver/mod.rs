//! The NetworkDirect SPI over control codes: a program's side.
//!
//! A [back end](nd2::back_end) of the COM objects of `nd2`, with one control code of [`nd2_control::wire`] behind each method. How a
//! control code gets to the driver is a [`Transport`]. Nothing here decides anything: what a method answers is what the driver says,
//! except where the interface has something that no driver needs to know: which file handles are the client's own.

mod adapter;
mod connection;
mod held;
mod key;
mod memory;
mod provider;
mod qp;
mod queues;
mod transport;

pub use key::Key;
pub use provider::{Driver, get_class_object};
pub use queues::queue_handle;
pub use transport::{Registration, RemoteFile, Transport};
