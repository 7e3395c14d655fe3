//! Completion queues (`NDSPI 2`, `NDSPI 8`, `NDSPI 9`).
//!
//! [`waiters`] holds the outstanding requests for notification and asks, for each, the engine's one decision
//! ([`engine::cq::notify::satisfied`]). `core` puts that over an engine's queue, `hold` lets completions be
//! seen late, and [`results`] says which status a result may have.

pub(crate) mod core;
mod hold;
pub mod results;
pub mod waiters;
