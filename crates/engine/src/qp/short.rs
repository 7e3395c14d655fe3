//! The short way to carry requests out: what most requests are is done in one go, without anything to be kept between steps.
//!
//! Reads, writes and sends go this way whose bytes lie in one piece on both sides. Whatever else a request may be, and whatever
//! may be wrong with it, is left to the long way ([`super::transmit`]), which has the same effects step by step.
//!
//! Requests that a turn finds one behind the other complete together, so that a consumer on another processor is not kept from
//! its completion queue by every single one: receives with the lock of their completion queue held once, initiator requests in
//! batches, which never outlast a turn.

use core::slice;

use arrayvec::ArrayVec;
use fallible::Shared;
use ndkpi::NtStatus;

use super::{
    Flags, Qp, Work,
    receive::Receive,
    request::{HERE, Request, Sge, Source},
};
use crate::{
    cq::{Completion, Cq, CqProducer, Operation},
    fault::{self, Fault},
    memory::{Access, Opened, Wanted, transfer},
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

    /// Carries out sends, as many as follow each other, name the same tokens, and have bytes enough for one time that locks are
    /// held: between two messages there is no atomic operation, which would wait until the first one has arrived.
    fn send(&mut self) -> bool {
        let (qp, peer) = (self.qp, self.peer);
        // With the lock of the receives held, nobody else completes a receive of this queue meanwhile.
        let last = Qp::with_receives(peer, |receives| {
            Cq::with_producer(&peer.receive_cq, |completions| {
                let sink = receives.first_token()?;
                let source = self.requests.with_front(|request| request.source)?;
                match source {
                    Source::Inline { .. } => {
                        peer.domain.with_token(sink, |there| self.send_all(receives, completions, None, there))?
                    }
                    Source::Elements { first, .. } => {
                        let send = |here: &Opened<'_, O>, there: &Opened<'_, O>| {
                            self.send_all(receives, completions, Some(here), there)
                        };
                        qp.domain.with_tokens(first.token, &peer.domain, sink, send)?
                    }
                }
            })
        });
        let Some(Some(done)) = last else { return false };
        self.complete(Operation::Send, &done, self.requests.known() == 0);
        true
    }

    /// [`Short::send`] with everything locked. What is left to do is the completion of the last one.
    #[inline]
    fn send_all(
        &mut self,
        receives: &mut Receive,
        completions: &mut CqProducer<'_, O>,
        here: Option<&Opened<'_, O>>,
        there: &Opened<'_, O>,
    ) -> Option<Done> {
        let (mut last, mut left) = (None, self.budget.bytes.min(UNDER_LOCKS));
        while self.budget.requests > 0 && self.batch.remaining_capacity() > 1 {
            let sent = self.requests.with_front(|request| {
                if !matches!(request.work, Work::Send { invalidate: None }) || request.length as usize > left {
                    return None;
                }
                let fill = |sink: &Sge| put(request, here, there, &sink.wanted(Access::LocalWrite));
                let context = receives.fill_first(request.length, fill)?;
                Some((context, request.flags.contains(Flags::SOLICIT), Done::of(request)))
            });
            let Some(Some((context, solicited, done))) = sent else { break };
            left -= done.length as usize;
            let bytes = done.length + u32::from(fault::is(Fault::BytesWrong));
            let completion = self.peer.completion(context, Operation::Receive, NtStatus::SUCCESS);
            completions.push(Completion { bytes, solicited, ..completion });
            self.take(Operation::Send, &done);
            // The last one's own completion may come at once, after that of the receive.
            if let Some(done) = last.replace(done) {
                self.complete(Operation::Send, &done, false);
            }
        }
        last
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
                    (Operation::Write, write(qp, peer, request, &there))
                }
                Work::Read { address, token } if !request.flags.contains(Flags::LOCAL_INVALIDATE) => {
                    let there = Wanted { token, address, length: request.length, access: Access::RemoteRead };
                    (Operation::Read, read(qp, peer, request, &there))
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
        let is_silent = request.flags.contains(Flags::SILENT_SUCCESS);
        Self { context: request.context, length: request.length, is_silent }
    }
}

/// Copies the bytes of a request, which are inline or `here`, to the peer. `sink` has room for them.
#[inline]
fn put<O: Os>(request: &Request, here: Option<&Opened<'_, O>>, there: &Opened<'_, O>, sink: &Wanted) -> bool {
    let length = request.length as usize;
    let Some((to, at)) = there.find(sink) else { return false };
    match (&request.source, here) {
        (Source::Inline { first }, _) if length <= HERE => to.write(at, &first.bytes().as_flattened()[..length]),
        (Source::Elements { count: 1, first }, Some(here)) => {
            let Some((from, start)) = here.find(&first.wanted(Access::LocalRead)) else { return false };
            to.copy_from(at, from, start, length);
        }
        _ => return false,
    }
    true
}

/// Copies the bytes of a write.
#[inline]
fn write<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    match &request.source {
        Source::Inline { .. } if request.length > 0 => {
            peer.domain.with_token(there.token, |opened| put(request, None, opened, there)) == Some(true)
        }
        Source::Elements { count: 1, first } => {
            let (here, length) = (first.wanted(Access::LocalRead), request.length as usize);
            copy(qp, peer, &here, there, |(from, start), (to, at)| to.copy_from(at, from, start, length))
        }
        Source::Inline { .. } | Source::Elements { .. } => false,
    }
}

/// Copies the bytes of a read.
#[inline]
fn read<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    let Source::Elements { count: 1, first } = &request.source else { return false };
    let (here, length) = (first.wanted(Access::ReadSink), request.length as usize);
    copy(qp, peer, &here, there, |(to, at), (from, start)| to.copy_from(at, from, start, length))
}

/// Memory, and where in it bytes begin.
type At<'a, O> = (&'a <O as Os>::Memory, usize);

/// Finds the bytes of both sides for `copy`: of a short request with the tokens locked, of others with references to the bytes.
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request then stays in registers")]
fn copy<O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    here: &Wanted,
    there: &Wanted,
    copy: impl FnOnce(At<'_, O>, At<'_, O>),
) -> bool {
    if there.length == 0 {
        return false;
    }
    if there.length as usize <= UNDER_LOCKS {
        let both = qp.domain.with_tokens(here.token, &peer.domain, there.token, |my, their| {
            copy(my.find(here)?, their.find(there)?);
            Some(())
        });
        return both.flatten().is_some();
    }
    let found = [(&peer.domain, there), (&qp.domain, here)]
        .map(|(domain, wanted)| domain.resolve(wanted.token, wanted.address, wanted.length, wanted.access));
    let [Ok(remote), Ok(local)] = &found else { return false };
    let (to, from) = if there.access == Access::RemoteRead { (local, remote) } else { (remote, local) };
    transfer(slice::from_ref(to), 0, slice::from_ref(from), 0, there.length as usize);
    true
}
