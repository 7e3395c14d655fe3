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
//! # Memory
//!
//! A shadow, two places for completions and what the hooks keep are allocated when an object is created. Nothing is allocated by
//! posts, polls and arms. An allocation that fails fails the creation or request with `STATUS_INSUFFICIENT_RESOURCES`; a
//! connection that comes in is refused then, because a connect event cannot fail. Closes, deregistrations and disconnects find
//! their place allocated. Hooks that [interfere](Hooks::INTERFERES) have places and timers for what comes later, as well.
//!
//! # Lifetime
//!
//! The consumer's pointer is a counted reference to the shadow, which the completion of its close gives back. Each callback on its
//! way holds another, so a consumer may close inside a completion (`NDKPI 7.9`). A shadow holds its parent's.

#![no_std]

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
mod wrap;

pub use event::{
    Args, ConnectArgs, Event, Function, List, ObjectId, ObjectRef, OutArgs, Outcome, Phase, Place, QpArgs, RequestArgs,
};
pub use hooks::{Hooks, InterposeOs, Misuse, NoHooks, Results, Verdict};
pub use wrap::{close, close_through, inner, wrap};
