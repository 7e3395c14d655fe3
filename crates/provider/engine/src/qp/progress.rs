//! The slow path: carries out requests of several steps, and makes every error.

use fallible::Arc;

use super::{
    Flags, NtStatus, Qp, Work, execute,
    receive_queue::{Claim, Claimed},
    request::{CHUNK, Chunk, INLINE, InlineData, LocalData, WorkRequest, chunks_for, resolve_all},
    send_queue::SendQueue,
};
use crate::{
    memory::{self, Access, Segment, Transfers, transfer, transfer_in_disorder},
    nic::Budget,
    os::Os,
    ring::Consumer,
};

/// The request in progress: the first of the queue.
pub(super) struct Current<O: Os> {
    claim: Option<Claim<O>>,
    /// Bytes moved so far.
    moved: usize,
    /// After its token was invalidated: the transfers that may still use the memory.
    invalidated: Option<Transfers>,
}

impl<O: Os> Current<O> {
    /// A request of which only the last step is left, or that has no other.
    pub const LAST_STEP: Self = Self { claim: None, moved: 0, invalidated: None };
}

/// The result of a step.
pub(super) enum Step {
    /// The first request has completed.
    Finished,
    /// It needs another budget.
    Moving,
    /// Other queue pairs still use the memory that it invalidates.
    Held,
    /// It waits for a receive of the peer.
    Waiting,
}

impl<O: Os> SendQueue<O> {
    //= NDKPI 7.2.7
    /// Makes progress with the first request.
    #[inline(never)]
    pub(super) fn progress(&mut self, qp: &Arc<Qp<O>>, budget: &mut Budget) -> Step {
        if let Some(flights) = &self.flights {
            // What carries them to the other machine takes them when it can.
            flights.ring();
            return Step::Waiting;
        }
        let Some(request) = &self.requests.get(0).copied() else { return Step::Waiting };
        if self.peer.is_none() {
            // Since this quantum took its orders, the queue pair may have been connected and the request posted.
            self.take_orders(qp);
        }
        let cancelled = self.cancellation(qp, request);
        if let (Some(_), Work::FastRegister(posted) | Work::Bind(posted)) = (cancelled, request.work) {
            qp.domain.cancel(posted);
        }
        // An error of a request ends the connection (`NDKPI 7.2`).
        let result =
            cancelled.map_or_else(|| self.try_progress(qp, request, budget).inspect_err(|_| Qp::fail(qp)), Err);
        let status = match result {
            Ok(Step::Finished) => NtStatus::SUCCESS,
            Ok(step) => return step,
            Err(status) => status,
        };
        self.complete(qp, request, status);
        budget.requests -= 1;
        Step::Finished
    }

    fn try_progress(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, budget: &mut Budget) -> Result<Step, NtStatus> {
        if self.current.is_none() && !self.start(qp, request)? {
            return Ok(Step::Waiting);
        }
        if !self.advance(qp, request, budget) {
            return Ok(Step::Moving);
        }
        if !self.invalidate(qp, request)? {
            return Ok(Step::Held);
        }
        self.succeed(qp, request)?;
        Ok(Step::Finished)
    }

    /// The status of the first request if it is cancelled: it was flushed, or the connection has ended for another reason.
    pub(super) fn cancellation(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Option<NtStatus> {
        if (self.current.is_none() && self.is_flushed()) || qp.is_dead() {
            return Some(NtStatus::CANCELLED);
        }
        if self.peer.is_some() {
            return None;
        }
        let is_first = !core::mem::replace(&mut self.broken, true);
        Some(if is_first && request.work.moves_bytes() { NtStatus::IO_TIMEOUT } else { NtStatus::CANCELLED })
    }

    //= NDKPI 7.2.7
    //= NDKPI 7.3.11
    /// Resolves the data of the first request on both sides. Returns false if the peer has no receive for it.
    ///
    /// The local side comes first: a request with a local error fails with that, and does not affect the peer.
    fn start(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest) -> Result<bool, NtStatus> {
        self.find_local(qp, request)?;
        let Some(peer) = &self.peer else { return Ok(false) };
        let mut claim = None;
        match request.work {
            Work::Send { .. } => match Qp::claim(peer, request.length, &mut self.remote) {
                Claimed::Nothing => {
                    // While a request waits, its registrations may end.
                    self.local.clear();
                    if qp.is_plain() {
                        return Ok(false);
                    }
                    let peer = peer.clone();
                    return self.meets_no_receive(qp, &peer).map(|()| false);
                }
                Claimed::Receive(found) => claim = Some(found),
                Claimed::Unusable(found, status) => {
                    // The receive fails, and the peer with it.
                    found.fail(status);
                    Qp::fail(peer);
                    return Err(NtStatus::REMOTE_RESOURCES);
                }
            },
            Work::Read { address, token } => self.find_remote(address, token, request.length, Access::RemoteRead)?,
            Work::Write { address, token } => self.find_remote(address, token, request.length, Access::RemoteWrite)?,
            Work::FastRegister(_) | Work::Bind(_) | Work::Invalidate { .. } => {}
        }
        self.current = Some(Current { claim, moved: 0, invalidated: None });
        Ok(true)
    }

    fn find_remote(&mut self, address: u64, token: u32, length: u32, access: Access) -> Result<(), NtStatus> {
        if length == 0 {
            return Ok(());
        }
        let Some(peer) = &self.peer else { return Ok(()) };
        // Whatever the peer's adapter finds wrong is a remote error here.
        let segment = peer.domain.resolve(token, address, length, access);
        self.remote.push(segment.map_err(|_| NtStatus::REMOTE_RESOURCES)?);
        Ok(())
    }

    fn find_local(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<(), NtStatus> {
        let LocalData::Elements { first, .. } = request.data else { return Ok(()) };
        let access = if matches!(request.work, Work::Read { .. }) { Access::ReadSink } else { Access::LocalRead };
        let others = (0..request.data.queued_elements()).map_while(|index| self.elements.get(index).copied());
        resolve_all(&qp.domain, first, others, access, &mut self.local)
    }

    /// Moves bytes of the first request, within the budget. Returns true if none are left.
    fn advance(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, budget: &mut Budget) -> bool {
        let Some(current) = &self.current else { return true };
        let left = request.length as usize - current.moved;
        if left == 0 {
            return true;
        }
        let now = match &request.data {
            // Inline bytes are few.
            LocalData::Inline(_) => left,
            LocalData::Elements { .. } => left.min(budget.bytes),
        };
        let at = current.moved;
        let is_read = matches!(request.work, Work::Read { .. });
        let sink = if is_read { Some(qp) } else { self.peer.as_ref() };
        let lands_in_order = sink.is_none_or(|sink| sink.lands_in_order());
        let disorder = self.disorder(lands_in_order);
        let (to, from) = if is_read { (&self.local, &self.remote) } else { (&self.remote, &self.local) };
        match (&request.data, disorder) {
            (LocalData::Inline(first), _) => {
                Self::move_inline(first, &mut self.chunks, &self.remote, left, lands_in_order);
            }
            (_, None) => transfer(to, at, from, at, now),
            (_, Some(order)) => transfer_in_disorder(to, at, from, at, now, order),
        }
        budget.bytes = budget.bytes.saturating_sub(now);
        let Some(current) = &mut self.current else { return true };
        current.moved += now;
        now == left
    }

    /// Moves inline bytes: the `first`, and those in their queue, where they stay until the request completes. Where bytes may land
    /// in any order the last ones come first.
    fn move_inline(
        first: &InlineData,
        chunks: &mut Consumer<Chunk>,
        to: &[Segment<O>],
        length: usize,
        lands_in_order: bool,
    ) {
        let put = |at: usize, bytes: &[u8]| {
            let now = bytes.len().min(length.saturating_sub(at));
            memory::write(to, at, &bytes[..now]);
        };
        let count = chunks_for(length);
        for step in 0..=count {
            let place = if lands_in_order { step } else { count - step };
            let Some(index) = place.checked_sub(1) else {
                put(0, &first.0);
                continue;
            };
            if let Some(chunk) = chunks.get(index) {
                put(INLINE + index * CHUNK, chunk);
            }
        }
    }

    //= NDKPI 7.3.9
    /// Invalidates the token that the first request names, if it names one. Returns false while transfers still use the memory:
    /// the invalidation must not complete before they are over (`NDKPI 7.6`), and the object is not registered or bound again
    /// before.
    pub(super) fn invalidate(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<bool, NtStatus> {
        let Some(current) = &mut self.current else { return Ok(true) };
        let (domain, token) = match (request.work, &current.claim) {
            (Work::Send { invalidate: Some(token) }, Some(claim)) => (&claim.qp.domain, token),
            (Work::Read { .. }, _) if request.flags.contains(Flags::LOCAL_INVALIDATE) => {
                (&qp.domain, request.data.first_token())
            }
            (Work::Invalidate { token }, _) => (&qp.domain, token),
            (Work::FastRegister(posted) | Work::Bind(posted), _) => return Ok(qp.domain.may_commit(posted)),
            _ => return Ok(true),
        };
        let is_send = matches!(request.work, Work::Send { .. });
        if current.invalidated.is_none() {
            // The request's own transfer is over.
            self.local.clear();
            self.remote.clear();
            let transfers = domain.transfers(token);
            let result = if is_send {
                // The peer's adapter refuses the message (`NDKPI 7.6`).
                domain.invalidate_remote(token).map_err(|_| NtStatus::REMOTE_RESOURCES)
            } else {
                domain.invalidate(token)
            };
            result?;
            current.invalidated = Some(transfers);
        }
        Ok(current.invalidated.as_ref().is_none_or(Transfers::are_over))
    }

    /// Carries out the rest of the first request, whose bytes have moved.
    pub(super) fn succeed(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<(), NtStatus> {
        let Some(current) = &mut self.current else { return Ok(()) };
        match request.work {
            Work::Send { invalidate } => {
                if let Some(claim) = current.claim.take() {
                    let (context, length) = (claim.request.context, request.length);
                    let cqe = execute::received_invalidating(&claim.qp, context, length, request.flags, invalidate);
                    claim.finish(cqe);
                }
            }
            Work::FastRegister(posted) | Work::Bind(posted) => qp.domain.commit(posted)?,
            Work::Read { .. } | Work::Write { .. } | Work::Invalidate { .. } => {}
        }
        if let Some(peer) = self.peer.as_ref().filter(|_| request.work.moves_bytes()) {
            let is_read = matches!(request.work, Work::Read { .. });
            qp.traffic.count(&peer.traffic, Budget { requests: 1, bytes: request.length as usize }, is_read);
        }
        Ok(())
    }

    /// Removes the first request from the queue, and completes it.
    pub(super) fn complete(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, status: NtStatus) {
        self.forget_retries(qp);
        if let Some(claim) = self.current.take().and_then(|current| current.claim) {
            claim.give_back();
        }
        self.local.clear();
        self.remote.clear();
        self.elements.advance(request.data.queued_elements());
        self.chunks.advance(request.queued_chunks());
        // The slot is free before the consumer sees the completion.
        self.requests.advance(1);
        let head = self.requests.head();
        let cause = self.flights.as_mut().and_then(|flights| flights.retire(head, request));
        if !request.flags.are_silent(status) {
            let mut cqe = qp.cqe(request.context, request.work.operation(), status);
            cqe.outcome = cqe.outcome.because(cause);
            self.push_initiated(qp, cqe);
        }
    }
}
