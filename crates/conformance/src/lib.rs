//! The rules of NDKPI as a consumer checks them, on any `NDK_ADAPTER`.
//!
//! Placeholder text.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod case;

pub mod cases;
pub mod client;
pub mod fixture;
pub mod platform;
pub mod random;
pub mod runner;
pub mod text;

pub use case::{Case, Check, HELD, Pass, Stop, Verdict};
pub use platform::Platform;
pub use runner::{Outcome, Run, Tally, run, selects};
