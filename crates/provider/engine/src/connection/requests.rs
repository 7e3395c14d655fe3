//! What a consumer asks of a connector (`NDKPI 5.8`).

use core::net::SocketAddr;

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    ConnectParameters, Connector, ConnectorRequest, Hold, Port, ReadLimits, SharedEndpoint,
    connector::{BoundQp, Origin, Stage},
    ending::Disconnect,
    establish::Acceptance,
    listener::Listener,
    listing::{ConnectionEntry, ListedConnection},
    parameters::{PrivateData, common_scope, in_scope, names_one_host, scope_of},
    remote::{Party, Remote},
    shared_endpoint::SharedUse,
    state::{Connection, End, Ends, Role, Sides},
};
use crate::{
    os::{Os, SpinLock},
    qp::Qp,
};

/// How a request that was not refused completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done, successfully. [`ConnectorClient::completed`](super::ConnectorClient::completed) is not called.
    Done,
    /// [`ConnectorClient::completed`](super::ConnectorClient::completed) will be called, perhaps before this is returned.
    Pending,
}

impl<O: Os> Connector<O> {
    /// Connects from an address of the adapter; from an ephemeral port if the port is zero (`NDK_FN_CONNECT`).
    ///
    /// `Ok` means that the request pends. It is answered with success when the passive side has accepted,
    /// `STATUS_CONNECTION_REFUSED` when that has rejected, `STATUS_IO_TIMEOUT` when it does neither in time, or
    /// `STATUS_CANCELLED` when the connector is closed. After any failure the connector, the queue pair and the port number can
    /// be used again.
    ///
    /// # Errors
    ///
    /// They are checked in this order.
    ///
    /// - `STATUS_CONNECTION_ACTIVE`: the connector is connecting, or had a connection.
    /// - `STATUS_INVALID_BUFFER_SIZE`: more private data than the adapter allows.
    /// - `STATUS_INVALID_ADDRESS`: `local` is none of the adapter's addresses, which holds for wildcards too, or the remote
    ///   address is none that a listener can have.
    /// - `STATUS_SHARING_VIOLATION`: the local port number is in use.
    /// - `STATUS_TOO_MANY_ADDRESSES`: no ephemeral port is free.
    /// - `STATUS_CONNECTION_ACTIVE`, `STATUS_CONNECTION_INVALID`: the queue pair has a connector already or had a connection;
    ///   it has failed.
    /// - `STATUS_NETWORK_UNREACHABLE`: no adapter of the link has an address in the network of the remote one, or that is of
    ///   another family than the local one, or the two have different scope ids.
    /// - `STATUS_HOST_UNREACHABLE`: no adapter of the link has the address, or this one, which does not connect to itself.
    /// - `STATUS_CONNECTION_REFUSED`: nobody listens there, or not now, or the backlog is full.
    /// - `STATUS_INSUFFICIENT_RESOURCES`.
    /// - `STATUS_DEVICE_REMOVED`: the adapter has [gone](Port::abort).
    pub fn connect(
        this: &Arc<Self>,
        qp: &Arc<Qp<O>>,
        local: SocketAddr,
        parameters: &ConnectParameters<'_>,
    ) -> Result<(), NtStatus> {
        Self::start(this, qp, parameters, || {
            let endpoint = Port::open_endpoint(this.port(), local)?;
            Ok((endpoint.local(), Origin::Own(Some(endpoint))))
        })
    }

    /// Connects from a shared endpoint of the same adapter (`NDK_FN_CONNECT_WITH_SHARED_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// As [`Connector::connect`], except for those of the local address. Instead: `STATUS_ADDRESS_ALREADY_EXISTS` if an open
    /// connector connects the endpoint with the remote address, `STATUS_INVALID_PARAMETER` if the endpoint is of another
    /// adapter.
    pub fn connect_shared(
        this: &Arc<Self>,
        qp: &Arc<Qp<O>>,
        endpoint: &Arc<SharedEndpoint<O>>,
        parameters: &ConnectParameters<'_>,
    ) -> Result<(), NtStatus> {
        Self::start(this, qp, parameters, || {
            if !endpoint.is_on(this.port()) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let shared = SharedUse::try_new(endpoint, parameters.remote)?;
            Ok((shared.local(), Origin::Shared(shared)))
        })
    }

    fn start(
        this: &Arc<Self>,
        qp: &Arc<Qp<O>>,
        parameters: &ConnectParameters<'_>,
        origin: impl FnOnce() -> Result<(SocketAddr, Origin<O>), NtStatus>,
    ) -> Result<(), NtStatus> {
        let _starting = Starting::try_new(this)?;
        let port = this.port();
        let remote = parameters.remote;
        let data = PrivateData::try_new(parameters.private_data, port.limits().max_caller_data)?;
        if !names_one_host(remote.ip()) || remote.port() == 0 {
            return Err(NtStatus::INVALID_ADDRESS);
        }
        let (local, origin) = origin()?;
        // A link is named by one number on this machine, whichever of the two addresses it comes with.
        let zone = common_scope(scope_of(local), scope_of(remote)).ok_or(NtStatus::NETWORK_UNREACHABLE)?;
        let (local, remote) = (in_scope(local, zone), in_scope(remote, zone));
        let entry = ConnectionEntry { local, remote, owner: this.owner() };
        let listed = ListedConnection::try_new(port, entry)?;
        let bound = BoundQp::try_new(this, qp)?;
        if local.is_ipv4() == remote.is_ipv4()
            && port.fabric().find(port.link(), remote.ip()).is_err()
            && let Some(wire) = port.wire()
        {
            let addresses = Ends { local, peer: remote };
            return Remote::start(this, &wire, qp, addresses, parameters, (origin, listed, bound));
        }
        let (slot, there) = Self::find_listener(port, local, remote)
            // Counted here only: no listener has taken the request.
            .and_then(|(listener, there)| Ok((Listener::reserve(&listener)?, there)))
            .inspect_err(|_| port.counters.failed_to_connect())?;
        let ports = Sides { active: port.clone(), passive: slot.listener().port().clone() };
        // The passive side names the link by the number of its own interface.
        let addresses = Sides {
            active: Ends { local, peer: remote },
            passive: Ends { local: there, peer: in_scope(local, scope_of(there)) },
        };
        let connection = Connection::try_new(addresses, ports, parameters.reads, data)?;
        // From here on nothing can fail, except that the adapter goes, or that the consumer closes the connector against the
        // rules.
        let unused = connection.state.with(|connection_state| {
            if let Err(status) = listed.attach(Party::Here(connection.clone())) {
                return Some((status, origin, listed));
            }
            this.state.with(|state| {
                if !matches!(state.stage, Stage::Starting) {
                    return Some((NtStatus::CANCELLED, origin, listed));
                }
                let mut end = End::new(this.clone());
                end.qp = Some(qp.clone());
                end.listed = Some(listed);
                end.wait(ConnectorRequest::Connect, port.timeouts().connect);
                connection_state.ends.active = Some(end);
                state.stage = Stage::Connection(connection.clone(), Role::Active);
                state.origin = Some(origin);
                state.qp = Some(qp.clone());
                None
            })
        });
        if let Some((status, ..)) = unused {
            return Err(status);
        }
        bound.keep();
        slot.fill(Party::Here(connection));
        Ok(())
    }

    /// The listener that a connection between these addresses leads to, and its address as its consumer knows it.
    fn find_listener(
        port: &Arc<Port<O>>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(Arc<Listener<O>>, SocketAddr), NtStatus> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(NtStatus::NETWORK_UNREACHABLE);
        }
        let address = port.fabric().find(port.link(), remote.ip())?;
        let is_own = port.has_address(remote.ip());
        if !port.limits().loopback && is_own {
            return Err(NtStatus::HOST_UNREACHABLE);
        }
        let listener = address.listener(remote.port());
        let found = listener.and_then(|listener| listener.local_address().ok().map(|there| (listener, there)));
        // If both ends are on one interface their numbers for the link can be compared.
        let is_meant = |there| !is_own || common_scope(scope_of(there), scope_of(remote)).is_some();
        let found = found.filter(|(_, there)| is_meant(*there)).ok_or(NtStatus::CONNECTION_REFUSED)?;
        if found.0.port().is_suspended() { Err(NtStatus::HOST_UNREACHABLE) } else { Ok(found) }
    }

    /// Completes the connect after it was answered with success (`NDK_FN_COMPLETE_CONNECT`). When this returns the connection is
    /// established and the queue pair can be used. The indication of the connection's end waits until the result is dropped.
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_INVALID`: there is nothing to complete, or the own queue pair cannot be used any more.
    /// - `STATUS_CONNECTION_ABORTED`: the passive side has given up, or its queue pair cannot be used any more.
    /// - `STATUS_IO_TIMEOUT`: too late, the passive side has given up waiting.
    pub fn complete_connect(this: &Arc<Self>) -> Result<Hold<O>, NtStatus> {
        if let Some(remote) = this.remote() {
            return Remote::complete(&remote).map(|()| Hold::of(this));
        }
        match this.connection() {
            Some((connection, Role::Active)) => Connection::complete(&connection).map(|()| Hold::of(this)),
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Accepts the request that the connector stands for (`NDK_FN_ACCEPT`).
    ///
    /// `Ok` means that the request pends. It is answered with success when the active side completes the connect,
    /// `STATUS_CONNECTION_ABORTED` when that side gives up, `STATUS_IO_TIMEOUT` when it does neither in time,
    /// `STATUS_CANCELLED` when the connector is closed.
    ///
    /// # Errors
    ///
    /// - `STATUS_INVALID_BUFFER_SIZE`: more private data than the adapter allows.
    /// - `STATUS_CONNECTION_ABORTED`: the active side has given up.
    /// - `STATUS_CONNECTION_ACTIVE`: accepted already, or the queue pair has a connector already or had a connection.
    /// - `STATUS_CONNECTION_INVALID`: the connector stands for no request, has rejected it, or the queue pair has failed.
    /// - `STATUS_INSUFFICIENT_RESOURCES`.
    /// - `STATUS_DEVICE_REMOVED`: the adapter has [gone](Port::abort).
    pub fn accept(this: &Arc<Self>, qp: &Arc<Qp<O>>, reads: ReadLimits, private_data: &[u8]) -> Result<(), NtStatus> {
        let port = this.port();
        let data = PrivateData::try_new(private_data, port.limits().max_callee_data)?;
        if let Some(remote) = this.remote() {
            Remote::accept(&remote, this, qp, reads, private_data)?;
            this.decided();
            return Ok(());
        }
        let Some((connection, Role::Passive)) = this.connection() else { return Err(NtStatus::CONNECTION_INVALID) };
        connection.acceptable()?;
        let entry = ConnectionEntry {
            local: connection.addresses.passive.local,
            remote: connection.addresses.passive.peer,
            owner: this.owner(),
        };
        let listed = ListedConnection::try_new(port, entry)?;
        let bound = BoundQp::try_new(this, qp)?;
        Connection::accept(&connection, Acceptance { qp: qp.clone(), listed, reads, data })?;
        bound.keep();
        this.decided();
        Ok(())
    }

    /// Rejects the request that the connector stands for or, on the active side, the connection that the other side has accepted
    /// (`NDK_FN_REJECT`). The other side's connect is refused or its accept aborted, and it can read `private_data`. Afterwards
    /// the connector can only be closed.
    ///
    /// # Errors
    ///
    /// - `STATUS_INVALID_BUFFER_SIZE`: more private data than the adapter allows for an accept.
    /// - `STATUS_CONNECTION_ABORTED`: the other side has given up before.
    /// - `STATUS_CONNECTION_INVALID`: there is nothing to reject.
    /// - `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn reject(this: &Arc<Self>, private_data: &[u8]) -> Result<(), NtStatus> {
        let data = PrivateData::try_new(private_data, this.port().limits().max_callee_data)?;
        if let Some(remote) = this.remote() {
            Remote::reject(&remote, private_data)?;
            this.decided();
            return Ok(());
        }
        let (connection, role) = this.connection().ok_or(NtStatus::CONNECTION_INVALID)?;
        Connection::reject(&connection, role, data)?;
        this.decided();
        Ok(())
    }

    /// Disconnects (`NDK_FN_DISCONNECT`, `NDKPI 7.7.5`). Whatever the answer, afterwards there is no connection, no transfer
    /// touches the memory of either side, and the queue pair stays flushed.
    ///
    /// First the posted requests are carried out, also silent ones. Then the peer's provider is told.
    /// It answers at once or, if its consumer has disconnected too, after that consumer's requests. The answer is
    /// `STATUS_IO_TIMEOUT` when this takes too long, `STATUS_CONNECTION_ABORTED` when the connection breaks meanwhile, and
    /// `STATUS_CANCELLED` when the connector is closed. If the peer has disconnected before, the disconnect is done at once.
    ///
    /// # Errors
    ///
    /// - `STATUS_CONNECTION_INVALID`: there was no connection, or the connector has disconnected before.
    /// - `STATUS_CONNECTION_ABORTED`: the connection was broken before. The queue pair is flushed.
    pub fn disconnect(this: &Arc<Self>) -> Result<Answer, NtStatus> {
        let begun = match (this.connection(), this.remote()) {
            (Some((connection, role)), _) => Connection::disconnect(&connection, role),
            (None, Some(remote)) => Remote::disconnect(&remote),
            (None, None) => Err(NtStatus::CONNECTION_INVALID),
        };
        Ok(match begun? {
            Disconnect::Done => Answer::Done,
            Disconnect::Pending => Answer::Pending,
        })
    }
}

/// A connect that is about to begin. Dropping this makes the connector idle again if the connect has not begun.
struct Starting<'a, O: Os>(&'a Connector<O>);

impl<'a, O: Os> Starting<'a, O> {
    fn try_new(connector: &'a Connector<O>) -> Result<Self, NtStatus> {
        connector.state.with(|state| match state.stage {
            Stage::Idle if !state.delivery.is_unanswered() => {
                state.stage = Stage::Starting;
                Ok(())
            }
            _ => Err(NtStatus::CONNECTION_ACTIVE),
        })?;
        Ok(Self(connector))
    }
}

impl<O: Os> Drop for Starting<'_, O> {
    fn drop(&mut self) {
        self.0.state.with(|state| {
            if matches!(state.stage, Stage::Starting) {
                state.stage = Stage::Idle;
            }
        });
    }
}
