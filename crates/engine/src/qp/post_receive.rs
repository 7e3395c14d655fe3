//! Posting to the receive queue, in the manner of [`super::post`].

use core::ops::DerefMut;

use fallible::Arc;

use super::{
    NtStatus, Qp, doorbell,
    payload::push_elements,
    post::Limits,
    request::{ReceiveRequest, Sge},
};
use crate::{
    os::Os,
    ring::{Producer, TailPublisher},
    sync::Ordering,
};

/// The queue's slots are fetched for writing this many receives before they are used.
const PREFETCH: u64 = 8;

/// The poster's end of a receive queue.
pub struct RqProducer {
    pub(super) requests: Producer<ReceiveRequest>,
    pub(super) elements: Producer<Sge>,
    pub(super) limits: Limits,
}

impl RqProducer {
    pub(super) fn tail_publisher(&self) -> TailPublisher {
        self.requests.tail_publisher()
    }

    /// Puts a receive in the queue.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_receive`]; the queue is unchanged then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub(super) fn push(&mut self, context: usize, list: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        let elements = self.limits.check_count(list.len())?;
        self.requests.prefetch(PREFETCH);
        let vacancy = self.requests.vacancy().ok_or(NtStatus::NO_MORE_ENTRIES)?;
        let (first, length) = push_elements(&mut self.elements, list, self.limits.transfer)?;
        vacancy.fill(ReceiveRequest { context, length, elements, first });
        Ok(())
    }
}

impl<O: Os> Qp<O> {
    /// Posts a receive into `elements`, also before the queue pair is connected (`NDKPI 5.7`). Its outcome is a completion.
    ///
    /// `queue` gives the poster's end of the receive queue.
    ///
    /// # Errors
    ///
    /// Nothing is posted then: `STATUS_NO_MORE_ENTRIES` if the queue is full, `STATUS_DATA_OVERRUN` for too many elements,
    /// `STATUS_BUFFER_OVERFLOW` for more bytes than one request may have, or the error of `queue`.
    #[inline]
    pub fn post_receive<G: DerefMut<Target = RqProducer>>(
        this: &Arc<Self>,
        context: usize,
        elements: impl ExactSizeIterator<Item = Sge>,
        queue: impl FnOnce() -> Result<G, NtStatus>,
    ) -> Result<(), NtStatus> {
        let mut queue = queue()?;
        queue.push(context, elements)?;
        queue.requests.hand_over();
        drop(queue);
        this.accepted.publish();
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
    fn tell_of_receive(this: &Arc<Self>, is_awaited: bool) {
        if is_awaited && let Some(peer) = this.peer() {
            Self::ring(&peer, doorbell::REQUESTS);
        }
        if this.is_dead() {
            Self::ring(this, doorbell::FLUSH_RECEIVE);
        }
    }
}

/// The poster's end of a receive queue, for callers that have it for themselves: exactly one exists.
pub struct Receiver<O: Os> {
    qp: Arc<Qp<O>>,
    queue: RqProducer,
}

impl<O: Os> Receiver<O> {
    pub(super) fn new(qp: &Arc<Qp<O>>, queue: RqProducer) -> Self {
        Self { qp: qp.clone(), queue }
    }

    /// The end of the queue without its queue pair, for [`Qp::post_receive`].
    #[must_use]
    pub fn into_queue(self) -> RqProducer {
        self.queue
    }

    /// Posts a receive into `elements`.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_receive`].
    pub fn post(&mut self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        Qp::post_receive(&self.qp, context, elements, || Ok(&mut self.queue))
    }
}
