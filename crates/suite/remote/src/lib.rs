//! An NDK adapter of another machine for the conformance suite.
//!
//! The suite drives both ends of each connection. With this crate the second end is an adapter of a second machine: machine A runs
//! the suite on [`WithPeer`], a [`Platform`](conformance::Platform) with one adapter more than it has; machine B runs an [`Agent`],
//! which carries out on its own adapter what A calls. Between the two is a [`Channel`], which somebody else makes.
//!
//! ```text
//! machine A                                        machine B
//! case -> proxy objects -> WithPeer  == Channel ==>  Agent -> NDK_ADAPTER
//!               ^          pump()   <== events  ==   queue <- callbacks
//!               |                                                |
//!          adapter A  <=========== RDMA on the cable =========> adapter
//! ```
//!
//! - **Calls.** An object of the other machine's adapter is a proxy here, with dispatch tables of its own. Each function sends one
//!   call of at most [`MOST`] bytes: its number, the handle of the object, words, a small tail. The answer has the status and what
//!   the function stores. Handles are numbers with a generation, and are checked at both ends; pointers never travel. Contexts of
//!   requests and queue pairs are words, and travel as they are.
//! - **Callbacks.** A callback at B puts an event into a queue, at `IRQL <= DISPATCH_LEVEL`, in memory that was reserved when the
//!   request was made. [`WithPeer::pump`] fetches events and makes the callbacks at A, one after the other, in their order. A close
//!   of a proxy always pends, so its completion comes after every other callback of the object (`NDKPI 7.9`).
//! - **Bytes.** The buffers of a case are at A. When one is registered or mapped at the peer, B allocates the same, and the two are
//!   tied: what the case writes is copied there, what it reads is fetched first
//!   ([`CaseMemory`](conformance::platform::CaseMemory)). Elements name the bytes at A, and their addresses are translated;
//!   addresses for a peer are those of B, and are never changed.
//! - **What cannot be done.** A call has to wait, so above `PASSIVE_LEVEL` it fails, and
//!   [`take_excuse`](conformance::Platform::take_excuse) has the words: the case ends as *skipped*, never as passed. Closes are the
//!   exception: the pump makes them.
//! - **A dead channel.** Every call fails with the status of the channel; requests and closes that pend complete. [`Agent::close`]
//!   closes what is left at B.
//!
//! The agent trusts nobody: any bytes get an answer. It gives the provider objects of the right kind that are open, lists that it has
//! copied, and logical addresses only of mappings that it has made; one call at a time on each object.

#![no_std]
#![allow(clippy::cast_possible_truncation, reason = "64-bit only, and the lengths of messages are small")]

extern crate alloc;

mod agent;
mod channel;
mod lock;
mod peer;
mod table;
mod wire;

pub use agent::Agent;
pub use channel::{Channel, MOST};
pub use peer::WithPeer;
