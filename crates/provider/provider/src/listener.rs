//! `NDK_LISTENER` (`NDKPI 5.9`, `NDKPI 7.7.2`, `NDKPI 7.7.8`).

use core::ffi::c_void;

use engine::connection::{Incoming, Listener, ListenerClient, Owner};
use fallible::Arc;
use ndkpi::{
    BOOLEAN, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LISTENER_DISPATCH,
    NDK_VERSION, NtStatus, SOCKADDR,
};

use crate::{
    NdkOs,
    adapter::Adapter,
    address,
    borrow::Slot,
    connector::ConnectorObject,
    device::Device,
    dispatch,
    object::{AnyRef, Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
};

/// A listener.
pub struct ListenerObject<O: NdkOs> {
    listener: Slot<Arc<Listener<O>>>,
    adapter: ObjectRef<Adapter<O>>,
}

/// The client of the engine's listener. It keeps the object alive while the listener may call, and while connectors of its
/// connections are open.
struct Client<O: NdkOs> {
    callback: NDK_FN_CONNECT_EVENT_CALLBACK,
    context: *mut c_void,
    object: ObjectRef<ListenerObject<O>>,
}

// SAFETY: the context is handed back to the consumer and not used here; callbacks may come on any thread (`NDKPI 6`).
unsafe impl<O: NdkOs> Send for Client<O> {}
// SAFETY: as for `Send`.
unsafe impl<O: NdkOs> Sync for Client<O> {}

impl<O: NdkOs> ListenerClient<O> for Client<O> {
    fn connect_event(&self, incoming: Incoming<O>) {
        // Without memory for a connector the request is refused, and the consumer does not learn of it.
        let (adapter, listener) = (&self.object.adapter, AnyRef::Listener(self.object.clone()));
        if let Ok(connector) =
            ConnectorObject::create_with(adapter, Some(listener), |client| incoming.into_connector(client))
        {
            // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held. The connector is the consumer's
            // from now on.
            unsafe { (self.callback)(self.context, connector.into_public()) };
        }
    }
}

impl<O: NdkOs> ListenerObject<O> {
    /// Makes a listener on `adapter` that does not listen yet.
    pub fn create(
        adapter: &ObjectRef<Adapter<O>>,
        callback: NDK_FN_CONNECT_EVENT_CALLBACK,
        context: *mut c_void,
    ) -> Result<ObjectRef<Self>, NtStatus> {
        let body = Self { listener: Slot::empty(), adapter: adapter.clone() };
        ObjectRef::try_new_with(adapter.version(), body, |object| {
            let client = Client { callback, context, object };
            Listener::try_new(adapter.device().port(), Owner { process: None }, client)
        })
    }

    const TABLE: &'static NDK_LISTENER_DISPATCH = &NDK_LISTENER_DISPATCH {
        NdkCloseListener: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkListen: Some(listen::<O>),
        NdkGetLocalAddress: Some(get_local_address::<O>),
        NdkControlConnectEvents: Some(control_connect_events::<O>),
    };
}

impl<O: NdkOs> Body for ListenerObject<O> {
    kind!(Listener, b"NdkL");

    type Public = NDK_LISTENER;

    fn public(version: NDK_VERSION) -> NDK_LISTENER {
        NDK_LISTENER::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.adapter.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let listener = unsafe { self.listener.replace(None) };
        if let Some(listener) = listener {
            Listener::close(&listener);
        }
    }
}

impl<O: NdkOs> EngineObject for ListenerObject<O> {
    type Engine = Listener<O>;

    fn slot(&self) -> &Slot<Arc<Listener<O>>> {
        &self.listener
    }
}

/// `NDK_FN_LISTEN` (`NDKPI 5.9`).
///
/// # Safety
///
/// `listener` is open, the address is valid for reading.
unsafe extern "system" fn listen<O: NdkOs>(
    listener: *mut NDK_LISTENER,
    local: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let listen = |object: &Borrowed<ListenerObject<O>>| {
        // SAFETY: the address is valid for reading.
        let local = unsafe { address::read(local, length) }?;
        Listener::listen(object.engine()?, local)
    };
    // SAFETY: the caller passes an open listener.
    unsafe { dispatch::request(listener, completion, context, listen) }
}

/// `NDK_FN_GET_LISTENER_LOCAL_ADDRESS` (`NDKPI 5.9`).
///
/// # Safety
///
/// `listener` is open; `length` is valid for reading and writing, `buffer` for writing the bytes it says.
unsafe extern "system" fn get_local_address<O: NdkOs>(
    listener: *mut NDK_LISTENER,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    let get = |object: &Borrowed<ListenerObject<O>>| object.engine()?.local_address();
    // SAFETY: the caller passes an open listener.
    let found = unsafe { dispatch::with(listener, get) };
    // SAFETY: `length` is valid for reading and writing, `buffer` for writing the bytes it says (`# Safety`).
    unsafe { address::write(found, buffer, length) }
}

/// `NDK_FN_CONTROL_CONNECT_EVENTS` (`NDKPI 7.7.8`).
///
/// # Safety
///
/// `listener` is open.
unsafe extern "system" fn control_connect_events<O: NdkOs>(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    let control = |object: &Borrowed<ListenerObject<O>>| object.engine().map(|listener| listener.pause(pause != 0));
    // SAFETY: the caller passes an open listener.
    let _ = unsafe { dispatch::with(listener, control) };
}
