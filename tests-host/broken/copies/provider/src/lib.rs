//! The provider with every deliberate mistake woven in (`broken::weave`). `engine::switch` chooses one.

#![no_std]
#![allow(
    warnings,
    clippy::all,
    clippy::cargo,
    clippy::nursery,
    clippy::pedantic,
    reason = "woven code is for nobody to read"
)]

include!(concat!(env!("OUT_DIR"), "/provider/lib.rs"));
