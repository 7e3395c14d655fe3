//! Requests that are carried out in their post, without entering the queue.
//!
//! A NIC that carries requests out in posts ([`NicMode::Direct`](crate::nic::NicMode::Direct)) would put a request in its queue
//! only to take it out again, if nothing is before it. What is not simple enough is posted as any other.

use fallible::Arc;

use super::{
    Flags, Qp,
    execute::{Execution, Requests},
    request::WorkRequest,
    send_queue::{Next, SendQueue, doorbell},
};
use crate::{
    nic::Budget,
    os::{Os, SpinLock},
    sync::Ordering,
};

/// What a queue pair may do in a post of its consumer: a moment, also through memory.
pub const DIRECT_QUANTUM: Budget = Budget { bytes: 256 << 10, requests: 64 };

/// A single request that is not in the queue.
struct Single<'post>(&'post WorkRequest);

impl Requests for Single<'_> {
    #[inline]
    fn with<U>(&mut self, ahead: usize, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        (ahead == 0).then(|| work(self.0))
    }

    #[inline]
    fn first<U>(&self, work: impl FnOnce(&WorkRequest) -> U) -> Option<U> {
        Some(work(self.0))
    }

    #[inline]
    fn finish(&mut self, _: usize) {}

    fn prefetch_next(&self) {}
}

impl<O: Os> Qp<O> {
    /// Returns true if a request with so many bytes may be carried out in its post.
    #[inline]
    pub(super) const fn may_post_direct(&self, length: u32, flags: Flags) -> bool {
        self.is_direct && !flags.contains(Flags::DEFER) && (length as usize).wrapping_sub(1) < DIRECT_QUANTUM.bytes
    }

    /// Carries a request out, if nothing is before it and it is simple. Returns false if not: then nothing has happened, and it is
    /// to be posted.
    ///
    /// The caller is posting to the send queue: nobody else is. Requests that are deferred are better posted.
    #[inline(never)]
    pub(super) fn post_direct(this: &Arc<Self>, request: &WorkRequest) -> bool {
        // Somebody who carries requests of the queue pair out, or is about to, is not waited for.
        let is_busy = this.initiating.doorbell.load(Ordering::Relaxed) != 0;
        if is_busy || this.forbids(&request.work) {
            return false;
        }
        this.initiating.send_queue.with(|queue| {
            let Some(peer) = queue.peer_if_idle(this) else { return false };
            let budget = Budget { requests: 1, ..DIRECT_QUANTUM };
            Execution { qp: this, peer, requests: Single(request), budget }.execute().is_some()
        })
    }

    /// The doorbell of a post whose request may be carried out at once.
    #[inline(never)]
    pub(super) fn ring_direct(this: &Arc<Self>) {
        // If nobody carries requests out, the lock of the send queue is enough: who rings meanwhile has the engine come.
        if this.initiating.doorbell.load(Ordering::Relaxed) & doorbell::OWNED == 0 {
            let run = |queue: &mut SendQueue<O>| {
                queue.take_orders(this);
                queue.run(this, 0, &mut DIRECT_QUANTUM.clone())
            };
            if this.initiating.send_queue.with(run) == Next::Idle {
                return;
            }
        }
        Self::ring(this, doorbell::REQUESTS);
    }
}
