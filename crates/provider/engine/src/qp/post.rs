//! Posting to the send queue.
//!
//! As soon as a request is published it may complete, and the consumer's callback may post the next one before the post of this
//! one has returned. So a post is lent the poster's end of the queue ([`Lend`]), and gives it back before it publishes.
//!
//! If the NIC carries requests out in posts ([`NicMode::Direct`](crate::nic::NicMode::Direct)) and the queue is empty, a request
//! passes the queue by and goes to the executor. If it is not simple it is posted like any other.

use core::{iter, mem};

use bitflags::bitflags;
use fallible::Arc;

use super::{
    NtStatus, Qp,
    execute::Execution,
    lend::Lend,
    request::{CHUNK, Chunk, INLINE, InlineData, LocalData, Sge, Work, WorkRequest},
};
use crate::{
    nic::Budget,
    os::{Os, SpinLock},
    ring::Producer,
    sync::Ordering,
};

/// What a queue pair may do in a post of its consumer.
pub const DIRECT_QUANTUM: Budget = Budget { bytes: 256 << 10, requests: 64 };

bitflags! {
    /// How a request is to be carried out.
    ///
    /// One word, which a post stores and loads as a whole.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Success makes no completion; failure does.
        const SILENT_SUCCESS = 1 << 0;
        /// Does not begin before all earlier reads of the queue pair are complete. Always so, because requests of a queue are
        /// carried out one after the other.
        const READ_FENCE = 1 << 1;
        /// The receiver's completion counts as solicited.
        const SOLICIT = 1 << 2;
        /// More requests follow: the doorbell may wait for them.
        const DEFER = 1 << 9;
        /// A read that succeeds invalidates the token of its first element.
        const LOCAL_INVALIDATE = 1 << 8;
    }
}

impl Flags {
    //= NDKPI 7.3.4
    /// Returns true if a request with these flags makes no completion when it ends with this status (`NDKPI 2.4`).
    #[inline]
    pub(super) fn are_silent(self, status: NtStatus) -> bool {
        self.contains(Self::SILENT_SUCCESS) && status == NtStatus::SUCCESS
    }
}

//= NDKPI 7.3.3
/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements.
    pub elements: u32,
    /// Inline bytes.
    pub inline: u32,
    /// Bytes.
    pub transfer: u32,
}

impl Limits {
    /// How many inline bytes a request may have.
    #[inline]
    pub fn inline_bytes(&self) -> u32 {
        self.inline.min(self.transfer)
    }

    /// Checks a number of elements.
    ///
    /// # Errors
    ///
    /// `STATUS_DATA_OVERRUN` if they are too many.
    #[inline]
    pub fn check_count(&self, elements: usize) -> Result<u32, NtStatus> {
        u32::try_from(elements).ok().filter(|count| *count <= self.elements).ok_or(NtStatus::DATA_OVERRUN)
    }
}

/// The poster's end of a send queue: exactly one exists. For [`Qp::post`].
pub struct SqProducer {
    pub(super) requests: Producer<WorkRequest>,
    pub(super) elements: Producer<Sge>,
    pub(super) chunks: Producer<Chunk>,
    /// Requests were posted without ringing the doorbell.
    pub(super) deferred: bool,
}

/// A scatter/gather list.
pub trait Elements: ExactSizeIterator<Item = Sge> + Clone {}

impl<T: ExactSizeIterator<Item = Sge> + Clone> Elements for T {}

/// Bytes in any number of parts.
pub trait Parts: ExactSizeIterator<Item: AsRef<[u8]>> + Clone {}

impl<T: ExactSizeIterator<Item: AsRef<[u8]>> + Clone> Parts for T {}

/// The local bytes of a request that is being posted.
#[derive(Clone, Debug)]
pub enum Payload<E, P> {
    /// Registered memory, named by a list of elements.
    Elements(E),
    /// Bytes that the request carries itself. They are taken before the post returns.
    Inline(P),
}

impl<E: Elements> Payload<E, iter::Empty<&'static [u8]>> {
    /// Registered memory, where it is never anything else.
    pub const fn of_elements(elements: E) -> Self {
        Self::Elements(elements)
    }
}

impl<P: Parts> Payload<iter::Empty<Sge>, P> {
    /// Inline bytes, where it is never anything else.
    pub const fn of_parts(parts: P) -> Self {
        Self::Inline(parts)
    }
}

impl<E: Elements, P: Parts> Payload<E, P> {
    /// The data and its length, if it fits into the request itself and is within the limits: a single element, or few inline bytes
    /// in one part.
    #[inline]
    fn single(&self, limits: &Limits) -> Option<(LocalData, u32)> {
        match self {
            Self::Elements(list) => {
                let first = if list.len() == 1 { list.clone().next() } else { None }?;
                let fits = limits.elements > 0 && first.length <= limits.transfer;
                fits.then_some((LocalData::Elements { count: 1, first }, first.length))
            }
            Self::Inline(parts) => {
                let only = if parts.len() == 1 { parts.clone().next() } else { None }?;
                let only = only.as_ref();
                let length = u32::try_from(only.len()).ok()?;
                let fits = only.len() <= INLINE && length <= limits.inline_bytes();
                fits.then(|| (LocalData::Inline(InlineData::new(only)), length))
            }
        }
    }

    /// Pushes the data that does not fit into the request. Returns the data of the request, and the length of all.
    ///
    /// # Errors
    ///
    /// The queues are unchanged then. `STATUS_DATA_OVERRUN` for too many elements, `STATUS_BUFFER_OVERFLOW` or, if they are
    /// inline, `STATUS_INVALID_BUFFER_SIZE` for too many bytes.
    #[cold]
    #[inline(never)]
    fn push(
        self,
        elements: &mut Producer<Sge>,
        chunks: &mut Producer<Chunk>,
        limits: &Limits,
    ) -> Result<(LocalData, u32), NtStatus> {
        match self {
            Self::Elements(list) => {
                let count = limits.check_count(list.len())?;
                let (first, length) = push_elements(elements, list, limits.transfer)?;
                Ok((LocalData::Elements { count, first }, length))
            }
            Self::Inline(parts) => {
                let taken = push_inline(chunks, parts, limits.inline_bytes());
                let (first, length) = taken.inspect_err(|_| chunks.retract())?;
                Ok((LocalData::Inline(first), length))
            }
        }
    }
}

/// Pushes all elements but the first. Returns the first, if there is one, and the length of all.
///
/// # Errors
///
/// `STATUS_BUFFER_OVERFLOW` if that is more than `most`; the queue is unchanged then.
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
    let mut has_others = false;
    for element in elements {
        let longer = length.checked_add(element.length).filter(|longer| *longer <= most);
        let pushed = longer
            .ok_or(NtStatus::BUFFER_OVERFLOW)
            .and_then(|longer| if queue.push(element) { Ok(longer) } else { Err(NtStatus::NO_MORE_ENTRIES) });
        length = pushed.inspect_err(|_| queue.retract())?;
        has_others = true;
    }
    if has_others {
        queue.publish();
    }
    Ok((first, length))
}

//= NDKPI 7.3.7
/// Pushes all inline bytes but the first few. Returns these, and the length of all.
fn push_inline(queue: &mut Producer<Chunk>, parts: impl Parts, most: u32) -> Result<(InlineData, u32), NtStatus> {
    let (mut first, mut chunk, mut length) = ([0; INLINE], [0; CHUNK], 0);
    for part in parts {
        let mut part = part.as_ref();
        if part.len() > most as usize - length {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        while !part.is_empty() {
            let room = if length < INLINE { &mut first[length..] } else { &mut chunk[(length - INLINE) % CHUNK..] };
            let (now, later) = part.split_at(part.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            length += now.len();
            part = later;
            let is_full = length > INLINE && (length - INLINE).is_multiple_of(CHUNK);
            if is_full && !queue.push(chunk) {
                return Err(NtStatus::NO_MORE_ENTRIES);
            }
        }
    }
    if length > INLINE {
        if !(length - INLINE).is_multiple_of(CHUNK) && !queue.push(chunk) {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        queue.publish();
    }
    // At most `most`, a u32.
    Ok((InlineData(first), u32::try_from(length).unwrap_or(u32::MAX)))
}

impl<O: Os> Qp<O> {
    /// Posts a request with local data (`NDKPI 7.3`), or carries it out at once. `queue` lends the poster's end of the send queue,
    /// if it is needed.
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
    /// - `STATUS_INVALID_BUFFER_SIZE`: more inline bytes than the queue pair's inline size.
    /// - That of `queue`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub fn post(
        this: &Arc<Self>,
        context: usize,
        work: Work,
        flags: Flags,
        payload: Payload<impl Elements, impl Parts>,
        queue: impl Lend<SqProducer>,
    ) -> Result<(), NtStatus> {
        let is_forbidden = this.forbids(&work);
        let Some((data, length)) = payload.single(&this.limits) else {
            return Self::post_queued(this, context, flags, is_forbidden, queue, move |elements, chunks| {
                let (data, length) = payload.push(elements, chunks, &this.limits)?;
                Ok((work, data, length))
            });
        };
        let is_done = !is_forbidden
            && this.may_post_direct(length, flags)
            && Self::post_direct(this, &WorkRequest { context, work, flags, length, data });
        if is_done {
            Ok(())
        } else {
            Self::post_queued(this, context, flags, is_forbidden, queue, move |_, _| Ok((work, data, length)))
        }
    }

    /// Posts a request to the queue, unless the queue pair is not connected or its connection does not allow the request. `make`
    /// pushes what does not fit into the request, and returns its work, data and length. It is called when nothing else can fail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    fn post_queued(
        this: &Arc<Self>,
        context: usize,
        flags: Flags,
        is_forbidden: bool,
        queue: impl Lend<SqProducer>,
        make: impl FnOnce(&mut Producer<Sge>, &mut Producer<Chunk>) -> Result<(Work, LocalData, u32), NtStatus>,
    ) -> Result<(), NtStatus> {
        Self::enqueue(this, flags, queue, |queue| {
            if !this.is_linked() || this.is_dead() {
                return Err(NtStatus::CONNECTION_INVALID);
            }
            if is_forbidden {
                return Err(NtStatus::INVALID_DEVICE_REQUEST);
            }
            let vacancy = queue.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
            let (work, data, length) = make(&mut queue.elements, &mut queue.chunks)?;
            // Built in place: a copy would stall on failed store-to-load forwarding.
            vacancy.fill(WorkRequest { context, work, flags, length, data });
            Ok(length)
        })
    }

    /// Returns true if a request of this length may be carried out in its post. A deferred one joins its batch in the queue.
    #[inline]
    const fn may_post_direct(&self, length: u32, flags: Flags) -> bool {
        self.is_direct && !flags.contains(Flags::DEFER) && (length as usize).wrapping_sub(1) < DIRECT_QUANTUM.bytes
    }

    /// Carries a request out if nothing is before it and it is simple. Returns false if nothing has happened.
    ///
    /// No other post to the send queue runs.
    #[inline(never)]
    fn post_direct(this: &Arc<Self>, request: &WorkRequest) -> bool {
        // Does not wait for a quantum that runs or is due.
        if this.initiating.is_busy.load(Ordering::Relaxed) {
            return false;
        }
        this.initiating.send_queue.with(|queue| {
            let Some(peer) = queue.peer_if_idle(this) else { return false };
            let budget = Budget { requests: 1, ..DIRECT_QUANTUM };
            Execution { qp: this, peer, requests: request, budget }.execute().is_some()
        })
    }

    /// Posts a request without local data. `work` is called when nothing else can fail any more, because it changes tokens.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`], and those of `work`.
    pub fn post_local(
        this: &Arc<Self>,
        context: usize,
        flags: Flags,
        work: impl FnOnce() -> Result<Work, NtStatus>,
        queue: impl Lend<SqProducer>,
    ) -> Result<(), NtStatus> {
        Self::post_queued(this, context, flags, false, queue, |_, _| Ok((work()?, LocalData::NONE, 0)))
    }

    //= NDKPI 7.3.8
    /// A post that fails with `status`. Requests that were deferred before it are carried out.
    ///
    /// # Errors
    ///
    /// `status`, or that of `queue`.
    #[cold]
    pub fn refuse(this: &Arc<Self>, status: NtStatus, queue: impl Lend<SqProducer>) -> Result<(), NtStatus> {
        Self::enqueue(this, Flags::empty(), queue, |_| Err(status))
    }

    //= NDKPI 7.3.2
    /// Publishes what `push` pushes, and rings the doorbell unless the request is deferred. A post that fails rings for requests
    /// that were deferred before it (`NDKPI 7.3`): the consumer will not post the one that would have rung.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    fn enqueue(
        this: &Arc<Self>,
        flags: Flags,
        queue: impl Lend<SqProducer>,
        push: impl FnOnce(&mut SqProducer) -> Result<u32, NtStatus>,
    ) -> Result<(), NtStatus> {
        let mut queue = queue.lend()?;
        let pushed = push(&mut queue);
        let is_deferred = pushed.is_ok() && flags.contains(Flags::DEFER);
        let was_deferred = mem::replace(&mut queue.deferred, is_deferred);
        queue.requests.hand_over();
        drop(queue);
        let length = pushed.inspect_err(|_| {
            if was_deferred {
                Self::ring(this);
            }
        })?;
        this.posted.publish();
        if is_deferred {
            return Ok(());
        }
        if this.is_direct && length as usize <= DIRECT_QUANTUM.bytes {
            Self::ring_direct(this);
        } else {
            Self::ring(this);
        }
        Ok(())
    }

    /// Rings the doorbell for requests that this call may carry out itself.
    #[inline(never)]
    fn ring_direct(this: &Arc<Self>) {
        let is_busy = this.initiating.is_busy.load(Ordering::Relaxed);
        let is_unfinished = || {
            this.initiating.send_queue.with(|queue| {
                queue.take_orders(this);
                queue.run(this, 0, &mut DIRECT_QUANTUM.clone())
            })
        };
        if is_busy || is_unfinished() {
            Self::ring(this);
        }
    }

    /// Returns true if the connection does not allow this request.
    #[inline]
    fn forbids(&self, work: &Work) -> bool {
        matches!(work, Work::Read { .. }) && self.no_reads.load(Ordering::Relaxed)
    }
}
