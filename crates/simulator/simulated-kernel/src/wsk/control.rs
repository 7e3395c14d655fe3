//! Events, options and control codes of sockets.

use std::sync::Arc;

use ndis::{
    IRP, NPI_WSK_INTERFACE_ID, SIO_WSK_QUERY_IDEAL_SEND_BACKLOG, SIO_WSK_QUERY_RECEIVE_BACKLOG,
    SIO_WSK_SET_REMOTE_ADDRESS, SIO_WSK_SET_SENDTO_ADDRESS, SO_WSK_EVENT_CALLBACK, SOL_SOCKET, WSK_CONTROL_SOCKET_TYPE,
    WSK_EVENT_ACCEPT, WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_DISABLE, WSK_EVENT_RECEIVE_FROM, WSK_SOCKET,
};
use ndkpi::NtStatus;
use wdk_bindings::PVOID;

use super::{
    buffer::present,
    connection::Stage,
    listen::offer,
    options,
    receive::feed,
    request::{self, Call, Pended},
    sockets::{self, EVENTS_OF_CONNECTIONS, Role, Socket, Sockets, size_of_address},
    status::EVENT_PENDING,
    stream_receive::feed as feed_stream,
};
use crate::{report::bug_check, rule::Rule, state::State};

/// Which events a client means: its structure, looked at.
pub fn events_of(size: usize, input: PVOID, what: &str) -> u32 {
    if size != size_of::<WSK_EVENT_CALLBACK_CONTROL>() {
        bug_check(Rule::BadArgument, format_args!("{what} with {size} bytes of input"));
    }
    present(input.addr(), "the WSK_EVENT_CALLBACK_CONTROL");
    // SAFETY: the client's structure, which lives until the call returns.
    let control = unsafe { input.cast::<WSK_EVENT_CALLBACK_CONTROL>().read_unaligned() };
    present(control.NpiId.addr(), "the identifier of the interface");
    // SAFETY: the client's structure, which lives until the call returns.
    if unsafe { control.NpiId.read_unaligned() } != NPI_WSK_INTERFACE_ID {
        bug_check(Rule::BadArgument, format_args!("{what} for another interface than NPI_WSK_INTERFACE_ID"));
    }
    control.EventMask
}

pub unsafe extern "system" fn control_socket(
    socket: *mut WSK_SOCKET,
    kind: WSK_CONTROL_SOCKET_TYPE,
    code: u32,
    level: u32,
    input_size: usize,
    input: PVOID,
    output_size: usize,
    output: PVOID,
    returned: *mut usize,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskControlSocket";
    request::function(NAME, |state| match (kind, code) {
        (WSK_CONTROL_SOCKET_TYPE::SET_OPTION, SO_WSK_EVENT_CALLBACK) if level == SOL_SOCKET => {
            let _inside = state.enter_socket(socket, NAME);
            set_event(state, socket, events_of(input_size, input, "SO_WSK_EVENT_CALLBACK"), irp)
        }
        (WSK_CONTROL_SOCKET_TYPE::IOCTL, SIO_WSK_SET_REMOTE_ADDRESS | SIO_WSK_SET_SENDTO_ADDRESS) => {
            if output_size != 0 {
                bug_check(Rule::BadArgument, format_args!("a fixed address has no output"));
            }
            sockets::of_socket(NAME, socket, irp, |state, call| {
                fix_address(state, call, socket, code, (input_size, input))
            })
        }
        (WSK_CONTROL_SOCKET_TYPE::SET_OPTION | WSK_CONTROL_SOCKET_TYPE::GET_OPTION, _)
            if options::is_known(level, code) =>
        {
            let _inside = state.enter_socket(socket, NAME);
            let (input, output) = ((input_size, input), (output_size, output));
            if kind == WSK_CONTROL_SOCKET_TYPE::SET_OPTION {
                options::set(state, socket, (level, code), input, irp)
            } else {
                options::get(state, socket, (level, code), output, returned, irp)
            }
        }
        (WSK_CONTROL_SOCKET_TYPE::IOCTL, SIO_WSK_QUERY_IDEAL_SEND_BACKLOG | SIO_WSK_QUERY_RECEIVE_BACKLOG) => {
            sockets::of_socket(NAME, socket, irp, |state, call| {
                options::backlog(state, call, socket, code, (output_size, output))
            })
        }
        _ => {
            let words = format_args!("{NAME} of kind {kind:?} with the code {code:#x} at level {level:#x}");
            bug_check(Rule::NotSimulated, words)
        }
    })
}

/// The events that a socket has, and what a message calls them.
const fn events_of_role(role: &Role) -> (u32, &'static str) {
    match role {
        Role::Basic => (0, "a basic socket"),
        Role::Datagrams(_) => (WSK_EVENT_RECEIVE_FROM, "a datagram socket"),
        Role::Listening(_) => (WSK_EVENT_ACCEPT | EVENTS_OF_CONNECTIONS, "a socket that listens"),
        Role::Connection(_) => (EVENTS_OF_CONNECTIONS, "a socket for a connection"),
    }
}

/// The events of a socket may be enabled, or one of them disabled: it has them, with callbacks, and they are not static.
fn check_events(socket: &Socket, events: u32, enables: bool) {
    const NAME: &str = "SO_WSK_EVENT_CALLBACK";
    let (known, what) = events_of_role(&socket.role);
    if events == 0 || events & !known != 0 || (!enables && !events.is_power_of_two()) {
        bug_check(Rule::BadArgument, format_args!("{NAME} with the events {events:#x} of {what}"));
    }
    if socket.events.is_fixed(events) {
        let words = format_args!("an event that is enabled for all sockets is enabled or disabled for one");
        bug_check(Rule::WskSocketState, words);
    }
    if !socket.has_callbacks(events) {
        bug_check(Rule::BadArgument, format_args!("an event is enabled that has no callback"));
    }
    if !enables && matches!(socket.role, Role::Listening(_)) && events & EVENTS_OF_CONNECTIONS != 0 {
        bug_check(Rule::BadArgument, format_args!("an event of connections is disabled on a socket that listens"));
    }
    if let Role::Connection(connection) = &socket.role {
        // The connection may have ended since.
        if matches!(connection.stage, Stage::Apart | Stage::Connecting(_)) {
            bug_check(Rule::WskSocketState, format_args!("{NAME} of a socket that is not connected"));
        }
    } else {
        socket.bound(NAME);
    }
}

/// Enables events, or disables one.
fn set_event(state: &Arc<State>, socket: *mut WSK_SOCKET, mask: u32, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "SO_WSK_EVENT_CALLBACK";
    let (events, enables) = (mask & !WSK_EVENT_DISABLE, mask & WSK_EVENT_DISABLE == 0);
    if enables && !irp.is_null() {
        bug_check(Rule::WskIrp, format_args!("an event is enabled with an IRP"));
    }
    let (busy, refusal, device) = state.with_socket(socket, NAME, |socket| {
        check_events(socket, events, enables);
        let refusal = socket.refusal();
        match (refusal, enables) {
            (Some(_), _) => {}
            (None, true) => socket.events.enable(events),
            (None, false) => socket.events.disable(events),
        }
        (socket.events.runs(events), refusal, socket.device.clone())
    });
    let address = socket.addr();
    if enables {
        state.after(state.a_while(), move |state| {
            feed(state, address);
            offer(state, address);
            feed_stream(state, address);
        });
        return refusal.unwrap_or(NtStatus::SUCCESS);
    }
    if irp.is_null() {
        return refusal.unwrap_or(if busy { EVENT_PENDING } else { NtStatus::SUCCESS });
    }
    let call = Call::new(state, &device, irp, NAME).of(address);
    if let Some(status) = refusal {
        return call.end(state, status, 0);
    }
    if !busy {
        return call.end_now(state, NtStatus::SUCCESS, 0);
    }
    let pended = call.pend(state);
    finish_disabling(state, address, events, pended);
    NtStatus::PENDING
}

/// Completes a request to disable an event when no callback runs any more.
fn finish_disabling(state: &State, address: usize, event: u32, pended: Pended) {
    state.after(1 + state.a_while(), move |state| {
        let busy = state.locked::<Sockets>().0.get(&address).is_some_and(|socket| socket.events.runs(event));
        if busy {
            finish_disabling(state, address, event, pended);
        } else {
            pended.end(state, NtStatus::SUCCESS, 0);
        }
    });
}

/// Sets or clears a fixed address.
fn fix_address(
    state: &Arc<State>,
    call: Call,
    socket: *mut WSK_SOCKET,
    code: u32,
    (size, input): (usize, PVOID),
) -> NtStatus {
    const NAME: &str = "a fixed address";
    let refusal = state.with_socket(socket, NAME, |socket| {
        socket.bound(NAME);
        let address = (size > 0 || !input.is_null()).then(|| {
            if size < size_of_address(socket.family) {
                bug_check(Rule::BadArgument, format_args!("{NAME} with {size} bytes of input"));
            }
            socket.address(input.cast(), NAME)
        });
        let refusal = socket.refusal();
        let Some(datagrams) = socket.datagrams() else {
            bug_check(Rule::BadArgument, format_args!("{NAME} of a socket that is not for datagrams"));
        };
        if refusal.is_none() {
            datagrams.destination = address;
            datagrams.remote = if code == SIO_WSK_SET_REMOTE_ADDRESS { address } else { None };
        }
        refusal
    });
    call.end(state, refusal.unwrap_or(NtStatus::SUCCESS), 0)
}
