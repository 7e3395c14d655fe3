//! Reads and writes that are carried out in the post that brings them, without going through their queue.
//!
//! A NIC that carries requests out in posts ([`NicMode::Direct`](crate::nic::NicMode::Direct)) would put the request in its queue
//! only to take it out again at once, if there is nothing before it. What is not as simple as that is posted as any other.

use fallible::Shared;
use ndkpi::NtStatus;

use super::{Flags, Qp, Sge, short};
use crate::{
    cq::{Cq, Operation},
    fault::{self, Fault},
    nic::Moved,
    os::{Os, SpinLock},
    sync::Ordering,
};

impl<O: Os> Qp<O> {
    /// Carries out a write of the bytes of `element`, if nothing is before it and nothing speaks against it. Whether that is done: if
    /// not, nothing has happened, and it is to be posted.
    ///
    /// The caller is posting to the initiator queue: nobody else is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: what is known of the request stays in registers")]
    #[must_use]
    pub fn write_alone(
        this: &Shared<Self>,
        context: usize,
        (address, token): (u64, u32),
        flags: Flags,
        element: Sge,
    ) -> bool {
        Self::alone(this, Operation::Write, context, flags, element.length, move |peer| {
            short::write_element(this, peer, element, token, address)
        })
    }

    /// [`Qp::write_alone`] for a read.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `write_alone`")]
    #[must_use]
    pub fn read_alone(
        this: &Shared<Self>,
        context: usize,
        (address, token): (u64, u32),
        flags: Flags,
        element: Sge,
    ) -> bool {
        let is_allowed = !this.no_reads.load(Ordering::Relaxed) && !flags.contains(Flags::LOCAL_INVALIDATE);
        is_allowed
            && Self::alone(this, Operation::Read, context, flags, element.length, move |peer| {
                short::read_element(this, peer, element, token, address)
            })
    }

    /// What [`Qp::write_alone`] and [`Qp::read_alone`] have in common: all but the `copy`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `write_alone`")]
    fn alone(
        this: &Shared<Self>,
        operation: Operation,
        context: usize,
        flags: Flags,
        length: u32,
        copy: impl FnOnce(&Self) -> bool,
    ) -> bool {
        // Somebody who carries requests of the queue pair out, or is about to, is not waited for.
        if length > this.alone || flags.contains(Flags::DEFER) || this.initiating.schedule.load(Ordering::Relaxed) != 0
        {
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
                Cq::push_one(&this.initiator_cq, this.completion(context, operation, NtStatus::SUCCESS));
            }
            true
        })
    }
}
