//! `IND2Connector`, except for its methods: what a connection is doing and who is told.

use core::{ffi::c_void, net::SocketAddr, ptr::NonNull};

use engine::{
    connection::{
        Answer, ConnectParameters, ConnectionData, Connector as EngineConnector, ConnectorClient, DisconnectReason,
        Incoming, Owner, ReadLimits, Request, SharedEndpoint,
    },
    os::{Os, SpinLock},
    qp::Qp,
};
use fallible::Shared;
use ndkpi::NtStatus;

mod methods;

use crate::{
    Device, Platform,
    abi::OVERLAPPED,
    adapter::AdapterCore,
    com::find,
    device::{Member, Membership},
    no_memory,
    overlapped::{Outstanding, Pending},
};

struct State<P: Platform> {
    /// The engine's connector: made by the first connect, or what came over a listener.
    engine: Option<Shared<EngineConnector<P::Os>>>,
    /// The local address that `Bind` took.
    bound: Option<Shared<SharedEndpoint<P::Os>>>,
    /// The request that the engine answers later. There is one at a time.
    request: Option<(Request, Pending<P>)>,
    /// Requests to hear of the end of the connection.
    disconnects: Outstanding<P>,
    life: Life,
    /// What every request ends with from now on.
    end: Option<NtStatus>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// There was none yet.
    Before,
    /// It is established.
    Established,
    /// It is over.
    Over,
}

/// A connector behind its COM object.
pub struct Core<P: Platform> {
    adapter: Shared<AdapterCore<P>>,
    file: Shared<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
}

struct Client<P: Platform>(Shared<Core<P>>);

impl<P: Platform> ConnectorClient for Client<P> {
    fn completed(&self, request: Request, status: NtStatus) {
        self.0.completed(request, status);
    }

    fn disconnected(&self, _reason: DisconnectReason) {
        self.0.state.with(|state| {
            state.life = Life::Over;
            state.disconnects.end(NtStatus::SUCCESS);
        });
        self.0.report();
    }
}

/// A connector.
pub struct Connector<P: Platform> {
    core: Shared<Core<P>>,
    _member: Membership<P>,
}

impl<P: Platform> Connector<P> {
    /// Makes a connector that is good for either side of a connection.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(adapter: &Shared<AdapterCore<P>>, file: &Shared<P::File>) -> Result<Self, NtStatus> {
        let device = adapter.device();
        let state = State {
            engine: None,
            bound: None,
            request: None,
            disconnects: Outstanding::new(device.config().max_notify_requests as usize),
            life: Life::Before,
            end: None,
        };
        let state = device.platform().os().lock(state)?;
        let core = Shared::try_new(Core { adapter: adapter.clone(), file: file.clone(), state }).map_err(no_memory)?;
        let member = Device::join(device, Member::Connector(core.clone()))?;
        Ok(Self { core, _member: member })
    }

    /// The core behind a client's pointer, if it is a connector of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn find(adapter: &Shared<AdapterCore<P>>, unknown: *mut c_void) -> Option<Shared<Core<P>>> {
        let core = |connector: &Self| Shared::ptr_eq(&connector.core.adapter, adapter).then(|| connector.core.clone());
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, core) }?
    }
}

impl<P: Platform> Drop for Connector<P> {
    fn drop(&mut self) {
        Core::finish(&self.core, NtStatus::CANCELLED);
    }
}

impl<P: Platform> Core<P> {
    fn report(&self) {
        Outstanding::report(&self.state, |state| &mut state.disconnects);
    }

    fn completed(&self, request: Request, status: NtStatus) {
        let ended = self.state.with(|state| {
            let (_, ended) = state.request.take_if(|(asked, _)| *asked == request)?;
            match request {
                Request::Accept if status.is_success() => state.life = Life::Established,
                Request::Disconnect => {
                    // The connection is over for its own side too.
                    state.life = Life::Over;
                    state.disconnects.end(NtStatus::SUCCESS);
                }
                Request::Accept | Request::Connect => {}
            }
            Some(ended)
        });
        if let Some(ended) = ended {
            ended.complete(status);
        }
        self.report();
    }

    /// Ends everything with `status`, for good.
    fn finish(this: &Shared<Self>, status: NtStatus) {
        let (engine, bound, request) = this.state.with(|state| {
            let end = *state.end.get_or_insert(status);
            state.disconnects.end(end);
            (state.engine.take(), state.bound.take(), state.request.take())
        });
        if let Some((_, request)) = request {
            request.complete(status);
        }
        this.report();
        if let Some(engine) = engine {
            EngineConnector::close(&engine);
        }
        drop(bound);
    }

    /// The adapter is gone.
    pub fn removed(this: &Shared<Self>) {
        Self::finish(this, NtStatus::DEVICE_REMOVED);
    }

    /// Cancels what is outstanding. That gives up an attempt to connect or accept, and breaks a connection that is being
    /// disconnected.
    fn cancel(&self) {
        let (engine, request) = self.state.with(|state| {
            state.disconnects.end(NtStatus::CANCELLED);
            let request = state.request.take();
            (if request.is_some() { state.engine.take() } else { None }, request)
        });
        if let Some((_, request)) = request {
            request.complete(NtStatus::CANCELLED);
        }
        self.report();
        if let Some(engine) = engine {
            EngineConnector::close(&engine);
        }
    }

    /// Gives the connector the request that came over a listener.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it has another; what the adapter's or the connector's end says;
    /// `STATUS_INSUFFICIENT_RESOURCES`. The request is refused then.
    pub fn adopt(this: &Shared<Self>, incoming: Incoming<P::Os>) -> Result<(), NtStatus> {
        this.check_idle()?;
        let engine = incoming.into_connector(Client(this.clone()))?;
        let unused = this.state.with(|state| match state {
            State { engine: place @ None, end: None, .. } => {
                *place = Some(engine);
                None
            }
            _ => Some(engine),
        });
        if let Some(unused) = unused {
            EngineConnector::close(&unused);
            return Err(NtStatus::CANCELLED);
        }
        Ok(())
    }

    /// Whether the connector can be given a request.
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
    fn engine(&self) -> Result<Shared<EngineConnector<P::Os>>, NtStatus> {
        self.check()?;
        self.state.with(|state| state.engine.clone()).ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// The engine's connector, made if there is none.
    fn make_engine(this: &Shared<Self>) -> Result<Shared<EngineConnector<P::Os>>, NtStatus> {
        if let Some(engine) = this.state.with(|state| state.engine.clone()) {
            return Ok(engine);
        }
        let made =
            EngineConnector::try_new(this.adapter.device().attachment(), Owner::default(), Client(this.clone()))?;
        let (engine, unused) = this.state.with(|state| match &state.engine {
            Some(engine) => (engine.clone(), Some(made)),
            None => (state.engine.insert(made).clone(), None),
        });
        if let Some(unused) = unused {
            EngineConnector::close(&unused);
        }
        Ok(engine)
    }

    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        self.check()?;
        let address = own_address(self.adapter.device(), address)?;
        let attachment = self.adapter.device().attachment();
        let endpoint = SharedEndpoint::try_new(attachment, address, Owner::default(), ())?;
        // Binding again gives the address before up.
        drop(self.state.with(|state| state.bound.replace(endpoint)));
        Ok(())
    }

    /// Asks the engine for something that it may answer later.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn ask(
        &self,
        request: Request,
        overlapped: NonNull<OVERLAPPED>,
        ask: impl FnOnce() -> Result<Answer, NtStatus>,
    ) -> NtStatus {
        // The answer may come before the question has been asked: what waits for it is there first.
        let begun = self.state.with(|state| {
            if let Some(status) = state.end {
                return Err(status);
            }
            if state.request.is_some() {
                return Err(NtStatus::INVALID_DEVICE_STATE);
            }
            // SAFETY: the caller's promise.
            state.request = Some((request, unsafe { Pending::begin(&self.file, overlapped) }));
            Ok(())
        });
        if let Err(status) = begun {
            return status;
        }
        let status = match ask() {
            Ok(Answer::Pending) => return NtStatus::PENDING,
            Ok(Answer::Done) => NtStatus::SUCCESS,
            Err(status) => status,
        };
        let withdrawn = self.state.with(|state| state.request.take_if(|(asked, _)| *asked == request));
        // Cancelled meanwhile: its end was reported, so it has to be one that was pending.
        withdrawn.map_or(NtStatus::PENDING, |(_, pending)| pending.withdraw(status))
    }

    unsafe fn connect(
        this: &Shared<Self>,
        qp: &Shared<Qp<P::Os>>,
        parameters: &ConnectParameters<'_>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> Result<NtStatus, NtStatus> {
        this.check()?;
        if this.state.with(|state| state.bound.is_none()) {
            let any = if parameters.remote.is_ipv4() { UNSPECIFIED_V4 } else { UNSPECIFIED_V6 };
            this.bind(any)?;
        }
        let bound = this.state.with(|state| state.bound.clone()).ok_or(NtStatus::INVALID_DEVICE_STATE)?;
        let engine = Self::make_engine(this)?;
        let ask = || EngineConnector::connect_shared(&engine, qp, &bound, parameters).map(|()| Answer::Pending);
        // SAFETY: the caller's promise.
        Ok(unsafe { this.ask(Request::Connect, overlapped, ask) })
    }

    fn complete_connect(&self) -> Result<(), NtStatus> {
        let engine = self.engine()?;
        // The end of the connection is not reported before this side knows that it has begun.
        let hold = EngineConnector::complete_connect(&engine)?;
        self.state.with(|state| state.life = Life::Established);
        drop(hold);
        Ok(())
    }

    fn connection_data(&self, into: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        self.engine()?.connection_data(into)
    }

    /// Asks to hear of the end of the connection.
    ///
    /// # Safety
    ///
    /// As [`Core::ask`].
    unsafe fn notify_disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        self.state.with(|state| {
            if let Some(status) = state.end {
                return status;
            }
            match state.life {
                Life::Before => return NtStatus::CONNECTION_INVALID,
                Life::Over => return NtStatus::SUCCESS,
                Life::Established => {}
            }
            if let Err(error) = state.disconnects.reserve() {
                return no_memory(error);
            }
            // SAFETY: the caller's promise.
            state.disconnects.push(unsafe { Pending::begin(&self.file, overlapped) });
            NtStatus::PENDING
        })
    }

    /// Disconnects.
    ///
    /// # Safety
    ///
    /// As [`Core::ask`].
    unsafe fn disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> Result<NtStatus, NtStatus> {
        let engine = self.engine()?;
        // SAFETY: the caller's promise.
        let status = unsafe { self.ask(Request::Disconnect, overlapped, || EngineConnector::disconnect(&engine)) };
        if status == NtStatus::SUCCESS || status == NtStatus::CONNECTION_ABORTED {
            self.state.with(|state| {
                state.life = Life::Over;
                state.disconnects.end(NtStatus::SUCCESS);
            });
            self.report();
        }
        Ok(status)
    }
}

const UNSPECIFIED_V4: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);
const UNSPECIFIED_V6: SocketAddr = SocketAddr::new(core::net::IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED), 0);

/// The adapter's address that a client means: for a wildcard its first one of the family.
///
/// # Errors
///
/// `STATUS_INVALID_ADDRESS` if it has none.
pub fn own_address<P: Platform>(device: &Device<P>, address: SocketAddr) -> Result<SocketAddr, NtStatus> {
    if !address.ip().is_unspecified() {
        return Ok(address);
    }
    let mut own = device.addresses().iter();
    let found = own.find(|own| own.is_ipv4() == address.is_ipv4()).ok_or(NtStatus::INVALID_ADDRESS)?;
    Ok(SocketAddr::new(*found, address.port()))
}

/// The read limits that a client names.
const fn reads(inbound: u32, outbound: u32) -> ReadLimits {
    ReadLimits { inbound, outbound }
}
