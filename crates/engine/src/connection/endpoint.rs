//! Endpoints: which ports of an adapter's address are in use, and by whom (`NDKPI 7.8`).
//!
//! An endpoint is a [`Claim`] on a port. It lies in what the endpoint belongs to (a connector, a listener, a shared endpoint)
//! and is given back when that is closed for good: connectors refer to the listener or shared endpoint they came from, so
//! that the references of `NDKPI 7.8` need no counter of their own.

use alloc::boxed::Box;
use core::net::SocketAddr;

use fallible::{AllocError, Arc, try_slice};
use ndkpi::NtStatus;

use super::{Attachment, InterfaceAddress, Listener, ephemeral::EphemeralPorts};
use crate::{
    memory_status,
    os::{Os, SpinLock},
};

/// Ports of one page of the table.
const PAGE: usize = 256;

/// What is at a port.
enum Use<O: Os> {
    /// Nothing.
    Free,
    /// An endpoint that takes no connections.
    Taken,
    /// A listener.
    Listener(Arc<Listener<O>>),
}

type Page<O> = Box<[Use<O>]>;

/// The ports of one address: a table of pages, because a look-up and a change take the same short time whatever is in use.
struct Ports<O: Os> {
    pages: Box<[Option<Page<O>>]>,
    ephemeral: EphemeralPorts,
}

impl<O: Os> Ports<O> {
    fn try_new() -> Result<Self, AllocError> {
        Ok(Self { pages: try_slice(PAGE, |_| None)?, ephemeral: EphemeralPorts::try_new()? })
    }

    fn place(&mut self, port: u16) -> Option<&mut Use<O>> {
        let [page, place] = port.to_be_bytes().map(usize::from);
        self.pages[page].as_mut().map(|page| &mut page[place])
    }

    fn claim(&mut self, port: u16) -> Result<(), NtStatus> {
        let [page, _] = port.to_be_bytes().map(usize::from);
        if self.pages[page].is_none() {
            self.pages[page] = Some(try_slice(PAGE, |_| Use::Free).map_err(memory_status)?);
        }
        match self.place(port) {
            Some(place @ Use::Free) => *place = Use::Taken,
            _ => return Err(NtStatus::SHARING_VIOLATION),
        }
        self.ephemeral.take(port, true);
        Ok(())
    }

    fn claim_ephemeral(&mut self) -> Result<u16, NtStatus> {
        let port = self.ephemeral.find().ok_or(NtStatus::TOO_MANY_ADDRESSES)?;
        self.claim(port).map(|()| port)
    }

    fn replace(&mut self, port: u16, with: Use<O>) -> Option<Use<O>> {
        self.ephemeral.take(port, !matches!(with, Use::Free));
        self.place(port).map(|place| core::mem::replace(place, with))
    }
}

/// One address of an adapter.
pub(super) struct LocalAddress<O: Os> {
    pub interface: InterfaceAddress,
    ports: O::Lock<Ports<O>>,
}

impl<O: Os> LocalAddress<O> {
    pub fn try_new(os: &O, interface: InterfaceAddress) -> Result<Arc<Self>, NtStatus> {
        let ports = os.lock(Ports::try_new().map_err(memory_status)?)?;
        Arc::try_new(Self { interface, ports }).map_err(memory_status)
    }

    /// The listener at `port`, if one listens.
    pub fn listener(&self, port: u16) -> Option<Arc<Listener<O>>> {
        self.ports.with(|ports| match ports.place(port) {
            Some(Use::Listener(listener)) => Some(listener.clone()),
            _ => None,
        })
    }
}

/// An endpoint: a port of an address that nobody else can use as long as this lives.
pub(super) struct Claim<O: Os> {
    attachment: Arc<Attachment<O>>,
    address: Arc<LocalAddress<O>>,
    port: u16,
    /// The number in the list of endpoints.
    listed: Option<usize>,
}

impl<O: Os> Claim<O> {
    /// Takes `port`, or an ephemeral one if it is zero.
    ///
    /// # Errors
    ///
    /// `STATUS_SHARING_VIOLATION`, `STATUS_TOO_MANY_ADDRESSES`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        attachment: &Arc<Attachment<O>>,
        address: Arc<LocalAddress<O>>,
        port: u16,
    ) -> Result<Self, NtStatus> {
        let port = address.ports.with(|ports| match port {
            0 => ports.claim_ephemeral(),
            port => ports.claim(port).map(|()| port),
        })?;
        Ok(Self { attachment: attachment.clone(), address, port, listed: None })
    }

    /// Notes the number of the endpoint in its adapter's list.
    pub const fn set_listed(&mut self, number: usize) {
        self.listed = Some(number);
    }

    /// The address and port.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.address.interface.address, self.port)
    }

    /// Lets connections to this endpoint come to `listener`.
    pub fn listen(&self, listener: Arc<Listener<O>>) {
        self.replace(Use::Listener(listener));
    }

    /// Lets no connections come any more. The port stays taken.
    ///
    /// The listener's reference is returned, to be dropped where no lock is held.
    pub fn deafen(&self) -> impl Sized + use<O> {
        self.replace(Use::Taken)
    }

    fn replace(&self, with: Use<O>) -> Option<Use<O>> {
        self.address.ports.with(|ports| ports.replace(self.port, with))
    }
}

impl<O: Os> Drop for Claim<O> {
    fn drop(&mut self) {
        if let Some(number) = self.listed {
            self.attachment.endpoints.with(|rows| rows.remove(number));
        }
        drop(self.replace(Use::Free));
    }
}
