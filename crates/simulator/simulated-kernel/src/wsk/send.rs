//! Datagrams that are sent.

use std::sync::Arc;

use ndis::{CMSGHDR, IRP, WSK_BUF, WSK_BUF_LIST, WSK_SOCKET};
use ndkpi::{NtStatus, SOCKADDR};

use super::{
    buffer::{Buffer, present},
    medium::LONGEST,
    request::{self, Call},
    sockets::{self, Sockets},
    status::{CANCELLED, INVALID_BUFFER_SIZE},
};
use crate::{pins::Pin, report::bug_check, rule::Rule, state::State};

/// Where a client wants datagrams to go, and what with.
struct Destination {
    address: *const SOCKADDR,
    control: *const CMSGHDR,
    control_length: u32,
    flags: u32,
}

pub unsafe extern "system" fn send_to(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    address: *mut SOCKADDR,
    control_length: u32,
    control: *mut CMSGHDR,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSendTo";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        let buffers = vec![Buffer::of(state, buffer, NAME)];
        send(state, call, socket, NAME, buffers, &Destination { address, control, control_length, flags })
    })
}

pub unsafe extern "system" fn send_messages(
    socket: *mut WSK_SOCKET,
    mut list: *mut WSK_BUF_LIST,
    flags: u32,
    address: *mut SOCKADDR,
    control_length: u32,
    control: *mut CMSGHDR,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSendMessages";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        let mut buffers = Vec::new();
        while !list.is_null() {
            present(list.addr(), "a WSK_BUF_LIST");
            // SAFETY: the client's structure, which lives until the call returns.
            buffers.push(Buffer::of(state, unsafe { &raw const (*list).Buffer }, NAME));
            // SAFETY: the client's structure, which lives until the call returns.
            list = unsafe { (*list).Next };
        }
        if buffers.is_empty() {
            bug_check(Rule::BadArgument, format_args!("{NAME} without datagrams"));
        }
        send(state, call, socket, NAME, buffers, &Destination { address, control, control_length, flags })
    })
}

fn send(
    state: &Arc<State>,
    mut call: Call,
    socket: *mut WSK_SOCKET,
    name: &'static str,
    buffers: Vec<Buffer>,
    wanted: &Destination,
) -> NtStatus {
    request::no_flags(wanted.flags, name);
    if wanted.control_length > 0 {
        bug_check(Rule::NotSimulated, format_args!("{name} with control information"));
    }
    if !wanted.control.is_null() {
        bug_check(Rule::BadArgument, format_args!("{name} with control information of no bytes"));
    }
    let (destination, refusal) = state.with_socket(socket, name, |socket| {
        socket.bound(name);
        let destination = if wanted.address.is_null() {
            socket.datagrams().and_then(|datagrams| datagrams.destination)
        } else {
            Some(socket.address(wanted.address, name))
        };
        (destination, socket.refusal())
    });
    let Some(destination) = destination else {
        bug_check(Rule::BadArgument, format_args!("{name} without an address, of a socket that has no fixed one"));
    };
    let too_long = buffers.iter().any(|buffer| buffer.length() > LONGEST);
    let status = match refusal {
        Some(status) => Some(status),
        None if too_long => Some(INVALID_BUFFER_SIZE),
        None if state.strikes() => Some(NtStatus::INSUFFICIENT_RESOURCES),
        None => None,
    };
    if let Some(status) = status {
        return call.end(state, status, 0);
    }
    let (address, total) = (socket.addr(), buffers.iter().map(Buffer::length).sum());
    let datagrams: Vec<Vec<u8>> = buffers.iter().map(Buffer::read).collect();
    if state.at_once() {
        for bytes in &datagrams {
            state.carry(address, destination, bytes);
        }
        return call.end_now(state, NtStatus::SUCCESS, total);
    }
    let mut pin = Pin { routine: name, memory: Vec::new(), mdls: Vec::new() };
    for buffer in &buffers {
        buffer.pin(&mut pin);
    }
    call.pin(state, pin);
    let pended = call.pend(state);
    state.after(state.a_while(), move |state| {
        for (buffer, before) in buffers.iter().zip(&datagrams) {
            buffer.check_same(state, before, name);
        }
        if state.locked::<Sockets>().0.get(&address).is_none_or(|socket| socket.is_closing) {
            pended.end(state, CANCELLED, 0);
            return;
        }
        for bytes in &datagrams {
            state.carry(address, destination, bytes);
        }
        pended.end(state, NtStatus::SUCCESS, total);
    });
    NtStatus::PENDING
}
