//! How a connection is established or refused (`NDKPI 7.7.1`, `7.7.2`).

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    Connector, ConnectorRequest, ReadLimits,
    listing::ListedConnection,
    parameters::PrivateData,
    remote::Party,
    state::{Connection, ConnectionState, End, Ending, Phase, Role, Sides},
};
use crate::{
    os::{Os, SpinLock},
    qp::Qp,
    wire::RejectReason,
};

/// What an accept brings to the connection.
pub(super) struct Acceptance<O: Os> {
    pub qp: Arc<Qp<O>>,
    pub listed: ListedConnection<O>,
    pub reads: ReadLimits,
    pub data: PrivateData,
}

impl<O: Os> Connection<O> {
    /// Checks that [`Connection::accept`] can succeed.
    ///
    /// # Errors
    ///
    /// As [`Connection::accept`].
    pub fn acceptable(&self) -> Result<(), NtStatus> {
        self.state.with(|state| state.acceptable())
    }

    //= NDKPI 7.7.2
    /// Accepts for the passive side. The active side's connect is answered; the accept waits until that side completes it.
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_ABORTED`: the active side has given up.
    /// - `STATUS_CONNECTION_ACTIVE`: accepted already.
    /// - `STATUS_CONNECTION_INVALID`: rejected already.
    /// - `STATUS_DEVICE_REMOVED`: the adapter of the passive side has gone.
    pub fn accept(this: &Arc<Self>, acceptance: Acceptance<O>) -> Result<(), NtStatus> {
        let port = &this.ports.passive;
        // What is not used is dropped after the lock is released.
        let unused = this.state.with(|state| {
            if let Err(status) = state.acceptable().and_then(|()| acceptance.listed.attach(Party::Here(this.clone()))) {
                return Err((status, acceptance));
            }
            let Some(end) = &mut state.ends.passive else { return Err((NtStatus::CONNECTION_INVALID, acceptance)) };
            end.connector.use_qp(acceptance.qp.clone());
            end.qp = Some(acceptance.qp);
            end.listed = Some(acceptance.listed);
            end.wait(ConnectorRequest::Accept, port.timeouts().establish);
            state.data.passive = Some(acceptance.data);
            state.reads.passive = acceptance.reads.capped(port.limits().max_reads);
            state.phase = Phase::Accepted;
            state.answer(Role::Active, ConnectorRequest::Connect, NtStatus::SUCCESS);
            Ok(())
        });
        unused.map_err(|(status, _)| status)
    }

    //= NDKPI 7.7.1
    /// Completes the connect for the active side: the connection is established. The events of its connector are held back.
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_INVALID`: there is nothing to complete, or the own queue pair cannot be used.
    /// - `STATUS_CONNECTION_ABORTED`: the passive side has given up, or its queue pair has failed.
    /// - `STATUS_IO_TIMEOUT`: too late.
    pub fn complete(this: &Arc<Self>) -> Result<(), NtStatus> {
        this.state.with(|state| {
            match state.phase {
                Phase::Accepted => {}
                Phase::Over(Ending::NotInTime) => return Err(NtStatus::IO_TIMEOUT),
                Phase::Over(Ending::Abandoned(Role::Passive)) => return Err(NtStatus::CONNECTION_ABORTED),
                _ => return Err(NtStatus::CONNECTION_INVALID),
            }
            let Some(own) = state.ends.active.as_ref().filter(|end| !end.connector.is_unanswered()) else {
                return Err(NtStatus::CONNECTION_INVALID);
            };
            let connector = own.connector.clone();
            let Sides { active: Some(active), passive: Some(passive) } = state.qps() else {
                return Err(NtStatus::CONNECTION_INVALID);
            };
            for (role, qp) in [(Role::Active, &active), (Role::Passive, &passive)] {
                // At most one read of a queue pair is in progress at a time, so a limit counts only if it is none.
                qp.allow_reads(state.reads_of(role).outbound > 0);
            }
            if Qp::link(&active, &passive).is_err() {
                let broken = if active.is_dead() { Role::Active } else { Role::Passive };
                state.give_up(this, broken);
                return Err(match broken {
                    Role::Active => NtStatus::CONNECTION_INVALID,
                    Role::Passive => NtStatus::CONNECTION_ABORTED,
                });
            }
            state.phase = Phase::Established;
            for role in Role::BOTH {
                if let Some(listed) = state.ends[role].as_ref().and_then(|end| end.listed.as_ref()) {
                    listed.show();
                }
            }
            this.ports.active.counters.connected();
            this.ports.passive.counters.accepted();
            // Before anything can end the connection: that needs the lock of the connection.
            connector.hold();
            state.answer(Role::Passive, ConnectorRequest::Accept, NtStatus::SUCCESS);
            Ok(())
        })
    }

    /// Refuses a request that never came to a connector.
    pub fn refuse(this: &Arc<Self>) {
        let failed = this.state.with(|state| {
            (state.phase == Phase::Requested)
                .then(|| state.abandon(this, Role::Passive, NtStatus::CANCELLED, Ending::Abandoned(Role::Passive)))
        });
        if let Some(failed) = failed.flatten() {
            failed.finish();
        }
    }

    /// Rejects for one side: the passive side the request, the active side what the passive one has accepted.
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_ABORTED`: the other side has given up before.
    /// - `STATUS_CONNECTION_INVALID`: there is nothing to reject.
    pub fn reject(this: &Arc<Self>, role: Role, data: PrivateData) -> Result<(), NtStatus> {
        let rejectable = match role {
            Role::Passive => Phase::Requested,
            Role::Active => Phase::Accepted,
        };
        let (result, unused) = this.state.with(|state| match state.phase {
            phase
                if phase == rejectable
                    && state.ends[role].as_ref().is_some_and(|end| !end.connector.is_unanswered()) =>
            {
                let before = state.data[role].replace(data);
                (Ok(state.abandon(this, role, NtStatus::CANCELLED, Ending::Abandoned(role))), before)
            }
            Phase::Over(Ending::Abandoned(by)) if by != role => (Err(NtStatus::CONNECTION_ABORTED), Some(data)),
            Phase::Over(Ending::NotInTime) => (Err(NtStatus::CONNECTION_ABORTED), Some(data)),
            _ => (Err(NtStatus::CONNECTION_INVALID), Some(data)),
        });
        drop(unused);
        if let Some(failed) = result? {
            failed.finish();
        }
        Ok(())
    }
}

impl<O: Os> ConnectionState<O> {
    const fn acceptable(&self) -> Result<(), NtStatus> {
        match self.phase {
            Phase::Requested => Ok(()),
            Phase::Accepted | Phase::Established => Err(NtStatus::CONNECTION_ACTIVE),
            Phase::Over(Ending::Abandoned(Role::Active) | Ending::NotInTime) => Err(NtStatus::CONNECTION_ABORTED),
            Phase::Over(_) => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// `by` ends a connection that is not established, and has a request of its own answered with `own`. The other side's
    /// connect is refused, its accept aborted (`NDKPI 5.8`).
    ///
    /// A connect that failed is answered later, where no lock is held.
    #[must_use]
    pub fn abandon(
        &mut self,
        connection: &Connection<O>,
        by: Role,
        own: NtStatus,
        ending: Ending,
    ) -> Option<FailedConnect<O>> {
        self.phase = Phase::Over(ending);
        for role in Role::BOTH {
            connection.ports[role].counters.failed_to_connect();
        }
        let (connect, accept) = match by {
            Role::Active => (own, NtStatus::CONNECTION_ABORTED),
            Role::Passive => (NtStatus::CONNECTION_REFUSED, own),
        };
        self.answer(Role::Passive, ConnectorRequest::Accept, accept);
        let end = self.ends.active.take_if(|end| end.take_pending(ConnectorRequest::Connect))?;
        Some(FailedConnect { end, status: connect, data: self.data.passive.take(), reason: None })
    }

    /// [`ConnectionState::abandon`] once the connect was answered, so that no answer to it is left over.
    fn give_up(&mut self, connection: &Connection<O>, by: Role) {
        let failed = self.abandon(connection, by, NtStatus::CONNECTION_ABORTED, Ending::Abandoned(by));
        debug_assert!(failed.is_none(), "the connect was answered");
    }
}

/// A connect that has failed, and everything that it held.
pub(super) struct FailedConnect<O: Os> {
    pub end: End<O>,
    pub status: NtStatus,
    /// What the passive side said about it.
    pub data: Option<PrivateData>,
    /// The reason of another machine's REJ.
    pub reason: Option<RejectReason>,
}

impl<O: Os> FailedConnect<O> {
    /// Gives up what the connect held, then lets its consumer know: it may try again at once, with the same connector, queue
    /// pair and port.
    pub fn finish(self) {
        let Self { end, status, data, reason } = self;
        let End { connector, qp, listed, .. } = end;
        drop(listed);
        if let Some(qp) = qp {
            drop(qp.take_link_client());
        }
        connector.forget_attempt();
        Connector::connect_failed(&connector, status, data, reason);
    }
}
