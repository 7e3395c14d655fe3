//! The short way to carry requests out: what most requests are is done in one go, without anything to be kept between steps.
//!
//! Reads, writes and sends go this way whose bytes lie in one piece on both sides. Whatever else a request may be, and whatever
//! may be wrong with it, is left to the long way ([`super::transmit`]), which has the same effects step by step.
//!
//! Requests that a turn finds one behind the other complete together, so that a consumer on another processor is not kept from
//! its completion queue by every single one: receives with the lock of their completion queue held once, initiator requests in
//! batches, which never outlast a turn.

use arrayvec::ArrayVec;
use fallible::Shared;
use ndkpi::NtStatus;

use super::{
    Qp, Work,
    request::{HERE, Request, Sge, Source},
};
use crate::{
    cq::{Completion, Cq, Operation},
    fault::{self, Fault},
    memory::{Access, Wanted},
    nic::{Budget, Traffic},
    os::{Memory, Os},
    ring::Consumer,
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
const UNDER_LOCKS: usize = 4096;

/// Completions of initiator requests that are on their way to their queue.
pub(super) type Batch = ArrayVec<Completion, 8>;

/// Puts the completions of a batch into their queue.
#[inline]
pub(super) fn push<O: Os>(cq: &Shared<Cq<O>>, batch: &mut Batch) {
    if !batch.is_empty() {
        Cq::push(cq, batch);
        batch.clear();
    }
}

/// The queue pairs of a turn, and where requests go that were carried out.
pub(super) struct Short<'turn, O: Os> {
    pub qp: &'turn Shared<Qp<O>>,
    pub peer: &'turn Shared<Qp<O>>,
    pub requests: &'turn mut Consumer<Request>,
    pub budget: &'turn mut Budget,
    pub traffic: &'turn mut Traffic,
    pub batch: &'turn mut Batch,
}

impl<O: Os> Short<'_, O> {
    /// Carries out the first request, and perhaps some behind it. `None` if there is none; `false` if nothing has been done: the
    /// first one is something else, or something is wrong with it.
    #[inline]
    pub fn carry_out(&mut self) -> Option<bool> {
        if self.batch.remaining_capacity() < 2 {
            push(&self.qp.initiator_cq, self.batch);
        }
        let is_send = self.requests.with_front(|request| matches!(request.work, Work::Send { invalidate: None }))?;
        Some(if is_send { self.send() } else { self.copy() })
    }

    /// The first request was carried out: takes it out of the queue, before the consumer can see its completion.
    #[inline]
    fn take(&mut self, operation: Operation, done: &Done) {
        self.requests.advance(1);
        self.budget.bytes -= done.length as usize;
        self.budget.requests -= 1;
        self.traffic.note(operation, done.length);
    }

    /// Completes a request that was taken, unless its consumer wants to know failures only: in the batch, or if it is to be seen
    /// `at_once` and the batch has no other, in its queue.
    #[inline]
    fn complete(&mut self, operation: Operation, done: &Done, at_once: bool) {
        if done.is_silent && !fault::is(Fault::SilentSuccessCompletes) {
            return;
        }
        let completion = self.qp.completion(done.context, operation, NtStatus::SUCCESS);
        if at_once && self.batch.is_empty() {
            Cq::push_one(&self.qp.initiator_cq, completion);
        } else {
            self.batch.push(completion);
        }
    }

    /// Carries out sends, as many as follow each other and have bytes enough for one time that locks are held.
    fn send(&mut self) -> bool {
        let (qp, peer) = (self.qp, self.peer);
        // With the lock of the receives held, nobody else completes a receive of this queue meanwhile.
        let last = Qp::with_receives(peer, |receives| {
            Cq::with_producer(&peer.receive_cq, |completions| {
                let (mut last, mut left) = (None, self.budget.bytes.min(UNDER_LOCKS));
                while self.budget.requests > 0 && self.batch.remaining_capacity() > 1 {
                    let sent = self.requests.with_front(|request| {
                        let length = request.length as usize;
                        if !matches!(request.work, Work::Send { invalidate: None }) || length > left {
                            return None;
                        }
                        let fill = |sink: &Sge| put(qp, peer, request, &sink.wanted(Access::LocalWrite));
                        let context = receives.fill_first(request.length, fill)?;
                        Some((context, request.flags.solicit, Done::of(request)))
                    });
                    let Some(Some((context, solicited, done))) = sent else { break };
                    left -= done.length as usize;
                    let bytes = done.length + u32::from(fault::is(Fault::BytesWrong));
                    let completion = peer.completion(context, Operation::Receive, NtStatus::SUCCESS);
                    completions.push(Completion { solicited, bytes, ..completion });
                    self.take(Operation::Send, &done);
                    // The last one's own completion may come at once, after that of the receive.
                    if let Some(done) = last.replace(done) {
                        self.complete(Operation::Send, &done, false);
                    }
                }
                last
            })
        });
        let Some(Some(done)) = last else { return false };
        self.complete(Operation::Send, &done, self.requests.known() == 0);
        true
    }

    /// Carries out a read or write.
    #[inline]
    fn copy(&mut self) -> bool {
        let (qp, peer, most) = (self.qp, self.peer, self.budget.bytes);
        let done = self.requests.with_front(|request| {
            if request.length as usize > most {
                return None;
            }
            let (operation, is_done) = match request.work {
                Work::Write { address, token } => {
                    let there = Wanted { token, address, length: request.length, access: Access::RemoteWrite };
                    (Operation::Write, request.length > 0 && put(qp, peer, request, &there))
                }
                Work::Read { address, token } if !request.flags.local_invalidate => {
                    let there = Wanted { token, address, length: request.length, access: Access::RemoteRead };
                    (Operation::Read, request.length > 0 && get(qp, peer, request, &there))
                }
                _ => return None,
            };
            is_done.then(|| (operation, Done::of(request)))
        });
        let Some(Some((operation, done))) = done else { return false };
        // What takes long is not kept back for the sake of what comes after it.
        self.take(operation, &done);
        let at_once = self.requests.known() == 0 || done.length as usize > UNDER_LOCKS;
        self.complete(operation, &done, at_once);
        if at_once {
            push(&self.qp.initiator_cq, self.batch);
        }
        true
    }
}

/// What is left to know of a request that was carried out.
struct Done {
    context: usize,
    length: u32,
    is_silent: bool,
}

impl Done {
    const fn of(request: &Request) -> Self {
        Self { context: request.context, length: request.length, is_silent: request.flags.silent_success }
    }
}

/// Copies the bytes of a request to the peer. `there` has room for them.
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request then stays in registers")]
fn put<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    let length = request.length as usize;
    match &request.source {
        Source::Inline { first } if length <= HERE => {
            peer.domain.with_range(there, |to, at| to.write(at, &first[..length])).is_some()
        }
        Source::Elements { count: 1, first } => {
            let here = first.wanted(Access::LocalRead);
            with_both(qp, peer, &here, there, |(from, start), (to, at)| to.copy_from(at, from, start, length))
        }
        Source::Inline { .. } | Source::Elements { .. } => false,
    }
}

/// Copies the bytes of a request from the peer.
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request then stays in registers")]
fn get<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    let Source::Elements { count: 1, first } = &request.source else { return false };
    let (here, length) = (first.wanted(Access::ReadSink), request.length as usize);
    with_both(qp, peer, &here, there, |(to, at), (from, start)| to.copy_from(at, from, start, length))
}

/// Memory, and where in it bytes begin.
type At<'a, O> = (&'a <O as Os>::Memory, usize);

/// Finds the bytes of both sides for `copy`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request then stays in registers")]
fn with_both<O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    here: &Wanted,
    there: &Wanted,
    copy: impl FnOnce(At<'_, O>, At<'_, O>),
) -> bool {
    if here.length as usize <= UNDER_LOCKS {
        return qp.domain.with_ranges(here, &peer.domain, there, copy).is_some();
    }
    let found = [(&peer.domain, there), (&qp.domain, here)]
        .map(|(domain, wanted)| domain.resolve(wanted.token, wanted.address, wanted.length, wanted.access));
    let [Ok(there), Ok(here)] = &found else { return false };
    let (Some(here), Some(there)) = (here.range(), there.range()) else { return false };
    copy(here, there);
    true
}
