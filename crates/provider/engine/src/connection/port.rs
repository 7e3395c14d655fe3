//! An adapter's port: its place on the fabric.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use fallible::Arc;
use ntstatus::NtStatus;
use roce::NETWORKS;

use super::{
    ConnectionCounters, ConnectionEntry, ConnectionLimits, EndpointEntry, EndpointKind, Fabric, InterfaceAddress,
    Owner, Timeouts,
    counters::Counters,
    endpoint::{Endpoint, LocalAddress},
    listing::{self, ConnectionRow, Connections},
    parameters::scope_of,
    remote::{self, Party},
};
use crate::{
    os::{Os, SpinLock},
    slab::Slab,
    wire::{Network, Wire},
};

/// An adapter's place on a [`Fabric`]: its addresses, limits, counters and listings.
pub struct Port<O: Os> {
    fabric: Arc<Fabric<O>>,
    /// The link of the fabric that the adapter is on.
    link: u32,
    limits: ConnectionLimits,
    timeouts: Timeouts,
    addresses: O::Lock<PortAddresses<O>>,
    wire: O::Lock<Option<Arc<Wire<O>>>>,
    pub(super) counters: Counters,
    pub(super) connections: O::Lock<Connections<O>>,
    pub(super) endpoints: O::Lock<Slab<EndpointEntry>>,
}

/// The adapter's addresses.
struct PortAddresses<O: Os> {
    list: Vec<Arc<LocalAddress<O>>>,
    detached: bool,
}

impl<O: Os> Port<O> {
    /// Makes a port that has no address yet, on link 0.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        fabric: &Arc<Fabric<O>>,
        limits: ConnectionLimits,
        timeouts: Timeouts,
    ) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_on_link(fabric, 0, limits, timeouts)
    }

    /// As [`Port::try_new`], on link `link` of the fabric: the port reaches the ports of that link, and has addresses of its own
    /// among those of that link.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_on_link(
        fabric: &Arc<Fabric<O>>,
        link: u32,
        limits: ConnectionLimits,
        timeouts: Timeouts,
    ) -> Result<Arc<Self>, NtStatus> {
        let os = fabric.os();
        Arc::try_new(Self {
            fabric: fabric.clone(),
            link,
            limits,
            timeouts,
            addresses: os.lock(PortAddresses { list: Vec::new(), detached: false })?,
            wire: os.lock(None)?,
            counters: Counters::default(),
            connections: os.lock(Connections::new())?,
            endpoints: os.lock(Slab::new())?,
        })
        .map_err(Into::into)
    }

    /// Gives the port a way to other machines: addresses that no port of its link has are reached over `wire`, and listeners
    /// take requests from there. The two keep each other until [`Port::unplug`].
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn plug(this: &Arc<Self>, wire: Arc<Wire<O>>) -> Result<(), NtStatus> {
        wire.set_acceptor(remote::acceptor(this)?);
        drop(this.wire.with(|place| place.replace(wire)));
        this.addresses.with(|own| this.tell_wire(own))
    }

    /// The wire has the addresses of the port.
    fn tell_wire(&self, own: &PortAddresses<O>) -> Result<(), NtStatus> {
        let Some(wire) = self.wire() else { return Ok(()) };
        let mut networks = ArrayVec::<Network, NETWORKS>::new();
        for local in &own.list {
            let InterfaceAddress { address, prefix, .. } = local.interface;
            networks.try_push(Network { address, prefix }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        }
        wire.set_networks(&networks)
    }

    /// Takes the wire away. Connections over it have to be closed; frames that come in are dropped.
    pub fn unplug(&self) {
        if let Some(wire) = self.wire.with(Option::take) {
            Wire::shut(&wire);
        }
    }

    /// The way to other machines, if there is one.
    #[must_use]
    pub fn wire(&self) -> Option<Arc<Wire<O>>> {
        self.wire.with(|wire| wire.clone())
    }

    /// Gives the adapter an address of its own.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` if one adapter cannot have it, `STATUS_SHARING_VIOLATION` if an adapter of the same link has
    /// it, `STATUS_DEVICE_REMOVED` after [`Port::detach`], `STATUS_INSUFFICIENT_RESOURCES`, also for more than sixteen of a port with a
    /// wire.
    pub fn add_address(&self, interface: InterfaceAddress) -> Result<(), NtStatus> {
        if !interface.is_valid() {
            return Err(NtStatus::INVALID_ADDRESS);
        }
        let local = LocalAddress::try_new(self.os(), self.link, interface)?;
        self.addresses.with(|own| {
            if own.detached {
                return Err(NtStatus::DEVICE_REMOVED);
            }
            own.list.try_reserve(1).map_err(fallible::AllocError::from)?;
            self.fabric.add(&local)?;
            own.list.push(local.clone());
            self.tell_wire(own).inspect_err(|_| {
                own.list.pop();
                self.fabric.remove(self.link, interface.address);
            })
        })
    }

    /// Removes an address. Its endpoints and connections go on; nothing new begins there, and its listeners are not found any
    /// more. Connections over a wire end by their time-out: frames for the address are not the adapter's any more.
    pub fn remove_address(&self, address: IpAddr) {
        // The reference is dropped after the lock is released.
        drop(self.addresses.with(|own| {
            let place = own.list.iter().position(|local| local.interface.address == address)?;
            self.fabric.remove(self.link, address);
            let gone = own.list.swap_remove(place);
            // There is room for fewer than there were.
            let _ = self.tell_wire(own);
            Some(gone)
        }));
    }

    /// Takes the adapter off the fabric: removes all addresses ([`Port::remove_address`]). What is open still has to be closed.
    ///
    /// Not inlined: its frame would lie below the end of each connection ([`Port::abort`]).
    #[inline(never)]
    pub fn detach(&self) {
        drop(self.addresses.with(|own| {
            own.detached = true;
            for local in &own.list {
                self.fabric.remove(self.link, local.interface.address);
            }
            core::mem::take(&mut own.list)
        }));
    }

    /// The adapter has gone: it is [detached](Port::detach), and its connections end at once. Both sides of each are
    /// told (`NDKPI 7.7.6`); a queue pair on this adapter is flushed, one on another adapter only loses its peer.
    ///
    /// A connect or accept of this adapter that waits is answered with `STATUS_CONNECTION_ABORTED`, the connect that an accept
    /// belongs to with `STATUS_CONNECTION_REFUSED`, and later ones fail. A connect from another adapter that was not
    /// accepted yet waits until the consumer here closes what stands for it, or for its timeout. Everything that is open
    /// still has to be closed.
    ///
    /// Callable with no lock held at `IRQL <= DISPATCH_LEVEL`.
    pub fn abort(&self) {
        self.detach();
        self.connections.with(Connections::shut);
        // From here on no connection is added.
        self.each_line(|connection| connection.abort(self));
    }

    /// The adapter has no power: its connections end as when it has [gone](Port::abort), and none begins until [`Port::resume`]. Addresses
    /// and listeners stay; who connects to one finds no host.
    ///
    /// Callable with no lock held at `IRQL <= DISPATCH_LEVEL`.
    pub fn suspend(&self) {
        self.connections.with(|connections| connections.suspend(true));
        // From here on no connection is added.
        self.each_line(|connection| connection.abort(self));
    }

    /// The adapter has power again.
    pub fn resume(&self) {
        self.connections.with(|connections| connections.suspend(false));
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.connections.with(|connections| connections.is_suspended())
    }

    /// Breaks every connection, as if a cable were pulled and put back. For tests of consumers.
    pub fn lose_connections(&self) {
        self.each_line(Party::break_off);
    }

    /// Calls `each` with what is listed, with no lock held.
    fn each_line(&self, each: impl Fn(&Party<O>)) {
        let result = listing::list(&self.connections, ConnectionRow::connection, |connection| {
            each(&connection);
            Ok::<_, core::convert::Infallible>(())
        });
        match result {
            Ok(()) => {}
        }
    }

    /// Returns the limits that the port was made with.
    #[must_use]
    pub const fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// Returns the connection counters.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.counters.now()
    }

    /// Gives `sink` every active connection, with no lock held. What changes meanwhile may be shown or not.
    ///
    /// # Errors
    ///
    /// The first of `sink`, which is not called again then.
    pub fn connections<E>(&self, sink: impl FnMut(ConnectionEntry) -> Result<(), E>) -> Result<(), E> {
        listing::list(&self.connections, ConnectionRow::visible, sink)
    }

    /// Gives `sink` the endpoint of every listener and shared endpoint, as [`Port::connections`] does. A closed one is
    /// there as long as connectors keep its port in use.
    ///
    /// # Errors
    ///
    /// The first of `sink`, which is not called again then.
    pub fn endpoints<E>(&self, sink: impl FnMut(EndpointEntry) -> Result<(), E>) -> Result<(), E> {
        listing::list(&self.endpoints, |entry| Some(*entry), sink)
    }

    pub(super) fn os(&self) -> &O {
        self.fabric.os()
    }

    pub(super) fn fabric(&self) -> &Fabric<O> {
        &self.fabric
    }

    /// The link that the port is on.
    pub(super) const fn link(&self) -> u32 {
        self.link
    }

    pub(super) const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Returns true if the adapter has this address.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.with(|own| own.list.iter().any(|local| local.interface.address == address))
    }

    /// The adapter's address of this IP address.
    pub(super) fn local_address(&self, address: IpAddr) -> Option<Arc<LocalAddress<O>>> {
        self.addresses.with(|own| own.list.iter().find(|local| local.interface.address == address).cloned())
    }

    /// Opens an endpoint for a connector. No list shows it.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` if the address is none of the adapter's, which holds for wildcards and for scope ids of other
    /// links too; `STATUS_SHARING_VIOLATION`, `STATUS_TOO_MANY_ADDRESSES`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub(super) fn open_endpoint(this: &Arc<Self>, address: SocketAddr) -> Result<Endpoint<O>, NtStatus> {
        let own = this.local_address(address.ip()).ok_or(NtStatus::INVALID_ADDRESS)?;
        let local = own.interface.endpoint(address.port(), scope_of(address)).ok_or(NtStatus::INVALID_ADDRESS)?;
        Endpoint::try_new(this, own, local)
    }

    /// As [`Port::open_endpoint`], for an endpoint that the list of endpoints shows.
    pub(super) fn open_listed_endpoint(
        this: &Arc<Self>,
        address: SocketAddr,
        kind: EndpointKind,
        owner: Owner,
    ) -> Result<Endpoint<O>, NtStatus> {
        let mut endpoint = Self::open_endpoint(this, address)?;
        let entry = EndpointEntry { local: endpoint.local(), kind, owner };
        let number = this.endpoints.with(|rows| rows.try_insert(entry))?;
        endpoint.set_listed(number);
        Ok(endpoint)
    }
}

impl<O: Os> Drop for Port<O> {
    fn drop(&mut self) {
        self.detach();
    }
}
