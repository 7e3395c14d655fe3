//! Simulated NDIS: a miniport driver that keeps its rules works, and one that breaks a rule is caught.
//!
//! Each driver that is wrong runs in a process of its own, which the bug check ends.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

#[path = "ndis_rules/miniport.rs"]
mod miniport;

#[path = "ndis_rules/lifecycle.rs"]
mod lifecycle;
