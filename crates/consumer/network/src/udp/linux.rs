//! Many datagrams with one call: `sendmmsg` and `recvmmsg`; and those of one length that go to one peer as one that the system, or the
//! network card, takes apart (`UDP_SEGMENT`), and puts together again where it can (`UDP_GRO`). Packets of a message are such.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, recvmsg, sendmmsg,
        sendmsg, setsockopt,
        sockopt::{ReceiveTimeout, UdpGroSegment},
    },
    sys::time::TimeVal,
};

use smallvec::SmallVec;

use super::{LONGEST, Udp, canonical, forgive};
use crate::offload;

/// Datagrams of one call.
const BATCH: usize = 32;
/// So many go each with a call of its own: what one call for several needs costs as much.
const FEW: usize = 3;
/// Datagrams that go as one at most: what the system allows.
const SEGMENTS: usize = 64;

/// A datagram: its parts, one behind the other, and where it goes.
type Datagram<'a> = (&'a [&'a [u8]], SocketAddr);

/// What a socket has besides itself.
pub struct State {
    /// For what comes in.
    inward: Mutex<Inward>,
    /// The system takes datagrams apart.
    takes_apart: AtomicBool,
}

impl State {
    pub fn new(socket: &UdpSocket) -> Self {
        // A system that cannot gives them one by one.
        let _ = setsockopt(socket, UdpGroSegment, &true);
        let inward = Inward {
            room: vec![vec![0; LONGEST]; BATCH],
            control: cmsg_space!(i32),
            timeout: None,
            in_a_row: 0,
            few: BUSY,
        };
        Self { inward: Mutex::new(inward), takes_apart: AtomicBool::new(true) }
    }
}

/// Calls in a row that have found a datagram, after which several are asked for with one call.
const BUSY: u32 = 2;
/// The same at most, after calls for several have found one only.
const BUSIEST: u32 = 64;
/// Who waits for less than this asks the system for its time with each call: the time of a socket has steps of its own.
const STEP: Duration = Duration::from_millis(1);

struct Inward {
    /// Room for datagrams.
    room: Vec<Vec<u8>>,
    /// Room for what the system says beside one.
    control: Vec<u8>,
    /// How long a call on the socket waits.
    timeout: Option<Duration>,
    /// Calls that have found a datagram, since one has not. The first ones ask for one: that costs least where there is only one, as
    /// between two that answer each other.
    in_a_row: u32,
    /// So many of them are needed for one that asks for several.
    few: u32,
}

/// How long each of the datagrams is that came as one.
fn segment_of(control: &ControlMessageOwned) -> Option<usize> {
    match control {
        ControlMessageOwned::UdpGroSegments(length) => usize::try_from(*length).ok(),
        _ => None,
    }
}

/// Gives the datagrams that came as one to `take`. Returns how many they were.
fn take_apart(bytes: &[u8], each: Option<usize>, from: SocketAddr, take: &mut dyn FnMut(&[u8], SocketAddr)) -> usize {
    let datagrams = bytes.chunks(each.unwrap_or(bytes.len()).max(1));
    datagrams.map(|datagram| take(datagram, from)).count()
}

impl Inward {
    /// Takes a datagram, or those that came as one, if they are there.
    fn one(&mut self, udp: &Udp, flags: MsgFlags, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        let Self { room, control, .. } = self;
        let Some(buffer) = room.first_mut() else { return Ok(0) };
        let (length, each, from) = {
            let mut slices = [IoSliceMut::new(buffer)];
            let message = recvmsg::<SockaddrStorage>(udp.socket.as_raw_fd(), &mut slices, Some(control), flags)?;
            let each = message.cmsgs().ok().and_then(|mut control| control.find_map(|said| segment_of(&said)));
            (message.bytes, each, message.address.as_ref().and_then(address))
        };
        Ok(from.map_or(0, |from| take_apart(&buffer[..length], each, canonical(from), take)))
    }

    /// Takes several, if one is there.
    fn many(&mut self, udp: &Udp, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(self.room.len(), Some(cmsg_space!(i32)));
        let mut slices: Vec<_> = self.room.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let results = recvmmsg(udp.socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        let (mut count, mut messages) = (0, 0);
        for message in results {
            messages += 1;
            let from = message.address.as_ref().and_then(address);
            let each = message.cmsgs().ok().and_then(|mut control| control.find_map(|said| segment_of(&said)));
            // An empty datagram has no part.
            if let (Some(from), Some(bytes)) = (from, message.iovs().next()) {
                count += take_apart(bytes, each, canonical(from), take);
            }
        }
        if messages > 1 {
            self.few = BUSY;
        } else {
            self.were_few();
        }
        Ok(count)
    }

    /// What several need was for nothing: there is one each time, as between two that answer each other.
    fn were_few(&mut self) {
        (self.in_a_row, self.few) = (0, (2 * self.few).min(BUSIEST));
    }

    /// Takes those that are there.
    fn next(&mut self, udp: &Udp, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        if self.in_a_row >= self.few {
            return self.many(udp, take).inspect_err(|_| self.were_few());
        }
        let came = self.one(udp, MsgFlags::MSG_DONTWAIT, take);
        self.in_a_row = if came.is_ok() { self.in_a_row + 1 } else { 0 };
        came
    }

    /// Waits for one, so long.
    fn wait(&mut self, udp: &Udp, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        if patience < STEP {
            let mut files = [PollFd::new(udp.socket.as_fd(), PollFlags::POLLIN)];
            return match ppoll(&mut files, Some(patience.into()), None)? {
                0 => Ok(0),
                _ => self.next(udp, take),
            };
        }
        // One call, in the place of one to look, one to wait and one to take.
        if self.timeout != Some(patience) {
            let seconds = patience.as_secs().try_into().unwrap_or(i64::MAX);
            let time = TimeVal::new(seconds, patience.subsec_micros().into());
            setsockopt(&udp.socket, ReceiveTimeout, &time)?;
            self.timeout = Some(patience);
        }
        let came = self.one(udp, MsgFlags::empty(), take);
        self.in_a_row = if came.is_ok() { self.in_a_row + 1 } else { 0 };
        came
    }
}

/// Where a datagram goes, unless the system knows.
fn way(udp: &Udp, to: SocketAddr) -> Option<SockaddrStorage> {
    (udp.peer != Some(to)).then(|| udp.reach(to).into())
}

fn length((parts, _): &Datagram<'_>) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// How many of the first datagrams can go as one: of one length and to one peer; the last one may be shorter.
fn segments(datagrams: &[Datagram<'_>]) -> usize {
    let Some((first, rest)) = datagrams.split_first() else { return 0 };
    let each = length(first);
    let (mut count, mut total) = (1, each);
    for datagram in rest.iter().take(SEGMENTS - 1) {
        let next = length(datagram);
        total += next;
        if datagram.1 != first.1 || next > each || next == 0 || total > LONGEST {
            break;
        }
        count += 1;
        if next < each {
            break;
        }
    }
    count
}

pub fn send_all(udp: &Udp, datagrams: &[Datagram<'_>]) -> io::Result<()> {
    let join = |rest| match segments(rest) {
        0 | 1 => None,
        count => Some((&rest[..count], count)),
    };
    let together = |joined: &&[Datagram<'_>]| send_together(udp, joined);
    offload::send(datagrams, &udp.linux.takes_apart, BATCH, join, together, |batch| send_alone(udp, batch))
}

/// Sends datagrams as one. Returns false if this system, or the way there, does not take them so.
fn send_together(udp: &Udp, datagrams: &[Datagram<'_>]) -> io::Result<bool> {
    let Some(first) = datagrams.first() else { return Ok(true) };
    let Ok(each) = u16::try_from(length(first)) else { return Ok(false) };
    let parts: SmallVec<[_; PARTS]> =
        datagrams.iter().flat_map(|(parts, _)| parts.iter()).map(|part| IoSlice::new(part)).collect();
    let to = way(udp, first.1);
    let control = [ControlMessage::UdpGsoSegments(&each)];
    match sendmsg(udp.socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), to.as_ref()) {
        Ok(_) => Ok(true),
        Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => Ok(false),
        Err(error) => forgive(Err(error.into())).map(|()| true),
    }
}

fn send_alone(udp: &Udp, batch: &[Datagram<'_>]) -> io::Result<()> {
    if batch.len() <= FEW {
        return batch.iter().try_for_each(|(parts, to)| send_one(udp, parts, *to));
    }
    let parts: Vec<Vec<IoSlice<'_>>> =
        batch.iter().map(|(parts, _)| parts.iter().map(|part| IoSlice::new(part)).collect()).collect();
    let to: Vec<_> = batch.iter().map(|(_, to)| way(udp, *to)).collect();
    let mut sent = 0;
    while sent < batch.len() {
        let mut headers = MultiHeaders::preallocate(batch.len() - sent, None);
        let result = sendmmsg(udp.socket.as_raw_fd(), &mut headers, &parts[sent..], &to[sent..], [], MsgFlags::empty())
            .map(Iterator::count);
        match result {
            Ok(count) => sent += count.max(1),
            Err(error) => {
                // The first of them: the rest goes on.
                forgive(Err(error.into()))?;
                sent += 1;
            }
        }
    }
    Ok(())
}

/// Parts that go with one call and for which nothing is allocated.
const PARTS: usize = 8;

/// Sends one datagram.
fn send_one(udp: &Udp, parts: &[&[u8]], to: SocketAddr) -> io::Result<()> {
    let to = way(udp, to);
    let parts: SmallVec<[_; PARTS]> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let sent = sendmsg(udp.socket.as_raw_fd(), &parts, &[], MsgFlags::empty(), to.as_ref());
    forgive(sent.map(drop).map_err(Into::into))
}

pub fn receive(udp: &Udp, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> io::Result<usize> {
    let inward = &mut *udp.linux.inward.lock().unwrap_or_else(PoisonError::into_inner);
    let nothing = |error| match error {
        Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED => Ok(0),
        error => Err(io::Error::from(error)),
    };
    // Who has found several datagrams of late may find more of them. Otherwise a call that waits takes what is there, too.
    if patience < STEP || inward.in_a_row >= inward.few {
        let count = inward.next(udp, take).or_else(nothing)?;
        if count > 0 || patience.is_zero() {
            return Ok(count);
        }
    }
    match inward.wait(udp, patience, take) {
        // What was sent has found nobody: that says nothing about what comes.
        Err(Errno::ECONNREFUSED) => inward.wait(udp, patience, take),
        came => came,
    }
    .or_else(nothing)
}

fn address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddrV4::from(*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddrV6::from(*address).into()))
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};

    use super::{BUSIEST, BUSY, SEGMENTS, Udp, segments};

    fn count(lengths: &[usize]) -> usize {
        let bytes = vec![0; 60_000];
        let parts: Vec<[&[u8]; 1]> = lengths.iter().map(|length| [&bytes[..*length]]).collect();
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let datagrams: Vec<_> = parts.iter().map(|parts| (&parts[..], to)).collect();
        segments(&datagrams)
    }

    #[test]
    fn datagrams_of_one_length_go_as_one() {
        assert_eq!(count(&[100, 100, 100]), 3);
        assert_eq!(count(&[100, 100, 40, 40]), 3, "the last may be shorter");
        assert_eq!(count(&[40, 100]), 1);
        assert_eq!(count(&[100, 0]), 1, "an empty one is none that the system would make");
        assert_eq!(count(&[40_000, 40_000]), 1, "too long");
        assert_eq!(count(&[10; 100]), SEGMENTS);
        assert_eq!(count(&[]), 0);
    }

    /// The datagrams that arrive when these are sent.
    fn arriving(near: &Udp, far: &Udp, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let to = far.local().expect("an address");
        // In parts, as with a header of another protocol before a frame.
        let parts: Vec<[&[u8]; 2]> =
            datagrams.iter().map(|datagram| datagram.split_at(datagram.len() / 3).into()).collect();
        let all: Vec<_> = parts.iter().map(|parts| (&parts[..], to)).collect();
        near.send_all(&all).expect("they are sent");
        let mut came = Vec::new();
        while came.len() < datagrams.len() {
            let count =
                far.receive(Duration::from_secs(10), &mut |bytes, _| came.push(bytes.to_vec())).expect("a socket");
            assert!(count > 0, "{} of {} datagrams", came.len(), datagrams.len());
        }
        came
    }

    fn open() -> Udp {
        Udp::open(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket")
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn who_hears_one_at_a_time_asks_for_one_and_who_finds_several_for_several() {
        let (near, far) = (open(), open());
        let to = far.local().expect("an address");
        let few = || far.linux.inward.lock().expect("no panic").few;
        let send = |lengths: &[usize]| {
            let bytes = [7; 100];
            let parts: Vec<[&[u8]; 1]> = lengths.iter().map(|length| [&bytes[..*length]]).collect();
            let all: Vec<_> = parts.iter().map(|parts| (&parts[..], to)).collect();
            near.send_all(&all).expect("they are sent");
        };
        for _ in 0..300 {
            send(&[10]);
            assert_eq!(far.receive(PATIENCE, &mut |bytes, _| assert_eq!(bytes, [7; 10])).expect("a socket"), 1);
        }
        assert_eq!(few(), BUSIEST);
        for _ in 0..30 {
            // Longer ones each time: they do not go as one.
            let lengths = [1, 2, 3, 4, 5, 6, 7, 8];
            send(&lengths);
            let mut came = Vec::new();
            while came.len() < lengths.len() {
                let count = far.receive(PATIENCE, &mut |bytes, _| came.push(bytes.len())).expect("a socket");
                assert!(count > 0, "{came:?}");
            }
            assert_eq!(came, lengths);
        }
        assert_eq!(few(), BUSY);
    }

    #[test]
    fn a_wait_ends_with_a_datagram_or_with_its_time() {
        let (near, far) = (open(), open());
        let to = far.local().expect("an address");
        for micros in [0, 300, 1_000, 2_000, 300, 0, 2_000] {
            let patience = Duration::from_micros(micros);
            assert_eq!(far.receive(patience, &mut |_, _| panic!("nothing was sent")).expect("a socket"), 0);
            near.send_all(&[(&[&[1], &[2]], to)]).expect("it is sent");
            assert_eq!(far.receive(patience, &mut |bytes, _| assert_eq!(bytes, [1, 2])).expect("a socket"), 1);
        }
    }

    #[test]
    fn a_peer_that_is_not_there_yet_ends_nothing() {
        let (mut near, far) = (open(), open());
        let (at, to) = (near.local().expect("an address"), far.local().expect("an address"));
        near.connect(to);
        assert_eq!(near.peer, Some(to));
        drop(far);
        near.send_all(&[(&[&[1]], to)]).expect("it is lost");
        let far = Udp::open(to).expect("its port again");
        far.send_all(&[(&[&[2]], at)]).expect("it is sent");
        open().send_all(&[(&[&[3]], at)]).expect("it is sent");
        let mut came = Vec::new();
        assert_eq!(near.receive(PATIENCE, &mut |bytes, from| came.push((bytes.to_vec(), from))).expect("a socket"), 1);
        near.send_all(&[(&[&[4]], to)]).expect("it is sent");
        assert_eq!(far.receive(PATIENCE, &mut |bytes, from| assert_eq!((bytes, from), (&[4][..], at))).expect("it"), 1);
        assert_eq!(near.receive(Duration::ZERO, &mut |_, _| panic!("a stranger is not heard")).expect("a socket"), 0);
        assert_eq!(came, [(vec![2], to)]);
    }

    #[test]
    fn what_is_sent_as_one_arrives_as_many_and_what_the_system_refuses_goes_one_by_one() {
        let lengths = [1082, 1082, 1082, 62, 1082, 1010, 62, 62, 300, 1082];
        let datagrams: Vec<Vec<u8>> = (0..).zip(lengths).map(|(number, length)| vec![number; length]).collect();
        let (near, far) = (open(), open());
        assert_eq!(arriving(&near, &far, &datagrams), datagrams);
        near.linux.takes_apart.store(false, Relaxed);
        assert_eq!(arriving(&near, &far, &datagrams), datagrams);
    }
}
