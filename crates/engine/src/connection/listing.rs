//! What `OID_NDK_CONNECTIONS` and `OID_NDK_LOCAL_ENDPOINTS` show (`NDIS-NDK 6`).
//!
//! The lists hold plain values, no references: being listed keeps nothing alive.

use core::{cell::Cell, net::SocketAddr};

use fallible::Shared;
use ndkpi::NtStatus;

use super::{Attachment, Owner};
use crate::{
    memory_status,
    os::{Os, SpinLock},
    slab::Slab,
};

/// Entries that are read while the lock of a list is held once.
const BATCH: usize = 16;

/// An active connection (`NDIS_NDK_CONNECTION_ENTRY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEntry {
    /// The address on the adapter that is asked.
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

/// A connection in the list of its adapter: hidden until it is established, so that establishing it needs no memory.
pub(super) struct ConnectionRow {
    entry: ConnectionEntry,
    active: Cell<bool>,
}

impl ConnectionRow {
    pub fn visible(&self) -> Option<ConnectionEntry> {
        self.active.get().then_some(self.entry)
    }
}

/// A connection's place in the list of its adapter, for as long as this lives.
pub(super) struct ListedConnection<O: Os> {
    attachment: Shared<Attachment<O>>,
    number: usize,
}

impl<O: Os> ListedConnection<O> {
    /// Puts the connection in the list, hidden.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(attachment: &Shared<Attachment<O>>, entry: ConnectionEntry) -> Result<Self, NtStatus> {
        let row = ConnectionRow { entry, active: Cell::new(false) };
        let number = attachment.connections.with(|rows| rows.try_insert(row)).map_err(memory_status)?;
        Ok(Self { attachment: attachment.clone(), number })
    }

    /// The connection is established.
    pub fn show(&self) {
        self.attachment.connections.with(|rows| {
            if let Some(row) = rows.get(self.number) {
                row.active.set(true);
            }
        });
    }
}

impl<O: Os> Drop for ListedConnection<O> {
    fn drop(&mut self) {
        self.attachment.connections.with(|rows| rows.remove(self.number));
    }
}

/// Gives `sink` what `pick` makes of the rows, a few at a time, with no lock held while `sink` runs.
///
/// Rows that come or go meanwhile may be shown or not.
pub(super) fn list<Row, T: Copy, E>(
    rows: &impl SpinLock<Slab<Row>>,
    pick: impl Fn(&Row) -> Option<T>,
    mut sink: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = 0;
    loop {
        let mut batch = [None; BATCH];
        let done = rows.with(|rows| {
            let end = rows.bound().min(next + BATCH);
            for (place, number) in batch.iter_mut().zip(next..end) {
                *place = rows.get(number).and_then(&pick);
            }
            next = end;
            end == rows.bound()
        });
        for entry in batch.into_iter().flatten() {
            sink(entry)?;
        }
        if done {
            return Ok(());
        }
    }
}
