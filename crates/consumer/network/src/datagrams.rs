//! One frame a datagram: the network of QEMU's `-netdev dgram`.

use std::{io, net::SocketAddr, time::Duration};

use smallvec::SmallVec;

use crate::{
    error::OpenError,
    segment::{Segment, too_long},
    udp::{self, Udp},
};

/// Frames of one call for which nothing is allocated.
const FEW: usize = 4;

/// A segment with one other end: frames are the datagrams of a UDP socket.
///
/// Its other end is a QEMU with `-netdev dgram,id=n0,local.type=inet,local.host=...,remote.type=inet,remote.host=...`, or another of this.
/// Datagrams of others than the peer are dropped.
pub struct Datagrams {
    socket: Udp,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Datagrams {
    /// Opens the socket at `local`; frames go to `peer`.
    ///
    /// # Errors
    ///
    /// The port is in use, or the address is not one of this machine.
    pub fn open(local: SocketAddr, peer: SocketAddr) -> Result<Self, OpenError> {
        let mut socket = Udp::open(local)?;
        let local = socket.local().map_err(|error| OpenError::of_socket(local, error))?;
        socket.connect(peer);
        Ok(Self { socket, local, peer })
    }

    /// The socket's address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Segment for Datagrams {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.send_all(&[frame])
    }

    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        if let Some(frame) = frames.iter().find(|frame| frame.len() > self.longest()) {
            return Err(too_long(frame, self.longest()));
        }
        let parts: SmallVec<[_; FEW]> = frames.iter().map(|frame| [*frame]).collect();
        let datagrams: SmallVec<[_; FEW]> = parts.iter().map(|parts| (&parts[..], self.peer)).collect();
        self.socket.send_all(&datagrams)
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.socket.receive_wanted(patience, &mut |datagram, from| {
            let is_of_peer = from == self.peer;
            if is_of_peer {
                take(datagram);
            }
            is_of_peer
        })
    }

    fn longest(&self) -> usize {
        udp::LONGEST
    }

    fn describe(&self) -> String {
        format!("one frame a datagram, from {} to {}", self.local, self.peer)
    }
}
