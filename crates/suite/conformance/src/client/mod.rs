//! A consumer of NDKPI: objects that are closed when they are dropped, requests that complete in any of the three ways, and
//! watchful callbacks.
//!
//! Everything goes through the dispatch table of the object at hand, read anew for each call, as consumers do. What NDKPI
//! asks of consumers is kept by this layer: no call on a closed object, no close while a call runs (`NDKPI 7.9`), no two
//! calls at a time on the consumer's side of a completion queue (`NDKPI 7.1.2`) or on one queue of a queue pair (`NDKPI
//! 7.3`), contexts and registered memory that live until the adapter is closed. So its functions are safe to call, however a
//! case is written; a case that would break such a rule fails with words that say so.

#[macro_use]
mod life;

mod adapter;
mod address;
mod arena;
mod connector;
mod cq;
mod endpoint;
mod lam;
mod listener;
mod memory;
mod mr;
mod mw;
mod pd;
mod qp;
mod request;
mod session;
mod srq;

pub use adapter::{Adapter, Without};
pub use address::{Answer, RawAddress};
pub use arena::Later;
pub use connector::{ConnectionData, Connector, ConnectorCore, DisconnectHook, Offer, OnDisconnect};
pub use cq::{Cq, CqCore, Done, Hook};
pub use endpoint::{SharedEndpoint, SharedEndpointCore};
pub use lam::Mapping;
pub use life::{Call, Closing, Core, Interposed, Kind, Life, Owned};
pub use listener::{ConnectHook, Listener, ListenerCore};
pub use memory::{ALL_RIGHTS, Buffer, PAGE, Region};
pub use mr::{Mr, MrCore};
pub use mw::{Mw, MwCore};
pub use pd::{Pd, PdCore, QpSizes};
pub use qp::{FastRegistration, Qp, QpCore, Remote};
pub use request::{Pending, Then};
pub use session::{CompletionKind, Options, Session};
pub use srq::{Srq, SrqCore, SrqHook};
