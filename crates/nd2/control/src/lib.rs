//! The NetworkDirect SPI between processes: the driver's side.
//!
//! A program cannot call into the kernel through tables of functions. It sends each call as a control code ([`wire`]), and a
//! [`Session`] makes the call for it, on the same objects that a program of one process has (`crates/nd2`): through their tables,
//! with pointers to copies in the kernel. So what a call does, and how it can fail, is the same.
//!
//! ```text
//! file -> Session -> IND2Adapter, IND2CompletionQueue, ... in the kernel, by handle
//!           |
//!           +-> Call: a request that pends; its OVERLAPPED is the kernel's, its end is the end of the request
//! ```
//!
//! # What a process cannot do
//!
//! - Name what is not its own: a handle is an index and a generation in the session's table, and has a kind.
//! - Change what was looked at: the system has copied every input, and bytes that are registered are copied and never read as
//!   anything else.
//! - Take more than its [quota](nd2::Quota), by however many sessions, or more than its share of an adapter.
//! - Leave something behind: when its last file is closed, every object is released, in whatever state it is.
//! - Have bytes written that are not its own any more: the pages of a registration are locked by the request that has registered
//!   them, which the system ends before the process does, and which ends when nothing uses the bytes any more.

#![no_std]

extern crate alloc;

mod call;
mod connection;
mod files;
mod handles;
mod memory;
mod objects;
mod post;
mod queues;
mod server;
mod session;
pub mod wire;

pub use call::Call;
pub use files::{File, Sessions};
pub use server::{Adapter, Calls, Pages, Request, Server, System};
pub use session::Session;
