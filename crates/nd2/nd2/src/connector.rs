//! Connectors: the state of a connection, and its requests.

use core::{net::SocketAddr, ptr::NonNull};

use engine::{
    connection::{
        Connector as EngineConnector, ConnectorClient, ConnectorRequest, DisconnectReason, Incoming, SharedEndpoint,
    },
    os::{Os, SpinLock},
    qp::Qp,
};
use fallible::Arc;
use ndkpi::NtStatus;

mod behind;
mod requests;

use crate::{
    Charge, Device, OverlappedOs,
    abi::OVERLAPPED,
    adapter::{AdapterCore, CONNECTION},
    device::{Member, Membership},
    overlapped::{Outstanding, Pending},
};

struct State<P: OverlappedOs> {
    /// The engine's connector: made by the first connect, or delivered by a listener.
    engine: Option<Arc<EngineConnector<P::Os>>>,
    /// The number of the latest engine connector. A cancelled one may still answer, which must be ignored.
    current: u64,
    /// Numbers that were given out.
    numbers: u64,
    /// The local address that `Bind` took.
    bound: Option<Arc<SharedEndpoint<P::Os>>>,
    /// The request that the engine answers later. There is one at a time.
    request: Option<Asked<P>>,
    /// The queue pair that is connected.
    qp: Option<Arc<Qp<P::Os>>>,
    /// Requests to hear of the end of the connection.
    disconnects: Outstanding<P>,
    life: Life,
    /// What every request ends with from now on.
    end: Option<NtStatus>,
}

/// A request that the engine answers later.
struct Asked<P: OverlappedOs> {
    request: ConnectorRequest,
    pending: Pending<P>,
    /// The queue pair that is being connected.
    qp: Option<Arc<Qp<P::Os>>>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// There is none yet.
    Before,
    /// It is established.
    Established,
    /// It is over.
    Over,
}

/// A connector behind its COM object.
pub struct Core<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
    _charge: Charge,
}

/// How one of the engine's connectors reaches the core.
struct Client<P: OverlappedOs> {
    core: Arc<Core<P>>,
    number: u64,
}

impl<P: OverlappedOs> ConnectorClient for Client<P> {
    fn completed(&self, request: ConnectorRequest, status: NtStatus) {
        self.core.completed(self.number, request, status);
    }

    fn disconnected(&self, _reason: DisconnectReason) {
        let qp = self.core.state.with(|state| {
            if state.current != self.number {
                return None;
            }
            state.life = Life::Over;
            state.disconnects.end(NtStatus::SUCCESS);
            state.qp.take()
        });
        self.core.report();
        if let Some(qp) = qp {
            // What is outstanding ends on both sides; NDKPI leaves that to its consumer.
            Qp::flush_receives(&qp);
        }
    }
}

/// A connector.
pub struct Connector<P: OverlappedOs> {
    core: Arc<Core<P>>,
    _member: Membership<P>,
}

impl<P: OverlappedOs> Connector<P> {
    /// Makes a connector for either side of a connection.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>, file: &Arc<P::File>) -> Result<Self, NtStatus> {
        let device = adapter.device();
        let state = State {
            engine: None,
            current: 0,
            numbers: 0,
            bound: None,
            request: None,
            qp: None,
            disconnects: Outstanding::new(device.config().max_notify_requests as usize),
            life: Life::Before,
            end: None,
        };
        let state = device.platform().os().lock(state)?;
        let info = &device.config().info;
        let data = info.MaxCallerData.saturating_add(info.MaxCalleeData);
        let charge = adapter.charge_object(CONNECTION + u64::from(data))?;
        let core = Arc::try_new(Core { adapter: adapter.clone(), file: file.clone(), state, _charge: charge })?;
        let member = Device::join(adapter, Member::Connector(core.clone()))?;
        Ok(Self { core, _member: member })
    }

    pub const fn core(&self) -> &Arc<Core<P>> {
        &self.core
    }
}

impl<P: OverlappedOs> Drop for Connector<P> {
    fn drop(&mut self) {
        self.core.finish(NtStatus::CANCELLED);
    }
}

impl<P: OverlappedOs> Core<P> {
    fn report(&self) {
        Outstanding::report(&self.state, |state| &mut state.disconnects);
    }

    fn completed(&self, number: u64, request: ConnectorRequest, status: NtStatus) {
        let status = match (request, status) {
            // The peer has not answered, or the connection has broken meanwhile: it is over, which is what was asked for.
            (ConnectorRequest::Disconnect, NtStatus::IO_TIMEOUT | NtStatus::CONNECTION_ABORTED) => NtStatus::SUCCESS,
            _ => status,
        };
        let ended = self.state.with(|state| {
            if state.current != number {
                return None;
            }
            let mut ended = state.request.take_if(|asked| asked.request == request)?;
            if status.is_success() && ended.qp.is_some() {
                // Another one is dropped after the lock is released.
                core::mem::swap(&mut state.qp, &mut ended.qp);
            }
            match request {
                ConnectorRequest::Accept if status.is_success() => state.life = Life::Established,
                ConnectorRequest::Disconnect => {
                    // The connection is over for its own side too.
                    state.life = Life::Over;
                    state.disconnects.end(NtStatus::SUCCESS);
                }
                ConnectorRequest::Accept | ConnectorRequest::Connect => {}
            }
            Some(ended)
        });
        if let Some(Asked { pending, .. }) = ended {
            pending.complete(status);
        }
        self.report();
    }

    /// Ends all requests with `status`, and those that come later.
    fn end(&self, status: NtStatus) {
        let asked = self.state.with(|state| {
            let end = *state.end.get_or_insert(status);
            state.disconnects.end(end);
            state.request.take()
        });
        if let Some(asked) = asked {
            asked.pending.complete(status);
        }
        self.report();
    }

    /// Ends everything with `status`, for good.
    fn finish(&self, status: NtStatus) {
        self.end(status);
        let (engine, bound, qp) = self.state.with(|state| (state.engine.take(), state.bound.take(), state.qp.take()));
        if let Some(engine) = engine {
            EngineConnector::close(&engine);
        }
        drop((bound, qp));
    }

    /// The adapter is gone, and connections are about to break.
    pub fn removing(&self) {
        self.end(NtStatus::DEVICE_REMOVED);
    }

    /// The adapter is gone.
    pub fn removed(&self) {
        self.finish(NtStatus::DEVICE_REMOVED);
    }

    /// Cancels what is outstanding. This gives up a connect or accept, and breaks a connection that is being disconnected.
    fn cancel(&self) {
        self.state.with(|state| state.disconnects.end(NtStatus::CANCELLED));
        self.give_up(|_| true);
    }

    /// [`Core::cancel`] for the request on `overlapped` alone.
    pub fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.state.with(|state| state.disconnects.cancel_one(overlapped));
        self.give_up(|asked| asked.pending.is_on(overlapped));
    }

    /// The client has released a queue pair. If it is being connected, that is given up.
    pub fn queue_pair_released(&self, qp: &Arc<Qp<P::Os>>) {
        let is_it = |other: &mut Arc<Qp<P::Os>>| Arc::ptr_eq(other, qp);
        self.give_up(|asked| asked.qp.as_mut().is_some_and(is_it));
        drop(self.state.with(|state| state.qp.take_if(is_it)));
    }

    /// Returns true if it connects or has connected the queue pair.
    pub fn uses(&self, qp: &Arc<Qp<P::Os>>) -> bool {
        self.state.with(|state| {
            let asked = state.request.as_ref().and_then(|asked| asked.qp.as_ref());
            asked.into_iter().chain(&state.qp).any(|used| Arc::ptr_eq(used, qp))
        })
    }

    fn give_up(&self, which: impl FnOnce(&mut Asked<P>) -> bool) {
        let given_up = self.state.with(|state| {
            let asked = state.request.take_if(which)?;
            if state.life == Life::Established {
                state.life = Life::Over;
                state.disconnects.end(NtStatus::SUCCESS);
            }
            Some((state.engine.take(), asked))
        });
        let (engine, asked) = given_up.unzip();
        if let Some(asked) = asked {
            asked.pending.complete(NtStatus::CANCELLED);
        }
        self.report();
        if let Some(engine) = engine.flatten() {
            EngineConnector::close(&engine);
        }
    }

    /// A client for another one of the engine's connectors.
    fn client(this: &Arc<Self>) -> Client<P> {
        let number = this.state.with(|state| {
            state.numbers += 1;
            state.numbers
        });
        Client { core: this.clone(), number }
    }

    /// Gives the connector the request that came over a listener.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it has another; what the adapter's or the connector's end says;
    /// `STATUS_INSUFFICIENT_RESOURCES`. The request is refused then.
    pub fn adopt(this: &Arc<Self>, incoming: Incoming<P::Os>) -> Result<(), NtStatus> {
        this.check_idle()?;
        let client = Self::client(this);
        let number = client.number;
        let engine = incoming.into_connector(client)?;
        let unused = this.state.with(|state| {
            if state.engine.is_some() || state.end.is_some() {
                return Some(engine);
            }
            state.engine = Some(engine);
            state.current = number;
            None
        });
        if let Some(unused) = unused {
            EngineConnector::close(&unused);
            return Err(NtStatus::CANCELLED);
        }
        Ok(())
    }

    /// Checks that the connector can be given a request.
    ///
    /// # Errors
    ///
    /// As [`Core::adopt`].
    pub fn check_idle(&self) -> Result<(), NtStatus> {
        self.state.with(|state| match state {
            State { end: Some(status), .. } => Err(*status),
            State { engine: Some(_), .. } => Err(NtStatus::CONNECTION_ACTIVE),
            _ => Ok(()),
        })
    }

    fn check(&self) -> Result<(), NtStatus> {
        self.adapter.device().check_present()
    }

    /// The engine's connector.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_INVALID` if there is none: it was never connecting.
    fn engine(&self) -> Result<Arc<EngineConnector<P::Os>>, NtStatus> {
        self.check()?;
        self.state.with(|state| state.engine.clone()).ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// The engine's connector, made if there is none.
    fn make_engine(this: &Arc<Self>) -> Result<Arc<EngineConnector<P::Os>>, NtStatus> {
        if let Some(engine) = this.state.with(|state| state.engine.clone()) {
            return Ok(engine);
        }
        let client = Self::client(this);
        let number = client.number;
        let made = EngineConnector::try_new(this.adapter.device().port(), this.adapter.owner(), client)?;
        let (engine, unused) = this.state.with(|state| {
            if let Some(engine) = &state.engine {
                return (engine.clone(), Some(made));
            }
            state.current = number;
            (state.engine.insert(made).clone(), None)
        });
        if let Some(unused) = unused {
            EngineConnector::close(&unused);
        }
        Ok(engine)
    }

    /// Binds the connector, once.
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        self.check()?;
        if self.state.with(|state| state.engine.is_some()) {
            return Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED);
        }
        self.take_address(address)
    }

    /// Takes a local address, if the connector has none.
    fn take_address(&self, address: SocketAddr) -> Result<(), NtStatus> {
        if self.state.with(|state| state.bound.is_some()) {
            return Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED);
        }
        let address = own_address(self.adapter.device(), address)?;
        let port = self.adapter.device().port();
        let endpoint = SharedEndpoint::try_new(port, address, self.adapter.owner(), ())?;
        // Another thread may have been faster. What was made in vain is dropped after the lock is released.
        let unused = self.state.with(|state| match state.bound {
            None => {
                state.bound = Some(endpoint);
                None
            }
            Some(_) => Some(endpoint),
        });
        if unused.is_some() { Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED) } else { Ok(()) }
    }
}

/// The adapter's address that a client means: for a wildcard its first one of the family.
///
/// # Errors
///
/// `STATUS_INVALID_ADDRESS` if it has none.
pub fn own_address<P: OverlappedOs>(device: &Device<P>, address: SocketAddr) -> Result<SocketAddr, NtStatus> {
    if !address.ip().is_unspecified() {
        return Ok(address);
    }
    let own = device.addresses()?;
    let found = own.iter().find(|own| own.is_ipv4() == address.is_ipv4()).ok_or(NtStatus::INVALID_ADDRESS)?;
    Ok(SocketAddr::new(*found, address.port()))
}
