//! Queue pairs of a NIC that does what NDKPI allows and the plain one does not ([`NicRules`]): messages that meet no receive fail,
//! initiator completions come late, bytes land in another order.
//!
//! All of it happens on the slow path. A plain queue pair pays nothing for it, because the executor is given a peer only if both
//! sides are plain.

use alloc::{boxed::Box, collections::VecDeque};
use core::marker::PhantomData;

use fallible::{Arc, try_box};

use super::{
    NtStatus, Qp,
    send_queue::{SendQueue, order},
};
use crate::{
    cq::{Cq, Cqe},
    nic::{Nic, NicRules, NotReady},
    os::{Os, Routine, Timer},
};

/// What a queue pair needs for rules that are not plain.
pub(super) struct Hardware<O: Os> {
    os: O,
    pub rules: NicRules,
    /// Ends the wait before the message that met no receive is sent again.
    retry: O::Timer<Wake<O>>,
    /// Ends the delay of initiator completions.
    late: O::Timer<Wake<O>>,
}

impl<O: Os> Hardware<O> {
    /// `None` for plain rules.
    pub fn try_new(nic: &Nic<O>) -> Result<Option<Box<Self>>, NtStatus> {
        let (os, rules) = (nic.os(), nic.rules());
        if rules.are_plain() {
            return Ok(None);
        }
        let hardware = Self { os: os.clone(), rules, retry: os.timer()?, late: os.timer()? };
        Ok(Some(try_box(hardware)?))
    }
}

/// The timers of a queue pair: something has been waited for.
pub(super) struct Wake<O>(PhantomData<O>);

impl<O: Os> Routine for Wake<O> {
    type Target = Qp<O>;

    fn run(qp: &Arc<Qp<O>>) {
        Qp::order(qp, order::KEEP_TIME);
    }
}

/// What a send queue keeps for that.
pub(super) struct HardwareState {
    /// The message that met no receive: when it is sent again, in microseconds of [`Os::now`], and how often after that.
    retry: Option<(u64, u32)>,
    /// Completions that are late, in order. Has room for one of each request in the queue.
    late: VecDeque<Cqe>,
    late_until: u64,
    random: u64,
}

impl HardwareState {
    /// For a queue of `depth` requests under these rules.
    pub fn try_new(rules: &NicRules, depth: u32) -> Result<Self, NtStatus> {
        let mut late = VecDeque::new();
        if rules.initiator_delay > 0 {
            late.try_reserve_exact(depth as usize).map_err(fallible::AllocError::from)?;
        }
        Ok(Self { retry: None, late, late_until: 0, random: rules.seed | 1 })
    }

    /// A number that looks like chance (`xorshift64*`).
    const fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

impl<O: Os> Qp<O> {
    /// Returns true if the rules of the NIC are plain.
    pub(super) const fn is_plain(&self) -> bool {
        self.hardware.is_none()
    }

    /// Returns true if bytes that come in land in order.
    pub(super) fn lands_in_order(&self) -> bool {
        self.hardware.as_ref().is_none_or(|hardware| hardware.rules.in_order)
    }
}

impl<O: Os> SendQueue<O> {
    /// The peer, if both sides are plain: what the executor may be given.
    pub(super) fn plain_peer_of(qp: &Qp<O>, peer: Option<&Arc<Qp<O>>>) -> Option<Arc<Qp<O>>> {
        peer.filter(|peer| qp.is_plain() && peer.lands_in_order()).cloned()
    }

    //= NDKPI 7.2.7
    /// The first request has met no receive. `Ok` if it waits.
    ///
    /// # Errors
    ///
    /// `STATUS_IO_TIMEOUT` if it does not, or no longer.
    #[cold]
    pub(super) fn meets_no_receive(&mut self, qp: &Arc<Qp<O>>, peer: &Arc<Qp<O>>) -> Result<(), NtStatus> {
        let Some(hardware) = &qp.hardware else { return Ok(()) };
        match hardware.rules.not_ready {
            NotReady::Wait => Ok(()),
            // A peer that is at its end has ended the connection for another reason.
            _ if peer.is_dead() => Ok(()),
            NotReady::End => {
                Qp::fail(peer);
                Err(NtStatus::IO_TIMEOUT)
            }
            NotReady::Retry { retries, interval } => {
                let now = hardware.os.now();
                let left = match self.hardware_state.retry {
                    None => retries,
                    Some((at, _)) if now < at => return Ok(()),
                    Some((_, left)) => left,
                };
                let Some(after) = left.checked_sub(1) else { return Err(NtStatus::IO_TIMEOUT) };
                self.hardware_state.retry = Some((now.saturating_add(interval), after));
                hardware.retry.set(interval, qp);
                Ok(())
            }
        }
    }

    /// The first request is not one that waits for a receive any more.
    pub(super) fn forget_retries(&mut self, qp: &Qp<O>) {
        if self.hardware_state.retry.take().is_some()
            && let Some(hardware) = &qp.hardware
        {
            let _ = hardware.retry.cancel();
        }
    }

    //= NDKPI 7.1.8
    /// Completes an initiator request, perhaps later.
    pub(super) fn push_initiated(&mut self, qp: &Arc<Qp<O>>, cqe: Cqe) {
        let Some(hardware) = qp.hardware.as_ref().filter(|hardware| hardware.rules.initiator_delay > 0) else {
            return Cq::push(&qp.initiator_cq, cqe);
        };
        if self.hardware_state.late.is_empty() {
            // Every other one is not late: either order happens.
            let chance = self.hardware_state.random();
            if chance & (1 << 40) == 0 || qp.is_dead() {
                return Cq::push(&qp.initiator_cq, cqe);
            }
            let delay = 1 + (chance >> 41) % u64::from(hardware.rules.initiator_delay);
            self.hardware_state.late_until = hardware.os.now().saturating_add(delay);
            hardware.late.set(delay, qp);
        }
        if self.hardware_state.late.len() == self.hardware_state.late.capacity() {
            self.push_late(qp);
            return Cq::push(&qp.initiator_cq, cqe);
        }
        self.hardware_state.late.push_back(cqe);
    }

    /// Completes what was late for long enough; all of it if the queue pair is at its end, whose timers are not needed any more.
    pub(super) fn keep_time(&mut self, qp: &Qp<O>) {
        let Some(hardware) = &qp.hardware else { return };
        let is_dead = qp.is_dead();
        if !self.hardware_state.late.is_empty() && (is_dead || hardware.os.now() >= self.hardware_state.late_until) {
            self.push_late(qp);
        }
        if is_dead {
            let _ = hardware.late.cancel();
            self.forget_retries(qp);
        }
    }

    fn push_late(&mut self, qp: &Qp<O>) {
        for cqe in self.hardware_state.late.drain(..) {
            Cq::push(&qp.initiator_cq, cqe);
        }
    }

    /// A number that decides the order in which bytes land; `None` if they land in order.
    pub(super) fn disorder(&mut self, lands_in_order: bool) -> Option<u64> {
        if lands_in_order { None } else { Some(self.hardware_state.random()) }
    }
}
