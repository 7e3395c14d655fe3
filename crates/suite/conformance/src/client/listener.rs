//! `NDK_LISTENER` (`NDKPI 5.9`, `NDKPI 7.7.2`, `NDKPI 7.8`).

use core::{
    ffi::c_void,
    net::SocketAddr,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use ndkpi::{NDK_CONNECTOR, NDK_LISTENER};

use super::{
    adapter::Adapter,
    address::{Answer, RawAddress, ask},
    arena::Later,
    connector::{Connector, ConnectorCore},
    life::{Core, Kind, Life, Owned},
    request::{Pending, request},
    session::Session,
};
use crate::case::{Check, Stop};

/// What a case does with the connector in the connect event.
pub type ConnectHook<'s> = &'s (dyn Fn(Connector<'s>) -> Check + Send + Sync + 's);

/// A listener.
pub type Listener<'s> = Owned<'s, ListenerCore<'s>>;

/// The most connectors that wait to be taken.
const WAITING: usize = 64;

/// A listener, as callbacks and other threads see it.
pub struct ListenerCore<'s> {
    life: Life<'s>,
    adapter: Adapter<'s>,
    hook: Option<ConnectHook<'s>>,
    events: AtomicU32,
    waiting: [Later<'s, ConnectorCore<'s>>; WAITING],
    /// No more connectors will be taken: those that come are closed.
    deserted: AtomicBool,
}

impl<'s> Core<'s> for ListenerCore<'s> {
    type Public = NDK_LISTENER;
    const KIND: Kind = Kind::Listener;

    fn life(&self) -> &Life<'s> {
        &self.life
    }

    fn before_close(&self) {
        self.deserted.store(true, Release);
        self.close_waiting();
    }
}

impl<'s> ListenerCore<'s> {
    pub(super) const fn new(life: Life<'s>, adapter: Adapter<'s>, hook: Option<ConnectHook<'s>>) -> Self {
        Self {
            life,
            adapter,
            hook,
            events: AtomicU32::new(0),
            waiting: [const { Later::new() }; WAITING],
            deserted: AtomicBool::new(false),
        }
    }

    pub(super) const fn context(&self) -> *mut c_void {
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

    /// Connect events so far.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.events.load(Acquire)
    }

    /// `NdkListen`.
    ///
    /// # Errors
    ///
    /// The listener is closed, or there is no memory.
    pub fn listen(&'s self, address: impl Into<RawAddress>) -> Check<Pending<'s>> {
        let address = address.into();
        let call = self.life.call()?;
        let (listener, function) = slot!(call, NDK_LISTENER, NdkListen);
        request(&self.life, "NdkListen", None, |completion, context| {
            let (pointer, length) = address.parts();
            // SAFETY: the listener is open, the address is valid for the call, the context is kept by the session.
            unsafe { function(listener, pointer, length, completion, context) }
        })
    }

    /// `NdkGetLocalAddress` with a buffer of this size, or with none.
    ///
    /// # Errors
    ///
    /// The listener is closed.
    pub fn local_address(&self, size: Option<u32>) -> Check<Answer> {
        let call = self.life.call()?;
        let (listener, function) = slot!(call, NDK_LISTENER, NdkGetLocalAddress);
        Ok(ask(size, |address, length| {
            // SAFETY: the listener is open, the address has as many bytes as the length says or is null.
            unsafe { function(listener, address, length) }
        }))
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The provider does not tell.
    pub fn address(&self) -> Check<SocketAddr> {
        let answer = self.local_address(Some(28))?;
        answer.address.ok_or_else(|| Stop::status("NdkGetLocalAddress of the listener", answer.status))
    }

    /// `NdkControlConnectEvents`.
    ///
    /// # Errors
    ///
    /// The listener is closed.
    pub fn pause(&self, pause: bool) -> Check {
        let call = self.life.call()?;
        let (listener, function) = slot!(call, NDK_LISTENER, NdkControlConnectEvents);
        // SAFETY: the listener is open.
        unsafe { function(listener, pause.into()) };
        Ok(())
    }

    /// A connector that came and waits, if there is one.
    #[must_use]
    pub fn try_take(&self) -> Option<Connector<'s>> {
        self.waiting.iter().find_map(Later::take).map(Owned::of)
    }

    /// Waits for a connector.
    ///
    /// # Errors
    ///
    /// None comes in time.
    pub fn take(&self) -> Check<Connector<'s>> {
        self.session()
            .wait("a connect event (NDKPI 7.7.2)", || self.waiting.iter().any(|place| place.get().is_some()))?;
        self.try_take().ok_or_else(|| Stop::failed(format_args!("somebody else took the connector")))
    }

    fn keep(&self, connector: Connector<'s>) -> Check {
        let core = connector.release();
        if !self.waiting.iter().any(|place| place.set(core)) {
            drop(Owned::of(core));
            fail!("more than {WAITING} connectors wait for the case");
        }
        if self.deserted.load(Acquire) {
            self.close_waiting();
        }
        Ok(())
    }

    fn close_waiting(&self) {
        while let Some(connector) = self.try_take() {
            drop(connector);
        }
    }
}

/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// `context` is a `ListenerCore` that is kept by a session, `object` a new connector.
pub(super) unsafe extern "system" fn connection_came(context: *mut c_void, object: *mut NDK_CONNECTOR) {
    // SAFETY: a `ListenerCore` that a session keeps (`# Safety`), and the session outlives every callback.
    let core = unsafe { &*context.cast_const().cast::<ListenerCore<'_>>() };
    let session = core.session();
    let running = session.enter_callback(Some(&core.life));
    if object.is_null() {
        session.fault(format_args!("a connect event without a connector (NDKPI 6)"));
    } else {
        let result = core.adapter.adopt_connector(object, &core.life).and_then(|connector| match core.hook {
            Some(hook) => hook(connector),
            None => core.keep(connector),
        });
        session.note(result);
    }
    core.events.fetch_add(1, AcqRel);
    drop(running);
}
