//! Who is told what happens to connections.

use alloc::boxed::Box;
use core::net::SocketAddr;

use fallible::{AllocError, Arc, try_slice};
use roce::cm::EventKind;

use super::Wire;
use crate::os::Os;

/// Someone whose connection goes over the wire.
pub(crate) trait Party: Send + Sync + 'static {
    /// Something has happened to the connection. Called at `DISPATCH_LEVEL` with no lock held, in the order of what has happened.
    fn event(&self, kind: EventKind);
}

/// What a peer has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub connection: u32,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Someone who takes requests for connections.
pub(crate) trait Acceptor<O: Os>: Send + Sync + 'static {
    /// A peer wants to connect. Whoever does not [adopt](Wire::adopt) the connection releases it. Called as [`Party::event`].
    fn requested(&self, wire: &Arc<Wire<O>>, wanted: Wanted);
}

type Place = Option<(u32, Arc<Box<dyn Party>>)>;

/// The parties of connections, at the places that the connections' names say.
pub(super) struct Parties {
    places: Box<[Place]>,
}

impl Parties {
    /// For a connection manager of so many connections.
    pub fn try_new(connections: usize) -> Result<Self, AllocError> {
        Ok(Self { places: try_slice(connections.next_power_of_two().max(2), |_| None)? })
    }

    fn place(&mut self, connection: u32) -> Option<&mut Place> {
        let mask = self.places.len() - 1;
        self.places.get_mut(connection as usize & mask)
    }

    pub fn insert(&mut self, connection: u32, party: Arc<Box<dyn Party>>) {
        if let Some(place) = self.place(connection) {
            *place = Some((connection, party));
        }
    }

    pub fn get(&mut self, connection: u32) -> Option<Arc<Box<dyn Party>>> {
        let place = self.place(connection)?.as_ref()?;
        (place.0 == connection).then(|| place.1.clone())
    }

    pub fn remove(&mut self, connection: u32) -> Option<Arc<Box<dyn Party>>> {
        let place = self.place(connection)?.take_if(|place| place.0 == connection)?;
        Some(place.1)
    }

    /// All of them, without allocating.
    pub fn take_all(&mut self) -> Box<[Place]> {
        core::mem::take(&mut self.places)
    }
}
