//! Posting to the send queue.
//!
//! What the poster owns is kept apart from what others see. As soon as a request is published it may complete, and the consumer,
//! called back, may post the next one, although the function that posted this one has not returned. So a post takes the
//! poster's end of the queue as a guard, and drops it before it publishes.

use core::{iter, ops::DerefMut};

use fallible::Arc;

use super::{
    NtStatus, Qp,
    direct::DIRECT_QUANTUM,
    doorbell,
    payload::Payload,
    request::{Chunk, Flags, LocalData, Sge, Work, WorkRequest},
};
use crate::{
    mistake,
    os::Os,
    ring::{Producer, TailPublisher},
    sync::Ordering,
};

/// The most that a request may have.
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
        let most = mistake!(TooManyElementsAccepted => self.elements + 1, else self.elements);
        u32::try_from(elements).ok().filter(|count| *count <= most).ok_or(NtStatus::DATA_OVERRUN)
    }

    /// Checks a payload that fits into its request.
    #[inline]
    fn check_single(&self, data: &LocalData, length: u32) -> Result<(), NtStatus> {
        let (most, status) = match data {
            LocalData::Inline(_) => (self.inline_bytes(), NtStatus::INVALID_BUFFER_SIZE),
            LocalData::Elements { count, .. } => {
                self.check_count(*count as usize)?;
                (self.transfer, NtStatus::BUFFER_OVERFLOW)
            }
        };
        if length <= most { Ok(()) } else { Err(status) }
    }
}

/// The poster's end of a send queue.
pub struct SqProducer {
    pub(super) requests: Producer<WorkRequest>,
    pub(super) elements: Producer<Sge>,
    pub(super) chunks: Producer<Chunk>,
    /// Requests were posted without ringing the doorbell.
    pub(super) deferred: bool,
}

impl SqProducer {
    pub(super) fn tail_publisher(&self) -> TailPublisher {
        self.requests.tail_publisher()
    }
}

impl<O: Os> Qp<O> {
    /// Posts a request with local bytes (`NDKPI 7.3`), or carries it out at once if that can be done. Its outcome is a completion.
    ///
    /// `queue` gives the poster's end of the send queue, if it is needed.
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
    pub fn post<'a, G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        context: usize,
        work: Work,
        flags: Flags,
        mut payload: Payload<impl ExactSizeIterator<Item = Sge>, impl ExactSizeIterator<Item = &'a [u8]> + Clone>,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        let Some((data, length)) = payload.single() else {
            return Self::post_list(this, context, work, flags, payload, queue);
        };
        if this.is_direct && !flags.contains(Flags::DEFER) && this.may_post_direct(&data, length) {
            let request = WorkRequest { context, work, flags, length, data };
            return if Self::post_direct(this, &request) {
                Ok(())
            } else {
                Self::post_after_all(this, &request, queue)
            };
        }
        Self::enqueue(this, flags, queue, |queue| {
            this.check_connection(Some(&work))?;
            let vacancy = queue.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
            this.limits.check_single(&data, length)?;
            // Made where it stays: a copy would load it in other widths than it was stored in, and wait for the stores.
            vacancy.fill(WorkRequest { context, work, flags, length, data });
            Ok(length)
        })
    }

    /// [`Qp::post`] for a request that could not be carried out in its post.
    #[cold]
    #[inline(never)]
    fn post_after_all<G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        request: &WorkRequest,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        Self::enqueue(this, request.flags, queue, |queue| {
            this.check_connection(Some(&request.work))?;
            let vacancy = queue.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
            this.limits.check_single(&request.data, request.length)?;
            vacancy.fill(*request);
            Ok(request.length)
        })
    }

    /// [`Qp::post`] for a payload that does not fit into its request.
    #[cold]
    fn post_list<'a, G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        context: usize,
        work: Work,
        flags: Flags,
        payload: Payload<impl ExactSizeIterator<Item = Sge>, impl ExactSizeIterator<Item = &'a [u8]> + Clone>,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        Self::enqueue(this, flags, queue, |queue| {
            this.check_connection(Some(&work))?;
            let vacancy = queue.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
            let (data, length) = payload.push(&mut queue.elements, &mut queue.chunks, &this.limits)?;
            vacancy.fill(WorkRequest { context, work, flags, length, data });
            Ok(length)
        })
    }

    /// Posts a request without local bytes. `work` makes it, when nothing else can fail any more: what it does changes tokens.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`], and those of `work`.
    pub fn post_local<G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        context: usize,
        flags: Flags,
        work: impl FnOnce() -> Result<Work, NtStatus>,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        Self::enqueue(this, flags, queue, |queue| {
            this.check_connection(None)?;
            let vacancy = queue.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
            vacancy.fill(WorkRequest { context, work: work()?, flags, length: 0, data: LocalData::NONE });
            Ok(0)
        })
    }

    /// A post that fails with `status`. What was deferred before it goes on its way.
    ///
    /// # Errors
    ///
    /// `status`, or that of `queue`.
    #[cold]
    pub fn refuse<G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        status: NtStatus,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        Self::enqueue(this, Flags::empty(), queue, |_| Err(status))
    }

    /// Publishes what `push` pushes, and rings the doorbell unless more requests are announced. A post that fails rings for those
    /// that were deferred before it (`NDKPI 7.3`): the consumer will not post the request that would have rung for them.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    fn enqueue<G: DerefMut<Target = SqProducer>>(
        this: &Arc<Self>,
        flags: Flags,
        queue: impl FnOnce() -> Result<G, NtStatus>,
        push: impl FnOnce(&mut SqProducer) -> Result<u32, NtStatus>,
    ) -> Result<(), NtStatus> {
        let mut queue = queue()?;
        let pushed = push(&mut queue);
        let is_deferred = pushed.is_ok() && flags.contains(Flags::DEFER);
        let was_deferred = core::mem::replace(&mut queue.deferred, is_deferred);
        queue.requests.hand_over();
        drop(queue);
        match pushed {
            Ok(length) => {
                this.posted.publish();
                if is_deferred {
                } else if this.is_direct && length as usize <= DIRECT_QUANTUM.bytes {
                    Self::ring_direct(this);
                } else {
                    Self::ring(this, doorbell::REQUESTS);
                }
                Ok(())
            }
            Err(status) => {
                if mistake!(DeferredStaysOnFailure => false, else was_deferred) {
                    Self::ring(this, doorbell::REQUESTS);
                }
                Err(status)
            }
        }
    }

    /// Checks that the connection is there, and lets requests of this kind through.
    #[inline]
    fn check_connection(&self, work: Option<&Work>) -> Result<(), NtStatus> {
        let is_linked = mistake!(UnconnectedPostAccepted => true, else self.is_linked());
        if !is_linked || self.is_dead() {
            return Err(NtStatus::CONNECTION_INVALID);
        }
        if work.is_some_and(|work| self.forbids(work)) { Err(NtStatus::INVALID_DEVICE_REQUEST) } else { Ok(()) }
    }

    /// Returns true if the connection does not let requests of this kind through.
    #[inline]
    pub(super) fn forbids(&self, work: &Work) -> bool {
        matches!(work, Work::Read { .. }) && self.no_reads.load(Ordering::Relaxed)
    }
}

/// The poster's end of a send queue, for callers that have it for themselves: exactly one exists.
pub struct Initiator<O: Os> {
    qp: Arc<Qp<O>>,
    queue: SqProducer,
}

impl<O: Os> Initiator<O> {
    pub(super) fn new(qp: &Arc<Qp<O>>, queue: SqProducer) -> Self {
        Self { qp: qp.clone(), queue }
    }

    /// The end of the queue without its queue pair, for [`Qp::post`].
    #[must_use]
    pub fn into_queue(self) -> SqProducer {
        self.queue
    }

    /// Posts a request whose local bytes are named by `elements`.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`].
    pub fn post(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        elements: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), NtStatus> {
        let payload = Payload::<_, iter::Empty<&[u8]>>::Elements(elements);
        Qp::post(&self.qp, context, work, flags, payload, || Ok(&mut self.queue))
    }

    /// Posts a request that carries the bytes of `parts` itself.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`].
    pub fn post_inline<'a>(
        &mut self,
        context: usize,
        work: Work,
        flags: Flags,
        parts: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), NtStatus> {
        let payload = Payload::<iter::Empty<Sge>, _>::Inline(parts);
        Qp::post(&self.qp, context, work, flags, payload, || Ok(&mut self.queue))
    }

    /// [`Qp::post_local`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn post_local(
        &mut self,
        context: usize,
        flags: Flags,
        work: impl FnOnce() -> Result<Work, NtStatus>,
    ) -> Result<(), NtStatus> {
        Qp::post_local(&self.qp, context, flags, work, || Ok(&mut self.queue))
    }

    /// [`Qp::refuse`].
    ///
    /// # Errors
    ///
    /// `status`.
    pub fn refuse(&mut self, status: NtStatus) -> Result<(), NtStatus> {
        Qp::refuse(&self.qp, status, || Ok(&mut self.queue))
    }
}
