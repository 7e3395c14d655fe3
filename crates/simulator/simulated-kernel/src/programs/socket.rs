//! Sockets of programs: what talks with drivers over Winsock Kernel, on the machine's network or over the host's loopback.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ndkpi::NtStatus;

use super::host_socket::HostSocket;
use crate::{
    context,
    faults::Faults,
    netio::network::Network,
    state::State,
    waiting,
    wsk::{
        arrival,
        clockwork::{self, Clockwork},
        medium::LONGEST,
        program::{self, End, Packet, ProgramSocket, ProgramSockets, Stage},
        segment::{PATIENCE, Segment},
        status::INVALID_BUFFER_SIZE,
    },
};

/// What runs meanwhile.
const PROGRAM: &str = "a program";

/// A socket of a program. Closed when dropped: a stream ends behind what was sent, and is reset if something has come that nobody has
/// taken.
pub struct Socket(Kind);

enum Kind {
    /// One of the machine's network.
    Simulated(Number),
    /// One of the host's loopback.
    Host(HostSocket),
}

/// A socket by its number. As long as there is one the clockwork goes.
struct Number {
    state: Arc<State>,
    number: u64,
}

impl Network {
    /// A program connects to a port, and waits until it is. Without `from`, from any port of its own.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_REFUSED` where nobody listens, `STATUS_IO_TIMEOUT` after 21 seconds where nobody is, `STATUS_NETWORK_UNREACHABLE`
    /// without a route, and what is wrong with `from`.
    pub fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> Result<Socket, NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        let state = self.state();
        if state.is_of_host() {
            return Ok(Socket(Kind::Host(HostSocket::connect(to)?)));
        }
        let wanted = from.unwrap_or_else(|| any(to));
        let local = state.address_of_program(wanted, true)?;
        let local = state.source_of(local, to.ip()).ok_or(NtStatus::NETWORK_UNREACHABLE)?;
        let id = state.new_connection();
        let end = End::new(local, to, id, Stage::Connecting);
        let open = end.packet(Segment::Open);
        let socket = Number::new(state, ProgramSocket::Stream(Box::new(end)));
        let number = socket.number;
        state.tell_of_programs([open]);
        state.after(PATIENCE, move |state| {
            if let Some(end) = state.locked::<ProgramSockets>().end(number).filter(|end| end.stage == Stage::Connecting)
            {
                end.end_with(NtStatus::IO_TIMEOUT);
            }
        });
        let what = format!("a program that connects to {to}");
        waiting::until(state, None, what.as_str(), || socket.with_end(|end| end.stage) != Some(Stage::Connecting));
        match socket.with_end(|end| end.stage) {
            Some(Stage::Over(status)) => Err(status),
            _ => Ok(Socket(Kind::Simulated(socket))),
        }
    }

    /// A program listens at an address.
    ///
    /// # Errors
    ///
    /// `STATUS_ADDRESS_ALREADY_EXISTS`, or `STATUS_INVALID_ADDRESS_COMPONENT` for an address that is not the machine's.
    pub fn listen(&self, at: SocketAddr) -> Result<Socket, NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        let state = self.state();
        if state.is_of_host() {
            return Ok(Socket(Kind::Host(HostSocket::listen(at)?)));
        }
        let (local, waiting) = (state.address_of_program(at, true)?, VecDeque::new());
        Ok(Socket(Kind::Simulated(Number::new(state, ProgramSocket::Listener { local, waiting }))))
    }

    /// A program has a socket for datagrams.
    ///
    /// # Errors
    ///
    /// As [`Network::listen`].
    pub fn bind(&self, at: SocketAddr) -> Result<Socket, NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        let state = self.state();
        if state.is_of_host() {
            return Ok(Socket(Kind::Host(HostSocket::bind(at)?)));
        }
        let (local, arrived) = (state.address_of_program(at, false)?, VecDeque::new());
        Ok(Socket(Kind::Simulated(Number::new(state, ProgramSocket::Datagrams { local, arrived }))))
    }

    /// The addresses at which drivers listen for connections, for somebody who looks for one.
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.state().listening()
    }
}

/// Any port of any address of that family.
const fn any(like: SocketAddr) -> SocketAddr {
    let ip = if like.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    SocketAddr::new(ip, 0)
}

impl Socket {
    /// Returns true for a socket that is for datagrams.
    #[must_use]
    pub fn is_for_datagrams(&self) -> bool {
        match &self.0 {
            Kind::Host(host) => host.is_for_datagrams(),
            Kind::Simulated(socket) => {
                let mut sockets = socket.state.locked::<ProgramSockets>();
                matches!(sockets.get_mut(socket.number), Some(ProgramSocket::Datagrams { .. }))
            }
        }
    }

    /// Waits for a connection that comes to a socket which listens.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` of any other.
    pub fn accept(&self) -> Result<Self, NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => Ok(Self(Kind::Host(host.accept()?))),
            Kind::Simulated(socket) => Ok(Self(Kind::Simulated(socket.accept()?))),
        }
    }

    /// Sends bytes of a stream, and does not wait: what the other side does not take yet goes when it has taken what was sent before.
    ///
    /// # Errors
    ///
    /// How the connection has ended.
    pub fn send(&self, bytes: &[u8]) -> Result<(), NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => host.send(bytes),
            Kind::Simulated(socket) => socket.tell(|end| end.send(bytes)),
        }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_BUFFER_SIZE` for one that is too long, `STATUS_NETWORK_UNREACHABLE` without a route.
    pub fn send_to(&self, to: SocketAddr, bytes: &[u8]) -> Result<(), NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        if bytes.len() > LONGEST {
            return Err(INVALID_BUFFER_SIZE);
        }
        match &self.0 {
            Kind::Host(host) => host.send_to(to, bytes),
            Kind::Simulated(socket) => socket.send_to(to, bytes),
        }
    }

    /// Waits until so many bytes of a stream have come, or its end: with none, until either has come. The bytes, which are fewer only at the
    /// end, and more only if none were wanted.
    ///
    /// # Errors
    ///
    /// How the connection has ended, if it was not by the end of the stream.
    pub fn receive(&self, count: usize) -> Result<Vec<u8>, NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => host.receive(count),
            Kind::Simulated(socket) => socket.receive(count),
        }
    }

    /// Waits for a datagram. Where it comes from, and its bytes.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` of a socket that is not for datagrams.
    pub fn receive_from(&self) -> Result<(SocketAddr, Vec<u8>), NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => host.receive_from(),
            Kind::Simulated(socket) => socket.receive_from(),
        }
    }

    /// Ends a stream behind what was sent. What the other side sends goes on.
    ///
    /// # Errors
    ///
    /// How the connection has ended before.
    pub fn end(&self) -> Result<(), NtStatus> {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => host.end(),
            Kind::Simulated(socket) => socket.tell(End::finish),
        }
    }

    /// Drops a connection, with what is under way.
    pub fn abort(self) {
        let _inside = context::Inside::new(PROGRAM);
        match &self.0 {
            Kind::Host(host) => host.abort(),
            Kind::Simulated(socket) => {
                let told = socket.state.locked::<ProgramSockets>().reset(socket.number);
                socket.state.tell_of_programs(told);
            }
        }
    }
}

/// Waits for something that a driver does. Once something was made to fail it need not do so any more, and the wait comes to its end.
pub fn wait(state: &Arc<State>, what: &str, mut ready: impl FnMut() -> bool) -> Result<(), NtStatus> {
    let end = state.machine.now().saturating_add(PATIENCE);
    // Who waits looks again then.
    state.after(PATIENCE, |_| ());
    let mut is_ready = false;
    waiting::until(state, None, what, || {
        is_ready = ready();
        is_ready || state.part::<Faults>().has_struck() && state.machine.now() >= end
    });
    if is_ready { Ok(()) } else { Err(NtStatus::IO_TIMEOUT) }
}

impl Number {
    fn new(state: &Arc<State>, socket: ProgramSocket) -> Self {
        Self::of(state, state.locked::<ProgramSockets>().add(socket))
    }

    /// A socket that is there.
    fn of(state: &Arc<State>, number: u64) -> Self {
        let clockwork = Clockwork::try_new(&state.machine).map(Arc::new);
        clockwork::begin(state, clockwork.ok());
        arrival::begin(state);
        Self { state: state.clone(), number }
    }

    /// Does something with a connection.
    fn with_end<R>(&self, work: impl FnOnce(&mut End) -> R) -> Option<R> {
        self.state.locked::<ProgramSockets>().end(self.number).map(work)
    }

    /// What stands in the way of using it as a connection.
    fn refusal(&self) -> Result<SocketAddr, NtStatus> {
        match self.with_end(|end| (end.stage, end.remote)) {
            None => Err(NtStatus::INVALID_DEVICE_REQUEST),
            Some((Stage::Over(status), _)) => Err(status),
            Some((_, remote)) => Ok(remote),
        }
    }

    fn accept(&self) -> Result<Self, NtStatus> {
        let mut came = None;
        let mut take = || {
            let mut sockets = self.state.locked::<ProgramSockets>();
            let Some(ProgramSocket::Listener { waiting, .. }) = sockets.get_mut(self.number) else { return true };
            came = waiting.pop_front();
            came.is_some()
        };
        wait(&self.state, "a program that waits for a connection", &mut take)?;
        Ok(Self::of(&self.state, came.ok_or(NtStatus::INVALID_DEVICE_REQUEST)?))
    }

    /// Has the other side told what the connection has to say.
    fn tell(&self, work: impl FnOnce(&mut End) -> Vec<Segment>) -> Result<(), NtStatus> {
        self.refusal()?;
        let told = self.with_end(|end| work(end).into_iter().map(|segment| end.packet(segment)).collect::<Vec<_>>());
        self.state.tell_of_programs(told.into_iter().flatten());
        program::watch(&self.state);
        Ok(())
    }

    fn receive(&self, count: usize) -> Result<Vec<u8>, NtStatus> {
        let what = format!("a program that waits for {count} bytes from {}", self.refusal()?);
        wait(&self.state, &what, || {
            let has_some = |end: &mut End| {
                let incoming = &end.incoming;
                let is_over = matches!(end.stage, Stage::Over(_)) || incoming.has_come_to_an_end();
                is_over || incoming.arrived.len() >= count.max(1)
            };
            self.with_end(has_some) != Some(false)
        })?;
        self.refusal()?;
        let taken = self.with_end(|end| {
            let bytes = end.incoming.take(if count == 0 { usize::MAX } else { count });
            (bytes, end.packet(end.incoming.taken()))
        });
        let (bytes, told) = taken.ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        self.state.tell_of_programs([told]);
        Ok(bytes)
    }

    fn send_to(&self, to: SocketAddr, bytes: &[u8]) -> Result<(), NtStatus> {
        let local = match self.state.locked::<ProgramSockets>().get_mut(self.number) {
            Some(ProgramSocket::Datagrams { local, .. }) => *local,
            _ => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        self.state.source_of(local, to.ip()).ok_or(NtStatus::NETWORK_UNREACHABLE)?;
        self.state.carry_from(local, to, bytes);
        Ok(())
    }

    fn receive_from(&self) -> Result<(SocketAddr, Vec<u8>), NtStatus> {
        let mut came = None;
        let mut take = || {
            let mut sockets = self.state.locked::<ProgramSockets>();
            let Some(ProgramSocket::Datagrams { arrived, .. }) = sockets.get_mut(self.number) else { return true };
            came = arrived.pop_front();
            came.is_some()
        };
        wait(&self.state, "a program that waits for a datagram", &mut take)?;
        came.ok_or(NtStatus::INVALID_DEVICE_REQUEST)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let _inside = context::Inside::new(PROGRAM);
        let told: Vec<Packet> = self.state.locked::<ProgramSockets>().close(self.number);
        self.state.tell_of_programs(told);
        drop(clockwork::end(&self.state));
    }
}

impl State {
    /// Programs' ends of connections tell the other ones something.
    fn tell_of_programs(self: &Arc<Self>, all: impl IntoIterator<Item = Packet>) {
        for Packet { from, to, id, segment } in all {
            self.carry_segment(from, to, &segment.encode(id));
        }
    }
}
