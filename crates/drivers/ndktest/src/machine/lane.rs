//! A lane between two machines: a datagram socket on which one call is made at a time.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ptr,
};

use fallible::{Arc, try_box};
use kernel::{Asking, DatagramSocket, Event, NonPaged, OwnIrp, WskProvider};
use ndis::{WSK_BUF, WSK_BUF_LIST};
use ndkpi::{NtStatus, SOCKADDR_INET};
use remote::MOST;

use super::frame::{HEAD, Head};

/// Lanes of a session: so many threads call at a time.
pub const LANES: u16 = 8;

/// The longest datagram, in bytes.
const LONGEST: usize = HEAD + MOST;

/// Requests to receive that fail in a row, after which the socket is given up. That a datagram has found nobody may fail one.
const FAILURES: u32 = 64;

/// Whom it comes from if nothing has come.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

const TAG: u32 = u32::from_le_bytes(*b"Ntln");

/// A lane. Used by one thread at a time.
///
/// # Invariants
///
/// `socket` is there until the value is dropped. While `is_receiving`, a request of it has `receive`, the memory of `incoming` and `places`, none
/// of which moves with the value.
pub struct Lane {
    socket: Option<DatagramSocket>,
    asking: Asking,
    outgoing: NonPaged,
    receive: OwnIrp,
    incoming: NonPaged,
    places: Box<Places>,
    is_receiving: bool,
    failures: u32,
    /// Captured as long as there is a socket.
    _provider: Arc<WskProvider>,
}

/// What a request to receive has, at an address that stays.
struct Places {
    buffer: UnsafeCell<WSK_BUF>,
    from: UnsafeCell<SOCKADDR_INET>,
    /// Set when it is complete.
    came: Event,
}

// SAFETY: the request has the places, or the thread that has the lane.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointer is that of the lane's own MDL")]
unsafe impl Send for Places {}

impl Lane {
    /// A socket at that address.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says: that the port is in use; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn open(provider: &Arc<WskProvider>, local: SocketAddr) -> Result<Self, NtStatus> {
        let memory = || -> Result<NonPaged, NtStatus> {
            let mut memory = NonPaged::try_new(LONGEST, TAG)?;
            memory.describe(0, LONGEST)?;
            Ok(memory)
        };
        let (outgoing, incoming) = (memory()?, memory()?);
        let places = try_box(Places {
            buffer: UnsafeCell::new(WSK_BUF { Mdl: incoming.mdl().cast(), Offset: 0, Length: LONGEST }),
            from: UnsafeCell::new(SOCKADDR_INET::UNSPECIFIED),
            came: Event::try_new()?,
        });
        let places = places.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let (receive, mut asking) = (OwnIrp::try_new()?, Asking::try_new()?);
        // SAFETY: no events, so no context; the lane keeps the provider until it has closed the socket.
        let socket = unsafe { DatagramSocket::open(provider, &mut asking, local, None, ptr::null_mut()) }?;
        Ok(Self {
            socket: Some(socket),
            asking,
            outgoing,
            receive,
            incoming,
            places,
            is_receiving: false,
            failures: 0,
            _provider: provider.clone(),
        })
    }

    /// Sends a datagram with that head and so many bytes of the body ([`Lane::both`]).
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says.
    pub fn send(&mut self, to: SocketAddr, head: Head, length: usize) -> Result<(), NtStatus> {
        let Some(socket) = self.socket else { return Err(NtStatus::CONNECTION_INVALID) };
        // SAFETY: the memory has room for a head, and only the lane uses it.
        unsafe { self.outgoing.address().cast::<[u8; HEAD]>().write(head.bytes()) };
        let buffer = WSK_BUF { Mdl: self.outgoing.mdl().cast(), Offset: 0, Length: HEAD + length.min(MOST) };
        let mut list = WSK_BUF_LIST { Next: ptr::null_mut(), Buffer: buffer };
        let to = SOCKADDR_INET::from(to);
        // SAFETY: the IRP is for this request, which is waited for: the list, the memory and the address stay.
        unsafe { self.asking.ask(|irp| socket.send(&raw mut list, &raw const to, irp)) }.map(|_| ())
    }

    /// Waits for a datagram, so many microseconds at most: where it came from, and how long it is; [`NOBODY`] and 0 for what is none. A request
    /// to receive stays, so nothing that comes between two calls is lost.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says of the socket.
    pub fn receive(&mut self, micros: u64) -> Result<Option<(SocketAddr, usize)>, NtStatus> {
        let Some(socket) = self.socket else { return Err(NtStatus::CONNECTION_INVALID) };
        if !self.is_receiving {
            self.is_receiving = true;
            let (buffer, from) = (self.places.buffer.get(), self.places.from.get());
            // SAFETY: nobody has the IRP: no request does. The lane keeps it, the box of the event and the places, and the memory until the
            // request is complete.
            unsafe { self.receive.start(&self.places.came, |irp| socket.receive(buffer, from, irp.cast())) };
        }
        if !self.places.came.wait_micros(micros) {
            return Ok(None);
        }
        self.is_receiving = false;
        // SAFETY: the request is complete.
        let (status, length) = unsafe { self.receive.outcome() };
        if !status.is_error() {
            self.failures = 0;
        } else if self.failures >= FAILURES {
            return Err(status);
        } else {
            self.failures += 1;
        }
        if !status.is_success() {
            // One that is too long is none of ours, and of one that has failed nothing is there.
            return Ok(Some((NOBODY, 0)));
        }
        // SAFETY: the request that wrote to it is complete.
        let from = unsafe { *self.places.from.get() };
        let length = length.min(LONGEST);
        Ok(Some((from.to_socket_addr().unwrap_or(NOBODY), length)))
    }

    /// The first bytes of the datagram that has come, and where the body of the next one is written to.
    pub fn both(&mut self, length: usize) -> (&[u8], &mut [u8]) {
        let length = if self.is_receiving { 0 } else { length.min(LONGEST) };
        // SAFETY: no request writes to the memory, and none begins while the lane is borrowed.
        let came = unsafe { core::slice::from_raw_parts(self.incoming.address(), length) };
        // SAFETY: other memory, with that room behind the head. Only the lane uses it; a request that sends has it during `send` alone.
        let body = unsafe { core::slice::from_raw_parts_mut(self.outgoing.address().add(HEAD), MOST) };
        (came, body)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            // SAFETY: only the lane calls its functions, and none is in progress.
            unsafe { socket.close(&mut self.asking) };
        }
        if self.is_receiving {
            // The close has cancelled it.
            self.places.came.wait();
        }
    }
}
