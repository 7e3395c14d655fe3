//! NDIS: miniport drivers and their adapters, with the filters and protocols above them.
//!
//! The routines are the symbols that the crate `ndis` declares. A test has a [`Nic`] for each adapter, which does what NDIS
//! and the protocols above it do: initialise, restart, send, ask, pause, halt.

#![allow(non_snake_case, reason = "names of the C headers")]

pub mod adapter;
pub mod attach;
pub mod attributes;
pub mod bind;
pub mod binding;
pub mod clients;
pub mod clone;
pub mod configuration;
pub mod data_start;
pub mod device;
pub mod event;
pub mod filter;
pub mod filter_driver;
pub mod filter_event;
pub mod filter_frames;
pub mod filter_oid;
pub mod frame;
pub mod generic_object;
pub mod left;
pub mod lifecycle;
pub mod list_context;
pub mod memory;
pub mod module;
pub mod ndk;
pub mod net_buffer;
pub mod nic;
pub mod oid;
pub mod owner;
pub mod passage;
pub mod pool;
mod processors;
pub mod protocol;
pub mod receive;
pub mod registration;
pub mod restart;
pub mod routines;
pub mod rw_lock;
pub mod send;
pub mod status;
pub mod structure;
pub mod timer;
pub mod work_item;

pub use self::{
    ndk::NdkEvent,
    nic::{Nic, NicInterface},
    oid::{OidAnswer, PendingOid},
    routines::ROUTINES,
    send::Sent,
    status::Status,
};
