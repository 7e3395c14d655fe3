//! Lists of datagrams and of pieces of a stream, as callbacks get them.

use std::sync::Arc;

use ndis::{
    WSK_BUF, WSK_DATA_INDICATION, WSK_DATAGRAM_INDICATION, WSK_EVENT_RECEIVE_FROM, WSK_FLAG_AT_DISPATCH_LEVEL,
    WSK_SOCKET,
};
use ndkpi::{NtStatus, SOCKADDR_INET};
use wdk_bindings::MDL;

use super::{medium::Datagram, receive, request, sockets::Sockets, status::DATA_NOT_ACCEPTED};
use crate::{context, report::bug_check, rule::Rule, state::State, wdm::mdl};

/// A list that a callback has, or has kept.
pub struct Kept {
    parts: Vec<Part>,
    /// Bytes.
    pub length: usize,
    /// The callback has not returned.
    pub is_shown: bool,
}

/// What one structure of a list is made of.
struct Part {
    indication: usize,
    next: usize,
    mdls: Vec<usize>,
    blocks: Vec<usize>,
}

/// Bytes as a `WSK_BUF`: they begin somewhere in the first of one to three MDLs.
struct Bytes {
    buffer: WSK_BUF,
    mdls: Vec<usize>,
    blocks: Vec<usize>,
}

fn bytes_of(state: &State, bytes: &[u8]) -> Bytes {
    let (mut blocks, mut mdls) = (Vec::new(), Vec::<*mut MDL>::new());
    let random = usize::try_from(state.machine.random() % 0xFFFF).unwrap_or(0);
    let (offset, pieces) = (random % 20, 1 + random / 20 % 3);
    let mut rest = bytes;
    for left in (0..pieces).rev() {
        if rest.is_empty() {
            break;
        }
        let count = if left == 0 { rest.len() } else { (rest.len() / (left + 1)).max(1) };
        let (here, behind) = rest.split_at(count);
        let before = if mdls.is_empty() { offset } else { 0 };
        let place = request::block(before + count);
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(place + before);
        // SAFETY: a new block with room for it.
        unsafe { start.copy_from_nonoverlapping(here.as_ptr(), count) };
        let mdl = mdl::make_built(state, place, u32::try_from(before + count).unwrap_or(0));
        if let Some(&last) = mdls.last() {
            // SAFETY: an MDL of this list, which nobody else has yet.
            unsafe { (*last).Next = mdl };
        }
        blocks.push(place);
        mdls.push(mdl);
        rest = behind;
    }
    let first = mdls.first().copied().unwrap_or(std::ptr::null_mut());
    let buffer = WSK_BUF {
        Mdl: first.cast(),
        Offset: if first.is_null() { 0 } else { u32::try_from(offset).unwrap_or(0) },
        Length: bytes.len(),
    };
    Bytes { buffer, mdls: mdls.into_iter().map(<*mut MDL>::expose_provenance).collect(), blocks }
}

/// Makes the structures of a datagram.
fn part_of(state: &State, datagram: &Datagram, next: usize) -> Part {
    let address = SOCKADDR_INET::from(datagram.source);
    let length = address.length() as usize;
    let place = request::block(length);
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: a new block with room for it.
    unsafe { start.copy_from_nonoverlapping(address.as_ptr().cast(), length) };
    let Bytes { buffer, mdls, mut blocks } = bytes_of(state, &datagram.bytes);
    blocks.push(place);
    let indication = request::block(size_of::<WSK_DATAGRAM_INDICATION>());
    let whole = WSK_DATAGRAM_INDICATION {
        Next: std::ptr::with_exposed_provenance_mut(next),
        Buffer: buffer,
        ControlInfo: std::ptr::null_mut(),
        ControlInfoLength: 0,
        RemoteAddress: std::ptr::with_exposed_provenance_mut(place),
    };
    let here: *mut WSK_DATAGRAM_INDICATION = std::ptr::with_exposed_provenance_mut(indication);
    // SAFETY: a new block with room for it.
    unsafe { here.write(whole) };
    Part { indication, next, mdls, blocks }
}

/// Makes the structure of a piece of a stream.
fn piece_of(state: &State, bytes: &[u8], next: usize) -> Part {
    let Bytes { buffer, mdls, blocks } = bytes_of(state, bytes);
    let indication = request::block(size_of::<WSK_DATA_INDICATION>());
    let whole = WSK_DATA_INDICATION { Next: std::ptr::with_exposed_provenance_mut(next), Buffer: buffer };
    let here: *mut WSK_DATA_INDICATION = std::ptr::with_exposed_provenance_mut(indication);
    // SAFETY: a new block with room for it.
    unsafe { here.write(whole) };
    Part { indication, next, mdls, blocks }
}

impl Kept {
    /// The list of pieces of a stream, and the address of its first.
    pub fn of_stream(state: &State, pieces: &[Vec<u8>]) -> (usize, Self) {
        let mut parts = Vec::with_capacity(pieces.len());
        let mut next = 0;
        for piece in pieces.iter().rev() {
            let part = piece_of(state, piece, next);
            next = part.indication;
            parts.push(part);
        }
        let length = pieces.iter().map(Vec::len).sum();
        (next, Self { parts, length, is_shown: true })
    }

    fn of(state: &State, datagrams: &[Datagram]) -> (usize, Self) {
        let mut parts = Vec::with_capacity(datagrams.len());
        let mut next = 0;
        for datagram in datagrams.iter().rev() {
            let part = part_of(state, datagram, next);
            next = part.indication;
            parts.push(part);
        }
        let length = datagrams.iter().map(|datagram| datagram.bytes.len()).sum();
        (next, Self { parts, length, is_shown: true })
    }

    /// The list is Winsock Kernel's again. It must be what it was.
    pub fn free(self, state: &State) {
        for part in self.parts {
            // Both kinds of structures begin with the address of the next one.
            let here: *const usize = std::ptr::with_exposed_provenance(part.indication);
            // SAFETY: a structure of the list, which was not freed.
            let next = unsafe { here.read() };
            if next != part.next {
                bug_check(Rule::WskIndication, format_args!("a list of what has come comes back and was taken apart"));
            }
            for mdl in part.mdls {
                mdl::free(state, std::ptr::with_exposed_provenance_mut(mdl));
            }
            part.blocks.into_iter().chain([part.indication]).for_each(request::free_block);
        }
    }
}

/// Shows datagrams to the callback of a socket, of which one call more is counted already. Returns false if it does not want more.
pub fn indicate(state: &Arc<State>, address: usize, datagrams: Vec<Datagram>) -> bool {
    let (first, list) = Kept::of(state, &datagrams);
    {
        let mut sockets = state.locked::<Sockets>();
        // A call of its callback keeps the socket there.
        if let Some(socket) = sockets.0.get_mut(&address) {
            socket.kept.insert(first, list);
        }
    }
    let answer = call(state, address, first);
    let left = state.locked::<Sockets>().0.get_mut(&address).and_then(|socket| match answer {
        NtStatus::PENDING => {
            if let Some(list) = socket.kept.get_mut(&first) {
                list.is_shown = false;
            }
            None
        }
        _ => Some(socket.kept.remove(&first)),
    });
    let goes_on = match (answer, left) {
        (NtStatus::PENDING, _) => true,
        (NtStatus::SUCCESS | DATA_NOT_ACCEPTED, Some(None)) => {
            bug_check(
                Rule::WskIndication,
                format_args!("WskReceiveFromEvent has released a list that it does not keep"),
            );
        }
        (NtStatus::SUCCESS, Some(Some(list))) => {
            list.free(state);
            true
        }
        (DATA_NOT_ACCEPTED, Some(Some(list))) => {
            list.free(state);
            receive::put_back(state, address, datagrams);
            false
        }
        (answer, _) => bug_check(Rule::WskIndication, format_args!("WskReceiveFromEvent has answered {answer:?}")),
    };
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.end(WSK_EVENT_RECEIVE_FROM);
    }
    goes_on
}

/// Calls the callback of a socket, if it has one.
fn call(state: &Arc<State>, address: usize, first: usize) -> NtStatus {
    let found = state.locked::<Sockets>().0.get_mut(&address).and_then(|socket| {
        let callback = socket.datagrams()?.callback?;
        Some((socket.owner, callback, socket.context))
    });
    let Some((owner, callback, argument)) = found else { return NtStatus::SUCCESS };
    // Where the flag is missing the level may be the same.
    let flags = if state.machine.random().is_multiple_of(4) { 0 } else { WSK_FLAG_AT_DISPATCH_LEVEL };
    let argument = argument.pointer("WskReceiveFromEvent");
    context::call(owner, "WskReceiveFromEvent", || {
        // SAFETY: the client's own routine and context, and null or a list that lives until it is given back.
        unsafe { callback(argument, flags, std::ptr::with_exposed_provenance_mut(first)) }
    })
}

/// Tells the callback of a socket, if it is enabled, that the socket has to be closed.
pub fn tell_of_end(state: &Arc<State>, address: usize) {
    let is_wanted = {
        let mut sockets = state.locked::<Sockets>();
        let socket = sockets.0.get_mut(&address);
        let socket = socket.filter(|socket| !socket.is_closing && socket.events.is_on(WSK_EVENT_RECEIVE_FROM));
        socket.is_some_and(|socket| {
            socket.events.begin(WSK_EVENT_RECEIVE_FROM);
            true
        })
    };
    if is_wanted {
        let _ = call(state, address, 0);
        if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
            socket.events.end(WSK_EVENT_RECEIVE_FROM);
        }
    }
}

pub unsafe extern "system" fn release(socket: *mut WSK_SOCKET, list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    const NAME: &str = "WskRelease";
    request::function(NAME, |state| {
        let _inside = state.enter_socket(socket, NAME);
        let Some(kept) = state.with_socket(socket, NAME, |socket| socket.kept.remove(&list.addr())) else {
            let words = "is no list of datagrams that the client has";
            bug_check(Rule::WskIndication, format_args!("{NAME}: {list:p} {words}"));
        };
        kept.free(state);
        NtStatus::SUCCESS
    })
}
