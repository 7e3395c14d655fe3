//! The addresses of sockets: how they get one, and who asks.

use std::{net::SocketAddr, sync::Arc};

use ndis::{IRP, WSK_SOCKET};
use ndkpi::{NtStatus, SOCKADDR};

use super::{
    buffer::present,
    connection::Stage,
    request::{self, Call},
    sockets::{self, Sockets, size_of_address, write_address},
    status::INVALID_DEVICE_STATE,
};
use crate::{pins::Pin, report::bug_check, rule::Rule, state::State, tracked};

/// Gives a socket the address that is wanted.
pub type Bind = fn(&Arc<State>, usize, SocketAddr) -> Result<(), NtStatus>;

/// `WskBind`, for whatever kind of socket.
pub fn bind_as(socket: *mut WSK_SOCKET, place: *mut SOCKADDR, flags: u32, irp: *mut IRP, bind: Bind) -> NtStatus {
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
            None => bind(state, socket.addr(), wanted).err().unwrap_or(NtStatus::SUCCESS),
        };
        call.end(state, status, 0)
    })
}

pub unsafe extern "system" fn bind_datagrams(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    bind_as(socket, place, flags, irp, State::bind_socket)
}

/// A socket that will connect: the host gives it its port then.
pub fn bind_to_connect(state: &Arc<State>, address: usize, wanted: SocketAddr) -> Result<(), NtStatus> {
    if !state.is_of_host() {
        return state.bind_socket(address, wanted);
    }
    if wanted.port() != 0 {
        let words = "a socket that connects over the host from a certain port";
        bug_check(Rule::NotSimulated, format_args!("{words}, {wanted}"));
    }
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.local = Some(wanted);
    }
    Ok(())
}

pub unsafe extern "system" fn bind_connection(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    bind_as(socket, place, flags, irp, bind_to_connect)
}

/// Writes an address when the request is complete.
fn answer(
    state: &Arc<State>,
    mut call: Call,
    place: *mut SOCKADDR,
    routine: &'static str,
    (address, family): (SocketAddr, u16),
) -> NtStatus {
    let range = place.addr()..place.addr() + size_of_address(family);
    call.pin(state, Pin { routine, memory: vec![(range, "the place for the address")], mdls: Vec::new() });
    let place = place.expose_provenance();
    call.end_with(state, NtStatus::SUCCESS, 0, move || {
        write_address(std::ptr::with_exposed_provenance_mut(place), address, family);
    })
}

fn check_place(place: *mut SOCKADDR) {
    tracked::check_memory_of(place.expose_provenance(), "place for the address");
    present(place.addr(), "the place for the address");
}

pub unsafe extern "system" fn get_local_address(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskGetLocalAddress";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        check_place(place);
        let (family, local, refusal) =
            state.with_socket(socket, NAME, |socket| (socket.family, socket.local, socket.refusal()));
        match (local, refusal) {
            (None, _) => call.end(state, INVALID_DEVICE_STATE, 0),
            (_, Some(status)) => call.end(state, status, 0),
            (Some(local), None) => answer(state, call, place, NAME, (local, family)),
        }
    })
}

pub unsafe extern "system" fn get_remote_address(
    socket: *mut WSK_SOCKET,
    place: *mut SOCKADDR,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskGetRemoteAddress";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        check_place(place);
        let (family, remote, refusal) = state.with_socket(socket, NAME, |socket| {
            let (family, refusal) = (socket.family, socket.refusal());
            let connection = socket.connection().filter(|connection| matches!(connection.stage, Stage::Connected));
            (family, connection.and_then(|connection| connection.remote), refusal)
        });
        match (remote, refusal) {
            (_, Some(status)) => call.end(state, status, 0),
            (None, None) => call.end(state, INVALID_DEVICE_STATE, 0),
            (Some(remote), None) => answer(state, call, place, NAME, (remote, family)),
        }
    })
}
