//! Segments that have come: to the connection that they are of, or to the socket that listens.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ndkpi::NtStatus;

use super::{
    connect,
    connection::Stage,
    host_stream::Delivery,
    listen,
    medium::Carrier,
    program::{self, ProgramSockets},
    segment::Segment,
    sockets::{Role, Socket, Sockets},
    status::CONNECTION_RESET,
    stream::{By, end, tell, with_connection},
    stream_receive::feed,
    stream_send::acknowledged,
};
use crate::state::State;

/// There is a socket for streams: segments come here from now on.
pub fn begin(state: &State) {
    state.locked::<Carrier>().set_take_in(take_in);
    state.locked::<Delivery>().0 = Some(deliver);
}

/// A segment has come.
fn take_in(state: &Arc<State>, source: SocketAddr, destination: SocketAddr, bytes: &[u8]) {
    let Some((id, segment)) = Segment::decode(bytes) else { return };
    let connection = find(state, id, source, destination);
    let segment = if connection.is_some() {
        segment
    } else {
        let taken = state.locked::<ProgramSockets>().take_in((source, destination), id, segment);
        match taken {
            Ok(answers) => {
                for answer in answers {
                    state.carry_segment(destination, source, &answer.encode(id));
                }
                return program::watch(state);
            }
            // It is for no program.
            Err(segment) => segment,
        }
    };
    match (connection, segment) {
        (None, Segment::Open) => match listener_at(state, destination) {
            Some(listener) => listen::wanted(state, listener, id, (destination, source)),
            None if state.is_own(destination.ip()) => {
                state.carry_segment(destination, source, &Segment::Refused.encode(id));
            }
            // Nobody has the address.
            None => {}
        },
        // A request for a connection that is there is one that came twice.
        (Some(address), segment) => take(state, address, id, segment),
        (None, Segment::Opened | Segment::Data { .. } | Segment::End { .. }) => {
            state.carry_segment(destination, source, &Segment::Reset.encode(id));
        }
        (None, Segment::Refused | Segment::Taken { .. } | Segment::Reset) => {}
    }
}

/// Something has come over a connection of the host.
fn deliver(state: &Arc<State>, address: usize, id: u64, segment: Segment) {
    if with_connection(state, address, |connection| connection.id == id) == Some(true) {
        take(state, address, id, segment);
    }
}

/// The socket of a connection.
fn find(state: &State, id: u64, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
    let sockets = state.locked::<Sockets>();
    let is_it = |socket: &Socket| match &socket.role {
        Role::Connection(connection) => {
            let is_over = matches!(connection.stage, Stage::Apart | Stage::Over(_));
            !is_over && connection.id == id && connection.remote == Some(source) && socket.local == Some(destination)
        }
        _ => false,
    };
    sockets.0.iter().find(|(_, socket)| is_it(socket)).map(|(&address, _)| address)
}

/// The socket that listens at an address: the one that has it, one with a wildcard, or one with that of both families.
fn listener_at(state: &State, destination: SocketAddr) -> Option<usize> {
    let sockets = state.locked::<Sockets>();
    let bound_to = |wanted: IpAddr, fits: fn(&Socket) -> bool| {
        let wanted = Some(SocketAddr::new(wanted, destination.port()));
        let listens = |socket: &Socket| matches!(socket.role, Role::Listening(_)) && !socket.is_closing;
        let mut all = sockets.0.iter();
        all.find(|(_, socket)| socket.local == wanted && listens(socket) && fits(socket)).map(|(&address, _)| address)
    };
    let both: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let own = if destination.is_ipv4() { IpAddr::from([0_u8; 4]) } else { both };
    let exact = bound_to(destination.ip(), |_| true).or_else(|| bound_to(own, |_| true));
    exact.or_else(|| bound_to(both, Socket::is_dual))
}

/// A connection is told something.
fn take(state: &Arc<State>, address: usize, id: u64, segment: Segment) {
    match segment {
        Segment::Open => {}
        Segment::Opened => connect::opened(state, address, id),
        Segment::Refused => connect::failed(state, address, id, NtStatus::CONNECTION_REFUSED),
        Segment::Data { offset, bytes } => {
            let answer = with_connection(state, address, |connection| {
                connection.incoming.take_in(offset, bytes);
                connection.incoming.taken()
            });
            if let Some(answer) = answer {
                tell(state, address, answer);
            }
            feed(state, address);
        }
        Segment::End { offset } => {
            let answer = with_connection(state, address, |connection| {
                connection.incoming.end_at(offset);
                connection.incoming.taken()
            });
            if let Some(answer) = answer {
                tell(state, address, answer);
            }
            feed(state, address);
        }
        Segment::Taken { received, consumed } => acknowledged(state, address, received, consumed),
        Segment::Reset => {
            connect::failed(state, address, id, NtStatus::CONNECTION_REFUSED);
            if with_connection(state, address, |connection| matches!(connection.stage, Stage::Connected)) == Some(true)
            {
                end(state, address, CONNECTION_RESET, By::Them);
                feed(state, address);
            }
        }
    }
}
