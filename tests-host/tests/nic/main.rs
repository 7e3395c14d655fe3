//! `softndknic`, the miniport, in the simulated kernel: NDIS above it, Winsock Kernel and `ndktest` above that.

#![cfg(any(unix, feature = "images"))]

mod addresses;
#[cfg(unix)]
#[path = "../drivers/bytes.rs"]
mod bytes;
#[cfg(unix)]
#[path = "../drivers/codes.rs"]
mod codes;
#[cfg(unix)]
#[path = "control.rs"]
mod control_device;
mod faults;
#[cfg(unix)]
#[path = "../drivers/faulty.rs"]
mod faulty;
#[cfg(unix)]
mod frames;
#[cfg(windows)]
#[path = "../drivers/images.rs"]
mod images;
mod lifecycle;
mod machine;
mod ndk;
#[cfg(unix)]
mod oids;
#[cfg(unix)]
mod pulled;
#[cfg(unix)]
mod requests;
#[cfg(unix)]
#[path = "../drivers/rows.rs"]
mod rows;
mod suite;
#[path = "../drivers/transport.rs"]
mod transport;
#[expect(dead_code, reason = "the tests of the other provider need more of it")]
#[path = "../drivers/world.rs"]
mod world;
