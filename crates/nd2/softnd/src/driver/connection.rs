//! Connectors and listeners.

use std::{net::SocketAddr, ptr::NonNull};

use engine::connection::ReadLimits;
use fallible::Arc;
use nd2::{abi::OVERLAPPED, back_end};
use nd2_control::wire::{
    ADDRESS, Accept, BindAddress, Connect, DATA, GetConnectionRequest, Listen, Reads, Verb, address_bytes,
};
use ndkpi::NtStatus;
use zerocopy::{Immutable, IntoBytes};

use super::{
    Driver, Transport,
    adapter::Adapter,
    held::{DriverHandle, Message, OverlappedObject, requests},
    provider::read_address,
    qp::QueuePair,
};

/// A connector.
pub struct Connector<T: Transport>(pub OverlappedObject<T>);

/// A listener.
pub struct Listener<T: Transport>(pub OverlappedObject<T>);

requests!(Connector: 0, Listener: 0);

/// A message that ends with private data.
///
/// # Errors
///
/// `STATUS_INVALID_BUFFER_SIZE` if it is more than may be sent.
fn with_data(head: &(impl IntoBytes + Immutable), data: &[u8]) -> Result<Message, NtStatus> {
    if data.len() > DATA {
        return Err(NtStatus::INVALID_BUFFER_SIZE);
    }
    let mut message = Message::of(head);
    message.push(data)?;
    Ok(message)
}

/// Has an object take a local address.
fn bind<T: Transport>(held: &DriverHandle<T>, verb: Verb, address: SocketAddr) -> Result<(), NtStatus> {
    let input = BindAddress { object: held.handle.into(), address: address_bytes(address) };
    held.tell(verb, input.as_bytes())
}

/// The address that a verb gives.
fn address_of<T: Transport>(held: &DriverHandle<T>, verb: Verb) -> Result<SocketAddr, NtStatus> {
    read_address(&held.ask::<[u8; ADDRESS]>(verb, held.handle().as_bytes())?)
}

impl<T: Transport> Connector<T> {
    /// How `Accept` and `Connect` begin. Without a queue pair of the adapter its handle is zero, and the driver says what it thinks of
    /// that.
    fn accept_by(&self, qp: Option<&QueuePair<T>>, reads: ReadLimits) -> Accept {
        let queue_pair = qp.map_or(0, |qp| qp.held.handle).into();
        let reads = Reads { inbound: reads.inbound.into(), outbound: reads.outbound.into() };
        Accept { connector: self.0.held.handle.into(), queue_pair, reads }
    }
}

impl<T: Transport> back_end::Connector<Driver<T>> for Connector<T> {
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        bind(&self.0.held, Verb::BindConnector, address)
    }

    unsafe fn connect(
        &self,
        qp: Option<&QueuePair<T>>,
        remote: SocketAddr,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        let head = Connect { accept: self.accept_by(qp, reads), address: address_bytes(remote) };
        match with_data(&head, data) {
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
            Ok(message) => unsafe { self.0.begin(Verb::Connect, message.as_bytes(), overlapped) },
            Err(status) => status,
        }
    }

    unsafe fn complete_connect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin_alone(Verb::CompleteConnect, overlapped) }
    }

    unsafe fn accept(
        &self,
        qp: Option<&QueuePair<T>>,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        match with_data(&self.accept_by(qp, reads), data) {
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
            Ok(message) => unsafe { self.0.begin(Verb::Accept, message.as_bytes(), overlapped) },
            Err(status) => status,
        }
    }

    fn reject(&self, data: &[u8]) -> Result<(), NtStatus> {
        self.0.held.tell(Verb::Reject, with_data(&self.0.held.handle(), data)?.as_bytes())
    }

    fn read_limits(&self) -> Result<ReadLimits, NtStatus> {
        let sent: Reads = self.0.held.ask(Verb::ReadLimits, self.0.held.handle().as_bytes())?;
        Ok(ReadLimits { inbound: sent.inbound.get(), outbound: sent.outbound.get() })
    }

    fn private_data(&self, into: &mut [u8]) -> Result<usize, NtStatus> {
        let mut found = [0; DATA];
        let held = &self.0.held;
        let needed = held.transport.call(Verb::PrivateData.code(), held.handle().as_bytes(), &mut found)?;
        let fits = needed.min(into.len());
        into[..fits].copy_from_slice(&found[..fits]);
        Ok(needed)
    }

    fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        address_of(&self.0.held, Verb::LocalAddress)
    }

    fn peer_address(&self) -> Result<SocketAddr, NtStatus> {
        address_of(&self.0.held, Verb::PeerAddress)
    }

    unsafe fn notify_disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin_alone(Verb::NotifyDisconnect, overlapped) }
    }

    unsafe fn disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin_alone(Verb::Disconnect, overlapped) }
    }
}

impl<T: Transport> back_end::Listener<Driver<T>> for Listener<T> {
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        bind(&self.0.held, Verb::BindListener, address)
    }

    fn listen(&self, backlog: u32) -> Result<(), NtStatus> {
        let input = Listen { listener: self.0.held.handle.into(), backlog: backlog.into() };
        self.0.held.tell(Verb::Listen, input.as_bytes())
    }

    fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        address_of(&self.0.held, Verb::LocalAddress)
    }

    unsafe fn get_connection_request(
        &self,
        connector: Option<&Connector<T>>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        let connector = connector.map_or(0, |connector| connector.0.held.handle);
        let input = GetConnectionRequest { listener: self.0.held.handle.into(), connector: connector.into() };
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin(Verb::GetConnectionRequest, input.as_bytes(), overlapped) }
    }
}
