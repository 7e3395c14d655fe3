//! Sockets that listen: connections that come, and who accepts them.

use std::{
    net::{SocketAddr, TcpStream},
    ptr,
    sync::Arc,
};

use ndis::{
    IRP, PFN_WSK_ACCEPT_EVENT, WSK_CLIENT_CONNECTION_DISPATCH, WSK_EVENT_ACCEPT, WSK_FLAG_AT_DISPATCH_LEVEL,
    WSK_INSPECT_ACTION, WSK_INSPECT_ID, WSK_SOCKET,
};
use ndkpi::{NtStatus, SOCKADDR};
use wdk_bindings::{PDEVICE_OBJECT, PIRP, PVOID};

use super::{
    address::bind_as,
    connected,
    connection::{Connection, Stage},
    host_stream::{Delivery, HostListener, HostStream},
    make::{Wanted, callbacks_of_connection, check_callbacks},
    request,
    segment::Segment,
    sockets::{
        self, Accept, EVENTS_OF_CONNECTIONS, Listening, Role, Socket, Sockets, shown, size_of_address, write_address,
    },
    status::{CANCELLED, REQUEST_NOT_ACCEPTED},
    stream::{By, end, tell},
    stream_receive::feed,
};
use crate::{
    argument::Argument, context, context::DriverId, pins::Pin, report::bug_check, rule::Rule, state::State, tracked,
};

/// Connections that wait to be accepted, at most: others are refused.
const BACKLOG: usize = 200;

pub unsafe extern "system" fn bind(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    bind_as(socket, place, flags, irp, |state, address, wanted| {
        if !state.is_of_host() {
            return state.bind_socket(address, wanted);
        }
        let both = state.locked::<Sockets>().0.get(&address).is_some_and(Socket::is_dual);
        let (port, host) = HostListener::open(state, address, (wanted, both), came_of_host)?;
        if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
            socket.local = Some(SocketAddr::new(wanted.ip(), port));
            if let Some(listening) = socket.listening() {
                listening.host = Some(host);
            }
        }
        Ok(())
    })
}

fn of_listening<'socket>(socket: &'socket mut Socket, routine: &str) -> &'socket mut Listening {
    let Some(listening) = socket.listening() else {
        bug_check(Rule::BadHandle, format_args!("{routine} of a socket that does not listen"));
    };
    listening
}

pub unsafe extern "system" fn accept(
    socket: *mut WSK_SOCKET,
    flags: u32,
    accept_context: PVOID,
    dispatch: *const WSK_CLIENT_CONNECTION_DISPATCH,
    local: *mut SOCKADDR,
    remote: *mut SOCKADDR,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskAccept";
    sockets::of_socket(NAME, socket, irp, |state, mut call| {
        request::no_flags(flags, NAME);
        if !accept_context.is_null() {
            tracked::check_memory_of(accept_context.addr(), "context of a socket");
        }
        let (context, callbacks) = (Argument::of(accept_context), callbacks_of_connection(dispatch));
        let (family, refusal) = state.with_socket(socket, NAME, |socket| {
            socket.bound(NAME);
            of_listening(socket, NAME);
            (socket.family, socket.refusal())
        });
        let status = match refusal {
            Some(status) => Some(status),
            None if state.strikes() => Some(NtStatus::INSUFFICIENT_RESOURCES),
            None => None,
        };
        if let Some(status) = status {
            return call.end(state, status, 0);
        }
        let places = [local, remote].map(<*mut SOCKADDR>::expose_provenance);
        let mut pin = Pin { routine: NAME, memory: Vec::new(), mdls: Vec::new() };
        for place in places.into_iter().filter(|place| *place != 0) {
            tracked::check_memory_of(place, "place for the address");
            pin.memory.push((place..place + size_of_address(family), "the place for the address"));
        }
        call.pin(state, pin);
        let pended = call.pend_with(state, Some(cancel));
        let (number, address) = (pended.number, socket.addr());
        let is_cancelled = state.with_socket(socket, NAME, |socket| {
            let is_cancelled = pended.is_cancelled();
            of_listening(socket, NAME).accepts.push_back(Accept { pended, context, callbacks, places });
            is_cancelled
        });
        state.after(state.a_while(), move |state| {
            if is_cancelled {
                cancel_numbered(state, number);
            }
            offer(state, address);
        });
        NtStatus::PENDING
    })
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    request::cancelled(irp, cancel_numbered);
}

fn cancel_numbered(state: &Arc<State>, number: u64) {
    let found = state.locked::<Sockets>().0.iter_mut().find_map(|(_, socket)| {
        let accepts = &mut socket.listening()?.accepts;
        let place = accepts.iter().position(|accept| accept.pended.number == number)?;
        accepts.remove(place)
    });
    if let Some(accept) = found {
        accept.pended.end(state, CANCELLED, 0);
    }
}

pub unsafe extern "system" fn inspect_complete(
    _socket: *mut WSK_SOCKET,
    _id: *mut WSK_INSPECT_ID,
    _action: WSK_INSPECT_ACTION,
    _irp: *mut IRP,
) -> NtStatus {
    request::function("WskInspectComplete", |_| {
        bug_check(Rule::NotSimulated, format_args!("WskInspectComplete: connections are not inspected here"))
    })
}

/// A connection has come to the socket at `listener`. Returns its own socket, or `None` if too many wait.
pub fn came(state: &Arc<State>, listener: usize, id: u64, (local, remote): (SocketAddr, SocketAddr)) -> Option<usize> {
    let wanted = {
        let mut sockets = state.locked::<Sockets>();
        let socket = sockets.0.get_mut(&listener).filter(|socket| !socket.is_closing && !socket.is_broken)?;
        let (client, owner, family, device) = (socket.client, socket.owner, socket.family, socket.device.clone());
        socket.listening().filter(|listening| listening.waiting.len() < BACKLOG)?;
        Wanted {
            client,
            owner,
            family,
            context: Argument::of(ptr::null_mut::<u8>()),
            device,
            events: 0,
            functions: (&raw const connected::FUNCTIONS).cast(),
        }
    };
    let mut connection = Connection::new(callbacks_of_connection(ptr::null()));
    (connection.id, connection.remote, connection.is_accepted) = (id, Some(remote), true);
    connection.stage = Stage::Connected;
    let address = state.make_socket(wanted, Role::Connection(Box::new(connection)));
    let mut sockets = state.locked::<Sockets>();
    if let Some(socket) = sockets.0.get_mut(&address) {
        socket.local = Some(local);
    }
    if let Some(listening) = sockets.0.get_mut(&listener).and_then(Socket::listening) {
        listening.waiting.push_back(address);
    }
    Some(address)
}

/// A connection of the host has come.
fn came_of_host(state: &Arc<State>, listener: usize, stream: TcpStream) {
    let (Ok(local), Ok(remote), Some(deliver)) =
        (stream.local_addr(), stream.peer_addr(), state.locked::<Delivery>().0)
    else {
        return;
    };
    let id = state.next();
    let Some(address) = came(state, listener, id, (local, remote)) else { return };
    let host = HostStream::new(state, stream, (address, id), deliver);
    if let Some(connection) = state.locked::<Sockets>().0.get_mut(&address).and_then(Socket::connection) {
        connection.host = host;
    }
    offer(state, listener);
}

/// The client of a socket takes it over, with its callbacks, and the events that are on from the beginning.
fn hand_over(
    state: &State,
    address: usize,
    context: Argument,
    callbacks: WSK_CLIENT_CONNECTION_DISPATCH,
    (on, fixed): (u32, u32),
) {
    let mut sockets = state.locked::<Sockets>();
    let Some(socket) = sockets.0.get_mut(&address) else { return };
    socket.context = context;
    if let Some(connection) = socket.connection() {
        connection.callbacks = callbacks;
    }
    check_callbacks(socket, on | fixed);
    socket.events.begin_with(on, fixed);
}

/// What is to be done next for a socket to which connections have come.
enum Next {
    /// A request gets one.
    Accept(Accept, usize),
    /// The callback gets one.
    Ask(usize, (DriverId, Argument, PFN_WSK_ACCEPT_EVENT)),
}

/// Gives the connections that have come to who wants them.
pub fn offer(state: &Arc<State>, listener: usize) {
    loop {
        let (next, inherited) = {
            let mut sockets = state.locked::<Sockets>();
            let Some(socket) = sockets.0.get_mut(&listener) else { return };
            let (is_over, is_on) = (socket.is_closing || socket.is_broken, socket.events.is_on(WSK_EVENT_ACCEPT));
            let (owner, context) = (socket.owner, socket.context);
            let inherited = socket.events.split(EVENTS_OF_CONNECTIONS);
            let Some(listening) = socket.listening().filter(|_| !is_over) else { return };
            let wants = !listening.accepts.is_empty() || is_on;
            let Some(waiting) = wants.then(|| listening.waiting.pop_front()).flatten() else { return };
            let callback = listening.callbacks.WskAcceptEvent;
            let next = match (listening.accepts.pop_front(), callback) {
                (Some(accept), _) => Next::Accept(accept, waiting),
                (None, Some(callback)) => {
                    socket.events.begin(WSK_EVENT_ACCEPT);
                    Next::Ask(waiting, (owner, context, callback))
                }
                // An event without a callback is not enabled.
                (None, None) => return,
            };
            (next, inherited)
        };
        match next {
            Next::Accept(accept, address) => accepted(state, accept, address, inherited.1),
            Next::Ask(address, callback) => ask(state, listener, address, callback, inherited),
        }
    }
}

fn addresses_of(state: &State, address: usize) -> Option<(u16, SocketAddr, SocketAddr)> {
    let mut sockets = state.locked::<Sockets>();
    let socket = sockets.0.get_mut(&address)?;
    let (family, local) = (socket.family, socket.local?);
    Some((family, local, socket.connection()?.remote?))
}

/// A request to accept is complete.
fn accepted(state: &Arc<State>, accept: Accept, address: usize, fixed: u32) {
    if let Some((family, local, remote)) = addresses_of(state, address) {
        for (place, of) in accept.places.into_iter().zip([local, remote]) {
            if place != 0 {
                write_address(ptr::with_exposed_provenance_mut(place), of, family);
            }
        }
    }
    // Only the callback hands on what is enabled on the socket that listens.
    hand_over(state, address, accept.context, accept.callbacks, (0, fixed));
    accept.pended.end(state, NtStatus::SUCCESS, address);
    feed(state, address);
}

/// Shows a connection to the callback, of which one call more is counted already.
fn ask(
    state: &Arc<State>,
    listener: usize,
    address: usize,
    (owner, argument, callback): (DriverId, Argument, PFN_WSK_ACCEPT_EVENT),
    events: (u32, u32),
) {
    let Some((family, local, remote)) = addresses_of(state, address) else { return };
    let places = [local, remote].map(|address| {
        let address = shown(address, family);
        let place = request::block(address.length() as usize);
        let start: *mut u8 = ptr::with_exposed_provenance_mut(place);
        // SAFETY: a new block with room for it.
        unsafe { start.copy_from_nonoverlapping(address.as_ptr().cast(), address.length() as usize) };
        place
    });
    let (mut accept_context, mut dispatch): (PVOID, *const WSK_CLIENT_CONNECTION_DISPATCH) =
        (ptr::null_mut(), ptr::null());
    let flags = if state.machine.random().is_multiple_of(4) { 0 } else { WSK_FLAG_AT_DISPATCH_LEVEL };
    let argument = argument.pointer("WskAcceptEvent");
    let [local, remote] = places.map(ptr::with_exposed_provenance_mut);
    let (place, table) = (&raw mut accept_context, &raw mut dispatch);
    let answer = context::call(owner, "WskAcceptEvent", || {
        let socket = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the client's own routine and context, and places that live until it returns.
        unsafe { callback(argument, flags, local, remote, socket, place, table) }
    });
    places.into_iter().for_each(request::free_block);
    match answer {
        NtStatus::SUCCESS => {
            hand_over(state, address, Argument::of(accept_context), callbacks_of_connection(dispatch), events);
            feed(state, address);
        }
        REQUEST_NOT_ACCEPTED => {
            end(state, address, CANCELLED, By::Us);
            state.free_socket(address);
        }
        answer => bug_check(Rule::WskIndication, format_args!("WskAcceptEvent has answered {answer:?}")),
    }
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&listener) {
        socket.events.end(WSK_EVENT_ACCEPT);
    }
}

/// The socket is no longer functional: its requests fail, and its callback hears of it.
pub fn tell_of_break(state: &Arc<State>, address: usize, status: NtStatus) {
    let (accepts, found) = {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address).filter(|socket| !socket.is_closing) else { return };
        let is_on = socket.events.is_on(WSK_EVENT_ACCEPT);
        let (owner, context) = (socket.owner, socket.context);
        let Some(listening) = socket.listening() else { return };
        let accepts = std::mem::take(&mut listening.accepts);
        let callback = listening.callbacks.WskAcceptEvent.filter(|_| is_on);
        if callback.is_some() {
            socket.events.begin(WSK_EVENT_ACCEPT);
        }
        (accepts, callback.map(|callback| (owner, context, callback)))
    };
    for accept in accepts {
        accept.pended.end(state, status, 0);
    }
    let Some((owner, argument, callback)) = found else { return };
    let argument = argument.pointer("WskAcceptEvent");
    let (mut accept_context, mut dispatch): (PVOID, *const WSK_CLIENT_CONNECTION_DISPATCH) =
        (ptr::null_mut(), ptr::null());
    let (none, place, table) = (ptr::null_mut(), &raw mut accept_context, &raw mut dispatch);
    let _ = context::call(owner, "WskAcceptEvent", || {
        // SAFETY: the client's own routine and context, and places that live until it returns.
        unsafe { callback(argument, 0, none, none, ptr::null_mut(), place, table) }
    });
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.end(WSK_EVENT_ACCEPT);
    }
}

/// Somebody wants a connection with the socket at `listener`.
pub fn wanted(state: &Arc<State>, listener: usize, id: u64, ends: (SocketAddr, SocketAddr)) {
    match came(state, listener, id, ends) {
        Some(address) => {
            tell(state, address, Segment::Opened);
            offer(state, listener);
        }
        None => state.carry_segment(ends.0, ends.1, &Segment::Refused.encode(id)),
    }
}
