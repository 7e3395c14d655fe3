//! What `OID_NDK_CONNECTIONS` and `OID_NDK_LOCAL_ENDPOINTS` show (`NDIS-NDK 6`).
//!
//! Listeners and shared endpoints are listed as plain values, which keep nothing alive. A connection's row refers to it, so that
//! an adapter that goes finds the connections to end. The row goes with the connection, at the latest when its connector is
//! closed.

use core::net::SocketAddr;

use fallible::Arc;
use ntstatus::NtStatus;

use super::{Owner, Port, remote::Party};
use crate::{
    os::{Os, SpinLock},
    slab::Slab,
};

/// The most entries that are read under one hold of a list's lock. They lie on the stack, and a kernel's is small.
const BATCH: usize = 8;

/// An active connection (`NDIS_NDK_CONNECTION_ENTRY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEntry {
    /// The address on this adapter.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Whose connector it is.
    pub owner: Owner,
}

/// What an endpoint in a listing belongs to. Endpoints of connectors are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// A listener.
    Listener,
    /// A shared endpoint.
    Shared,
}

/// A local endpoint (`NDIS_NDK_LOCAL_ENDPOINT_ENTRY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointEntry {
    /// The address.
    pub local: SocketAddr,
    /// What it belongs to.
    pub kind: EndpointKind,
    /// Whose it is.
    pub owner: Owner,
}

/// The connections of an adapter, established or on their way.
pub(super) struct Connections<O: Os> {
    rows: Slab<ConnectionRow<O>>,
    /// The adapter has gone: no connection is added any more.
    shut: bool,
    /// The adapter has no power: no connection is added until it has.
    suspended: bool,
}

impl<O: Os> Connections<O> {
    pub const fn new() -> Self {
        Self { rows: Slab::new(), shut: false, suspended: false }
    }

    pub const fn shut(&mut self) {
        self.shut = true;
    }

    pub const fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    pub const fn is_suspended(&self) -> bool {
        self.suspended
    }
}

/// A connection in the list of its adapter: hidden until it is established, so that establishing it needs no memory.
pub(super) struct ConnectionRow<O: Os> {
    entry: ConnectionEntry,
    active: bool,
    connection: Option<Party<O>>,
}

impl<O: Os> ConnectionRow<O> {
    pub fn visible(&self) -> Option<ConnectionEntry> {
        self.active.then_some(self.entry)
    }

    pub fn connection(&self) -> Option<Party<O>> {
        self.connection.clone()
    }
}

/// A connection's row in the list of its adapter. Dropping this removes the row.
pub(super) struct ListedConnection<O: Os> {
    port: Arc<Port<O>>,
    number: usize,
}

impl<O: Os> ListedConnection<O> {
    /// Puts the connection in the list, hidden.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(port: &Arc<Port<O>>, entry: ConnectionEntry) -> Result<Self, NtStatus> {
        let row = ConnectionRow { entry, active: false, connection: None };
        let number = port.connections.with(|list| list.rows.try_insert(row))?;
        Ok(Self { port: port.clone(), number })
    }

    /// From here on the connection ends when the adapter goes. Called under the connection's lock.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED` if the adapter has gone, or has no power.
    pub fn attach(&self, connection: Party<O>) -> Result<(), NtStatus> {
        // What is not used is dropped after the lock is released.
        let unused = self.port.connections.with(|list| {
            if list.shut || list.suspended {
                return Err(connection);
            }
            if let Some(row) = list.rows.get_mut(self.number) {
                row.connection = Some(connection);
            }
            Ok(())
        });
        unused.map_err(|_| NtStatus::DEVICE_REMOVED)
    }

    /// The connection is established.
    pub fn show(&self) {
        self.port.connections.with(|list| {
            if let Some(row) = list.rows.get_mut(self.number) {
                row.active = true;
            }
        });
    }
}

impl<O: Os> Drop for ListedConnection<O> {
    fn drop(&mut self) {
        // The reference to the connection is dropped after the lock is released.
        drop(self.port.connections.with(|list| list.rows.remove(self.number)));
    }
}

/// Something with numbered rows.
pub(super) trait Rows {
    type Row;

    fn rows(&self) -> &Slab<Self::Row>;
}

impl<O: Os> Rows for Connections<O> {
    type Row = ConnectionRow<O>;

    fn rows(&self) -> &Slab<Self::Row> {
        &self.rows
    }
}

impl Rows for Slab<EndpointEntry> {
    type Row = EndpointEntry;

    fn rows(&self) -> &Self {
        self
    }
}

/// Gives `sink` what `pick` makes of the rows, a few at a time, with no lock held while `sink` runs.
///
/// Rows that come or go meanwhile may be shown or not.
pub(super) fn list<List: Rows, T, E>(
    list: &impl SpinLock<List>,
    pick: impl Fn(&List::Row) -> Option<T>,
    mut sink: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = 0;
    loop {
        let mut batch = [const { None }; BATCH];
        let done = list.with(|list| {
            let rows = list.rows();
            let end = rows.bound().min(next + BATCH);
            for (place, number) in batch.iter_mut().zip(next..end) {
                *place = rows.get(number).and_then(&pick);
            }
            next = end;
            end == rows.bound()
        });
        // In place: an iterator of its own would be a second batch on the stack.
        for place in &mut batch {
            if let Some(entry) = place.take() {
                sink(entry)?;
            }
        }
        if done {
            return Ok(());
        }
    }
}
