//! Clients: the callbacks of connectors and listeners.
//!
//! Every call comes from a DPC of the object it is about, at `DISPATCH_LEVEL`, with no lock held and never while
//! another call for the same object runs. It may call everything on the object, also close it.
//!
//! A client is dropped with its object: no call runs then, and none follows. The drop may happen with engine locks held, so it may
//! queue work and nothing else. A connector drops its client before the queue pair, the listener and the shared endpoint that it
//! depends on (`NDKPI 7.9`).

use core::any::Any;

use ntstatus::NtStatus;

use super::Incoming;
use crate::{os::Os, wire::RejectReason};

/// A request that is answered later. A connector has one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorRequest {
    /// [`Connector::connect`](super::Connector::connect) or
    /// [`Connector::connect_shared`](super::Connector::connect_shared).
    Connect,
    /// [`Connector::accept`](super::Connector::accept).
    Accept,
    /// [`Connector::disconnect`](super::Connector::disconnect).
    Disconnect,
}

/// Why a connection ended when its consumer did not end it. The numbers are the provider's disconnect reasons of NDKPI 2.1;
/// 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Disconnected = 1,
    /// The peer closed its connector without disconnecting.
    Closed = 2,
    /// A queue pair of one of the sides failed or was closed.
    Failed = 3,
    /// The peer disconnected, but what it had posted did not end in time.
    TimedOut = 4,
    /// The adapter of one of the sides was removed.
    Removed = 5,
}

impl DisconnectReason {
    /// Returns the number that `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX` gets.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// What a connector calls.
pub trait ConnectorClient: Any + Send + Sync {
    /// Another machine has refused what was asked for, for the reason in its REJ (RoCEv2 8.9). Called before
    /// [`completed`](Self::completed), which has the status.
    fn rejected(&self, _reason: RejectReason) {}

    /// A request has its answer. Called once for each request that was accepted as pending.
    fn completed(&self, request: ConnectorRequest, status: NtStatus);

    /// The connection has ended, and not because its consumer ended it (`NDKPI 7.7.6`). Called at most once, only for a
    /// connection that was established, and after the answer that established it.
    fn disconnected(&self, reason: DisconnectReason);
}

/// What a listener calls.
pub trait ListenerClient<O: Os>: Any + Send + Sync {
    /// A connection request has come in (`NDK_FN_CONNECT_EVENT_CALLBACK`). Dropping it refuses it.
    fn connect_event(&self, incoming: Incoming<O>);
}
