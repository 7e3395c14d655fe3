//! Duties at connectors (`NDKPI 7.7`).

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock;
use ndkpi::NtStatus;

use super::{
    Adviser, Finding, Sink, State,
    cq::{add, is_same, take},
    node::{ConnectorNode, ConnectorState, body},
};
use crate::{Args, ConnectArgs, Event, Function, InterposeOs};

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A call that takes a step of a connection.
    pub(super) fn connector_call(&self, event: &Event<'_, State<O>>) {
        use ConnectorState::{Answered, Connecting, Established, Establishing, Incoming, New, Over};
        let node = event.object.state;
        let Some(connector) = body!(node, Connector) else { return };
        let now = connector.progress.with(|progress| progress.state);
        let next = match (event.function, now) {
            (Function::Connect | Function::ConnectWithSharedEndpoint, New) => Connecting,
            (Function::CompleteConnect | Function::CompleteConnectEx, Answered)
            | (Function::Accept | Function::AcceptEx, Incoming) => Establishing,
            (Function::Reject, Incoming | Answered) => now,
            (Function::Disconnect, Established) => Over,
            (Function::Connect | Function::ConnectWithSharedEndpoint, Over) => {
                self.found(
                    Finding::QpReused,
                    node,
                    event.function,
                    format_args!("a connect of a connector that is over"),
                );
                return;
            }
            _ => {
                let what = format_args!("{} of a connector that is {now:?}", event.function.name());
                self.found(Finding::ConnectionOrder, node, event.function, what);
                return;
            }
        };
        if next != now {
            connector.progress.with(|progress| {
                progress.before = now;
                progress.state = next;
                progress.call = event.call;
            });
        }
        match event.function {
            Function::Connect | Function::ConnectWithSharedEndpoint => self.joins(event),
            Function::Accept | Function::AcceptEx => {
                self.joins(event);
                Self::accepts(event, connector);
            }
            Function::CompleteConnect | Function::CompleteConnectEx => Self::pairs(event, connector),
            Function::Disconnect => {
                self.check_disconnect(event);
                Self::connection_ends(event.object.state);
            }
            _ => {}
        }
    }

    /// A queue pair is connected.
    fn joins(&self, event: &Event<'_, State<O>>) {
        let Some(node) = event.related[0].map(|object| object.state) else { return };
        let (Some(qp), Some(connector)) = (body!(node, Qp), body!(event.object.state, Connector)) else { return };
        if qp.was_disconnected.load(SeqCst) {
            let what = format_args!("{} was disconnected", node.id);
            self.found(Finding::QpReused, event.object.state, event.function, what);
        }
        qp.was_connected.store(true, SeqCst);
        if let Args::Connect(connect) = event.args {
            let most = node.adapter_node().map_or(u32::MAX, |adapter| adapter.info.MaxOutboundReadLimit);
            qp.read_limit.store(connect.outbound_reads.min(most).saturating_add(1), Relaxed);
        }
        let before = connector.qp.with(|place| place.replace(node.clone()));
        drop(before);
    }

    /// A connection is accepted. The other end may be this consumer's, too: it says so in its last step, which comes after this.
    fn accepts(event: &Event<'_, State<O>>, connector: &ConnectorNode<O>) {
        let (node, Args::Connect(ConnectArgs { ends: Some(ends), .. })) = (event.object.state, event.args) else {
            return;
        };
        if let Some(adapter) = node.adapter_node() {
            connector.ends.with(|known| *known = Some(ends));
            add(&adapter.accepted, node.clone(), |accepted, _| accepted.len());
        }
    }

    /// The last step of a connect: if the other end is this consumer's, each of the two queue pairs knows the other one's receives.
    fn pairs(event: &Event<'_, State<O>>, connector: &ConnectorNode<O>) {
        let (node, Args::Connect(ConnectArgs { ends: Some(ends), .. })) = (event.object.state, event.args) else {
            return;
        };
        let Some(adapter) = node.adapter_node() else { return };
        let is_other_end = |there: &State<O>| {
            body!(there, Connector).is_some_and(|there| there.ends.with(|known| *known == Some(ends.turned())))
        };
        let Some(other) = take(&adapter.accepted, is_other_end) else { return };
        let qp_of = |connector: &ConnectorNode<O>| connector.qp.with(|qp| qp.clone());
        let (Some(mine), Some(theirs)) = (qp_of(connector), body!(other, Connector).and_then(qp_of)) else { return };
        let (Some(mine), Some(theirs)) = (body!(mine, Qp), body!(theirs, Qp)) else { return };
        for (sender, receiver) in [(mine, theirs), (theirs, mine)] {
            if receiver.srq.is_none() {
                let before = sender.messages.peer.with(|peer| peer.replace(receiver.receives.clone()));
                sender.messages.known.store(0, Relaxed);
                drop(before);
            }
        }
    }

    /// The connection of a connector ends, or has ended.
    pub(super) fn connection_ends(node: &State<O>) {
        let Some(connector) = body!(node, Connector) else { return };
        if let Some(adapter) = node.adapter_node() {
            drop(take(&adapter.accepted, |there| is_same(there, node)));
        }
        let qp = connector.qp.with(|qp| qp.clone());
        if let Some(qp) = qp.as_ref().and_then(|qp| body!(qp, Qp)) {
            qp.mark_over();
        }
    }

    fn check_disconnect(&self, event: &Event<'_, State<O>>) {
        let Some(connector) = body!(event.object.state, Connector) else { return };
        let Some(node) = connector.qp.with(|qp| qp.clone()) else { return };
        self.chain_of(&node, event);
        let Some(qp) = body!(node, Qp) else { return };
        let (count, is_blurred) = (qp.initiator.signalled(), qp.initiator.is_blurred());
        if count > 0 && !is_blurred {
            let what = format_args!("{count} initiator requests of {} have not completed", node.id);
            self.found(Finding::DisconnectInFlight, event.object.state, event.function, what);
        }
    }

    /// A step of a connection has ended.
    pub(super) fn connector_done(event: &Event<'_, State<O>>) {
        let Some(connector) = body!(event.object.state, Connector) else { return };
        let status = event.outcome.status();
        let is_final = matches!(status, NtStatus::IO_TIMEOUT | NtStatus::CONNECTION_ABORTED);
        let is_over = connector.progress.with(|progress| {
            if progress.call != event.call {
                return false;
            }
            progress.state = match progress.state {
                ConnectorState::Connecting if status.is_success() => ConnectorState::Answered,
                ConnectorState::Establishing if status.is_success() => ConnectorState::Established,
                ConnectorState::Establishing if is_final => ConnectorState::Over,
                ConnectorState::Connecting | ConnectorState::Establishing => progress.before,
                state => state,
            };
            progress.state == ConnectorState::Over
        });
        if is_over
            && let Some(node) = connector.qp.with(|qp| qp.clone())
            && let Some(qp) = body!(node, Qp)
        {
            qp.was_disconnected.store(true, SeqCst);
        }
        if !status.is_success() {
            Self::connection_ends(event.object.state);
        }
    }

    /// A reject has returned.
    pub(super) fn rejected(event: &Event<'_, State<O>>) {
        let Some(connector) = body!(event.object.state, Connector) else { return };
        if event.outcome.status().is_success() {
            connector.progress.with(|progress| progress.state = ConnectorState::Over);
        }
    }
}
