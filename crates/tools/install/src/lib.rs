//! Installs the drivers of SoftNDK, and looks at what stands between a machine and a working SoftNDK.
//!
//! What to do is a [`Plan`]: it is made from what the machine says of itself, can be shown without being carried out, and is short
//! if little is to be done. [`Plan::run`] carries it out. Before a part of the machine is touched for the first time, what it was is
//! written down; if a step fails, each part is made as it was, and what could not be made so is named ([`Left`]).
//!
//! A [`Machine`] does what Windows does: `Windows` on Windows, a model of it in tests, which fails each call once in turn.

mod describe;
mod doctor;
mod drivers;
mod error;
mod inf;
mod machine;
mod network;
#[cfg(not(windows))]
mod nowhere;
mod package;
mod plan;
mod run;
mod status;
mod undo;
#[cfg(windows)]
mod windows;

pub use describe::{Problem, Why, problem};
pub use doctor::{Check, Verdict, elsewhere, examine};
pub use drivers::{Choice, Driver, NDKTEST, NIC, PROVIDER};
pub use error::Fault;
pub use inf::{Inf, Version};
pub use machine::{
    AddressState, Device, Facts, Firewall, Interface, Machine, Processor, Restart, Result, Staged, Store,
};
pub use network::{Pair, pair};
#[cfg(not(windows))]
pub use nowhere::Nowhere;
pub use package::{Certificate, Package};
pub use plan::{Plan, Step, Wanted, install, uninstall};
pub use run::{Done, Failed, Options};
pub use status::{DeviceStatus, DriverStatus, status};
pub use undo::Left;
#[cfg(windows)]
pub use windows::Windows;

/// The machine that this program runs on.
#[cfg(windows)]
pub type This = Windows;
/// The machine that this program runs on.
#[cfg(not(windows))]
pub type This = Nowhere;

/// The machine that this program runs on, if it has Windows.
#[must_use]
pub fn this() -> Option<This> {
    #[cfg(windows)]
    return Some(Windows::new());
    #[cfg(not(windows))]
    None
}
