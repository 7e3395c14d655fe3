//! The SoftNDK engine: everything that an RDMA adapter does, and nothing of how it is called.
//!
//! The engine knows no NDKPI structure and no operating system. What it needs of one it asks for through [`os::Os`]; what
//! its objects are called and when they may be closed is the business of the layers above (`crates/provider/provider`,
//! `crates/nd2`).
//!
//! ```text
//! post -> send queue of the QP -> doorbell -> a quantum (the QP's DPC on a processor)
//!      -> the receive is matched, tokens are checked, bytes move
//!      -> completion queue -> the decision to notify -> notification call -> the consumer polls and arms again
//! ```
//!
//! The decision to call a consumer back is a pure function:
//!
//! ```
//! use engine::cq::notify::{ArmType, View, satisfied};
//!
//! // The queue is armed for any entry; the consumer had taken three when it armed, and there were three at its last callback.
//! let armed = View {
//!     arm: Some(ArmType::Any),
//!     newest: 3,
//!     newest_solicited: 0,
//!     taken: 3,
//!     last_callback: 3,
//!     failure_to_report: false,
//! };
//! assert!(!satisfied(&armed));
//! assert!(satisfied(&View { newest: 4, ..armed }), "an entry has come");
//! // An entry that was left in the queue at the last callback gives no other one (NDKPI 7.1.5).
//! assert!(!satisfied(&View { newest: 4, last_callback: 4, ..armed }));
//! // Two arms make the stronger one, however they are made (NDKPI 7.1.4).
//! assert_eq!(ArmType::merge(Some(ArmType::Any), ArmType::Errors), ArmType::Any);
//! ```
//!
//! A queue pair's peer is on this machine, as above, or on another one ([`wire`]).
//!
//! Locks, in the order they are taken: a wire, a QP's send queue, the receive queue of its peer, a completion queue. The locks of
//! links and memory tables are leaves. No lock is held while a client is called.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod connection;
pub mod cq;
pub mod memory;
pub mod nic;
pub mod os;
pub mod prefetch;
pub mod qp;
pub mod ring;
pub mod slab;
mod sync;
pub mod wire;

pub use nic::Nic;
/// Status codes. They are those of Windows, so that no layer translates them.
pub use ntstatus::NtStatus;
