//! What the tests that cross crates share: the drivers loaded in the simulated kernel, small drivers beside them, programs that speak
//! in control codes, and what a fuzzer does with each of these.
//!
//! On Unix the drivers are linked in. On Windows they are images, in the folder that `SOFTNDK_IMAGES` names.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::not_unsafe_ptr_arg_deref,
    clippy::return_self_not_must_use,
    clippy::should_implement_trait,
    reason = "parts of tests: a name says what it is, and whatever is not as it should be panics"
)]

#[cfg(unix)]
extern crate wdk_bindings as wdk_sys;

#[cfg(unix)]
pub mod any_datagrams;
#[cfg(unix)]
pub mod bytes;
#[cfg(unix)]
pub mod codes;
#[cfg(unix)]
pub mod exercise;
#[cfg(unix)]
pub mod faulty;
#[cfg(windows)]
pub mod images;
#[cfg(unix)]
pub mod limiter;
pub mod machine;
#[cfg(unix)]
pub mod mailbox;
#[cfg(unix)]
pub mod nd2;
#[cfg(unix)]
pub mod oids;
pub mod provider_interface;
#[cfg(unix)]
pub mod rows;
#[cfg(unix)]
pub mod sides;
#[cfg(unix)]
pub mod skeleton;
#[cfg(unix)]
pub mod small_driver;
#[cfg(unix)]
pub mod talker;
pub mod transport;
pub mod world;
