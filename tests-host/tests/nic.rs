//! `softndknic`, the miniport, in the simulated kernel: NDIS above it, Winsock Kernel and `ndktest` above that.

#![cfg(any(unix, feature = "images"))]

#[path = "nic/addresses.rs"]
mod addresses;
#[cfg(unix)]
#[path = "drivers/bytes.rs"]
mod bytes;
#[cfg(unix)]
#[path = "drivers/codes.rs"]
mod codes;
#[cfg(unix)]
#[path = "nic/control.rs"]
mod control_device;
#[path = "nic/faults.rs"]
mod faults;
#[cfg(unix)]
#[path = "drivers/faulty.rs"]
mod faulty;
#[cfg(unix)]
#[path = "nic/frames.rs"]
mod frames;
#[cfg(windows)]
#[path = "drivers/images.rs"]
mod images;
#[path = "nic/lifecycle.rs"]
mod lifecycle;
#[path = "nic/machine.rs"]
mod machine;
#[path = "nic/ndk.rs"]
mod ndk;
#[cfg(unix)]
#[path = "nic/oids.rs"]
mod oids;
#[cfg(unix)]
#[path = "nic/pulled.rs"]
mod pulled;
#[cfg(unix)]
#[path = "nic/requests.rs"]
mod requests;
#[cfg(unix)]
#[path = "drivers/rows.rs"]
mod rows;
#[path = "nic/suite.rs"]
mod suite;
#[path = "drivers/transport.rs"]
mod transport;
#[expect(dead_code, reason = "the tests of the other provider need more of it")]
#[path = "drivers/world.rs"]
mod world;
