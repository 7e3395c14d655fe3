//! A small miniport driver that does everything right, unless a test replaces a handler.
//!
//! It has one adapter at a time and allocates nothing on its heap: what it keeps is in [`World`].

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, PoisonError},
};

use ndis::{
    NDIS_HALT_ACTION, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_INIT_PARAMETERS,
    NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_OID_REQUEST, NDIS_SHUTDOWN_ACTION,
    NDIS_STATUS, NDIS_STRING, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS, NET_DEVICE_PNP_EVENT,
    NdisAllocateNetBufferListPool, NdisFreeNetBufferListPool, NdisMDeregisterMiniportDriver,
    NdisMRegisterMiniportDriver, NdisSetOptionalHandlers,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_NDK_CAPABILITIES, NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NtStatus,
    status::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::DuringRun;
use wdk_sys::{
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, POOL_FLAG_NON_PAGED,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

mod attributes;
mod frames;
mod requests;

pub use self::{attributes::*, frames::*, requests::*};

pub const TAG: u32 = u32::from_ne_bytes(*b"Mini");

/// What the driver keeps.
#[derive(Clone, Copy)]
pub struct World {
    pub handlers: Handlers,
    pub driver: NDIS_HANDLE,
    pub adapter: NDIS_HANDLE,
    pub pool: NDIS_HANDLE,
    pub paused: bool,
    /// A pause waits for lists to come back.
    pub pausing: bool,
    /// Lists that the protocols have.
    pub indicated: u32,
    pub ndk_enabled: bool,
    /// The capabilities, which stay in place.
    pub capabilities: NDIS_NDK_CAPABILITIES,
    /// The value of a keyword.
    pub keyword: u32,
}

// SAFETY: handles and addresses, used by one thread at a time.
unsafe impl Send for World {}

/// What a test can replace.
#[derive(Clone, Copy)]
pub struct Handlers {
    /// Changes what is registered.
    pub characteristics: fn(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS),
    pub set_options: fn(NDIS_HANDLE) -> NDIS_STATUS,
    /// Reports the attributes.
    pub attributes: fn(NDIS_HANDLE) -> NDIS_STATUS,
    /// At the end of the initialisation.
    pub initialise: fn(NDIS_HANDLE),
    pub pause: fn() -> NDIS_STATUS,
    /// In the restart.
    pub restart: fn() -> NDIS_STATUS,
    /// At the beginning of the halt.
    pub halt: fn(),
    pub send: fn(*mut NET_BUFFER_LIST),
    pub returned: fn(*mut NET_BUFFER_LIST),
    pub oid: fn(*mut NDIS_OID_REQUEST) -> NDIS_STATUS,
    pub cancel_oid: fn(),
    pub cancel_send: fn(),
    pub shut_down: fn(),
    pub open: fn(*mut *mut NDK_ADAPTER) -> NDIS_STATUS,
    /// In the unload, before the driver deregisters.
    pub unload: fn(),
    pub deregisters: bool,
}

impl Default for Handlers {
    fn default() -> Self {
        Self {
            characteristics: |_| (),
            set_options: register_ndk,
            attributes: set_attributes,
            initialise: |_| (),
            pause,
            restart: || NDIS_STATUS_SUCCESS,
            halt: || (),
            send: complete,
            returned: free_returned,
            oid: answer,
            cancel_oid: || (),
            cancel_send: || (),
            shut_down: || (),
            open: open_adapter,
            unload: || (),
            deregisters: true,
        }
    }
}

static WORLD: DuringRun<Mutex<Option<World>>> = DuringRun::new(Mutex::new(None));

pub fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.as_mut().expect("a scenario runs"))
}

/// The driver begins anew, with these handlers.
pub fn prepare(handlers: Handlers) {
    let world = World {
        handlers,
        driver: ptr::null_mut(),
        adapter: ptr::null_mut(),
        pool: ptr::null_mut(),
        paused: true,
        pausing: false,
        indicated: 0,
        ndk_enabled: true,
        capabilities: NDIS_NDK_CAPABILITIES {
            Header: NDIS_NDK_CAPABILITIES::HEADER,
            Flags: 0,
            MaxQpCount: 1,
            MaxCqCount: 1,
            MaxMrCount: 1,
            MaxPdCount: 1,
            MaxInboundReadLimit: 0,
            MaxOutboundReadLimit: 0,
            MaxMwCount: 1,
            MaxSrqCount: 1,
            MissingCounterMask: 0,
            NdkInfo: ptr::NonNull::<NDK_ADAPTER_INFO>::dangling().as_ptr(),
        },
        keyword: 0,
    };
    *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = Some(world);
}

pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
        SetOptionsHandler: Some(set_options),
        InitializeHandlerEx: Some(initialise),
        HaltHandlerEx: Some(halt),
        UnloadHandler: Some(unload),
        PauseHandler: Some(pause_handler),
        RestartHandler: Some(restart),
        OidRequestHandler: Some(oid),
        SendNetBufferListsHandler: Some(send),
        ReturnNetBufferListsHandler: Some(returned),
        CancelSendHandler: Some(cancel_send),
        DevicePnPEventNotifyHandler: Some(device_event),
        ShutdownHandlerEx: Some(shut_down),
        CancelOidRequestHandler: Some(cancel_oid),
        DirectOidRequestHandler: Some(oid),
        CancelDirectOidRequestHandler: Some(cancel_oid),
        SynchronousOidRequestHandler: Some(oid),
        ..NDIS_MINIPORT_DRIVER_CHARACTERISTICS::for_ndis_6_80()
    };
    let change = with(|world| world.handlers.characteristics);
    change(&mut characteristics);
    let mut handle = ptr::null_mut();
    // SAFETY: the arguments of this call, and structures that live until the call returns.
    let status = unsafe {
        NdisMRegisterMiniportDriver(
            driver.cast(),
            path.cast::<NDIS_STRING>(),
            ptr::null_mut(),
            &raw const characteristics,
            &raw mut handle,
        )
    };
    with(|world| world.driver = handle);
    status.0
}

unsafe extern "system" fn unload(_: *mut ndis::DRIVER_OBJECT) {
    let (unload, handle, deregisters) = with(|world| (world.handlers.unload, world.driver, world.handlers.deregisters));
    unload();
    if deregisters {
        // SAFETY: the driver's registration.
        unsafe { NdisMDeregisterMiniportDriver(handle) };
    }
}

unsafe extern "system" fn set_options(handle: NDIS_HANDLE, _: NDIS_HANDLE) -> NDIS_STATUS {
    let set_options = with(|world| world.handlers.set_options);
    set_options(handle)
}

pub fn register_ndk(handle: NDIS_HANDLE) -> NDIS_STATUS {
    let ndk = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: NDIS_NDK_PROVIDER_CHARACTERISTICS::HEADER,
        Flags: 0,
        OpenNDKAdapterHandler: Some(open),
        CloseNDKAdapterHandler: Some(close),
    };
    // SAFETY: the driver's registration, and a structure that lives until the call returns.
    unsafe { NdisSetOptionalHandlers(handle, (&raw const ndk).cast()) }
}

unsafe extern "system" fn initialise(
    handle: NDIS_HANDLE,
    _: NDIS_HANDLE,
    _: *const NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    with(|world| (world.adapter, world.paused) = (handle, true));
    let keyword = read_keyword(handle);
    with(|world| world.keyword = keyword);
    let (attributes, more) = with(|world| (world.handlers.attributes, world.handlers.initialise));
    let status = attributes(handle);
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    let pool = create_pool(handle);
    if pool.is_null() {
        return NDIS_STATUS_RESOURCES;
    }
    with(|world| world.pool = pool);
    more(handle);
    NDIS_STATUS_SUCCESS
}

pub fn create_pool(handle: NDIS_HANDLE) -> NDIS_HANDLE {
    let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
        Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
        ProtocolId: 0,
        fAllocateNetBuffer: 1,
        ContextSize: 0,
        PoolTag: TAG,
        DataSize: 0,
    };
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisAllocateNetBufferListPool(handle, &raw const parameters) }
}

unsafe extern "system" fn halt(_: NDIS_HANDLE, _: NDIS_HALT_ACTION) {
    let halt = with(|world| world.handlers.halt);
    halt();
    let pool = with(|world| std::mem::replace(&mut world.pool, ptr::null_mut()));
    if !pool.is_null() {
        // SAFETY: every list has come back.
        unsafe { NdisFreeNetBufferListPool(pool) };
    }
}

unsafe extern "system" fn pause_handler(_: NDIS_HANDLE, _: *const NDIS_MINIPORT_PAUSE_PARAMETERS) -> NDIS_STATUS {
    let pause = with(|world| world.handlers.pause);
    pause()
}

pub fn pause() -> NDIS_STATUS {
    with(|world| {
        world.paused = true;
        world.pausing = world.indicated > 0;
        if world.pausing { NDIS_STATUS_PENDING } else { NDIS_STATUS_SUCCESS }
    })
}

unsafe extern "system" fn restart(_: NDIS_HANDLE, _: *const NDIS_MINIPORT_RESTART_PARAMETERS) -> NDIS_STATUS {
    let restart = with(|world| world.handlers.restart);
    let status = restart();
    if status == NDIS_STATUS_SUCCESS {
        with(|world| world.paused = false);
    }
    status
}

unsafe extern "system" fn device_event(_: NDIS_HANDLE, _: *mut NET_DEVICE_PNP_EVENT) {}

unsafe extern "system" fn shut_down(_: NDIS_HANDLE, _: NDIS_SHUTDOWN_ACTION) {
    let shut_down = with(|world| world.handlers.shut_down);
    shut_down();
}

unsafe extern "system" fn send(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32, _: u32) {
    let send = with(|world| world.handlers.send);
    send(list);
}

unsafe extern "system" fn cancel_send(_: NDIS_HANDLE, _: *mut c_void) {
    let cancel = with(|world| world.handlers.cancel_send);
    cancel();
}

unsafe extern "system" fn returned(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32) {
    let returned = with(|world| world.handlers.returned);
    returned(list);
}

unsafe extern "system" fn oid(_: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let answer = with(|world| world.handlers.oid);
    answer(request)
}

unsafe extern "system" fn cancel_oid(_: NDIS_HANDLE, _: *mut c_void) {
    let cancel = with(|world| world.handlers.cancel_oid);
    cancel();
}

unsafe extern "system" fn open(
    _: NDIS_HANDLE,
    _: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    place: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    let open = with(|world| world.handlers.open);
    open(place)
}

pub fn open_adapter(place: *mut *mut NDK_ADAPTER) -> NDIS_STATUS {
    if !with(|world| world.ndk_enabled) {
        return NDIS_STATUS_ADAPTER_NOT_READY;
    }
    let opened = make_adapter(NDK_OBJECT_TYPE::ADAPTER);
    if opened.is_null() {
        return NDIS_STATUS_RESOURCES;
    }
    // SAFETY: NDIS's place, which lives until the call returns.
    unsafe { place.write(opened) };
    NDIS_STATUS_SUCCESS
}

/// An object of NDK. Null if there is no memory.
pub fn make_adapter(kind: NDK_OBJECT_TYPE) -> *mut NDK_ADAPTER {
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size_of::<NDK_ADAPTER>() as u64, TAG) };
    let opened = block.cast::<NDK_ADAPTER>();
    if !opened.is_null() {
        let header = NDK_OBJECT_HEADER::new(ndkpi::NDK_VERSION { Major: 2, Minor: 0 }, kind);
        let adapter = NDK_ADAPTER { Header: header, Dispatch: ptr::NonNull::dangling().as_ptr() };
        // SAFETY: a new block of that size.
        unsafe { opened.write(adapter) };
    }
    opened
}

unsafe extern "system" fn close(_: NDIS_HANDLE, opened: *mut NDK_ADAPTER) {
    // SAFETY: what `open` has made.
    unsafe { ExFreePoolWithTag(opened.cast(), TAG) };
}
