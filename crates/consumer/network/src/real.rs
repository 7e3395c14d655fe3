//! Segments of the system: a tap device, or an interface that is there (Linux).

mod joined;
mod packets;
mod tap;

use std::{fs::read_to_string, io, os::fd::AsFd, time::Duration};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, ppoll},
};

pub use packets::Packets;
pub use tap::Tap;

use crate::error::OpenError;

/// Bytes of an Ethernet header with a tag, which an interface's MTU does not count.
const HEADER: usize = 18;

/// Frames that one call of `receive` gives at most; what the system takes apart counts as one.
const BATCH: usize = 32;

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

/// What a device does not take is lost: it is down, or its queue is full.
fn forgive(error: io::Error) -> io::Result<()> {
    let lost = [libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENETDOWN, libc::EIO];
    if error.raw_os_error().is_some_and(|code| lost.contains(&code)) { Ok(()) } else { Err(error) }
}
