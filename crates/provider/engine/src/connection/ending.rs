//! How an established connection ends (`NDKPI 7.7.5` to `7.7.7`).
//!
//! In three steps:
//!
//! 1. Under the connection's lock it is declared over. Only one caller can do that.
//! 2. With no lock held, the queue pairs are unlinked, and the transfers between them are waited for.
//! 3. Only then are the sides told: a consumer whose disconnect is complete may take its memory back.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    ConnectorRequest, DisconnectReason, Port,
    state::{Connection, ConnectionState, Ending, Phase, Role, Sides},
};
use crate::{
    os::{Os, SpinLock},
    qp::Qp,
};

/// What becomes of a disconnect.
pub(super) enum Disconnect {
    /// It is complete.
    Done,
    /// It is answered later.
    Pending,
}

impl<O: Os> Connection<O> {
    //= NDKPI 7.2.6
    //= NDKPI 7.7.5
    /// Disconnects a side. The peer is told after the last request of the side. If it has disconnected itself, its notice is there:
    /// then requests of both sides that wait for a receive are not waited for, and end as flushed (`NDKPI 7.7.5`).
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_INVALID`: there is no connection, or the side has disconnected before.
    /// - `STATUS_CONNECTION_ABORTED`: the connection was broken.
    pub fn disconnect(this: &Arc<Self>, role: Role) -> Result<Disconnect, NtStatus> {
        let (over, is_last, qps) = this.state.with(|state| {
            let over = match state.phase {
                Phase::Established => None,
                Phase::Over(ending) if ending.was_established() => Some(ending),
                _ => return Err(NtStatus::CONNECTION_INVALID),
            };
            let Some(end) = state.ends[role].as_mut().filter(|end| !end.disconnected && !end.connector.is_unanswered())
            else {
                return Err(NtStatus::CONNECTION_INVALID);
            };
            end.disconnected = true;
            end.connector.silence();
            if over.is_none() {
                end.wait(ConnectorRequest::Disconnect, this.ports[role].timeouts().disconnect);
            }
            let is_last = state.ends[role.other()].as_ref().is_some_and(|end| end.disconnected);
            Ok((over, is_last, state.qps()))
        })?;
        let Some(ending) = over else {
            if let Some(qp) = &qps[role] {
                Qp::drain(qp);
            }
            if is_last {
                Role::BOTH.into_iter().filter_map(|role| qps[role].as_ref()).for_each(Qp::settle);
            }
            return Ok(Disconnect::Pending);
        };
        if let Some(qp) = &qps[role] {
            Qp::fail(qp);
        }
        quiesce(&qps);
        if ending == Ending::Graceful { Ok(Disconnect::Done) } else { Err(NtStatus::CONNECTION_ABORTED) }
    }

    /// Everything that a side had posted before its disconnect has ended, or is not waited for.
    pub fn drained(this: &Arc<Self>, role: Role) {
        let done = this.state.with(|state| {
            if let Some(end) = &mut state.ends[role] {
                end.drained = true;
            }
            // The peer's provider answers the notice by itself, unless its consumer has disconnected too: then it has a
            // notice of its own to give, behind what it has posted.
            let ready = |role: Role| state.ends[role].as_ref().is_none_or(|end| !end.disconnected || end.drained);
            ready(Role::Active) && ready(Role::Passive)
        });
        if done {
            Self::end(this, Ending::Graceful);
        }
    }

    /// The queue pairs have lost each other.
    pub fn broken(this: &Arc<Self>) {
        Self::end(this, Ending::Lost(DisconnectReason::Failed));
    }

    /// Ends the connection because an adapter has gone, in whatever phase it is. Not inlined: a connection of another kind would have its
    /// frame on the stack.
    #[inline(never)]
    pub(super) fn abort(this: &Arc<Self>, gone: &Port<O>) {
        let is_gone = |role: Role| core::ptr::eq(&raw const *this.ports[role], gone);
        let failed = this.state.with(|state| match state.phase {
            Phase::Requested | Phase::Accepted => {
                let by = if is_gone(Role::Active) { Role::Active } else { Role::Passive };
                state.abandon(this, by, NtStatus::CONNECTION_ABORTED, Ending::Abandoned(by))
            }
            Phase::Established | Phase::Over(_) => None,
        });
        if let Some(failed) = failed {
            failed.finish();
        }
        Self::end_and_flush(this, Ending::Lost(DisconnectReason::Removed), is_gone);
    }

    /// Ends the connection, if it is established.
    pub(super) fn end(this: &Arc<Self>, ending: Ending) {
        Self::end_and_flush(this, ending, |_| false);
    }

    /// As [`Connection::end`]. Also flushes the queue pairs of the sides that `flushed` names.
    fn end_and_flush(this: &Arc<Self>, ending: Ending, flushed: impl Fn(Role) -> bool) {
        let Some((failing, qps)) = this.state.with(|state| {
            (state.phase == Phase::Established).then(|| {
                state.declare_over(this, ending, None);
                let disconnected = |role: Role| state.ends[role].as_ref().is_some_and(|end| end.disconnected);
                let failing = Role::BOTH.map(|role| disconnected(role) || flushed(role));
                (failing, state.qps())
            })
        }) else {
            return;
        };
        for (role, failing) in Role::BOTH.into_iter().zip(failing) {
            match &qps[role] {
                // A disconnect flushes, and so does an adapter that goes.
                Some(qp) if failing => Qp::fail(qp),
                // An incoming one does not (`NDKPI 7.7.6`).
                Some(qp) => Qp::unlink(qp),
                None => {}
            }
        }
        quiesce(&qps);
        this.state.with(|state| {
            for role in Role::BOTH {
                state.tell(role, ending);
            }
        });
    }

    /// A side closes its connector, whatever it is doing.
    pub fn leave(this: &Arc<Self>, role: Role) {
        const LOST: Ending = Ending::Lost(DisconnectReason::Closed);
        let (failed, before, qps) = this.state.with(|state| {
            let before = state.phase;
            let mut failed = None;
            match before {
                Phase::Requested | Phase::Accepted => {
                    failed = state.abandon(this, role, NtStatus::CANCELLED, Ending::Abandoned(role));
                }
                Phase::Established => state.declare_over(this, LOST, Some(role)),
                Phase::Over(_) => {}
            }
            state.answer(role, ConnectorRequest::Disconnect, NtStatus::CANCELLED);
            (failed, before, state.qps())
        });
        if let Some(failed) = failed {
            failed.finish();
        }
        let established = match before {
            Phase::Established => true,
            Phase::Over(ending) => ending.was_established(),
            Phase::Requested | Phase::Accepted => false,
        };
        if let Some(qp) = &qps[role] {
            if established {
                Qp::fail(qp);
            }
            drop(qp.take_link_client());
        }
        if established {
            quiesce(&qps);
        }
        // The end is dropped after the lock is released.
        drop(this.state.with(|state| {
            if before == Phase::Established {
                state.tell(role.other(), LOST);
            }
            state.ends[role].take()
        }));
    }
}

impl<O: Os> ConnectionState<O> {
    /// Declares the connection over, and takes it out of the lists and counters. `closer` is the side that closed its connector.
    fn declare_over(&mut self, connection: &Connection<O>, ending: Ending, closer: Option<Role>) {
        self.phase = Phase::Over(ending);
        let disconnected = Role::BOTH.iter().any(|role| self.ends[*role].as_ref().is_some_and(|end| end.disconnected));
        for role in Role::BOTH {
            let counters = &connection.ports[role].counters;
            counters.ended();
            if matches!(ending, Ending::Lost(_)) && !disconnected && closer != Some(role) {
                counters.broke();
            }
            if let Some(end) = &mut self.ends[role] {
                end.listed = None;
            }
        }
    }

    //= NDKPI 7.7.6
    /// Tells a side that the connection has ended: by the answer to its disconnect, or by an indication. A side that closes has
    /// its answer already, and gets no indication.
    fn tell(&mut self, role: Role, ending: Ending) {
        if let Some(end) = &mut self.ends[role] {
            end.tell(role, ending);
        }
    }
}

/// Waits for the transfers that began while the queue pairs were linked. After that neither touches the other's memory.
fn quiesce<O: Os>(qps: &Sides<Option<Arc<Qp<O>>>>) {
    for role in Role::BOTH {
        if let Some(qp) = &qps[role] {
            qp.quiesce();
        }
    }
}
