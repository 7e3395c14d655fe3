//! The executor: carries out what is simple, wholly or not at all.
//!
//! Simple are reads, writes and sends whose bytes lie in one piece on both sides. Whatever else a request may be, and whatever may
//! be wrong with it, is left to the slow path ([`super::progress`]), which has the same effects step by step.
//!
//! The executor takes requests from a post of one or from the send queue. Those that it finds one behind the other complete
//! together, so that a consumer on another processor is not kept from its completion queue by every single one: receives with
//! the lock of their completion queue held once, initiator requests in batches, which never outlast a quantum.

use arrayvec::ArrayVec;
use fallible::Arc;

use super::{
    NtStatus, Qp, Work, copy,
    receive_queue::ReceiveQueue,
    request::{Flags, INLINE, LocalData, Sge, WorkRequest},
};
use crate::{
    cq::{Cq, CqProducer, Cqe, Operation},
    memory::{Access, Key, Opened},
    mistake,
    nic::{Budget, Moved},
    os::{Memory, Os},
    ring::Consumer,
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
pub(super) const UNDER_LOCKS: usize = 4096;

/// Completions of initiator requests that are on their way to their queue.
pub(super) type Batch = ArrayVec<Cqe, 8>;

/// Completions of receives that were filled one behind the other. Their cache lines are the receiver's, and are fetched together
/// if they are written together: with other stores in between, each would be waited for alone.
type Received = ArrayVec<Cqe, 32>;

/// Puts the completions of a batch into their queue.
#[inline]
pub(super) fn flush<O: Os>(cq: &Arc<Cq<O>>, batch: &mut Batch) {
    match &batch[..] {
        [] => return,
        [cqe] => Cq::push(cq, *cqe),
        cqes => Cq::push_all(cq, cqes),
    }
    batch.clear();
}

/// Where the executor takes requests from, in their order.
pub(super) trait Requests {
    /// How many there may be at most.
    const MOST: u32;

    /// Gives `work` the request `ahead` places behind the first one; `None` if there is none.
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U>;

    /// The first `count` requests are carried out.
    fn advance(&mut self, count: usize);

    /// Returns true if no other request is known behind those that were carried out.
    fn is_last(&self) -> bool;
}

impl Requests for Consumer<WorkRequest> {
    const MOST: u32 = u32::MAX;

    #[inline]
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        self.with_ahead(ahead, work)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        Self::advance(self, count);
    }

    #[inline]
    fn is_last(&self) -> bool {
        self.known() == 0
    }
}

/// A run of the executor: the queue pairs, and where requests come from and go.
pub(super) struct Execution<'run, O: Os, R> {
    pub qp: &'run Arc<Qp<O>>,
    pub peer: &'run Arc<Qp<O>>,
    pub requests: &'run mut R,
    pub budget: &'run mut Budget,
    pub moved: &'run mut Moved,
    pub batch: &'run mut Batch,
}

impl<O: Os, R: Requests> Execution<'_, O, R> {
    /// Carries out the first request, and perhaps some behind it. `None` if there is none; `false` if nothing has been done: the
    /// first one is not simple.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub fn execute(&mut self) -> Option<bool> {
        // Under locks nothing can be flushed: the completion queue may be the one that is locked.
        if self.batch.remaining_capacity() < 2 {
            flush(&self.qp.initiator_cq, self.batch);
        }
        let is_send = self.requests.with(0, |request| matches!(request.work, Work::Send { invalidate: None }))?;
        Some(if is_send { self.send() } else { self.copy() })
    }

    /// Carries out a read or write.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub fn copy(&mut self) -> bool {
        let (qp, peer, most) = (self.qp, self.peer, self.budget.bytes);
        let done = self.requests.with(0, |request| {
            let is_done = request.length as usize <= most && copy::execute(qp, peer, request);
            is_done.then(|| Done::of(request))
        });
        let Some(Some(done)) = done else { return false };
        self.take(done.operation, 1, done.length as usize);
        // What takes long is not kept back for the sake of what comes after it.
        let is_last = self.requests.is_last() || done.length as usize > UNDER_LOCKS;
        self.complete(&done, is_last);
        true
    }

    /// Carries out sends, as many as follow each other, name the same tokens, and have bytes enough for one time that locks are
    /// held: between two messages there is no atomic operation, which would wait until the first one has arrived.
    // Not a part of its callers, where it would be in the way of reads and writes.
    #[inline(never)]
    pub fn send(&mut self) -> bool {
        let (qp, peer) = (self.qp, self.peer);
        // With the lock of the receives held, nobody else completes a receive of this queue meanwhile.
        let last = Qp::with_receives(peer, |receives| {
            Cq::with_producer(&peer.receive_cq, |completions| {
                let sink = Key { token: receives.first_token()?, access: Access::LocalWrite };
                let source = self.requests.with(0, |request| match &request.data {
                    LocalData::Elements { first, .. } => Some(first.key(Access::LocalRead)),
                    LocalData::Inline(_) => None,
                })?;
                match source {
                    None => {
                        peer.domain.with_token(sink, |remote| self.send_run(receives, completions, None, remote))?
                    }
                    Some(source) => qp.domain.with_tokens(source, &peer.domain, sink, |local, remote| {
                        self.send_run(receives, completions, Some(local), remote)
                    })?,
                }
            })
        });
        let Some(Some(done)) = last else { return false };
        self.complete(&done, self.requests.is_last());
        true
    }

    /// [`Execution::send`] with everything locked. What is left to do is the completion of the last one.
    #[inline]
    fn send_run(
        &mut self,
        receives: &mut ReceiveQueue,
        completions: &mut CqProducer<'_, O>,
        local: Option<&Opened<'_, O>>,
        remote: &Opened<'_, O>,
    ) -> Option<Done> {
        let most = self.budget.bytes.min(UNDER_LOCKS);
        let (mut last, mut sent, mut left) = (None, 0, most);
        let mut received = Received::new();
        while sent < self.budget.requests.min(R::MOST) && self.batch.remaining_capacity() > 1 && !received.is_full() {
            let ahead = sent as usize;
            let done = self.requests.with(ahead, |request| {
                if !matches!(request.work, Work::Send { invalidate: None }) || request.length as usize > left {
                    return None;
                }
                let fill = |sink: &Sge| put(request, local, remote, sink);
                let context = receives.fill(ahead, request.length, fill, |sink| remote.prefetch(sink.address))?;
                received.push(self::received(self.peer, context, request.length, request.flags));
                left -= request.length as usize;
                Some(Done::of(request))
            });
            let Some(Some(done)) = done else { break };
            sent += 1;
            // The last one's own completion comes after that of its receive.
            if let Some(done) = last.replace(done) {
                self.complete(&done, false);
            }
        }
        // The places are free before the consumers can see the completions.
        receives.take_out(sent as usize);
        self.take(Operation::Send, sent, most - left);
        match &received[..] {
            [] => {}
            [cqe] => completions.push(*cqe),
            cqes => completions.push_all(cqes),
        }
        last
    }

    /// The first `count` requests were carried out, of `length` bytes together: takes them out of the queue, before the consumer
    /// can see their completions.
    #[inline]
    fn take(&mut self, operation: Operation, count: u32, length: usize) {
        self.requests.advance(count as usize);
        self.budget.bytes -= length;
        self.budget.requests -= count;
        self.moved.note(operation, count, length);
    }

    /// Completes a request that was taken: in the batch, and with it if this `is_last`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    fn complete(&mut self, done: &Done, is_last: bool) {
        if !done.is_silent {
            let cqe = self.qp.cqe(done.context, done.operation, NtStatus::SUCCESS);
            if is_last && self.batch.is_empty() {
                return Cq::push(&self.qp.initiator_cq, cqe);
            }
            self.batch.push(cqe);
        }
        if is_last {
            flush(&self.qp.initiator_cq, self.batch);
        }
    }
}

/// What is left to know of a request that was carried out.
struct Done {
    context: usize,
    length: u32,
    operation: Operation,
    is_silent: bool,
}

impl Done {
    #[inline]
    fn of(request: &WorkRequest) -> Self {
        let WorkRequest { context, length, .. } = *request;
        let is_silent = is_silent(request.flags, NtStatus::SUCCESS);
        Self { context, length, operation: request.work.operation(), is_silent }
    }
}

/// Returns true if a request with these flags makes no completion when it ends with this status (`NDKPI 2.4`).
#[inline]
pub(super) fn is_silent(flags: Flags, status: NtStatus) -> bool {
    flags.contains(Flags::SILENT_SUCCESS)
        && match status {
            NtStatus::SUCCESS => mistake!(SilentSuccessCompletes => false, else true),
            NtStatus::CANCELLED => mistake!(FlushForgetsSilent => true, else false),
            _ => mistake!(SilentFailureIsSilent => true, else false),
        }
}

/// The completion of a receive that a message of `length` bytes has filled.
#[inline]
pub(super) fn received<O: Os>(peer: &Qp<O>, context: usize, length: u32, flags: Flags) -> Cqe {
    let bytes = mistake!(BytesWrong => length + 1, else length);
    let cqe = peer.cqe(context, Operation::Receive, NtStatus::SUCCESS);
    Cqe { outcome: cqe.outcome.soliciting(flags.contains(Flags::SOLICIT)), bytes, ..cqe }
}

/// Copies the bytes of a send, which are inline or `local`, to the element of a receive, which is `remote` and has room for them.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call for each message of a run")]
fn put<O: Os>(request: &WorkRequest, local: Option<&Opened<'_, O>>, remote: &Opened<'_, O>, sink: &Sge) -> bool {
    let length = request.length as usize;
    let Some((to, at)) = remote.find(sink.token, sink.address, sink.length) else { return false };
    match (&request.data, local) {
        (LocalData::Inline(bytes), _) if length <= INLINE => copy::put_inline((to, at), bytes, length),
        (LocalData::Elements { count: 1, first }, Some(local)) => {
            let Some((from, start)) = local.find(first.token, first.address, first.length) else { return false };
            to.copy_from(at, from, start, length);
        }
        _ => return false,
    }
    true
}
