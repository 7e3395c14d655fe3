//! Runs of `ndktest` as a program sees them, through the crate that `ndkctl` uses; and a removal as a consumer sees it.

#![cfg(any(unix, feature = "images"))]

#[cfg(unix)]
mod client;
#[cfg(unix)]
mod connections;
#[cfg(unix)]
mod consumer;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod histogram;
#[cfg(unix)]
mod load;
#[cfg(unix)]
mod locks;
#[cfg(unix)]
mod memory;
mod network;
mod processors;
#[cfg(unix)]
mod record;
#[cfg(unix)]
mod removal;
#[cfg(unix)]
mod settings;

#[cfg(unix)]
use rigs::provider_interface;
use rigs::{transport, world};

// The runs themselves are looked at where the suite is a part of the test.
#[cfg(windows)]
use transport as client;
