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
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, sendmsg,
        setsockopt, sockopt::UdpGroSegment,
    },
};

use super::{LONGEST, Udp, canonical, forgive};

/// Datagrams of one call.
const BATCH: usize = 32;
/// Datagrams that go as one at most: what the system allows.
const SEGMENTS: usize = 64;

/// A datagram: its parts, one behind the other, and where it goes.
type Datagram<'a> = (&'a [&'a [u8]], SocketAddr);

/// What a socket has besides itself.
pub struct State {
    /// Room for what comes in.
    room: Mutex<Vec<Vec<u8>>>,
    /// The system takes datagrams apart.
    takes_apart: AtomicBool,
}

impl State {
    pub fn new(socket: &UdpSocket) -> Self {
        // A system that cannot gives them one by one.
        let _ = setsockopt(socket, UdpGroSegment, &true);
        Self { room: Mutex::new(vec![vec![0; LONGEST]; BATCH]), takes_apart: AtomicBool::new(true) }
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

pub fn receive(udp: &Udp, patience: Duration, take: &mut dyn FnMut(&[u8], SocketAddr)) -> io::Result<usize> {
    let mut room = udp.linux.room.lock().unwrap_or_else(PoisonError::into_inner);
    let mut has_waited = false;
    loop {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(room.len(), Some(cmsg_space!(i32)));
        let mut slices: Vec<_> = room.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmmsg(udp.socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) {
            Ok(results) => {
                let mut count = 0;
                for message in results {
                    let from = message.address.as_ref().and_then(address);
                    let each = message.cmsgs().ok().and_then(|mut control| {
                        control.find_map(|one| match one {
                            ControlMessageOwned::UdpGroSegments(length) => usize::try_from(length).ok(),
                            _ => None,
                        })
                    });
                    // An empty datagram has no part.
                    if let (Some(from), Some(bytes)) = (from, message.iovs().next()) {
                        for datagram in bytes.chunks(each.unwrap_or(bytes.len()).max(1)) {
                            take(datagram, canonical(from));
                            count += 1;
                        }
                    }
                }
                return Ok(count);
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) if has_waited => return Ok(0),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
        let mut files = [PollFd::new(udp.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut files, Some(patience.into()), None) {
            Ok(0) | Err(Errno::EINTR) => return Ok(0),
            Ok(_) => has_waited = true,
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
