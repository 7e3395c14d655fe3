//! A tap device.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    mem::zeroed,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    sync::Mutex,
    time::Duration,
};

use nix::{errno::Errno, libc};

use super::{BATCH, HEADER, check_name, forgive, mtu_of, refusal, wait};
use crate::{
    error::OpenError,
    segment::{Segment, too_long},
};

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
        for count in 0..BATCH {
            match (&self.file).read(&mut room) {
                Ok(length) => take(&room[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(BATCH)
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn describe(&self) -> String {
        format!("the tap device {}", self.name)
    }
}
