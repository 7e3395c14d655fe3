//! Listeners.

use alloc::collections::VecDeque;
use core::{net::SocketAddr, ptr::NonNull};

use engine::{
    connection::{Incoming, Listener as EngineListener, ListenerClient},
    os::{Os, SpinLock},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Charge, Device, Engine, OverlappedOs,
    abi::OVERLAPPED,
    adapter::{AdapterCore, CONNECTION},
    back_end,
    connector::{self, Connector, own_address},
    device::{Member, Membership},
    overlapped::{Pending, succeed, trim},
};

/// Bytes that a connection request takes that waits, without its private data.
const INCOMING: u64 = 1024;

/// A client's `GetConnectionRequest`, with the connector that is to get the request.
type Waiter<P> = (Arc<connector::Core<P>>, Pending<P>);

struct State<P: OverlappedOs> {
    engine: Option<Arc<EngineListener<P::Os>>>,
    listening: bool,
    waiting: VecDeque<Waiter<P>>,
    /// Connection requests that no client has asked for yet.
    incoming: VecDeque<Incoming<P::Os>>,
    /// The most connection requests.
    backlog: usize,
    end: Option<NtStatus>,
}

/// A listener behind its COM object.
pub struct Core<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
    /// For the memory, with that of requests that may wait here: those who have sent them may be gone.
    charge: Charge,
}

struct Client<P: OverlappedOs>(Arc<Core<P>>);

impl<P: OverlappedOs> ListenerClient<P::Os> for Client<P> {
    fn connect_event(&self, incoming: Incoming<P::Os>) {
        self.0.arrived(incoming);
    }
}

/// A listener.
pub struct Listener<P: OverlappedOs> {
    core: Arc<Core<P>>,
    _member: Membership<P>,
}

/// What becomes of a connection request.
enum Fate<P: OverlappedOs> {
    /// It is for this client.
    For(Waiter<P>, Incoming<P::Os>),
    /// It waits.
    Waits,
    /// It is refused.
    Refused(#[expect(dead_code, reason = "dropped where no lock is held")] Incoming<P::Os>),
}

impl<P: OverlappedOs> Core<P> {
    fn arrived(&self, incoming: Incoming<P::Os>) {
        let fate = self.state.with(|state| {
            if state.end.is_some() {
                return Fate::Refused(incoming);
            }
            if let Some(waiter) = state.waiting.pop_front() {
                return Fate::For(waiter, incoming);
            }
            if state.incoming.len() >= state.backlog || state.incoming.try_reserve(1).is_err() {
                return Fate::Refused(incoming);
            }
            state.incoming.push_back(incoming);
            Fate::Waits
        });
        if let Fate::For((connector, request), incoming) = fate {
            let result = connector::Core::adopt(&connector, incoming);
            request.complete(result.err().unwrap_or(NtStatus::SUCCESS));
        }
    }

    /// Binds the listener, once, to a local address, at which it does not listen yet.
    fn bind(this: &Arc<Self>, address: SocketAddr) -> Result<(), NtStatus> {
        let device = this.adapter.device();
        device.check_present()?;
        if this.state.with(|state| state.engine.is_some()) {
            return Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED);
        }
        let address = own_address(device, address)?;
        let engine = EngineListener::try_new(device.port(), this.adapter.owner(), Client(this.clone()))?;
        engine.pause(true);
        EngineListener::listen(&engine, address).inspect_err(|_| EngineListener::close(&engine))?;
        // Another thread may have been faster.
        let unused = this.state.with(|state| match (state.end, &state.engine) {
            (None, None) => {
                state.engine = Some(engine);
                None
            }
            (end, _) => Some((engine, end.unwrap_or(NtStatus::ADDRESS_ALREADY_ASSOCIATED))),
        });
        unused.map_or(Ok(()), |(unused, status)| {
            EngineListener::close(&unused);
            Err(status)
        })
    }

    fn listen(&self, backlog: u32) -> Result<(), NtStatus> {
        self.adapter.device().check_present()?;
        let most = self.adapter.device().config().max_backlog;
        let backlog = if backlog == 0 { most } else { backlog.min(most) };
        let each = INCOMING + u64::from(self.adapter.device().config().info.MaxCallerData);
        self.adapter.raise(&self.charge, CONNECTION + u64::from(backlog) * each)?;
        let engine = self.state.with(|state| {
            let engine = state.engine.clone().ok_or(NtStatus::INVALID_DEVICE_STATE)?;
            if state.listening {
                return Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED);
            }
            state.backlog = backlog as usize;
            state.listening = true;
            Ok::<_, NtStatus>(engine)
        })?;
        engine.pause(false);
        Ok(())
    }

    fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.adapter.device().check_present()?;
        let engine = self.state.with(|state| state.engine.clone());
        engine.ok_or(NtStatus::INVALID_DEVICE_STATE)?.local_address()
    }

    /// Asks for a connection request.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn get_connection_request(
        &self,
        connector: Arc<connector::Core<P>>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> Result<NtStatus, NtStatus> {
        self.adapter.device().check_present()?;
        connector.check_idle()?;
        let limit = self.adapter.device().config().max_notify_requests as usize;
        let incoming = self.state.with(|state| {
            if let Some(status) = state.end {
                return Err(status);
            }
            if let Some(incoming) = state.incoming.pop_front() {
                return Ok(Some((connector, incoming)));
            }
            if state.waiting.iter().any(|(other, _)| Arc::ptr_eq(other, &connector)) {
                return Err(NtStatus::CONNECTION_ACTIVE);
            }
            if state.waiting.len() >= limit || state.waiting.try_reserve(1).is_err() {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
            state
                .waiting
                .push_back((connector, unsafe { Pending::begin_on(self.adapter.device(), &self.file, overlapped) }));
            Ok(None)
        })?;
        match incoming {
            None => Ok(NtStatus::PENDING),
            Some((connector, incoming)) => {
                connector::Core::adopt(&connector, incoming)?;
                // SAFETY: `overlapped` is valid with nothing outstanding on it (`# Safety`): this request has not begun.
                Ok(unsafe { succeed(self.adapter.device(), &self.file, overlapped) })
            }
        }
    }

    fn cancel(&self, status: NtStatus) {
        let first = || {
            self.state.with(|state| {
                let first = state.waiting.pop_front();
                trim(&mut state.waiting);
                first
            })
        };
        while let Some((_, request)) = first() {
            request.complete(status);
        }
    }

    fn finish(&self, status: NtStatus) {
        let (engine, incoming) = self.state.with(|state| {
            state.end.get_or_insert(status);
            state.listening = false;
            (state.engine.take(), core::mem::take(&mut state.incoming))
        });
        if let Some(engine) = engine {
            EngineListener::close(&engine);
        }
        // Refuses them.
        drop(incoming);
        self.cancel(status);
    }

    /// The adapter is gone.
    pub fn removed(&self) {
        self.finish(NtStatus::DEVICE_REMOVED);
    }
}

impl<P: OverlappedOs> Listener<P> {
    /// Makes a listener.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>, file: &Arc<P::File>) -> Result<Self, NtStatus> {
        let state = State {
            engine: None,
            listening: false,
            waiting: VecDeque::new(),
            incoming: VecDeque::new(),
            backlog: 0,
            end: None,
        };
        let state = adapter.device().platform().os().lock(state)?;
        let charge = adapter.charge_object(CONNECTION)?;
        let core = Arc::try_new(Core { adapter: adapter.clone(), file: file.clone(), state, charge })?;
        let member = Device::join(adapter, Member::Listener(core.clone()))?;
        Ok(Self { core, _member: member })
    }
}

impl<P: OverlappedOs> Drop for Listener<P> {
    fn drop(&mut self) {
        self.core.finish(NtStatus::CANCELLED);
    }
}

impl<P: OverlappedOs> Listener<P> {
    /// Cancels the request on `overlapped` alone.
    pub fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        let cancelled = self.core.state.with(|state| {
            let place = state.waiting.iter().position(|(_, request)| request.is_on(overlapped))?;
            let cancelled = state.waiting.remove(place);
            trim(&mut state.waiting);
            cancelled
        });
        if let Some((_, request)) = cancelled {
            request.complete(NtStatus::CANCELLED);
        }
    }
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for Listener<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.core.adapter
    }
}

impl<P: OverlappedOs> back_end::Requests<Engine<P>> for Listener<P> {
    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.cancel(NtStatus::CANCELLED);
        Ok(())
    }
}

impl<P: OverlappedOs> back_end::Listener<Engine<P>> for Listener<P> {
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        Core::bind(&self.core, address)
    }

    fn listen(&self, backlog: u32) -> Result<(), NtStatus> {
        self.core.listen(backlog)
    }

    fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.core.local_address()
    }

    unsafe fn get_connection_request(
        &self,
        connector: Option<&Connector<P>>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        let Some(connector) = connector else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        let result = unsafe { self.core.get_connection_request(connector.core().clone(), overlapped) };
        result.unwrap_or_else(|status| status)
    }
}
