//! How an NDK consumer finds the driver `softndk`, and how a program talks to the drivers.
//!
//! A consumer gets the adapter of a NIC from NDIS or Winsock Kernel. The driver `softndk` is not a miniport (`softndknic` is), so
//! it offers the same two functions, with the same signatures, through a device interface:
//!
//! 1. Each adapter registers the device interface [`DEVICE_INTERFACE`].
//! 2. A consumer asks for it by plug-and-play notification (`IoRegisterPlugPlayNotification`, including those that exist
//!    already), opens the device by its symbolic link, and registers for its removal (`EventCategoryTargetDeviceChange`).
//! 3. It sends `IRP_MN_QUERY_INTERFACE` (with KMDF: `WdfIoTargetQueryForInterface`) for [`interface::GUID_SOFTNDK`], and
//!    gets a [`SOFTNDK_INTERFACE`], which is referenced. It checks the version there, which may be
//!    lower than the one it asked for ([`SOFTNDK_INTERFACE_VERSION`]).
//! 4. It calls [`OpenNdkAdapter`](SOFTNDK_INTERFACE::OpenNdkAdapter), works with the `NDK_ADAPTER`, closes everything, calls
//!    [`CloseNdkAdapter`](SOFTNDK_INTERFACE::CloseNdkAdapter), and only then dereferences the interface and closes the
//!    device.
//! 5. When the device is about to be removed, it performs the last step at once.
//!
//! `include/softndk.h` is the same in C. The control codes of both drivers are in [`provider_device`], [`test_device`],
//! [`network`] and [`case`]; [`client`], with the feature of that name, is a program's side of them.

#![cfg_attr(not(feature = "client"), no_std)]

pub mod case;
#[cfg(feature = "client")]
pub mod client;
pub mod interface;
pub mod network;
pub mod provider_device;
pub mod report;
pub mod test_device;
mod wire;

pub use interface::{DEVICE_INTERFACE, GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION};
