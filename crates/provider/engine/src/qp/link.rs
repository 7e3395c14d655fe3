//! The connection of two queue pairs.

use alloc::boxed::Box;

use fallible::Arc;

use super::{Bell, NtStatus, Qp, order};
use crate::{
    os::{Os, SpinLock},
    sync::Ordering,
};

/// What the connection of a queue pair calls.
///
/// Called at `IRQL <= DISPATCH_LEVEL`, possibly with locks of the engine held: it may only note the fact and queue a DPC
///.
pub trait LinkClient: Send + Sync + 'static {
    /// The connection has ended: one of the two was disconnected, closed, or has failed. Called once, and last.
    fn unlinked(&self);

    /// The requests that were in the send queue at [`Qp::drain`] have completed, or are not waited for ([`Qp::settle`]).
    fn drained(&self);
}

/// The connection of a queue pair.
///
/// A send queue has its own copy of `peer`. Every change of `peer` gives the order [`order::RELINK`] under the same lock, and a
/// quantum that takes the order copies `peer` under this lock afterwards. So it copies that change or a later one. `linked` is set
/// after both: a quantum that finds a request which was posted because of it has the peer, or the order to copy it.
pub(super) struct Link<O: Os> {
    peer: Option<Arc<Qp<O>>>,
    /// What carries the requests if the peer is on another machine.
    pub(super) carrier: Option<Bell>,
    client: Option<Box<dyn LinkClient>>,
    /// The queue pair has or had a peer, and gets no other.
    used: bool,
}

impl<O: Os> Link<O> {
    pub const fn new() -> Self {
        Self { peer: None, carrier: None, client: None, used: false }
    }
}

impl<O: Os> Qp<O> {
    //= NDKPI 7.2.3
    /// Connects two queue pairs that have had no peer.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if one of them has or had a peer or is closed; `STATUS_INVALID_PARAMETER` if they are the
    /// same.
    pub fn link(a: &Arc<Self>, b: &Arc<Self>) -> Result<(), NtStatus> {
        if Arc::ptr_eq(a, b) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        a.take_link()?;
        if let Err(error) = b.take_link() {
            a.link.with(|link| link.used = false);
            return Err(error);
        }
        a.join(b);
        b.join(a);
        // If one of them has failed, was closed or unlinked in between, the other one has no peer either.
        if a.is_dead() || b.is_dead() || !a.is_linked() || !b.is_linked() {
            Self::unlink(a);
            Self::unlink(b);
        }
        Ok(())
    }

    pub(super) fn take_link(&self) -> Result<(), NtStatus> {
        self.link.with(|link| {
            if link.used || self.is_dead() {
                return Err(NtStatus::CONNECTION_ACTIVE);
            }
            link.used = true;
            Ok(())
        })
    }

    //= NDKPI 7.2.5
    fn join(&self, peer: &Arc<Self>) {
        self.link.with(|link| {
            self.change_peer(link, Some(peer.clone()));
            self.linked.store(true, Ordering::Release);
        });
    }

    /// Ends the connection of both sides. Requests end; receives stay (`NDKPI 7.7.6`).
    pub fn unlink(this: &Arc<Self>) {
        let (peer, carrier) = this.part();
        if peer.is_some() || carrier.is_some() {
            Self::ring(this);
        }
        if let Some(carrier) = carrier {
            carrier.ring();
        }
        if let Some(peer) = peer
            && peer.part().0.is_some()
        {
            Self::ring(&peer);
        }
    }

    fn part(&self) -> (Option<Arc<Self>>, Option<Bell>) {
        let (peer, carrier, client) = self.link.with(|link| {
            self.linked.store(false, Ordering::Release);
            (self.change_peer(link, None), link.carrier.take(), link.client.take_if(|_| link.used))
        });
        if let Some(client) = client {
            client.unlinked();
        }
        (peer, carrier)
    }

    /// Changes the peer, and gives the order to copy it: see [`Link`]. Returns the peer before.
    pub(super) fn change_peer(&self, link: &mut Link<O>, peer: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let before = core::mem::replace(&mut link.peer, peer);
        self.initiating.orders.fetch_or(order::RELINK, Ordering::AcqRel);
        before
    }

    /// Sets the client of the connection that [`Qp::link`] will make. There is at most one.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it has a client or had a peer, `STATUS_CONNECTION_INVALID` if it is dead.
    pub fn set_link_client(&self, client: Box<dyn LinkClient>) -> Result<(), NtStatus> {
        // A client that is refused is dropped after the lock is released.
        let refused = self.link.with(|link| {
            if self.is_dead() {
                return Err((NtStatus::CONNECTION_INVALID, client));
            }
            if link.used || link.client.is_some() {
                return Err((NtStatus::CONNECTION_ACTIVE, client));
            }
            link.client = Some(client);
            Ok(())
        });
        refused.map_err(|(status, _)| status)
    }

    /// Takes back the client of [`Qp::set_link_client`], unless it was told of the end.
    #[must_use]
    pub fn take_link_client(&self) -> Option<Box<dyn LinkClient>> {
        self.link.with(|link| link.client.take())
    }

    pub(super) fn tell_drained(&self) {
        self.link.with(|link| {
            if let Some(client) = &link.client {
                client.drained();
            }
        });
    }

    /// Allows reads or refuses them: the latter if the outbound read limit of the connection is zero (`NDKPI 7.7.3`).
    pub(crate) fn allow_reads(&self, allowed: bool) {
        self.no_reads.store(!allowed, Ordering::Release);
    }

    /// The queue pair at the other end.
    #[must_use]
    pub fn peer(&self) -> Option<Arc<Self>> {
        self.link.with(|link| link.peer.clone())
    }

    /// Returns true if there is a queue pair at the other end.
    #[inline]
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.linked.load(Ordering::Acquire)
    }
}
