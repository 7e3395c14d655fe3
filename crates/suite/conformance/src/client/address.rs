//! Addresses as calls take and give them.

use core::{net::SocketAddr, ptr};

use ndkpi::{NtStatus, SOCKADDR, SOCKADDR_INET};

/// An address for a call, perhaps with a length that is not its own.
#[derive(Clone, Copy, Debug)]
pub struct RawAddress {
    address: SOCKADDR_INET,
    length: u32,
    null: bool,
}

impl RawAddress {
    /// The address as it should be given.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let address = SOCKADDR_INET::from(address);
        Self { address, length: address.length(), null: false }
    }

    /// The same bytes with another length, at most 28.
    #[must_use]
    pub fn with_length(self, length: u32) -> Self {
        Self { length: length.min(28), ..self }
    }

    /// The same bytes with another family.
    #[must_use]
    pub const fn with_family(mut self, family: u16) -> Self {
        self.address.Ipv6.sin6_family = family;
        self
    }

    /// A null pointer with the length of the address.
    #[must_use]
    pub const fn null(self) -> Self {
        Self { null: true, ..self }
    }

    /// The arguments for a call. The pointer is valid for the length as long as this value is.
    pub(super) const fn parts(&self) -> (*const SOCKADDR, u32) {
        (if self.null { ptr::null() } else { self.address.as_ptr() }, self.length)
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        Self::new(address)
    }
}

/// The answer of a function that returns an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it returned.
    pub status: NtStatus,
    /// The length it stored.
    pub length: u32,
    /// The address in the buffer.
    pub address: Option<SocketAddr>,
    /// True if bytes behind the end of the buffer were written.
    pub overran: bool,
}

/// Asks for an address with a buffer of `size` bytes, at most 28; without a buffer if `size` is `None`.
pub(super) fn ask(size: Option<u32>, function: impl FnOnce(*mut SOCKADDR, *mut u32) -> NtStatus) -> Answer {
    const FILL: u8 = 0xA5;
    let mut buffer = [Aligned([FILL; 32])];
    let given = size.unwrap_or(0).min(28);
    let mut length = given;
    let place = if size.is_some() { buffer.as_mut_ptr().cast() } else { ptr::null_mut() };
    let status = function(place, &raw mut length);
    let bytes = &buffer[0].0;
    let overran = bytes[given as usize..].iter().any(|byte| *byte != FILL);
    // SAFETY: the buffer is longer than any length that is passed.
    let read = unsafe { SOCKADDR_INET::read(bytes.as_ptr().cast(), length.min(given)) };
    Answer { status, length, address: read.and_then(|address| address.to_socket_addr()), overran }
}

#[repr(align(8))]
struct Aligned([u8; 32]);
