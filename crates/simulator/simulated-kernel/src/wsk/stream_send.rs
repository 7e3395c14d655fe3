//! What is sent over a connection, and its end.

use std::sync::Arc;

use ndis::{CMSGHDR, IRP, WSK_BUF, WSK_EVENT_SEND_BACKLOG, WSK_FLAG_ABORTIVE, WSK_FLAG_NODELAY, WSK_SOCKET};
use ndkpi::NtStatus;
use wdk_bindings::{PDEVICE_OBJECT, PIRP};

use super::{
    buffer::Buffer,
    connection::Stage,
    request::{self, Call},
    segment::PATIENCE,
    sockets::{self, Sockets},
    status::{CANCELLED, GRACEFUL_DISCONNECT},
    stream::{By, end, tell, with_connection},
    stream_receive::{feed, of_connection, refusal},
};
use crate::{context, pins::Pin, report::bug_check, rule::Rule, state::State};

pub unsafe extern "system" fn send(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskSend";
    sockets::of_socket(NAME, socket, irp, |state, call| {
        if flags & !WSK_FLAG_NODELAY != 0 {
            bug_check(Rule::NotSimulated, format_args!("{NAME} with the flags {flags:#x}"));
        }
        let buffer = Buffer::of(state, buffer, NAME);
        let refusal = state.with_socket(socket, NAME, |socket| {
            let broken = socket.refusal();
            let connection = of_connection(socket, NAME);
            let ended = connection.outgoing.end.is_some().then_some(GRACEFUL_DISCONNECT);
            broken.or_else(|| refusal(connection, NAME)).or(ended)
        });
        let status = match refusal {
            Some(status) => Some(status),
            None if state.strikes() => Some(NtStatus::INSUFFICIENT_RESOURCES),
            None if buffer.length() == 0 => Some(NtStatus::SUCCESS),
            None => None,
        };
        if let Some(status) = status {
            return call.end(state, status, 0);
        }
        queue(state, call, socket, buffer)
    })
}

/// As [`send`], with control information, which TCP does not have.
pub unsafe extern "system" fn send_ex(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    control_length: u32,
    _control: *mut CMSGHDR,
    irp: *mut IRP,
) -> NtStatus {
    if control_length > 0 {
        bug_check(Rule::NotSimulated, format_args!("WskSendEx with control information"));
    }
    // SAFETY: the arguments of a call with fewer of them.
    unsafe { send(socket, buffer, flags, irp) }
}

/// Sends bytes now, if the seed wants it and there is room, or as the window opens.
fn queue(state: &Arc<State>, mut call: Call, socket: *mut WSK_SOCKET, buffer: Buffer) -> NtStatus {
    const NAME: &str = "WskSend";
    let (address, bytes, at_once) = (socket.addr(), buffer.read(), state.at_once());
    let passed = state.with_socket(socket, NAME, |socket| {
        let out = &mut of_connection(socket, NAME).outgoing;
        let is_first = out.sends.is_empty() && out.queued == out.sent;
        (at_once && is_first && bytes.len() as u64 <= out.room()).then(|| out.pass(&bytes))
    });
    if let Some(segments) = passed {
        for segment in segments {
            tell(state, address, segment);
        }
        // Whether the other side has it is looked at as for any other.
        pump(state, address);
        return call.end_now(state, NtStatus::SUCCESS, bytes.len());
    }
    let mut pin = Pin { routine: NAME, memory: Vec::new(), mdls: Vec::new() };
    buffer.pin(&mut pin);
    call.pin(state, pin);
    let pended = call.pend_with(state, Some(cancel));
    let number = pended.number;
    let is_cancelled = state.with_socket(socket, NAME, |socket| {
        let is_cancelled = pended.is_cancelled();
        of_connection(socket, NAME).outgoing.queue(NAME, Some(pended), buffer, bytes);
        is_cancelled
    });
    state.after(state.a_while(), move |state| {
        if is_cancelled {
            cancel_numbered(state, number);
        }
        pump(state, address);
    });
    NtStatus::PENDING
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    request::cancelled(irp, cancel_numbered);
}

/// Takes a request back. A stream of which some is missing is of no use to the other side: the connection ends.
fn cancel_numbered(state: &Arc<State>, number: u64) {
    let found = state.locked::<Sockets>().0.iter_mut().find_map(|(&address, socket)| {
        let (send, is_whole) = socket.connection()?.outgoing.take_back(number)?;
        Some((address, send, is_whole))
    });
    let Some((address, send, is_whole)) = found else { return };
    if !is_whole {
        end(state, address, NtStatus::CONNECTION_ABORTED, By::Us);
        feed(state, address);
    }
    send.finish(state, CANCELLED);
}

pub unsafe extern "system" fn disconnect(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskDisconnect";
    sockets::of_socket(NAME, socket, irp, |state, mut call| {
        if flags & !WSK_FLAG_ABORTIVE != 0 {
            bug_check(Rule::BadArgument, format_args!("{NAME} with the flags {flags:#x}"));
        }
        let is_abortive = flags == WSK_FLAG_ABORTIVE;
        if is_abortive && !buffer.is_null() {
            bug_check(Rule::BadArgument, format_args!("{NAME} that drops what is under way, with last bytes"));
        }
        let last = (!buffer.is_null()).then(|| Buffer::of(state, buffer, NAME));
        let (refusal, has_ended) = state.with_socket(socket, NAME, |socket| {
            let broken = socket.refusal();
            let connection = of_connection(socket, NAME);
            (broken.or_else(|| refusal(connection, NAME)), connection.outgoing.end.is_some())
        });
        let address = socket.addr();
        if is_abortive {
            if refusal.is_none() {
                end(state, address, NtStatus::CONNECTION_ABORTED, By::Us);
            }
            return call.end(state, NtStatus::SUCCESS, 0);
        }
        let status = refusal.or_else(|| has_ended.then_some(GRACEFUL_DISCONNECT));
        if let Some(status) = status {
            return call.end(state, status, 0);
        }
        if let Some(last) = &last {
            let mut pin = Pin { routine: NAME, memory: Vec::new(), mdls: Vec::new() };
            last.pin(&mut pin);
            call.pin(state, pin);
        }
        let pended = call.pend(state);
        state.with_socket(socket, NAME, |socket| {
            let out = &mut of_connection(socket, NAME).outgoing;
            if let Some(last) = last {
                let bytes = last.read();
                out.queue(NAME, None, last, bytes);
            }
            out.end = Some(out.queued);
            out.disconnect = Some(pended);
        });
        state.after(state.a_while(), move |state| pump(state, address));
        NtStatus::PENDING
    })
}

/// Sends as much as may be sent.
pub fn pump(state: &Arc<State>, address: usize) {
    while let Some(segment) = with_connection(state, address, |connection| {
        if matches!(connection.stage, Stage::Connected) { connection.outgoing.next() } else { None }
    })
    .flatten()
    {
        tell(state, address, segment);
    }
    watch(state, address);
}

/// Ends the connection when the other side is silent for too long.
fn watch(state: &Arc<State>, address: usize) {
    let watched = with_connection(state, address, |connection| {
        let (id, out) = (connection.id, &mut connection.outgoing);
        let begins = connection.host.is_none() && out.waits() && !out.is_watched;
        out.is_watched |= begins;
        begins.then_some((id, out.received))
    });
    let Some(Some((id, received))) = watched else { return };
    state.after(PATIENCE, move |state| {
        let is_silent = with_connection(state, address, |connection| {
            let out = &mut connection.outgoing;
            (connection.id == id && matches!(connection.stage, Stage::Connected)).then(|| {
                out.is_watched = false;
                out.waits() && out.received == received
            })
        });
        match is_silent.flatten() {
            Some(true) => {
                end(state, address, NtStatus::IO_TIMEOUT, By::Silence);
                feed(state, address);
            }
            Some(false) => watch(state, address),
            None => {}
        }
    });
}

/// The other side has so many bytes, and has taken so many of them.
pub fn acknowledged(state: &Arc<State>, address: usize, received: u64, consumed: u64) {
    let done = with_connection(state, address, |connection| connection.outgoing.acknowledge(received, consumed));
    let Some((sends, disconnect)) = done else { return };
    for send in sends {
        send.finish(state, NtStatus::SUCCESS);
    }
    if let Some(disconnect) = disconnect {
        disconnect.end(state, NtStatus::SUCCESS, 0);
    }
    pump(state, address);
    tell_backlog(state, address);
}

/// Tells the callback of a socket, if it is enabled, that the ideal backlog is another.
fn tell_backlog(state: &Arc<State>, address: usize) {
    let found = {
        let mut sockets = state.locked::<Sockets>();
        let socket = sockets.0.get_mut(&address);
        let socket = socket.filter(|socket| !socket.is_closing && socket.events.is_on(WSK_EVENT_SEND_BACKLOG));
        socket.and_then(|socket| {
            let (owner, context) = (socket.owner, socket.context);
            let connection = socket.connection()?;
            let callback = connection.callbacks.WskSendBacklogEvent?;
            let is_new = connection.outgoing.received > 0 && !connection.outgoing.has_told_backlog;
            connection.outgoing.has_told_backlog |= is_new;
            let size = usize::try_from(connection.outgoing.ideal_backlog()).unwrap_or(usize::MAX);
            is_new.then(|| {
                socket.events.begin(WSK_EVENT_SEND_BACKLOG);
                (owner, context, callback, size)
            })
        })
    };
    let Some((owner, argument, callback, size)) = found else { return };
    let argument = argument.pointer("WskSendBacklogEvent");
    let answer = context::call(owner, "WskSendBacklogEvent", || {
        // SAFETY: the client's own routine and context.
        unsafe { callback(argument, size) }
    });
    if answer != NtStatus::SUCCESS {
        bug_check(Rule::WskIndication, format_args!("WskSendBacklogEvent has answered {answer:?}"));
    }
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.end(WSK_EVENT_SEND_BACKLOG);
    }
}
