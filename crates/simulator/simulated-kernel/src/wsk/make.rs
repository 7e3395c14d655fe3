//! Sockets that come and go, whatever they are for.

use std::ffi::c_void;

use litemap::LiteMap;
use ndis::{WSK_CLIENT_CONNECTION_DISPATCH, WSK_CLIENT_LISTEN_DISPATCH, WSK_SOCKET};

use super::{
    buffer::present,
    request,
    sockets::{Events, Role, Socket, Sockets},
};
use crate::{
    argument::Argument, context::DriverId, report::bug_check, rule::Rule, state::State, wdm::io::device::Device,
};

/// What a new socket is of.
pub struct Wanted {
    /// The client, by its number.
    pub client: usize,
    pub owner: DriverId,
    pub family: u16,
    pub context: Argument,
    pub device: std::sync::Arc<Device>,
    /// The events that are on for good.
    pub events: u32,
    /// Its functions.
    pub functions: *const c_void,
}

/// The callbacks that a client has for its connection: none if it has no table.
pub fn callbacks_of_connection(table: *const WSK_CLIENT_CONNECTION_DISPATCH) -> WSK_CLIENT_CONNECTION_DISPATCH {
    if table.is_null() {
        return WSK_CLIENT_CONNECTION_DISPATCH {
            WskReceiveEvent: None,
            WskDisconnectEvent: None,
            WskSendBacklogEvent: None,
        };
    }
    present(table.addr(), "the dispatch table of a socket");
    // SAFETY: the client's table, which stays until the socket is closed.
    unsafe { table.read() }
}

/// The callbacks that a client has for its socket that listens: none if it has no table.
pub fn callbacks_of_listener(table: *const WSK_CLIENT_LISTEN_DISPATCH) -> WSK_CLIENT_LISTEN_DISPATCH {
    if table.is_null() {
        return WSK_CLIENT_LISTEN_DISPATCH { WskAcceptEvent: None, WskInspectEvent: None, WskAbortEvent: None };
    }
    present(table.addr(), "the dispatch table of a socket");
    // SAFETY: the client's table, which stays until the socket is closed.
    unsafe { table.read() }
}

/// Ends the test if an event is on for good that has no callback.
pub fn check_callbacks(socket: &Socket, events: u32) {
    if !socket.has_callbacks(events) {
        let words = "an event is enabled for all sockets, or for all that a listening one accepts, and has no callback";
        bug_check(Rule::BadArgument, format_args!("{words}"));
    }
}

impl State {
    /// Makes a socket, and returns the address of its structure.
    pub fn make_socket(&self, wanted: Wanted, role: Role) -> usize {
        let address = request::block(size_of::<WSK_SOCKET>());
        let place: *mut WSK_SOCKET = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: a new block with room for it.
        unsafe { place.write(WSK_SOCKET { Dispatch: wanted.functions }) };
        let made = Socket {
            client: wanted.client,
            owner: wanted.owner,
            family: wanted.family,
            context: wanted.context,
            device: wanted.device,
            local: None,
            events: Events::fixed(wanted.events),
            calls: 0,
            kept: LiteMap::new(),
            options: LiteMap::new(),
            is_broken: false,
            is_closing: false,
            role,
        };
        self.locked::<Sockets>().0.insert(address, made);
        address
    }

    /// A socket is not there any more.
    pub fn free_socket(&self, address: usize) {
        let gone = self.locked::<Sockets>().0.remove(&address);
        if let Some(gone) = gone {
            if !gone.kept.is_empty() {
                bug_check(
                    Rule::WskIndication,
                    format_args!("a callback kept what has come, and its socket was closed"),
                );
            }
            request::free_block(address);
        }
        self.dispatcher.signal();
    }
}
