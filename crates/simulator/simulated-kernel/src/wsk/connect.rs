//! Connections that a client asks for.

use std::{
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use ndis::{IRP, WSK_BUF, WSK_SOCKET};
use ndkpi::{NtStatus, SOCKADDR};
use wdk_bindings::{PDEVICE_OBJECT, PIRP};

use super::{
    buffer::Buffer,
    connection::{Connect, Stage},
    host_stream::{self, Delivery, HostStream},
    request::{self, Call},
    segment::{PATIENCE, Segment},
    sockets::{self, Sockets},
    status::CANCELLED,
    stream::{take_connect, tell, with_connection},
    stream_receive::{feed, of_connection},
    stream_send::pump,
};
use crate::{pins::Pin, report::bug_check, rule::Rule, state::State};

/// The most that goes with a request to connect, in bytes.
const LONGEST: usize = 65_535;

pub unsafe extern "system" fn connect(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskConnect";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        request::no_flags(flags, NAME);
        begin(state, call, socket, place, NAME, None)
    })
}

pub unsafe extern "system" fn connect_ex(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    buffer: *mut WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskConnectEx";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        let first = (!buffer.is_null()).then(|| Buffer::of(state, buffer, NAME));
        if flags != 0 {
            return call.end(state, NtStatus::INVALID_PARAMETER, 0);
        }
        if first.as_ref().is_some_and(|first| first.length() > LONGEST) {
            return call.end(state, NtStatus::BUFFER_OVERFLOW, 0);
        }
        begin(state, call, socket, place, NAME, first)
    })
}

/// Looks at the socket, and asks the other side.
fn begin(
    state: &Arc<State>,
    mut call: Call,
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    name: &'static str,
    first: Option<Buffer>,
) -> NtStatus {
    let (to, refusal) = state.with_socket(socket, name, |socket| {
        socket.bound(name);
        let (to, refusal) = (socket.address(place, name), socket.refusal());
        match of_connection(socket, name).stage {
            Stage::Apart => (to, refusal),
            Stage::Over(_) | Stage::Connecting(_) | Stage::Connected => bug_check(
                Rule::WskSocketState,
                format_args!("{name} of a socket that is connected, was, or is being connected"),
            ),
        }
    });
    let status = match refusal {
        Some(status) => Some(status),
        None if state.strikes() => Some(NtStatus::INSUFFICIENT_RESOURCES),
        None => None,
    };
    if let Some(status) = status {
        return call.end(state, status, 0);
    }
    if let Some(first) = &first {
        let mut pin = Pin { routine: name, memory: Vec::new(), mdls: Vec::new() };
        first.pin(&mut pin);
        call.pin(state, pin);
    }
    connect_socket(state, call, socket.addr(), to, first, false)
}

/// Asks the other side for a connection of a socket that is bound. What the function returns.
pub fn connect_socket(
    state: &Arc<State>,
    call: Call,
    address: usize,
    to: SocketAddr,
    first: Option<Buffer>,
    is_whole: bool,
) -> NtStatus {
    let pended = call.pend_with(state, Some(cancel));
    let (number, id) = (pended.number, state.new_connection());
    let to = canonical(state, address, to);
    let local = state.locked::<Sockets>().0.get(&address).and_then(|socket| socket.local);
    let source = local.and_then(|local| if state.is_of_host() { Some(local) } else { state.source_of(local, to.ip()) });
    let first = first.map(|buffer| {
        let bytes = buffer.read();
        (buffer, bytes)
    });
    let is_cancelled = {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return NtStatus::PENDING };
        let is_cancelled = pended.is_cancelled();
        socket.local = source.or(socket.local);
        if let Some(connection) = socket.connection() {
            (connection.id, connection.remote) = (id, Some(to));
            connection.stage = Stage::Connecting(Connect { pended, first, is_whole });
        }
        is_cancelled
    };
    state.after(state.a_while(), move |state| {
        if is_cancelled {
            cancel_numbered(state, number);
        }
        if source.is_none() {
            return failed(state, address, id, NtStatus::NETWORK_UNREACHABLE);
        }
        if with_connection(state, address, |connection| connection.id == id) != Some(true) {
            return;
        }
        if state.is_of_host() {
            return host_stream::connect(state, (address, id), to, came_of_host);
        }
        tell(state, address, Segment::Open);
        state.after(PATIENCE, move |state| failed(state, address, id, NtStatus::IO_TIMEOUT));
    });
    NtStatus::PENDING
}

/// An address of IPv4 that is mapped into one of IPv6, as what it is, for a socket that may have both.
fn canonical(state: &State, address: usize, to: SocketAddr) -> SocketAddr {
    let is_dual = state.locked::<Sockets>().0.get(&address).is_some_and(sockets::Socket::is_dual);
    if is_dual { SocketAddr::new(to.ip().to_canonical(), to.port()) } else { to }
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    request::cancelled(irp, cancel_numbered);
}

fn cancel_numbered(state: &Arc<State>, number: u64) {
    let found = state.locked::<Sockets>().0.iter_mut().find_map(|(&address, socket)| {
        let connection = socket.connection()?;
        let is_it = matches!(&connection.stage, Stage::Connecting(connect) if connect.pended.number == number);
        is_it.then_some((address, connection.id))
    });
    if let Some((address, id)) = found {
        failed(state, address, id, CANCELLED);
    }
}

/// There is no connection.
pub fn failed(state: &Arc<State>, address: usize, id: u64, status: NtStatus) {
    let Some(connect) = take_connect(state, address, id, Stage::Apart) else { return };
    let is_whole = connect.is_whole;
    connect.pended.end(state, status, 0);
    if is_whole {
        state.free_socket(address);
    }
}

/// There is a connection.
pub fn opened(state: &Arc<State>, address: usize, id: u64) {
    let Some(Connect { pended, first, is_whole }) = take_connect(state, address, id, Stage::Connected) else { return };
    if let Some((buffer, bytes)) = first {
        buffer.check_same(state, &bytes, "WskConnectEx");
        let segments = with_connection(state, address, |connection| connection.outgoing.pass(&bytes));
        for segment in segments.into_iter().flatten() {
            tell(state, address, segment);
        }
    }
    pended.end(state, NtStatus::SUCCESS, if is_whole { address } else { 0 });
    pump(state, address);
    feed(state, address);
}

/// The host has connected, or not.
fn came_of_host(state: &Arc<State>, address: usize, id: u64, came: Result<TcpStream, NtStatus>) {
    let deliver = state.locked::<Delivery>().0;
    let stream = match (came, deliver) {
        (Ok(stream), Some(deliver)) => {
            let local = stream.local_addr().ok();
            HostStream::new(state, stream, (address, id), deliver).zip(local).ok_or(NtStatus::INSUFFICIENT_RESOURCES)
        }
        (came, _) => Err(came.err().unwrap_or(NtStatus::INSUFFICIENT_RESOURCES)),
    };
    let (stream, local) = match stream {
        Ok(stream) => stream,
        Err(status) => return failed(state, address, id, status),
    };
    {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return };
        let is_it = socket.connection().is_some_and(|connection| connection.id == id);
        if is_it {
            socket.local = Some(local);
            if let Some(connection) = socket.connection() {
                connection.host = Some(stream);
            }
        }
    }
    opened(state, address, id);
}
