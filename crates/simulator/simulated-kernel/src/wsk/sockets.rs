//! Sockets: what is kept of each, and how the functions get at it.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::{IRP, PFN_WSK_RECEIVE_FROM_EVENT, WSK_SOCKET};
use ndkpi::{AF_INET, NtStatus, SOCKADDR, SOCKADDR_INET};

use super::{
    buffer::present,
    indication::Kept,
    medium::{Datagram, HostPort},
    receive::Receive,
    request::{self, Call},
    status::FILE_FORCED_CLOSED,
};
use crate::{
    argument::Argument,
    context::DriverId,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    wdm::io::device::Device,
};

/// A socket.
pub struct Socket {
    /// The client, by its number.
    pub client: usize,
    pub owner: DriverId,
    pub family: u16,
    pub context: Argument,
    pub callback: Option<PFN_WSK_RECEIVE_FROM_EVENT>,
    /// Takes the IRPs of its functions.
    pub device: Arc<Device>,
    /// Its address, when it is bound.
    pub local: Option<SocketAddr>,
    /// Where datagrams without an address go.
    pub destination: Option<SocketAddr>,
    /// Whose datagrams alone are received.
    pub remote: Option<SocketAddr>,
    /// The event of datagrams is on, for good if it is static.
    pub event: Event,
    /// Callbacks that run.
    pub callbacks: u32,
    /// Calls of its functions that have not returned.
    pub calls: u32,
    /// Requests to receive, the oldest first.
    pub receives: VecDeque<Receive>,
    /// Datagrams that nobody has had.
    pub arrived: VecDeque<Datagram>,
    /// Lists that callbacks have kept, by the address of the first.
    pub kept: LiteMap<usize, Kept>,
    /// The host's socket, if datagrams travel over that.
    pub host: Option<HostPort>,
    /// It is no longer functional.
    pub is_broken: bool,
    pub is_closing: bool,
}

/// The sockets, by the address of the structure.
#[derive(Default)]
pub struct Sockets(pub LiteMap<usize, Socket>);

impl Part for Mutex<Sockets> {}

/// Whether the event of datagrams is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Off,
    On,
    Static,
}

impl Socket {
    /// What a function answers if the socket cannot do what it is asked for.
    pub fn refusal(&self) -> Option<NtStatus> {
        self.is_broken.then_some(FILE_FORCED_CLOSED)
    }

    /// The socket's address. Ends the test if it has none.
    pub fn bound(&self, routine: &str) -> SocketAddr {
        self.local.unwrap_or_else(|| {
            bug_check(Rule::WskSocketState, format_args!("{routine} of a socket that is not bound"));
        })
    }

    /// An address that a client has passed: of the socket's family.
    pub fn address(&self, place: *const SOCKADDR, routine: &str) -> SocketAddr {
        address_of(place, self.family, routine)
    }
}

/// An address that a client has passed: of that family.
fn address_of(place: *const SOCKADDR, family: u16, routine: &str) -> SocketAddr {
    present(place.addr(), "an address");
    // SAFETY: the client's structure, of which the family comes first and says how long it is.
    let length = match unsafe { place.cast::<u16>().read_unaligned() } {
        AF_INET => 16,
        _ => 28,
    };
    // SAFETY: as above.
    let address = unsafe { SOCKADDR_INET::read(place, length) };
    let address = address.filter(|address| address.family() == family).and_then(|address| address.to_socket_addr());
    address.unwrap_or_else(|| {
        bug_check(Rule::BadArgument, format_args!("{routine} with an address of another family than the socket's"));
    })
}

/// Writes an address where a client wants it.
pub fn write_address(place: *mut SOCKADDR, address: SocketAddr) {
    let address = SOCKADDR_INET::from(address);
    // SAFETY: the client's place has room for an address of its socket's family, and stays until the request is complete.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(address.as_ptr().cast(), address.length() as usize) };
}

/// The bytes of an address of that family.
pub const fn size_of_address(family: u16) -> usize {
    if family == AF_INET { 16 } else { 28 }
}

/// A call of a socket's function that has not returned.
pub struct InCall<'state> {
    state: &'state State,
    address: usize,
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.state.locked::<Sockets>().0.get_mut(&self.address) {
            socket.calls -= 1;
        }
    }
}

impl State {
    /// Does something with a socket. Ends the test if it is none, or is being closed.
    pub fn with_socket<R>(&self, socket: *mut WSK_SOCKET, routine: &str, work: impl FnOnce(&mut Socket) -> R) -> R {
        let mut sockets = self.locked::<Sockets>();
        let Some(found) = sockets.0.get_mut(&socket.addr()) else {
            drop(sockets);
            bug_check(Rule::BadHandle, format_args!("{routine} of {socket:p}, which is no socket, or was closed"));
        };
        if found.is_closing {
            drop(sockets);
            bug_check(Rule::WskSocketState, format_args!("{routine} of a socket after WskCloseSocket"));
        }
        work(found)
    }

    /// A function of a socket is called, until what comes back is dropped.
    pub fn enter_socket(&self, socket: *mut WSK_SOCKET, routine: &str) -> InCall<'_> {
        self.with_socket(socket, routine, |socket| socket.calls += 1);
        InCall { state: self, address: socket.addr() }
    }
}

/// Carries out a function of a socket that takes an IRP.
pub fn of_socket(
    name: &'static str,
    socket: *mut WSK_SOCKET,
    irp: *mut IRP,
    work: impl FnOnce(&Arc<State>, Call) -> NtStatus,
) -> NtStatus {
    request::function(name, |state| {
        let _inside = state.enter_socket(socket, name);
        let device = state.with_socket(socket, name, |socket| socket.device.clone());
        work(state, Call::new(state, &device, irp, name).of(socket.addr()))
    })
}
