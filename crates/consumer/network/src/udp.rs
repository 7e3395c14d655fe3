//! A UDP socket: many datagrams with one call where the system can.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::OpenError;

/// Bytes of a datagram at most.
pub const LONGEST: usize = 65_507;
/// Bytes of the buffers that the system is asked for. It may give less.
const BUFFER: usize = 4 << 20;

/// A socket for datagrams of several peers.
pub struct Udp {
    socket: UdpSocket,
    /// It is one of IPv6.
    is_v6: bool,
    /// The one peer, if the system knows that there is no other.
    peer: Option<SocketAddr>,
    #[cfg(target_os = "linux")]
    linux: linux::State,
}

impl Udp {
    /// Opens a socket. One for all addresses of IPv6 has those of IPv4 too.
    pub fn open(at: SocketAddr) -> Result<Self, OpenError> {
        let open = || -> io::Result<UdpSocket> {
            let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
            if at.is_ipv6() {
                socket.set_only_v6(at.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
            }
            // Frames come in bursts. Less is slower, not wrong.
            let _ = (socket.set_recv_buffer_size(BUFFER), socket.set_send_buffer_size(BUFFER));
            socket.bind(&at.into())?;
            Ok(socket.into())
        };
        let socket = open().map_err(|error| OpenError::of_socket(at, error))?;
        Ok(Self {
            #[cfg(target_os = "linux")]
            linux: linux::State::new(&socket),
            is_v6: at.is_ipv6(),
            peer: None,
            socket,
        })
    }

    /// Tells the system that datagrams go to this peer and come from it only: it looks for the way once. Where that fails it is looked for each
    /// time, and whatever comes is given.
    pub fn connect(&mut self, peer: SocketAddr) {
        if self.socket.connect(self.reach(peer)).is_ok() {
            self.peer = Some(peer);
        }
    }

    /// The address that it is bound to.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer's address in the family of the socket.
    pub fn reach(&self, to: SocketAddr) -> SocketAddr {
        match to.ip() {
            IpAddr::V4(ip) if self.is_v6 => (ip.to_ipv6_mapped(), to.port()).into(),
            _ => to,
        }
    }

    /// Sends datagrams, in this order.
    #[cfg(target_os = "linux")]
    pub fn send_all(&self, datagrams: &[(&[&[u8]], SocketAddr)]) -> io::Result<()> {
        linux::send_all(self, datagrams)
    }

    /// Sends datagrams, in this order.
    #[cfg(not(target_os = "linux"))]
    pub fn send_all(&self, datagrams: &[(&[&[u8]], SocketAddr)]) -> io::Result<()> {
        let send = |parts: &[&[u8]], to| {
            let (bytes, is_known) = (parts.concat(), self.peer == Some(to));
            let sent = if is_known { self.socket.send(&bytes) } else { self.socket.send_to(&bytes, self.reach(to)) };
            sent.map(drop)
        };
        datagrams.iter().try_for_each(|(parts, to)| forgive(send(parts, *to)))
    }

    /// Waits for datagrams; with no patience, takes those that are there. Addresses of IPv4 are those of IPv4, whatever the socket is.
    #[cfg(target_os = "linux")]
    pub fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> io::Result<usize> {
        linux::receive(self, patience, take)
    }

    /// Waits for a datagram.
    #[cfg(not(target_os = "linux"))]
    pub fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> io::Result<usize> {
        // Zero would be for ever.
        self.socket.set_read_timeout(Some(patience.max(Duration::from_micros(1))))?;
        let mut datagram = vec![0; LONGEST];
        match self.socket.recv_from(&mut datagram) {
            Ok((length, from)) => {
                take(&datagram[..length], canonical(from));
                Ok(1)
            }
            Err(error) if is_nothing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl Udp {
    /// Waits for a datagram that `take` wants, and gives it those that are there with it. Returns how many it wanted.
    pub fn receive_wanted(
        &self,
        patience: Duration,
        take: &mut dyn FnMut(&[u8], SocketAddr) -> bool,
    ) -> io::Result<usize> {
        // Who only looks is not kept from it by the clock.
        let begun = (!patience.is_zero()).then(Instant::now);
        let mut left = patience;
        loop {
            let mut count = 0;
            let seen = self.receive(left, &mut |datagram, from| count += usize::from(take(datagram, from)))?;
            if count > 0 || seen == 0 {
                return Ok(count);
            }
            // What strangers send ends the wait for nobody, and prolongs it neither.
            left = begun.map_or(Duration::ZERO, |begun| patience.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                return Ok(count);
            }
        }
    }
}

/// The address without the form that IPv4 has in a socket of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

/// Nothing has come: the time has run out, or an earlier datagram found nobody.
#[cfg(not(target_os = "linux"))]
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | ConnectionReset | ConnectionRefused | Interrupted)
}

/// A datagram that the network does not take is one that was lost.
fn forgive(result: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock,
    };
    result.or_else(|error| match error.kind() {
        WouldBlock | Interrupted | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
        | NetworkDown => Ok(()),
        _ => Err(error),
    })
}

/// `sendmmsg`, `recvmmsg`, and datagrams that go through the system as one (`UDP_SEGMENT`, `UDP_GRO`).
#[cfg(target_os = "linux")]
mod linux;
