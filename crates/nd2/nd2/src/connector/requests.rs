//! What a connector's client asks for and is answered later.

use core::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr::NonNull,
};

use engine::{
    connection::{Answer, ConnectParameters, ConnectionData, Connector as EngineConnector, ConnectorRequest},
    os::SpinLock,
    qp::Qp,
};
use fallible::Arc;
use ndkpi::NtStatus;

use super::{Asked, Core, Life};
use crate::{
    OverlappedOs,
    abi::OVERLAPPED,
    overlapped::{Pending, succeed},
};

const UNSPECIFIED_V4: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const UNSPECIFIED_V6: SocketAddr = SocketAddr::new(core::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

impl<P: OverlappedOs> Core<P> {
    /// Asks the engine for something that it may answer later.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    pub(super) unsafe fn ask(
        &self,
        request: ConnectorRequest,
        qp: Option<&Arc<Qp<P::Os>>>,
        overlapped: NonNull<OVERLAPPED>,
        ask: impl FnOnce() -> Result<Answer, NtStatus>,
    ) -> NtStatus {
        // The answer may come before the question has been asked: what waits for it is there first.
        let begun = self.state.with(|state| {
            if let Some(status) = state.end {
                return Err(status);
            }
            if state.request.is_some() {
                // It is connecting, or being disconnected.
                return Err(match request {
                    ConnectorRequest::Connect | ConnectorRequest::Accept => NtStatus::CONNECTION_ACTIVE,
                    ConnectorRequest::Disconnect => NtStatus::CONNECTION_INVALID,
                });
            }
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
            let pending = unsafe { Pending::begin_on(self.adapter.device(), &self.file, overlapped) };
            state.request = Some(Asked { request, pending, qp: qp.cloned() });
            Ok(())
        });
        if let Err(status) = begun {
            return status;
        }
        let status = match ask() {
            Ok(Answer::Pending) => return NtStatus::PENDING,
            Ok(Answer::Done) if self.adapter.device().pends() => {
                let done = self.state.with(|state| state.request.take_if(|asked| asked.request == request));
                // Cancelled meanwhile otherwise, and reported.
                if let Some(asked) = done {
                    asked.pending.complete(NtStatus::SUCCESS);
                }
                return NtStatus::PENDING;
            }
            Ok(Answer::Done) => NtStatus::SUCCESS,
            Err(status) => status,
        };
        let withdrawn = self.state.with(|state| state.request.take_if(|asked| asked.request == request));
        match withdrawn {
            // The other side's word: clients wait for it, and do not expect it from the method.
            Some(asked) if status == NtStatus::CONNECTION_REFUSED => asked.pending.complete(status),
            Some(asked) => return asked.pending.withdraw(status),
            // Cancelled meanwhile: its end was reported, so it has to be one that was pending.
            None => {}
        }
        NtStatus::PENDING
    }

    pub(super) unsafe fn connect(
        this: &Arc<Self>,
        qp: &Arc<Qp<P::Os>>,
        parameters: &ConnectParameters<'_>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> Result<NtStatus, NtStatus> {
        this.check()?;
        if this.state.with(|state| state.bound.is_none()) {
            let any = if parameters.remote.is_ipv4() { UNSPECIFIED_V4 } else { UNSPECIFIED_V6 };
            match this.take_address(any) {
                // Another thread has bound it meanwhile.
                Ok(()) | Err(NtStatus::ADDRESS_ALREADY_ASSOCIATED) => {}
                Err(status) => return Err(status),
            }
        }
        // Gone again only if the connector has ended meanwhile.
        let bound = this.state.with(|state| state.bound.clone()).ok_or(NtStatus::CANCELLED)?;
        let engine = Self::make_engine(this)?;
        let ask = || EngineConnector::connect_shared(&engine, qp, &bound, parameters).map(|()| Answer::Pending);
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        Ok(unsafe { this.ask(ConnectorRequest::Connect, Some(qp), overlapped, ask) })
    }

    /// Completes a connect.
    ///
    /// # Safety
    ///
    /// As [`Core::ask`].
    pub(super) unsafe fn complete_connect(&self, overlapped: NonNull<OVERLAPPED>) -> Result<NtStatus, NtStatus> {
        let engine = self.engine()?;
        // The end of the connection is not reported before this side knows that it has begun.
        let hold = EngineConnector::complete_connect(&engine).map_err(|status| match status {
            // The passive side has given up: there is nothing that connects any more.
            NtStatus::CONNECTION_ABORTED => NtStatus::CONNECTION_INVALID,
            status => status,
        })?;
        self.state.with(|state| state.life = Life::Established);
        // SAFETY: `overlapped` is valid with nothing outstanding on it (`# Safety` of `ask`): this request has not begun.
        let status = unsafe { succeed(self.adapter.device(), &self.file, overlapped) };
        drop(hold);
        Ok(status)
    }

    /// The address on this side: of the connection, and without one that of `Bind`.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_INVALID` if it has none, `STATUS_DEVICE_REMOVED`.
    pub(super) fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.check()?;
        let (engine, bound) = self.state.with(|state| (state.engine.clone(), state.bound.clone()));
        if let Some(address) = engine.and_then(|engine| engine.local_address().ok()) {
            return Ok(address);
        }
        bound.map(|bound| bound.local_address()).ok_or(NtStatus::CONNECTION_INVALID)
    }

    pub(super) fn connection_data(&self, into: &mut [u8]) -> Result<ConnectionData, NtStatus> {
        self.engine()?.connection_data(into)
    }

    /// Asks to hear of the end of the connection.
    ///
    /// # Safety
    ///
    /// As [`Core::ask`].
    pub(super) unsafe fn notify_disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let status = self.state.with(|state| {
            if let Some(status) = state.end {
                return status;
            }
            match state.life {
                Life::Before => return NtStatus::CONNECTION_INVALID,
                Life::Over => return NtStatus::SUCCESS,
                Life::Established => {}
            }
            if let Err(error) = state.disconnects.reserve() {
                return error.into();
            }
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
            state.disconnects.push(unsafe { Pending::begin_on(self.adapter.device(), &self.file, overlapped) });
            NtStatus::PENDING
        });
        if status == NtStatus::SUCCESS {
            // SAFETY: `overlapped` is valid with nothing outstanding on it (`# Safety` of `ask`): this request has not begun.
            return unsafe { succeed(self.adapter.device(), &self.file, overlapped) };
        }
        status
    }

    /// Disconnects. What is outstanding is cancelled; the engine on its own would carry it out first, as NDKPI wants.
    ///
    /// # Safety
    ///
    /// As [`Core::ask`].
    pub(super) unsafe fn disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> Result<NtStatus, NtStatus> {
        let engine = self.engine()?;
        let disconnect = || {
            let answer = EngineConnector::disconnect(&engine);
            match answer {
                Ok(Answer::Pending) => {
                    if let Some(qp) = self.state.with(|state| state.qp.clone()) {
                        // Nothing can be posted any more, and so this is all.
                        Qp::flush(&qp);
                    }
                }
                Ok(Answer::Done) | Err(NtStatus::CONNECTION_ABORTED) => {
                    self.state.with(|state| {
                        state.life = Life::Over;
                        state.disconnects.end(NtStatus::SUCCESS);
                    });
                }
                Err(_) => {}
            }
            answer
        };
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
        let status = unsafe { self.ask(ConnectorRequest::Disconnect, None, overlapped, disconnect) };
        self.report();
        // A connection that was broken before is none.
        Ok(if status == NtStatus::CONNECTION_ABORTED { NtStatus::CONNECTION_INVALID } else { status })
    }
}
