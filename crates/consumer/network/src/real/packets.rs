//! An interface that is there, by packet sockets.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd},
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrLike, bind, recvfrom, recvmmsg,
        send, sendmmsg, sendmsg, setsockopt, socket, sockopt::RcvBuf,
    },
};
use smallvec::SmallVec;

use super::{
    BATCH, HEADER, check_name, forgive,
    joined::{Joined, take_apart},
    mtu_of, refusal, wait,
};
use crate::{
    error::OpenError,
    offload,
    segment::{Segment, too_long},
};

/// Bytes of the buffer that the system is asked for. It may give less.
const BUFFER: usize = 4 << 20;
/// Bytes of the longest frame that comes as one: a packet of IP, and what stands before it.
const LONGEST: usize = (1 << 16) + 64;
/// Parts of a frame for which nothing is allocated: its headers, and what a batch has at most.
const PARTS: usize = 36;

/// An interface of the system: its frames, those of others too as far as the interface gets them.
///
/// The system's own stack gets every frame as well. So use an IP address that the system does not have, and the interface's MAC address,
/// or one of one's own with `ip link set NAME promisc on`.
///
/// Linux takes the tag out of frames that come in: for a VLAN, use its own interface (`eth0.5`), and no tag.
pub struct Packets {
    /// What comes in, and what goes as one: an [`Offload`](super::joined::Offload) is before each frame.
    socket: OwnedFd,
    /// For frames that go as they are: what says how a frame is taken apart costs the system time.
    plain: OwnedFd,
    /// The system takes frames apart.
    takes_apart: AtomicBool,
    name: String,
    longest: usize,
    inward: Mutex<Inward>,
}

/// Calls in a row that have found a frame at once, after which several are asked for with one call.
const BUSY: u32 = 2;
/// So many frames go each with a call of its own: what one call for several needs costs as much.
const FEW: usize = 2;

/// What a packet socket needs to receive.
struct Inward {
    /// Room for frames.
    room: Vec<Vec<u8>>,
    /// Room for one of those that came as one.
    apart: Vec<u8>,
    /// Calls that have found a frame, since one has not.
    in_a_row: u32,
}

/// Whether a frame of a packet socket has come in: what this machine has sent is not received.
fn has_come(from: Option<LinkAddr>) -> bool {
    from.is_none_or(|from| from.pkttype() != libc::PACKET_OUTGOING)
}

impl Inward {
    /// Takes a frame, if one is there. None if it is one that this machine has sent.
    fn one(&mut self, socket: &OwnedFd, take: &mut dyn FnMut(&[u8])) -> nix::Result<usize> {
        let Some(room) = self.room.first_mut() else { return Ok(0) };
        let (length, from) = recvfrom::<LinkAddr>(socket.as_raw_fd(), room)?;
        Ok(if has_come(from) { take_apart(&room[..length], &mut self.apart, take) } else { 0 })
    }

    /// Takes several, if one is there.
    fn many(&mut self, socket: &OwnedFd, take: &mut dyn FnMut(&[u8])) -> nix::Result<usize> {
        let mut headers = MultiHeaders::<LinkAddr>::preallocate(self.room.len(), None);
        let mut slices: Vec<_> = self.room.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let results = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        let mut count = 0;
        for message in results.filter(|message| has_come(message.address)) {
            if let Some(bytes) = message.iovs().next() {
                count += take_apart(bytes, &mut self.apart, take);
            }
        }
        Ok(count)
    }

    fn next(&mut self, socket: &OwnedFd, take: &mut dyn FnMut(&[u8])) -> nix::Result<usize> {
        let came = if self.in_a_row < BUSY { self.one(socket, take) } else { self.many(socket, take) };
        self.in_a_row = if came.is_ok() { self.in_a_row.saturating_add(1) } else { 0 };
        came
    }
}

/// Sets an option of packet sockets.
fn set(socket: &OwnedFd, option: libc::c_int) -> nix::Result<()> {
    let yes: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&yes)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the socket is open; the option reads an `int`, to which the pointer is, and whose length is said.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const yes).cast(), length) };
    Errno::result(result).map(drop)
}

/// Before each frame stands how it is taken apart.
const VNET_HDR: libc::c_int = 15;
/// What this machine sends does not come in. A system that cannot (before Linux 4.20) gives it, and it is passed over.
const IGNORE_OUTGOING: libc::c_int = 23;

/// Opens a packet socket, bound to an interface: all frames come in with `protocol` [`libc::ETH_P_ALL`], none with zero.
fn open(index: libc::c_uint, protocol: libc::c_int) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Bound to no protocol, it gets no frame of another interface.
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: u16::try_from(protocol).unwrap_or_default().to_be(),
        sll_ifindex: i32::try_from(index).unwrap_or_default(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).ok();
    // SAFETY: the pointer is to an address of the family that it says, as long as the length says; it is copied.
    let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) }.ok_or(Errno::EINVAL)?;
    if protocol != 0 {
        set(&socket, VNET_HDR)?;
        _ = set(&socket, IGNORE_OUTGOING);
        // Frames come in bursts. Less is slower, not wrong.
        _ = setsockopt(&socket, RcvBuf, &BUFFER);
    }
    bind(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

impl Packets {
    /// Opens a packet socket on an interface.
    ///
    /// # Errors
    ///
    /// It needs `CAP_NET_RAW`; there is no such interface.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        const NEEDS: &str = "CAP_NET_RAW";
        check_name(name)?;
        let refused = |error| refusal(format!("a packet socket on {name}"), NEEDS, error);
        let index = if_nametoindex(name).map_err(|_| OpenError::NoInterface(name.to_owned()))?;
        let socket = open(index, libc::ETH_P_ALL).map_err(refused)?;
        let plain = open(index, 0).map_err(refused)?;
        let longest = mtu_of(name) + HEADER;
        let inward = Inward { room: vec![vec![0; LONGEST]; BATCH], apart: Vec::new(), in_a_row: 0 };
        let takes_apart = AtomicBool::new(true);
        Ok(Self { socket, plain, takes_apart, name: name.to_owned(), longest, inward: Mutex::new(inward) })
    }

    /// Sends packets as one frame. Returns false if the system does not take it: it is older than Linux 6.3.
    fn send_joined(&self, joined: &Joined<'_>) -> io::Result<bool> {
        let parts: SmallVec<[_; PARTS]> = joined.parts().map(IoSlice::new).collect();
        match sendmsg::<LinkAddr>(self.socket.as_raw_fd(), &parts, &[], MsgFlags::MSG_DONTWAIT, None) {
            Ok(_) => Ok(true),
            Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => Ok(false),
            Err(error) => forgive(error.into()).map(|()| true),
        }
    }

    /// Sends several frames as they are, with as few calls as there can be.
    fn send_many(&self, frames: &[&[u8]]) -> io::Result<()> {
        let parts: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        // The socket is bound to its interface.
        let to: Vec<Option<LinkAddr>> = vec![None; frames.len()];
        let mut sent = 0;
        while sent < frames.len() {
            let mut headers = MultiHeaders::preallocate(frames.len() - sent, None);
            let flags = MsgFlags::MSG_DONTWAIT;
            let result = sendmmsg(self.plain.as_raw_fd(), &mut headers, &parts[sent..], &to[sent..], [], flags);
            match result.map(Iterator::count) {
                Ok(count) => sent += count.max(1),
                Err(error) => {
                    // The first of them: the rest goes on.
                    forgive(error.into())?;
                    sent += 1;
                }
            }
        }
        Ok(())
    }
}

impl Segment for Packets {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > self.longest {
            return Err(too_long(frame, self.longest));
        }
        send(self.plain.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).map(drop).or_else(|error| forgive(error.into()))
    }

    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        if frames.len() <= FEW {
            return frames.iter().try_for_each(|frame| self.send(frame));
        }
        if let Some(frame) = frames.iter().find(|frame| frame.len() > self.longest) {
            return Err(too_long(frame, self.longest));
        }
        let join = |rest| {
            let joined = Joined::of(rest)?;
            let count = joined.count();
            Some((joined, count))
        };
        let together = |joined: &Joined<'_>| self.send_joined(joined);
        offload::send(frames, &self.takes_apart, BATCH, join, together, |some| self.send_many(some))
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut inward = self.inward.lock().unwrap_or_else(PoisonError::into_inner);
        let mut may_wait = !patience.is_zero();
        loop {
            match inward.next(&self.socket, take) {
                // Only what this machine has sent: as good as nothing, but there may be more.
                Ok(0) => continue,
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN | Errno::EINTR) if may_wait => {}
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
            if !wait(&self.socket, patience)? {
                return Ok(0);
            }
            may_wait = false;
        }
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn describe(&self) -> String {
        format!("the interface {}", self.name)
    }
}
