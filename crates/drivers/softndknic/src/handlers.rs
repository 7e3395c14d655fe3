//! What NDIS calls. Each handler finds its adapter and passes the call on.

use core::{
    ffi::c_void,
    mem::ManuallyDrop,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use fallible::Arc;
use ndis::{
    NDIS_DEVICE_PNP_EVENT, NDIS_HALT_ACTION, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_INIT_PARAMETERS,
    NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_OID_REQUEST, NDIS_SHUTDOWN_ACTION,
    NDIS_STATUS, NDIS_STATUS_FAILURE, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT, NdisSetOptionalHandlers,
};
use ndkpi::{NDIS_HANDLE, NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NtStatus};

use crate::{
    adapter::Adapter,
    driver::{self, Driver},
    oid::{self, Path},
};

/// The handlers of the driver.
pub const CHARACTERISTICS: NDIS_MINIPORT_DRIVER_CHARACTERISTICS = NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    SetOptionsHandler: Some(set_options),
    InitializeHandlerEx: Some(initialize),
    HaltHandlerEx: Some(halt),
    UnloadHandler: Some(driver::unload),
    PauseHandler: Some(pause),
    RestartHandler: Some(restart),
    OidRequestHandler: Some(oid_request),
    SendNetBufferListsHandler: Some(send),
    ReturnNetBufferListsHandler: Some(give_back),
    CancelSendHandler: Some(cancel_send),
    DevicePnPEventNotifyHandler: Some(pnp_event),
    ShutdownHandlerEx: Some(shut_down),
    CancelOidRequestHandler: Some(cancel_oid),
    DirectOidRequestHandler: Some(direct_oid_request),
    CancelDirectOidRequestHandler: Some(cancel_oid),
    ..NDIS_MINIPORT_DRIVER_CHARACTERISTICS::for_ndis_6_80()
};

/// What NDIS passes as the context of an adapter: attributes are reported with it before the adapter is complete.
pub struct Context(AtomicPtr<Adapter>);

impl Context {
    /// Of no adapter.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Takes a reference to the adapter, which the handlers find from now on.
    pub fn put(&self, adapter: Arc<Adapter>) {
        self.0.store(Arc::into_raw(adapter).cast_mut(), Release);
    }

    /// The adapter, as long as the reference is there.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Adapter>> {
        let raw = self.0.load(Acquire);
        // SAFETY: not null, so it came from `into_raw` in `put`, and is counted until `take`, which only the halt calls, after this.
        (!raw.is_null()).then(|| (*ManuallyDrop::new(unsafe { Arc::from_raw(raw.cast_const()) })).clone())
    }

    /// Gives the reference back.
    #[must_use]
    pub fn take(&self) -> Option<Arc<Adapter>> {
        let raw = self.0.swap(ptr::null_mut(), AcqRel);
        // SAFETY: not null, so it came from `into_raw` in `put`, and it is taken once.
        (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw.cast_const()) })
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

/// The adapter of a context, for as long as a handler runs: not counted once more.
///
/// # Safety
///
/// NDIS has passed the context, to a handler that it does not call after `MiniportHaltEx`.
unsafe fn adapter(context: NDIS_HANDLE) -> Option<ManuallyDrop<Arc<Adapter>>> {
    // SAFETY: the context of an adapter that is not halted (`# Safety`).
    let context = unsafe { &*context.cast_const().cast::<Context>() };
    let raw = context.0.load(Acquire);
    // SAFETY: not null, so it came from `into_raw` and is counted until the adapter is halted; this reference is not dropped.
    (!raw.is_null()).then(|| ManuallyDrop::new(unsafe { Arc::from_raw(raw.cast_const()) }))
}

unsafe extern "system" fn set_options(handle: NDIS_HANDLE, _context: NDIS_HANDLE) -> NDIS_STATUS {
    let handlers = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: NDIS_NDK_PROVIDER_CHARACTERISTICS::HEADER,
        Flags: 0,
        OpenNDKAdapterHandler: Some(open_ndk),
        CloseNDKAdapterHandler: Some(close_ndk),
    };
    // SAFETY: NDIS's own handle, and a structure that lives until the call returns.
    unsafe { NdisSetOptionalHandlers(handle, &raw const handlers.Header) }
}

unsafe extern "system" fn initialize(
    handle: NDIS_HANDLE,
    context: NDIS_HANDLE,
    parameters: *const NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: the context of the driver's registration.
    let driver = unsafe { Driver::of(context) };
    // SAFETY: NDIS's own structure, which lives until the handler returns.
    let luid = unsafe { (*parameters).NetLuid };
    // SAFETY: NDIS's own handle, in the handler for it.
    match unsafe { Adapter::initialize(driver, handle, luid) } {
        Ok(()) => NDIS_STATUS::SUCCESS,
        Err(status) => status,
    }
}

unsafe extern "system" fn halt(context: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    // SAFETY: NDIS's own context, which it passes no more.
    unsafe { Adapter::halt(context) };
}

unsafe extern "system" fn pause(
    context: NDIS_HANDLE,
    _parameters: *const NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS's own context.
    unsafe { adapter(context) }.map_or(NDIS_STATUS::SUCCESS, |adapter| adapter.pause())
}

unsafe extern "system" fn restart(
    context: NDIS_HANDLE,
    _parameters: *const NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS's own context.
    let Some(adapter) = (unsafe { adapter(context) }) else { return NDIS_STATUS_FAILURE };
    adapter.restart();
    NDIS_STATUS::SUCCESS
}

unsafe extern "system" fn oid_request(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: NDIS's own context.
    let Some(adapter) = (unsafe { adapter(context) }) else { return NDIS_STATUS_FAILURE };
    // SAFETY: NDIS's own request, which is the miniport's until the handler returns.
    unsafe { oid::serve(&adapter, &mut *request, Path::Regular) }
}

unsafe extern "system" fn direct_oid_request(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: NDIS's own context.
    let Some(adapter) = (unsafe { adapter(context) }) else { return NDIS_STATUS_FAILURE };
    // SAFETY: NDIS's own request, which is the miniport's until the handler returns.
    unsafe { oid::serve(&adapter, &mut *request, Path::Direct) }
}

/// No request pends: there is nothing to cancel.
const unsafe extern "system" fn cancel_oid(_context: NDIS_HANDLE, _request: *mut c_void) {}

unsafe extern "system" fn send(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _port: u32, flags: u32) {
    // SAFETY: NDIS's own context.
    if let Some(adapter) = unsafe { adapter(context) } {
        // SAFETY: NDIS's own lists, which are the miniport's from now on.
        unsafe { Adapter::send(&adapter, lists, flags) };
    }
}

unsafe extern "system" fn give_back(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _flags: u32) {
    // SAFETY: NDIS's own context.
    if let Some(adapter) = unsafe { adapter(context) } {
        // SAFETY: lists that the miniport has indicated, which are its own again.
        unsafe { adapter.take_back(lists) };
    }
}

unsafe extern "system" fn cancel_send(context: NDIS_HANDLE, id: *mut c_void) {
    // SAFETY: NDIS's own context.
    if let Some(adapter) = unsafe { adapter(context) } {
        adapter.cancel_send(id);
    }
}

unsafe extern "system" fn pnp_event(context: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    // SAFETY: NDIS's own structure, which lives until the handler returns.
    let event = unsafe { (*event).DevicePnPEvent };
    // SAFETY: NDIS's own context.
    if let Some(adapter) = unsafe { adapter(context) }
        && event == NDIS_DEVICE_PNP_EVENT::SURPRISE_REMOVED
    {
        adapter.gone();
    }
}

/// There is no hardware that would have to be quiet, and at a bug check nothing may be touched.
const unsafe extern "system" fn shut_down(_context: NDIS_HANDLE, _action: NDIS_SHUTDOWN_ACTION) {}

unsafe extern "system" fn open_ndk(
    context: NDIS_HANDLE,
    parameters: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    opened: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    // SAFETY: NDIS's own context.
    let Some(adapter) = (unsafe { adapter(context) }) else { return NtStatus::NDIS_ADAPTER_NOT_READY };
    // SAFETY: NDIS's own arguments.
    unsafe { adapter.consumers().serve_open(parameters, opened) }
}

unsafe extern "system" fn close_ndk(context: NDIS_HANDLE, opened: *mut NDK_ADAPTER) {
    // SAFETY: NDIS's own context.
    if let Some(adapter) = unsafe { adapter(context) } {
        // SAFETY: NDIS got it from `open_ndk` with this context and does not use it any more.
        unsafe { adapter.consumers().close(opened) };
    }
}
