//! Who is told what happens to connections.

use alloc::boxed::Box;
use core::net::SocketAddr;

use fallible::{AllocError, Arc, try_slice};
use roce::cm::EventKind;

use super::Wire;
use crate::os::Os;

/// Someone whose connection goes over the wire.
pub trait Party: Send + Sync + 'static {
    /// Something has happened to the connection. Called at `DISPATCH_LEVEL` with no lock held, in the order of what has happened.
    fn event(&self, kind: EventKind);
}

/// What a peer has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub connection: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Someone who takes requests for connections.
pub trait Acceptor<O: Os>: Send + Sync + 'static {
    /// A peer wants to connect. Whoever does not [adopt](Wire::adopt) the connection releases it. Called as [`Party::event`].
    fn requested(&self, wire: &Arc<Wire<O>>, wanted: Wanted);
}

/// Who takes requests for connections.
pub type AcceptorRef<O> = Arc<Box<dyn Acceptor<O>>>;

type Slot = Option<(u32, Arc<Box<dyn Party>>)>;

/// The parties of connections, at the slots that the connections' names say.
pub(super) struct Parties {
    slots: Box<[Slot]>,
}

impl Parties {
    /// For a connection manager of so many connections.
    pub fn try_new(connections: usize) -> Result<Self, AllocError> {
        Ok(Self { slots: try_slice(connections.next_power_of_two().max(2), |_| None)? })
    }

    fn slot(&mut self, connection: u32) -> Option<&mut Slot> {
        // There are no slots any more once all were taken.
        let mask = self.slots.len().checked_sub(1)?;
        self.slots.get_mut(connection as usize & mask)
    }

    pub fn insert(&mut self, connection: u32, party: Arc<Box<dyn Party>>) {
        if let Some(slot) = self.slot(connection) {
            *slot = Some((connection, party));
        }
    }

    pub fn get(&mut self, connection: u32) -> Option<Arc<Box<dyn Party>>> {
        let slot = self.slot(connection)?.as_ref()?;
        (slot.0 == connection).then(|| slot.1.clone())
    }

    pub fn remove(&mut self, connection: u32) -> Option<Arc<Box<dyn Party>>> {
        let slot = self.slot(connection)?.take_if(|slot| slot.0 == connection)?;
        Some(slot.1)
    }

    /// All of them, without allocating.
    pub fn take_all(&mut self) -> Box<[Slot]> {
        core::mem::take(&mut self.slots)
    }
}
