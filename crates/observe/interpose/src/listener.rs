//! Functions of a listener (`NDKPI 5.9`).

use core::{ffi::c_void, ptr};

use ndkpi::{
    BOOLEAN, NDK_CONNECTOR, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NtStatus, Object,
    SOCKADDR,
};

use crate::{
    Args, Function, Hooks, Outcome, Phase,
    call::{EventReport, request, slot},
    close::close_slot,
    connect::address,
    later::{Later, Work},
    shadow::{Shadow, ShadowRef, find},
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
    // SAFETY: `listener` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(listener, Function::Listen, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_CONTROL_CONNECT_EVENTS`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the listener is open.
pub unsafe extern "system" fn control_connect_events<H: Hooks>(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: `listener` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(listener, Function::ControlConnectEvents) }) else { return };
    let args = Args::ControlConnectEvents { pause: pause != 0 };
    let mut report = EventReport::new(shadow, Function::ControlConnectEvents, args);
    let _ = report.tell(Phase::Call, Outcome::None);
    let (inner, function) = slot!(shadow.inner::<NDK_LISTENER>(), NdkControlConnectEvents);
    // SAFETY: the provider's object is open.
    unsafe { function(inner, pause) };
    report.end(Outcome::None);
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
    let listener = unsafe { (*context.cast_const().cast::<Shadow<H>>()).hold() };
    let Some(event) = listener.event() else { return };
    if listener.gate.is_closed() {
        // The provider hears of the close later than the consumer has asked for it (`NDKPI 7.8`).
        // SAFETY: the connector is open, and belongs to who got the event.
        unsafe { refuse(connector) };
        return;
    }
    let args = Args::Event { context: event.context.addr(), reason: 0 };
    let mut report = EventReport::new(&listener, Function::ConnectEvent, args);
    let shadow = match Shadow::try_new_for(&listener, NDK_CONNECTOR::OBJECT_TYPE, report.event()) {
        Ok(shadow) => shadow,
        Err(status) => {
            // There is no way to fail a connect event.
            report.tell(Phase::Callback, Outcome::Status(status));
            // SAFETY: the connector has just come, and nobody else has it.
            unsafe { refuse(connector) };
            report.tell(Phase::CallbackReturn, Outcome::Status(status));
            return;
        }
    };
    // SAFETY: the provider has made the connector, and the shadow was not handed out.
    unsafe { shadow.adopt(connector.cast()) };
    let call = report.number();
    if H::INTERFERES {
        let delay = listener.root.hooks.delay(Function::ConnectEvent, listener.object_ref());
        let work = Work::Connection { listener: listener.clone(), connector: shadow.clone(), call };
        if delay != 0 && Later::put(shadow.later.as_ref(), delay, work).is_ok() {
            return;
        }
    }
    deliver_connection(&listener, shadow, call);
}

/// Refuses a connection, by closing the connector that nobody knows yet.
///
/// # Safety
///
/// `connector` is one of the provider, open, and not used after this.
unsafe fn refuse(connector: *mut NDK_CONNECTOR) {
    // SAFETY: the connector is open.
    if let Some(close) = unsafe { close_slot(connector.cast()) } {
        // SAFETY: open, closed once, and not used after this.
        let _ = unsafe { close(connector.cast(), Some(nobody_waits), ptr::null_mut()) };
    }
}

/// Gives a connector that came in to the consumer.
pub fn deliver_connection<H: Hooks>(listener: &ShadowRef<H>, shadow: ShadowRef<H>, call: u64) {
    let Some(event) = listener.event() else { return };
    if listener.gate.is_closed() {
        // SAFETY: nobody but this layer has the connector.
        unsafe { refuse(shadow.inner()) };
        return;
    }
    let args = Args::Event { context: event.context.addr(), reason: 0 };
    let kept = shadow.clone();
    let mut report =
        EventReport::new(listener, Function::ConnectEvent, args).of_call(call).created(Some(kept.object_ref()));
    report.tell(Phase::Callback, Outcome::Status(NtStatus::SUCCESS));
    // SAFETY: the creation of a listener has noted a function of this type.
    let callback = unsafe { core::mem::transmute::<*const (), NDK_FN_CONNECT_EVENT_CALLBACK>(event.function) };
    let public = Shadow::into_public(shadow);
    // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
    unsafe { callback(event.context, public.cast()) };
    report.tell(Phase::CallbackReturn, Outcome::Status(NtStatus::SUCCESS));
}
