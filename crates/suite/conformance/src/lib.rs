//! The conformance suite: the rules of NDKPI as a consumer checks them, on any `NDK_ADAPTER`.
//!
//! A case is a function that drives a provider through its dispatch tables and reports what it saw. `client` makes the calls,
//! `fixture` creates the connected queue pairs that most cases start with, and `runner` runs a case. The cases know nothing about
//! SoftNDK's provider; `Platform` is all they need from their surroundings. The feature `host` adds a platform on a host, with
//! SoftNDK as the provider (`conformance::host`); without it the crate is `no_std`.
//!
//! A case has a name, the section of its rule, and a description of what it does and expects:
//!
//! ```
//! let case = conformance::cases::all().find(|case| case.name == "arm.one-callback-per-arm").expect("a case");
//! assert_eq!(case.section, "NDKPI 7.1.3");
//! assert!(conformance::selects("arm,NDKPI 7.9", case));
//! ```

#![cfg_attr(not(feature = "host"), no_std)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the sizes and offsets of the cases are small numbers that the cases choose themselves"
)]
#![allow(clippy::match_bool, reason = "two ways for a request to fail read best side by side")]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod case;

pub mod cases;
pub mod client;
pub mod fixture;
#[cfg(feature = "host")]
pub mod host;
pub mod platform;
pub mod random;
pub mod runner;
pub mod soak;
pub mod text;

pub use case::{Case, Check, HELD, Pass, Stop, Verdict};
pub use platform::Platform;
pub use runner::{Outcome, Run, Tally, run, selects};
