//! Version 1 of the NetworkDirect SPI (`NDSPI 8`), over the objects of version 2.
//!
//! An object of version 1 holds objects of version 2 and calls them through their tables. So it works on whatever makes those: the
//! engine in the process (`nd2`) or the driver ([`crate::driver`]), and what a request does, and how it can fail, is the same.
//!
//! ```text
//! IClassFactory -> INDProvider -> INDAdapter    an open IND2Adapter, one file, and the registrations by handle
//!                                   INDCompletionQueue   made by IND2Adapter, which knows this interface
//!                                   INDMemoryWindow      IND2MemoryWindow, whose identifier is the same
//!                                   INDConnector         IND2Connector, bound when it connects
//!                                     INDEndpoint        IND2QueuePair, and the limits for reads
//!                                   INDListen            IND2Listener that listens
//! ```
//!
//! Two things version 2 has no method for: to close the adapter's file, which in version 1 is the adapter's and not the client's,
//! and to send and invalidate. For these the objects beneath have the tables [`SoftAdapterVtbl`] and [`SoftQueuePairVtbl`].
//!
//! [`SoftAdapterVtbl`]: nd2::abi::SoftAdapterVtbl
//! [`SoftQueuePairVtbl`]: nd2::abi::SoftQueuePairVtbl

mod adapter;
mod connector;
mod endpoint;
mod factory;
mod held;
mod listen;
mod provider;
mod regions;

pub use factory::{get_class_object, has};
