//! How completions get into a queue: one, or many.
//!
//! A plain completion that has no consequence now and is known to fit is a *fast push*: a comparison and a few stores under the
//! lock. Everything else is [`CqProducer::push_all`], also for a single completion.

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
    /// Pushes a completion that [`State::begin_fast_pushes`] has prepared for. Returns false if there is more to it: then nothing
    /// has happened.
    #[inline]
    fn fast_push(&mut self, cqe: Cqe) -> bool {
        // Deliberate mistakes are made where everything is decided.
        cqe.class() == Class::Plain && !fault::is_any() && self.entries.fast_push(cqe)
    }

    /// Lets plain completions be pushed fast if they have no consequence.
    #[inline]
    fn begin_fast_pushes(&mut self) {
        if self.notify.ignores_plain() && self.notify.failure().is_none() {
            self.entries.enable_fast_push();
        }
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
        // A lock waits for all stores before it, so each store that is not made here is a cycle less for the next completion.
        if this.state.with_at_once(|state| state.fast_push(cqe)) != Some(true) {
            Self::push_all(this, &[cqe]);
        }
    }

    /// [`Cq::push`] for several completions, in their order. The consumer sees them together.
    pub fn push_all(this: &Arc<Self>, cqes: &[Cqe]) {
        Self::with_producer(this, |producer| producer.push_all(cqes));
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
        if !self.state.fast_push(cqe) {
            self.push_all(&[cqe]);
        }
    }

    /// [`Cq::push_all`].
    #[inline(never)]
    pub fn push_all(&mut self, cqes: &[Cqe]) {
        let Self { cq, state, queue } = self;
        if state.notify.failure().is_some() || fault::recall(Fault::ResizeLosesEntry) {
            return;
        }
        state.end_fast_pushes();
        let pushed = state.entries.push_all(cqes);
        if state.notify.ignores_plain() && are_plain(cqes) {
            state.notify.queued_plain(state.entries.tail());
        } else {
            *queue |= Cq::decide(cq, state, &cqes[..pushed]);
        }
        if pushed < cqes.len() {
            *queue |= mistake!(OverrunSilent => false, else Cq::fail_with(cq, state, CqFailure::Overrun));
        }
        state.entries.publish();
        if pushed == 1 {
            state.entries.prefetch_ahead();
        }
        state.begin_fast_pushes();
    }
}

impl<O: Os> Cq<O> {
    /// Decides for every entry that was just pushed. Returns true if the deferred call has to be queued.
    fn decide(this: &Arc<Self>, state: &mut State, pushed: &[Cqe]) -> bool {
        let mut queue = false;
        for (left, cqe) in (0..pushed.len()).rev().zip(pushed) {
            let full = left == 0 && !state.entries.has_room(1);
            let action = state.notify.queued(cqe.class(), full);
            queue |= Self::follow(this, state, action);
        }
        queue
    }
}
