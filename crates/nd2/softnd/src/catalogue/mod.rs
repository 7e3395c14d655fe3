//! How programs find `softnd.dll`: its entries in the Winsock catalogue.
//!
//! NetworkDirect has no key of its own in the registry. A program walks the catalogue, takes the entries with certain flags, and loads
//! the library that an entry's provider has ([`Entry::is_network_direct`]). Version 1 and version 2 of the interface are providers of
//! their own, each with an entry for IPv4 and one for IPv6.
//!
//! [`install`], [`uninstall`] and [`list`] say what happens, and a [`WinsockCatalogue`] does it: `Windows` on Windows, a stand-in in tests.

mod entry;
mod install;
#[cfg(windows)]
mod windows;

pub use entry::{Entry, Family, Version};
pub use install::{Listed, WinsockCatalogue, install, list, uninstall};
#[cfg(windows)]
pub use windows::Windows;

/// Why the catalogue has not done something: a number of Winsock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WinsockError(pub i32);

impl WinsockError {
    /// The caller may not change the catalogue.
    pub const ACCESS: Self = Self(10013);
    /// It could not be done, or it is there already.
    pub const NO_RECOVERY: Self = Self(11003);
}

impl std::fmt::Display for WinsockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ACCESS => f.write_str("not allowed: run it as administrator"),
            Self::NO_RECOVERY => {
                f.write_str("refused (WSANO_RECOVERY): run it as administrator, or it is there already")
            }
            Self(number) => write!(f, "Winsock error {number}"),
        }
    }
}

impl std::error::Error for WinsockError {}
