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

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recv, recvmmsg, sendmmsg};

use super::{
    HEADERS, PAYLOAD, WRITE,
    pair::{IN_FLIGHT, SPIN},
};
use crate::measure::each;

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

/// The other side, on a thread that ends with the value.
struct Side {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Side {
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let thread = thread::spawn(move || {
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
    pub fn start() -> Self {
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
        Self { socket, _side: Side::start(turn) }
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

/// A datagram there and one back.
pub struct Echo {
    socket: UdpSocket,
    polls: bool,
    _side: Side,
}

/// Takes a datagram: sleeps until it comes, after it has looked for a while if it `polls`. Returns false if none has come.
fn take(socket: &UdpSocket, polls: bool) -> bool {
    let mut place = [0; SMALL];
    let began = Instant::now();
    while polls && began.elapsed() < SPIN {
        if recv(socket.as_raw_fd(), &mut place, MsgFlags::MSG_DONTWAIT).is_ok() {
            return true;
        }
    }
    socket.recv(&mut place).is_ok()
}

impl Echo {
    /// Starts who answers. Both sides sleep until a datagram comes, or look for it before they do.
    pub fn start(polls: bool) -> Self {
        let [socket, far] = sockets();
        let turn = move || {
            if take(&far, polls) {
                let _ = far.send(&[0; SMALL]);
            }
        };
        Self { socket, polls, _side: Side::start(turn) }
    }

    /// So many round trips; nanoseconds for one.
    pub fn round_trips(&self, count: usize) -> f64 {
        let began = Instant::now();
        for _ in 0..count {
            self.socket.send(&[0; SMALL]).expect("a datagram is sent");
            assert!(take(&self.socket, self.polls), "an answer");
        }
        each(began.elapsed(), count)
    }
}
