//! A connection at work: what it tells the other side, and how it ends.

use std::sync::Arc;

use ndkpi::NtStatus;

use super::{
    connection::{Connect, Connection, News, Stage},
    segment::Segment,
    sockets::{Socket, Sockets},
};
use crate::state::State;

impl State {
    /// The number of a new connection, which no other one has, of whatever machine.
    pub fn new_connection(&self) -> u64 {
        self.machine.random() ^ self.next() << 32
    }
}

/// Does something with a socket's connection, if the socket is there and has one.
pub fn with_connection<R>(state: &State, address: usize, work: impl FnOnce(&mut Connection) -> R) -> Option<R> {
    state.locked::<Sockets>().0.get_mut(&address).and_then(Socket::connection).map(work)
}

/// Tells the other side something.
pub fn tell(state: &Arc<State>, address: usize, segment: Segment) {
    let way = {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return };
        let local = socket.local;
        let Some(connection) = socket.connection() else { return };
        if let Some(host) = &connection.host {
            return host.give(segment);
        }
        local.zip(connection.remote).map(|way| (way, connection.id))
    };
    if let Some(((local, remote), id)) = way {
        state.carry_segment(local, remote, &segment.encode(id));
    }
}

/// Who ends a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// This side: the other one is told.
    Us,
    /// The other side.
    Them,
    /// Nobody: the other side is not there any more.
    Silence,
}

/// Ends a connection, with all its requests. Who gives out what has come tells the client.
pub fn end(state: &Arc<State>, address: usize, status: NtStatus, by: By) {
    if by == By::Us {
        tell(state, address, Segment::Reset);
    }
    let Some(ended) = with_connection(state, address, |connection| {
        let (out, incoming) = (&mut connection.outgoing, &mut connection.incoming);
        if matches!(connection.stage, Stage::Over(_)) {
            return None;
        }
        incoming.arrived.clear();
        if by != By::Us && incoming.news == News::None {
            incoming.news = News::Reset;
        }
        let sends = std::mem::take(&mut out.sends);
        let receives = std::mem::take(&mut incoming.receives);
        let stage = std::mem::replace(&mut connection.stage, Stage::Over(status));
        Some((stage, sends, receives, out.disconnect.take(), connection.host.take()))
    })
    .flatten() else {
        return;
    };
    let (stage, sends, receives, disconnect, host) = ended;
    drop(host);
    if let Stage::Connecting(connect) = stage {
        connect.pended.end(state, status, 0);
    }
    for send in sends {
        send.finish(state, status);
    }
    for receive in receives {
        receive.pended.end(state, status, 0);
    }
    if let Some(disconnect) = disconnect {
        disconnect.end(state, status, 0);
    }
}

/// Takes the request to connect of a socket that waits for the other side, which has that stage from here on.
pub fn take_connect(state: &State, address: usize, id: u64, stage: Stage) -> Option<Connect> {
    with_connection(state, address, |connection| {
        if connection.id != id || !matches!(connection.stage, Stage::Connecting(_)) {
            return None;
        }
        match std::mem::replace(&mut connection.stage, stage) {
            Stage::Connecting(connect) => Some(connect),
            _ => None,
        }
    })
    .flatten()
}
