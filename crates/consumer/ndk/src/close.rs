//! Closes that can be waited for (`NDKPI 7.9`).

use ndkpi::NtStatus;

use crate::{
    acceptor::Acceptor,
    connector::{Connection, Connector},
    cq::Cq,
    fast::FastMr,
    listener::Listener,
    mr::Mr,
    mw::Mw,
    pd::Pd,
    qp::Qp,
    request::Pending,
    srq::Srq,
};

/// An object whose close can be waited for.
///
/// A drop closes an object too, but the close may end later: what it frees, such as the port of a [`Listener`], is free only then.
pub trait Close: Sized {
    /// Closes the object. The request completes when the object has closed, which is after everything that needs it: the queue
    /// pairs of a completion queue, the regions of a domain, the connections that came over a listener. Whoever owns one of them
    /// must not wait for it. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The object closes all the same, and nobody is told.
    fn close(self) -> Result<Pending<()>, NtStatus>;
}

macro_rules! close_by_object {
    ($($object:ident),+) => {
        $(impl Close for $object {
            fn close(self) -> Result<Pending<()>, NtStatus> {
                self.object.close()
            }
        })+
    };
}

close_by_object!(Connection, Connector, Cq, FastMr, Listener, Mr, Mw, Pd, Srq);

impl Close for Qp {
    fn close(self) -> Result<Pending<()>, NtStatus> {
        let Self { initiator, receiver } = self;
        drop(receiver);
        initiator.object.close()
    }
}

impl Close for Acceptor {
    fn close(self) -> Result<Pending<()>, NtStatus> {
        let Self { waiting, listener } = self;
        drop(waiting);
        listener.close()
    }
}
