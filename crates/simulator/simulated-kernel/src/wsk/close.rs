//! The close of sockets.

use std::sync::Arc;

use ndis::{IRP, WSK_SOCKET};
use ndkpi::NtStatus;

use super::{
    connection::{Connection, Stage},
    request::{self, Call, Pended},
    sockets::{Role, Socket, Sockets},
    status::CANCELLED,
    stream::{By, end},
};
use crate::{report::bug_check, rule::Rule, state::State};

pub unsafe extern "system" fn close_socket(socket: *mut WSK_SOCKET, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "WskCloseSocket";
    request::function(NAME, |state| {
        let (device, calls, kept) = state.with_socket(socket, NAME, |socket| {
            // What a callback has that runs is waited for.
            let kept = socket.kept.values().filter(|list| !list.is_shown).count();
            (socket.device.clone(), socket.calls, kept)
        });
        if calls > 0 {
            let words = format_args!("WskCloseSocket while {calls} calls of the socket's functions have not returned");
            bug_check(Rule::WskSocketState, words);
        }
        if kept > 0 {
            let words = format_args!("WskCloseSocket with {kept} lists of what has come that were not released");
            bug_check(Rule::WskIndication, words);
        }
        let call = Call::new(state, &device, irp, NAME);
        let idle = state.with_socket(socket, NAME, |socket| {
            socket.is_closing = true;
            !socket.events.run() && is_idle(socket)
        });
        let address = socket.addr();
        if idle && !state.has_requests(address) && state.at_once() {
            let status = call.end_now(state, NtStatus::SUCCESS, 0);
            state.free_socket(address);
            return status;
        }
        let call = call.pend(state);
        state.after(state.a_while(), move |state| finish_close(state, address, call));
        NtStatus::PENDING
    })
}

/// Returns true if nothing of a socket has to be brought to an end.
fn is_idle(socket: &Socket) -> bool {
    match &socket.role {
        Role::Basic => true,
        Role::Datagrams(datagrams) => datagrams.receives.is_empty(),
        Role::Listening(listening) => listening.accepts.is_empty() && listening.waiting.is_empty(),
        Role::Connection(connection) => is_over(connection),
    }
}

/// Returns true if a connection has ended in both directions, or was never there.
fn is_over(connection: &Connection) -> bool {
    match connection.stage {
        Stage::Apart | Stage::Over(_) => true,
        Stage::Connecting(_) => false,
        Stage::Connected => connection.is_finished(),
    }
}

/// Cancels what is out, waits for callbacks that run, and completes the close.
fn finish_close(state: &Arc<State>, address: usize, call: Pended) {
    cancel_requests(state, address);
    let runs = state.locked::<Sockets>().0.get(&address).is_some_and(|socket| socket.events.run());
    if runs || state.has_requests(address) {
        state.after(1 + state.a_while(), move |state| finish_close(state, address, call));
        return;
    }
    call.end(state, NtStatus::SUCCESS, 0);
    state.free_socket(address);
}

/// Cancels the requests of a socket, and drops its connection, or those that nobody has accepted.
fn cancel_requests(state: &Arc<State>, address: usize) {
    state.end_receives(address, CANCELLED);
    let (accepts, waiting, is_connected) = {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return };
        let is_connected = socket.connection().map(|connection| !is_over(connection));
        let listening = socket.listening();
        let (accepts, waiting) = listening.map_or_else(Default::default, |listening| {
            (std::mem::take(&mut listening.accepts), std::mem::take(&mut listening.waiting))
        });
        (accepts, waiting, is_connected)
    };
    for accept in accepts {
        accept.pended.end(state, CANCELLED, 0);
    }
    for unaccepted in waiting {
        end(state, unaccepted, CANCELLED, By::Us);
        state.free_socket(unaccepted);
    }
    if let Some(is_connected) = is_connected {
        end(state, address, CANCELLED, if is_connected { By::Us } else { By::Silence });
    }
}
