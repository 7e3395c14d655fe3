//! The end of connections (RoCEv2 8.9): `NdkReject`, `NdkDisconnect`, `NdkCloseConnector`.

use super::{CallError, Context, Ending, EventKind, Manager, Refusal, State, active::wanted_mtu};
use crate::{
    adapter::Adapter,
    failure::Failure,
    wire::{
        Envelope, U24,
        cm::{Attribute, Drep, Dreq, Mad, Message, Reason, Rej},
    },
};

impl Manager {
    /// `NdkReject`.
    pub fn reject<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        id: u32,
        private: &[u8],
    ) -> Result<(), CallError> {
        let connection = self.connection(id).ok_or(CallError::Unknown)?;
        if !matches!(connection.state, State::RequestReceived | State::ReplyReceived) {
            return Err(CallError::WrongState);
        }
        if !self.send_rej(context.counters, id, Reason::CONSUMER, &[], private) {
            return Err(CallError::TooMuchData);
        }
        self.end_unconnected(context, id, Refusal::Aborted);
        Ok(())
    }

    /// `NdkDisconnect`. The outcome is an event, also if the connection is over already.
    pub fn disconnect<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) -> Result<(), CallError> {
        let connection = self.get_mut(id).ok_or(CallError::Unknown)?;
        if connection.disconnecting {
            return Err(CallError::WrongState);
        }
        match connection.state {
            State::Established => {
                connection.disconnecting = true;
                self.send_dreq(context, id);
            }
            // The peer is being told that the queue pair has failed: this waits for its answer too.
            State::DisconnectSent => connection.disconnecting = true,
            State::Over => {
                connection.disconnecting = true;
                let qp = connection.qp;
                Self::stop(context, qp, Failure::Flushed);
                self.tell(id, EventKind::DisconnectComplete(Ok(())));
            }
            _ => return Err(CallError::WrongState),
        }
        Ok(())
    }

    /// `NdkCloseConnector`: whatever there is ends, and nobody is told anything any more.
    pub fn close<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) -> Result<(), CallError> {
        let connection = self.get_mut(id).ok_or(CallError::Unknown)?;
        if connection.closed {
            return Err(CallError::Unknown);
        }
        connection.closed = true;
        let (state, qp) = (connection.state, connection.qp);
        self.events.retain(|event| event.connection != id);
        match state {
            State::Resolving | State::Over => self.remove(context, id),
            State::RequestSent => {
                let guid = context.interface.guid.to_be_bytes();
                self.send_rej(context.counters, id, Reason::TIMEOUT, &guid, &[]);
                self.end_unconnected(context, id, Refusal::Aborted);
            }
            State::RequestReceived | State::ReplyReceived | State::ReplySent => {
                self.send_rej(context.counters, id, Reason::CONSUMER, &[], &[]);
                self.end_unconnected(context, id, Refusal::Aborted);
            }
            State::Established => {
                self.send_dreq(context, id);
                Self::stop(context, qp, Failure::Flushed);
            }
            State::DisconnectSent => {}
        }
        Ok(())
    }

    fn stop<A: Adapter>(context: &mut Context<'_, A>, qp: u32, failure: Failure) {
        if let Some(entry) = context.qps.get_mut(qp) {
            entry.qp.fail(failure, context.adapter);
        }
        context.qps.touch(context.now, qp);
    }

    fn send_dreq<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        let (retries, transaction) = (self.times.retries, u64::from(self.psn().get()));
        let Some(connection) = self.get_mut(id) else { return };
        connection.state = State::DisconnectSent;
        connection.retries = retries;
        connection.transaction = transaction;
        let dreq = Dreq {
            local_id: connection.wire_id().into(),
            remote_id: connection.remote_id.into(),
            qpn: U24::new(connection.remote_qpn),
            reserved: 0,
            private: [0; 220],
        };
        let mad = Mad::new(Attribute::Dreq, transaction, &dreq);
        self.send_until_answered(context.now, context.counters, id, mad);
    }

    /// The queue pair of a connection has failed: the consumer is told, and the peer.
    pub fn queue_pair_failed<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32) {
        match self.connection(id).map(|connection| connection.state) {
            Some(State::Established) => self.lose(context, id, Failure::Flushed, Ending::Lost),
            Some(State::ReplySent | State::ReplyReceived) => {
                self.send_rej(context.counters, id, Reason::CONSUMER, &[], &[]);
                self.end_unconnected(context, id, Refusal::Aborted);
            }
            _ => {}
        }
    }

    /// An established connection is lost: the peer is told that it is.
    pub(super) fn lose<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32, failure: Failure, ending: Ending) {
        let Some(connection) = self.get_mut(id) else { return };
        let qp = connection.qp;
        Self::stop(context, qp, failure);
        self.tell(id, EventKind::Disconnected(ending));
        self.send_dreq(context, id);
    }

    /// The peer has disconnected, or refuses what was or nearly was established, for this reason.
    fn peer_left<A: Adapter>(&mut self, context: &mut Context<'_, A>, id: u32, reason: Option<Reason>) {
        let Some(connection) = self.get_mut(id) else { return };
        match connection.state {
            State::Established => {
                (connection.state, connection.deadline) = (State::Over, None);
                let (qp, closed) = (connection.qp, connection.closed);
                // No answer will come to what is outstanding.
                Self::stop(context, qp, Failure::Disconnected);
                self.tell(id, EventKind::Disconnected(Ending::Graceful));
                if closed {
                    self.remove(context, id);
                }
            }
            State::DisconnectSent => self.disconnected(context, id, Ok(())),
            State::ReplySent | State::ReplyReceived | State::RequestReceived => {
                self.end_unconnected(context, id, reason.map_or(Refusal::Aborted, Refusal::Withdrawn));
            }
            _ => {}
        }
    }

    /// This side's disconnect has ended.
    pub(super) fn disconnected<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        id: u32,
        outcome: Result<(), Refusal>,
    ) {
        let Some(connection) = self.get_mut(id) else { return };
        (connection.state, connection.deadline) = (State::Over, None);
        let (qp, closed, waits) = (connection.qp, connection.closed, connection.disconnecting);
        Self::stop(context, qp, Failure::Flushed);
        if waits {
            self.tell(id, EventKind::DisconnectComplete(outcome));
        }
        if closed {
            self.remove(context, id);
        }
    }

    pub(super) fn dreq<A: Adapter>(
        &mut self,
        context: &mut Context<'_, A>,
        envelope: &Envelope,
        transaction: u64,
        dreq: &Dreq,
    ) {
        let (ours, theirs) = (dreq.remote_id.get(), dreq.local_id.get());
        let id = self.meant(envelope, ours, theirs);
        let is_other = |id| self.connection(id).is_none_or(|connection| connection.qp != dreq.qpn.get());
        if id.is_some_and(is_other) {
            return;
        }
        // Unknown ones are answered too: the answer to their first DREQ was lost.
        let drep = Drep { local_id: ours.into(), remote_id: theirs.into(), private: [0; 224] };
        let path = Self::way_back(context.interface, envelope);
        self.send(context.counters, path, Mad::new(Attribute::Drep, transaction, &drep));
        if let Some(id) = id {
            self.peer_left(context, id, None);
        }
    }

    pub(super) fn drep<A: Adapter>(&mut self, context: &mut Context<'_, A>, envelope: &Envelope, drep: &Drep) {
        let id = self.meant(envelope, drep.remote_id.get(), drep.local_id.get());
        let waits = |id: &u32| self.connection(*id).is_some_and(|connection| connection.state == State::DisconnectSent);
        if let Some(id) = id.filter(waits) {
            self.disconnected(context, id, Ok(()));
        }
    }

    pub(super) fn rej<A: Adapter>(&mut self, context: &mut Context<'_, A>, envelope: &Envelope, rej: &Rej) {
        let (ours, theirs, reason) = (rej.remote_id.get(), rej.local_id.get(), Reason(rej.reason.get()));
        if ours == 0 && reason == Reason::TIMEOUT {
            // The active side has given up before it saw a REP, so that it knows its own id only.
            let guid = rej.information.first_chunk().map_or(0, |guid| u64::from_be_bytes(*guid));
            let given_up = self.find(|connection| {
                connection.remote_id == theirs && connection.remote_guid == guid && connection.path.is_of(envelope)
            });
            if let Some(id) = given_up {
                self.peer_left(context, id, Some(reason));
            }
            return;
        }
        // A peer that has given the connection up, and cannot know its own id any more, answers the REP.
        let of_nobody = || {
            let connection = self.connection(ours).filter(|_| theirs == 0)?;
            let fits = connection.state == State::ReplySent && connection.path.is_of(envelope);
            fits.then_some(connection.id)
        };
        let Some(id) = self.meant(envelope, ours, theirs).or_else(of_nobody) else { return };
        let Some(connection) = self.get_mut(id) else { return };
        if connection.state != State::RequestSent {
            self.peer_left(context, id, Some(reason));
            return;
        }
        if rej.message >> 6 != Message::Req as u8 {
            return;
        }
        let smaller = wanted_mtu(rej).filter(|mtu| *mtu < connection.mtu);
        let may_renew = reason == Reason::STALE || smaller.is_some();
        connection.keep(&rej.private);
        if !(may_renew && self.renew(context, id, smaller)) {
            self.end_unconnected(context, id, Refusal::Rejected(reason));
        }
    }
}
