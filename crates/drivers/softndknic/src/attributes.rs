//! What an adapter reports of itself while it is initialised: registration attributes first, then general ones. Those of NDK, the
//! last, are in [`crate::ndk`].

use core::ptr;

use cable::Tagging;
use ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_INTERFACE_TYPE, NDIS_LINK_STATE, NDIS_MAC_OPTION_8021P_PRIORITY,
    NDIS_MAC_OPTION_8021Q_VLAN, NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA, NDIS_MAC_OPTION_NO_LOOPBACK,
    NDIS_MAC_OPTION_TRANSFERS_NOT_PEND, NDIS_MAX_PHYS_ADDRESS_LENGTH, NDIS_MEDIA_CONNECT_STATE,
    NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM,
    NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK, NDIS_PHYSICAL_MEDIUM, NDIS_PM_CAPABILITIES, NDIS_STATUS,
    NDIS_STATUS_INDICATION, NDIS_STATUS_LINK_STATE, NDIS_SUPPORTED_PAUSE_FUNCTIONS, NET_IF_ACCESS_TYPE,
    NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NdisMIndicateStatusEx, NdisMSetMiniportAttributes,
};
use ndkpi::{GUID, NDIS_DEFAULT_PORT_NUMBER, NDIS_HANDLE, NDIS_OBJECT_HEADER, NtStatus};

use crate::{
    adapter::{Adapter, mac_of},
    configuration::LINK_HEADER,
    filter::{self, MAX_MULTICAST},
    handlers::Context,
    oid,
};

/// The speed of the link, in bits per second: above that of a machine's real adapters, because SMB Multichannel takes the
/// fastest of a kind.
pub const LINK_SPEED: u64 = 100_000_000_000;

/// Reports one structure of attributes.
///
/// # Errors
///
/// What NDIS says.
///
/// # Safety
///
/// `adapter` is an adapter that NDIS is initialising. `header` begins a structure of attributes that lives until the call returns.
pub unsafe fn set(adapter: NDIS_HANDLE, header: *const NDIS_OBJECT_HEADER) -> Result<(), NtStatus> {
    // SAFETY: NDIS is initialising the adapter, and the structure at `header` lives until the call returns (`# Safety`).
    match unsafe { NdisMSetMiniportAttributes(adapter, header) } {
        NDIS_STATUS::SUCCESS => Ok(()),
        status => Err(status),
    }
}

/// Reports the context that handlers are called with, and what plug and play has to know.
///
/// # Errors
///
/// What NDIS says.
///
/// # Safety
///
/// `adapter` is an adapter that NDIS is initialising. The context lives until it is halted, or its initialisation has failed.
pub unsafe fn set_registration(adapter: NDIS_HANDLE, context: &Context) -> Result<(), NtStatus> {
    let attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::HEADER,
        MiniportAdapterContext: ptr::from_ref(context).cast_mut().cast(),
        // Not `NO_PAUSE_ON_SUSPEND`: NDIS pauses the adapter before it sleeps, and a paused adapter is as quiet as a sleeping one must be.
        AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK | NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM,
        CheckForHangTimeInSeconds: 0,
        InterfaceType: NDIS_INTERFACE_TYPE::INTERNAL,
    };
    // SAFETY: NDIS is initialising the adapter, and the context outlives it (`# Safety`); the structure lives until the call returns.
    unsafe { set(adapter, &raw const attributes.Header) }
}

fn long(address: [u8; 6]) -> [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH] {
    let mut long = [0; NDIS_MAX_PHYS_ADDRESS_LENGTH];
    long[..6].copy_from_slice(&address);
    long
}

/// What protocols may put beside a frame.
const fn tagging(tagging: Tagging) -> u32 {
    let priority = if tagging.has_priority() { NDIS_MAC_OPTION_8021P_PRIORITY } else { 0 };
    let vlan = if tagging.has_vlan() { NDIS_MAC_OPTION_8021Q_VLAN } else { 0 };
    priority | vlan
}

const fn connect_state(is_up: bool) -> NDIS_MEDIA_CONNECT_STATE {
    if is_up { NDIS_MEDIA_CONNECT_STATE::CONNECTED } else { NDIS_MEDIA_CONNECT_STATE::DISCONNECTED }
}

/// Tells those above that the link is up, or down. `IRQL <= DISPATCH_LEVEL`, no lock held, before the adapter is halted.
pub fn indicate_link(adapter: &Adapter, is_up: bool) {
    let mut state = NDIS_LINK_STATE {
        Header: NDIS_LINK_STATE::HEADER,
        MediaConnectState: connect_state(is_up),
        MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE::FULL,
        XmitLinkSpeed: LINK_SPEED,
        RcvLinkSpeed: LINK_SPEED,
        PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS::UNSUPPORTED,
        AutoNegotiationFlags: 0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a small structure")]
    let size = size_of::<NDIS_LINK_STATE>() as u32;
    let indication = NDIS_STATUS_INDICATION {
        Header: NDIS_STATUS_INDICATION::HEADER,
        SourceHandle: adapter.handle(),
        PortNumber: NDIS_DEFAULT_PORT_NUMBER,
        StatusCode: NDIS_STATUS_LINK_STATE,
        Flags: 0,
        DestinationHandle: ptr::null_mut(),
        RequestId: ptr::null_mut(),
        StatusBuffer: (&raw mut state).cast(),
        StatusBufferSize: size,
        Guid: GUID::default(),
        NdisReserved: [ptr::null_mut(); 4],
    };
    // SAFETY: the adapter is not halted (the caller's), and the structures live until the call returns.
    unsafe { NdisMIndicateStatusEx(adapter.handle(), &raw const indication) };
}

/// Reports an Ethernet adapter of [`LINK_SPEED`].
///
/// # Errors
///
/// What NDIS says.
pub fn set_general(adapter: &Adapter) -> Result<(), NtStatus> {
    // No way to wake the machine.
    let power = NDIS_PM_CAPABILITIES { Header: NDIS_PM_CAPABILITIES::HEADER, ..NDIS_PM_CAPABILITIES::default() };
    let mtu = adapter.keywords().frame - LINK_HEADER;
    #[expect(clippy::cast_possible_truncation, reason = "a short list")]
    let oids = size_of_val(&oid::SUPPORTED) as u32;
    #[expect(clippy::cast_possible_truncation, reason = "32")]
    let multicast = MAX_MULTICAST as u32;
    let attributes = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::HEADER,
        Flags: 0,
        MediaType: NDIS_MEDIUM::ETHERNET,
        PhysicalMediumType: NDIS_PHYSICAL_MEDIUM::ETHERNET,
        MtuSize: mtu,
        MaxXmitLinkSpeed: LINK_SPEED,
        XmitLinkSpeed: LINK_SPEED,
        MaxRcvLinkSpeed: LINK_SPEED,
        RcvLinkSpeed: LINK_SPEED,
        MediaConnectState: connect_state(adapter.has_link()),
        MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE::FULL,
        LookaheadSize: mtu,
        PowerManagementCapabilities: ptr::null_mut(),
        MacOptions: NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA
            | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND
            | NDIS_MAC_OPTION_NO_LOOPBACK
            | tagging(adapter.keywords().tagging),
        SupportedPacketFilters: filter::SUPPORTED,
        MaxMulticastListSize: multicast,
        MacAddressLength: 6,
        PermanentMacAddress: long(mac_of(adapter.luid())),
        CurrentMacAddress: long(*adapter.mac()),
        RecvScaleCapabilities: ptr::null_mut(),
        AccessType: NET_IF_ACCESS_TYPE::BROADCAST,
        DirectionType: NET_IF_DIRECTION_TYPE::SEND_RECEIVE,
        ConnectionType: NET_IF_CONNECTION_TYPE::DEDICATED,
        IfType: IF_TYPE_ETHERNET_CSMACD,
        IfConnectorPresent: 0,
        SupportedStatistics: oid::STATISTICS,
        SupportedPauseFunctions: ndis::NDIS_SUPPORTED_PAUSE_FUNCTIONS::UNSUPPORTED.0.cast_unsigned(),
        DataBackFillSize: 0,
        ContextBackFillSize: 0,
        SupportedOidList: oid::SUPPORTED.as_ptr(),
        SupportedOidListLength: oids,
        AutoNegotiationFlags: 0,
        PowerManagementCapabilitiesEx: &raw const power,
    };
    // SAFETY: the adapter is being initialised: nobody else has it yet. The structures live until the call returns.
    unsafe { set(adapter.handle(), &raw const attributes.Header) }
}
