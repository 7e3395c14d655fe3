//! Sockets of programs that are the host's, where the host carries what drivers send.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    time::Duration,
};

use ndkpi::NtStatus;
use socket2::SockRef;

use super::socket;
use crate::{
    state::{State, current},
    wsk::{
        medium::LONGEST,
        status::{ADDRESS_ALREADY_EXISTS, CONNECTION_RESET, INVALID_ADDRESS_COMPONENT},
    },
};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(21);

/// A socket of the host, which does not block: who waits here is watched as any other wait of the kernel is.
pub enum HostSocket {
    Stream(TcpStream),
    Listener(TcpListener),
    Datagrams(UdpSocket),
}

/// The host's address for one of the machine's.
fn loopback(wanted: SocketAddr) -> Result<SocketAddr, NtStatus> {
    let own: IpAddr = if wanted.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let is_it = wanted.ip().is_unspecified() || wanted.ip() == own;
    if is_it { Ok(SocketAddr::new(own, wanted.port())) } else { Err(INVALID_ADDRESS_COMPONENT) }
}

/// What the host says of an address.
fn of_address(error: &std::io::Error) -> NtStatus {
    if error.kind() == ErrorKind::AddrInUse { ADDRESS_ALREADY_EXISTS } else { INVALID_ADDRESS_COMPONENT }
}

/// What the host says of a connection.
fn of_connection(error: &std::io::Error) -> NtStatus {
    match error.kind() {
        ErrorKind::TimedOut => NtStatus::IO_TIMEOUT,
        ErrorKind::ConnectionRefused => NtStatus::CONNECTION_REFUSED,
        _ => CONNECTION_RESET,
    }
}

/// Asks the host for something until it has it. The host signals nothing, so it is asked again and again.
fn ask<R>(what: &str, mut call: impl FnMut() -> std::io::Result<R>) -> std::io::Result<R> {
    let state: Arc<State> = current();
    let mut answer = None;
    let came = socket::wait(&state, what, || {
        let said = call();
        let waits =
            matches!(&said, Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()));
        answer = Some(said);
        !waits
    });
    answer.filter(|_| came.is_ok()).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
}

impl HostSocket {
    pub fn connect(to: SocketAddr) -> Result<Self, NtStatus> {
        let stream = TcpStream::connect_timeout(&loopback(to)?, PATIENCE).and_then(|stream| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        stream.map(Self::Stream).map_err(|error| of_connection(&error))
    }

    pub fn listen(at: SocketAddr) -> Result<Self, NtStatus> {
        let listener = TcpListener::bind(loopback(at)?).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map(Self::Listener).map_err(|error| of_address(&error))
    }

    pub fn bind(at: SocketAddr) -> Result<Self, NtStatus> {
        let socket = UdpSocket::bind(loopback(at)?).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        socket.map(Self::Datagrams).map_err(|error| of_address(&error))
    }

    pub fn accept(&self) -> Result<Self, NtStatus> {
        let Self::Listener(listener) = self else { return Err(NtStatus::INVALID_DEVICE_REQUEST) };
        let came = ask("a program that waits for a connection", || {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        came.map(Self::Stream).map_err(|error| of_connection(&error))
    }

    fn stream(&self) -> Result<&TcpStream, NtStatus> {
        if let Self::Stream(stream) = self { Ok(stream) } else { Err(NtStatus::INVALID_DEVICE_REQUEST) }
    }

    fn datagrams(&self) -> Result<&UdpSocket, NtStatus> {
        if let Self::Datagrams(socket) = self { Ok(socket) } else { Err(NtStatus::INVALID_DEVICE_REQUEST) }
    }

    pub const fn is_for_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams(_))
    }

    pub fn send(&self, mut bytes: &[u8]) -> Result<(), NtStatus> {
        let mut stream = self.stream()?;
        let what = format!("a program that sends {} bytes", bytes.len());
        while !bytes.is_empty() {
            let count = ask(&what, || stream.write(bytes)).map_err(|error| of_connection(&error))?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub fn receive(&self, count: usize) -> Result<Vec<u8>, NtStatus> {
        let mut stream = self.stream()?;
        let what = format!("a program that waits for {count} bytes");
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        while bytes.is_empty() || bytes.len() < count {
            let room = if count == 0 { piece.len() } else { piece.len().min(count - bytes.len()) };
            let came = ask(&what, || stream.read(&mut piece[..room])).map_err(|error| of_connection(&error))?;
            bytes.extend_from_slice(&piece[..came]);
            if came == 0 || count == 0 {
                break;
            }
        }
        Ok(bytes)
    }

    pub fn end(&self) -> Result<(), NtStatus> {
        self.stream()?.shutdown(Shutdown::Write).map_err(|error| of_connection(&error))
    }

    /// Drops a connection as soon as the socket is closed: one that lingers for no time resets it.
    pub fn abort(&self) {
        if let Self::Stream(stream) = self {
            // One that has ended has nothing left to drop.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    pub fn send_to(&self, to: SocketAddr, bytes: &[u8]) -> Result<(), NtStatus> {
        let (socket, to) = (self.datagrams()?, loopback(to)?);
        // One that the network has lost is nobody's mistake.
        drop(ask("a program that sends a datagram", || socket.send_to(bytes, to)));
        Ok(())
    }

    pub fn receive_from(&self) -> Result<(SocketAddr, Vec<u8>), NtStatus> {
        let socket = self.datagrams()?;
        let mut bytes = vec![0; LONGEST];
        let came = ask("a program that waits for a datagram", || socket.recv_from(&mut bytes));
        let (count, from) = came.map_err(|error| of_connection(&error))?;
        bytes.truncate(count);
        Ok((from, bytes))
    }
}
