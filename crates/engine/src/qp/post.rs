//! The consumer's ends of a queue pair.

use fallible::Shared;
use ndkpi::NtStatus;

use super::{
    Few, Flags, OnePiece, Qp, QpParameters, Sge, Work,
    receive::Receive,
    request::{CHUNK, Chunk, HERE, Here, ReceiveRequest, Request, Source, chunks_for},
    transmit::Transmit,
};
use crate::{
    fault::{self, Fault},
    memory_status,
    nic::DIRECT_TURN,
    os::Os,
    ring::{self, Producer, TailPublisher},
    sync::Ordering,
};

/// Receives that are posted before the place of one is needed that is fetched now.
const SOON: u64 = 8;

/// The largest queue of elements or inline pieces.
const MAX_RING: u64 = 1 << 28;

/// Makes a queue of `depth` requests with up to `each` entries to a request.
pub(super) fn ring_for<T: Copy + Send>(depth: u32, each: u32) -> Result<(Producer<T>, ring::Consumer<T>), NtStatus> {
    let entries = (u64::from(depth) * u64::from(each)).min(MAX_RING);
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    ring::try_new(entries, 0).map_err(memory_status)
}

/// Puts all elements but the first into their queue. The first, if there is one, and the bytes of all.
///
/// # Errors
///
/// `STATUS_BUFFER_OVERFLOW` if these are more than `most`; the queue is as it was then.
#[inline]
pub(super) fn push_elements(
    queue: &mut Producer<Sge>,
    mut elements: impl Iterator<Item = Sge>,
    most: u32,
) -> Result<(Sge, u32), NtStatus> {
    let first = elements.next().unwrap_or_default();
    let mut length = first.length;
    if length > most {
        return Err(NtStatus::BUFFER_OVERFLOW);
    }
    let mut others = 0_u32;
    for element in elements {
        let longer = length.checked_add(element.length).filter(|longer| *longer <= most);
        let Some(longer) = longer else {
            queue.retract();
            return Err(NtStatus::BUFFER_OVERFLOW);
        };
        length = longer;
        if !queue.push(element) {
            queue.retract();
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        others += 1;
    }
    if others > 0 {
        queue.publish();
    }
    Ok((first, length))
}

pub(super) struct InitiatorQueue {
    requests: Producer<Request>,
    elements: Producer<Sge>,
    chunks: Producer<Chunk>,
    limits: Limits,
}

struct Limits {
    elements: u32,
    inline: u32,
    transfer: u32,
}

impl Limits {
    /// How many inline bytes a request may have.
    #[inline]
    fn inline_bytes(&self) -> u32 {
        self.inline.min(self.transfer)
    }
}

/// The initiator queue that `parameters` ask for: the end to post to, and the end of the engine under its lock.
#[inline(never)]
pub(super) fn initiator_queue<O: Os>(
    os: &O,
    parameters: &QpParameters,
) -> Result<(InitiatorQueue, O::Lock<Transmit<O>>), NtStatus> {
    let depth = parameters.initiator_depth;
    let (requests, taken_requests) = ring_for(depth, 1)?;
    let (elements, taken_elements) = ring_for(depth, parameters.max_initiator_sge.saturating_sub(1))?;
    let chunks = u32::try_from(chunks_for(parameters.inline_size as usize)).unwrap_or(u32::MAX);
    let (chunks, taken_chunks) = ring_for(depth, chunks)?;
    let limits = Limits {
        elements: parameters.max_initiator_sge,
        inline: parameters.inline_size,
        transfer: parameters.max_transfer,
    };
    let transmit = os.lock(Transmit::try_new(taken_requests, taken_elements, taken_chunks, parameters)?)?;
    Ok((InitiatorQueue { requests, elements, chunks, limits }, transmit))
}

impl InitiatorQueue {
    pub(super) fn tail_publisher(&self) -> TailPublisher {
        self.requests.tail_publisher()
    }

    pub(super) fn of<O: Os>(self, qp: &Shared<Qp<O>>) -> Initiator<O> {
        Initiator { qp: qp.clone(), queue: self, deferred: false }
    }
}

/// Takes the inline bytes of `parts`: the first for the request, the others in their queue, and how many there are.
#[inline(never)]
fn push_inline<'a>(
    queue: &mut Producer<Chunk>,
    parts: impl Iterator<Item = &'a [u8]>,
    most: u32,
) -> Result<(Here, u32), NtStatus> {
    let (mut first, mut length, most) = ([0; HERE], 0_usize, most as usize);
    let mut chunk: Chunk = [0; CHUNK];
    for part in parts {
        if part.len() > most - length {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        let (now, mut rest) = part.split_at(part.len().min(HERE.saturating_sub(length)));
        if !now.is_empty() {
            first[length..][..now.len()].copy_from_slice(now);
            length += now.len();
        }
        while !rest.is_empty() {
            let filled = (length - HERE) % CHUNK;
            let (now, later) = rest.split_at(rest.len().min(CHUNK - filled));
            chunk[filled..][..now.len()].copy_from_slice(now);
            length += now.len();
            rest = later;
            if filled + now.len() == CHUNK && !queue.push(chunk) {
                return Err(NtStatus::NO_MORE_ENTRIES);
            }
        }
    }
    if length > HERE {
        if !(length - HERE).is_multiple_of(CHUNK) && !queue.push(chunk) {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        queue.publish();
    }
    // At most `most`, a u32.
    Ok((Here::of(&first), u32::try_from(length).unwrap_or(u32::MAX)))
}

/// A post that is decided but has no effect yet. [`Qp::initiate`] or [`Qp::receive`] gives it one.
///
/// The two steps keep apart what the poster owns and what others see. As soon as a request is published it may complete, and
/// the consumer, called back, may post the next one, although the function that posted this one has not returned. By then
/// nothing of the poster's end is in use any more.
///
/// As large as two registers: as such it goes from step to step.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Prepared {
    /// Up to where requests are to be published, if the post was accepted.
    tail: u64,
    /// Whether it was.
    status: NtStatus,
    bell: Bell,
}

/// Whether a post rings the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bell {
    /// No: there is nothing new to do, or it is left for a later post.
    No,
    /// Yes, and the requests may be carried out in the post.
    Here,
    /// Yes.
    Yes,
}

impl Prepared {
    const fn refused(status: NtStatus) -> Self {
        Self { tail: 0, status, bell: Bell::No }
    }

    /// Whether nothing will be posted.
    #[must_use]
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.status != NtStatus::SUCCESS
    }

    #[inline]
    fn result(&self) -> Result<(), NtStatus> {
        if self.is_refused() { Err(self.status) } else { Ok(()) }
    }
}

/// The consumer's end of an initiator queue: exactly one exists.
pub struct Initiator<O: Os> {
    qp: Shared<Qp<O>>,
    queue: InitiatorQueue,
    /// Requests were posted without ringing the doorbell.
    deferred: bool,
}

impl<O: Os> Initiator<O> {
    /// The queue pair.
    #[must_use]
    pub const fn qp(&self) -> &Shared<Qp<O>> {
        &self.qp
    }

    /// Posts a request whose local bytes are named by `elements` (`NDKPI 7.3`). Its outcome is a completion.
    ///
    /// # Errors
    ///
    /// Nothing is posted then, and everything deferred before is on its way.
    ///
    /// - `STATUS_CONNECTION_INVALID`: the queue pair is not connected.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: a read, on a connection whose outbound read limit is zero.
    /// - `STATUS_NO_MORE_ENTRIES`: the queue is full.
    /// - `STATUS_DATA_OVERRUN`: too many elements.
    /// - `STATUS_BUFFER_OVERFLOW`: more bytes than one request may have.
    pub fn post(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        mut elements: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), NtStatus> {
        if elements.len() == 1
            && let Some(element) = elements.next()
        {
            return self.post_one(context, work, flags, element);
        }
        let prepared = self.prepare(context, work, flags, elements);
        Qp::initiate(&self.qp, prepared)
    }

    /// The first step of [`Initiator::post`].
    pub fn prepare(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        elements: impl ExactSizeIterator<Item = Sge>,
    ) -> Prepared {
        let result = self.try_post(context, work, flags, elements);
        self.settle(result, flags)
    }

    fn try_post(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        elements: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<u32, NtStatus> {
        let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
        self.check_elements(work, count)?;
        self.check_room()?;
        let (first, length) = push_elements(&mut self.queue.elements, elements, self.queue.limits.transfer)?;
        self.push(Request { context, work, flags, length, source: Source::Elements { count, first } });
        Ok(length)
    }

    /// Posts a request that carries the bytes of `parts` itself: they are taken before the call returns.
    ///
    /// # Errors
    ///
    /// As [`Initiator::post`], and `STATUS_INVALID_BUFFER_SIZE` if there are more bytes than the queue pair's inline size.
    pub fn post_inline<'a>(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        parts: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), NtStatus> {
        if parts.len() == 1
            && let Some(few) = parts.clone().next().and_then(Few::of)
        {
            return self.post_one(context, work, flags, few);
        }
        let prepared = self.prepare_inline(context, work, flags, parts);
        Qp::initiate(&self.qp, prepared)
    }

    /// The first step of [`Initiator::post_inline`].
    pub fn prepare_inline<'a>(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Prepared {
        let result = self.try_post_inline(context, work, flags, parts);
        self.settle(result, flags)
    }

    fn try_post_inline<'a>(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u32, NtStatus> {
        self.check_connected()?;
        self.check_room()?;
        let chunks = &mut self.queue.chunks;
        let taken = push_inline(chunks, parts, self.queue.limits.inline_bytes());
        let (first, length) = taken.inspect_err(|_| chunks.retract())?;
        self.push(Request { context, work, flags, length, source: Source::Inline { first } });
        Ok(length)
    }

    /// Posts a request whose local bytes are in one piece, or carries it out.
    fn post_one(&mut self, context: usize, work: Work, flags: Flags, local: impl OnePiece) -> Result<(), NtStatus> {
        if self.carry_out_alone(context, work, flags, local) {
            return Ok(());
        }
        let prepared = self.prepare_one(context, work, flags, local);
        Qp::initiate(&self.qp, prepared)
    }

    /// The first step of [`Initiator::post`] or [`Initiator::post_inline`], if the local bytes are in one piece and the request
    /// [has to be posted](Qp::send_alone).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: what is known of the request stays in registers")]
    pub fn prepare_one(&mut self, context: usize, work: Work, flags: Flags, local: impl OnePiece) -> Prepared {
        let result = self.try_post_one(context, work, flags, local);
        self.settle(result, flags)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `prepare_one`")]
    fn try_post_one<L: OnePiece>(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        local: L,
    ) -> Result<u32, NtStatus> {
        if L::IS_INLINE {
            self.check_connected()?;
        } else {
            self.check_elements(work, 1)?;
        }
        self.check_room()?;
        let limits = &self.queue.limits;
        let (most, status) = if L::IS_INLINE {
            (limits.inline_bytes(), NtStatus::INVALID_BUFFER_SIZE)
        } else {
            (limits.transfer, NtStatus::BUFFER_OVERFLOW)
        };
        let length = local.length();
        if length > most {
            return Err(status);
        }
        self.push(Request { context, work, flags, length, source: local.source() });
        Ok(length)
    }

    /// Whether the request was carried out without being posted.
    fn carry_out_alone(&self, context: usize, work: Work, flags: Flags, local: impl OnePiece) -> bool {
        match work {
            _ if flags.contains(Flags::DEFER) => false,
            Work::Send { invalidate: None } => Qp::send_alone(&self.qp, context, flags, local),
            Work::Write { address, token } => Qp::write_alone(&self.qp, context, (address, token), flags, local),
            Work::Read { address, token } => Qp::read_alone(&self.qp, context, (address, token), flags, local),
            _ => false,
        }
    }

    /// Whether a post can succeed, for requests that have to be prepared first; `is_valid` is what the caller knows.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if it is not valid; `STATUS_CONNECTION_INVALID` and `STATUS_NO_MORE_ENTRIES` as
    /// [`Initiator::post`].
    pub fn check(&mut self, is_valid: bool) -> Result<(), NtStatus> {
        if !is_valid {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.check_connected()?;
        self.check_room()
    }

    #[inline]
    fn check_room(&mut self) -> Result<(), NtStatus> {
        if self.queue.requests.has_room(1) { Ok(()) } else { Err(NtStatus::NO_MORE_ENTRIES) }
    }

    /// Puts a request in the queue, which has room.
    #[inline]
    fn push(&mut self, request: Request) {
        let is_pushed = self.queue.requests.push(request);
        debug_assert!(is_pushed, "there is room");
    }

    /// Whether a request with so many elements can be posted, if there is room for it.
    #[inline]
    fn check_elements(&self, work: Work, count: u32) -> Result<(), NtStatus> {
        self.check_connected()?;
        if matches!(work, Work::Read { .. }) && self.qp.no_reads.load(Ordering::Relaxed) {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        if count > self.queue.limits.elements + u32::from(fault::is(Fault::TooManyElementsAccepted)) {
            return Err(NtStatus::DATA_OVERRUN);
        }
        Ok(())
    }

    #[inline]
    fn check_connected(&self) -> Result<(), NtStatus> {
        let is_connected = self.qp.is_linked() || fault::is(Fault::UnconnectedPostAccepted);
        if is_connected && !self.qp.is_dead() { Ok(()) } else { Err(NtStatus::CONNECTION_INVALID) }
    }

    /// A post that is refused with `status`. What was deferred before it goes on its way (`NDKPI 7.3`): the consumer will not
    /// post the request that would have rung for it.
    pub fn refuse(&mut self, status: NtStatus) -> Prepared {
        let rings = core::mem::take(&mut self.deferred) && !fault::is(Fault::DeferredStaysOnFailure);
        Prepared { bell: if rings { Bell::Yes } else { Bell::No }, ..Prepared::refused(status) }
    }

    /// What a post comes to: the doorbell is rung unless more requests are announced.
    #[inline]
    fn settle(&mut self, result: Result<u32, NtStatus>, flags: Flags) -> Prepared {
        let length = match result {
            Ok(length) => length,
            Err(status) => return self.refuse(status),
        };
        self.deferred = flags.contains(Flags::DEFER);
        let bell = if self.deferred {
            Bell::No
        } else if length as usize <= DIRECT_TURN.bytes {
            Bell::Here
        } else {
            Bell::Yes
        };
        Prepared { tail: self.queue.requests.hand_over(), status: NtStatus::SUCCESS, bell }
    }
}

impl<O: Os> Qp<O> {
    /// The second step of a post to the initiator queue.
    ///
    /// # Errors
    ///
    /// What the first step has found.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: what is known of the request stays in registers")]
    pub fn initiate(this: &Shared<Self>, prepared: Prepared) -> Result<(), NtStatus> {
        if !prepared.is_refused() {
            this.posted.publish(prepared.tail);
        }
        match prepared.bell {
            Bell::No => {}
            Bell::Here => Self::ring_here(this),
            Bell::Yes => Self::ring(this),
        }
        prepared.result()
    }

    /// The second step of a post to the receive queue.
    ///
    /// # Errors
    ///
    /// What the first step has found.
    #[inline]
    pub fn receive(this: &Shared<Self>, prepared: Prepared) -> Result<(), NtStatus> {
        prepared.result()?;
        this.accepted.publish(prepared.tail);
        // Pairs with `Qp::fail` and `Qp::claim`, which exchange the same value: who comes second sees what the first has done. So
        // either they see the receive, or it is seen here that somebody has to be told of it. (A fence would cost twice as much.)
        let is_awaited = this.awaited.swap(false, Ordering::AcqRel);
        if is_awaited || this.is_dead() {
            Self::tell_of_receive(this, is_awaited);
        }
        Ok(())
    }

    /// Rings for a receive that was posted: the peer's doorbell if that waits for it, and this one if it is to be cancelled.
    // Not a part of its caller: the exchange there would wait for the registers that are saved for this.
    #[cold]
    #[inline(never)]
    fn tell_of_receive(this: &Shared<Self>, is_awaited: bool) {
        if is_awaited && let Some(peer) = this.peer() {
            Self::ring(&peer);
        }
        if this.is_dead() {
            Self::ring(this);
        }
    }
}

pub(super) struct ReceiveQueue {
    requests: Producer<ReceiveRequest>,
    elements: Producer<Sge>,
    limits: Limits,
}

/// The receive queue that `parameters` ask for, as [`initiator_queue`].
#[inline(never)]
pub(super) fn receive_queue<O: Os>(
    os: &O,
    parameters: &QpParameters,
) -> Result<(ReceiveQueue, O::Lock<Receive>), NtStatus> {
    let depth = parameters.receive_depth;
    let (requests, taken_requests) = ring_for(depth, 1)?;
    let (elements, taken_elements) = ring_for(depth, parameters.max_receive_sge.saturating_sub(1))?;
    let limits = Limits { elements: parameters.max_receive_sge, inline: 0, transfer: parameters.max_transfer };
    let receive = os.lock(Receive::new(taken_requests, taken_elements))?;
    Ok((ReceiveQueue { requests, elements, limits }, receive))
}

impl ReceiveQueue {
    pub(super) fn tail_publisher(&self) -> TailPublisher {
        self.requests.tail_publisher()
    }

    pub(super) fn of<O: Os>(self, qp: &Shared<Qp<O>>) -> Receiver<O> {
        Receiver { qp: qp.clone(), queue: self }
    }

    fn push(&mut self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
        if count > self.limits.elements {
            return Err(NtStatus::DATA_OVERRUN);
        }
        self.requests.prefetch(SOON);
        if !self.requests.has_room(1) {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        let (first, length) = push_elements(&mut self.elements, elements, self.limits.transfer)?;
        let is_pushed = self.requests.push(ReceiveRequest { context, length, elements: count, first });
        debug_assert!(is_pushed, "there is room");
        Ok(())
    }
}

/// The consumer's end of a receive queue: exactly one exists.
pub struct Receiver<O: Os> {
    qp: Shared<Qp<O>>,
    queue: ReceiveQueue,
}

impl<O: Os> Receiver<O> {
    /// Posts a receive into `elements`, also before the queue pair is connected (`NDKPI 5.7`). Its outcome is a completion.
    ///
    /// # Errors
    ///
    /// Nothing is posted then: `STATUS_NO_MORE_ENTRIES` if the queue is full, `STATUS_DATA_OVERRUN` for too many elements,
    /// `STATUS_BUFFER_OVERFLOW` for more bytes than one request may have.
    pub fn post(&mut self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        let prepared = self.prepare(context, elements);
        Qp::receive(&self.qp, prepared)
    }

    /// The first step of [`Receiver::post`].
    pub fn prepare(&mut self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Prepared {
        match self.queue.push(context, elements) {
            Ok(()) => Prepared { tail: self.queue.requests.hand_over(), status: NtStatus::SUCCESS, bell: Bell::No },
            Err(status) => Prepared::refused(status),
        }
    }
}
