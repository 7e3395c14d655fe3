//! The protocol of notifications as a model: every state that producers, consumer, DPC, timer and time can reach within
//! bounds. The engine's own state machine is in it, with an oracle written from NDKPI 7.1.3 to 7.1.7 and 7.1.10 beside it.
//!
//! `tests/protocol_model` checks it; the package `broken` builds it on an engine with mistakes.

#![allow(
    missing_docs,
    clippy::must_use_candidate,
    clippy::missing_panics_doc,
    reason = "parts of a test: a name says what it is"
)]

pub mod bounds;
pub mod model;
pub mod oracle;
