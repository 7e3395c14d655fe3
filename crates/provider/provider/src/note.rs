//! Rare events that are worth a trace.

use core::net::SocketAddr;

use engine::{
    connection::{ConnectorRequest, DisconnectReason},
    cq::notify::CqFailure,
    wire::RejectReason,
};
use ndkpi::NtStatus;

/// An event on an adapter. None is on the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A connect was completed: there is a connection between these addresses.
    Connected {
        /// The address on this side.
        local: SocketAddr,
        /// The address on the other side, whose [`Note::Accepted`] comes too.
        remote: SocketAddr,
    },
    /// An accept was completed.
    Accepted,
    /// A connect, accept or disconnect has failed.
    Failed {
        /// What was asked.
        request: ConnectorRequest,
        /// Its answer.
        status: NtStatus,
    },
    /// Another machine has refused a connect or an accept; [`Note::Failed`] follows. What it means is in
    /// [`Reason::of_rejection`](crate::Reason::of_rejection).
    Rejected(RejectReason),
    /// A consumer's disconnect was completed.
    Disconnected,
    /// A connection has ended, not by its consumer, who is told now.
    Lost(DisconnectReason),
    /// A completion queue has failed, for example by an overrun.
    QueueFailed(CqFailure),
}
