//! Listeners for threads that wait for a connection (`NDKPI 7.7.2`).

use alloc::boxed::Box;
use core::{
    net::SocketAddr,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use fallible::{Arc, try_box};
use ndkpi::NtStatus;

use crate::{
    adapter::Adapter,
    connector::{Connection, Incoming, Offer},
    listener::Listener,
    os::Event,
    qp::QueuePair,
};

/// A listener that keeps one connection request until a thread takes it, and refuses others meanwhile.
pub struct Acceptor {
    listener: Listener,
    waiting: Arc<Waiting>,
}

/// The connection request that no thread has taken yet.
///
/// # Invariants
///
/// `incoming` is null, [`CLOSED`], or came from `Box::into_raw` and belongs to whoever swaps it out. `CLOSED` is final.
struct Waiting {
    incoming: AtomicPtr<Incoming>,
    event: Box<dyn Event>,
}

/// The acceptor is closed and keeps no connection request.
const CLOSED: *mut Incoming = ptr::dangling_mut();

impl Waiting {
    /// Keeps a connection request. Drops, and so refuses it, if another one is waiting or there is no memory.
    fn put(&self, incoming: Incoming) {
        let Ok(incoming) = try_box(incoming) else { return };
        let incoming = Box::into_raw(incoming);
        if self.incoming.compare_exchange(ptr::null_mut(), incoming, Release, Acquire).is_err() {
            // SAFETY: it was just made from a box, and nobody has seen it.
            return drop(unsafe { Box::from_raw(incoming) });
        }
        self.event.set();
    }

    /// Takes the kept connection request. Only the acceptor calls this, so it is not closed.
    fn take(&self) -> Option<Incoming> {
        self.swap(ptr::null_mut())
    }

    fn swap(&self, new: *mut Incoming) -> Option<Incoming> {
        let incoming = self.incoming.swap(new, AcqRel);
        if incoming.is_null() || incoming == CLOSED {
            return None;
        }
        // SAFETY: it came from a box and was swapped out here (invariant).
        Some(*unsafe { Box::from_raw(incoming) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // The close of a listener waits for the connections it has handed out, and drops its parts only then.
        drop(self.waiting.swap(CLOSED));
    }
}

impl Adapter {
    /// Like [`Adapter::listen`] for a thread that waits for connections. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The same as [`Adapter::listen`].
    pub fn acceptor(&self, at: SocketAddr) -> Result<Acceptor, NtStatus> {
        let event = self.core().os().event()?;
        let waiting = Arc::try_new(Waiting { incoming: AtomicPtr::new(ptr::null_mut()), event })?;
        let keeps = waiting.clone();
        let listener = self.listen(at, move |incoming| keeps.put(incoming))?;
        Ok(Acceptor { listener, waiting })
    }

    /// Connects two queue pairs of this adapter with each other, the active side first. Waits at most about `micros` microseconds
    /// for the connection request. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status; `STATUS_IO_TIMEOUT` if no connection request arrived.
    pub fn connect_pair(
        &self,
        at: SocketAddr,
        active: &impl QueuePair,
        passive: &impl QueuePair,
        offer: &Offer<'_>,
        micros: u64,
    ) -> Result<[Connection; 2], NtStatus> {
        self.acceptor(at)?.connect((self, at), active, passive, offer, micros)
    }
}

impl Acceptor {
    /// Connects a queue pair of `from`, an adapter and its address, with one of the acceptor's adapter. Waits at most about `micros`
    /// microseconds for the connection request. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status; `STATUS_IO_TIMEOUT` if no connection request arrived.
    pub fn connect(
        &self,
        (from, at): (&Adapter, SocketAddr),
        active: &impl QueuePair,
        passive: &impl QueuePair,
        offer: &Offer<'_>,
        micros: u64,
    ) -> Result<[Connection; 2], NtStatus> {
        let connecting = from.create_connector()?.connect(active, at, self.local_address()?, offer)?;
        // The accept pends until the connect is completed, so wait for it last.
        let accepting = self.wait_for(micros)?.accept(passive, offer, || ())?;
        let active = connecting.wait()?.complete(|| ())?.wait()?;
        Ok([active, accepting.wait()?])
    }

    /// Waits for a connection request, at most about this many microseconds. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_IO_TIMEOUT` if none arrived; `STATUS_INVALID_DEVICE_STATE` if the caller may not wait.
    pub fn wait_for(&self, micros: u64) -> Result<Incoming, NtStatus> {
        if !self.listener.may_wait() {
            return self.waiting.take().ok_or(NtStatus::INVALID_DEVICE_STATE);
        }
        // A request that arrives after the event was cleared sets it again.
        self.waiting.event.clear();
        if let Some(incoming) = self.waiting.take() {
            return Ok(incoming);
        }
        self.waiting.event.wait_for(micros);
        self.waiting.take().ok_or(NtStatus::IO_TIMEOUT)
    }

    /// Like [`Listener::local_address`].
    ///
    /// # Errors
    ///
    /// The same as [`Listener::local_address`].
    pub fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.listener.local_address()
    }
}
