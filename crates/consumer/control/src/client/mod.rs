//! A program's side of the control devices of `softndk` and `ndktest` ([`provider_device`](crate::provider_device) and
//! [`test_device`](crate::test_device) have the requests).
//!
//! Only the system call differs between platforms: a [`DeviceControl`] carries a request to a driver and its answer back. On Windows
//! that is `ControlDevice`; in tests it is a simulated kernel.

mod advice;
mod device_control;
mod provider;
mod recording;
mod run;
mod settings;
#[cfg(windows)]
mod windows;

pub use device_control::{Answer, DeviceControl, Refusal};
pub use provider::Connection;
pub use recording::Slot;
pub use run::{Event, NetworkInterface, TestDriver};
pub use settings::ProviderDriver;
#[cfg(windows)]
pub use windows::ControlDevice;
