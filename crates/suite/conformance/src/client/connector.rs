//! `NDK_CONNECTOR` (`NDKPI 5.8`, `NDKPI 7.7`).

use core::{
    ffi::c_void,
    net::SocketAddr,
    ptr,
    sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use ndkpi::{
    NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION,
    NDK_QP, NDK_SHARED_ENDPOINT, NtStatus,
};

use super::{
    adapter::Adapter,
    address::{Answer, RawAddress, ask},
    arena::Later,
    endpoint::SharedEndpointCore,
    life::{Core, Kind, Life, Owned},
    qp::QpCore,
    request::{Pending, Then, request},
    session::Session,
};
use crate::case::{Check, Stop};

/// A connector.
pub type Connector<'s> = Owned<'s, ConnectorCore<'s>>;

/// What a case does in the disconnect event.
pub type DisconnectHook<'s> = &'s (dyn Fn(&'s ConnectorCore<'s>) -> Check + Send + Sync + 's);

/// A connector, as callbacks and other threads see it.
pub struct ConnectorCore<'s> {
    life: Life<'s>,
    adapter: Adapter<'s>,
    disconnects: AtomicU32,
    reason: AtomicU32,
    hook: Later<'s, DisconnectHook<'s>>,
}

/// What one side offers for a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// The most reads of the peer in progress.
    pub inbound: u32,
    /// The most own reads in progress.
    pub outbound: u32,
    /// Private data.
    pub data: &'a [u8],
}

/// Which disconnect event a connection has.
#[derive(Clone, Copy)]
pub enum OnDisconnect<'s> {
    /// None.
    Nothing,
    /// The plain event is counted.
    Count,
    /// The plain event is counted, and this is done in it.
    Do(&'s DisconnectHook<'s>),
    /// The event of NDKPI 2.1, by the functions of NDKPI 2.1.
    CountEx,
}

/// The answer of `NdkGetConnectionData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// What it returned.
    pub status: NtStatus,
    /// The effective inbound read limit.
    pub inbound: u32,
    /// The effective outbound read limit.
    pub outbound: u32,
    /// The length stored: the provider's requirement, or the bytes needed (`NDKPI 7.7.4`).
    pub length: u32,
}

impl<'s> Core<'s> for ConnectorCore<'s> {
    type Public = NDK_CONNECTOR;
    const KIND: Kind = Kind::Connector;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

/// The slots of complete-connect differ by version, not by shape.
#[expect(improper_ctypes_definitions, reason = "F is always a pointer to a function, of which an Option is one word")]
type CompleteConnect<F> = unsafe extern "system" fn(
    *mut NDK_CONNECTOR,
    Option<F>,
    *mut c_void,
    Option<NDK_FN_REQUEST_COMPLETION>,
    *mut c_void,
) -> NtStatus;

impl<'s> ConnectorCore<'s> {
    pub(super) const fn new(life: Life<'s>, adapter: Adapter<'s>) -> Self {
        Self { life, adapter, disconnects: AtomicU32::new(0), reason: AtomicU32::new(0), hook: Later::new() }
    }

    const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.life.session()
    }

    /// The adapter.
    #[must_use]
    pub const fn adapter(&self) -> Adapter<'s> {
        self.adapter
    }

    /// Disconnect events so far.
    #[must_use]
    pub fn disconnects(&self) -> u32 {
        self.disconnects.load(Acquire)
    }

    /// The reason in the latest disconnect event of NDKPI 2.1.
    #[must_use]
    pub fn reason(&self) -> u32 {
        self.reason.load(Acquire)
    }

    /// Waits for the disconnect event.
    ///
    /// # Errors
    ///
    /// It does not come, or comes twice.
    pub fn wait_disconnect(&self) -> Check {
        self.session().wait("the disconnect event (NDKPI 7.7.6)", || self.disconnects() > 0)?;
        ensure_eq!(self.disconnects(), 1, "disconnect events");
        Ok(())
    }

    /// Looks that it stays at this many disconnect events.
    ///
    /// # Errors
    ///
    /// There are more, or fewer.
    pub fn stays_at_disconnects(&self, count: u32) -> Check {
        self.session().settle();
        ensure_eq!(self.disconnects(), count, "disconnect events");
        Ok(())
    }

    /// Makes a request that ties the connector to `qp` if it succeeds.
    fn tie(
        &'s self,
        qp: &'s QpCore<'s>,
        what: &'static str,
        call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
    ) -> Check<Pending<'s>> {
        let undo = self.session().keep(move |status: NtStatus| {
            if status != NtStatus::SUCCESS {
                self.life.depend_no_more_on(qp.life());
            }
        })?;
        let then: Then<'s> = undo;
        self.life.depend_on(qp.life());
        let pending = request(&self.life, what, Some(then), call)?;
        if pending.kind() == super::session::CompletionKind::Inline
            && let Some(status) = pending.outcome()
        {
            undo(status);
        }
        Ok(pending)
    }

    /// `NdkConnect`.
    ///
    /// # Errors
    ///
    /// The connector or the queue pair is closed, or there is no memory.
    pub fn connect(
        &'s self,
        qp: &'s QpCore<'s>,
        from: impl Into<RawAddress>,
        to: impl Into<RawAddress>,
        offer: &Offer<'_>,
    ) -> Check<Pending<'s>> {
        let (from, to) = (from.into(), to.into());
        let (call, qp_call) = (self.life.call()?, qp.life().call()?);
        let pair: *mut NDK_QP = qp_call.object();
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkConnect);
        let (data, size) = bytes(offer.data);
        self.tie(qp, "NdkConnect", |completion, context| {
            let ((source, source_length), (target, target_length)) = (from.parts(), to.parts());
            // SAFETY: the objects are open, addresses and data are valid for the call, the context is kept.
            unsafe {
                function(
                    connector,
                    pair,
                    source,
                    source_length,
                    target,
                    target_length,
                    offer.inbound,
                    offer.outbound,
                    data,
                    size,
                    completion,
                    context,
                )
            }
        })
    }

    /// `NdkConnectWithSharedEndpoint`.
    ///
    /// # Errors
    ///
    /// An object is closed, or there is no memory.
    pub fn connect_shared(
        &'s self,
        qp: &'s QpCore<'s>,
        from: &'s SharedEndpointCore<'s>,
        to: impl Into<RawAddress>,
        offer: &Offer<'_>,
    ) -> Check<Pending<'s>> {
        let to = to.into();
        let (call, qp_call, endpoint_call) = (self.life.call()?, qp.life().call()?, from.life().call()?);
        let pair: *mut NDK_QP = qp_call.object();
        let endpoint: *mut NDK_SHARED_ENDPOINT = endpoint_call.object();
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkConnectWithSharedEndpoint);
        let (data, size) = bytes(offer.data);
        let undo = self.session().keep(move |status: NtStatus| {
            if status != NtStatus::SUCCESS {
                self.life.depend_no_more_on(from.life());
                self.life.depend_no_more_on(qp.life());
            }
        })?;
        self.life.depend_on(from.life());
        self.life.depend_on(qp.life());
        let pending = request(&self.life, "NdkConnectWithSharedEndpoint", Some(undo), |completion, context| {
            let (target, target_length) = to.parts();
            // SAFETY: the objects are open, the address and the data are valid for the call, the context is kept.
            unsafe {
                function(
                    connector,
                    pair,
                    endpoint,
                    target,
                    target_length,
                    offer.inbound,
                    offer.outbound,
                    data,
                    size,
                    completion,
                    context,
                )
            }
        })?;
        if pending.kind() == super::session::CompletionKind::Inline
            && let Some(status) = pending.outcome()
        {
            undo(status);
        }
        Ok(pending)
    }

    /// `NdkCompleteConnect`, or `NdkCompleteConnectEx` for the event of NDKPI 2.1.
    ///
    /// # Errors
    ///
    /// The connector is closed, there is no memory, or the version has no such slot.
    pub fn complete_connect(&'s self, event: OnDisconnect<'s>) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        if matches!(event, OnDisconnect::CountEx) {
            let connector: *mut NDK_CONNECTOR = call.object();
            // SAFETY: the connector is open.
            let function = unsafe { NDK_CONNECTOR::complete_connect_ex(connector) };
            let function = function.ok_or_else(|| Stop::skipped(format_args!("NdkCompleteConnectEx came with 2.1")))?;
            return self.complete_with(connector, function, Some(disconnected_ex as _));
        }
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkCompleteConnect);
        self.complete_with(connector, function, self.plain_event(event))
    }

    fn complete_with<F>(
        &'s self,
        connector: *mut NDK_CONNECTOR,
        function: CompleteConnect<F>,
        event: Option<F>,
    ) -> Check<Pending<'s>> {
        request(&self.life, "NdkCompleteConnect", None, |completion, context| {
            // SAFETY: the connector is open (the caller's guard), the contexts are kept by the session.
            unsafe { function(connector, event, self.context(), completion, context) }
        })
    }

    fn plain_event(&self, event: OnDisconnect<'s>) -> Option<NDK_FN_DISCONNECT_EVENT_CALLBACK> {
        match event {
            OnDisconnect::Nothing | OnDisconnect::CountEx => None,
            OnDisconnect::Count => Some(disconnected),
            OnDisconnect::Do(hook) => {
                self.hook.set(hook);
                Some(disconnected)
            }
        }
    }

    /// `NdkAccept`, or `NdkAcceptEx` for the event of NDKPI 2.1.
    ///
    /// # Errors
    ///
    /// An object is closed, there is no memory, or the version has no such slot.
    pub fn accept(&'s self, qp: &'s QpCore<'s>, offer: &Offer<'_>, event: OnDisconnect<'s>) -> Check<Pending<'s>> {
        let (call, qp_call) = (self.life.call()?, qp.life().call()?);
        let pair: *mut NDK_QP = qp_call.object();
        let (data, size) = bytes(offer.data);
        let (inbound, outbound) = (offer.inbound, offer.outbound);
        if matches!(event, OnDisconnect::CountEx) {
            let connector: *mut NDK_CONNECTOR = call.object();
            // SAFETY: the connector is open.
            let function = unsafe { NDK_CONNECTOR::accept_ex(connector) };
            let function = function.ok_or_else(|| Stop::skipped(format_args!("NdkAcceptEx came with 2.1")))?;
            let event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX> = Some(disconnected_ex);
            return self.tie(qp, "NdkAcceptEx", |completion, context| {
                // SAFETY: the objects are open, the data are valid for the call, the contexts are kept by the session.
                unsafe {
                    function(connector, pair, inbound, outbound, data, size, event, self.context(), completion, context)
                }
            });
        }
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkAccept);
        let event = self.plain_event(event);
        self.tie(qp, "NdkAccept", |completion, context| {
            // SAFETY: the objects are open, the data are valid for the call, the contexts are kept by the session.
            unsafe {
                function(connector, pair, inbound, outbound, data, size, event, self.context(), completion, context)
            }
        })
    }

    /// `NdkReject`.
    ///
    /// # Errors
    ///
    /// The connector is closed.
    pub fn reject(&self, data: &[u8]) -> Check<NtStatus> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkReject);
        let (data, size) = bytes(data);
        // SAFETY: the connector is open, the data are valid for the call.
        Ok(unsafe { function(connector, data, size) })
    }

    /// `NdkGetConnectionData` into `buffer`, or without one.
    ///
    /// # Errors
    ///
    /// The connector is closed.
    pub fn connection_data(&self, buffer: Option<&mut [u8]>) -> Check<ConnectionData> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkGetConnectionData);
        let (mut inbound, mut outbound) = (u32::MAX, u32::MAX);
        let (place, mut length) = buffer.map_or((ptr::null_mut(), 0), |buffer| {
            (buffer.as_mut_ptr(), u32::try_from(buffer.len()).unwrap_or(u32::MAX))
        });
        // SAFETY: the connector is open, the buffer has as many bytes as the length says, the others are valid.
        let status = unsafe { function(connector, &raw mut inbound, &raw mut outbound, place.cast(), &raw mut length) };
        Ok(ConnectionData { status, inbound, outbound, length })
    }

    /// `NdkGetConnectionData` without places for the read limits, which are optional.
    ///
    /// # Errors
    ///
    /// The connector is closed.
    pub fn connection_data_length(&self) -> Check<(NtStatus, u32)> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkGetConnectionData);
        let mut length = 0;
        // SAFETY: the connector is open, the length is valid, the other places are left out.
        let status = unsafe { function(connector, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), &raw mut length) };
        Ok((status, length))
    }

    /// `NdkGetLocalAddress` with a buffer of this size, or with none.
    ///
    /// # Errors
    ///
    /// The connector is closed.
    pub fn local_address(&self, size: Option<u32>) -> Check<Answer> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkGetLocalAddress);
        Ok(ask(size, |address, length| {
            // SAFETY: the connector is open, the address has as many bytes as the length says or is null.
            unsafe { function(connector, address, length) }
        }))
    }

    /// `NdkGetPeerAddress` with a buffer of this size, or with none.
    ///
    /// # Errors
    ///
    /// The connector is closed.
    pub fn peer_address(&self, size: Option<u32>) -> Check<Answer> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkGetPeerAddress);
        Ok(ask(size, |address, length| {
            // SAFETY: the connector is open, the address has as many bytes as the length says or is null.
            unsafe { function(connector, address, length) }
        }))
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// The provider does not tell.
    pub fn local(&self) -> Check<SocketAddr> {
        let answer = self.local_address(Some(28))?;
        answer.address.ok_or_else(|| Stop::status("NdkGetLocalAddress of the connector", answer.status))
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// The provider does not tell.
    pub fn peer(&self) -> Check<SocketAddr> {
        let answer = self.peer_address(Some(28))?;
        answer.address.ok_or_else(|| Stop::status("NdkGetPeerAddress", answer.status))
    }

    /// `NdkDisconnect`.
    ///
    /// # Errors
    ///
    /// The connector is closed, or there is no memory.
    pub fn disconnect(&'s self) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (connector, function) = slot!(call, NDK_CONNECTOR, NdkDisconnect);
        request(&self.life, "NdkDisconnect", None, |completion, context| {
            // SAFETY: the connector is open, the context is kept by the session.
            unsafe { function(connector, completion, context) }
        })
    }
}

fn bytes(data: &[u8]) -> (*const c_void, u32) {
    let pointer = if data.is_empty() { ptr::null() } else { data.as_ptr().cast() };
    (pointer, u32::try_from(data.len()).unwrap_or(u32::MAX))
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// `context` is a `ConnectorCore` that is kept by a session.
unsafe extern "system" fn disconnected(context: *mut c_void) {
    // SAFETY: a `ConnectorCore` that a session keeps (`# Safety`), and the session outlives every callback.
    let core = unsafe { &*context.cast_const().cast::<ConnectorCore<'_>>() };
    has_disconnected(core);
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX`.
///
/// # Safety
///
/// Like [`disconnected`].
unsafe extern "system" fn disconnected_ex(context: *mut c_void, reason: u32) {
    // SAFETY: a `ConnectorCore` that a session keeps (`# Safety`), and the session outlives every callback.
    let core = unsafe { &*context.cast_const().cast::<ConnectorCore<'_>>() };
    core.reason.store(reason, Release);
    has_disconnected(core);
}

fn has_disconnected<'s>(core: &'s ConnectorCore<'s>) {
    let session = core.session();
    let running = session.enter_callback(Some(&core.life));
    if core.disconnects.load(Acquire) > 0 {
        session.fault(format_args!("a second disconnect event of one connection (NDKPI 7.7.6)"));
    }
    if let Some(hook) = core.hook.get() {
        session.note(hook(core));
    }
    core.disconnects.fetch_add(1, AcqRel);
    drop(running);
}
