//! Sockets: made, and what functions each kind has.

use std::ffi::c_void;

use ndis::{
    IPPROTO_TCP, IPPROTO_UDP, IRP, PFN_WSK_RECEIVE_FROM_EVENT, SOCK_DGRAM, SOCK_STREAM, WSK_CLIENT_CONNECTION_DISPATCH,
    WSK_CLIENT_DATAGRAM_DISPATCH, WSK_EVENT_ACCEPT, WSK_EVENT_RECEIVE_FROM, WSK_FLAG_BASIC_SOCKET,
    WSK_FLAG_CONNECTION_SOCKET, WSK_FLAG_DATAGRAM_SOCKET, WSK_FLAG_LISTEN_SOCKET, WSK_PROVIDER_BASIC_DISPATCH,
    WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_PROVIDER_LISTEN_DISPATCH,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR, WSK_CLIENT};
use wdk_bindings::PVOID;

use super::{
    address, arrival,
    buffer::present,
    clients::{Clients, captured},
    close, connect, connected,
    connection::Connection,
    control, indication, listen,
    make::{Wanted, callbacks_of_connection, callbacks_of_listener, check_callbacks},
    receive,
    request::{self, Call},
    send,
    sockets::{Datagrams, EVENTS_OF_CONNECTIONS, Listening, Role, Sockets, address_of},
};
use crate::{argument::Argument, context, report::bug_check, rule::Rule, state::State, tracked};

/// What every socket has.
const BASIC: WSK_PROVIDER_BASIC_DISPATCH = WSK_PROVIDER_BASIC_DISPATCH {
    WskControlSocket: Some(control::control_socket),
    WskCloseSocket: Some(close::close_socket),
};

static OF_BASIC: WSK_PROVIDER_BASIC_DISPATCH = BASIC;

static OF_DATAGRAMS: WSK_PROVIDER_DATAGRAM_DISPATCH = WSK_PROVIDER_DATAGRAM_DISPATCH {
    Basic: BASIC,
    WskBind: Some(address::bind_datagrams),
    WskSendTo: Some(send::send_to),
    WskReceiveFrom: Some(receive::receive_from),
    WskRelease: Some(indication::release),
    WskGetLocalAddress: Some(address::get_local_address),
    WskSendMessages: Some(send::send_messages),
};

static OF_LISTENING: WSK_PROVIDER_LISTEN_DISPATCH = WSK_PROVIDER_LISTEN_DISPATCH {
    Basic: BASIC,
    WskBind: Some(listen::bind),
    WskAccept: Some(listen::accept),
    WskInspectComplete: Some(listen::inspect_complete),
    WskGetLocalAddress: Some(address::get_local_address),
};

/// The callback that a client has for its datagrams.
fn callback_of(table: *const WSK_CLIENT_DATAGRAM_DISPATCH) -> Option<PFN_WSK_RECEIVE_FROM_EVENT> {
    if table.is_null() {
        return None;
    }
    present(table.addr(), "the dispatch table of a socket");
    // SAFETY: the client's table, which stays until the socket is closed.
    unsafe { table.read() }.WskReceiveFromEvent
}

/// What a socket is made with, besides what it is for.
fn wanted(
    state: &State,
    client: *mut WSK_CLIENT,
    family: u16,
    socket_context: PVOID,
    functions: *const c_void,
    events: u32,
) -> Wanted {
    if !socket_context.is_null() {
        tracked::check_memory_of(socket_context.addr(), "context of a socket");
    }
    let (device, fixed) = {
        let clients = state.locked::<Clients>();
        let client = &clients.registered[&client.addr()];
        (client.device.clone(), client.static_events)
    };
    Wanted {
        client: client.addr(),
        owner: context::caller(),
        family,
        context: Argument::of(socket_context),
        device,
        events: fixed & events,
        functions,
    }
}

pub unsafe extern "system" fn socket(
    client: *mut WSK_CLIENT,
    family: u16,
    kind: u16,
    protocol: u32,
    flags: u32,
    socket_context: PVOID,
    dispatch: *const c_void,
    _process: PVOID,
    _thread: PVOID,
    security: PVOID,
    irp: *mut IRP,
) -> NtStatus {
    request::function("WskSocket", |state| {
        captured(state, client, "WskSocket");
        let is_known = match flags {
            WSK_FLAG_BASIC_SOCKET => {
                [(SOCK_DGRAM, IPPROTO_UDP), (SOCK_STREAM, IPPROTO_TCP)].contains(&(kind, protocol))
            }
            WSK_FLAG_DATAGRAM_SOCKET => (kind, protocol) == (SOCK_DGRAM, IPPROTO_UDP),
            WSK_FLAG_LISTEN_SOCKET | WSK_FLAG_CONNECTION_SOCKET => (kind, protocol) == (SOCK_STREAM, IPPROTO_TCP),
            _ => false,
        };
        if !is_known || ![AF_INET, AF_INET6].contains(&family) || !security.is_null() {
            let words = format_args!("a socket of type {kind}, protocol {protocol}, flags {flags:#x}, family {family}");
            bug_check(Rule::NotSimulated, words);
        }
        let (role, functions, events): (_, *const c_void, _) = match flags {
            WSK_FLAG_DATAGRAM_SOCKET => {
                let datagrams = Datagrams { callback: callback_of(dispatch.cast()), ..Datagrams::default() };
                let role = Role::Datagrams(Box::new(datagrams));
                (role, (&raw const OF_DATAGRAMS).cast(), WSK_EVENT_RECEIVE_FROM)
            }
            WSK_FLAG_LISTEN_SOCKET => {
                let callbacks = callbacks_of_listener(dispatch.cast());
                let listening = Listening { callbacks, accepts: [].into(), waiting: [].into(), host: None };
                let events = WSK_EVENT_ACCEPT | EVENTS_OF_CONNECTIONS;
                (Role::Listening(Box::new(listening)), (&raw const OF_LISTENING).cast(), events)
            }
            WSK_FLAG_CONNECTION_SOCKET => {
                let connection = Connection::new(callbacks_of_connection(dispatch.cast()));
                let functions = (&raw const connected::FUNCTIONS).cast();
                (Role::Connection(Box::new(connection)), functions, EVENTS_OF_CONNECTIONS)
            }
            _ => {
                if !dispatch.is_null() || !socket_context.is_null() {
                    bug_check(Rule::BadArgument, format_args!("a basic socket with callbacks or a context"));
                }
                (Role::Basic, (&raw const OF_BASIC).cast(), 0)
            }
        };
        let wanted = wanted(state, client, family, socket_context, functions, events);
        let (device, fixed) = (wanted.device.clone(), wanted.events);
        let call = Call::new(state, &device, irp, "WskSocket");
        if state.strikes() {
            return call.end(state, NtStatus::INSUFFICIENT_RESOURCES, 0);
        }
        arrival::begin(state);
        let address = state.make_socket(wanted, role);
        if let Some(socket) = state.locked::<Sockets>().0.get(&address) {
            check_callbacks(socket, fixed);
        }
        call.end(state, NtStatus::SUCCESS, address)
    })
}

pub unsafe extern "system" fn socket_connect(
    client: *mut WSK_CLIENT,
    kind: u16,
    protocol: u32,
    local: *mut SOCKADDR,
    remote: *mut SOCKADDR,
    flags: u32,
    socket_context: PVOID,
    dispatch: *const WSK_CLIENT_CONNECTION_DISPATCH,
    _process: PVOID,
    _thread: PVOID,
    security: PVOID,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSocketConnect";
    request::function(NAME, |state| {
        captured(state, client, NAME);
        request::no_flags(flags, NAME);
        if (kind, protocol) != (SOCK_STREAM, IPPROTO_TCP) || !security.is_null() {
            bug_check(Rule::NotSimulated, format_args!("{NAME} of type {kind}, protocol {protocol}"));
        }
        present(local.addr(), "an address");
        // SAFETY: the client's structure, of which the family comes first.
        let family = unsafe { local.cast::<u16>().read_unaligned() };
        let (from, to) = (address_of(local, family, NAME), address_of(remote, family, NAME));
        let connection = Connection::new(callbacks_of_connection(dispatch));
        let functions = (&raw const connected::FUNCTIONS).cast();
        let wanted = wanted(state, client, family, socket_context, functions, EVENTS_OF_CONNECTIONS);
        let (device, fixed) = (wanted.device.clone(), wanted.events);
        let call = Call::new(state, &device, irp, NAME);
        if state.strikes() {
            return call.end(state, NtStatus::INSUFFICIENT_RESOURCES, 0);
        }
        arrival::begin(state);
        let address = state.make_socket(wanted, Role::Connection(Box::new(connection)));
        if let Some(socket) = state.locked::<Sockets>().0.get(&address) {
            check_callbacks(socket, fixed);
        }
        if let Err(status) = address::bind_to_connect(state, address, from) {
            state.free_socket(address);
            return call.end(state, status, 0);
        }
        connect::connect_socket(state, call, address, to, None, true)
    })
}
