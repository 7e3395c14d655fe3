//! What the rows over UDP are compared with: programs of two threads that only send and receive the same datagrams.

use std::{
    io::{IoSlice, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, recv, recvmmsg, sendmmsg, sendmsg, setsockopt,
    sockopt::UdpGroSegment,
};

use super::{
    HEADERS, PAYLOAD, WRITE,
    pair::{IN_FLIGHT, SPIN},
};
use crate::measure::{Cores, each};

/// Datagrams of one call.
const BATCH: usize = 32;
/// Bytes of an answer: an ACK in its frame.
const ANSWER: usize = HEADERS + 4;
/// Bytes of a small message: an 8 byte SEND in its frame.
const SMALL: usize = HEADERS + 8;
/// How long a datagram is waited for: it was lost then.
const LOST: Duration = Duration::from_millis(50);

/// Two sockets that know each other.
fn sockets() -> [UdpSocket; 2] {
    let sockets = [0, 1].map(|_| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
        // As those of the crate `network`.
        socket.set_recv_buffer_size(4 << 20).expect("a buffer");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("an address");
        UdpSocket::from(socket)
    });
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("an address"));
    for (socket, address) in sockets.iter().zip(addresses.iter().rev()) {
        socket.connect(address).expect("an address of this machine");
        socket.set_read_timeout(Some(LOST)).expect("a time");
    }
    sockets
}

/// The other side, on a thread that ends with the value, on the second core.
struct Side {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Side {
    fn start(cores: Cores, mut turn: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let thread = thread::spawn(move || {
            cores.pin_second();
            while !over.load(Relaxed) {
                turn();
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Messages in datagrams, each message answered by one.
pub struct Stream {
    socket: UdpSocket,
    _side: Side,
}

impl Stream {
    /// Starts the receiver.
    pub fn start(cores: Cores) -> Self {
        let [socket, far] = sockets();
        let mut room = vec![[0; HEADERS + PAYLOAD]; BATCH];
        let (mut memory, mut came) = (vec![0; WRITE], 0);
        let turn = move || {
            let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
            let mut slices: Vec<_> = room.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let flags = MsgFlags::MSG_WAITFORONE;
            let Ok(messages) = recvmmsg(far.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) else { return };
            for message in messages {
                // What the message is for: its bytes come to their place.
                if let Some(payload) = message.iovs().next().and_then(|bytes| bytes.get(HEADERS..)) {
                    memory[came % WRITE..][..payload.len()].copy_from_slice(payload);
                    came += payload.len();
                    if came.is_multiple_of(WRITE) {
                        let _ = far.send(&[0; ANSWER]);
                    }
                }
            }
        };
        Self { socket, _side: Side::start(cores, turn) }
    }

    fn send(&self, memory: &[u8]) {
        let packets: Vec<Vec<u8>> = memory.chunks(PAYLOAD).map(|payload| [&[0; HEADERS], payload].concat()).collect();
        for batch in packets.chunks(BATCH) {
            let parts: Vec<_> = batch.iter().map(|packet| [IoSlice::new(packet)]).collect();
            let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(parts.len(), None);
            let to = vec![None; parts.len()];
            let sent = sendmmsg(self.socket.as_raw_fd(), &mut headers, &parts, &to, [], MsgFlags::empty());
            sent.map(Iterator::count).expect("datagrams are sent");
        }
    }

    /// Sends so many messages; nanoseconds for one. A message whose answer does not come has lost a datagram, and counts as late.
    pub fn messages(&self, count: usize) -> f64 {
        let memory = vec![1; WRITE];
        let began = Instant::now();
        for number in 0..count + IN_FLIGHT {
            if number >= IN_FLIGHT {
                let _ = self.socket.recv(&mut [0; ANSWER]);
            }
            if number < count {
                self.send(&memory);
            }
        }
        each(began.elapsed(), count)
    }
}

/// How both sides of an echo wait, and what they send.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// They look for a message for a while before they sleep.
    pub polls: bool,
    /// Behind each message goes the answer to the one before: the two datagrams that a message takes, which go through the system as one
    /// where it can.
    pub answers: bool,
}

/// A message there and one back.
pub struct Echo {
    socket: UdpSocket,
    way: Way,
    _side: Side,
}

/// Sends a message.
fn send(socket: &UdpSocket, way: Way) -> bool {
    let message = [0; SMALL + ANSWER];
    if !way.answers {
        return socket.send(&message[..SMALL]).is_ok();
    }
    let each = u16::try_from(SMALL).expect("a short message");
    let parts = [ControlMessage::UdpGsoSegments(&each)];
    sendmsg::<SockaddrStorage>(socket.as_raw_fd(), &[IoSlice::new(&message)], &parts, MsgFlags::empty(), None).is_ok()
}

/// Takes a message, and the answer behind it. Returns false if none has come.
fn take(socket: &UdpSocket, way: Way) -> bool {
    let mut place = [0; SMALL + ANSWER];
    let mut left = if way.answers { place.len() } else { SMALL };
    let began = Instant::now();
    // They come as one, or one by one.
    while way.polls && left > 0 && began.elapsed() < SPIN {
        let came = recv(socket.as_raw_fd(), &mut place, MsgFlags::MSG_DONTWAIT);
        left = left.saturating_sub(came.unwrap_or_default());
    }
    while left > 0 {
        match socket.recv(&mut place) {
            Ok(length) => left = left.saturating_sub(length),
            Err(_) => return false,
        }
    }
    true
}

impl Echo {
    /// Starts who answers.
    pub fn start(cores: Cores, way: Way) -> Self {
        let [socket, far] = sockets();
        if way.answers {
            // A system that cannot gives them one by one.
            let _ = [&socket, &far].map(|socket| setsockopt(socket, UdpGroSegment, &true));
        }
        let turn = move || {
            if take(&far, way) {
                let _ = send(&far, way);
            }
        };
        Self { socket, way, _side: Side::start(cores, turn) }
    }

    /// So many round trips; nanoseconds for one.
    pub fn round_trips(&self, count: usize) -> f64 {
        let began = Instant::now();
        for _ in 0..count {
            assert!(send(&self.socket, self.way), "a message is sent");
            assert!(take(&self.socket, self.way), "an answer");
        }
        each(began.elapsed(), count)
    }
}
