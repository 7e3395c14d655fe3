//! Options and control codes of sockets.

use std::sync::Arc;

use ndis::{
    IRP, NPI_WSK_INTERFACE_ID, SIO_WSK_SET_REMOTE_ADDRESS, SIO_WSK_SET_SENDTO_ADDRESS, SO_WSK_EVENT_CALLBACK,
    SOL_SOCKET, WSK_CONTROL_SOCKET_TYPE, WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_DISABLE, WSK_EVENT_RECEIVE_FROM,
    WSK_SOCKET,
};
use ndkpi::NtStatus;
use wdk_bindings::PVOID;

use super::{
    buffer::present,
    receive::feed,
    request::{self, Call, Pended},
    sockets::{self, Event, Sockets, size_of_address},
    status::EVENT_PENDING,
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
    // SAFETY: as above.
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
    _output: PVOID,
    _returned: *mut usize,
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
        _ => {
            let words = format_args!("{NAME} of kind {kind:?} with the code {code:#x} at level {level:#x}");
            bug_check(Rule::NotSimulated, words)
        }
    })
}

/// The event of a socket may be enabled: it has a callback, and is not static.
fn check_event(event: Event, has_callback: bool) {
    if event == Event::Static {
        let words = format_args!("an event that is enabled for all sockets is enabled or disabled for one");
        bug_check(Rule::WskSocketState, words);
    }
    if !has_callback {
        bug_check(Rule::BadArgument, format_args!("an event is enabled that has no callback"));
    }
}

/// Enables or disables the event of datagrams.
fn set_event(state: &Arc<State>, socket: *mut WSK_SOCKET, mask: u32, irp: *mut IRP) -> NtStatus {
    const NAME: &str = "SO_WSK_EVENT_CALLBACK";
    if mask & !WSK_EVENT_DISABLE != WSK_EVENT_RECEIVE_FROM {
        bug_check(Rule::BadArgument, format_args!("{NAME} with the events {mask:#x} of a datagram socket"));
    }
    let enables = mask & WSK_EVENT_DISABLE == 0;
    if enables && !irp.is_null() {
        bug_check(Rule::WskIrp, format_args!("an event is enabled with an IRP"));
    }
    let (busy, refusal, device) = state.with_socket(socket, NAME, |socket| {
        socket.bound(NAME);
        check_event(socket.event, socket.callback.is_some());
        let refusal = socket.refusal();
        if refusal.is_none() {
            socket.event = if enables { Event::On } else { Event::Off };
        }
        (socket.callbacks > 0, refusal, socket.device.clone())
    });
    let address = socket.addr();
    if enables {
        state.after(state.a_while(), move |state| feed(state, address));
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
    finish_disabling(state, address, pended);
    NtStatus::PENDING
}

/// Completes a request to disable an event when no callback runs any more.
fn finish_disabling(state: &State, address: usize, pended: Pended) {
    state.after(1 + state.a_while(), move |state| {
        let busy = state.locked::<Sockets>().0.get(&address).is_some_and(|socket| socket.callbacks > 0);
        if busy {
            finish_disabling(state, address, pended);
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
        if refusal.is_none() {
            socket.destination = address;
            socket.remote = if code == SIO_WSK_SET_REMOTE_ADDRESS { address } else { None };
        }
        refusal
    });
    call.end(state, refusal.unwrap_or(NtStatus::SUCCESS), 0)
}
