//! What the two sides of a connection have in common, from the connect on.
//!
//! Everything that both sides must agree on lies under the one lock of the connection, so that neither side ever waits for
//! the lock of the other's connector. A change under that lock also decides who is told what: an answer or an indication is
//! put into the [`Delivery`](super::delivery::Delivery) of a connector before the lock is released, so that the order of
//! events is the order of changes.
//!
//! ```text
//! Requested -> Accepted -> Established -> Over
//!     |            |                       ^
//!     +------------+-----------------------+
//! ```

use core::{
    net::SocketAddr,
    ops::{Index, IndexMut},
};

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    ConnectionData, Connector, ConnectorRequest, DisconnectReason, Port, ReadLimits, establish::FailedConnect,
    listing::ListedConnection, parameters::PrivateData,
};
use crate::{
    os::{Os, SpinLock, Timer},
    qp::Qp,
};

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The one that connects.
    Active,
    /// The one that listens.
    Passive,
}

impl Role {
    pub const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    pub const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// A value for each side.
#[derive(Clone, Copy)]
pub(super) struct Sides<T> {
    pub active: T,
    pub passive: T,
}

impl<T> Index<Role> for Sides<T> {
    type Output = T;

    fn index(&self, role: Role) -> &T {
        match role {
            Role::Active => &self.active,
            Role::Passive => &self.passive,
        }
    }
}

impl<T> IndexMut<Role> for Sides<T> {
    fn index_mut(&mut self, role: Role) -> &mut T {
        match role {
            Role::Active => &mut self.active,
            Role::Passive => &mut self.passive,
        }
    }
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The passive side has to accept.
    Requested,
    /// The active side has to complete the connect.
    Accepted,
    /// The queue pairs are linked.
    Established,
    /// Nothing can happen any more.
    Over(Ending),
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was not established in time.
    NotInTime,
    /// This side gave up before it was established.
    Abandoned(Role),
    /// It was established, and a side has disconnected in order.
    Graceful,
    /// It was established, and this side's disconnect ran out of time.
    Cut(Role),
    /// It was established, and broke.
    Lost(DisconnectReason),
}

impl Ending {
    pub const fn was_established(self) -> bool {
        matches!(self, Self::Graceful | Self::Cut(_) | Self::Lost(_))
    }

    /// The answer to the disconnect of a side.
    fn answer(self, role: Role) -> NtStatus {
        match self {
            Self::Graceful => NtStatus::SUCCESS,
            Self::Cut(by) if by == role => NtStatus::IO_TIMEOUT,
            _ => NtStatus::CONNECTION_ABORTED,
        }
    }

    /// What a side is told that has not disconnected; `None` if the connection was not established.
    const fn reason(self) -> Option<DisconnectReason> {
        match self {
            Self::Graceful => Some(DisconnectReason::Disconnected),
            Self::Cut(_) => Some(DisconnectReason::TimedOut),
            Self::Lost(reason) => Some(reason),
            Self::NotInTime | Self::Abandoned(_) => None,
        }
    }
}

/// A connection's addresses as one side names them: its scope ids are those of that side's own interfaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// A connection between two connectors, from the request on.
pub(super) struct Connection<O: Os> {
    pub addresses: Sides<Ends>,
    pub ports: Sides<Arc<Port<O>>>,
    pub state: O::Lock<ConnectionState<O>>,
}

/// What changes about a connection.
pub(super) struct ConnectionState<O: Os> {
    pub phase: Phase,
    /// `None` before the side has a connector, and after it has closed it.
    pub ends: Sides<Option<End<O>>>,
    /// What each side sent last for the other to read.
    pub data: Sides<Option<PrivateData>>,
    /// What each side allows.
    pub reads: Sides<ReadLimits>,
}

/// One end of a connection.
pub(super) struct End<O: Os> {
    pub connector: Arc<Connector<O>>,
    /// Stays here until its last transfer has ended.
    pub qp: Option<Arc<Qp<O>>>,
    pub listed: Option<ListedConnection<O>>,
    /// The request that waits for its answer.
    pub pending: Option<ConnectorRequest>,
    /// When it times out, in microseconds of [`Os::now`].
    pub deadline: u64,
    /// The consumer has disconnected.
    pub disconnected: bool,
    /// Everything that was posted before that has ended, or what is left waits for a receive and both sides have disconnected.
    pub drained: bool,
}

impl<O: Os> End<O> {
    pub const fn new(connector: Arc<Connector<O>>) -> Self {
        Self { connector, qp: None, listed: None, pending: None, deadline: 0, disconnected: false, drained: false }
    }

    /// Begins a request that waits for at most `timeout` microseconds.
    pub fn wait(&mut self, request: ConnectorRequest, timeout: u64) {
        let connector = &self.connector;
        self.pending = Some(request);
        self.deadline = connector.os().now().saturating_add(timeout);
        connector.timer().set(timeout, connector);
    }

    /// Takes the request if it waits. Whoever takes it answers it.
    pub fn take_pending(&mut self, request: ConnectorRequest) -> bool {
        let waits = self.pending.take_if(|pending| *pending == request).is_some();
        if waits {
            let _ = self.connector.timer().cancel();
        }
        waits
    }

    /// Tells the connector of this side of the end. The answer to its own disconnect is all that it gets.
    pub fn tell(&mut self, role: Role, ending: Ending) {
        if self.take_pending(ConnectorRequest::Disconnect) {
            Connector::answer(&self.connector, ConnectorRequest::Disconnect, ending.answer(role));
        } else if let Some(reason) = ending.reason() {
            Connector::indicate(&self.connector, reason);
        }
    }
}

impl<O: Os> Connection<O> {
    /// Makes the connection for a connect that is about to be requested, with what the active side sends along.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        addresses: Sides<Ends>,
        ports: Sides<Arc<Port<O>>>,
        reads: ReadLimits,
        data: PrivateData,
    ) -> Result<Arc<Self>, NtStatus> {
        let passive_reads = ports.passive.limits().max_reads;
        let state = ConnectionState {
            phase: Phase::Requested,
            ends: Sides { active: None, passive: None },
            data: Sides { active: Some(data), passive: None },
            reads: Sides { active: reads.capped(ports.active.limits().max_reads), passive: passive_reads },
        };
        let state = ports.active.os().lock(state)?;
        Arc::try_new(Self { addresses, ports, state }).map_err(Into::into)
    }

    /// Returns true if the active side still waits for the passive one.
    pub fn is_requested(&self) -> bool {
        self.state.with(|state| state.phase == Phase::Requested)
    }

    /// Gives the passive end to its connector.
    pub fn receive(&self, connector: &Arc<Connector<O>>) {
        self.state.with(|state| state.ends.passive = Some(End::new(connector.clone())));
    }

    /// Returns what a side can read about the connection, and copies its private data (`NDKPI 7.7.4`).
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_INVALID` if the other side has not said anything yet.
    pub fn data(&self, role: Role, into: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        self.state.with(|state| {
            let required = state.data[role.other()].as_ref().ok_or(NtStatus::CONNECTION_INVALID)?.copy_to(into);
            Ok(ConnectionData { reads: state.reads_of(role), required })
        })
    }

    /// A request may have timed out. An earlier due time, which was replaced, may still come here: the deadline decides.
    pub fn expired(this: &Arc<Self>, role: Role) {
        let (failed, cut) = this.state.with(|state| {
            let Some(end) = state.ends[role].as_ref().filter(|end| end.pending.is_some()) else { return (None, false) };
            let left = end.deadline.saturating_sub(end.connector.os().now());
            if left > 0 {
                end.connector.timer().set(left, &end.connector);
                return (None, false);
            }
            match (end.pending, state.phase) {
                (Some(ConnectorRequest::Connect), Phase::Requested)
                | (Some(ConnectorRequest::Accept), Phase::Accepted) => {
                    (state.abandon(this, role, NtStatus::IO_TIMEOUT, Ending::NotInTime), false)
                }
                (Some(ConnectorRequest::Disconnect), Phase::Established) => (None, true),
                // An answer is about to be given.
                _ => (None, false),
            }
        });
        if let Some(failed) = failed {
            FailedConnect::finish(failed);
        }
        if cut {
            Self::end(this, Ending::Cut(role));
        }
    }
}

impl<O: Os> ConnectionState<O> {
    /// The effective read limits of a side: its own, cut to those of the other side (`NDKPI 7.7.3`).
    pub fn reads_of(&self, role: Role) -> ReadLimits {
        self.reads[role].against(self.reads[role.other()])
    }

    /// Answers a request if it waits.
    pub fn answer(&mut self, role: Role, request: ConnectorRequest, status: NtStatus) {
        if let Some(end) = &mut self.ends[role]
            && end.take_pending(request)
        {
            Connector::answer(&end.connector, request, status);
        }
    }

    /// The queue pairs of the two sides; `None` where a side has none.
    pub fn qps(&self) -> Sides<Option<Arc<Qp<O>>>> {
        let qp = |end: &Option<End<O>>| end.as_ref().and_then(|end| end.qp.clone());
        Sides { active: qp(&self.ends.active), passive: qp(&self.ends.passive) }
    }
}
