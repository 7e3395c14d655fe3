//! Sockets: what is kept of each, and how the functions get at it.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::{
    IPPROTO_IPV6, IPV6_V6ONLY, IRP, PFN_WSK_RECEIVE_FROM_EVENT, SOL_SOCKET, WSK_CLIENT_CONNECTION_DISPATCH,
    WSK_CLIENT_LISTEN_DISPATCH, WSK_EVENT_ACCEPT, WSK_EVENT_DISCONNECT, WSK_EVENT_RECEIVE, WSK_EVENT_RECEIVE_FROM,
    WSK_EVENT_SEND_BACKLOG, WSK_SOCKET,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR, SOCKADDR_INET};

use super::{
    buffer::present,
    connection::Connection,
    host_stream::HostListener,
    indication::Kept,
    medium::{Datagram, HostPort},
    receive::Receive,
    request::{self, Call, Pended},
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

/// The option that others may have the address too.
pub const SO_REUSEADDR: u32 = 4;

/// A socket.
pub struct Socket {
    /// The client, by its number.
    pub client: usize,
    pub owner: DriverId,
    pub family: u16,
    pub context: Argument,
    /// Takes the IRPs of its functions.
    pub device: Arc<Device>,
    /// Its address, when it is bound.
    pub local: Option<SocketAddr>,
    pub events: Events,
    /// Calls of its functions that have not returned.
    pub calls: u32,
    /// Lists that callbacks have kept, by the address of the first.
    pub kept: LiteMap<usize, Kept>,
    /// Options that were set, by level and code.
    pub options: LiteMap<(u32, u32), u32>,
    /// It is no longer functional.
    pub is_broken: bool,
    pub is_closing: bool,
    pub role: Role,
}

/// What a socket is for.
pub enum Role {
    /// Options.
    Basic,
    /// Datagrams.
    Datagrams(Box<Datagrams>),
    /// Connections that come.
    Listening(Box<Listening>),
    /// One connection.
    Connection(Box<Connection>),
}

/// What a datagram socket has.
#[derive(Default)]
pub struct Datagrams {
    pub callback: Option<PFN_WSK_RECEIVE_FROM_EVENT>,
    /// Where datagrams without an address go.
    pub destination: Option<SocketAddr>,
    /// Whose datagrams alone are received.
    pub remote: Option<SocketAddr>,
    /// Requests to receive, the oldest first.
    pub receives: VecDeque<Receive>,
    /// Datagrams that nobody has had.
    pub arrived: VecDeque<Datagram>,
    /// The host's socket, if datagrams travel over that.
    pub host: Option<HostPort>,
}

/// What a socket has that listens.
pub struct Listening {
    pub callbacks: WSK_CLIENT_LISTEN_DISPATCH,
    /// Requests to accept, the oldest first.
    pub accepts: VecDeque<Accept>,
    /// Sockets of connections that nobody has accepted.
    pub waiting: VecDeque<usize>,
    /// The host's port, if connections come over that.
    pub host: Option<HostListener>,
}

/// A request to accept a connection.
pub struct Accept {
    pub pended: Pended,
    pub context: Argument,
    pub callbacks: WSK_CLIENT_CONNECTION_DISPATCH,
    /// Where the addresses go, or zero.
    pub places: [usize; 2],
}

/// The sockets, by the address of the structure.
#[derive(Default)]
pub struct Sockets(pub LiteMap<usize, Socket>);

impl Part for Mutex<Sockets> {}

/// Which events of a socket are on, and which callbacks run.
#[derive(Default)]
pub struct Events {
    on: u32,
    /// Those that are on for good.
    fixed: u32,
    running: LiteMap<u32, u32>,
}

impl Events {
    /// Those of a new socket.
    pub fn fixed(fixed: u32) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// Returns true if the event is on.
    pub const fn is_on(&self, event: u32) -> bool {
        (self.on | self.fixed) & event != 0
    }

    /// Returns true if one of the events is on for good.
    pub const fn is_fixed(&self, events: u32) -> bool {
        self.fixed & events != 0
    }

    /// The events of these that are on, and those that are on for good.
    pub const fn split(&self, events: u32) -> (u32, u32) {
        (self.on & events, self.fixed & events)
    }

    /// These are on from the beginning, and those for good.
    pub const fn begin_with(&mut self, on: u32, fixed: u32) {
        self.on |= on;
        self.fixed |= fixed;
    }

    pub const fn enable(&mut self, events: u32) {
        self.on |= events;
    }

    pub const fn disable(&mut self, event: u32) {
        self.on &= !event;
    }

    /// A callback is about to be called.
    pub fn begin(&mut self, event: u32) {
        *self.running.entry(event).or_default() += 1;
    }

    /// It has returned.
    pub fn end(&mut self, event: u32) {
        if let Some(count) = self.running.get_mut(&event) {
            *count -= 1;
        }
    }

    /// Returns true if the callback runs.
    pub fn runs(&self, event: u32) -> bool {
        self.running.get(&event).is_some_and(|count| *count > 0)
    }

    /// Returns true if any callback runs.
    pub fn run(&self) -> bool {
        self.running.values().any(|count| *count > 0)
    }
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

    /// An option that was set, or zero.
    pub fn option(&self, level: u32, code: u32) -> u32 {
        self.options.get(&(level, code)).copied().unwrap_or_default()
    }

    /// It is of IPv6 and for IPv4 too, whose addresses are mapped into its own.
    pub fn is_dual(&self) -> bool {
        self.family == AF_INET6 && self.options.get(&(IPPROTO_IPV6, IPV6_V6ONLY)) == Some(&0)
    }

    /// It is one of TCP.
    pub const fn is_stream(&self) -> bool {
        matches!(self.role, Role::Listening(_) | Role::Connection(_))
    }

    /// Its port is that of a socket that listens.
    pub fn shares_port(&self) -> bool {
        matches!(&self.role, Role::Connection(connection) if connection.is_accepted)
    }

    /// Its client lets others have its address that want the same.
    pub fn is_shared(&self) -> bool {
        self.option(SOL_SOCKET, SO_REUSEADDR) != 0
    }

    /// What a datagram socket has.
    pub fn datagrams(&mut self) -> Option<&mut Datagrams> {
        if let Role::Datagrams(datagrams) = &mut self.role { Some(datagrams) } else { None }
    }

    /// What a socket has that listens.
    pub fn listening(&mut self) -> Option<&mut Listening> {
        if let Role::Listening(listening) = &mut self.role { Some(listening) } else { None }
    }

    /// What a socket has that is connected, or will be.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        if let Role::Connection(connection) = &mut self.role { Some(connection) } else { None }
    }

    /// Returns true if the client has a callback for each of these events.
    pub fn has_callbacks(&self, events: u32) -> bool {
        let (there, known) = match &self.role {
            Role::Basic => (0, 0),
            Role::Datagrams(datagrams) => (mask(datagrams.callback, WSK_EVENT_RECEIVE_FROM), WSK_EVENT_RECEIVE_FROM),
            // Those of connections are looked for when there is one.
            Role::Listening(listening) => {
                (mask(listening.callbacks.WskAcceptEvent, WSK_EVENT_ACCEPT), WSK_EVENT_ACCEPT)
            }
            Role::Connection(connection) => (events_of_connection(&connection.callbacks), EVENTS_OF_CONNECTIONS),
        };
        events & known & !there == 0
    }
}

/// The events of sockets that are connected.
pub const EVENTS_OF_CONNECTIONS: u32 = WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT | WSK_EVENT_SEND_BACKLOG;

const fn mask<T>(callback: Option<T>, event: u32) -> u32
where
    T: Copy,
{
    if callback.is_some() { event } else { 0 }
}

/// The events for which there is a callback.
pub const fn events_of_connection(callbacks: &WSK_CLIENT_CONNECTION_DISPATCH) -> u32 {
    mask(callbacks.WskReceiveEvent, WSK_EVENT_RECEIVE)
        | mask(callbacks.WskDisconnectEvent, WSK_EVENT_DISCONNECT)
        | mask(callbacks.WskSendBacklogEvent, WSK_EVENT_SEND_BACKLOG)
}

/// An address that a client has passed: of that family.
pub fn address_of(place: *const SOCKADDR, family: u16, routine: &str) -> SocketAddr {
    present(place.addr(), "an address");
    // SAFETY: the client's structure, of which the family comes first and says how long it is.
    let length = match unsafe { place.cast::<u16>().read_unaligned() } {
        AF_INET => 16,
        _ => 28,
    };
    // SAFETY: the client's structure, of which the family comes first and says how long it is.
    let address = unsafe { SOCKADDR_INET::read(place, length) };
    let address = address.filter(|address| address.family() == family).and_then(|address| address.to_socket_addr());
    address.unwrap_or_else(|| {
        bug_check(Rule::BadArgument, format_args!("{routine} with an address of another family than the socket's"));
    })
}

/// An address as a socket of that family shows it.
pub fn shown(address: SocketAddr, family: u16) -> SOCKADDR_INET {
    match address {
        SocketAddr::V4(own) if family == AF_INET6 => {
            SocketAddr::new(own.ip().to_ipv6_mapped().into(), own.port()).into()
        }
        address => address.into(),
    }
}

/// Writes an address where the client of a socket of that family wants it.
pub fn write_address(place: *mut SOCKADDR, address: SocketAddr, family: u16) {
    let address = shown(address, family);
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

    /// The addresses at which sockets listen for connections.
    pub fn listening(&self) -> Vec<SocketAddr> {
        let sockets = self.locked::<Sockets>();
        let listen =
            sockets.0.values().filter(|socket| matches!(socket.role, Role::Listening(_)) && !socket.is_closing);
        listen.filter_map(|socket| socket.local).collect()
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
