//! Connections of the host: TCP on its loopback interface, by which programs outside reach a driver's sockets.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use ndkpi::NtStatus;

use super::{
    segment::Segment,
    status::{ADDRESS_ALREADY_EXISTS, INVALID_ADDRESS_COMPONENT},
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
};

/// How often a thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that are read or waiting to be taken, at most.
const WINDOW: u64 = 64 << 10;
/// Bytes that are read at a time.
const PIECE: usize = 4 << 10;

/// Who gets what comes: the socket at an address, if it is still in the connection of that number.
pub type Deliver = fn(&Arc<State>, usize, u64, Segment);

/// Who gets what comes, as soon as there is a socket for streams.
#[derive(Default)]
pub struct Delivery(pub Option<Deliver>);

impl Part for Mutex<Delivery> {}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    if thread::Builder::new().name(name.to_owned()).spawn(work).is_err() {
        bug_check(Rule::NotSimulated, format_args!("the host gives no thread"));
    }
}

/// A connection of the host.
pub struct HostStream {
    to_write: Sender<Segment>,
    taken: Arc<(Mutex<u64>, Condvar)>,
    stream: TcpStream,
}

impl Drop for HostStream {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        // Who reads goes on, and finds the end.
        *lock(&self.taken.0) = u64::MAX;
        self.taken.1.notify_all();
    }
}

impl HostStream {
    /// Takes a connection, with a thread that reads and one that writes for the socket at `address`.
    pub fn new(state: &Arc<State>, stream: TcpStream, (address, id): (usize, u64), deliver: Deliver) -> Option<Self> {
        let (reader, writer) = (stream.try_clone().ok()?, stream.try_clone().ok()?);
        let (to_write, written) = channel();
        let taken = Arc::new((Mutex::new(0), Condvar::new()));
        let (ours, theirs) = (Arc::downgrade(state), taken.clone());
        let tell = move |state: &Weak<State>, segment| {
            if let Some(state) = state.upgrade() {
                state.after(0, move |state| deliver(state, address, id, segment));
            }
        };
        let state = ours.clone();
        spawn("a connection of the host, reading", move || read(reader, &theirs, |segment| tell(&state, segment)));
        spawn("a connection of the host, writing", move || {
            write(writer, written, |segment| tell(&ours, segment));
        });
        Some(Self { to_write, taken, stream })
    }

    /// Something goes to the other side.
    pub fn give(&self, segment: Segment) {
        if let Segment::Taken { consumed, .. } = segment {
            *lock(&self.taken.0) = consumed;
            self.taken.1.notify_all();
        } else {
            // A thread that has ended has said why.
            let _ = self.to_write.send(segment);
        }
    }
}

/// Reads as far as the window is open.
fn read(mut stream: TcpStream, taken: &(Mutex<u64>, Condvar), tell: impl Fn(Segment)) {
    let (mut offset, mut piece) = (0, [0; PIECE]);
    loop {
        let guard = lock(&taken.0);
        drop(taken.1.wait_while(guard, |taken| offset >= taken.saturating_add(WINDOW)));
        match stream.read(&mut piece) {
            Ok(0) => return tell(Segment::End { offset }),
            Ok(count) => {
                tell(Segment::Data { offset, bytes: piece[..count].to_vec() });
                offset += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return tell(Segment::Reset),
        }
    }
}

/// Writes what it is given, and says what the host has taken. Two processors may each take a part of the stream, and hand them over in either
/// order.
fn write(mut stream: TcpStream, segments: std::sync::mpsc::Receiver<Segment>, tell: impl Fn(Segment)) {
    let (mut next, mut early, mut end) = (0, BTreeMap::new(), None);
    for segment in segments {
        match segment {
            Segment::Data { offset, bytes } => drop(early.insert(offset, bytes)),
            Segment::End { offset } => end = Some(offset),
            Segment::Reset => return drop(stream.shutdown(Shutdown::Both)),
            _ => {}
        }
        while let Some(bytes) = early.remove(&next) {
            if stream.write_all(&bytes).is_err() {
                return tell(Segment::Reset);
            }
            next += bytes.len() as u64;
            tell(Segment::Taken { received: next, consumed: next });
        }
        if end.take_if(|end| *end == next).is_some() {
            let _ = stream.shutdown(Shutdown::Write);
            tell(Segment::Taken { received: next + 1, consumed: next + 1 });
        }
    }
}

/// A port of the host that listens.
pub struct HostListener {
    has_ended: Arc<AtomicBool>,
}

impl Drop for HostListener {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

/// The host's address for one of this machine.
fn loopback(wanted: IpAddr) -> Option<IpAddr> {
    let own: IpAddr = if wanted.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    (wanted.is_unspecified() || wanted == own).then_some(own)
}

impl HostListener {
    /// Listens for the socket at `address`. `both`: to IPv4 too.
    pub fn open(
        state: &Arc<State>,
        address: usize,
        (wanted, both): (SocketAddr, bool),
        came: fn(&Arc<State>, usize, TcpStream),
    ) -> Result<(u16, Self), NtStatus> {
        let own = loopback(wanted.ip()).ok_or(INVALID_ADDRESS_COMPONENT)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut port = wanted.port();
        let mut listeners = Vec::new();
        for own in [Some(own), both.then_some(Ipv4Addr::LOCALHOST.into())].into_iter().flatten() {
            let opened = TcpListener::bind((own, port)).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?.port(), listener))
            });
            let (bound, listener) = opened.map_err(|error| match error.kind() {
                ErrorKind::AddrInUse => ADDRESS_ALREADY_EXISTS,
                _ => INVALID_ADDRESS_COMPONENT,
            })?;
            port = bound;
            listeners.push(listener);
        }
        for listener in listeners {
            let (state, ended) = (Arc::downgrade(state), has_ended.clone());
            spawn("a port of the host that listens", move || {
                while !ended.load(Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(LOOK);
                        continue;
                    };
                    let (Some(state), Ok(())) = (state.upgrade(), stream.set_nonblocking(false)) else { return };
                    state.after(0, move |state| came(state, address, stream));
                }
            });
        }
        Ok((port, Self { has_ended }))
    }
}

/// Connects to a program of the host, in a thread, which says what came of it.
pub fn connect(
    state: &Arc<State>,
    (address, id): (usize, u64),
    to: SocketAddr,
    came: fn(&Arc<State>, usize, u64, Result<TcpStream, NtStatus>),
) {
    let state = Arc::downgrade(state);
    spawn("a connection of the host", move || {
        let opened = TcpStream::connect_timeout(&to, Duration::from_secs(21)).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => NtStatus::IO_TIMEOUT,
            _ => NtStatus::CONNECTION_REFUSED,
        });
        if let Some(state) = state.upgrade() {
            state.after(0, move |state| came(state, address, id, opened));
        }
    });
}
