//! What has come of a stream: requests to receive get it first, then the callback.

use std::sync::Arc;

use ndis::{
    CMSGHDR, IRP, WSK_BUF, WSK_DATA_INDICATION, WSK_EVENT_DISCONNECT, WSK_EVENT_RECEIVE, WSK_FLAG_ABORTIVE,
    WSK_FLAG_AT_DISPATCH_LEVEL, WSK_FLAG_DRAIN, WSK_FLAG_ENTIRE_MESSAGE, WSK_FLAG_RELEASE_ASAP, WSK_FLAG_WAITALL,
    WSK_SOCKET,
};
use ndkpi::NtStatus;
use wdk_bindings::{PDEVICE_OBJECT, PIRP};

use super::{
    buffer::Buffer,
    connection::{Connection, Mode, News, Receiving, Stage},
    indication::Kept,
    request,
    sockets::{self, Socket, Sockets},
    status::{CANCELLED, DATA_NOT_ACCEPTED},
    stream::{tell, with_connection},
};
use crate::{context, pins::Pin, report::bug_check, rule::Rule, state::State};

/// Bytes that a callback gets at most.
const LONGEST: usize = 16 << 10;

/// What a function of a connected socket answers if there is no connection any more. Ends the test if there was none.
pub fn refusal(connection: &Connection, routine: &str) -> Option<NtStatus> {
    match connection.stage {
        Stage::Connected => None,
        Stage::Over(status) => Some(status),
        Stage::Apart | Stage::Connecting(_) => {
            bug_check(Rule::WskSocketState, format_args!("{routine} of a socket that is not connected"));
        }
    }
}

/// A socket's function that only one for connections has.
pub fn of_connection<'socket>(socket: &'socket mut Socket, routine: &str) -> &'socket mut Connection {
    let Some(connection) = socket.connection() else {
        bug_check(Rule::BadHandle, format_args!("{routine} of a socket that is not for a connection"));
    };
    connection
}

pub unsafe extern "system" fn receive(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskReceive";
    sockets::of_socket(NAME, socket, irp, |state, mut call| {
        let buffer = Buffer::of(state, buffer, NAME);
        let mode = match flags {
            0 => Mode::Some,
            WSK_FLAG_WAITALL => Mode::All,
            WSK_FLAG_DRAIN if buffer.length() > 0 => {
                bug_check(Rule::BadArgument, format_args!("{NAME} with WSK_FLAG_DRAIN and room for bytes"));
            }
            WSK_FLAG_DRAIN => Mode::Drain,
            flags if flags & (WSK_FLAG_WAITALL | WSK_FLAG_DRAIN) == WSK_FLAG_WAITALL | WSK_FLAG_DRAIN => {
                bug_check(Rule::BadArgument, format_args!("{NAME} that waits for all, and drops it"));
            }
            _ => return call.end(state, NtStatus::NOT_SUPPORTED, 0),
        };
        let at_once = state.at_once();
        let (refusal, now) = state.with_socket(socket, NAME, |socket| {
            let broken = socket.refusal();
            let connection = of_connection(socket, NAME);
            let refusal = broken.or_else(|| refusal(connection, NAME));
            let incoming = &mut connection.incoming;
            let waits = incoming.is_feeding || !incoming.receives.is_empty();
            let has_some = !incoming.arrived.is_empty() && buffer.length() > 0;
            let now = at_once && refusal.is_none() && !waits && mode == Mode::Some && has_some;
            let now = now.then(|| incoming.take(buffer.length()));
            incoming.is_paused &= refusal.is_some();
            (refusal, now)
        });
        if let Some(status) = refusal {
            return call.end(state, status, 0);
        }
        let address = socket.addr();
        if let Some(bytes) = now {
            buffer.write(&bytes);
            tell_taken(state, address);
            state.after(state.a_while(), move |state| feed(state, address));
            return call.end_now(state, NtStatus::SUCCESS, bytes.len());
        }
        let mut pin = Pin { routine: NAME, memory: Vec::new(), mdls: Vec::new() };
        buffer.pin(&mut pin);
        call.pin(state, pin);
        let pended = call.pend_with(state, Some(cancel));
        let number = pended.number;
        let is_cancelled = state.with_socket(socket, NAME, |socket| {
            let is_cancelled = pended.is_cancelled();
            let receives = &mut of_connection(socket, NAME).incoming.receives;
            receives.push_back(Receiving { pended, buffer, mode, bytes: Vec::new() });
            is_cancelled
        });
        state.after(state.a_while(), move |state| {
            if is_cancelled {
                cancel_numbered(state, number);
            }
            feed(state, address);
        });
        NtStatus::PENDING
    })
}

/// As [`receive`], with control information, which TCP does not have.
pub unsafe extern "system" fn receive_ex(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    control_length: *mut u32,
    _control: *mut CMSGHDR,
    control_flags: *mut u32,
    irp: *mut IRP,
) -> NtStatus {
    if !control_flags.is_null() {
        bug_check(Rule::BadArgument, format_args!("WskReceiveEx with a place for flags, which is reserved"));
    }
    if !control_length.is_null() {
        bug_check(Rule::NotSimulated, format_args!("WskReceiveEx with a place for control information"));
    }
    // SAFETY: the arguments of a call with fewer of them.
    unsafe { receive(socket, buffer, flags, irp) }
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    request::cancelled(irp, cancel_numbered);
}

fn cancel_numbered(state: &Arc<State>, number: u64) {
    let found = state.locked::<Sockets>().0.iter_mut().find_map(|(_, socket)| {
        let receives = &mut socket.connection()?.incoming.receives;
        let place = receives.iter().position(|receive| receive.pended.number == number)?;
        receives.remove(place)
    });
    if let Some(receive) = found {
        receive.pended.end(state, CANCELLED, 0);
    }
}

/// Tells the other side what was taken.
fn tell_taken(state: &Arc<State>, address: usize) {
    if let Some(segment) = with_connection(state, address, |connection| connection.incoming.taken()) {
        tell(state, address, segment);
    }
}

/// What is to be done next for a socket of which something has come.
enum Next {
    /// A request is complete.
    Complete(Receiving, NtStatus),
    /// The callback gets some.
    Indicate(Vec<u8>),
    /// The callback hears of the end.
    Ended(u32),
    /// Something was taken, and that is all.
    Taken,
    Nothing,
}

/// What is to be done next of a request that is the first of a connection.
fn next_of_request(connection: &mut Connection) -> Option<Next> {
    let incoming = &mut connection.incoming;
    let Receiving { mode, .. } = *incoming.receives.front()?;
    if let Stage::Over(status) = connection.stage {
        return incoming.receives.pop_front().map(|receive| Next::Complete(receive, status));
    }
    let before = incoming.consumed;
    let (length, has) = incoming.receives.front().map(|first| (first.buffer.length(), first.bytes.len()))?;
    let wanted = if mode == Mode::Drain { usize::MAX } else { length - has };
    let bytes = incoming.take(wanted);
    let is_at_an_end = incoming.is_at_an_end();
    let first = incoming.receives.front_mut()?;
    if mode != Mode::Drain {
        first.bytes.extend(bytes);
    }
    let is_complete = match mode {
        Mode::Some => !first.bytes.is_empty() || length == 0,
        Mode::All => first.bytes.len() == length,
        Mode::Drain => false,
    };
    if is_complete || is_at_an_end {
        return incoming.receives.pop_front().map(|receive| Next::Complete(receive, NtStatus::SUCCESS));
    }
    Some(if incoming.consumed > before { Next::Taken } else { Next::Nothing })
}

fn next(socket: &mut Socket) -> Next {
    let is_over = socket.is_closing || socket.is_broken;
    let (hears_of_data, hears_of_end) =
        (socket.events.is_on(WSK_EVENT_RECEIVE), socket.events.is_on(WSK_EVENT_DISCONNECT));
    let Some(connection) = socket.connection().filter(|_| !is_over) else { return Next::Nothing };
    if let Some(next) = next_of_request(connection) {
        return next;
    }
    let incoming = &mut connection.incoming;
    let is_connected = matches!(connection.stage, Stage::Connected);
    if is_connected && hears_of_data && !incoming.is_paused && !incoming.arrived.is_empty() {
        let count = incoming.arrived.len().min(LONGEST);
        // They are taken when the callback says so.
        let bytes = incoming.arrived.drain(..count).collect();
        socket.events.begin(WSK_EVENT_RECEIVE);
        return Next::Indicate(bytes);
    }
    let flags = match incoming.news {
        News::Reset => Some(WSK_FLAG_ABORTIVE),
        News::None if is_connected && incoming.is_at_an_end() => Some(0),
        News::None | News::Told => None,
    };
    if let Some(flags) = flags.filter(|_| hears_of_end) {
        incoming.news = News::Told;
        socket.events.begin(WSK_EVENT_DISCONNECT);
        return Next::Ended(flags);
    }
    Next::Nothing
}

/// Gives what has come to who wants it: one at a time, so that it stays in order.
pub fn feed(state: &Arc<State>, address: usize) {
    let begins =
        with_connection(state, address, |connection| !std::mem::replace(&mut connection.incoming.is_feeding, true));
    if begins != Some(true) {
        return;
    }
    loop {
        let next = {
            let mut sockets = state.locked::<Sockets>();
            let Some(socket) = sockets.0.get_mut(&address) else { return };
            let next = next(socket);
            if let (Next::Nothing, Some(connection)) = (&next, socket.connection()) {
                connection.incoming.is_feeding = false;
            }
            next
        };
        match next {
            Next::Complete(receive, status) => {
                let count = if status == NtStatus::SUCCESS {
                    receive.buffer.check_unchanged(state, "WskReceive");
                    receive.buffer.write(&receive.bytes)
                } else {
                    0
                };
                tell_taken(state, address);
                receive.pended.end(state, status, count);
            }
            Next::Indicate(bytes) => indicate(state, address, &bytes),
            Next::Ended(flags) => tell_of_end(state, address, flags),
            Next::Taken => tell_taken(state, address),
            Next::Nothing => return,
        }
    }
}

/// The flags of a callback. Where that of the level is missing the level may be the same.
fn flags_of_level(state: &State) -> u32 {
    if state.machine.random().is_multiple_of(4) { 0 } else { WSK_FLAG_AT_DISPATCH_LEVEL }
}

/// Shows bytes to the callback of a socket, of which one call more is counted already.
fn indicate(state: &Arc<State>, address: usize, bytes: &[u8]) {
    let many = 1 + usize::try_from(state.machine.random() % 3).unwrap_or(0);
    let pieces: Vec<Vec<u8>> = bytes.chunks(bytes.len().div_ceil(many)).map(<[u8]>::to_vec).collect();
    let (first, list) = Kept::of_stream(state, &pieces);
    let found = {
        let mut sockets = state.locked::<Sockets>();
        sockets.0.get_mut(&address).and_then(|socket| {
            socket.kept.insert(first, list);
            let (owner, context) = (socket.owner, socket.context);
            Some((owner, context, socket.connection()?.callbacks.WskReceiveEvent?))
        })
    };
    let Some((owner, argument, callback)) = found else { return };
    let random = state.machine.random();
    let hints = [WSK_FLAG_RELEASE_ASAP, WSK_FLAG_ENTIRE_MESSAGE]
        .map(|flag| if random & u64::from(flag) == 0 { 0 } else { flag });
    let flags = flags_of_level(state) | hints[0] | hints[1];
    let mut accepted = bytes.len();
    let place = &raw mut accepted;
    let argument = argument.pointer("WskReceiveEvent");
    let answer = context::call(owner, "WskReceiveEvent", || {
        // SAFETY: the client's own routine and context, a list that lives until it is given back, and a place on this stack.
        unsafe { callback(argument, flags, std::ptr::with_exposed_provenance_mut(first), bytes.len(), place) }
    });
    let taken = match answer {
        NtStatus::PENDING => None,
        NtStatus::SUCCESS if accepted > bytes.len() => bug_check(
            Rule::WskIndication,
            format_args!("WskReceiveEvent has accepted {accepted} bytes of {}", bytes.len()),
        ),
        NtStatus::SUCCESS => Some(accepted),
        DATA_NOT_ACCEPTED => Some(0),
        answer => bug_check(Rule::WskIndication, format_args!("WskReceiveEvent has answered {answer:?}")),
    };
    settle(state, address, first, bytes, taken);
    if taken.is_some_and(|count| count > 0) {
        tell_taken(state, address);
    }
}

/// The callback has kept a list, or taken so many of its bytes.
fn settle(state: &State, address: usize, first: usize, bytes: &[u8], taken: Option<usize>) {
    let list = {
        let mut sockets = state.locked::<Sockets>();
        let Some(socket) = sockets.0.get_mut(&address) else { return };
        socket.events.end(WSK_EVENT_RECEIVE);
        let Some(taken) = taken else {
            if let Some(list) = socket.kept.get_mut(&first) {
                list.is_shown = false;
            }
            return;
        };
        let list = socket.kept.remove(&first);
        if let Some(connection) = socket.connection() {
            let incoming = &mut connection.incoming;
            incoming.consumed += taken as u64;
            if taken < bytes.len() {
                incoming.is_paused = true;
                bytes[taken..].iter().rev().for_each(|&byte| incoming.arrived.push_front(byte));
            }
        }
        list
    };
    let Some(list) = list else {
        bug_check(Rule::WskIndication, format_args!("WskReceiveEvent has released a list that it does not keep"));
    };
    list.free(state);
}

/// Tells the callback of a socket, of which one call more is counted already, that the other side has ended.
fn tell_of_end(state: &Arc<State>, address: usize, flags: u32) {
    let found = {
        let mut sockets = state.locked::<Sockets>();
        sockets.0.get_mut(&address).and_then(|socket| {
            let (owner, context) = (socket.owner, socket.context);
            Some((owner, context, socket.connection()?.callbacks.WskDisconnectEvent?))
        })
    };
    if let Some((owner, argument, callback)) = found {
        let (flags, argument) = (flags | flags_of_level(state), argument.pointer("WskDisconnectEvent"));
        let answer = context::call(owner, "WskDisconnectEvent", || {
            // SAFETY: the client's own routine and context.
            unsafe { callback(argument, flags) }
        });
        if answer != NtStatus::SUCCESS {
            bug_check(Rule::WskIndication, format_args!("WskDisconnectEvent has answered {answer:?}"));
        }
    }
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.end(WSK_EVENT_DISCONNECT);
    }
}

/// Tells the callback of a socket, if it is enabled, that the socket has to be closed.
pub fn tell_of_break(state: &Arc<State>, address: usize) {
    let found = {
        let mut sockets = state.locked::<Sockets>();
        let socket = sockets.0.get_mut(&address);
        let socket = socket.filter(|socket| !socket.is_closing && socket.events.is_on(WSK_EVENT_RECEIVE));
        socket.and_then(|socket| {
            let (owner, context) = (socket.owner, socket.context);
            let callback = socket.connection()?.callbacks.WskReceiveEvent?;
            socket.events.begin(WSK_EVENT_RECEIVE);
            Some((owner, context, callback))
        })
    };
    let Some((owner, argument, callback)) = found else { return };
    let (argument, mut accepted, flags) = (argument.pointer("WskReceiveEvent"), 0, flags_of_level(state));
    let place = &raw mut accepted;
    let _ = context::call(owner, "WskReceiveEvent", || {
        // SAFETY: the client's own routine and context, no list, and a place on this stack.
        unsafe { callback(argument, flags, std::ptr::null_mut(), 0, place) }
    });
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.end(WSK_EVENT_RECEIVE);
    }
}

pub unsafe extern "system" fn release(socket: *mut WSK_SOCKET, list: *mut WSK_DATA_INDICATION) -> NtStatus {
    const NAME: &str = "WskRelease";
    request::function(NAME, |state| {
        let _inside = state.enter_socket(socket, NAME);
        let kept = state.with_socket(socket, NAME, |socket| {
            let kept = socket.kept.remove(&list.addr())?;
            // The window opens when the client has taken it.
            if let Some(connection) = socket.connection() {
                connection.incoming.consumed += kept.length as u64;
            }
            Some(kept)
        });
        let Some(kept) = kept else {
            bug_check(Rule::WskIndication, format_args!("{NAME}: {list:p} is no list of data that the client has"));
        };
        kept.free(state);
        tell_taken(state, socket.addr());
        NtStatus::SUCCESS
    })
}
