//! The loopback network: which address belongs to which adapter.
//!
//! Adapters reach each other if they are on the same *link*: two ends of a cable, or a network of software adapters. A link is a
//! number. As on real links the same address may be on two of them: a private one, or one of `fe80::/10`.

use alloc::vec::Vec;
use core::net::IpAddr;

use fallible::Arc;
use ntstatus::NtStatus;

use super::endpoint::LocalAddress;
use crate::os::{Os, SpinLock};

/// The most addresses on one fabric, so that looking at all of them takes a short time.
pub const MAX_ADDRESSES: usize = 256;

//= NDKPI 7.8.1
/// The loopback network. Adapters are on it through their [ports](super::Port). Those on the same link reach each other, and
/// themselves.
pub struct Fabric<O: Os> {
    os: O,
    addresses: O::Lock<Addresses<O>>,
}

/// Every address on the fabric.
///
/// # Invariants
///
/// Sorted by link and address, each one once.
struct Addresses<O: Os>(Vec<Arc<LocalAddress<O>>>);

impl<O: Os> Addresses<O> {
    fn search(&self, link: u32, address: IpAddr) -> Result<usize, usize> {
        self.0.binary_search_by(|local| (local.link, local.interface.address).cmp(&(link, address)))
    }
}

impl<O: Os> Fabric<O> {
    /// Makes a fabric with nothing on it.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &O) -> Result<Arc<Self>, NtStatus> {
        let addresses = os.lock(Addresses(Vec::new()))?;
        Arc::try_new(Self { os: os.clone(), addresses }).map_err(Into::into)
    }

    pub(super) const fn os(&self) -> &O {
        &self.os
    }

    /// Adds an address to its link.
    pub(super) fn add(&self, local: &Arc<LocalAddress<O>>) -> Result<(), NtStatus> {
        self.addresses.with(|addresses| {
            let Err(place) = addresses.search(local.link, local.interface.address) else {
                return Err(NtStatus::SHARING_VIOLATION);
            };
            if addresses.0.len() == MAX_ADDRESSES {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            addresses.0.try_reserve(1).map_err(fallible::AllocError::from)?;
            addresses.0.insert(place, local.clone());
            Ok(())
        })
    }

    /// Removes an address from a link.
    pub(super) fn remove(&self, link: u32, address: IpAddr) {
        // The reference is dropped after the lock is released.
        drop(self.addresses.with(|addresses| {
            let place = addresses.search(link, address).ok()?;
            // It is there; without this the removal has a panic, which is deep on the stack of an adapter that ends.
            addresses.0.get(place)?;
            Some(addresses.0.remove(place))
        }));
    }

    /// Finds the adapter's address that a connection on `link` to `address` leads to.
    ///
    /// # Errors
    ///
    /// `STATUS_HOST_UNREACHABLE` if no adapter of the link has the address but one is in the same network,
    /// `STATUS_NETWORK_UNREACHABLE` if none is.
    pub(super) fn find(&self, link: u32, address: IpAddr) -> Result<Arc<LocalAddress<O>>, NtStatus> {
        self.addresses.with(|addresses| {
            if let Ok(place) = addresses.search(link, address) {
                return Ok(addresses.0[place].clone());
            }
            let mut of_link = addresses.0.iter().filter(|local| local.link == link);
            let network = of_link.any(|local| local.interface.has_in_network(address));
            Err(if network { NtStatus::HOST_UNREACHABLE } else { NtStatus::NETWORK_UNREACHABLE })
        })
    }
}
