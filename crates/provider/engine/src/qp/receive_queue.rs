//! The receive queue of a queue pair: receives are posted to it as in [`super::post`], and filled by the peer.

use alloc::vec::Vec;

use fallible::Arc;

use super::{
    Flags, NtStatus, Qp,
    execute::received_invalidating,
    lend::Lend,
    post::{Limits, push_elements},
    request::{ReceiveRequest, Sge, resolve_all},
    send_queue::order,
    srq::Srq,
};
use crate::{
    cq::{Cq, Cqe, Operation, notify::newer},
    memory::{Access, Domain, LockedMr, Segment},
    nic::Budget,
    os::{Memory, Os, SpinLock},
    ring::{Consumer, Producer},
    sync::Ordering,
};

/// Slots are prefetched for writing this many receives ahead.
const PREFETCH_POSTED: u64 = 8;

/// The poster's end of a receive queue: exactly one exists. For [`Qp::post_receive`].
pub struct RqProducer {
    pub(super) requests: Producer<ReceiveRequest>,
    pub(super) elements: Producer<Sge>,
    pub(super) limits: Limits,
}

impl RqProducer {
    /// Pushes a receive.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_receive`]; the queue is unchanged then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub(super) fn push(&mut self, context: usize, list: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        let elements = self.limits.check_count(list.len())?;
        self.requests.prefetch(PREFETCH_POSTED);
        let vacancy = self.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
        let (first, length) = push_elements(&mut self.elements, list, self.limits.transfer)?;
        vacancy.fill(ReceiveRequest { context, length, elements, first });
        Ok(())
    }
}

/// The memory of a receive is prefetched this many receives ahead, and the receive itself twice as many.
const PREFETCH: usize = 4;

/// The engine's end of a receive queue.
pub(super) struct ReceiveQueue {
    pub(super) requests: Consumer<ReceiveRequest>,
    elements: Consumer<Sge>,
    /// The first receive is claimed.
    claimed: bool,
    /// Receives before this number are cancelled.
    flush_to: Option<u64>,
}

/// A receive that the peer fills. It stays the first of its queue until it is completed or given back.
pub struct Claim<O: Os> {
    pub qp: Arc<Qp<O>>,
    pub request: ReceiveRequest,
    /// The receive was taken from a shared receive queue.
    pub shared: bool,
}

/// What [`Qp::claim`] found.
pub enum Claimed<O: Os> {
    /// A receive.
    Receive(Claim<O>),
    /// Nothing. The peer's doorbell will be rung for the next receive.
    Nothing,
    /// A receive whose memory may not be written, or that is too short. It is claimed too.
    Unusable(Claim<O>, NtStatus),
}

impl ReceiveQueue {
    pub(super) const fn new(requests: Consumer<ReceiveRequest>, elements: Consumer<Sge>) -> Self {
        Self { requests, elements, claimed: false, flush_to: None }
    }

    /// Returns true if the first receive was flushed.
    fn is_flushed(&self) -> bool {
        self.flush_to.is_some_and(|end| newer(end, self.requests.head()))
    }

    /// The token of the first receive, if it has exactly one element.
    #[inline]
    pub(super) fn first_token(&mut self) -> Option<u32> {
        self.requests.get(0).filter(|request| request.elements == 1).map(|request| request.first.token)
    }

    /// Fills the receive `ahead` places behind the first one with a message of `length` bytes, without a [`Claim`]. Its only
    /// element must be a part of `mr`; `put` copies the message there, or returns `None`. Returns the context of the receive,
    /// which the caller has to remove and to complete; `None` if nothing has happened.
    #[inline]
    pub(super) fn fill<M: Memory, O: Os<Memory = M>>(
        &mut self,
        ahead: usize,
        length: u32,
        mr: &LockedMr<'_, O>,
        put: impl FnOnce((&M, usize)) -> Option<()>,
    ) -> Option<usize> {
        self.requests.prefetch(ahead + 2 * PREFETCH);
        if let Some(later) = self.requests.get_known(ahead + PREFETCH) {
            mr.prefetch(later.first.address);
        }
        let request = self.requests.get(ahead)?;
        // The whole element must be valid, even if the message is shorter.
        let Sge { address, token, length: room } = request.first;
        if request.elements != 1 || room < length {
            return None;
        }
        put(mr.find(token, address, room)?)?;
        Some(request.context)
    }

    fn remove_first(&mut self, request: &ReceiveRequest) {
        self.elements.advance(request.queued_elements());
        self.requests.advance(1);
    }
}

impl<O: Os> Qp<O> {
    /// Posts a receive into `elements`, also before the queue pair is connected (`NDKPI 5.7`). `queue` lends the poster's end
    /// of the receive queue.
    ///
    /// # Errors
    ///
    /// Nothing is posted then: `STATUS_NO_MORE_ENTRIES` if the queue is full, `STATUS_DATA_OVERRUN` for too many elements,
    /// `STATUS_BUFFER_OVERFLOW` for more bytes than one request may have, or the error of `queue`.
    #[inline]
    pub fn post_receive(
        this: &Arc<Self>,
        context: usize,
        elements: impl ExactSizeIterator<Item = Sge>,
        queue: impl Lend<RqProducer>,
    ) -> Result<(), NtStatus> {
        let mut queue = queue.lend()?;
        queue.push(context, elements)?;
        queue.requests.hand_over();
        drop(queue);
        this.accepted.publish();
        // Pairs with `Qp::fail` and `Qp::claim`, which swap the same value: either they see the receive, or this sees that it is
        // awaited or to be cancelled. (A fence would cost twice as much.)
        let is_awaited = this.awaited.swap(false, Ordering::AcqRel);
        if is_awaited || this.is_dead() {
            Self::tell_of_receive(this, is_awaited);
        }
        Ok(())
    }

    /// Rings the peer's doorbell if it waits for the receive that was posted, and this one's if the receive is to be cancelled.
    // Not inlined: the swap of its caller would wait for the registers that are saved for this.
    #[cold]
    #[inline(never)]
    fn tell_of_receive(this: &Arc<Self>, is_awaited: bool) {
        if is_awaited && let Some(peer) = this.peer() {
            Self::ring(&peer);
        }
        if this.is_dead() {
            Self::order(this, order::FLUSH_RECEIVE);
        }
    }

    /// Claims the first receive for a message of this length, and resolves its elements into `sink`, which has room for them.
    pub(crate) fn claim(this: &Arc<Self>, message: u32, sink: &mut Vec<Segment<O>>) -> Claimed<O> {
        if let Some(srq) = &this.srq {
            return Srq::claim(srq, this, message, sink);
        }
        this.receive.with(|receive| {
            if receive.claimed || receive.is_flushed() || this.is_dead() {
                this.awaited.swap(true, Ordering::AcqRel);
                return Claimed::Nothing;
            }
            let mut request = receive.requests.get(0).copied();
            if request.is_none() {
                // Pairs with the swap of a post: either that sees that the receive is awaited, or this sees the receive.
                this.awaited.swap(true, Ordering::AcqRel);
                request = receive.requests.get(0).copied();
            }
            let Some(request) = request else { return Claimed::Nothing };
            receive.claimed = true;
            let others = (0..request.queued_elements()).map_while(|index| receive.elements.get(index).copied());
            Claim { qp: this.clone(), request, shared: false }.resolve(&this.domain, message, others, sink)
        })
    }

    /// Lets `work` [fill](ReceiveQueue::fill) receives. `None` if the first one is claimed or to be cancelled, or if receives come
    /// from a shared receive queue.
    #[inline]
    pub(super) fn with_receives<U>(&self, work: impl FnOnce(&mut ReceiveQueue) -> U) -> Option<U> {
        if self.srq.is_some() {
            return None;
        }
        self.receive.with(|receive| {
            let may_fill = !receive.claimed && !receive.is_flushed() && !self.is_dead();
            may_fill.then(|| work(receive))
        })
    }

    /// Returns true if the first receive is claimed, and was flushed since.
    pub(crate) fn has_flushed_claim(&self) -> bool {
        self.receive.with(|receive| receive.claimed && receive.is_flushed())
    }

    /// Prevents the peer from filling the receives in the queue. The quantum that cancels them may come much later.
    pub(super) fn mark_flushed(this: &Arc<Self>) {
        let tail = Some(this.accepted.tail());
        // Of two concurrent flushes the later position counts. Positions begin at zero and do not wrap around.
        this.receive.with(|receive| receive.flush_to = receive.flush_to.max(tail));
    }

    /// Cancels receives that were flushed, or all if the queue pair is dead. Returns true if some are left for another quantum.
    #[cold]
    pub(super) fn cancel_receives(this: &Arc<Self>, budget: &mut Budget) -> bool {
        let (is_unfinished, posted) = this.receive.with(|receive| {
            // The end of a claim rings the doorbell again.
            while !receive.claimed && (this.is_dead() || receive.is_flushed()) {
                let Some(request) = receive.requests.get(0).copied() else { break };
                if budget.requests == 0 {
                    return (true, false);
                }
                budget.requests -= 1;
                receive.remove_first(&request);
                let cqe = this.cqe(request.context, Operation::Receive, NtStatus::CANCELLED);
                Cq::push(&this.receive_cq, cqe);
            }
            (false, receive.requests.get(0).is_some())
        });
        if is_unfinished {
            this.initiating.orders.fetch_or(order::FLUSH_RECEIVE, Ordering::AcqRel);
        }
        // The peer may wait because of a flushed receive. It has to be told of the receives behind that.
        if this.srq.is_none()
            && posted
            && this.awaited.swap(false, Ordering::AcqRel)
            && let Some(peer) = this.peer()
        {
            Self::ring(&peer);
        }
        is_unfinished
    }
}

impl<O: Os> Claim<O> {
    /// Resolves the receive's elements, its first and the `others`, for a message of this length.
    pub(super) fn resolve(
        self,
        domain: &Domain<O>,
        message: u32,
        others: impl Iterator<Item = Sge>,
        sink: &mut Vec<Segment<O>>,
    ) -> Claimed<O> {
        match resolve_all(domain, self.request.first, others, Access::LocalWrite, sink) {
            Ok(()) if self.request.length < message => Claimed::Unusable(self, NtStatus::BUFFER_OVERFLOW),
            Ok(()) => Claimed::Receive(self),
            Err(status) => Claimed::Unusable(self, status),
        }
    }

    /// Completes the receive with a failure.
    pub(crate) fn fail(self, status: NtStatus) {
        let cqe = self.qp.cqe(self.request.context, Operation::Receive, status);
        self.finish(cqe);
    }

    /// Completes the receive.
    pub(super) fn finish(self, cqe: Cqe) {
        let Self { qp, request, shared } = self;
        if shared {
            return Cq::push(&qp.receive_cq, cqe);
        }
        let flushed = qp.receive.with(|receive| {
            // The slot is free before the consumer sees the completion.
            receive.remove_first(&request);
            receive.claimed = false;
            Cq::push(&qp.receive_cq, cqe);
            receive.is_flushed()
        });
        Self::wake(&qp, flushed);
    }

    /// Gives the receive back, unused. One of a shared receive queue stays with the queue pair, and is cancelled.
    pub(crate) fn give_back(self) {
        if self.shared {
            return self.fail(NtStatus::CANCELLED);
        }
        let flushed = self.qp.receive.with(|receive| {
            receive.claimed = false;
            receive.is_flushed()
        });
        Self::wake(&self.qp, flushed);
    }

    /// Completes the receive of a message from another machine.
    pub(crate) fn receive(self, length: u32, is_solicited: bool, invalidated: Option<u32>) {
        let flags = if is_solicited { Flags::SOLICIT } else { Flags::empty() };
        let cqe = received_invalidating(&self.qp, self.request.context, length, flags, invalidated);
        self.finish(cqe);
    }

    /// How many bytes fit.
    pub(crate) const fn length(&self) -> u32 {
        self.request.length
    }

    /// Has the queue pair cancel the receives that it could not cancel while the first one was claimed.
    fn wake(qp: &Arc<Qp<O>>, flushed: bool) {
        if flushed || qp.is_dead() {
            Qp::order(qp, order::FLUSH_RECEIVE);
        }
    }
}
