//! The ends of the queues of a queue pair, each with its queue pair: what a test posts through.

use engine::{
    os::Os,
    qp::{Elements, Flags, Parts, Payload, Qp, RqProducer, Sge, SqProducer, Work},
};
use fallible::Arc;
use ndkpi::NtStatus;

/// The poster's end of a send queue.
pub struct Initiator<O: Os> {
    qp: Arc<Qp<O>>,
    queue: SqProducer,
}

impl<O: Os> Initiator<O> {
    /// The end `queue` of the queue pair `qp`.
    #[must_use]
    pub fn new(qp: &Arc<Qp<O>>, queue: SqProducer) -> Self {
        Self { qp: qp.clone(), queue }
    }

    /// The end of the queue.
    #[must_use]
    pub fn into_queue(self) -> SqProducer {
        self.queue
    }

    /// Posts a request whose local bytes are named by `elements`.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`].
    pub fn post(&mut self, context: usize, work: Work, flags: Flags, elements: impl Elements) -> Result<(), NtStatus> {
        Qp::post(&self.qp, context, work, flags, Payload::of_elements(elements), &mut self.queue)
    }

    /// Posts a request that carries the bytes of `parts` itself.
    ///
    /// # Errors
    ///
    /// As [`Qp::post`].
    pub fn post_inline(&mut self, context: usize, work: Work, flags: Flags, parts: impl Parts) -> Result<(), NtStatus> {
        Qp::post(&self.qp, context, work, flags, Payload::of_parts(parts), &mut self.queue)
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
        Qp::post_local(&self.qp, context, flags, work, &mut self.queue)
    }

    /// [`Qp::refuse`].
    ///
    /// # Errors
    ///
    /// `status`.
    pub fn refuse(&mut self, status: NtStatus) -> Result<(), NtStatus> {
        Qp::refuse(&self.qp, status, &mut self.queue)
    }
}

/// The poster's end of a receive queue.
pub struct Receiver<O: Os> {
    qp: Arc<Qp<O>>,
    queue: RqProducer,
}

impl<O: Os> Receiver<O> {
    /// The end `queue` of the queue pair `qp`.
    #[must_use]
    pub fn new(qp: &Arc<Qp<O>>, queue: RqProducer) -> Self {
        Self { qp: qp.clone(), queue }
    }

    /// Posts a receive into `elements`.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_receive`].
    pub fn post(&mut self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        Qp::post_receive(&self.qp, context, elements, &mut self.queue)
    }
}
