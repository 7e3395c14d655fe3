//! Datagrams that have come: requests to receive get them first, then the callback.

use std::sync::Arc;

use ndis::{CMSGHDR, IRP, MSG_TRUNC, WSK_BUF, WSK_EVENT_RECEIVE_FROM, WSK_SOCKET};
use ndkpi::{NtStatus, SOCKADDR};
use wdk_bindings::{PDEVICE_OBJECT, PIRP};

use super::{
    buffer::Buffer,
    indication,
    medium::Datagram,
    request::{self, Pended},
    sockets::{self, Socket, Sockets, size_of_address, write_address},
    status::CANCELLED,
};
use crate::{pins::Pin, state::State, tracked};

/// A request to receive a datagram.
pub struct Receive {
    pended: Pended,
    places: Places,
}

/// Where a datagram and what is said of it go.
struct Places {
    buffer: Buffer,
    family: u16,
    address: usize,
    control_length: usize,
    control_flags: usize,
}

impl Places {
    /// Writes a datagram. How many bytes of it.
    fn fill(&self, state: &State, datagram: &Datagram) -> usize {
        self.buffer.check_unchanged(state, "WskReceiveFrom");
        let count = self.buffer.write(&datagram.bytes);
        if self.address != 0 {
            let place = std::ptr::with_exposed_provenance_mut(self.address);
            write_address(place, datagram.source, self.family);
        }
        let cut = if count < datagram.bytes.len() { MSG_TRUNC } else { 0 };
        for (place, value) in [(self.control_length, 0), (self.control_flags, cut)] {
            let place: *mut u32 = std::ptr::with_exposed_provenance_mut(place);
            if !place.is_null() {
                // SAFETY: the client's place, which stays until the request is complete: that is watched.
                unsafe { place.write_unaligned(value) };
            }
        }
        count
    }
}

impl Receive {
    fn end(self, state: &Arc<State>, status: NtStatus) {
        self.pended.end(state, status, 0);
    }

    fn end_with(self, state: &Arc<State>, datagram: &Datagram) {
        let count = self.places.fill(state, datagram);
        self.pended.end(state, NtStatus::SUCCESS, count);
    }
}

pub unsafe extern "system" fn receive_from(
    socket: *mut WSK_SOCKET,
    buffer: *mut WSK_BUF,
    flags: u32,
    address: *mut SOCKADDR,
    control_length: *mut u32,
    control: *mut CMSGHDR,
    control_flags: *mut u32,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskReceiveFrom";
    sockets::of_socket(NAME, socket, irp, |state, mut call| {
        request::no_flags(flags, NAME);
        let buffer = Buffer::of(state, buffer, NAME);
        let (family, refusal) = state.with_socket(socket, NAME, |socket| {
            socket.bound(NAME);
            (socket.family, socket.refusal())
        });
        if let Some(status) = refusal {
            return call.end(state, status, 0);
        }
        let mut pin = Pin { routine: NAME, memory: Vec::new(), mdls: Vec::new() };
        buffer.pin(&mut pin);
        if !address.is_null() {
            tracked::check_memory_of(address.addr(), "place for the address");
        }
        // SAFETY: null, or the client's place, which stays until the request is complete: that is watched.
        let room = unsafe { control_length.as_ref() }.map_or(0, |&room| room as usize);
        for (place, size, what) in [
            (address.expose_provenance(), size_of_address(family), "the place for the address"),
            (control_length.expose_provenance(), size_of::<u32>(), "the place for the length of control information"),
            (control.expose_provenance(), room, "the place for control information"),
            (control_flags.expose_provenance(), size_of::<u32>(), "the place for flags"),
        ] {
            if place != 0 && size > 0 {
                pin.memory.push((place..place + size, what));
            }
        }
        call.pin(state, pin);
        let places = Places {
            buffer,
            family,
            address: address.addr(),
            control_length: control_length.addr(),
            control_flags: control_flags.addr(),
        };
        let at_once = state.at_once();
        let datagram = state.with_socket(socket, NAME, |socket| {
            let datagrams = socket.datagrams().filter(|datagrams| at_once && datagrams.receives.is_empty())?;
            datagrams.arrived.pop_front()
        });
        if let Some(datagram) = datagram {
            let count = places.fill(state, &datagram);
            return call.end_now(state, NtStatus::SUCCESS, count);
        }
        let pended = call.pend_with(state, Some(cancel));
        let number = pended.number;
        let address = socket.addr();
        let is_cancelled = state.with_socket(socket, NAME, |socket| {
            // Who cancels it from here on finds it in the list.
            let is_cancelled = pended.is_cancelled();
            if let Some(datagrams) = socket.datagrams() {
                datagrams.receives.push_back(Receive { pended, places });
            }
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

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    request::cancelled(irp, cancel_numbered);
}

fn cancel_numbered(state: &Arc<State>, number: u64) {
    let found = state.locked::<Sockets>().0.iter_mut().find_map(|(_, socket)| {
        let receives = &mut socket.datagrams()?.receives;
        let place = receives.iter().position(|receive| receive.pended.number == number)?;
        receives.remove(place)
    });
    if let Some(receive) = found {
        receive.end(state, CANCELLED);
    }
}

impl State {
    /// A socket is being closed: what it has to receive is cancelled.
    pub fn cancel_requests(self: &Arc<Self>, address: usize) {
        self.end_receives(address, CANCELLED);
    }

    pub fn end_receives(self: &Arc<Self>, address: usize, status: NtStatus) {
        let receives = {
            let mut sockets = self.locked::<Sockets>();
            let datagrams = sockets.0.get_mut(&address).and_then(Socket::datagrams);
            datagrams.map(|datagrams| std::mem::take(&mut datagrams.receives))
        };
        for receive in receives.into_iter().flatten() {
            receive.end(self, status);
        }
    }
}

/// What is to be done next for a socket that has datagrams.
enum Next {
    Receive(Receive, Datagram),
    Indicate(Vec<Datagram>),
    Nothing,
}

/// Gives the datagrams that have come to who wants them.
pub fn feed(state: &Arc<State>, address: usize) {
    loop {
        let many = 1 + usize::try_from(state.machine.random() % 4).unwrap_or(0);
        let next = {
            let mut sockets = state.locked::<Sockets>();
            let Some(socket) = sockets.0.get_mut(&address) else { return };
            let (is_over, is_on) = (socket.is_closing || socket.is_broken, socket.events.is_on(WSK_EVENT_RECEIVE_FROM));
            let Some(datagrams) = socket.datagrams() else { return };
            if is_over || datagrams.arrived.is_empty() {
                Next::Nothing
            } else if let Some(receive) = datagrams.receives.pop_front() {
                let datagram = datagrams.arrived.pop_front();
                datagram.map_or(Next::Nothing, |datagram| Next::Receive(receive, datagram))
            } else if is_on {
                let many = many.min(datagrams.arrived.len());
                let shown = datagrams.arrived.drain(..many).collect();
                socket.events.begin(WSK_EVENT_RECEIVE_FROM);
                Next::Indicate(shown)
            } else {
                Next::Nothing
            }
        };
        match next {
            Next::Receive(receive, datagram) => receive.end_with(state, &datagram),
            Next::Indicate(datagrams) => {
                let went_on = indication::indicate(state, address, datagrams);
                if !went_on {
                    return;
                }
            }
            Next::Nothing => return,
        }
    }
}

/// Puts datagrams back that a callback has not taken.
pub fn put_back(state: &State, address: usize, datagrams: Vec<Datagram>) {
    if let Some(socket) = state.locked::<Sockets>().0.get_mut(&address) {
        socket.events.disable(WSK_EVENT_RECEIVE_FROM);
        if let Some(own) = socket.datagrams() {
            for datagram in datagrams.into_iter().rev() {
                own.arrived.push_front(datagram);
            }
        }
    }
}
