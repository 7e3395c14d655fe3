//! How completions get into a queue: one, or many.
//!
//! A plain completion that has no consequence now and is known to fit is a *fast push*: a comparison and a few stores under the
//! lock. Everything else is [`State::push_all`], also for a single completion.

use fallible::Arc;

use super::{
    Cq, Cqe, State,
    decision::{Class, are_plain},
    notify::CqFailure,
};
use crate::{
    fault::{self, Fault},
    mistake,
    os::{Os, SpinLock},
};

impl State {
    /// Pushes a completion if it is plain and [`State::push_all`] has found that such have no consequence. Returns false if not:
    /// then nothing has happened.
    #[inline]
    fn fast_push(&mut self, cqe: Cqe) -> bool {
        // Deliberate mistakes are made where everything is decided.
        cqe.class() == Class::Plain && !fault::is_any() && self.entries.fast_push(cqe)
    }

    /// Pushes completions of `cq` and decides for every one of them. Returns true if the deferred call has to be queued.
    #[inline(never)]
    fn push_all<O: Os>(&mut self, cq: &Arc<Cq<O>>, cqes: &[Cqe]) -> bool {
        if self.notify.failure().is_some() || fault::recall(Fault::ResizeLosesEntry) {
            return false;
        }
        self.end_fast_pushes();
        let pushed = self.entries.push_all(cqes);
        let mut queue = false;
        if self.notify.ignores_plain() && are_plain(cqes) {
            self.notify.queued_plain(self.entries.tail());
        } else {
            for (left, cqe) in (0..pushed).rev().zip(cqes) {
                let full = left == 0 && !self.entries.has_room(1);
                let action = self.notify.queued(cqe.class(), full);
                queue |= Cq::follow(cq, self, action);
            }
        }
        if pushed < cqes.len() {
            queue |= mistake!(OverrunSilent => false, else Cq::fail_with(cq, self, CqFailure::Overrun));
        }
        self.entries.publish();
        // Plain completions are pushed fast from now on if they have no consequence.
        if self.notify.ignores_plain() && self.notify.failure().is_none() {
            self.entries.enable_fast_push();
        }
        queue
    }

    /// Counts what was pushed fast, and lets nothing be pushed fast any more.
    #[inline]
    pub(super) fn end_fast_pushes(&mut self) {
        self.entries.disable_fast_push();
        self.notify.queued_plain(self.entries.tail());
    }
}

impl<O: Os> Cq<O> {
    /// Pushes a completion, and notifies if that satisfies the arm.
    ///
    /// If it does not fit, the queue fails (`NDKPI 7.1.10`): what is queued stays, this one and all later ones are lost, and the
    /// attached queue pairs fail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: the completion stays in registers until it is in its slot")]
    pub fn push(this: &Arc<Self>, cqe: Cqe) {
        let queue = this.state.with(|state| !state.fast_push(cqe) && state.push_all(this, &[cqe]));
        Self::queue_if(this, queue);
    }

    /// [`Cq::push`] for several completions, in their order. The consumer sees them together.
    pub fn push_all(this: &Arc<Self>, cqes: &[Cqe]) {
        let queue = this.state.with(|state| state.push_all(this, cqes));
        Self::queue_if(this, queue);
    }

    /// Has the processor fetch the place of the next completion, because one will be pushed soon.
    pub(crate) fn prefetch(&self) {
        self.state.with(|state| state.entries.prefetch(0));
    }

    /// Lets `work` push while it holds the queue's lock. What it does must be short, and must not lead back to this queue.
    ///
    /// With the lock taken before there is anything to tell, what the completions are about goes to the consumer's processor
    /// together with them: a lock taken in between would wait for it.
    #[inline]
    pub(crate) fn with_producer<U>(this: &Arc<Self>, work: impl FnOnce(&mut CqProducer<'_, O>) -> U) -> U {
        let (result, queue) = this.state.with(|state| {
            let mut producer = CqProducer { cq: this, state, queue: false };
            (work(&mut producer), producer.queue)
        });
        Self::queue_if(this, queue);
        result
    }
}

/// A queue whose lock is held by somebody who pushes: see [`Cq::with_producer`].
pub struct CqProducer<'locked, O: Os> {
    cq: &'locked Arc<Cq<O>>,
    state: &'locked mut State,
    /// The deferred call has to be queued.
    queue: bool,
}

impl<O: Os> CqProducer<'_, O> {
    /// [`Cq::push`].
    #[inline]
    pub fn push(&mut self, cqe: Cqe) {
        self.queue |= !self.state.fast_push(cqe) && self.state.push_all(self.cq, &[cqe]);
    }

    /// [`Cq::push_all`].
    #[inline]
    pub fn push_all(&mut self, cqes: &[Cqe]) {
        self.queue |= self.state.push_all(self.cq, cqes);
    }
}
