//! A small miniport driver that does everything right, unless a test replaces a handler.
//!
//! It has one adapter at a time and allocates nothing on its heap: what it keeps is in [`World`].

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, PoisonError},
};

use ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_CONFIGURATION_OBJECT, NDIS_HALT_ACTION, NDIS_INTERFACE_TYPE,
    NDIS_MEDIA_CONNECT_STATE, NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM,
    NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_INIT_PARAMETERS,
    NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_OID_REQUEST, NDIS_PHYSICAL_MEDIUM,
    NDIS_REQUEST_TYPE, NDIS_SHUTDOWN_ACTION, NDIS_STATUS, NDIS_STATUS_INDICATION, NDIS_STATUS_LINK_STATE,
    NDIS_STATUS_PAUSED, NDIS_STRING, NDIS_SUPPORTED_PAUSE_FUNCTIONS, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
    NET_DEVICE_PNP_EVENT, NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NdisAllocateMdl,
    NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool, NdisCloseConfiguration, NdisFreeMdl,
    NdisFreeNetBufferList, NdisFreeNetBufferListPool, NdisMDeregisterMiniportDriver,
    NdisMIndicateReceiveNetBufferLists, NdisMIndicateStatusEx, NdisMNetPnPEvent, NdisMPauseComplete,
    NdisMRegisterMiniportDriver, NdisMSendNetBufferListsComplete, NdisMSetMiniportAttributes, NdisOpenConfigurationEx,
    NdisReadConfiguration, NdisSetOptionalHandlers, OID_GEN_STATISTICS, OID_GEN_VENDOR_ID, OID_PNP_SET_POWER,
};
use ndkpi::{
    GUID, MDL, NDIS_HANDLE, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_NDK_CAPABILITIES,
    NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_ADAPTER_INFO,
    NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NET_PNP_EVENT, NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION, NtStatus,
    OID_NDK_SET_STATE, OID_NDK_STATISTICS,
    status::{
        NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING,
        NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
    },
};
use wdk_sys::{
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, POOL_FLAG_NON_PAGED,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

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

static WORLD: Mutex<Option<World>> = Mutex::new(None);

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

/// The keyword `Test`; 0 if it is not there.
pub fn read_keyword(handle: NDIS_HANDLE) -> u32 {
    let Some(configuration) = open_configuration(handle) else { return 0 };
    let number = read_number(configuration);
    // SAFETY: the configuration is open.
    unsafe { NdisCloseConfiguration(configuration) };
    number
}

pub fn open_configuration(handle: NDIS_HANDLE) -> Option<NDIS_HANDLE> {
    let object = NDIS_CONFIGURATION_OBJECT { Header: NDIS_CONFIGURATION_OBJECT::HEADER, NdisHandle: handle, Flags: 0 };
    let mut configuration = ptr::null_mut();
    // SAFETY: the adapter is live, and the places live until the call returns.
    let status = unsafe { NdisOpenConfigurationEx(&raw const object, &raw mut configuration) };
    (status == NDIS_STATUS_SUCCESS).then_some(configuration)
}

pub fn read_number(configuration: NDIS_HANDLE) -> u32 {
    let units = [u16::from(b'T'), u16::from(b'e'), u16::from(b's'), u16::from(b't')];
    let keyword = NDIS_STRING { Length: 8, MaximumLength: 8, Buffer: units.as_ptr().cast_mut() };
    let (mut status, mut value) = (NDIS_STATUS_SUCCESS, ptr::null_mut());
    let kind = ndis::NDIS_PARAMETER_TYPE::INTEGER;
    // SAFETY: the configuration is open, and the places live until the call returns.
    unsafe {
        NdisReadConfiguration(&raw mut status, &raw mut value, configuration, &raw const keyword, kind);
    }
    if status != NDIS_STATUS_SUCCESS {
        return 0;
    }
    // SAFETY: NDIS's own value, which lives until the configuration is closed.
    let data = unsafe { (*value).ParameterData };
    // SAFETY: an integer was asked for.
    unsafe { data.IntegerData }
}

pub fn set_attributes(handle: NDIS_HANDLE) -> NDIS_STATUS {
    for set in [set_registration, set_general, set_ndk] {
        let status = set(handle);
        if status != NDIS_STATUS_SUCCESS {
            return status;
        }
    }
    NDIS_STATUS_SUCCESS
}

pub fn set_registration(handle: NDIS_HANDLE) -> NDIS_STATUS {
    let attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::HEADER,
        MiniportAdapterContext: ptr::null_mut(),
        AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK | NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM,
        CheckForHangTimeInSeconds: 0,
        InterfaceType: NDIS_INTERFACE_TYPE::INTERNAL,
    };
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisMSetMiniportAttributes(handle, (&raw const attributes).cast()) }
}

/// The general attributes, as they are right.
pub fn general() -> NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    static OIDS: [u32; 4] = [OID_GEN_STATISTICS, OID_GEN_VENDOR_ID, OID_NDK_SET_STATE, OID_NDK_STATISTICS];
    let mut mac = [0; 32];
    mac[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    let speed = 100_000_000_000;
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::HEADER,
        Flags: 0,
        MediaType: NDIS_MEDIUM::ETHERNET,
        PhysicalMediumType: NDIS_PHYSICAL_MEDIUM::ETHERNET,
        MtuSize: 1500,
        MaxXmitLinkSpeed: speed,
        XmitLinkSpeed: speed,
        MaxRcvLinkSpeed: speed,
        RcvLinkSpeed: speed,
        MediaConnectState: NDIS_MEDIA_CONNECT_STATE::CONNECTED,
        MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE::FULL,
        LookaheadSize: 1500,
        PowerManagementCapabilities: ptr::null_mut(),
        MacOptions: 0,
        SupportedPacketFilters: 0,
        MaxMulticastListSize: 32,
        MacAddressLength: 6,
        PermanentMacAddress: mac,
        CurrentMacAddress: mac,
        RecvScaleCapabilities: ptr::null_mut(),
        AccessType: NET_IF_ACCESS_TYPE::BROADCAST,
        DirectionType: NET_IF_DIRECTION_TYPE::SEND_RECEIVE,
        ConnectionType: NET_IF_CONNECTION_TYPE::DEDICATED,
        IfType: IF_TYPE_ETHERNET_CSMACD,
        IfConnectorPresent: 0,
        SupportedStatistics: 0,
        SupportedPauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS::UNSUPPORTED.0.cast_unsigned(),
        DataBackFillSize: 0,
        ContextBackFillSize: 0,
        SupportedOidList: OIDS.as_ptr(),
        SupportedOidListLength: 16,
        AutoNegotiationFlags: 0,
        PowerManagementCapabilitiesEx: ptr::null(),
    }
}

pub fn set_general(handle: NDIS_HANDLE) -> NDIS_STATUS {
    report(handle, &general())
}

/// Reports general attributes.
pub fn report(handle: NDIS_HANDLE, attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> NDIS_STATUS {
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisMSetMiniportAttributes(handle, ptr::from_ref(attributes).cast()) }
}

pub fn set_ndk(handle: NDIS_HANDLE) -> NDIS_STATUS {
    let mut capabilities = with(|world| world.capabilities);
    let attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::HEADER,
        Enabled: 1,
        NdkCapabilities: &raw mut capabilities,
    };
    // SAFETY: the adapter is live, and the structures live until the call returns.
    unsafe { NdisMSetMiniportAttributes(handle, (&raw const attributes).cast()) }
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

/// Completes a chain of lists.
pub fn complete(first: *mut NET_BUFFER_LIST) {
    let paused = with(|world| world.paused);
    complete_with(first, if paused { NDIS_STATUS_PAUSED } else { NDIS_STATUS_SUCCESS });
}

pub fn complete_with(first: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    let adapter = with(|world| world.adapter);
    let mut list = first;
    while !list.is_null() {
        // SAFETY: the miniport has the list.
        unsafe { (*list).Status = status };
        // SAFETY: as above.
        list = unsafe { (*list).Next };
    }
    // SAFETY: the adapter is live, and the lists are the miniport's.
    unsafe { NdisMSendNetBufferListsComplete(adapter, first, 0) };
}

unsafe extern "system" fn cancel_send(_: NDIS_HANDLE, _: *mut c_void) {
    let cancel = with(|world| world.handlers.cancel_send);
    cancel();
}

/// Makes a list with these bytes. Null if there is no memory.
pub fn make_list(bytes: &[u8]) -> *mut NET_BUFFER_LIST {
    let (adapter, pool) = with(|world| (world.adapter, world.pool));
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, bytes.len() as u64, TAG) };
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: a new block of as many bytes.
    unsafe { block.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let length = u32::try_from(bytes.len()).expect("a short frame");
    // SAFETY: the adapter and the block are live.
    let mdl = unsafe { NdisAllocateMdl(adapter, block, length) };
    if mdl.is_null() {
        // SAFETY: nobody else has the block.
        unsafe { ExFreePoolWithTag(block, TAG) };
        return ptr::null_mut();
    }
    // SAFETY: the pool is live, and the MDL describes the block.
    let list = unsafe { NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, mdl, 0, bytes.len()) };
    if list.is_null() {
        // SAFETY: nobody else has the MDL.
        unsafe { NdisFreeMdl(mdl) };
        // SAFETY: nor the block.
        unsafe { ExFreePoolWithTag(block, TAG) };
        return list;
    }
    // SAFETY: the list was just made.
    unsafe { (*list).SourceHandle = adapter };
    // SAFETY: as above; what the miniport needs to free the bytes is the miniport's to keep there.
    unsafe { (*list).MiniportReserved = [block, mdl.cast()] };
    list
}

/// Indicates a frame. Whether there was memory for it.
pub fn receive(bytes: &[u8]) -> bool {
    let list = make_list(bytes);
    if list.is_null() {
        return false;
    }
    with(|world| world.indicated += 1);
    indicate(list, 0);
    true
}

/// Indicates a list.
pub fn indicate(list: *mut NET_BUFFER_LIST, flags: u32) {
    let adapter = with(|world| world.adapter);
    // SAFETY: the adapter is live, and the list is the miniport's.
    unsafe { NdisMIndicateReceiveNetBufferLists(adapter, list, 0, 1, flags) };
}

unsafe extern "system" fn returned(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32) {
    let returned = with(|world| world.handlers.returned);
    returned(list);
}

/// Frees lists that have come back, and completes a pause that has waited for them.
pub fn free_returned(first: *mut NET_BUFFER_LIST) {
    let mut list = first;
    while !list.is_null() {
        // SAFETY: the miniport has the list.
        let next = unsafe { (*list).Next };
        free_list(list);
        with(|world| world.indicated -= 1);
        list = next;
    }
    let (adapter, over) = with(|world| {
        let over = world.pausing && world.indicated == 0;
        world.pausing &= !over;
        (world.adapter, over)
    });
    if over {
        // SAFETY: the adapter is live, and its pause pends.
        unsafe { NdisMPauseComplete(adapter) };
    }
}

/// Frees a list and its bytes.
pub fn free_list(list: *mut NET_BUFFER_LIST) {
    // SAFETY: the miniport has the list.
    let [block, mdl] = unsafe { (*list).MiniportReserved };
    // SAFETY: as above.
    unsafe { NdisFreeNetBufferList(list) };
    // SAFETY: the list that the MDL was for is gone.
    unsafe { NdisFreeMdl(mdl.cast::<MDL>()) };
    // SAFETY: so is the MDL.
    unsafe { ExFreePoolWithTag(block, TAG) };
}

unsafe extern "system" fn oid(_: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let answer = with(|world| world.handlers.oid);
    answer(request)
}

unsafe extern "system" fn cancel_oid(_: NDIS_HANDLE, _: *mut c_void) {
    let cancel = with(|world| world.handlers.cancel_oid);
    cancel();
}

/// The OID and type of a request.
pub fn asked(request: *mut NDIS_OID_REQUEST) -> (u32, NDIS_REQUEST_TYPE) {
    // SAFETY: NDIS's own request.
    let request = unsafe { request.read() };
    // SAFETY: every arm begins with the OID.
    (unsafe { request.DATA.QUERY_INFORMATION }.Oid, request.RequestType)
}

/// Answers a query with a number.
pub fn answer_number(request: *mut NDIS_OID_REQUEST, number: u32) -> NDIS_STATUS {
    // SAFETY: NDIS's own request, which is the miniport's now.
    let data = unsafe { &mut (*request).DATA };
    // SAFETY: the request is a query.
    let query = unsafe { &mut data.QUERY_INFORMATION };
    if query.InformationBufferLength < 4 {
        query.BytesNeeded = 4;
        return NDIS_STATUS_BUFFER_TOO_SHORT;
    }
    // SAFETY: the buffer has at least as many bytes.
    unsafe { query.InformationBuffer.cast::<u32>().write_unaligned(number) };
    query.BytesWritten = 4;
    NDIS_STATUS_SUCCESS
}

pub fn answer(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    match asked(request) {
        (OID_GEN_VENDOR_ID | OID_NDK_STATISTICS, NDIS_REQUEST_TYPE::QUERY_INFORMATION) => answer_number(request, 7),
        (OID_PNP_SET_POWER | OID_NDK_SET_STATE, NDIS_REQUEST_TYPE::SET_INFORMATION) => {
            // SAFETY: NDIS's own request, which is the miniport's now.
            let data = unsafe { &mut (*request).DATA };
            // SAFETY: the request sets a value.
            let set = unsafe { &mut data.SET_INFORMATION };
            set.BytesRead = set.InformationBufferLength;
            NDIS_STATUS_SUCCESS
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// Raises an event of NDK.
pub fn raise(event: NET_PNP_EVENT_CODE) -> NDIS_STATUS {
    let adapter = with(|world| {
        world.ndk_enabled = event == NET_PNP_EVENT_CODE::NDK_ENABLE;
        world.adapter
    });
    let mut notification = NET_PNP_EVENT_NOTIFICATION {
        Header: NET_PNP_EVENT_NOTIFICATION::HEADER_2,
        PortNumber: 0,
        NetPnPEvent: NET_PNP_EVENT {
            NetEvent: event,
            Buffer: ptr::null_mut(),
            BufferLength: 0,
            NdisReserved: [0; 4],
            TransportReserved: [0; 4],
            TdiReserved: [0; 4],
            TdiClientReserved: [0; 4],
        },
        Flags: 0,
        SwitchId: 0,
        VPortId: 0,
    };
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisMNetPnPEvent(adapter, &raw mut notification) }
}

/// Indicates the state of the link.
pub fn indicate_status(adapter: NDIS_HANDLE) {
    let mut state = 5_u32;
    let indication = NDIS_STATUS_INDICATION {
        Header: NDIS_STATUS_INDICATION::HEADER,
        SourceHandle: adapter,
        PortNumber: 0,
        StatusCode: NDIS_STATUS_LINK_STATE,
        Flags: 0,
        DestinationHandle: ptr::null_mut(),
        RequestId: ptr::null_mut(),
        StatusBuffer: (&raw mut state).cast(),
        StatusBufferSize: 4,
        Guid: GUID::default(),
        NdisReserved: [ptr::null_mut(); 4],
    };
    // SAFETY: the structure lives until the call returns.
    unsafe { NdisMIndicateStatusEx(adapter, &raw const indication) };
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
