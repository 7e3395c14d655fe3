//! The sockets of a script's program.

use std::{collections::BTreeMap, net::SocketAddr};

use ntstatus::NtStatus;
use runner::machine::Sockets;
use simulated_kernel::{Network, Socket};

use crate::running::Running;

/// Those that are there, by their names.
pub struct Talking(BTreeMap<String, Socket>);

impl Talking {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn add(&mut self, name: &str, socket: Result<Socket, NtStatus>) -> Result<(), NtStatus> {
        self.0.insert(name.to_owned(), socket?);
        Ok(())
    }
}

impl<L> Running<L> {
    fn network(&self) -> Network {
        self.kernel.network()
    }
}

impl<L> Sockets for Running<L> {
    fn connect(&mut self, socket: &str, from: Option<SocketAddr>, to: SocketAddr) -> Result<(), NtStatus> {
        let connected = self.network().connect(from, to);
        self.sockets.add(socket, connected)
    }

    fn listen(&mut self, socket: &str, at: SocketAddr) -> Result<(), NtStatus> {
        let listens = self.network().listen(at);
        self.sockets.add(socket, listens)
    }

    fn accept(&mut self, socket: &str, listener: &str) -> Result<(), NtStatus> {
        let accepted = self.sockets.0[listener].accept();
        self.sockets.add(socket, accepted)
    }

    fn bind(&mut self, socket: &str, at: SocketAddr) -> Result<(), NtStatus> {
        let bound = self.network().bind(at);
        self.sockets.add(socket, bound)
    }

    fn send(&mut self, socket: &str, bytes: &[u8], to: Option<SocketAddr>) -> Result<(), NtStatus> {
        let socket = &self.sockets.0[socket];
        to.map_or_else(|| socket.send(bytes), |to| socket.send_to(to, bytes))
    }

    fn receive(&mut self, socket: &str, count: usize) -> Result<(Option<SocketAddr>, Vec<u8>), NtStatus> {
        let socket = &self.sockets.0[socket];
        if socket.is_for_datagrams() {
            return socket.receive_from().map(|(from, bytes)| (Some(from), bytes));
        }
        socket.receive(count).map(|bytes| (None, bytes))
    }

    fn end(&mut self, socket: &str) -> Result<(), NtStatus> {
        self.sockets.0[socket].end()
    }

    fn abort(&mut self, socket: &str) {
        if let Some(socket) = self.sockets.0.remove(socket) {
            socket.abort();
        }
    }

    fn close_socket(&mut self, socket: &str) {
        drop(self.sockets.0.remove(socket));
    }

    fn listening(&self) -> Vec<SocketAddr> {
        self.network().listening()
    }
}
