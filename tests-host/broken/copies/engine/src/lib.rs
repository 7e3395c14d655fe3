//! The engine with every deliberate mistake woven in (`broken::weave`), and the [`switch`] that chooses one.

#![no_std]
#![allow(
    warnings,
    clippy::all,
    clippy::cargo,
    clippy::nursery,
    clippy::pedantic,
    reason = "woven code is for nobody to read"
)]

pub mod switch;

include!(concat!(env!("OUT_DIR"), "/engine/lib.rs"));
