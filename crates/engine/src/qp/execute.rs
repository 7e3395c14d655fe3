//! The executor: carries out what is simple, wholly or not at all.
//!
//! Simple are reads, writes and sends whose bytes lie in one piece on both sides. Whatever else a request may be, and whatever may
//! be wrong with it, is left to the slow path ([`super::progress`]), which has the same effects step by step.
//!
//! The executor takes requests from a post of one or from the send queue. Those that it finds one behind the other complete
//! together, so that a consumer on another processor is not kept from its completion queue by every single one: receives with
//! the lock of their completion queue held once. The first of them that has a completion of its own is the last of them.

use arrayvec::ArrayVec;

use super::{
    NtStatus, Qp, Work,
    copy::{self, Location},
    receive_queue::ReceiveQueue,
    request::{Flags, INLINE, LocalData, Sge, WorkRequest},
};
use crate::{
    cq::{Cq, CqProducer, Cqe, Operation},
    memory::{Access, LockedMr, Lookup},
    mistake,
    nic::{Budget, Moved},
    os::{Memory, Os},
    ring::Consumer,
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
pub(super) const UNDER_LOCKS: usize = 4096;

/// Completions of receives that were filled one behind the other. Their cache lines are the receiver's, and are fetched together
/// if they are written together: with other stores in between, each would be waited for alone.
type Received = ArrayVec<Cqe, 32>;

/// Where the executor takes requests from, in their order.
pub(super) trait Requests {
    /// How many there may be at most.
    const MOST: u32;

    /// Gives `work` the request `ahead` places behind the first one; `None` if there is none.
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U>;

    /// [`Requests::with`] for the first request, which is known to be there.
    fn first<U>(&self, work: impl FnOnce(&WorkRequest) -> U) -> Option<U>;

    /// The first `count` requests are carried out.
    fn advance(&mut self, count: usize);

    /// Has the processor fetch where the consumer's next request goes.
    fn prefetch_end(&self);
}

/// The requests of a send queue.
pub(super) struct Queued<'run>(pub &'run mut Consumer<WorkRequest>);

impl Requests for Queued<'_> {
    const MOST: u32 = u32::MAX;

    #[inline]
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        self.0.with_ahead(ahead, work)
    }

    #[inline]
    fn first<U>(&self, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        self.0.with_known(0, work)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "mostly it is one, which is known where this is called")]
    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }

    fn prefetch_end(&self) {
        self.0.prefetch_end();
    }
}

/// A run of the executor.
pub(super) struct Execution<'run, O: Os, R> {
    pub qp: &'run Qp<O>,
    pub peer: &'run Qp<O>,
    pub requests: R,
    pub budget: Budget,
}

impl<O: Os, R: Requests> Execution<'_, O, R> {
    /// Carries out the first request, and perhaps some behind it. `None` if nothing has been done: it is not simple.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 20 instructions of a write")]
    pub fn execute(mut self) -> Option<Moved> {
        let (qp, peer, most) = (self.qp, self.peer, self.budget.bytes);
        let first = self.requests.first(|request| {
            if matches!(request.work, Work::Send { invalidate: None }) {
                return First::Send;
            }
            if request.length as usize > UNDER_LOCKS {
                // A copy of many bytes drives the queues out of the caches. What is written behind it comes while it runs.
                self.requests.prefetch_end();
                qp.initiator_cq.prefetch();
            }
            if request.length as usize <= most && Self::copy(qp, peer, request) {
                // Not `Work::operation`, which is a jump by a table.
                let is_read = matches!(request.work, Work::Read { .. });
                let WorkRequest { context, length, flags, .. } = *request;
                let operation = if is_read { Operation::Read } else { Operation::Write };
                First::Copied(Done { context, length, flags, operation })
            } else {
                First::Other
            }
        });
        let moved = match first {
            Some(First::Send) => self.send()?,
            Some(First::Copied(done)) => {
                self.requests.advance(1);
                qp.complete(done.context, done.operation, done.flags, NtStatus::SUCCESS);
                let is_read = matches!(done.operation, Operation::Read);
                Moved { is_read, requests: 1, bytes: done.length as usize }
            }
            Some(First::Other) | None => return None,
        };
        qp.engine.count(&peer.engine, &moved);
        Some(moved)
    }

    /// Carries out sends, as many as follow each other, name the same tokens, and have bytes enough for one time that locks are
    /// held: between two messages there is no atomic operation, which would wait until the first one has arrived.
    // Not a part of its callers, where it would be in the way of reads and writes.
    #[inline(never)]
    fn send(mut self) -> Option<Moved> {
        let (qp, peer, mut run) = (self.qp, self.peer, SendRun::default());
        // With the lock of the receives held, nobody else completes a receive of this queue meanwhile.
        peer.with_receives(|receives| {
            Cq::with_producer(&peer.receive_cq, |completions| {
                let Some(token) = receives.first_token() else { return };
                let sink = Lookup { token, access: Access::LocalWrite };
                let source = self.requests.first(|request| match &request.data {
                    LocalData::Elements { first, .. } => Some(first.key(Access::LocalRead)),
                    LocalData::Inline(_) => None,
                });
                match source.flatten() {
                    None => peer.domain.with_token(sink, |remote| {
                        run = self.send_run(receives, completions, remote, put_inline);
                    }),
                    Some(source) => qp.domain.with_tokens(source, &peer.domain, sink, |local, remote| {
                        let put = |request: &_, to: Location<'_, O>| put_element(local, request, to);
                        run = self.send_run(receives, completions, remote, put);
                    }),
                };
            });
        });
        let last = run.last?;
        qp.complete(last.context, last.operation, last.flags, NtStatus::SUCCESS);
        Some(Moved { is_read: false, requests: run.sent, bytes: run.bytes })
    }

    /// [`Execution::send`] with everything locked. `put` copies the bytes of a request to where they go, or returns false. What is
    /// left to do is the completion of the last one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 50 instructions of a message")]
    fn send_run(
        &mut self,
        receives: &mut ReceiveQueue,
        completions: &mut CqProducer<'_, O>,
        remote: &LockedMr<'_, O>,
        put: impl Fn(&WorkRequest, Location<'_, O>) -> bool,
    ) -> SendRun {
        let mut run = SendRun::default();
        let mut received = Received::new();
        let most = self.budget.bytes.min(UNDER_LOCKS);
        while run.sent < R::MOST.min(self.budget.requests) && !received.is_full() {
            let ahead = run.sent as usize;
            let left = most - run.bytes;
            let done = self.requests.with(ahead, |request| {
                if !matches!(request.work, Work::Send { invalidate: None }) || request.length as usize > left {
                    return None;
                }
                let fill =
                    |sink: &Sge| remote.find(sink.token, sink.address, sink.length).is_some_and(|to| put(request, to));
                let context = receives.fill(ahead, request.length, fill, |sink| remote.prefetch(sink.address))?;
                received.push(self::received(self.peer, context, request.length, request.flags));
                let WorkRequest { context, length, flags, .. } = *request;
                Some(Done { context, length, flags, operation: Operation::Send })
            });
            let Some(Some(done)) = done else { break };
            run.sent += 1;
            run.bytes += done.length as usize;
            // Its own completion comes after that of its receive, whose queue may be the same and is locked.
            let is_last = !done.flags.are_silent(NtStatus::SUCCESS);
            run.last = Some(done);
            if is_last {
                break;
            }
        }
        // The places are free before the consumers can see the completions.
        receives.take_out(run.sent as usize);
        self.requests.advance(run.sent as usize);
        match &received[..] {
            [] => {}
            [cqe] => completions.push(*cqe),
            cqes => completions.push_all(cqes),
        }
        run
    }
}

/// What [`Execution::send_run`] has done.
#[derive(Default)]
struct SendRun {
    sent: u32,
    bytes: usize,
    /// The last one.
    last: Option<Done>,
}

/// What becomes of the first request.
enum First {
    /// It is a send.
    Send,
    /// It is a read or write, and done.
    Copied(Done),
    /// It is not simple.
    Other,
}

/// What is left to know of a request that was carried out.
struct Done {
    context: usize,
    length: u32,
    flags: Flags,
    operation: Operation,
}

/// The completion of a receive that a message of `length` bytes has filled.
#[inline]
pub(super) fn received<O: Os>(peer: &Qp<O>, context: usize, length: u32, flags: Flags) -> Cqe {
    let bytes = mistake!(BytesWrong => length + 1, else length);
    let cqe = peer.cqe(context, Operation::Receive, NtStatus::SUCCESS);
    Cqe { outcome: cqe.outcome.soliciting(flags.contains(Flags::SOLICIT)), bytes, ..cqe }
}

/// Copies the inline bytes of a send, if they are few.
#[inline]
fn put_inline<M: Memory>(request: &WorkRequest, to: (&M, usize)) -> bool {
    let length = request.length as usize;
    match &request.data {
        LocalData::Inline(bytes) if length <= INLINE => copy::put_inline(to, bytes, length),
        _ => return false,
    }
    true
}

/// Copies the bytes of a send that has one element, of `local`.
#[inline]
fn put_element<O: Os>(local: &LockedMr<'_, O>, request: &WorkRequest, (to, at): Location<'_, O>) -> bool {
    let LocalData::Elements { count: 1, first } = &request.data else { return false };
    let Some((from, start)) = local.find(first.token, first.address, first.length) else { return false };
    to.copy_from(at, from, start, request.length as usize);
    true
}
