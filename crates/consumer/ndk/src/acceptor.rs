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
    /// Ends first: the close of a listener waits for the connections it has handed out.
    pub(crate) waiting: Door,
    pub(crate) listener: Listener,
}

/// Where a thread finds the connection request. Dropping it refuses the request, and those that come later.
pub struct Door(Arc<PendingConnection>);

/// The connection request that no thread has taken yet.
///
/// # Invariants
///
/// `incoming` is null, [`CLOSED`], or came from `Box::into_raw` and belongs to whoever swaps it out. `CLOSED` is final.
struct PendingConnection {
    incoming: AtomicPtr<Incoming>,
    event: Box<dyn Event>,
}

/// The acceptor is closed and keeps no connection request.
const CLOSED: *mut Incoming = ptr::dangling_mut();

impl PendingConnection {
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

impl Drop for Door {
    fn drop(&mut self) {
        drop(self.0.swap(CLOSED));
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
        let waiting = Arc::try_new(PendingConnection { incoming: AtomicPtr::new(ptr::null_mut()), event })?;
        let keeps = waiting.clone();
        let listener = self.listen(at, move |incoming| keeps.put(incoming))?;
        Ok(Acceptor { waiting: Door(waiting), listener })
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
    /// The provider's status, as soon as one side has failed; `STATUS_IO_TIMEOUT` if no connection request arrived.
    pub fn connect(
        &self,
        (from, at): (&Adapter, SocketAddr),
        active: &impl QueuePair,
        passive: &impl QueuePair,
        offer: &Offer<'_>,
        micros: u64,
    ) -> Result<[Connection; 2], NtStatus> {
        let connecting = from.create_connector()?.connect(active, at, self.local_address()?, offer)?;
        connecting.wake(self.waker())?;
        let incoming = self.wait_unless(micros, || connecting.failure())?;
        // The accept pends until the connect is completed, so wait for it last, unless it fails.
        let accepting = incoming.accept(passive, offer, || ())?;
        accepting.wake(self.waker())?;
        let event = &self.waiting.0.event;
        while connecting.outcome().is_none() {
            event.clear();
            if let Some(status) = accepting.failure() {
                return Err(status);
            }
            if connecting.outcome().is_none() {
                event.wait();
            }
        }
        let active = connecting.wait()?.complete(|| ())?.wait()?;
        Ok([active, accepting.wait()?])
    }

    /// Wakes the thread that waits for a connection request.
    fn waker(&self) -> impl FnOnce() + Send + use<> {
        let waiting = self.waiting.0.clone();
        move || waiting.event.set()
    }

    /// Waits for a connection request, at most about this many microseconds. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_IO_TIMEOUT` if none arrived; `STATUS_INVALID_DEVICE_STATE` if the caller may not wait.
    pub fn wait_for(&self, micros: u64) -> Result<Incoming, NtStatus> {
        self.wait_unless(micros, || None)
    }

    /// Like [`Acceptor::wait_for`], until there is a failure.
    fn wait_unless(&self, micros: u64, failure: impl Fn() -> Option<NtStatus>) -> Result<Incoming, NtStatus> {
        let Door(waiting) = &self.waiting;
        if !self.listener.may_wait() {
            return waiting.take().ok_or(NtStatus::INVALID_DEVICE_STATE);
        }
        let mut in_time = true;
        loop {
            // Whatever comes after the event was cleared sets it again.
            waiting.event.clear();
            if let Some(incoming) = waiting.take() {
                return Ok(incoming);
            }
            if let Some(status) = failure() {
                return Err(status);
            }
            if !in_time {
                return Err(NtStatus::IO_TIMEOUT);
            }
            // An earlier connect whose time has run out may wake this one: then the time begins anew.
            in_time = waiting.event.wait_for(micros);
        }
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
