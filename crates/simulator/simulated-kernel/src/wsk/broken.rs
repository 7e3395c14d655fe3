//! Sockets that are no longer functional.

use std::sync::Arc;

use super::{
    indication, listen,
    sockets::{Role, Sockets},
    status::FILE_FORCED_CLOSED,
    stream::{By, end},
    stream_receive,
};
use crate::{context, netio::network::Network, state::State};

impl Network {
    /// Every socket of Winsock Kernel is no longer functional, as when its transport goes: its client has to close it.
    pub fn break_sockets(&self) {
        let _inside = context::Inside::new("the network stack");
        break_sockets(self.state());
    }
}

fn break_sockets(state: &Arc<State>) {
    let addresses: Vec<usize> = state.locked::<Sockets>().0.keys().copied().collect();
    for address in addresses {
        if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
            socket.is_broken = true;
        }
        state.after(state.a_while(), move |state| {
            let is_there = |fits: fn(&Role) -> bool| {
                state.locked::<Sockets>().0.get(&address).is_some_and(|socket| fits(&socket.role))
            };
            if is_there(|role| matches!(role, Role::Datagrams(_))) {
                state.end_receives(address, FILE_FORCED_CLOSED);
                indication::tell_of_end(state, address);
            } else if is_there(|role| matches!(role, Role::Listening(_))) {
                listen::tell_of_break(state, address, FILE_FORCED_CLOSED);
            } else if is_there(|role| matches!(role, Role::Connection(_))) {
                end(state, address, FILE_FORCED_CLOSED, By::Silence);
                stream_receive::tell_of_break(state, address);
            }
        });
    }
}
