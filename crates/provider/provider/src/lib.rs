//! NDKPI over the engine: objects, dispatch tables, callbacks and lifetime.
//!
//! This layer turns the engine into what an NDK consumer sees: structures with dispatch tables, statuses that may be
//! `STATUS_PENDING`, callbacks, and closes that wait for everything that still runs (`NDKPI 7.9`). It knows nothing of
//! KMDF or of Windows; what it needs besides [`engine::os::Os`] is in [`NdkOs`].
//!
//! A [`Device`] is one adapter. [`Device::open`] makes an `NDK_ADAPTER` on it, as NDIS's open handler does, and
//! [`Device::close`] closes it again. Everything else goes through the dispatch tables.
//!
//! ```no_run
//! use host::{HostOs, machine::Machine};
//! use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
//! use provider::{Config, Device};
//!
//! # fn main() -> Result<(), NtStatus> {
//! let machine = Machine::threads().start();
//! let device = Device::try_new(&HostOs::new(&machine), Config::default())?;
//! // A consumer asks for 2.0 at least and gets the highest version with that major number (NDKPI 1).
//! let adapter: *mut NDK_ADAPTER = Device::open(&device, NDK_VERSION::V2_0)?;
//! // SAFETY: the adapter is open.
//! assert_eq!(unsafe { (*adapter).Header.Version }, NDK_VERSION::V2_1);
//! // SAFETY: it came from `open`, and nothing was made of it.
//! unsafe { Device::<HostOs>::close(adapter) };
//! drop(device);
//! machine.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! # Lifetime
//!
//! Every object is an `Ndk` (`object.rs`) behind counted references. The consumer's pointer is one of them, which close takes
//! back. Successors and requests in flight hold others, and so do engine objects, through their clients: callbacks and the NIC
//! keep an object alive while they use it. Whoever drops the last reference completes the close.

#![no_std]
#![allow(
    clippy::significant_drop_in_scrutinee,
    reason = "clippy 1.95 follows types without end here: an object holds the callback to be made, which holds the object"
)]

extern crate alloc;

mod adapter;
mod address;
mod borrow;
pub mod chain;
mod completion;
mod connect;
mod connector;
mod cq;
pub mod device;
mod dispatch;
mod fifo;
mod lam;
mod listener;
mod mr;
mod mw;
mod note;
mod object;
mod os;
mod pd;
mod post;
mod profile;
mod qp;
mod reason;
mod reasons;
mod shared_endpoint;
mod srq;

pub use completion::CompletionMode;
pub use cq::extended_result;
pub use device::{Config, Device};
pub use engine::nic::NicMode;
pub use note::Note;
pub use os::{Holder, NdkOs};
pub use profile::Profile;
pub use reason::{About, Reason};
