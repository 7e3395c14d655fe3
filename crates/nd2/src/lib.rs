//! The user-mode NetworkDirect service provider interface over the engine (`NDSPI`).
//!
//! The interfaces have the shape of COM and none of its runtime: a pointer to a pointer to a table of functions, counted
//! references, `QueryInterface`. A provider never calls its client. Whatever takes time is an *overlapped request* of the client,
//! whose end the client waits for through [`Platform`]: an event or a completion port on Windows, their equivalents in tests.
//!
//! ```text
//! class::get_class_object -> IND2Provider -> IND2Adapter -> IND2CompletionQueue, IND2QueuePair, IND2Connector, ...
//! Device: one adapter on a fabric: NIC, tokens, addresses; what every open IND2Adapter shares
//! ```
//!
//! # Objects
//!
//! The client's references count the COM object, which is thin. Behind it is a *core*, to which engine objects, other cores and
//! requests in progress refer as well. So an object can be released at any time: its requests are cancelled, and its core goes
//! when nothing refers to it any more.
//!
//! # Completion queues
//!
//! The decision when a request for notification is complete is the engine's ([`engine::cq::notify::satisfied`]), asked once
//! for every request that is outstanding: see [`cq`].

#![no_std]

extern crate alloc;

pub mod abi;
mod account;
mod adapter;
pub mod address;
mod back_end;
pub mod class;
pub mod com;
mod connector;
pub mod cq;
mod device;
mod faults;
mod late;
mod limits;
mod listener;
mod mr;
mod mw;
mod overlapped;
mod platform;
mod policy;
mod post;
mod provider;
mod qp;
mod srq;

pub use account::{Account, Charge, Client, Exhausted, Item, Quota};
pub use back_end::BackEnd;
pub use com::live_objects;
pub use device::{Config, Device};
pub use faults::Faults;
pub use limits::{Limits, Resource};
pub use mr::{Registration, register_pages, report_registered, revoke, writes};
pub use overlapped::cancel_one;
pub use platform::{OverlappedFile, Platform};
pub use policy::CompletionPolicy;
pub use provider::Provider;
