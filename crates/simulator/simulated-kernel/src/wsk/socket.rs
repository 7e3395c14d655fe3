//! Datagram sockets: made, bound, asked for their address, and closed.

use std::{collections::VecDeque, ffi::c_void, sync::Arc};

use litemap::LiteMap;
use ndis::{
    IPPROTO_UDP, IRP, PFN_WSK_RECEIVE_FROM_EVENT, SOCK_DGRAM, WSK_CLIENT_DATAGRAM_DISPATCH, WSK_FLAG_DATAGRAM_SOCKET,
    WSK_PROVIDER_BASIC_DISPATCH, WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_SOCKET,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR, WSK_CLIENT};
use wdk_bindings::PVOID;

use super::{
    buffer::present,
    clients::{Clients, captured},
    control, indication, receive,
    request::{self, Call},
    send,
    sockets::{self, Event, Socket, Sockets, size_of_address, write_address},
    status::INVALID_DEVICE_STATE,
};
use crate::{argument::Argument, context, pins::Pin, report::bug_check, rule::Rule, state::State, tracked};

/// The functions of a socket.
static FUNCTIONS: WSK_PROVIDER_DATAGRAM_DISPATCH = WSK_PROVIDER_DATAGRAM_DISPATCH {
    Basic: WSK_PROVIDER_BASIC_DISPATCH {
        WskControlSocket: Some(control::control_socket),
        WskCloseSocket: Some(close_socket),
    },
    WskBind: Some(bind),
    WskSendTo: Some(send::send_to),
    WskReceiveFrom: Some(receive::receive_from),
    WskRelease: Some(indication::release),
    WskGetLocalAddress: Some(get_local_address),
    WskSendMessages: Some(send::send_messages),
};

/// The callback that a client has for its socket.
fn callback_of(table: *const WSK_CLIENT_DATAGRAM_DISPATCH) -> Option<PFN_WSK_RECEIVE_FROM_EVENT> {
    if table.is_null() {
        return None;
    }
    present(table.addr(), "the dispatch table of a socket");
    // SAFETY: the client's table, which stays until the socket is closed.
    unsafe { table.read() }.WskReceiveFromEvent
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
        if (kind, protocol, flags) != (SOCK_DGRAM, IPPROTO_UDP, WSK_FLAG_DATAGRAM_SOCKET)
            || ![AF_INET, AF_INET6].contains(&family)
            || !security.is_null()
        {
            let words = format_args!("a socket of type {kind}, protocol {protocol}, flags {flags:#x}, family {family}");
            bug_check(Rule::NotSimulated, words);
        }
        if !socket_context.is_null() {
            tracked::check_memory_of(socket_context.addr(), "context of a socket");
        }
        let callback = callback_of(dispatch.cast());
        let (device, is_static) = {
            let clients = state.locked::<Clients>();
            let client = &clients.registered[&client.addr()];
            (client.device.clone(), client.has_static_event)
        };
        if is_static && callback.is_none() {
            let words = "whose event is enabled for all sockets, without WskReceiveFromEvent";
            bug_check(Rule::BadArgument, format_args!("a datagram socket {words}"));
        }
        let call = Call::new(state, &device, irp, "WskSocket");
        if state.strikes() {
            return call.end(state, NtStatus::INSUFFICIENT_RESOURCES, 0);
        }
        let address = request::block(size_of::<WSK_SOCKET>());
        let place: *mut WSK_SOCKET = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: a new block with room for it.
        unsafe { place.write(WSK_SOCKET { Dispatch: (&raw const FUNCTIONS).cast() }) };
        let made = Socket {
            client: client.addr(),
            owner: context::caller(),
            family,
            context: Argument::of(socket_context),
            callback,
            device,
            local: None,
            destination: None,
            remote: None,
            event: if is_static { Event::Static } else { Event::Off },
            callbacks: 0,
            calls: 0,
            receives: VecDeque::new(),
            arrived: VecDeque::new(),
            kept: LiteMap::new(),
            host: None,
            is_broken: false,
            is_closing: false,
        };
        state.locked::<Sockets>().0.insert(address, made);
        call.end(state, NtStatus::SUCCESS, address)
    })
}

unsafe extern "system" fn bind(socket: *mut WSK_SOCKET, place: *mut SOCKADDR, flags: u32, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "WskBind";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        request::no_flags(flags, NAME);
        let (wanted, refusal) = state.with_socket(socket, NAME, |socket| {
            if socket.local.is_some() {
                bug_check(Rule::WskSocketState, format_args!("a socket is bound that is bound"));
            }
            (socket.address(place, NAME), socket.refusal())
        });
        let status = match refusal {
            Some(status) => status,
            None if state.strikes() => NtStatus::INSUFFICIENT_RESOURCES,
            None => state.bind_socket(socket.addr(), wanted).err().unwrap_or(NtStatus::SUCCESS),
        };
        call.end(state, status, 0)
    })
}

unsafe extern "system" fn get_local_address(socket: *mut WSK_SOCKET, place: *mut SOCKADDR, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "WskGetLocalAddress";
    sockets::of_socket(NAME, socket, irp, |state, mut call| {
        tracked::check_memory_of(place.expose_provenance(), "place for the address");
        present(place.addr(), "the place for the address");
        let (family, local, refusal) =
            state.with_socket(socket, NAME, |socket| (socket.family, socket.local, socket.refusal()));
        let Some(local) = local else { return call.end(state, INVALID_DEVICE_STATE, 0) };
        if let Some(status) = refusal {
            return call.end(state, status, 0);
        }
        let range = place.addr()..place.addr() + size_of_address(family);
        call.pin(state, Pin { routine: NAME, memory: vec![(range, "the place for the address")], mdls: Vec::new() });
        let place = place.expose_provenance();
        call.end_with(state, NtStatus::SUCCESS, 0, move || {
            write_address(std::ptr::with_exposed_provenance_mut(place), local);
        })
    })
}

unsafe extern "system" fn close_socket(socket: *mut WSK_SOCKET, irp: *mut IRP) -> NtStatus {
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
            let words = format_args!("WskCloseSocket with {kept} lists of datagrams that were not released");
            bug_check(Rule::WskIndication, words);
        }
        let call = Call::new(state, &device, irp, NAME);
        let idle = state.with_socket(socket, NAME, |socket| {
            socket.is_closing = true;
            socket.receives.is_empty() && socket.callbacks == 0
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

/// Cancels what is out, waits for callbacks that run, and completes the close.
fn finish_close(state: &Arc<State>, address: usize, call: request::Pended) {
    state.cancel_requests(address);
    let calls = state.locked::<Sockets>().0.get(&address).is_some_and(|socket| socket.callbacks > 0);
    if calls || state.has_requests(address) {
        state.after(1 + state.a_while(), move |state| finish_close(state, address, call));
        return;
    }
    call.end(state, NtStatus::SUCCESS, 0);
    state.free_socket(address);
}

impl State {
    /// A socket is not there any more.
    fn free_socket(&self, address: usize) {
        let gone = self.locked::<Sockets>().0.remove(&address);
        if let Some(gone) = gone {
            if !gone.kept.is_empty() {
                bug_check(Rule::WskIndication, format_args!("a callback kept datagrams, and its socket was closed"));
            }
            request::free_block(address);
        }
        self.dispatcher.signal();
    }
}
