//! Endpoints: which port numbers of an address are in use, and by whom (`NDKPI 7.8`).
//!
//! An [`Endpoint`] is owned by the connector, listener or shared endpoint that opened it, and is given back when that is
//! released. Connectors refer to the listener or shared endpoint they came from, so that the references of `NDKPI 7.8` need
//! no counter of their own.

use alloc::boxed::Box;
use core::net::SocketAddr;

use fallible::{AllocError, Arc, try_slice};
use ntstatus::NtStatus;

use super::{InterfaceAddress, Listener, Port, ephemeral::EphemeralPorts};
use crate::os::{Os, SpinLock};

/// Port numbers of one page of the table.
const PAGE: usize = 256;

/// What a port number is used for.
enum PortUse<O: Os> {
    /// Nothing.
    Free,
    /// An endpoint that takes no connections: a connector, a shared endpoint, a closed listener.
    Taken,
    /// A listener.
    Listener(Arc<Listener<O>>),
}

type Page<O> = Box<[PortUse<O>]>;

/// The port numbers of one address. A table of pages: a look-up and a change take the same short time whatever is in use.
struct PortTable<O: Os> {
    pages: Box<[Option<Page<O>>]>,
    ephemeral: EphemeralPorts,
}

impl<O: Os> PortTable<O> {
    fn try_new() -> Result<Self, AllocError> {
        Ok(Self { pages: try_slice(PAGE, |_| None)?, ephemeral: EphemeralPorts::try_new()? })
    }

    fn place(&mut self, number: u16) -> Option<&mut PortUse<O>> {
        let [page, place] = number.to_be_bytes().map(usize::from);
        self.pages[page].as_mut().map(|page| &mut page[place])
    }

    //= NDKPI 7.8.1
    fn claim(&mut self, number: u16) -> Result<(), NtStatus> {
        let [page, _] = number.to_be_bytes().map(usize::from);
        if self.pages[page].is_none() {
            self.pages[page] = Some(try_slice(PAGE, |_| PortUse::Free)?);
        }
        match self.place(number) {
            Some(place @ PortUse::Free) => *place = PortUse::Taken,
            _ => return Err(NtStatus::SHARING_VIOLATION),
        }
        self.ephemeral.take(number, true);
        Ok(())
    }

    fn claim_ephemeral(&mut self) -> Result<u16, NtStatus> {
        let number = self.ephemeral.find().ok_or(NtStatus::TOO_MANY_ADDRESSES)?;
        self.claim(number).map(|()| number)
    }

    fn replace(&mut self, number: u16, with: PortUse<O>) -> Option<PortUse<O>> {
        self.ephemeral.take(number, !matches!(with, PortUse::Free));
        self.place(number).map(|place| core::mem::replace(place, with))
    }
}

/// One address of an adapter.
pub(super) struct LocalAddress<O: Os> {
    /// The link that the adapter is on.
    pub link: u32,
    pub interface: InterfaceAddress,
    table: O::Lock<PortTable<O>>,
}

impl<O: Os> LocalAddress<O> {
    pub fn try_new(os: &O, link: u32, interface: InterfaceAddress) -> Result<Arc<Self>, NtStatus> {
        let table = os.lock(PortTable::try_new()?)?;
        Arc::try_new(Self { link, interface, table }).map_err(Into::into)
    }

    /// Returns the listener at port `number`, if one listens.
    pub fn listener(&self, number: u16) -> Option<Arc<Listener<O>>> {
        self.table.with(|table| match table.place(number) {
            Some(PortUse::Listener(listener)) => Some(listener.clone()),
            _ => None,
        })
    }
}

/// An endpoint: an address with a port number that nobody else can use as long as this lives.
pub(super) struct Endpoint<O: Os> {
    port: Arc<Port<O>>,
    address: Arc<LocalAddress<O>>,
    /// The address with the port number.
    local: SocketAddr,
    /// The row in the list of endpoints.
    listed: Option<usize>,
}

impl<O: Os> Endpoint<O> {
    /// Takes the port number of `local`, or an ephemeral one if that is zero. `local` is `address`, with its scope id.
    ///
    /// # Errors
    ///
    /// `STATUS_SHARING_VIOLATION`, `STATUS_TOO_MANY_ADDRESSES`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        port: &Arc<Port<O>>,
        address: Arc<LocalAddress<O>>,
        mut local: SocketAddr,
    ) -> Result<Self, NtStatus> {
        let number = address.table.with(|table| match local.port() {
            0 => table.claim_ephemeral(),
            number => table.claim(number).map(|()| number),
        })?;
        local.set_port(number);
        Ok(Self { port: port.clone(), address, local, listed: None })
    }

    /// Notes the row of the endpoint in its adapter's list.
    pub const fn set_listed(&mut self, number: usize) {
        self.listed = Some(number);
    }

    /// The address and port number, with the scope id if it is an address of a link.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends connection requests for this endpoint to `listener`.
    pub fn listen(&self, listener: Arc<Listener<O>>) {
        self.replace(PortUse::Listener(listener));
    }

    /// Takes no more connection requests. The port number stays taken.
    ///
    /// Returns the listener's reference, to be dropped where no lock is held.
    pub fn stop_listening(&self) -> impl Sized + use<O> {
        self.replace(PortUse::Taken)
    }

    fn replace(&self, with: PortUse<O>) -> Option<PortUse<O>> {
        self.address.table.with(|table| table.replace(self.local.port(), with))
    }
}

impl<O: Os> Drop for Endpoint<O> {
    fn drop(&mut self) {
        if let Some(number) = self.listed {
            self.port.endpoints.with(|rows| rows.remove(number));
        }
        drop(self.replace(PortUse::Free));
    }
}
