//! Shared endpoints: one local port for many outgoing connections (`NDKPI 7.8`).

use alloc::boxed::Box;
use core::{any::Any, net::SocketAddr};

use fallible::{Arc, try_box};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use ntstatus::NtStatus;

use super::{
    EndpointKind, Owner, Port,
    endpoint::Endpoint,
    parameters::{in_scope, scope_of},
};
use crate::os::{Os, SpinLock};

//= NDKPI 7.8.3
/// A shared endpoint. Its consumer closes it by dropping its reference; connectors keep theirs until they are closed.
pub struct SharedEndpoint<O: Os> {
    port: Arc<Port<O>>,
    remotes: O::Lock<Remotes>,
    /// Dropped before the client: a consumer that is told of the close may use the port number again.
    endpoint: Endpoint<O>,
    _client: Box<dyn Any + Send + Sync>,
}

/// The remote addresses that connections from the endpoint have, so that none is used twice. The hash need not resist an attacker: all
/// of them are of one consumer.
struct Remotes(HashSet<SocketAddr, FixedState>);

impl<O: Os> SharedEndpoint<O> {
    /// Opens a shared endpoint at `address`, with an ephemeral port if the port number is zero. `client` is dropped when the
    /// endpoint and the last connector over it are closed.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` if the address is none of the adapter's, which holds for wildcards too;
    /// `STATUS_SHARING_VIOLATION`, `STATUS_TOO_MANY_ADDRESSES`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        port: &Arc<Port<O>>,
        address: SocketAddr,
        owner: Owner,
        client: impl Any + Send + Sync,
    ) -> Result<Arc<Self>, NtStatus> {
        let client = try_box(client)?;
        let remotes = port.os().lock(Remotes(HashSet::default()))?;
        let endpoint = Port::open_listed_endpoint(port, address, EndpointKind::Shared, owner)?;
        Arc::try_new(Self { port: port.clone(), remotes, endpoint, _client: client }).map_err(Into::into)
    }

    /// Returns the endpoint's address, with its port number.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.endpoint.local()
    }

    /// Returns true if the endpoint is one of `port`.
    pub(super) fn is_on(&self, port: &Arc<Port<O>>) -> bool {
        Arc::ptr_eq(&self.port, port)
    }
}

/// A remote address that a connector uses from a shared endpoint.
pub(super) struct SharedUse<O: Os> {
    endpoint: Arc<SharedEndpoint<O>>,
    /// `None` once the pair of addresses was given up.
    remote: Option<SocketAddr>,
}

impl<O: Os> SharedUse<O> {
    /// Notes that a connection from `endpoint` to `remote` begins.
    ///
    /// # Errors
    ///
    /// `STATUS_ADDRESS_ALREADY_EXISTS` if there is one, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(endpoint: &Arc<SharedEndpoint<O>>, remote: SocketAddr) -> Result<Self, NtStatus> {
        let scope = scope_of(endpoint.local_address());
        let remote = in_scope(remote, if scope == 0 { scope_of(remote) } else { scope });
        endpoint.remotes.with(|Remotes(remotes)| {
            if remotes.contains(&remote) {
                return Err(NtStatus::ADDRESS_ALREADY_EXISTS);
            }
            remotes.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            remotes.insert(remote);
            Ok(())
        })?;
        Ok(Self { endpoint: endpoint.clone(), remote: Some(remote) })
    }

    pub fn local(&self) -> SocketAddr {
        self.endpoint.local_address()
    }

    /// Gives the pair of addresses up, and keeps the reference to the endpoint.
    pub fn forget(&mut self) {
        if let Some(remote) = self.remote.take() {
            self.endpoint.remotes.with(|Remotes(remotes)| remotes.remove(&remote));
        }
    }
}

impl<O: Os> Drop for SharedUse<O> {
    fn drop(&mut self) {
        self.forget();
    }
}
