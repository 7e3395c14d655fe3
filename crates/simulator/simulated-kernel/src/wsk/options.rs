//! Options of sockets, and what a client may ask of its connection.
//!
//! Most of them have no effect that a client can see: they are kept, and given back.

use std::sync::Arc;

use ndis::{IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, IRP, SIO_WSK_QUERY_RECEIVE_BACKLOG, SOL_SOCKET, WSK_SOCKET};
use ndkpi::NtStatus;
use wdk_bindings::PVOID;

use super::{
    buffer::present,
    request::Call,
    sockets::SO_REUSEADDR,
    stream_receive::{of_connection, refusal},
};
use crate::{pins::Pin, report::bug_check, rule::Rule, state::State};

/// Options of the socket itself, as `ws2def.h` has them.
const SO_KEEPALIVE: u32 = 8;
const SO_SNDBUF: u32 = 0x1001;
const SO_RCVBUF: u32 = 0x1002;
const SO_CONDITIONAL_ACCEPT: u32 = 0x3002;
const SO_EXCLUSIVEADDRUSE: u32 = !SO_REUSEADDR;
/// Options of TCP, as `ws2ipdef.h` has them.
const TCP_NODELAY: u32 = 1;
const TCP_KEEPALIVE: u32 = 3;

/// Returns true for an option that may be set and asked for. Each has four bytes.
pub const fn is_known(level: u32, code: u32) -> bool {
    match level {
        SOL_SOCKET => matches!(
            code,
            SO_REUSEADDR | SO_EXCLUSIVEADDRUSE | SO_KEEPALIVE | SO_SNDBUF | SO_RCVBUF | SO_CONDITIONAL_ACCEPT
        ),
        IPPROTO_TCP => matches!(code, TCP_NODELAY | TCP_KEEPALIVE),
        IPPROTO_IPV6 => code == IPV6_V6ONLY,
        _ => false,
    }
}

/// Completes the request, which may have no IRP.
fn end(state: &Arc<State>, socket: *mut WSK_SOCKET, irp: *mut IRP, status: NtStatus, information: usize) -> NtStatus {
    const NAME: &str = "WskControlSocket";
    if irp.is_null() {
        return status;
    }
    let device = state.with_socket(socket, NAME, |socket| socket.device.clone());
    Call::new(state, &device, irp, NAME).of(socket.addr()).end(state, status, information)
}

/// Sets an option.
pub fn set(
    state: &Arc<State>,
    socket: *mut WSK_SOCKET,
    (level, code): (u32, u32),
    (size, input): (usize, PVOID),
    irp: *mut IRP,
) -> NtStatus {
    if size != size_of::<u32>() {
        return end(state, socket, irp, NtStatus::INVALID_PARAMETER, 0);
    }
    present(input.addr(), "the value of an option");
    // SAFETY: the client's value, which lives until the call returns.
    let value = unsafe { input.cast::<u32>().read_unaligned() };
    if (level, code) == (SOL_SOCKET, SO_CONDITIONAL_ACCEPT) && value != 0 {
        bug_check(Rule::NotSimulated, format_args!("SO_CONDITIONAL_ACCEPT: connections are not inspected here"));
    }
    let before_bind = [(SOL_SOCKET, SO_REUSEADDR), (SOL_SOCKET, SO_EXCLUSIVEADDRUSE), (IPPROTO_IPV6, IPV6_V6ONLY)];
    let status = state.with_socket(socket, "WskControlSocket", |socket| {
        if let Some(status) = socket.refusal() {
            return status;
        }
        if before_bind.contains(&(level, code)) && socket.local.is_some() {
            return NtStatus::INVALID_PARAMETER;
        }
        socket.options.insert((level, code), value);
        NtStatus::SUCCESS
    });
    end(state, socket, irp, status, 0)
}

/// Asks for an option.
pub fn get(
    state: &Arc<State>,
    socket: *mut WSK_SOCKET,
    (level, code): (u32, u32),
    (size, output): (usize, PVOID),
    returned: *mut usize,
    irp: *mut IRP,
) -> NtStatus {
    if size < size_of::<u32>() {
        return end(state, socket, irp, NtStatus::BUFFER_TOO_SMALL, 0);
    }
    present(output.addr(), "the place for an option");
    let (value, refusal) = state.with_socket(socket, "WskControlSocket", |socket| {
        let default = u32::from((level, code) == (IPPROTO_IPV6, IPV6_V6ONLY));
        (socket.options.get(&(level, code)).copied().unwrap_or(default), socket.refusal())
    });
    if let Some(status) = refusal {
        return end(state, socket, irp, status, 0);
    }
    // SAFETY: the client's place, which lives until the call returns.
    unsafe { output.cast::<u32>().write_unaligned(value) };
    if !returned.is_null() {
        // SAFETY: the client's place, which lives until the call returns.
        unsafe { returned.write(size_of::<u32>()) };
    }
    end(state, socket, irp, NtStatus::SUCCESS, size_of::<u32>())
}

/// How many bytes wait to be received, or are to be sent at a time.
pub fn backlog(
    state: &Arc<State>,
    mut call: Call,
    socket: *mut WSK_SOCKET,
    code: u32,
    (size, output): (usize, PVOID),
) -> NtStatus {
    const NAME: &str = "a question for the backlog";
    if size != size_of::<usize>() {
        return call.end(state, NtStatus::INVALID_PARAMETER, 0);
    }
    present(output.addr(), "the place for a size");
    let (refusal, bytes) = state.with_socket(socket, NAME, |socket| {
        let broken = socket.refusal();
        let connection = of_connection(socket, NAME);
        let bytes = if code == SIO_WSK_QUERY_RECEIVE_BACKLOG {
            connection.incoming.arrived.len()
        } else {
            usize::try_from(connection.outgoing.ideal_backlog()).unwrap_or(usize::MAX)
        };
        (broken.or_else(|| refusal(connection, NAME)), bytes)
    });
    if let Some(status) = refusal {
        return call.end(state, status, 0);
    }
    let place = output.expose_provenance();
    let memory = vec![(place..place + size_of::<usize>(), "the place for a size")];
    call.pin(state, Pin { routine: "WskControlSocket", memory, mdls: Vec::new() });
    call.end_with(state, NtStatus::SUCCESS, size_of::<usize>(), move || {
        let place: *mut usize = std::ptr::with_exposed_provenance_mut(place);
        // SAFETY: the client's place, which stays until the request is complete: that is watched.
        unsafe { place.write_unaligned(bytes) };
    })
}
