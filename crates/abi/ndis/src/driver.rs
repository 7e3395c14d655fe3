//! Registration of a miniport driver with NDIS, and the types of its handlers.

use core::ffi::c_void;

use ndkpi::{BOOLEAN, NDIS_HANDLE, NDIS_OBJECT_HEADER};

use crate::{
    DRIVER_OBJECT, NDIS_MINIPORT_INIT_PARAMETERS, NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS,
    NDIS_OID_REQUEST, NDIS_PORT_NUMBER, NDIS_STATUS, NDIS_STRING, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT, layout,
    open_enum,
};

/// The type of [`NDIS_MINIPORT_DRIVER_CHARACTERISTICS`].
pub const NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS: u8 = 0x8A;
/// The revision of [`NDIS_MINIPORT_DRIVER_CHARACTERISTICS`] in NDIS 6.80.
pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3: u8 = 3;
/// The bytes of that revision.
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3: u16 = 0xA0;
/// The driver is also a WDM driver: it may create devices of its own.
pub const NDIS_WDM_DRIVER: u32 = 2;

open_enum! {
    /// Why an adapter is halted.
    NDIS_HALT_ACTION {
        /// The device is disabled or removed.
        DEVICE_DISABLED = 0, "NdisHaltDeviceDisabled";
        /// The instance of an intermediate driver is deinitialised.
        INSTANCE_DEINITIALIZED = 1, "NdisHaltDeviceInstanceDeInitialized";
        /// The system suspends.
        POWERED_DOWN = 2, "NdisHaltDevicePoweredDown";
        /// The device is gone: nothing may touch its hardware any more.
        SURPRISE_REMOVED = 3, "NdisHaltDeviceSurpriseRemoved";
        /// The device failed.
        FAILED = 4, "NdisHaltDeviceFailed";
        /// NDIS could not finish the initialisation after `MiniportInitializeEx` had succeeded.
        INITIALIZATION_FAILED = 5, "NdisHaltDeviceInitializationFailed";
        /// The device is stopped, to rebalance resources.
        STOPPED = 6, "NdisHaltDeviceStopped";
    }
}

open_enum! {
    /// Why an adapter is shut down.
    NDIS_SHUTDOWN_ACTION {
        /// The system powers off. IRQL: `PASSIVE_LEVEL`.
        POWER_OFF = 0, "NdisShutdownPowerOff";
        /// A bug check. Any IRQL.
        BUG_CHECK = 1, "NdisShutdownBugCheck";
    }
}

/// Registers what is optional of the driver, such as NDK (NDIS-NDK 1). IRQL: `PASSIVE_LEVEL`.
pub type SET_OPTIONS =
    unsafe extern "system" fn(NdisDriverHandle: NDIS_HANDLE, DriverContext: NDIS_HANDLE) -> NDIS_STATUS;

/// Makes an adapter ready for use, paused. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_INITIALIZE = unsafe extern "system" fn(
    NdisMiniportHandle: NDIS_HANDLE,
    MiniportDriverContext: NDIS_HANDLE,
    MiniportInitParameters: *const NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS;

/// Ends the use of a paused adapter and frees what its initialisation made. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_HALT = unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, HaltAction: NDIS_HALT_ACTION);

/// Unloads the driver: deregisters it. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_UNLOAD = unsafe extern "system" fn(DriverObject: *mut DRIVER_OBJECT);

/// Stops sends and receives. Completes, at once or by [`NdisMPauseComplete`], when every receive indication has come back and every
/// send is complete. It must not fail. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_PAUSE = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    PauseParameters: *const NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS;

/// Starts sends and receives again. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_RESTART = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    RestartParameters: *const NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS;

/// Answers an OID request. NDIS sends one at a time to an adapter. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_OID_REQUEST =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, OidRequest: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;

/// Answers an OID request that may come beside others. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_DIRECT_OID_REQUEST =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, OidRequest: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;

/// Answers an OID request that must not pend. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_SYNCHRONOUS_OID_REQUEST =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, OidRequest: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;

/// Cancels a pending OID request. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_OID_REQUEST =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: *mut c_void);

/// Cancels a pending direct OID request. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_DIRECT_OID_REQUEST =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: *mut c_void);

/// Sends frames. The lists belong to the miniport until [`NdisMSendNetBufferListsComplete`](crate::NdisMSendNetBufferListsComplete).
/// IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_SEND_NET_BUFFER_LISTS = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    NetBufferList: *mut NET_BUFFER_LIST,
    PortNumber: NDIS_PORT_NUMBER,
    SendFlags: u32,
);

/// Gives received frames back. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_RETURN_NET_BUFFER_LISTS = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    NetBufferLists: *mut NET_BUFFER_LIST,
    ReturnFlags: u32,
);

/// Cancels sends that carry this identifier. IRQL <= `DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_SEND = unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, CancelId: *mut c_void);

/// Tells whether the adapter hangs. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_CHECK_FOR_HANG = unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE) -> BOOLEAN;

/// Resets the adapter. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_RESET =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, AddressingReset: *mut BOOLEAN) -> NDIS_STATUS;

/// Hears of plug and play events. IRQL: `PASSIVE_LEVEL`.
pub type MINIPORT_DEVICE_PNP_EVENT_NOTIFY =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, NetDevicePnPEvent: *mut NET_DEVICE_PNP_EVENT);

/// Leaves the hardware in a quiet state. It cannot wait for anything, nor free memory.
pub type MINIPORT_SHUTDOWN =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, ShutdownAction: NDIS_SHUTDOWN_ACTION);

/// How a driver registers as a miniport driver, with [`NdisMRegisterMiniportDriver`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    /// See [`Self::for_ndis_6_80`].
    pub Header: NDIS_OBJECT_HEADER,
    /// The version of NDIS that the driver asks for.
    pub MajorNdisVersion: u8,
    /// Its minor part.
    pub MinorNdisVersion: u8,
    /// The version of the driver.
    pub MajorDriverVersion: u8,
    /// Its minor part.
    pub MinorDriverVersion: u8,
    /// Zero or [`NDIS_WDM_DRIVER`].
    pub Flags: u32,
    /// Called while the driver registers.
    pub SetOptionsHandler: Option<SET_OPTIONS>,
    /// Required.
    pub InitializeHandlerEx: Option<MINIPORT_INITIALIZE>,
    /// Required.
    pub HaltHandlerEx: Option<MINIPORT_HALT>,
    /// Required; called in place of `DriverUnload`.
    pub UnloadHandler: Option<MINIPORT_UNLOAD>,
    /// Required.
    pub PauseHandler: Option<MINIPORT_PAUSE>,
    /// Required.
    pub RestartHandler: Option<MINIPORT_RESTART>,
    /// Required.
    pub OidRequestHandler: Option<MINIPORT_OID_REQUEST>,
    /// Required.
    pub SendNetBufferListsHandler: Option<MINIPORT_SEND_NET_BUFFER_LISTS>,
    /// Required of a driver that indicates receives.
    pub ReturnNetBufferListsHandler: Option<MINIPORT_RETURN_NET_BUFFER_LISTS>,
    /// Required.
    pub CancelSendHandler: Option<MINIPORT_CANCEL_SEND>,
    /// Optional.
    pub CheckForHangHandlerEx: Option<MINIPORT_CHECK_FOR_HANG>,
    /// Optional.
    pub ResetHandlerEx: Option<MINIPORT_RESET>,
    /// Required.
    pub DevicePnPEventNotifyHandler: Option<MINIPORT_DEVICE_PNP_EVENT_NOTIFY>,
    /// Required.
    pub ShutdownHandlerEx: Option<MINIPORT_SHUTDOWN>,
    /// Required.
    pub CancelOidRequestHandler: Option<MINIPORT_CANCEL_OID_REQUEST>,
    /// Optional; from NDIS 6.1.
    pub DirectOidRequestHandler: Option<MINIPORT_DIRECT_OID_REQUEST>,
    /// Optional; from NDIS 6.1.
    pub CancelDirectOidRequestHandler: Option<MINIPORT_CANCEL_DIRECT_OID_REQUEST>,
    /// Optional; from NDIS 6.80.
    pub SynchronousOidRequestHandler: Option<MINIPORT_SYNCHRONOUS_OID_REQUEST>,
}

layout!(NDIS_MINIPORT_DRIVER_CHARACTERISTICS: size 0xA0, align 8, {
    Header @ 0x00,
    MajorNdisVersion @ 0x04,
    MinorNdisVersion @ 0x05,
    MajorDriverVersion @ 0x06,
    MinorDriverVersion @ 0x07,
    Flags @ 0x08,
    SetOptionsHandler @ 0x10,
    InitializeHandlerEx @ 0x18,
    HaltHandlerEx @ 0x20,
    UnloadHandler @ 0x28,
    PauseHandler @ 0x30,
    RestartHandler @ 0x38,
    OidRequestHandler @ 0x40,
    SendNetBufferListsHandler @ 0x48,
    ReturnNetBufferListsHandler @ 0x50,
    CancelSendHandler @ 0x58,
    CheckForHangHandlerEx @ 0x60,
    ResetHandlerEx @ 0x68,
    DevicePnPEventNotifyHandler @ 0x70,
    ShutdownHandlerEx @ 0x78,
    CancelOidRequestHandler @ 0x80,
    DirectOidRequestHandler @ 0x88,
    CancelDirectOidRequestHandler @ 0x90,
    SynchronousOidRequestHandler @ 0x98,
});

impl NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    /// The characteristics of an NDIS 6.80 miniport driver without any handler.
    #[must_use]
    pub const fn for_ndis_6_80() -> Self {
        Self {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
                NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
                NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
            ),
            MajorNdisVersion: 6,
            MinorNdisVersion: 80,
            MajorDriverVersion: 0,
            MinorDriverVersion: 0,
            Flags: 0,
            SetOptionsHandler: None,
            InitializeHandlerEx: None,
            HaltHandlerEx: None,
            UnloadHandler: None,
            PauseHandler: None,
            RestartHandler: None,
            OidRequestHandler: None,
            SendNetBufferListsHandler: None,
            ReturnNetBufferListsHandler: None,
            CancelSendHandler: None,
            CheckForHangHandlerEx: None,
            ResetHandlerEx: None,
            DevicePnPEventNotifyHandler: None,
            ShutdownHandlerEx: None,
            CancelOidRequestHandler: None,
            DirectOidRequestHandler: None,
            CancelDirectOidRequestHandler: None,
            SynchronousOidRequestHandler: None,
        }
    }
}

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Registers a miniport driver. IRQL: `PASSIVE_LEVEL`, from `DriverEntry`.
    pub fn NdisMRegisterMiniportDriver(
        DriverObject: *mut DRIVER_OBJECT,
        RegistryPath: *const NDIS_STRING,
        MiniportDriverContext: NDIS_HANDLE,
        MiniportDriverCharacteristics: *const NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NdisMiniportDriverHandle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Deregisters it: in its unload handler, or in `DriverEntry` when something fails after the registration.
    /// IRQL: `PASSIVE_LEVEL`.
    pub fn NdisMDeregisterMiniportDriver(NdisMiniportDriverHandle: NDIS_HANDLE);

    /// Registers optional handlers: called in [`SET_OPTIONS`]. The structure begins with a header that says what it is, for
    /// NDK `NDIS_NDK_PROVIDER_CHARACTERISTICS`. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisSetOptionalHandlers(NdisHandle: NDIS_HANDLE, OptionalHandlers: *const NDIS_OBJECT_HEADER)
    -> NDIS_STATUS;

    /// Has NDIS remove an adapter that has failed for good. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMRemoveMiniport(MiniportHandle: NDIS_HANDLE) -> NDIS_STATUS;

    /// Completes a pause that pended. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMPauseComplete(MiniportAdapterHandle: NDIS_HANDLE);

    /// Completes a restart that pended. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMRestartComplete(MiniportAdapterHandle: NDIS_HANDLE, Status: NDIS_STATUS);
}
