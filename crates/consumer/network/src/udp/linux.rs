//! Many datagrams with one call: `sendmmsg` and `recvmmsg`; and those of one length that go to one peer as one that the system, or the
//! network card, takes apart (`UDP_SEGMENT`), and puts together again where it can (`UDP_GRO`). Packets of a message are such.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, recvmsg, sendmmsg,
        sendmsg, setsockopt, sockopt::UdpGroSegment,
    },
};

use super::{LONGEST, Udp, canonical, forgive};

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
        let inward = Inward { room: vec![vec![0; LONGEST]; BATCH], control: cmsg_space!(i32), in_a_row: 0 };
        Self { inward: Mutex::new(inward), takes_apart: AtomicBool::new(true) }
    }
}

/// Datagrams that were there at once, after which several are asked for with one call.
const BUSY: u32 = 2;

struct Inward {
    /// Room for datagrams.
    room: Vec<Vec<u8>>,
    /// Room for what the system says beside one.
    control: Vec<u8>,
    /// Calls that have found a datagram, since one has not. The first ones ask for one: that costs least where there is only one, as
    /// between two that answer each other.
    in_a_row: u32,
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
    fn one(&mut self, udp: &Udp, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        let Self { room, control, .. } = self;
        let Some(buffer) = room.first_mut() else { return Ok(0) };
        let (length, each, from) = {
            let mut slices = [IoSliceMut::new(buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
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
        let mut count = 0;
        for message in results {
            let from = message.address.as_ref().and_then(address);
            let each = message.cmsgs().ok().and_then(|mut control| control.find_map(|said| segment_of(&said)));
            // An empty datagram has no part.
            if let (Some(from), Some(bytes)) = (from, message.iovs().next()) {
                count += take_apart(bytes, each, canonical(from), take);
            }
        }
        Ok(count)
    }

    fn next(&mut self, udp: &Udp, take: &mut dyn FnMut(&[u8], SocketAddr)) -> nix::Result<usize> {
        let came = if self.in_a_row < BUSY { self.one(udp, take) } else { self.many(udp, take) };
        self.in_a_row = if came.is_ok() { self.in_a_row.saturating_add(1) } else { 0 };
        came
    }
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
    let mut rest = datagrams;
    while !rest.is_empty() {
        let takes_apart = udp.linux.takes_apart.load(Relaxed);
        let together = if takes_apart { segments(rest) } else { 1 };
        let count = if together > 1 {
            if !send_together(udp, &rest[..together])? {
                // From now on one by one, these too.
                udp.linux.takes_apart.store(false, Relaxed);
                continue;
            }
            together
        } else {
            // Those before the next ones that can go as one.
            let is_alone = |at: &usize| !takes_apart || segments(&rest[*at..]) == 1;
            let alone = 1 + (1..rest.len().min(BATCH)).take_while(is_alone).count();
            send_alone(udp, &rest[..alone])?;
            alone
        };
        rest = &rest[count..];
    }
    Ok(())
}

/// Sends datagrams as one. Returns false if this system, or the way there, does not take them so.
fn send_together(udp: &Udp, datagrams: &[Datagram<'_>]) -> io::Result<bool> {
    let Some(first) = datagrams.first() else { return Ok(true) };
    let Ok(each) = u16::try_from(length(first)) else { return Ok(false) };
    let parts: Vec<_> = datagrams.iter().flat_map(|(parts, _)| parts.iter()).map(|part| IoSlice::new(part)).collect();
    let to = SockaddrStorage::from(udp.reach(first.1));
    let control = [ControlMessage::UdpGsoSegments(&each)];
    match sendmsg(udp.socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&to)) {
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
    let to: Vec<_> = batch.iter().map(|(_, to)| Some(SockaddrStorage::from(udp.reach(*to)))).collect();
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

/// Parts of a datagram for which nothing is allocated.
const PARTS: usize = 4;

/// Sends one datagram.
fn send_one(udp: &Udp, parts: &[&[u8]], to: SocketAddr) -> io::Result<()> {
    let to = SockaddrStorage::from(udp.reach(to));
    let send = |parts: &[IoSlice<'_>]| {
        let sent = sendmsg(udp.socket.as_raw_fd(), parts, &[], MsgFlags::empty(), Some(&to));
        forgive(sent.map(drop).map_err(Into::into))
    };
    if parts.len() <= PARTS {
        let place = |index: usize| IoSlice::new(parts.get(index).copied().unwrap_or_default());
        return send(&std::array::from_fn::<_, PARTS, _>(place)[..parts.len()]);
    }
    send(&parts.iter().map(|part| IoSlice::new(part)).collect::<Vec<_>>())
}

pub fn receive(udp: &Udp, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> io::Result<usize> {
    let mut inward = udp.linux.inward.lock().unwrap_or_else(PoisonError::into_inner);
    let mut may_wait = !patience.is_zero();
    loop {
        match inward.next(udp, take) {
            Ok(count) => return Ok(count),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) if may_wait => {}
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let mut files = [PollFd::new(udp.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut files, Some(patience.into()), None) {
            Ok(0) | Err(Errno::EINTR) => return Ok(0),
            Ok(_) => may_wait = false,
            Err(error) => return Err(error.into()),
        }
    }
}

fn address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddrV4::from(*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddrV6::from(*address).into()))
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use super::{Relaxed, SEGMENTS, Udp, segments};

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

    #[test]
    fn what_is_sent_as_one_arrives_as_many_and_what_the_system_refuses_goes_one_by_one() {
        let open = || Udp::open(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
        let lengths = [1082, 1082, 1082, 62, 1082, 1010, 62, 62, 300, 1082];
        let datagrams: Vec<Vec<u8>> = (0..).zip(lengths).map(|(number, length)| vec![number; length]).collect();
        let (near, far) = (open(), open());
        assert_eq!(arriving(&near, &far, &datagrams), datagrams);
        near.linux.takes_apart.store(false, Relaxed);
        assert_eq!(arriving(&near, &far, &datagrams), datagrams);
    }
}
