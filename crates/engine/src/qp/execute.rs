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
    request::{INLINE, LocalData, WorkRequest},
};
use crate::{
    cq::{Cq, Cqe, Operation},
    memory::{Access, CacheResult, LockedMr, Lookup, MOST_BY_CACHE, Side},
    mistake,
    nic::{Budget, Moved},
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

/// The requests that the executor takes, in order.
pub(super) trait Requests {
    /// Gives `work` the request `ahead` places behind the first one; `None` if there is none.
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U>;

    /// [`Requests::with`] for the first request, which is known to be there.
    fn first<U>(&self, work: impl FnOnce(&WorkRequest) -> U) -> Option<U>;

    /// The first `count` requests have been carried out.
    fn finish(&mut self, count: usize);

    /// Has the processor fetch where the consumer's next request goes.
    fn prefetch_next(&self);
}

impl Requests for &mut Consumer<WorkRequest> {
    #[inline]
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        self.with_ahead(ahead, work)
    }

    #[inline]
    fn first<U>(&self, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        self.with_known(0, work)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "mostly it is one, which is known where this is called")]
    fn finish(&mut self, count: usize) {
        self.advance(count);
    }

    fn prefetch_next(&self) {
        self.prefetch_end();
    }
}

/// A run of the executor.
pub(super) struct Execution<'run, O: Os, R> {
    pub qp: &'run Qp<O>,
    pub peer: &'run Qp<O>,
    pub requests: R,
    pub budget: Budget,
}

/// What a run has done.
#[derive(Default)]
struct Run {
    requests: u32,
    bytes: usize,
    /// The last request, whose completion is left to do.
    last: Option<Done>,
}

/// What is left to know of a request that was carried out.
struct Done {
    context: usize,
    length: u32,
    flags: Flags,
    operation: Operation,
}

impl Done {
    #[inline]
    const fn of(request: &WorkRequest, operation: Operation) -> Self {
        Self { context: request.context, length: request.length, flags: request.flags, operation }
    }
}

impl<O: Os, R: Requests> Execution<'_, O, R> {
    /// Carries out the first request, and sends behind it. `None` if it is not simple: then nothing has happened.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 20 instructions of a write")]
    pub fn execute(mut self) -> Option<Moved> {
        let (qp, peer, most) = (self.qp, self.peer, self.budget.bytes);
        // None for a send.
        let copied = self.requests.first(|request| {
            if matches!(request.work, Work::Send { invalidate: None }) {
                return None;
            }
            if request.length as usize > UNDER_LOCKS {
                // A copy of many bytes drives the queues out of the caches. What is written behind it comes while it runs.
                self.requests.prefetch_next();
                qp.initiator_cq.prefetch();
            }
            Some(match request.work {
                _ if request.length as usize > most => None,
                Work::Write { address, token } => Self::copy::<false>(qp, peer, request, (address, token)),
                Work::Read { address, token } => Self::copy::<true>(qp, peer, request, (address, token)),
                _ => None,
            })
        });
        let Some(copied) = copied.flatten() else { return self.send() };
        let last = copied?;
        self.requests.finish(1);
        Some(Self::complete(qp, peer, &last, 1, last.length as usize))
    }

    /// Completes the last of `requests`, unless its consumer wants to know failures only, and counts all of them.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: the completion stays in registers")]
    fn complete(qp: &Qp<O>, peer: &Qp<O>, last: &Done, requests: u32, bytes: usize) -> Moved {
        if !last.flags.are_silent(NtStatus::SUCCESS) {
            Cq::push(&qp.initiator_cq, qp.cqe(last.context, last.operation, NtStatus::SUCCESS));
        }
        let moved = Moved { is_read: matches!(last.operation, Operation::Read), requests, bytes };
        qp.engine.count(&peer.engine, &moved);
        moved
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
    ) -> Option<Done> {
        let (operation, access, remote_access) = if READ {
            (Operation::Read, Access::ReadSink, Access::RemoteRead)
        } else {
            (Operation::Write, Access::LocalRead, Access::RemoteWrite)
        };
        let (remote, length) = ((Lookup { token, access: remote_access }, address), request.length);
        let done = Done::of(request, operation);
        let local = match &request.data {
            LocalData::Elements { count: 1, first } if !(READ && request.flags.contains(Flags::LOCAL_INVALIDATE)) => {
                (first.key(access), first.address)
            }
            LocalData::Inline(_) if !READ => return write_inline(peer, request, remote).then_some(done),
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
                CacheResult::Hit(()) => return Some(done),
                CacheResult::Miss { is_due } => is_due,
            }
        };
        let copied = copy_by_table(qp, peer, local, remote, length, move_bytes);
        if is_due {
            qp.domain.cache(&qp.translations, Side::Local, local.0);
            peer.domain.cache(&qp.translations, Side::Remote, remote.0);
        }
        copied.map(|()| done)
    }

    /// Carries out consecutive sends with the same tokens, while the locks are held once: between two messages there is no atomic
    /// operation, which would wait until the stores of the first one have reached the peer's processor.
    // Not inlined: it would take registers from reads and writes.
    #[inline(never)]
    fn send(mut self) -> Option<Moved> {
        let (qp, peer, mut run, mut received) = (self.qp, self.peer, Run::default(), Received::new());
        // The lock of the receive queue keeps the order of its completions.
        peer.with_receives(|receives| {
            let received = &mut received;
            Cq::push_all_of(&peer.receive_cq, || {
                if let Some(token) = receives.first_token() {
                    let sink = Lookup { token, access: Access::LocalWrite };
                    let source = self.requests.first(|request| match &request.data {
                        LocalData::Elements { first, .. } => Some(first.key(Access::LocalRead)),
                        LocalData::Inline(_) => None,
                    });
                    let done = match source.flatten() {
                        None => {
                            peer.domain.with_token(sink, |remote| self.send_run(receives, received, remote, put_inline))
                        }
                        Some(source) => qp.domain.with_tokens(source, &peer.domain, sink, |local, remote| {
                            let put = |request: &_, to: Location<'_, O>| put_element(local, request, to);
                            self.send_run(receives, received, remote, put)
                        }),
                    };
                    run = done.unwrap_or_default();
                }
                &*received
            });
        });
        Some(Self::complete(qp, peer, &run.last?, run.requests, run.bytes))
    }

    /// [`Execution::send`] with everything locked. `put` copies the bytes of a request to where they go, or returns false.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 50 instructions of a message")]
    fn send_run(
        &mut self,
        receives: &mut ReceiveQueue,
        received: &mut Received,
        remote: &LockedMr<'_, O>,
        put: impl Fn(&WorkRequest, Location<'_, O>) -> bool,
    ) -> Run {
        let mut run = Run::default();
        let most = self.budget.bytes.min(UNDER_LOCKS);
        while run.requests < self.budget.requests && !received.is_full() {
            let ahead = run.requests as usize;
            let left = most - run.bytes;
            let done = self.requests.with(ahead, |request| {
                if !matches!(request.work, Work::Send { invalidate: None }) || request.length as usize > left {
                    return None;
                }
                let context = receives.fill(ahead, request.length, remote, |to| put(request, to))?;
                received.push(self::received(self.peer, context, request.length, request.flags));
                Some(Done::of(request, Operation::Send))
            });
            let Some(Some(done)) = done else { break };
            run.requests += 1;
            run.bytes += done.length as usize;
            // Its completion follows that of the receive, whose queue may be the same and is locked.
            let is_last = !done.flags.are_silent(NtStatus::SUCCESS);
            run.last = Some(done);
            if is_last {
                break;
            }
        }
        // The slots are free before the consumers see the completions.
        receives.take_out(run.requests as usize);
        self.requests.finish(run.requests as usize);
        run
    }
}

/// The completion of a receive that a message of `length` bytes has filled.
#[inline]
pub(super) fn received<O: Os>(peer: &Qp<O>, context: usize, length: u32, flags: Flags) -> Cqe {
    let bytes = mistake!(BytesWrong => length + 1, else length);
    let cqe = peer.cqe(context, Operation::Receive, NtStatus::SUCCESS);
    Cqe { outcome: cqe.outcome.soliciting(flags.contains(Flags::SOLICIT)), bytes, ..cqe }
}

/// Copies the inline bytes of a send, if they are few. One word is stored without a call of the copy routine.
#[inline]
fn put_inline<M: Memory>(request: &WorkRequest, (to, at): (&M, usize)) -> bool {
    let length = request.length as usize;
    match &request.data {
        LocalData::Inline(bytes) if length == size_of::<u64>() => to.write(at, &bytes.bytes()[0]),
        LocalData::Inline(bytes) if length <= INLINE => to.write(at, &bytes.bytes().as_flattened()[..length]),
        _ => return false,
    }
    true
}

/// Copies the data of a send with one element, which is a part of `local`.
#[inline]
fn put_element<O: Os>(local: &LockedMr<'_, O>, request: &WorkRequest, (to, at): Location<'_, O>) -> bool {
    let LocalData::Elements { count: 1, first } = &request.data else { return false };
    let Some((from, start)) = local.find(first.token, first.address, first.length) else { return false };
    to.copy_from(at, from, start, request.length as usize);
    true
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
fn write_inline<O: Os>(peer: &Qp<O>, request: &WorkRequest, (remote, address): (Lookup, u64)) -> bool {
    if request.length == 0 || request.length as usize > INLINE {
        return false;
    }
    let write = |mr: &LockedMr<'_, O>| Some(put_inline(request, mr.locate(address, request.length)?));
    peer.domain.with_token(remote, write).flatten() == Some(true)
}
