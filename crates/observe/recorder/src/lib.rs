//! The recorder: what happens between an NDK consumer and its provider, in bounded memory.
//!
//! [`Recorder`] is a set of hooks for the crate `interpose`. It writes one record for each call, return, callback and return of a
//! callback into a [`Ring`], with ticks and the processor. A post, arm or poll that nothing else came into has one record with its
//! return. [`Tap`] does it for the frames of an adapter's wire, [`Findings`] for what an adviser finds. Nothing is allocated there, and a
//! processor writes into memory of its own. `docs/recorder.md` describes the file that a program makes of it; [`format`](mod@format) has its numbers.

#![no_std]

extern crate alloc;

mod aside;
mod encode;
mod findings;
pub mod format;
mod hooks;
mod polled;
mod ring;
mod wire;

pub use findings::{Adviser, Findings};
pub use hooks::{Begun, Recorder, State};
pub use ring::{Keep, Ring, from_memory};
pub use wire::Tap;
