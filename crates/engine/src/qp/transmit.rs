//! The initiator queue of a queue pair, as the engine sees it: what a turn does.

use alloc::vec::Vec;
use core::iter;

use fallible::Shared;
use ndkpi::NtStatus;

use super::{
    Flags, Qp, QpParameters, Work, order,
    receive::{Claim, Claimed},
    request::{CHUNK, Chunk, HERE, Here, Request, Sge, Source, chunks_for},
    short::{self, Batch, Short},
};
use crate::{
    cq::{Cq, Operation, Outcome, notify::newer},
    fault::{self, Fault},
    memory::{Access, Piece, Transfers, transfer},
    memory_status,
    nic::{Budget, Moved},
    os::Os,
    ring::Consumer,
    sync::Ordering,
};

/// Orders that a turn of the initiator queue follows.
const TRANSMIT_ORDERS: u32 = order::RELINK | order::FLUSH_INITIATOR | order::DRAIN;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is nothing to do until the doorbell rings.
    Idle,
    /// There is more to do: in another turn, because the budget is spent or because others have to come first.
    Unfinished,
}

/// The engine's end of an initiator queue.
pub(super) struct Transmit<O: Os> {
    requests: Consumer<Request>,
    elements: Consumer<Sge>,
    chunks: Consumer<Chunk>,
    /// The other end of the connection, as of the last look at the link.
    peer: Option<Shared<Qp<O>>>,
    /// A request has met the end of the connection: those behind it are cancelled.
    broken: bool,
    /// Requests before this number are cancelled.
    flush_to: Option<u64>,
    /// The link client is told when the requests before this number are finished.
    drain_to: Option<u64>,
    current: Option<Current<O>>,
    /// For [`Fault::RemoteInvalidateLate`].
    #[cfg(feature = "faults")]
    late: Option<(Shared<crate::memory::Domain<O>>, u32)>,
    /// The inline bytes of the current request have left their queue.
    inline_moved: bool,
    /// Local bytes of the current request. Has room for all that a request may name.
    local: Vec<Piece<O>>,
    /// The peer's bytes of the current request. Has room for all that a receive may name.
    remote: Vec<Piece<O>>,
    /// What was moved and is not counted yet.
    moved: Moved,
}

/// The request in progress: the first of the queue.
struct Current<O: Os> {
    claim: Option<Claim<O>>,
    /// Bytes moved so far.
    moved: usize,
    /// The token that the request invalidates is invalid. Those who still use the memory behind it.
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

/// What became of the first request.
enum Step {
    /// It is finished.
    Finished,
    /// It needs more of the budget.
    Moving,
    /// Others use the memory that it invalidates, and have their turns meanwhile.
    Held,
    /// It waits for a receive of the peer.
    Waiting,
    /// There is none.
    Empty,
}

impl<O: Os> Transmit<O> {
    pub(super) fn try_new(
        requests: Consumer<Request>,
        elements: Consumer<Sge>,
        chunks: Consumer<Chunk>,
        parameters: &QpParameters,
    ) -> Result<Self, NtStatus> {
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        let room = parameters.max_initiator_sge as usize;
        local.try_reserve_exact(room).map_err(|error| memory_status(error.into()))?;
        let room = parameters.max_peer_sge.max(1) as usize;
        remote.try_reserve_exact(room).map_err(|error| memory_status(error.into()))?;
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
            inline_moved: false,
            local,
            remote,
            moved: Moved::default(),
        })
    }

    /// Carries requests out until there are none, the first has to wait, or the budget is spent.
    pub(super) fn turn(&mut self, qp: &Shared<Qp<O>>, budget: &mut Budget) -> Turn {
        #[cfg(feature = "faults")]
        if let Some((domain, token)) = self.late.take() {
            let _ = domain.invalidate_remote(token);
        }
        self.follow_orders(qp);
        let mut batch = Batch::new();
        let turn = loop {
            if budget.is_spent() {
                break if self.requests.is_empty() { Turn::Idle } else { Turn::Unfinished };
            }
            match self.step(qp, budget, &mut batch) {
                Step::Finished | Step::Moving => {}
                Step::Held => break Turn::Unfinished,
                Step::Waiting | Step::Empty => break Turn::Idle,
            }
        };
        short::push(&qp.initiator_cq, &mut batch);
        self.count(qp);
        if let Some(srq) = self.peer.as_ref().and_then(|peer| peer.srq.as_ref()) {
            srq.pass_on();
        }
        if self.drain_to.take_if(|end| !newer(*end, self.requests.head())).is_some() {
            qp.tell_drained();
        }
        turn
    }

    fn follow_orders(&mut self, qp: &Qp<O>) {
        if qp.initiating.orders.load(Ordering::Relaxed) & TRANSMIT_ORDERS == 0 {
            return;
        }
        let orders = qp.initiating.orders.fetch_and(!TRANSMIT_ORDERS, Ordering::AcqRel);
        if orders & order::RELINK != 0 {
            self.count(qp);
            self.peer = qp.peer();
            if let Some(srq) = &qp.srq {
                // This one was called perhaps, and its peer has nothing to send any more.
                srq.pass_on();
            }
        }
        if orders & order::FLUSH_INITIATOR != 0 {
            self.flush_to = Some(qp.flush_initiator_to.load(Ordering::Acquire));
        }
        if orders & order::DRAIN != 0 {
            self.drain_to = Some(qp.drain_to.load(Ordering::Acquire));
        }
    }

    fn count(&mut self, qp: &Qp<O>) {
        if self.moved.is_none() {
            return;
        }
        // Without a peer nothing moves, and whoever changes the peer counts first.
        if let Some(peer) = &self.peer {
            qp.engine.count(&peer.engine, &self.moved);
            self.moved = Moved::default();
        }
    }

    #[inline]
    fn step(&mut self, qp: &Shared<Qp<O>>, budget: &mut Budget, batch: &mut Batch) -> Step {
        if self.may_be_short(qp) {
            let Self { peer: Some(peer), requests, moved, .. } = self else { return Step::Empty };
            match (Short { qp, peer, requests, budget, moved, batch }.carry_out()) {
                None => return Step::Empty,
                Some(true) => return Step::Finished,
                Some(false) => {}
            }
        }
        // The long way has completions of its own.
        short::push(&qp.initiator_cq, batch);
        let step = self.step_slowly(qp, budget);
        if matches!(step, Step::Finished) {
            budget.requests -= 1;
        }
        step
    }

    /// The long way to carry the first request out, perhaps in many turns. It may be in progress.
    #[inline(never)]
    fn step_slowly(&mut self, qp: &Shared<Qp<O>>, budget: &mut Budget) -> Step {
        let Some(request) = &self.requests.front() else { return Step::Empty };
        if self.peer.is_none() {
            // The queue pair may have been linked, and the request posted, since this turn followed its orders.
            self.follow_orders(qp);
        }
        if let Some(failure) = self.cancelled(qp, request) {
            return self.fail(qp, request, failure);
        }
        if self.current.is_none() {
            match self.start(qp, request) {
                Ok(true) => {}
                Ok(false) => return Step::Waiting,
                Err(failure) => return self.fail(qp, request, failure),
            }
        }
        if !self.advance(request, budget) {
            return Step::Moving;
        }
        match self.invalidate(qp, request) {
            Ok(true) => {}
            Ok(false) => {
                return Step::Held;
            }
            Err(failure) => return self.fail(qp, request, failure),
        }
        match self.succeed(qp, request) {
            Ok(()) => Step::Finished,
            Err(failure) => self.fail(qp, request, failure),
        }
    }

    /// Whether nothing speaks against carrying the first request out, whatever it is, in [the short way](short).
    #[inline]
    fn may_be_short(&self, qp: &Qp<O>) -> bool {
        self.peer.is_some() && self.current.is_none() && !qp.is_dead() && !self.is_flushed()
    }

    /// The peer, if there are no requests, and no orders that have to be followed first.
    #[inline]
    pub(super) fn peer_if_idle(&mut self, qp: &Qp<O>) -> Option<&Shared<Qp<O>>> {
        // Whatever ends the use of the connection gives an order. It is looked at under the lock: see `Qp::quiesce`.
        let has_orders = qp.initiating.orders.load(Ordering::Relaxed) & TRANSMIT_ORDERS != 0;
        #[cfg(feature = "faults")]
        let has_orders = has_orders || self.late.is_some();
        if has_orders || !self.requests.is_empty() { None } else { self.peer.as_ref() }
    }

    /// Whether the first request was flushed and has not begun. What has begun is carried out: it would leave half a message at
    /// the peer.
    fn is_flushed(&self) -> bool {
        self.current.is_none() && self.flush_to.is_some_and(|end| newer(end, self.requests.head()))
    }

    /// Whether the first request must not be carried out, or not any further.
    fn cancelled(&mut self, qp: &Qp<O>, request: &Request) -> Option<Failure> {
        if self.is_flushed() || qp.is_dead() {
            return Some(Failure { status: NtStatus::CANCELLED, peer_gone: true });
        }
        if self.peer.is_some() {
            return None;
        }
        let first = !core::mem::replace(&mut self.broken, true);
        let status = if first && request.work.moves_bytes() { NtStatus::IO_TIMEOUT } else { NtStatus::CANCELLED };
        Some(Failure { status, peer_gone: true })
    }

    /// Finds the bytes of the first request on both sides. `false` if the peer has no receive for it.
    ///
    /// This side's bytes come first: a request with an error of its own fails with that, and leaves the peer alone.
    fn start(&mut self, qp: &Shared<Qp<O>>, request: &Request) -> Result<bool, Failure> {
        let local_comes_last = fault::is(Fault::RemoteErrorsFirst);
        if !local_comes_last {
            self.find_local(qp, request)?;
        }
        let Some(peer) = &self.peer else { return Ok(false) };
        let mut claim = None;
        match request.work {
            Work::Send { .. } => match Qp::claim(peer, &mut self.remote) {
                Claimed::Nothing => {
                    // A request that waits keeps no registration from ending.
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
        self.current = Some(Current { claim, moved: 0, invalidated: None });
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
        // The peer's refusal is an error of the remote side for this one.
        let piece =
            peer.domain.resolve(token, address, length, access).map_err(|_| Failure::of(NtStatus::REMOTE_RESOURCES))?;
        self.remote.push(piece);
        Ok(())
    }

    fn find_local(&mut self, qp: &Qp<O>, request: &Request) -> Result<(), Failure> {
        let Source::Elements { first, .. } = request.source else { return Ok(()) };
        let access = if matches!(request.work, Work::Read { .. }) { Access::ReadSink } else { Access::LocalRead };
        let others = (0..request.source.queued_elements()).map_while(|index| self.elements.peek(index));
        for element in iter::once(first).chain(others) {
            if element.length == 0 {
                continue;
            }
            let piece =
                qp.domain.resolve(element.token, element.address, element.length, access).map_err(Failure::of)?;
            self.local.push(piece);
        }
        Ok(())
    }

    /// A receive of the peer cannot be filled: it fails, and the peer's queue pair with it.
    fn break_peer(claim: Claim<O>, status: NtStatus) {
        let peer = claim.qp.clone();
        claim.finish(status, |_| {});
        Qp::fail(&peer);
    }

    /// Moves bytes of the first request. `true` if none are left.
    fn advance(&mut self, request: &Request, budget: &mut Budget) -> bool {
        let Some(current) = &mut self.current else { return true };
        let left = request.length as usize - current.moved;
        let now = left.min(budget.bytes);
        match (request.source, request.work) {
            (_, Work::FastRegister(_) | Work::Bind(_) | Work::Invalidate { .. }) => return true,
            // Moved in an earlier turn; since then the request waits for something else.
            (Source::Inline { .. }, _) if self.inline_moved => return true,
            (Source::Inline { first }, _) => {
                // Inline bytes are few, and lie in the queue until they are moved at once.
                Self::move_inline(&first, &mut self.chunks, &self.remote, request.length as usize);
                self.inline_moved = true;
                budget.bytes = budget.bytes.saturating_sub(left);
                current.moved += left;
                return true;
            }
            (Source::Elements { .. }, Work::Read { .. }) => {
                transfer(&self.local, current.moved, &self.remote, current.moved, now);
            }
            (Source::Elements { .. }, _) => {
                transfer(&self.remote, current.moved, &self.local, current.moved, now);
            }
        }
        budget.bytes -= now;
        current.moved += now;
        now == left
    }

    fn move_inline(first: &Here, chunks: &mut Consumer<Chunk>, to: &[Piece<O>], length: usize) {
        let (mut pieces, mut place) = (to.iter(), 0);
        let mut piece = pieces.next();
        let mut put = |mut bytes: &[u8]| {
            while let (Some(target), false) = (piece, bytes.is_empty()) {
                let (now, later) = bytes.split_at(bytes.len().min(target.len() - place));
                target.write(place, now);
                place += now.len();
                bytes = later;
                if place == target.len() {
                    piece = pieces.next();
                    place = 0;
                }
            }
        };
        put(&first.bytes().as_flattened()[..length.min(HERE)]);
        let mut left = length.saturating_sub(HERE);
        chunks.take(chunks_for(length), |chunk| {
            let bytes = &chunk[..left.min(CHUNK)];
            left -= bytes.len();
            put(bytes);
        });
    }

    /// Makes the token invalid that the first request names, if it names one. `false` while transfers still use the memory
    /// behind it: the consumer must not hear of the invalidation before they have let go (`NDKPI 7.6`), and the object is not
    /// registered or bound again before that.
    fn invalidate(&mut self, qp: &Qp<O>, request: &Request) -> Result<bool, Failure> {
        let Some(current) = &mut self.current else { return Ok(true) };
        let (domain, token) = match (request.work, &current.claim) {
            (Work::Send { invalidate: Some(token) }, Some(claim)) => (&claim.qp.domain, token),
            (Work::Read { .. }, _) if request.flags.contains(Flags::LOCAL_INVALIDATE) => {
                (&qp.domain, request.source.first_token())
            }
            (Work::Invalidate { token }, _) => (&qp.domain, token),
            (Work::FastRegister(posted) | Work::Bind(posted), _) => return Ok(qp.domain.may_commit(posted)),
            _ => return Ok(true),
        };
        #[cfg(feature = "faults")]
        if fault::is(Fault::RemoteInvalidateLate) && matches!(request.work, Work::Send { .. }) {
            self.late = Some((domain.clone(), token));
            return Ok(true);
        }
        if current.invalidated.is_none() {
            // The bytes have moved: this request's own use of the memory is over.
            self.local.clear();
            self.remote.clear();
            let transfers = domain.transfers(token);
            let result = if matches!(request.work, Work::Send { .. }) {
                // The peer's adapter refuses the message (`NDKPI 7.6`).
                domain.invalidate_remote(token).map_err(|_| NtStatus::REMOTE_RESOURCES)
            } else {
                domain.invalidate(token)
            };
            result.map_err(Failure::of)?;
            current.invalidated = Some(transfers);
        }
        let are_over = current.invalidated.as_ref().is_none_or(Transfers::are_over);
        Ok(are_over || fault::is(Fault::InvalidateDoesNotWait))
    }

    /// All bytes of the first request have moved: what else belongs to it happens, and it completes.
    fn succeed(&mut self, qp: &Qp<O>, request: &Request) -> Result<(), Failure> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        match request.work {
            Work::Send { invalidate } => {
                if let Some(claim) = current.claim.take() {
                    claim.finish(NtStatus::SUCCESS, |completion| {
                        let kind = invalidate.map_or(Operation::Receive, |_| Operation::ReceiveAndInvalidate);
                        let solicited = request.flags.contains(Flags::SOLICIT);
                        completion.outcome = Outcome::new(kind, NtStatus::SUCCESS).soliciting(solicited);
                        completion.bytes = request.length + u32::from(fault::is(Fault::BytesWrong));
                        completion.invalidated_token = invalidate.unwrap_or(0);
                    });
                }
            }
            Work::FastRegister(posted) | Work::Bind(posted) => qp.domain.commit(posted).map_err(Failure::of)?,
            Work::Read { .. } | Work::Write { .. } | Work::Invalidate { .. } => {}
        }
        self.moved.note(request.work.operation(), 1, request.length as usize);
        self.complete(qp, request, NtStatus::SUCCESS);
        Ok(())
    }

    /// The first request fails. Unless its peer was gone before, that ends the connection (`NDKPI 7.2`).
    fn fail(&mut self, qp: &Shared<Qp<O>>, request: &Request, failure: Failure) -> Step {
        if let Some(claim) = self.current.take().and_then(|current| current.claim) {
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

    /// Takes the first request, which went the long way, out of the queue and lets the consumer know, unless it wants to know
    /// failures only.
    fn complete(&mut self, qp: &Qp<O>, request: &Request, status: NtStatus) {
        self.local.clear();
        self.remote.clear();
        self.elements.advance(request.source.queued_elements());
        if matches!(request.source, Source::Inline { .. }) && !core::mem::take(&mut self.inline_moved) {
            self.chunks.advance(chunks_for(request.length as usize));
        }
        // The place is free before the consumer can see the completion.
        self.requests.advance(1);
        let silent = request.flags.contains(Flags::SILENT_SUCCESS)
            && match status {
                NtStatus::SUCCESS => !fault::is(Fault::SilentSuccessCompletes),
                NtStatus::CANCELLED => fault::is(Fault::FlushForgetsSilent),
                _ => fault::is(Fault::SilentFailureIsSilent),
            };
        if !silent {
            Cq::push(&qp.initiator_cq, qp.completion(request.context, request.work.operation(), status));
        }
    }
}
