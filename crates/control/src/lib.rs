//! How an NDK consumer finds the `SoftNDK` provider, and how a program talks to the two drivers.
//!
//! A consumer that is an NDIS protocol driver gets an adapter from NDIS or from Winsock Kernel. `SoftNDK` is not a
//! miniport, so it offers the same two functions, with the same shapes, in another way that Windows has for this:
//!
//! 1. Each adapter registers the device interface [`DEVICE_INTERFACE`].
//! 2. A consumer asks for it by plug-and-play notification (`IoRegisterPlugPlayNotification`, including those that exist
//!    already), opens the device by its symbolic link, and registers for its removal (`EventCategoryTargetDeviceChange`).
//! 3. It sends `IRP_MN_QUERY_INTERFACE` (with KMDF: `WdfIoTargetQueryForInterface`) for [`interface::GUID_SOFTNDK`], and
//!    gets a [`SOFTNDK_INTERFACE`], which is referenced. It looks at the version there, which may be an earlier one than it has
//!    asked for ([`SOFTNDK_INTERFACE_VERSION`]).
//! 4. It calls [`OpenNdkAdapter`](SOFTNDK_INTERFACE::OpenNdkAdapter), works with the `NDK_ADAPTER`, closes everything, calls
//!    [`CloseNdkAdapter`](SOFTNDK_INTERFACE::CloseNdkAdapter), and only then dereferences the interface and closes the
//!    device.
//! 5. When the device is to be removed it does the last step at once.
//!
//! `include/softndk.h` says the same in C. The control codes of both drivers are in [`provider_device`], [`test_device`] and [`network`];
//! [`client`], with the feature of that name, is a program's side of them.

#![cfg_attr(not(feature = "client"), no_std)]

#[cfg(feature = "client")]
pub mod client;
pub mod interface;
pub mod network;
pub mod provider_device;
pub mod report;
pub mod test_device;
mod wire;

pub use interface::{DEVICE_INTERFACE, GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION};
