//! Connections: who is connected with whom, and how that begins and ends (`NDKPI 7.7`, `7.8`).
//!
//! ```text
//! Fabric ---- LocalAddress ---- port number -> Listener
//!   |                                             ^
//! Port (of an adapter)                            | over which the request came
//!   |                                             |
//! Connector (active) ------ Connection ------ Connector (passive)
//! ```
//!
//! A [`Port`] is an adapter's place on the [`Fabric`]; the number that tells endpoints of one address apart is a port number.
//!
//! A port may have a [wire](crate::wire). A connect to an address that no port of its link has goes there, and the connection has one
//! connector here (`remote`); listeners take requests from both.
//!
//! Nothing here is on the data path. A connection links two queue pairs ([`Qp::link`](crate::qp::Qp::link)). After that it
//! only learns of the end of that link.
//!
//! # Locks
//!
//! The lock of a connection comes first; that of a wire may be taken under it. Under it the locks of its connectors may be taken, one at a time, and those of queue
//! pairs' links and of listings. The state of a listener comes before the port table of an address, and a port's own addresses
//! before those of the fabric. All others are leaves. No lock is held while a client is called, or while something is dropped
//! that may be the last reference to an object of this layer.
//!
//! # References
//!
//! A connection refers to its connectors until they are closed, and they to it. Everything else points one way:
//!
//! - a connector to its queue pair, and to the listener or shared endpoint it came from, so that those are closed only after
//!   it (`NDKPI 7.8`, `7.9`);
//! - a queue pair to its connector while that uses it;
//! - the port table to a listener until that is closed.
//!
//! Closing an object takes it out of all of them. What remains are calls that run or are queued.
//!
//! # Decisions where NDKPI is silent
//!
//! | open point | this provider |
//! |---|---|
//! | wildcard addresses | no address of an adapter: `STATUS_INVALID_ADDRESS` |
//! | flow label of an IPv6 address | ignored |
//! | scope id of an IPv6 address | counts for addresses of fe80::/10 only. Zero says nothing; another one must be that of the adapter's own interface, and is told as it is there. `STATUS_INVALID_ADDRESS` for a local address, `STATUS_NETWORK_UNREACHABLE` for a remote one; `STATUS_CONNECTION_REFUSED` if an adapter that knows no number of its own listens in another zone |
//! | the same address on two adapters | legal on different links; on one link `STATUS_SHARING_VIOLATION` |
//! | remote address that is a wildcard, multicast, broadcast, or has port 0 | `STATUS_INVALID_ADDRESS` |
//! | no adapter of the link has the remote address, and the port has no wire | `STATUS_HOST_UNREACHABLE` if one is in its network, else `STATUS_NETWORK_UNREACHABLE` |
//! | remote address of the other family | `STATUS_NETWORK_UNREACHABLE` |
//! | connect from a port that a connection to the same remote address has | `STATUS_SHARING_VIOLATION`; `STATUS_ADDRESS_ALREADY_EXISTS` only over a shared endpoint |
//! | until when a pair of addresses exists | until its active connector is closed, like the endpoint |
//! | endpoint after a connect that failed | free again before the consumer is told |
//! | RDS (`NDKPI 7.7.4`) | all that the sender's adapter allows for its message, zero after what was sent |
//! | private data of a reject | readable by the side that was rejected, until it connects again or closes |
//! | backlog | a limit of the adapter; counts requests until they are accepted, rejected or closed |
//! | requests that wait for their event when the listener is paused | refused |
//! | requests that wait when a connector is closed | answered with `STATUS_CANCELLED` |
//! | a connect over a connector or queue pair that had a connection | `STATUS_CONNECTION_ACTIVE` |
//! | closing a connector that had a connection | flushes its queue pair |
//! | who answers the notice of a disconnect | the peer's provider, at once; a peer that disconnects too, after its own requests |
//! | requests posted before a disconnect | carried out, as long as its timeout allows; if the peer disconnects too, those that wait for a receive are cancelled |
//! | disconnect after the peer's | done at once |
//! | disconnect after the connection broke | `STATUS_CONNECTION_ABORTED`, the queue pair is flushed |
//! | a request before the answer to the last one was told | `STATUS_CONNECTION_INVALID`, a connect `STATUS_CONNECTION_ACTIVE` |

mod client;
mod connector;
mod counters;
mod delivery;
mod ending;
mod endpoint;
mod ephemeral;
mod establish;
mod fabric;
mod listener;
mod listing;
mod parameters;
mod port;
mod remote;
mod requests;
mod shared_endpoint;
mod state;

pub use client::{ConnectorClient, ConnectorRequest, DisconnectReason, ListenerClient};
pub use connector::{Connector, ConnectorDpc, Hold, RequestTimeout};
pub use counters::ConnectionCounters;
pub use fabric::{Fabric, MAX_ADDRESSES};
pub use listener::{Incoming, Listener, ListenerDpc};
pub use listing::{ConnectionEntry, EndpointEntry, EndpointKind};
pub use parameters::{
    ConnectParameters, ConnectionData, ConnectionLimits, InterfaceAddress, Owner, ReadLimits, Timeouts,
};
pub use port::Port;
pub use requests::Answer;
pub use shared_endpoint::SharedEndpoint;
