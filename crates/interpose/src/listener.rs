//! Functions of a listener (`NDKPI 5.9`).

use core::{ffi::c_void, ptr};

use ndkpi::{
    BOOLEAN, NDK_CONNECTOR, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NtStatus, Object,
    SOCKADDR,
};

use crate::{
    Args, Function, Hooks, Outcome, Phase,
    call::{Told, request, slot},
    close::close_slot,
    connect::address,
    shadow::{Shadow, find},
};

/// `NDK_FN_LISTEN`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the listener is open, the address valid for the call.
pub unsafe extern "system" fn listen<H: Hooks>(
    listener: *mut NDK_LISTENER,
    local: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_LISTENER, completion, context| {
        let (inner, function) = slot!(inner, NdkListen, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's or this layer's.
        unsafe { function(inner, local, length, completion, context) }
    };
    // SAFETY: valid for the call.
    let args = Args::Listen { address: unsafe { address(local, length) } };
    // SAFETY: the caller's promise is the same.
    unsafe { request::<H, _>(listener, Function::Listen, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_CONTROL_CONNECT_EVENTS`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the listener is open.
pub unsafe extern "system" fn control_connect_events<H: Hooks>(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: the caller's promise.
    let Ok(shadow) = (unsafe { find::<H, _>(listener, Function::ControlConnectEvents) }) else { return };
    let args = Args::ControlConnectEvents { pause: pause != 0 };
    let mut told = Told::new(shadow, Function::ControlConnectEvents, args);
    let _ = told.tell(Phase::Call, Outcome::None);
    let (inner, function) = slot!(shadow.inner::<NDK_LISTENER>(), NdkControlConnectEvents);
    // SAFETY: the provider's object is open.
    unsafe { function(inner, pause) };
    told.end(Outcome::None);
}

/// Nobody waits for the close of a connector that the consumer never got.
const unsafe extern "system" fn nobody_waits(_context: *mut c_void) {}

/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// `context` is the shadow that was given to the creation of a listener, which is not closed yet; `connector` is the consumer's.
pub unsafe extern "system" fn connection_came<H: Hooks>(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the provider calls back before the close has completed: the consumer's reference is still there.
    let listener = unsafe { &*context.cast_const().cast::<Shadow<H>>() };
    // SAFETY: as above. The callback may close the listener.
    let listener = unsafe { listener.hold() };
    let Some(event) = listener.event() else { return };
    let args = Args::Event { context: event.context.addr(), reason: 0 };
    let mut told = Told::new(&listener, Function::ConnectEvent, args);
    let shadow = match Shadow::try_new_for(&listener, NDK_CONNECTOR::OBJECT_TYPE, told.event()) {
        Ok(shadow) => shadow,
        Err(status) => {
            // There is no way to fail a connect event: the connection is refused, by closing what nobody knows yet.
            told.tell(Phase::Callback, Outcome::Status(status));
            // SAFETY: the connector is open, and belongs to who got the event.
            if let Some(close) = unsafe { close_slot(connector.cast()) } {
                // SAFETY: open, closed once, and not used after this.
                let _ = unsafe { close(connector.cast(), Some(nobody_waits), ptr::null_mut()) };
            }
            told.tell(Phase::CallbackReturn, Outcome::Status(status));
            return;
        }
    };
    // SAFETY: the provider has made the connector, and the shadow was not handed out.
    unsafe { shadow.adopt(connector.cast()) };
    let kept = shadow.clone();
    told = told.created(Some(kept.object_ref()));
    told.tell(Phase::Callback, Outcome::Status(NtStatus::SUCCESS));
    // SAFETY: the creation of a listener has noted a function of this type.
    let callback = unsafe { core::mem::transmute::<*const (), NDK_FN_CONNECT_EVENT_CALLBACK>(event.function) };
    let public = Shadow::into_public(shadow);
    // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
    unsafe { callback(event.context, public.cast()) };
    told.tell(Phase::CallbackReturn, Outcome::Status(NtStatus::SUCCESS));
}
