//! Two queue pairs of one adapter, connected with each other: what the performance run measures on.
//!
//! This is a consumer as others would be, written with [`ndk`]. The suite has a client of its own: it looks at what a provider
//! does wrong, which a consumer does not.

use core::{
    net::SocketAddr,
    sync::atomic::{
        AtomicI32, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use fallible::Arc;
use ndk::{
    Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notified, Notify, NtStatus, Offer, Qp, QpSizes, Remote,
};

use crate::{performance::Until, platform};

/// Requests on their way at a time.
pub const WINDOW: u32 = 16;

/// Contexts of receives.
const RECEIVE: usize = 1;
/// Contexts of all other requests.
const REQUEST: usize = 2;

/// One side.
pub struct Side {
    mr: Mr,
    receives: Receives,
    requests: Cq,
    qp: Qp,
    size: u32,
}

/// How a side learns that a message has come.
enum Receives {
    Polled(Cq),
    Notified { _queue: Notified, arrived: Arc<Arrived> },
}

/// What the callback of a completion queue tells the thread that waits.
struct Arrived {
    count: AtomicU32,
    failure: AtomicI32,
}

/// Two sides and their connection. The order of the fields is that in which they go.
pub struct Peers {
    /// The one that measures.
    pub a: Side,
    /// The one that answers.
    pub b: Side,
    _connections: [Connection; 2],
}

impl Peers {
    /// Connects an adapter with itself, for messages of that size. The sides are notified of messages, or poll.
    ///
    /// # Errors
    ///
    /// What the provider says; `STATUS_IO_TIMEOUT` if no connection comes about.
    pub fn connect(adapter: &Adapter, at: SocketAddr, size: u32, notified: bool) -> Result<Self, NtStatus> {
        let (mut a, mut b) = (Side::new(adapter, size)?, Side::new(adapter, size)?);
        let connections = adapter.connect_pair(at, &a.qp, &b.qp, &Offer::default(), platform::PATIENCE)?;
        if notified {
            (a, b) = (a.notified()?, b.notified()?);
        }
        Ok(Self { a, b, _connections: connections })
    }
}

impl Side {
    fn new(adapter: &Adapter, size: u32) -> Result<Self, NtStatus> {
        let pd = adapter.create_pd()?;
        let mr = pd.register(adapter.memory(size as usize)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let (receives, requests) = (adapter.create_cq(2 * WINDOW)?, adapter.create_cq(2 * WINDOW)?);
        let sizes = QpSizes { receives: WINDOW, requests: WINDOW, ..QpSizes::default() };
        let qp = pd.create_qp(&receives, &requests, sizes, 0)?;
        Ok(Self { mr, receives: Receives::Polled(receives), requests, qp, size })
    }

    /// Has messages taken by the queue's callback, which arms the queue again.
    fn notified(self) -> Result<Self, NtStatus> {
        let Receives::Polled(cq) = self.receives else { return Ok(self) };
        let arrived = Arc::try_new(Arrived { count: AtomicU32::new(0), failure: AtomicI32::new(0) })?;
        let tells = arrived.clone();
        let queue = cq.notify(Notify::Any, move |poller, status| {
            let mut results = [Completion::EMPTY; WINDOW as usize];
            let done = poller.poll(&mut results);
            let outcome = done.iter().try_for_each(|one| is_success(one, RECEIVE)).and_then(|()| status.ok());
            if let Err(failure) = outcome {
                tells.failure.store(failure.0, Release);
            }
            tells.count.fetch_add(u32::try_from(done.len()).unwrap_or(u32::MAX), Release);
            poller.arm(Notify::Any);
        })?;
        Ok(Self { receives: Receives::Notified { _queue: queue, arrived }, ..self })
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn receive(&mut self) -> Result<(), NtStatus> {
        self.qp.receiver.receive(RECEIVE, &[self.mr.sge(0, self.size)?])
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn send(&mut self) -> Result<(), NtStatus> {
        self.qp.initiator.send(REQUEST, &[self.mr.sge(0, self.size)?], Flags::empty())
    }

    /// Writes into the peer's memory.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn write(&mut self, to: Remote) -> Result<(), NtStatus> {
        self.qp.initiator.write(REQUEST, &[self.mr.sge(0, self.size)?], to, Flags::empty())
    }

    /// The side's memory, for the peer.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.mr.remote(0)
    }

    /// Waits for as many messages.
    ///
    /// # Errors
    ///
    /// A receive has failed; as for [`Until::pause`].
    pub fn await_messages(&mut self, count: u32, until: &Until<'_>) -> Result<(), NtStatus> {
        let arrived = match &mut self.receives {
            Receives::Polled(cq) => return take(cq, RECEIVE, count, until),
            Receives::Notified { arrived, .. } => arrived,
        };
        let began = platform::now();
        while arrived.count.load(Acquire) < count {
            NtStatus(arrived.failure.load(Relaxed)).ok()?;
            until.pause(began)?;
        }
        arrived.count.fetch_sub(count, Relaxed);
        NtStatus(arrived.failure.load(Relaxed)).ok()
    }

    /// Waits for the completions of as many sends or writes.
    ///
    /// # Errors
    ///
    /// As for [`Side::await_messages`].
    pub fn await_requests(&mut self, count: u32, until: &Until<'_>) -> Result<(), NtStatus> {
        take(&mut self.requests, REQUEST, count, until)
    }
}

/// Polls for as many completions of a queue.
fn take(cq: &mut Cq, context: usize, mut count: u32, until: &Until<'_>) -> Result<(), NtStatus> {
    let began = platform::now();
    let mut results = [Completion::EMPTY; WINDOW as usize];
    while count > 0 {
        let most = results.len().min(count as usize);
        let done = cq.poll(&mut results[..most]);
        done.iter().try_for_each(|one| is_success(one, context))?;
        if done.is_empty() {
            until.pause(began)?;
        }
        count -= u32::try_from(done.len()).unwrap_or(count);
    }
    Ok(())
}

/// Returns an error if a request has failed, or is not one of those that are waited for.
fn is_success(done: &Completion, context: usize) -> Result<(), NtStatus> {
    if done.ok()? == context { Ok(()) } else { Err(NtStatus::INTERNAL_ERROR) }
}
