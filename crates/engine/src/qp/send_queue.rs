//! The send queue of a queue pair, as the engine sees it: what it does in a quantum.

use alloc::vec::Vec;

use fallible::Arc;

use super::{
    NtStatus, Qp, QpParameters,
    execute::{Batch, Execution, Queued, flush},
    orders,
    progress::{Current, Step},
    request::{Chunk, Sge, WorkRequest},
};
use crate::{
    cq::decision::newer,
    memory::Segment,
    memory_status,
    nic::{Budget, Moved},
    os::Os,
    ring::Consumer,
    sync::Ordering,
};

/// Orders that the send queue follows.
const SEND_ORDERS: u32 = orders::RELINK | orders::FLUSH_SEND | orders::DRAIN;

/// What a queue does after a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until the doorbell rings.
    Idle,
    /// More, in another quantum: because the budget is spent or because others have to come first.
    Unfinished,
}

/// The engine's end of a send queue.
pub(super) struct SendQueue<O: Os> {
    pub requests: Consumer<WorkRequest>,
    pub elements: Consumer<Sge>,
    pub chunks: Consumer<Chunk>,
    /// The other end of the connection, as of the last look at the link.
    pub peer: Option<Arc<Qp<O>>>,
    /// A request has met the end of the connection: those behind it are cancelled.
    pub broken: bool,
    /// Requests before this number are cancelled.
    flush_to: Option<u64>,
    /// The link client is told when the requests before this number are finished.
    drain_to: Option<u64>,
    pub current: Option<Current<O>>,
    /// For the mistake `RemoteInvalidateLate`.
    #[cfg(feature = "faults")]
    pub late: Option<(Arc<crate::memory::Domain<O>>, u32)>,
    /// Local bytes of the current request. Has room for all that a request may name.
    pub local: Vec<Segment<O>>,
    /// The peer's bytes of the current request. Has room for all that a receive may name.
    pub remote: Vec<Segment<O>>,
    /// What was moved and is not counted yet.
    pub moved: Moved,
}

impl<O: Os> SendQueue<O> {
    pub fn try_new(
        requests: Consumer<WorkRequest>,
        elements: Consumer<Sge>,
        chunks: Consumer<Chunk>,
        parameters: &QpParameters,
    ) -> Result<Self, NtStatus> {
        let room = |elements: u32| {
            let mut pieces = Vec::new();
            pieces.try_reserve_exact(elements as usize).map_err(|error| memory_status(error.into()))?;
            Ok::<_, NtStatus>(pieces)
        };
        Ok(Self {
            requests,
            elements,
            chunks,
            peer: None,
            broken: false,
            flush_to: None,
            drain_to: None,
            current: None,
            #[cfg(feature = "faults")]
            late: None,
            local: room(parameters.max_initiator_sge)?,
            remote: room(parameters.max_peer_sge.max(1))?,
            moved: Moved::default(),
        })
    }

    /// Carries requests out until there are none, the first has to wait, or the budget is spent.
    pub fn run(&mut self, qp: &Arc<Qp<O>>, budget: &mut Budget) -> Next {
        #[cfg(feature = "faults")]
        if let Some((domain, token)) = self.late.take() {
            let _ = domain.invalidate_remote(token);
        }
        self.follow_orders(qp);
        let mut batch = Batch::new();
        let next = loop {
            if self.requests.is_empty() {
                break Next::Idle;
            }
            if budget.is_spent() {
                break Next::Unfinished;
            }
            if let Some(moved) = self.execute(qp, *budget, &mut batch) {
                budget.take(&moved);
                self.note(qp, &moved);
                continue;
            }
            // The slow path completes requests itself.
            flush(&qp.initiator_cq, &mut batch);
            match self.progress(qp, budget) {
                Step::Finished | Step::Moving => {}
                Step::Held => break Next::Unfinished,
                Step::Waiting => break Next::Idle,
            }
        };
        flush(&qp.initiator_cq, &mut batch);
        self.count(qp);
        if let Some(Some(srq)) = self.peer.as_ref().map(|peer| &peer.srq) {
            srq.pass_on();
        }
        if self.drain_to.take_if(|end| !newer(*end, self.requests.head())).is_some() {
            qp.tell_drained();
        }
        next
    }

    /// Carries the first request out on the fast path, and perhaps some behind it. `None` if nothing has been done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 25 instructions of a write")]
    fn execute(&mut self, qp: &Arc<Qp<O>>, budget: Budget, batch: &mut Batch) -> Option<Moved> {
        let peer = self.peer.as_ref()?;
        if self.current.is_some() || self.is_flushed() || qp.is_dead() {
            return None;
        }
        // Under locks nothing can be flushed: the completion queue may be the one that is locked.
        if batch.remaining_capacity() < 2 {
            flush(&qp.initiator_cq, batch);
        }
        Execution { qp, peer, requests: Queued { requests: &mut self.requests, batch }, budget }.execute()
    }

    #[inline]
    pub fn follow_orders(&mut self, qp: &Qp<O>) {
        if qp.initiating.orders.load(Ordering::Relaxed) & SEND_ORDERS != 0 {
            self.take_orders(qp);
        }
    }

    #[cold]
    fn take_orders(&mut self, qp: &Qp<O>) {
        let given = qp.initiating.orders.fetch_and(!SEND_ORDERS, Ordering::AcqRel);
        if given & orders::RELINK != 0 {
            self.count(qp);
            self.peer = qp.peer();
            if let Some(srq) = &qp.srq {
                // It may have called this queue pair, whose peer has nothing to send any more.
                srq.pass_on();
            }
        }
        if given & orders::FLUSH_SEND != 0 {
            self.flush_to = Some(qp.flush_send_to.load(Ordering::Acquire));
        }
        if given & orders::DRAIN != 0 {
            self.drain_to = Some(qp.drain_to.load(Ordering::Acquire));
        }
    }

    /// Notes what was moved, to be counted later.
    #[inline]
    pub fn note(&mut self, qp: &Qp<O>, moved: &Moved) {
        if self.moved.is_read != moved.is_read {
            self.count(qp);
            self.moved.is_read = moved.is_read;
        }
        self.moved.requests += moved.requests;
        self.moved.bytes += moved.bytes;
    }

    /// Counts what was moved. Without a peer nothing moves, and whoever changes the peer counts first.
    #[inline]
    fn count(&mut self, qp: &Qp<O>) {
        if self.moved.requests > 0
            && let Some(peer) = &self.peer
        {
            qp.engine.count(&peer.engine, &self.moved);
            (self.moved.requests, self.moved.bytes) = (0, 0);
        }
    }

    /// The peer, if there are no requests, and no orders that have to be followed first.
    #[inline]
    pub fn peer_if_idle(&mut self, qp: &Qp<O>) -> Option<&Arc<Qp<O>>> {
        // Whatever ends the use of the connection gives an order. It is looked at under the lock: see `Qp::quiesce`.
        let has_orders = qp.initiating.orders.load(Ordering::Relaxed) & SEND_ORDERS != 0;
        #[cfg(feature = "faults")]
        let has_orders = has_orders || self.late.is_some();
        if has_orders || !self.requests.is_empty() { None } else { self.peer.as_ref() }
    }

    /// Returns true if the first request was flushed. If it has begun it is carried out all the same: it would leave half a message
    /// at the peer.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.flush_to.is_some_and(|end| newer(end, self.requests.head()))
    }
}
