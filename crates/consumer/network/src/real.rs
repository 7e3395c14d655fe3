//! Segments of the system: a tap device, or an interface that is there (Linux).

use std::{
    fs::{File, OpenOptions, read_to_string},
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::zeroed,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    os::unix::fs::OpenOptionsExt,
    sync::Mutex,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, ppoll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrLike, bind,
        recvfrom, recvmmsg, send, sendmmsg, setsockopt, socket, sockopt::RcvBuf,
    },
};

use crate::{
    error::OpenError,
    segment::{Segment, too_long},
};

/// Bytes of an Ethernet header with a tag, which an interface's MTU does not count.
const HEADER: usize = 18;

/// The longest name of an interface.
const NAME: usize = libc::IFNAMSIZ - 1;

fn check_name(name: &str) -> Result<(), OpenError> {
    let allowed =
        !name.is_empty() && name.len() <= NAME && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if allowed { Ok(()) } else { Err(OpenError::Wrong(format!("`{name}` is no name of an interface"))) }
}

/// The bytes of an interface's packets.
fn mtu_of(name: &str) -> usize {
    let text = read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap_or_default();
    text.trim().parse().unwrap_or(1500)
}

fn refusal(what: String, needs: &'static str, error: Errno) -> OpenError {
    match error {
        Errno::EPERM | Errno::EACCES => OpenError::NoPermission { what, needs },
        error => OpenError::System(what, error.into()),
    }
}

/// Waits for something to read.
fn wait(file: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut files, Some(patience.into()), None) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Frames that one call of `receive` gives at most.
const BATCH: usize = 32;
/// Bytes of the buffer that the system is asked for. It may give less.
const BUFFER: usize = 4 << 20;

/// Reads frames until there is none.
fn read_all(
    room: &mut [u8],
    take: &mut dyn FnMut(&[u8]),
    mut read: impl FnMut(&mut [u8]) -> io::Result<Option<usize>>,
) -> io::Result<usize> {
    let mut count = 0;
    for _ in 0..BATCH {
        match read(room) {
            Ok(Some(length)) => {
                take(&room[..length]);
                count += 1;
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// A tap device: a network interface of the system whose cable ends in this program.
pub struct Tap {
    file: File,
    name: String,
    longest: usize,
    room: Mutex<Vec<u8>>,
}

mod request {
    use nix::libc;

    nix::ioctl_write_ptr_bad!(
        /// Makes a file of `/dev/net/tun` a device.
        set_interface,
        nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
        libc::ifreq
    );
}

impl Tap {
    /// Takes the tap device of this name, or makes one that goes with this. `ip link set NAME up` and an address are the caller's.
    ///
    /// # Errors
    ///
    /// It needs `CAP_NET_ADMIN`, unless the device is there and belongs to the user.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        const NEEDS: &str = "CAP_NET_ADMIN";
        check_name(name)?;
        let what = || format!("the tap device {name}");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options
            .open("/dev/net/tun")
            .map_err(|error| refusal(what(), NEEDS, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))?;
        // SAFETY: an `ifreq` is a name and a union of numbers, addresses and pointers; all may be zero.
        let mut wanted: libc::ifreq = unsafe { zeroed() };
        for (place, byte) in wanted.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte.cast_signed();
        }
        wanted.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI).unwrap_or_default();
        // SAFETY: the file is one of `/dev/net/tun`, whose request this is; it reads an `ifreq`, which `wanted` is, and whose name ends
        // with a zero: `check_name` has left room for it.
        unsafe { request::set_interface(file.as_raw_fd(), &raw const wanted) }
            .map_err(|error| refusal(what(), NEEDS, error))?;
        let longest = mtu_of(name) + HEADER;
        Ok(Self { file, name: name.to_owned(), longest, room: Mutex::new(vec![0; longest]) })
    }
}

/// What a device does not take is lost: it is down, or its queue is full.
fn forgive(error: io::Error) -> io::Result<()> {
    let lost = [libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENETDOWN, libc::EIO];
    if error.raw_os_error().is_some_and(|code| lost.contains(&code)) { Ok(()) } else { Err(error) }
}

impl Segment for Tap {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > self.longest {
            return Err(too_long(frame, self.longest));
        }
        (&self.file).write_all(frame).or_else(forgive)
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        if !wait(&self.file, patience)? {
            return Ok(0);
        }
        let mut room = self.room.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        read_all(&mut room, take, |room| (&self.file).read(room).map(Some))
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn describe(&self) -> String {
        format!("the tap device {}", self.name)
    }
}

/// An interface of the system: its frames, those of others too as far as the interface gets them.
///
/// The system's own stack gets every frame as well. So use an IP address that the system does not have, and the interface's MAC address,
/// or one of one's own with `ip link set NAME promisc on`.
pub struct Packets {
    socket: OwnedFd,
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
        if has_come(from) {
            take(&room[..length]);
            return Ok(1);
        }
        Ok(0)
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
                take(bytes);
                count += 1;
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

/// Has a packet socket not get what this machine sends. A system that cannot (before Linux 4.20) gives it, and it is passed over.
fn ignore_outgoing(socket: &OwnedFd) {
    const IGNORE_OUTGOING: libc::c_int = 23;
    let yes: libc::c_int = 1;
    let Ok(length) = libc::socklen_t::try_from(size_of_val(&yes)) else { return };
    // SAFETY: the socket is open; the option reads an `int`, to which the pointer is, and whose length is said.
    _ = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, IGNORE_OUTGOING, (&raw const yes).cast(), length)
    };
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
        let what = || format!("a packet socket on {name}");
        let index = if_nametoindex(name).map_err(|_| OpenError::NoInterface(name.to_owned()))?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .map_err(|error| refusal(what(), NEEDS, error))?;
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
            sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be(),
            sll_ifindex: i32::try_from(index).unwrap_or_default(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = libc::socklen_t::try_from(size_of_val(&address)).ok();
        // SAFETY: the pointer is to an address of the family that it says, as long as the length says; it is copied.
        let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) }
            .ok_or_else(|| OpenError::NoInterface(name.to_owned()))?;
        ignore_outgoing(&socket);
        // Frames come in bursts. Less is slower, not wrong.
        _ = setsockopt(&socket, RcvBuf, &BUFFER);
        bind(socket.as_raw_fd(), &address).map_err(|error| refusal(what(), NEEDS, error))?;
        let longest = mtu_of(name) + HEADER;
        let inward = Inward { room: vec![vec![0; longest]; BATCH], in_a_row: 0 };
        Ok(Self { socket, name: name.to_owned(), longest, inward: Mutex::new(inward) })
    }
}

impl Packets {
    /// Sends several frames with as few calls as there can be.
    fn send_many(&self, frames: &[&[u8]]) -> io::Result<()> {
        let parts: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        // The socket is bound to its interface.
        let to: Vec<Option<LinkAddr>> = vec![None; frames.len()];
        let mut sent = 0;
        while sent < frames.len() {
            let mut headers = MultiHeaders::preallocate(frames.len() - sent, None);
            let flags = MsgFlags::MSG_DONTWAIT;
            let result = sendmmsg(self.socket.as_raw_fd(), &mut headers, &parts[sent..], &to[sent..], [], flags);
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
        send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).map(drop).or_else(|error| forgive(error.into()))
    }

    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        if frames.len() <= FEW {
            return frames.iter().try_for_each(|frame| self.send(frame));
        }
        if let Some(frame) = frames.iter().find(|frame| frame.len() > self.longest) {
            return Err(too_long(frame, self.longest));
        }
        frames.chunks(BATCH).try_for_each(|frames| self.send_many(frames))
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut inward = self.inward.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
