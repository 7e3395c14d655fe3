//! Runs of `ndktest` as a program sees them, through the crate that `ndkctl` uses; and a removal as a consumer sees it.

#![cfg(any(unix, feature = "images"))]

#[cfg(unix)]
#[path = "driver_runs/client.rs"]
mod client;
#[cfg(unix)]
#[path = "driver_runs/connections.rs"]
mod connections;
#[cfg(unix)]
#[path = "driver_runs/consumer.rs"]
mod consumer;
#[cfg(unix)]
#[path = "driver_runs/faults.rs"]
mod faults;
#[cfg(unix)]
#[path = "driver_runs/histogram.rs"]
mod histogram;
#[cfg(windows)]
#[path = "drivers/images.rs"]
mod images;
#[cfg(unix)]
#[path = "driver_runs/load.rs"]
mod load;
#[cfg(unix)]
#[path = "driver_runs/locks.rs"]
mod locks;
#[cfg(unix)]
#[path = "driver_runs/memory.rs"]
mod memory;
#[path = "driver_runs/network.rs"]
mod network;
#[path = "driver_runs/processors.rs"]
mod processors;
#[cfg(unix)]
#[path = "drivers/provider_interface.rs"]
mod provider_interface;
#[cfg(unix)]
#[path = "driver_runs/record.rs"]
mod record;
#[cfg(unix)]
#[path = "driver_runs/removal.rs"]
mod removal;
#[cfg(unix)]
#[path = "driver_runs/settings.rs"]
mod settings;
#[path = "drivers/transport.rs"]
mod transport;
#[expect(dead_code, reason = "the other tests of the drivers need more of it")]
#[path = "drivers/world.rs"]
mod world;

// The runs themselves are looked at where the suite is a part of the test.
#[cfg(windows)]
use transport as client;
