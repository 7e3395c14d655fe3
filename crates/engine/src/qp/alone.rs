//! Requests that are carried out in the post that brings them, without going through their queue.
//!
//! A NIC that carries requests out in posts ([`NicMode::Direct`](crate::nic::NicMode::Direct)) would put the request in its queue
//! only to take it out again at once, if there is nothing before it. What is not as simple as that is posted as any other.

use fallible::Shared;
use ndkpi::NtStatus;

use super::{Flags, OnePiece, Qp};
use crate::{
    cq::{Cq, Operation},
    fault::{self, Fault},
    nic::Moved,
    os::{Os, SpinLock},
    sync::Ordering,
};

impl<O: Os> Qp<O> {
    /// Carries out a send, if nothing is before it, the peer has a receive for it, and nothing speaks against it. Whether that is
    /// done: if not, nothing has happened, and it is to be posted. For requests that are deferred it is better to be posted.
    ///
    /// The caller is posting to the initiator queue: nobody else is.
    // Not a part of its callers, where it would be in the way of messages that are posted (counted).
    #[inline(never)]
    #[must_use]
    pub fn send_alone(this: &Shared<Self>, context: usize, flags: Flags, local: impl OnePiece) -> bool {
        Self::alone(this, Operation::Send, context, flags, local, move |peer| local.send(this, peer, flags))
    }

    /// [`Qp::send_alone`] for a write to the peer's bytes `at` an address, of a token.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: what is known of the request stays in registers")]
    #[must_use]
    pub fn write_alone(
        this: &Shared<Self>,
        context: usize,
        at: (u64, u32),
        flags: Flags,
        local: impl OnePiece,
    ) -> bool {
        Self::alone(this, Operation::Write, context, flags, local, move |peer| local.write(this, peer, at))
    }

    /// [`Qp::send_alone`] for a read of the peer's bytes `at` an address, of a token.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `write_alone`")]
    #[must_use]
    pub fn read_alone(this: &Shared<Self>, context: usize, at: (u64, u32), flags: Flags, local: impl OnePiece) -> bool {
        let is_allowed = !this.no_reads.load(Ordering::Relaxed) && !flags.contains(Flags::LOCAL_INVALIDATE);
        is_allowed && Self::alone(this, Operation::Read, context, flags, local, move |peer| local.read(this, peer, at))
    }

    /// What all of them have in common: everything but the `copy`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `write_alone`")]
    fn alone<L: OnePiece>(
        this: &Shared<Self>,
        operation: Operation,
        context: usize,
        flags: Flags,
        local: L,
        copy: impl FnOnce(&Shared<Self>) -> bool,
    ) -> bool {
        let (length, most) = (local.length(), if L::IS_INLINE { this.alone_inline } else { this.alone });
        // Somebody who carries requests of the queue pair out, or is about to, is not waited for.
        let is_busy = this.initiating.schedule.load(Ordering::Relaxed) != 0;
        if is_busy || length == 0 || length > most {
            return false;
        }
        this.initiating.transmit.with(move |transmit| {
            let Some(peer) = transmit.peer_if_idle(this) else { return false };
            if !copy(peer) {
                return false;
            }
            let mut moved = Moved::default();
            moved.note(operation, 1, length as usize);
            this.engine.count(&peer.engine, &moved);
            if !flags.contains(Flags::SILENT_SUCCESS) || fault::is(Fault::SilentSuccessCompletes) {
                Cq::push(&this.initiator_cq, this.completion(context, operation, NtStatus::SUCCESS));
            }
            true
        })
    }
}
