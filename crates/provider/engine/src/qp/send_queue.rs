//! The engine's end of a send queue: the doorbell, and the quantum.

use alloc::{boxed::Box, vec::Vec};
use core::marker::PhantomData;

use fallible::Arc;

use super::{
    Flights, Initiating, NtStatus, Qp, QpParameters,
    execute::Execution,
    hardware::HardwareState,
    progress::{Current, Step},
    request::{Chunk, Sge, WorkRequest},
};
use crate::{
    cq::notify::newer,
    memory::Segment,
    nic::{Budget, NicRules},
    os::{Dpc, Os, Routine, SpinLock},
    ring::Consumer,
    sync::Ordering,
};

/// Orders to a queue pair besides that to carry out requests: bits of one word.
pub(super) mod order {
    /// Copy the peer from the link.
    pub const RELINK: u32 = 1 << 0;
    /// Cancel initiator requests up to [`crate::qp::Qp::flush_send_to`].
    pub const FLUSH_SEND: u32 = 1 << 1;
    /// Cancel receives that were flushed, or all if the queue pair is dead.
    pub const FLUSH_RECEIVE: u32 = 1 << 2;
    /// Tell the link client when the requests up to [`crate::qp::Qp::drain_to`] have completed.
    pub const DRAIN: u32 = 1 << 3;
    /// Tell it also when the first request waits for a receive of the peer: see [`crate::qp::Qp::settle`].
    pub const SETTLE: u32 = 1 << 4;
    /// A timer of the queue pair has expired.
    pub const KEEP_TIME: u32 = 1 << 5;
    /// The orders to the send queue.
    pub const TO_SEND_QUEUE: u32 = RELINK | FLUSH_SEND | DRAIN | SETTLE | KEEP_TIME;
}

/// What one quantum may do. Bytes: no DPC lasts longer than Windows' guidelines allow.
const QUANTUM: Budget = Budget { bytes: 512 << 10, requests: 128 };

/// The engine's end of a send queue.
pub(super) struct SendQueue<O: Os> {
    pub requests: Consumer<WorkRequest>,
    pub elements: Consumer<Sge>,
    pub chunks: Consumer<Chunk>,
    /// The peer, copied from the link.
    pub peer: Option<Arc<Qp<O>>>,
    /// The peer, if the executor may carry requests out.
    plain_peer: Option<Arc<Qp<O>>>,
    /// The requests that are on their way to another machine; `None` if the peer is not there.
    pub flights: Option<Box<Flights>>,
    /// For rules that are not plain.
    pub hardware_state: HardwareState,
    /// A request has failed because of the end of the connection: those behind it are cancelled.
    pub broken: bool,
    /// Requests before this number are cancelled.
    flush_to: Option<u64>,
    /// The link client is told when the requests before this number have completed.
    pub drain_to: Option<u64>,
    /// It is told also when the first request waits for a receive of the peer.
    settles: bool,
    pub current: Option<Current<O>>,
    /// Local data of the current request. Has room for the most elements of a request.
    pub local: Vec<Segment<O>>,
    /// Remote data of the current request. Has room for the most elements of a receive.
    pub remote: Vec<Segment<O>>,
}

/// The DPC of a queue pair.
pub(super) struct Quantum<O>(PhantomData<O>);

impl<O: Os> Routine for Quantum<O> {
    type Target = Qp<O>;

    fn run(qp: &Arc<Qp<O>>) {
        Qp::quantum(qp);
    }
}

impl<O: Os> Qp<O> {
    /// Rings the doorbell: there may be requests, or there are orders. A quantum follows that knows what was done before.
    pub(super) fn ring(this: &Arc<Self>) {
        this.initiating.is_busy.store(true, Ordering::Relaxed);
        // A call that is queued already has not begun, and will know too (see `Dpc::queue`).
        this.dpc.queue(this);
    }

    /// Gives `orders`, and rings the doorbell.
    pub(super) fn order(this: &Arc<Self>, orders: u32) {
        this.initiating.orders.fetch_or(orders, Ordering::AcqRel);
        Self::ring(this);
    }

    //= invariant 3
    fn quantum(this: &Arc<Self>) {
        let Initiating { orders, is_busy, send_queue } = &*this.initiating;
        let mut budget = QUANTUM;
        let is_unfinished = send_queue.with(|queue| {
            // Taken under the lock: they have been followed when the lock is next taken (see `Qp::quiesce`).
            let orders = if orders.load(Ordering::Relaxed) == 0 { 0 } else { orders.swap(0, Ordering::AcqRel) };
            let flushes = orders & order::FLUSH_RECEIVE != 0;
            let has_receives_left = flushes && Self::cancel_receives(this, &mut budget);
            let is_unfinished = queue.run(this, orders, &mut budget) || has_receives_left;
            is_busy.store(is_unfinished, Ordering::Relaxed);
            is_unfinished
        });
        if is_unfinished {
            this.dpc.queue(this);
        }
    }
}

impl<O: Os> SendQueue<O> {
    pub fn try_new(
        requests: Consumer<WorkRequest>,
        elements: Consumer<Sge>,
        chunks: Consumer<Chunk>,
        parameters: &QpParameters,
        rules: &NicRules,
    ) -> Result<Self, NtStatus> {
        let room = |elements: u32| {
            let mut pieces = Vec::new();
            pieces.try_reserve_exact(elements as usize).map_err(fallible::AllocError::from)?;
            Ok::<_, NtStatus>(pieces)
        };
        Ok(Self {
            requests,
            elements,
            chunks,
            peer: None,
            plain_peer: None,
            flights: None,
            hardware_state: HardwareState::try_new(rules, parameters.initiator_depth)?,
            broken: false,
            flush_to: None,
            drain_to: None,
            settles: false,
            current: None,
            local: room(parameters.max_initiator_sge)?,
            remote: room(parameters.max_peer_sge.max(1))?,
        })
    }

    //= NDKPI 7.3.5
    /// Follows `orders`, and carries requests out until there are none, the first has to wait, or the budget is spent. Returns
    /// true if it needs another quantum; otherwise it waits for the doorbell.
    pub fn run(&mut self, qp: &Arc<Qp<O>>, orders: u32, budget: &mut Budget) -> bool {
        if orders & order::TO_SEND_QUEUE != 0 {
            self.follow(qp, orders);
        }
        let is_unfinished = loop {
            if self.requests.is_empty() {
                break false;
            }
            if budget.is_spent() {
                break true;
            }
            let done = match &self.plain_peer {
                Some(peer) if self.current.is_none() && !self.is_flushed() && !qp.is_dead() => {
                    Execution { qp, peer, requests: &mut self.requests, budget: *budget }.execute()
                }
                _ => None,
            };
            if let Some(done) = done {
                budget.bytes -= done.bytes;
                budget.requests -= done.requests;
                continue;
            }
            match self.progress(qp, budget) {
                Step::Finished | Step::Moving => {}
                Step::Held => break true,
                Step::Waiting => break false,
            }
        };
        if let Some(Some(srq)) = self.peer.as_ref().map(|peer| &peer.srq) {
            srq.pass_on();
        }
        if self.drain_to.is_some_and(|end| self.has_drained(end, is_unfinished)) {
            self.drain_to = None;
            qp.tell_drained();
        }
        is_unfinished
    }

    /// Returns true if the requests before number `end` have completed, or nothing is left to wait for (`NDKPI 7.7.5`): both sides
    /// have disconnected, and what is left waits for a receive, so that no byte moves.
    #[cold]
    fn has_drained(&self, end: u64, is_unfinished: bool) -> bool {
        // A queue that is not empty and needs no other quantum has a first request that waits for a receive.
        !newer(end, self.requests.head()) || (self.settles && !is_unfinished)
    }

    /// Takes and follows the orders that there are now.
    pub fn take_orders(&mut self, qp: &Qp<O>) {
        let Initiating { orders, .. } = &*qp.initiating;
        if orders.load(Ordering::Relaxed) & order::TO_SEND_QUEUE != 0 {
            let given = orders.fetch_and(!order::TO_SEND_QUEUE, Ordering::AcqRel);
            self.follow(qp, given);
        }
    }

    #[cold]
    fn follow(&mut self, qp: &Qp<O>, given: u32) {
        if given & order::RELINK != 0 {
            self.peer = qp.peer();
            self.plain_peer = Self::plain_peer_of(qp, self.peer.as_ref());
            if let Some(srq) = &qp.srq {
                // The shared receive queue may have rung for this queue pair, whose peer has nothing to send any more.
                srq.pass_on();
            }
        }
        if given & order::FLUSH_SEND != 0 {
            self.flush_to = Some(qp.flush_send_to.load(Ordering::Acquire));
            if let Some(flights) = &self.flights {
                flights.ring();
            }
        }
        if given & order::DRAIN != 0 {
            self.drain_to = Some(qp.drain_to.load(Ordering::Acquire));
        }
        if given & order::SETTLE != 0 {
            self.settles = true;
        }
        if given & (order::KEEP_TIME | order::RELINK) != 0 {
            self.keep_time(qp);
        }
    }

    /// The peer for the executor, if there are no requests and no orders.
    #[inline]
    pub fn peer_if_idle(&mut self, qp: &Qp<O>) -> Option<&Arc<Qp<O>>> {
        // The end of the connection gives an order. It is checked under the lock: see `Qp::quiesce`.
        let has_orders = qp.initiating.orders.load(Ordering::Relaxed) != 0;
        if has_orders || !self.requests.is_empty() { None } else { self.plain_peer.as_ref() }
    }

    /// Returns true if the first request was flushed. If it has begun it is carried out nevertheless, or it would leave half a
    /// message at the peer.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.flush_to.is_some_and(|end| newer(end, self.requests.head()))
    }
}
