//! An adapter of a run, however it was found.

use alloc::{boxed::Box, vec::Vec};
use core::net::IpAddr;

use fallible::{Arc, try_box};
use kernel::KernelRuntime;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

use crate::{network::Port, provider::Interface};

/// An adapter that can be opened.
pub enum Adapter {
    /// `SoftNDK`'s, by its private interface.
    Private(Interface),
    /// Any vendor's, by its network interface.
    Port(Port),
}

impl Adapter {
    /// Opens the adapter.
    ///
    /// # Errors
    ///
    /// What the provider answers, or the system.
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        match self {
            Self::Private(interface) => interface.open(version),
            Self::Port(port) => port.open(version),
        }
    }

    /// Opens the first of a run's adapters for a consumer that is written with [`ndk`], which closes it.
    ///
    /// # Errors
    ///
    /// As for [`Adapter::open`]; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn open_to_consume(all: &Arc<Vec<Self>>, version: NDK_VERSION) -> Result<ndk::Adapter, NtStatus> {
        let closes = all.clone();
        let os: Box<dyn ndk::Runtime> = try_box(KernelRuntime::new(move |adapter| {
            if let Some(from) = closes.first() {
                // SAFETY: the adapter came from the `open` below, of the same adapter, and `ndk` does not use it any more.
                unsafe { from.close(adapter) };
            }
        }))?;
        let adapter = all.first().ok_or(NtStatus::INVALID_PARAMETER)?.open(version)?;
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        unsafe { ndk::Adapter::from_raw(adapter, os) }
    }

    /// Returns true if this answer to an open says that there is no adapter any more.
    #[must_use]
    pub fn is_gone(&self, status: NtStatus) -> bool {
        // The private interface's device is told of its removal.
        matches!(self, Self::Port(_))
            && ![NtStatus::NDIS_BAD_VERSION, NtStatus::INSUFFICIENT_RESOURCES, NtStatus::NO_MEMORY].contains(&status)
    }

    /// Closes the adapter. Waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Adapter::open`] of this adapter and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        match self {
            // SAFETY: `adapter` came from this interface's `open`, and is not used after this call (`# Safety`).
            Self::Private(interface) => unsafe { interface.close(adapter) },
            // SAFETY: `adapter` came from this port's `open`, and is not used after this call (`# Safety`).
            Self::Port(port) => unsafe { port.close(adapter) },
        }
    }

    /// The adapter's addresses, as many as there are places.
    #[must_use]
    pub const fn addresses(&self) -> &[Option<IpAddr>; 8] {
        match self {
            Self::Private(interface) => interface.addresses(),
            Self::Port(port) => port.addresses(),
        }
    }
}
