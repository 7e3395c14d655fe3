//! # `softndknic`, a virtual NIC with RDMA
//!
//! An NDIS 6.80 miniport over the same engine and provider as `softndk`. Two adapters are the two ends of a cable: frames that
//! one sends arrive at the other, and RDMA does not go through frames, it is the engine's. Or an adapter has a wire to other machines, which
//! carries both. KMDF is in miniport mode: NDIS has the
//! device objects and the dispatch table, the framework lends its driver object and the registry.
//!
//! | Module | Contents |
//! |---|---|
//! | [`driver`] | load, registration, unload; what all adapters share |
//! | [`control`] | the control device |
//! | [`handlers`] | what NDIS calls |
//! | [`adapter`] | one adapter from initialisation to halt |
//! | [`attributes`], [`configuration`] | what an adapter reports of itself, and its keywords |
//! | [`transmit`], [`receive`], [`frames`], [`filter`] | the cable |
//! | [`wire`] | the wire to other machines, in the cable's place |
//! | [`ndk`], [`addresses`] | NDK: enabled or not, capabilities; the addresses that Windows has on the interface |
//! | [`oid`] | requests |
//! | [`work`], [`framework`] | work items of NDIS, KMDF in miniport mode |
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

extern crate alloc;
#[cfg(not(windows))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(windows)]
extern crate wdk_panic;

pub mod adapter;
pub mod addresses;
pub mod attributes;
pub mod configuration;
pub mod control;
pub mod driver;
pub mod filter;
pub mod frames;
pub mod framework;
pub mod handlers;
pub mod ndk;
pub mod oid;
pub mod receive;
pub mod transmit;
pub mod wire;
pub mod work;

kernel::driver_entry!("softndknic", driver::create);
