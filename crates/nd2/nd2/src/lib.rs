//! The user-mode NetworkDirect service provider interface (`NDSPI`): its COM objects, and the engine behind them.
//!
//! The interfaces have the shape of COM and none of its runtime: a pointer to a pointer to a table of functions, counted
//! references, `QueryInterface`. A provider never calls its client. Whatever takes time is an *overlapped request* of the client,
//! whose end the client waits for through [`OverlappedOs`]: an event or a completion port on Windows, their equivalents in tests.
//!
//! ```text
//! com        IND2Provider -> IND2Adapter -> IND2CompletionQueue, IND2QueuePair, IND2Connector, ...: one table of functions each
//! back_end   what the tables call: traits
//!   Engine     the engine on this machine, by class::get_class_object, or in a driver
//!   (softnd)   a driver, by control codes
//! Device     one adapter of Engine on a fabric: NIC, tokens, addresses; what every open adapter shares
//! ```
//!
//! The front looks at pointers: null, of which class, of the same adapter. The back end sees values and references.
//!
//! # Objects
//!
//! The client's references count the COM object, which is thin. Behind it, with [`Engine`], is a *core*, to which engine objects, other cores and
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
pub mod back_end;
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
mod over_engine;
mod overlapped;
mod overlapped_os;
mod policy;
mod post;
mod qp;
mod srq;

pub use account::{Account, Charge, Client, Exhausted, Item, Quota};
pub use com::live_objects;
pub use device::{Config, Device};
pub use faults::Faults;
pub use limits::{Limits, Resource};
pub use mr::{Registration, register_pages, report_registered, revoke, writes};
pub use over_engine::Engine;
pub use overlapped::cancel_one;
pub use overlapped_os::{OverlappedFile, OverlappedOs};
pub use policy::CompletionPolicy;
