//! The slow path: carries out requests of several steps, and makes every error.

use fallible::Arc;

use super::{
    Flags, NtStatus, Qp, Work, execute,
    receive_queue::{Claim, Claimed},
    request::{CHUNK, INLINE, InlineData, LocalData, WorkRequest, chunks_for, resolve_all},
    send_queue::SendQueue,
};
use crate::{
    cq::{Cq, CqeOutcome, Operation},
    memory::{Access, Segment, Transfers, transfer},
    mistake,
    nic::{Budget, Moved},
    os::Os,
    ring::Consumer,
};

/// The request in progress: the first of the queue.
pub(super) struct Current<O: Os> {
    claim: Option<Claim<O>>,
    /// Bytes moved so far.
    moved: usize,
    /// Its inline bytes have left their queue.
    inline_moved: bool,
    /// After its token was invalidated: the transfers that may still use the memory.
    invalidated: Option<Transfers>,
}

/// Why a request cannot go on.
#[derive(Clone, Copy)]
struct Failure {
    status: NtStatus,
    /// The connection is at an end already, and not because of this request.
    peer_gone: bool,
}

impl Failure {
    const fn of(status: NtStatus) -> Self {
        Self { status, peer_gone: false }
    }
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
    /// Makes progress with the first request.
    #[inline(never)]
    pub(super) fn progress(&mut self, qp: &Arc<Qp<O>>, budget: &mut Budget) -> Step {
        let Some(request) = &self.requests.peek(0) else { return Step::Waiting };
        if self.peer.is_none() {
            // Since this quantum took its orders, the queue pair may have been connected and the request posted.
            self.take_orders(qp);
        }
        let step = self.try_progress(qp, request, budget).unwrap_or_else(|failure| self.fail(qp, request, failure));
        if matches!(step, Step::Finished) {
            budget.requests -= 1;
        }
        step
    }

    fn try_progress(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, budget: &mut Budget) -> Result<Step, Failure> {
        self.check_cancelled(qp, request)?;
        if self.current.is_none() && !self.start(qp, request)? {
            return Ok(Step::Waiting);
        }
        if !self.advance(request, budget) {
            return Ok(Step::Moving);
        }
        if !self.invalidate(qp, request)? {
            return Ok(Step::Held);
        }
        self.succeed(qp, request)?;
        Ok(Step::Finished)
    }

    /// Fails if the first request must not be carried out, or not any further.
    fn check_cancelled(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<(), Failure> {
        let status = if (self.current.is_none() && self.is_flushed()) || qp.is_dead() {
            NtStatus::CANCELLED
        } else if self.peer.is_some() {
            return Ok(());
        } else {
            let is_first = !core::mem::replace(&mut self.broken, true);
            if is_first && request.work.moves_bytes() { NtStatus::IO_TIMEOUT } else { NtStatus::CANCELLED }
        };
        Err(Failure { status, peer_gone: true })
    }

    /// Resolves the data of the first request on both sides. Returns false if the peer has no receive for it.
    ///
    /// The local side comes first: a request with a local error fails with that, and does not affect the peer.
    fn start(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest) -> Result<bool, Failure> {
        let local_comes_last = mistake!(RemoteErrorsFirst => true, else false);
        if !local_comes_last {
            self.find_local(qp, request)?;
        }
        let Some(peer) = &self.peer else { return Ok(false) };
        let mut claim = None;
        match request.work {
            Work::Send { .. } => match Qp::claim(peer, &mut self.remote) {
                Claimed::Nothing => {
                    // While a request waits, its registrations may end.
                    self.local.clear();
                    return Ok(false);
                }
                Claimed::Receive(found) if found.request.length < request.length => {
                    Self::break_peer(found, NtStatus::BUFFER_OVERFLOW);
                    return Err(Failure::of(NtStatus::REMOTE_RESOURCES));
                }
                Claimed::Receive(found) => claim = Some(found),
                Claimed::Unusable(found, status) => {
                    Self::break_peer(found, status);
                    return Err(Failure::of(NtStatus::REMOTE_RESOURCES));
                }
            },
            Work::Read { address, token } => self.find_remote(address, token, request.length, Access::RemoteRead)?,
            Work::Write { address, token } => self.find_remote(address, token, request.length, Access::RemoteWrite)?,
            Work::FastRegister(_) | Work::Bind(_) | Work::Invalidate { .. } => {}
        }
        self.current = Some(Current { claim, moved: 0, inline_moved: false, invalidated: None });
        if local_comes_last {
            self.find_local(qp, request)?;
        }
        Ok(true)
    }

    fn find_remote(&mut self, address: u64, token: u32, length: u32, access: Access) -> Result<(), Failure> {
        if length == 0 {
            return Ok(());
        }
        let Some(peer) = &self.peer else { return Ok(()) };
        // Whatever the peer's adapter finds wrong is a remote error here.
        let piece = peer.domain.resolve(token, address, length, access);
        self.remote.push(piece.map_err(|_| Failure::of(NtStatus::REMOTE_RESOURCES))?);
        Ok(())
    }

    fn find_local(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<(), Failure> {
        let LocalData::Elements { first, .. } = request.data else { return Ok(()) };
        let access = if matches!(request.work, Work::Read { .. }) { Access::ReadSink } else { Access::LocalRead };
        let others = (0..request.data.queued_elements()).map_while(|index| self.elements.peek(index));
        resolve_all(&qp.domain, first, others, access, &mut self.local).map_err(Failure::of)
    }

    /// A receive of the peer cannot be filled: it fails, and the peer's queue pair with it.
    fn break_peer(claim: Claim<O>, status: NtStatus) {
        let peer = claim.qp.clone();
        claim.finish(status, |_| {});
        Qp::fail(&peer);
    }

    /// Moves bytes of the first request, within the budget. Returns true if none are left.
    fn advance(&mut self, request: &WorkRequest, budget: &mut Budget) -> bool {
        let Some(current) = &mut self.current else { return true };
        let left = request.length as usize - current.moved;
        let now = left.min(budget.bytes);
        match (request.data, request.work) {
            (_, Work::FastRegister(_) | Work::Bind(_) | Work::Invalidate { .. }) => return true,
            // Moved before; since then the request waits for something else.
            (LocalData::Inline(_), _) if current.inline_moved => return true,
            (LocalData::Inline(first), _) => {
                // Inline bytes are few, and lie in the queue until they are moved at once.
                Self::move_inline(&first, &mut self.chunks, &self.remote, request.length as usize);
                current.inline_moved = true;
                budget.bytes = budget.bytes.saturating_sub(left);
                current.moved += left;
                return true;
            }
            (LocalData::Elements { .. }, Work::Read { .. }) => {
                transfer(&self.local, current.moved, &self.remote, current.moved, now);
            }
            (LocalData::Elements { .. }, _) => {
                transfer(&self.remote, current.moved, &self.local, current.moved, now);
            }
        }
        budget.bytes -= now;
        current.moved += now;
        now == left
    }

    fn move_inline(first: &InlineData, chunks: &mut Consumer<[u8; CHUNK]>, to: &[Segment<O>], length: usize) {
        let (mut pieces, mut place) = (to.iter(), 0);
        let mut piece = pieces.next();
        let mut put = |mut bytes: &[u8]| {
            while let (Some(target), false) = (piece, bytes.is_empty()) {
                let (now, later) = bytes.split_at(bytes.len().min(target.len() - place));
                target.write(place, now);
                place += now.len();
                bytes = later;
                if place == target.len() {
                    (piece, place) = (pieces.next(), 0);
                }
            }
        };
        put(&first.bytes().as_flattened()[..length.min(INLINE)]);
        let mut left = length.saturating_sub(INLINE);
        chunks.take(chunks_for(length), |chunk| {
            let bytes = &chunk[..left.min(CHUNK)];
            left -= bytes.len();
            put(bytes);
        });
    }

    /// Invalidates the token that the first request names, if it names one. Returns false while transfers still use the memory:
    /// the invalidation must not complete before they are over (`NDKPI 7.6`), and the object is not registered or bound again
    /// before.
    fn invalidate(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<bool, Failure> {
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
        #[cfg(feature = "faults")]
        mistake!(RemoteInvalidateLate if is_send => {
            self.late = Some((domain.clone(), token));
            return Ok(true)
        });
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
            result.map_err(Failure::of)?;
            current.invalidated = Some(transfers);
        }
        let are_over = current.invalidated.as_ref().is_none_or(Transfers::are_over);
        Ok(mistake!(InvalidateDoesNotWait => true, else are_over))
    }

    /// Carries out the rest of the first request, whose bytes have moved.
    fn succeed(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<(), Failure> {
        let Some(current) = &mut self.current else { return Ok(()) };
        match request.work {
            Work::Send { invalidate } => {
                if let Some(claim) = current.claim.take() {
                    let receive = execute::received(&claim.qp, claim.request.context, request.length, request.flags);
                    claim.finish(NtStatus::SUCCESS, |cqe| {
                        *cqe = receive;
                        if let Some(token) = invalidate {
                            let outcome = CqeOutcome::new(Operation::ReceiveAndInvalidate, NtStatus::SUCCESS);
                            cqe.outcome = outcome.soliciting(receive.outcome.is_solicited());
                            cqe.invalidated_token = token;
                        }
                    });
                }
            }
            Work::FastRegister(posted) | Work::Bind(posted) => qp.domain.commit(posted).map_err(Failure::of)?,
            Work::Read { .. } | Work::Write { .. } | Work::Invalidate { .. } => {}
        }
        if let Some(peer) = self.peer.as_ref().filter(|_| request.work.moves_bytes()) {
            let is_read = matches!(request.work, Work::Read { .. });
            qp.engine.count(&peer.engine, &Moved { is_read, requests: 1, bytes: request.length as usize });
        }
        self.complete(qp, request, NtStatus::SUCCESS);
        Ok(())
    }

    /// The first request fails. Unless its peer was gone before, that ends the connection (`NDKPI 7.2`).
    fn fail(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, failure: Failure) -> Step {
        if let Some(claim) = self.current.as_mut().and_then(|current| current.claim.take()) {
            claim.give_back();
        }
        if let Work::FastRegister(posted) | Work::Bind(posted) = request.work
            && failure.peer_gone
        {
            qp.domain.cancel(posted);
        }
        if !failure.peer_gone {
            Qp::fail(qp);
        }
        self.complete(qp, request, failure.status);
        Step::Finished
    }

    /// Removes the first request from the queue, and completes it.
    fn complete(&mut self, qp: &Qp<O>, request: &WorkRequest, status: NtStatus) {
        let inline_moved = self.current.take().is_some_and(|current| current.inline_moved);
        self.local.clear();
        self.remote.clear();
        self.elements.advance(request.data.queued_elements());
        if matches!(request.data, LocalData::Inline(_)) && !inline_moved {
            self.chunks.advance(chunks_for(request.length as usize));
        }
        // The slot is free before the consumer sees the completion.
        self.requests.advance(1);
        if !request.flags.are_silent(status) {
            Cq::push(&qp.initiator_cq, qp.cqe(request.context, request.work.operation(), status));
        }
    }
}
