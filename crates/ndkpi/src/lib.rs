//! The Network Direct Kernel Provider Interface: structures, constants and function types, and nothing else.

#![no_std]

pub mod status;

pub use status::NtStatus;
