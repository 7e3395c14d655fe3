//! A layer between an NDK consumer and any NDK provider.
//!
//! [`wrap`] takes an `NDK_ADAPTER` and hands out another one. Every object that the consumer gets through it is a shadow, whose
//! dispatch table is this layer's: each call, each completion and each event callback goes through [`Hooks`], then on to the
//! provider or the consumer. Where nothing is wrapped nothing is changed: the layer is not there.
//!
//! Work requests and their contexts, queue pair contexts, tokens and memory are passed on untouched. Objects that this layer has
//! not made (another provider's, null) are passed on as they are.
//!
//! Calls on an object of another type, or on one that is closed, do not reach the provider: they return
//! `STATUS_INVALID_PARAMETER` (or nothing), and the hooks hear of them by [`Hooks::misuse`].
//!
//! # Example
//!
//! Hooks that refuse every completion queue, as an adapter without resources would:
//!
//! ```no_run
//! use host::{HostOs, machine::Machine};
//! use interpose::{Event, Function, Hooks, ObjectId, Phase, Verdict};
//! use ndk::host::adopt;
//! use ndkpi::{NDK_ADAPTER_INFO, NDK_VERSION, NtStatus};
//! use provider::{Config, Device};
//!
//! struct NoQueues(HostOs);
//!
//! impl Hooks for NoQueues {
//!     type Os = HostOs;
//!     type State = ();
//!     type Call = ();
//!
//!     fn os(&self) -> &HostOs {
//!         &self.0
//!     }
//!     fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
//!         Ok(())
//!     }
//!     fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
//!         Ok(())
//!     }
//!     fn event(&self, event: &Event<'_, ()>, (): &mut ()) -> Verdict {
//!         match (event.phase, event.function) {
//!             (Phase::Call, Function::CreateCq) => Verdict::Refuse(NtStatus::INSUFFICIENT_RESOURCES),
//!             _ => Verdict::Forward,
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), NtStatus> {
//! let machine = Machine::threads().start();
//! let os = HostOs::new(&machine);
//! let device = Device::try_new(&os, Config::default())?;
//! let inner = Device::open(&device, NDK_VERSION::V2_0)?;
//! // SAFETY: the adapter is open, and is used through the layer only.
//! let wrapped = unsafe { interpose::wrap(inner, NoQueues(os.clone())) }?;
//! let close = |adapter| {
//!     // SAFETY: the adapter came from `wrap` with these hooks, and its provider's from `Device::open`.
//!     let _ = unsafe { interpose::close::<NoQueues, _>(adapter, |inner| Device::<HostOs>::close(inner)) };
//! };
//! // SAFETY: the adapter is open, and `close` closes it.
//! let adapter = unsafe { adopt(&machine, wrapped, close) }?;
//!
//! let _pd = adapter.create_pd()?;
//! assert_eq!(adapter.create_cq(16).err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
//! # drop(_pd);
//! # drop(adapter);
//! # drop(device);
//! # machine.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! A shadow, two places for completions and what the hooks keep are allocated when an object is created. Nothing is allocated by
//! posts, polls and arms. An allocation that fails fails the creation or request with `STATUS_INSUFFICIENT_RESOURCES`; a
//! connection that comes in is refused then, because a connect event cannot fail. Closes, deregistrations and disconnects find
//! their place allocated. Hooks that [interfere](Hooks::INTERFERES) have places and timers for what comes later, as well.
//!
//! # Lifetime
//!
//! The consumer's pointer is a counted reference to the shadow, which the completion of its close gives back. Each callback on
//! its way holds another, so a consumer may close inside a completion (`NDKPI 7.9`). A shadow holds its parent's.

#![no_std]
#![expect(
    clippy::inline_always,
    reason = "where hooks are inlined, what is known of the call leaves little of them; without it the compiler does not"
)]

extern crate alloc;

mod adapter;
pub mod adviser;
mod call;
mod close;
mod connect;
mod connector;
mod cq;
mod ending;
mod event;
mod extension;
pub mod faults;
mod gate;
mod hooks;
mod later;
mod listener;
mod memory;
mod notifier;
mod pd;
mod post;
mod request;
mod shadow;
mod srq;
mod tables;
mod ticks;
mod wrap;

pub use event::{
    Args, ConnectArgs, Endpoints, Event, Function, List, ObjectId, ObjectRef, OutArgs, Outcome, Phase, QpArgs,
    RequestArgs, Stamp,
};
pub use hooks::{Hooks, InterposeOs, Misuse, NoHooks, Results, Verdict};
pub use ticks::ticks;
pub use wrap::{close, close_through, inner, wrap};
