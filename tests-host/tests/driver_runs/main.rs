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
#[cfg(windows)]
#[path = "../drivers/images.rs"]
mod images;
#[cfg(unix)]
mod load;
#[cfg(unix)]
mod locks;
#[cfg(unix)]
mod memory;
mod network;
mod processors;
#[cfg(unix)]
#[path = "../drivers/provider_interface.rs"]
mod provider_interface;
#[cfg(unix)]
mod record;
#[cfg(unix)]
mod removal;
#[cfg(unix)]
mod settings;
#[path = "../drivers/transport.rs"]
mod transport;
#[expect(dead_code, reason = "the other tests of the drivers need more of it")]
#[path = "../drivers/world.rs"]
mod world;

// The runs themselves are looked at where the suite is a part of the test.
#[cfg(windows)]
use transport as client;
