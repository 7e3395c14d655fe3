//! `softndknic`, the miniport, in the simulated kernel: NDIS above it, Winsock Kernel and `ndktest` above that.

#![cfg(any(unix, feature = "images"))]

mod addresses;
#[cfg(unix)]
mod control_device;
mod faults;
#[cfg(unix)]
mod frames;
mod lifecycle;
mod ndk;
#[cfg(unix)]
mod pulled;
#[cfg(unix)]
mod requests;
mod suite;

#[cfg(unix)]
use rigs::{codes, faulty, oids, rows};
use rigs::{machine, transport, world};
