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
    Flags, Qp, Work,
    receive::Receive,
    request::{HERE, Here, Request, Sge, Source},
};
use crate::{
    cq::{Cq, CqProducer, Cqe, Operation},
    fault::{self, Fault},
    memory::{Access, Key, Lookup, MOST_BY_CACHE, Opened, Side},
    nic::{Budget, Moved},
    os::{Memory, Os},
    ring::Consumer,
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
const UNDER_LOCKS: usize = 4096;

/// Completions of initiator requests that are on their way to their queue.
pub(super) type Batch = ArrayVec<Cqe, 8>;

/// Completions of receives that were filled one behind the other. They lie in lines of the other side's processor, and these are
/// fetched together if they are written together: with other stores in between, each line would be waited for alone.
type Received = ArrayVec<Cqe, 32>;

/// Puts the completions of a batch into their queue.
#[inline]
pub(super) fn push<O: Os>(cq: &Shared<Cq<O>>, batch: &mut Batch) {
    if !batch.is_empty() {
        Cq::push_all(cq, batch);
        batch.clear();
    }
}

/// The queue pairs of a turn, and where requests go that were carried out.
pub(super) struct Short<'turn, O: Os> {
    pub qp: &'turn Shared<Qp<O>>,
    pub peer: &'turn Shared<Qp<O>>,
    pub requests: &'turn mut Consumer<Request>,
    pub budget: &'turn mut Budget,
    pub moved: &'turn mut Moved,
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
        let is_send = self.requests.with_ahead(0, |request| matches!(request.work, Work::Send { invalidate: None }))?;
        Some(if is_send { self.send() } else { self.copy() })
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

    /// Completes a request that was taken, unless its consumer wants to know failures only: in the batch, or if it is to be seen
    /// `at_once` and the batch has no other, in its queue.
    #[inline]
    fn complete(&mut self, operation: Operation, done: &Done, at_once: bool) {
        if done.is_silent && !fault::is(Fault::SilentSuccessCompletes) {
            return;
        }
        let completion = self.qp.completion(done.context, operation, NtStatus::SUCCESS);
        if at_once && self.batch.is_empty() {
            Cq::push(&self.qp.initiator_cq, completion);
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
                let sink = Key { token: receives.first_token()?, access: Access::LocalWrite };
                let source = self.requests.with_ahead(0, |request| match &request.source {
                    Source::Elements { first, .. } => Some(first.key(Access::LocalRead)),
                    Source::Inline { .. } => None,
                })?;
                match source {
                    None => peer.domain.with_token(sink, |there| self.send_all(receives, completions, None, there))?,
                    Some(source) => {
                        let send = |here: &Opened<'_, O>, there: &Opened<'_, O>| {
                            self.send_all(receives, completions, Some(here), there)
                        };
                        qp.domain.with_tokens(source, &peer.domain, sink, send)?
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
        let most = self.budget.bytes.min(UNDER_LOCKS);
        let (mut last, mut sent, mut left) = (None, 0, most);
        let mut received = Received::new();
        while sent < self.budget.requests && self.batch.remaining_capacity() > 1 && !received.is_full() {
            let ahead = sent as usize;
            let done = self.requests.with_ahead(ahead, |request| {
                if !matches!(request.work, Work::Send { invalidate: None }) || request.length as usize > left {
                    return None;
                }
                let fill = |sink: &Sge| put(request, here, there, sink);
                let context = receives.fill(ahead, request.length, fill, |sink| there.prefetch(sink.address))?;
                received.push(self::received(self.peer, context, request.length, request.flags));
                left -= request.length as usize;
                Some(Done::of(request))
            });
            let Some(Some(done)) = done else { break };
            sent += 1;
            // The last one's own completion may come at once, after that of the receive.
            if let Some(done) = last.replace(done) {
                self.complete(Operation::Send, &done, false);
            }
        }
        // The places are free before the consumer can see the completions.
        receives.take_out(sent as usize);
        if !received.is_empty() {
            completions.push_all(&received);
        }
        self.take(Operation::Send, sent, most - left);
        last
    }

    /// Carries out a read or write.
    #[inline]
    fn copy(&mut self) -> bool {
        let (qp, peer, most) = (self.qp, self.peer, self.budget.bytes);
        let done = self.requests.with_ahead(0, |request| {
            if request.length as usize > most {
                return None;
            }
            copy(qp, peer, request).map(|operation| (operation, Done::of(request)))
        });
        let Some(Some((operation, done))) = done else { return false };
        // What takes long is not kept back for the sake of what comes after it.
        self.take(operation, 1, done.length as usize);
        let at_once = self.requests.known() == 0 || done.length as usize > UNDER_LOCKS;
        self.complete(operation, &done, at_once);
        if at_once {
            push(&self.qp.initiator_cq, self.batch);
        }
        true
    }
}

/// The completion of a receive that a message of `length` bytes has filled.
#[inline]
fn received<O: Os>(peer: &Qp<O>, context: usize, length: u32, flags: Flags) -> Cqe {
    let bytes = length + u32::from(fault::is(Fault::BytesWrong));
    let completion = peer.completion(context, Operation::Receive, NtStatus::SUCCESS);
    Cqe { outcome: completion.outcome.soliciting(flags.contains(Flags::SOLICIT)), bytes, ..completion }
}

/// The peer's first receive, and where it completes, both locked.
struct First<'a, 'cq, O: Os> {
    peer: &'a Qp<O>,
    receives: &'a mut Receive,
    completions: &'a mut CqProducer<'cq, O>,
}

impl<O: Os> First<'_, '_, O> {
    /// Fills the receive, whose memory is `there`, with a message of `length` bytes, which `put` puts where it is told. `None` if
    /// something is wrong with the receive: then nothing has been done.
    #[inline]
    fn fill(self, there: &Opened<'_, O>, length: u32, flags: Flags, put: impl FnOnce(At<'_, O>)) -> Option<()> {
        let fill = |sink: &Sge| there.find(sink.token, sink.address, sink.length).map(put).is_some();
        let context = self.receives.fill(0, length, fill, |sink| there.prefetch(sink.address))?;
        // The place is free before the consumer can see the completion.
        self.receives.take_out(1);
        self.completions.push(received(self.peer, context, length, flags));
        Some(())
    }
}

/// Lets `work` fill the peer's first receive, which has one element. `work` gets the token of that, and says whether it has done so.
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request stays in registers")]
fn with_first<O: Os>(peer: &Shared<Qp<O>>, work: impl FnOnce(Key, First<'_, '_, O>) -> Option<()>) -> bool {
    let done = Qp::with_receives(peer, |receives| {
        Cq::with_producer(&peer.receive_cq, |completions| {
            let sink = Key { token: receives.first_token()?, access: Access::LocalWrite };
            work(sink, First { peer, receives, completions })
        })
    });
    done.flatten().is_some()
}

/// Sends `length` inline bytes to the peer's first receive.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `with_first`")]
pub(super) fn send_inline<O: Os>(peer: &Shared<Qp<O>>, bytes: Here, length: u32, flags: Flags) -> bool {
    let put = |at: At<'_, O>| put_inline(at, &bytes, length as usize);
    with_first(peer, |sink, first| peer.domain.with_token(sink, |there| first.fill(there, length, flags, put))?)
}

/// Sends the bytes of `element` to the peer's first receive.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `with_first`")]
pub(super) fn send_element<O: Os>(qp: &Qp<O>, peer: &Shared<Qp<O>>, element: Sge, flags: Flags) -> bool {
    if element.length as usize > UNDER_LOCKS {
        return false;
    }
    with_first(peer, |sink, first| {
        qp.domain.with_tokens(element.key(Access::LocalRead), &peer.domain, sink, |here, there| {
            let (from, start) = here.locate(element.address, element.length)?;
            let put = |(to, at): At<'_, O>| to.copy_from(at, from, start, element.length as usize);
            first.fill(there, element.length, flags, put)
        })?
    })
}

/// Writes `length` inline bytes to the peer's at `address`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `with_first`")]
pub(super) fn write_inline<O: Os>(peer: &Qp<O>, bytes: Here, length: u32, (address, token): (u64, u32)) -> bool {
    let written = peer.domain.with_token(Key { token, access: Access::RemoteWrite }, |there| {
        put_inline(there.locate(address, length)?, &bytes, length as usize);
        Some(())
    });
    written.flatten().is_some()
}

/// Copies the bytes of a request, if it is a read or write of bytes that lie in one piece on both sides and nothing is wrong with it.
/// Which of the two it is.
#[inline]
fn copy<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request) -> Option<Operation> {
    let (operation, is_done) = match request.work {
        Work::Write { address, token } => (Operation::Write, write(qp, peer, request, (address, token))),
        Work::Read { address, token } if !request.flags.contains(Flags::LOCAL_INVALIDATE) => {
            (Operation::Read, read(qp, peer, request, (address, token)))
        }
        _ => return None,
    };
    is_done.then_some(operation)
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

/// Copies the bytes of a send, which are inline or `here`, to the element of a receive, which is `there` and has room for them.
#[inline]
fn put<O: Os>(request: &Request, here: Option<&Opened<'_, O>>, there: &Opened<'_, O>, sink: &Sge) -> bool {
    let length = request.length as usize;
    let Some((to, at)) = there.find(sink.token, sink.address, sink.length) else { return false };
    match (&request.source, here) {
        (Source::Inline { first }, _) if length <= HERE => put_inline((to, at), first, length),
        (Source::Elements { count: 1, first }, Some(here)) => {
            let Some((from, start)) = here.find(first.token, first.address, first.length) else { return false };
            to.copy_from(at, from, start, length);
        }
        _ => return false,
    }
    true
}

/// Writes the first `length` of inline bytes. If these are one word, it is known here how many they are, and they are stored
/// without a call of the copy routine.
#[inline]
fn put_inline<M: Memory>((to, at): (&M, usize), bytes: &Here, length: usize) {
    let words = bytes.bytes();
    if length == words[0].len() {
        to.write(at, &words[0]);
    } else {
        to.write(at, &words.as_flattened()[..length]);
    }
}

/// Copies the bytes of a write.
#[inline]
fn write<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, at: (u64, u32)) -> bool {
    match &request.source {
        Source::Inline { first } if (1..=HERE).contains(&(request.length as usize)) => {
            write_inline(peer, *first, request.length, at)
        }
        Source::Elements { count: 1, first } => copy_element::<Write, false, O>(qp, peer, *first, at),
        Source::Inline { .. } | Source::Elements { .. } => false,
    }
}

/// Copies the bytes of a read.
#[inline]
fn read<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, at: (u64, u32)) -> bool {
    let Source::Elements { count: 1, first } = &request.source else { return false };
    copy_element::<Read, false, O>(qp, peer, *first, at)
}

/// Memory, and where in it bytes begin.
type At<'a, O> = (&'a <O as Os>::Memory, usize);

/// Which of two requests it is that copies: a type, so that all it means is known where the copy is compiled.
pub(super) trait Direction {
    /// What it does with the bytes of its own side.
    const MINE: Access;
    /// What it does with the peer's.
    const THEIRS: Access;

    /// Copies `length` bytes.
    fn copy<O: Os>(mine: At<'_, O>, theirs: At<'_, O>, length: usize);
}

/// To the peer.
pub(super) struct Write;

/// From the peer.
pub(super) struct Read;

impl Direction for Write {
    const MINE: Access = Access::LocalRead;
    const THEIRS: Access = Access::RemoteWrite;

    #[inline]
    fn copy<O: Os>((from, start): At<'_, O>, (to, at): At<'_, O>, length: usize) {
        to.copy_from(at, from, start, length);
    }
}

impl Direction for Read {
    const MINE: Access = Access::ReadSink;
    const THEIRS: Access = Access::RemoteRead;

    #[inline]
    fn copy<O: Os>((to, at): At<'_, O>, (from, start): At<'_, O>, length: usize) {
        to.copy_from(at, from, start, length);
    }
}

/// Copies between the bytes of `element` and the peer's `at` an address, of a token, if both lie in one piece and nothing is wrong with
/// them: found by the queue pair's cache or by the table of tokens. Whether that is done.
///
/// A post (`IN_POST`) and a turn of the NIC have code of their own for it: of one for both, the post would make a call, with all it
/// knows of the request in memory (counted: 55 instructions).
#[inline(always)]
#[expect(clippy::inline_always, reason = "counted: what is known of the request stays in registers")]
pub(super) fn copy_element<D: Direction, const IN_POST: bool, O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    element: Sge,
    at: (u64, u32),
) -> bool {
    if element.length > MOST_BY_CACHE {
        return copy_with_references::<D, O>(qp, peer, element, at);
    }
    let (mine, theirs) = keys::<D>(element, at);
    let copied = |mine: At<'_, O>, theirs: At<'_, O>| {
        D::copy::<O>(mine, theirs, element.length as usize);
    };
    match qp.translations.with_both((mine, element.address), (theirs, at.0), element.length, copied) {
        Lookup::Hit(()) => true,
        Lookup::Miss { is_due } => copy_by_table::<D, O>(qp, peer, element, at, is_due),
    }
}

/// Both tokens of a copy, and what they are used for.
#[inline]
const fn keys<D: Direction>(element: Sge, (_, token): (u64, u32)) -> (Key, Key) {
    (element.key(D::MINE), Key { token, access: D::THEIRS })
}

/// [`copy_element`] by the table of tokens: short ones with the tokens locked, others with references to the bytes. Afterwards the
/// tokens are put into the cache if that `is_due`.
#[inline(never)]
fn copy_by_table<D: Direction, O: Os>(qp: &Qp<O>, peer: &Qp<O>, element: Sge, at: (u64, u32), is_due: bool) -> bool {
    let (mine, theirs) = keys::<D>(element, at);
    let is_done = if element.length as usize > UNDER_LOCKS {
        copy_with_references::<D, O>(qp, peer, element, at)
    } else {
        let both = qp.domain.with_tokens(mine, &peer.domain, theirs, |my, their| {
            let bytes = my.locate(element.address, element.length)?;
            D::copy::<O>(bytes, their.locate(at.0, element.length)?, element.length as usize);
            Some(())
        });
        both.flatten().is_some()
    };
    if is_due {
        qp.domain.cache(&qp.translations, Side::Mine, mine);
        peer.domain.cache(&qp.translations, Side::Theirs, theirs);
    }
    is_done
}

/// [`copy_element`] with references to the bytes.
#[inline(never)]
fn copy_with_references<D: Direction, O: Os>(qp: &Qp<O>, peer: &Qp<O>, element: Sge, at: (u64, u32)) -> bool {
    let (mine, theirs) = keys::<D>(element, at);
    // Not a value of the call: on its way out it would be copied by loads that are wider than the stores before.
    let mut held = [None, None];
    let _ = qp.domain.with_tokens(mine, &peer.domain, theirs, |my, their| {
        held = [my.hold(element.address, element.length), their.hold(at.0, element.length)];
    });
    let [Some(mine), Some(theirs)] = held.each_ref().map(|piece| piece.as_ref()?.range()) else { return false };
    D::copy::<O>(mine, theirs, element.length as usize);
    true
}
