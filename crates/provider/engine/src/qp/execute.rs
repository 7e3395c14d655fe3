//! The executor: carries out simple requests, wholly or not at all.
//!
//! Reads, writes and sends are simple if their data is contiguous on both sides. All other requests, and all errors, are left to
//! the slow path ([`super::progress`]), which has the same effects step by step.
//!
//! Requests come from the send queue or from a post. Consecutive sends are carried out together, up to the first one that has a
//! completion of its own: their receives complete under one hold of the completion queue's lock, so that they disturb a consumer
//! on another processor once.

use arrayvec::ArrayVec;

use super::{
    Flags, NtStatus, Qp, Work,
    receive_queue::ReceiveQueue,
    request::{INLINE, LocalData, WORD, WorkRequest},
};
use crate::{
    cq::{self, Cq, Cqe, CqeOutcome, Operation},
    memory::{Access, CacheResult, LockedMr, Lookup, MOST_BY_CACHE, Side},
    nic::Budget,
    os::{Memory, Os},
    prefetch::cold_path,
    ring::Consumer,
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
const UNDER_LOCKS: usize = 4096;

/// Completions of receives. Their cache lines are the receiver's: written one after the other they are fetched together, with
/// other stores in between each would be waited for alone.
type Received = ArrayVec<Cqe, 32>;

/// Memory, and an offset in it.
type Location<'a, O> = (&'a <O as Os>::Memory, usize);

/// The requests that the executor takes, in order. A type for each source, so that each has an executor of its own.
pub(super) trait Requests {
    /// The first request, which is known to be there.
    fn first(&self) -> Option<&WorkRequest>;

    /// The request `ahead` places behind the first one; `None` if there is none.
    fn get(&mut self, ahead: usize) -> Option<&WorkRequest>;

    /// The first `count` requests have been carried out.
    fn finish(&mut self, count: usize);
}

/// The send queue.
impl Requests for &mut Consumer<WorkRequest> {
    #[inline]
    fn first(&self) -> Option<&WorkRequest> {
        self.get_known(0)
    }

    #[inline]
    fn get(&mut self, ahead: usize) -> Option<&WorkRequest> {
        Consumer::get(self, ahead)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "mostly it is one, which is known where this is called")]
    fn finish(&mut self, count: usize) {
        self.advance(count);
    }
}

/// The request of a post, which is not in the queue.
impl Requests for &WorkRequest {
    #[inline]
    fn first(&self) -> Option<&WorkRequest> {
        Some(self)
    }

    #[inline]
    fn get(&mut self, ahead: usize) -> Option<&WorkRequest> {
        (ahead == 0).then_some(*self)
    }

    #[inline]
    fn finish(&mut self, _: usize) {}
}

/// A run of the executor.
pub(super) struct Execution<'run, O: Os, R> {
    pub qp: &'run Qp<O>,
    pub peer: &'run Qp<O>,
    pub requests: R,
    pub budget: Budget,
}

/// What a run has done.
///
/// Its fields are read one by one on purpose: a copy would merge their loads into wider ones, which defeats store forwarding.
struct Run {
    done: Budget,
    /// Of the last request, which has not completed yet.
    context: usize,
    flags: Flags,
}

impl<O: Os, R: Requests> Execution<'_, O, R> {
    /// Carries out the first request, and sends behind it. Returns how much that was; `None` if it is not simple: then nothing has
    /// happened.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 20 instructions of a write")]
    pub fn execute(mut self) -> Option<Budget> {
        let (qp, peer) = (self.qp, self.peer);
        let request = self.requests.first()?;
        let mut run = Run { done: Budget::NONE, context: request.context, flags: request.flags };
        let operation = if matches!(request.work, Work::Send { invalidate: None }) {
            self.send(&mut run);
            if run.done.requests == 0 {
                return None;
            }
            Operation::Send
        } else {
            let bytes = request.length as usize;
            if bytes > self.budget.bytes {
                return None;
            }
            let operation = match request.work {
                Work::Write { address, token } => {
                    Self::copy::<false>(qp, peer, request, (address, token))?;
                    Operation::Write
                }
                Work::Read { address, token } => {
                    Self::copy::<true>(qp, peer, request, (address, token))?;
                    Operation::Read
                }
                _ => return None,
            };
            self.requests.finish(1);
            run.done = Budget { requests: 1, bytes };
            operation
        };
        let Run { done, context, flags } = run;
        // The completion of a send follows that of the receive, whose queue may be the same.
        if !flags.are_silent(NtStatus::SUCCESS) {
            Cq::push_one(&qp.initiator_cq, || qp.cqe(context, operation, NtStatus::SUCCESS));
        }
        qp.traffic.count(&peer.traffic, done, operation == Operation::Read);
        Some(done)
    }

    /// Copies the data of a read or a write, found by the queue pair's cache or the token table. `None` if it is not contiguous on
    /// both sides, or may not be used: then nothing has happened.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 30 instructions of a write")]
    fn copy<const READ: bool>(
        qp: &Qp<O>,
        peer: &Qp<O>,
        request: &WorkRequest,
        (address, token): (u64, u32),
    ) -> Option<()> {
        let (access, remote_access) =
            if READ { (Access::ReadSink, Access::RemoteRead) } else { (Access::LocalRead, Access::RemoteWrite) };
        let (remote, length) = ((Lookup { token, access: remote_access }, address), request.length);
        let local = match &request.data {
            LocalData::Elements { count: 1, first } if !(READ && request.flags.contains(Flags::LOCAL_INVALIDATE)) => {
                (first.key(access), first.address)
            }
            LocalData::Inline(_) if !READ => return write_inline(peer, request, remote),
            _ => return None,
        };
        let move_bytes = |local: Location<'_, O>, remote: Location<'_, O>| {
            let ((to, at), (from, start)) = if READ { (local, remote) } else { (remote, local) };
            to.copy_from(at, from, start, length as usize);
        };
        let is_due = if length > MOST_BY_CACHE {
            cold_path();
            false
        } else {
            match qp.translations.with_both(local, remote, length, move_bytes) {
                CacheResult::Hit(()) => return Some(()),
                CacheResult::Miss { is_due } => is_due,
            }
        };
        let copied = copy_by_table(qp, peer, local, remote, length, move_bytes);
        if is_due {
            qp.domain.cache(&qp.translations, Side::Local, local.0);
            peer.domain.cache(&qp.translations, Side::Remote, remote.0);
        }
        copied
    }

    /// Carries out consecutive sends with the same tokens, while the locks are held once: between two messages there is no atomic
    /// operation, which would wait until the stores of the first one have reached the peer's processor.
    // Not inlined: it would take registers from reads and writes.
    #[inline(never)]
    fn send(mut self, run: &mut Run) {
        let (peer, mut received) = (self.peer, Received::new());
        // The lock of the receive queue keeps the order of its completions.
        peer.with_receives(|receives| {
            let received = &mut received;
            Cq::push_all(&peer.receive_cq, || {
                self.send_locked(receives, received, run);
                &*received
            });
        });
    }

    /// [`Execution::send`] with the receives and their completion queue locked. Locks the tokens; `None` if they may not be used.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted with the one after it")]
    fn send_locked(&mut self, receives: &mut ReceiveQueue, received: &mut Received, run: &mut Run) -> Option<()> {
        let (qp, peer) = (self.qp, self.peer);
        let sink = Lookup { token: receives.first_token()?, access: Access::LocalWrite };
        match self.requests.first()?.data {
            LocalData::Inline(_) => {
                peer.domain.with_token(sink, |remote| self.send_run(receives, received, run, remote, put_inline))
            }
            LocalData::Elements { first, .. } => {
                qp.domain.with_tokens(first.key(Access::LocalRead), &peer.domain, sink, |local, remote| {
                    self.send_run(receives, received, run, remote, |request, to| put_element(local, request, to));
                })
            }
        }
    }

    /// [`Execution::send`] with everything locked. `put` copies the data of a request to its destination, or returns `None`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 50 instructions of a message")]
    fn send_run(
        &mut self,
        receives: &mut ReceiveQueue,
        received: &mut Received,
        run: &mut Run,
        remote: &LockedMr<'_, O>,
        put: impl Fn(&WorkRequest, Location<'_, O>) -> Option<()>,
    ) {
        let Budget { mut bytes, mut requests } = Budget::NONE;
        let most = self.budget.bytes.min(UNDER_LOCKS);
        while requests < self.budget.requests && !received.is_full() {
            let ahead = requests as usize;
            let Some(request) = self.requests.get(ahead) else { break };
            let &WorkRequest { context, work, flags, length, .. } = request;
            if !matches!(work, Work::Send { invalidate: None }) || length as usize > most - bytes {
                break;
            }
            let Some(receive) = receives.fill(ahead, length, remote, |to| put(request, to)) else { break };
            received.push(self::received(self.peer, receive, length, flags));
            requests += 1;
            bytes += length as usize;
            (run.context, run.flags) = (context, flags);
            // Its completion follows that of the receive, whose queue may be the same and is locked.
            if !flags.are_silent(NtStatus::SUCCESS) {
                break;
            }
        }
        // The slots are free before the consumers see the completions.
        receives.requests.advance(requests as usize);
        self.requests.finish(requests as usize);
        run.done = Budget { bytes, requests };
    }
}

/// The completion of a receive that a message of `length` bytes has filled.
#[inline]
pub(super) fn received<O: Os>(peer: &Qp<O>, context: usize, length: u32, flags: Flags) -> Cqe {
    let cqe = peer.cqe(context, Operation::Receive, NtStatus::SUCCESS);
    Cqe {
        outcome: cqe.outcome.soliciting(flags.contains(Flags::SOLICIT)),
        received: cq::Received::new(length, 0),
        ..cqe
    }
}

/// [`received`], for a message that may have invalidated a token.
pub(super) fn received_invalidating<O: Os>(
    peer: &Qp<O>,
    context: usize,
    length: u32,
    flags: Flags,
    invalidated: Option<u32>,
) -> Cqe {
    let mut cqe = received(peer, context, length, flags);
    if let Some(token) = invalidated {
        let outcome = CqeOutcome::new(Operation::ReceiveAndInvalidate, NtStatus::SUCCESS);
        cqe.outcome = outcome.soliciting(cqe.outcome.is_solicited());
        cqe.received = cq::Received::new(cqe.received.bytes(), token);
    }
    cqe
}

/// Copies the inline bytes of a request, if it holds all of them. A word is copied without a call of the copy routine.
#[inline]
fn put_inline<M: Memory>(request: &WorkRequest, (to, at): (&M, usize)) -> Option<()> {
    let length = request.length as usize;
    match &request.data {
        LocalData::Inline(data) if length == WORD => to.write(at, &data.0[..WORD]),
        LocalData::Inline(data) if length <= INLINE => to.write(at, &data.0[..length]),
        _ => return None,
    }
    Some(())
}

/// Copies the data of a send with one element, which is a part of `local`.
#[inline]
fn put_element<O: Os>(local: &LockedMr<'_, O>, request: &WorkRequest, (to, at): Location<'_, O>) -> Option<()> {
    let LocalData::Elements { count: 1, first } = &request.data else { return None };
    let (from, start) = local.find(first.token, first.address, first.length)?;
    to.copy_from(at, from, start, request.length as usize);
    Some(())
}

/// [`Execution::copy`] by the token table: few bytes with the tokens locked, more with references to the memory.
#[inline(never)]
fn copy_by_table<O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    (local, my_address): (Lookup, u64),
    (remote, address): (Lookup, u64),
    length: u32,
    move_bytes: impl FnOnce(Location<'_, O>, Location<'_, O>),
) -> Option<()> {
    if length as usize > UNDER_LOCKS {
        let local = qp.domain.resolve(local.token, my_address, length, local.access).ok()?;
        let remote = peer.domain.resolve(remote.token, address, length, remote.access).ok()?;
        move_bytes(local.range()?, remote.range()?);
        return Some(());
    }
    qp.domain.with_tokens(local, &peer.domain, remote, |local, remote| {
        let (local, remote) = (local.locate(my_address, length)?, remote.locate(address, length)?);
        move_bytes(local, remote);
        Some(())
    })?
}

/// [`Execution::copy`] for a write of few inline bytes.
#[inline(never)]
fn write_inline<O: Os>(peer: &Qp<O>, request: &WorkRequest, (remote, address): (Lookup, u64)) -> Option<()> {
    peer.domain.with_token(remote, |mr| put_inline(request, mr.locate(address, request.length)?))?
}
