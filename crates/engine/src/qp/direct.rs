//! Requests that are carried out in their post, without entering the queue.
//!
//! A NIC that carries requests out in posts ([`NicMode::Direct`](crate::nic::NicMode::Direct)) would put a request in its queue
//! only to take it out again, if nothing is before it. What is not simple enough is posted as any other.

use fallible::Arc;

use super::{
    Qp, Work,
    execute::{Batch, Execution, Requests},
    request::{LocalData, WorkRequest},
    send_queue::Next,
};
use crate::{
    nic::{Budget, Moved},
    os::{Os, SpinLock},
    sync::Ordering,
};

/// What a queue pair may do in a post of its consumer: a moment, also through memory.
pub const DIRECT_QUANTUM: Budget = Budget { bytes: 256 << 10, requests: 64 };

/// How many bytes of one request a post carries out at most: those of an element, and inline. More are too many or not
/// allowed; none are left to the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectLimits {
    pub element: u32,
    pub inline: u32,
}

/// A single request that is not in the queue.
struct Single(WorkRequest);

impl Requests for Single {
    const MOST: u32 = 1;

    #[inline]
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        (ahead == 0).then(|| work(&self.0))
    }

    #[inline]
    fn advance(&mut self, _: usize) {}

    #[inline]
    fn is_last(&self) -> bool {
        true
    }
}

impl<O: Os> Qp<O> {
    /// Carries a request out, if nothing is before it and it is simple. Returns false if not: then nothing has happened, and it is
    /// to be posted.
    ///
    /// The caller is posting to the send queue: nobody else is. Requests that are deferred are better posted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is known of the request stays in registers")]
    pub(super) fn post_direct(this: &Arc<Self>, request: WorkRequest) -> bool {
        let most = match request.data {
            LocalData::Elements { .. } => this.direct.element,
            LocalData::Inline(_) => this.direct.inline,
        };
        let is_allowed = match request.work {
            Work::Send { invalidate: None } | Work::Write { .. } => true,
            Work::Read { .. } => !this.no_reads.load(Ordering::Relaxed),
            _ => false,
        };
        // Somebody who carries requests of the queue pair out, or is about to, is not waited for.
        let is_busy = this.initiating.schedule.load(Ordering::Relaxed) != 0;
        if !is_allowed || is_busy || request.length.wrapping_sub(1) >= most {
            return false;
        }
        // Two calls, each of which becomes a part of this with nothing of the other in it.
        if matches!(request.work, Work::Send { .. }) {
            Self::execute_one::<true>(this, request)
        } else {
            Self::execute_one::<false>(this, request)
        }
    }

    /// Carries out a send, or a read or write, that nothing is before.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `post_direct`")]
    fn execute_one<const IS_SEND: bool>(this: &Arc<Self>, request: WorkRequest) -> bool {
        this.initiating.send_queue.with(move |queue| {
            let Some(peer) = queue.peer_if_idle(this) else { return false };
            let (mut budget, mut moved, mut batch) = (DIRECT_QUANTUM, Moved::default(), Batch::new());
            let (requests, budget, batch) = (&mut Single(request), &mut budget, &mut batch);
            let mut run = Execution { qp: this, peer, requests, budget, moved: &mut moved, batch };
            let is_done = if IS_SEND { run.send() } else { run.copy() };
            if is_done {
                this.engine.count(&peer.engine, &moved);
            }
            is_done
        })
    }

    /// The doorbell of a post whose request may be carried out at once.
    #[inline(never)]
    pub(super) fn ring_direct(this: &Arc<Self>) {
        // If nobody carries requests out, the lock of the send queue is enough: who rings meanwhile has the engine come.
        if this.is_direct && this.initiating.schedule.load(Ordering::Relaxed) == 0 {
            let mut budget = DIRECT_QUANTUM;
            if this.initiating.send_queue.with(|queue| queue.run(this, &mut budget)) == Next::Idle {
                return;
            }
        }
        Self::ring(this);
    }
}
