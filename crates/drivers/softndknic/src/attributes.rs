//! What an adapter reports of itself while it is initialised: registration attributes first, then general ones. Those of NDK, the
//! last, are in [`crate::ndk`].

use core::ptr;

use cable::Tagging;
use ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_INTERFACE_TYPE, NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN,
    NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA, NDIS_MAC_OPTION_NO_LOOPBACK, NDIS_MAC_OPTION_TRANSFERS_NOT_PEND,
    NDIS_MAX_PHYS_ADDRESS_LENGTH, NDIS_MEDIA_CONNECT_STATE, NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM, NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK, NDIS_PHYSICAL_MEDIUM,
    NDIS_PM_CAPABILITIES, NDIS_STATUS, NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE,
    NdisMSetMiniportAttributes,
};
use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NtStatus};

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
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise; the structure lives until the call returns.
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
        MediaConnectState: NDIS_MEDIA_CONNECT_STATE::CONNECTED,
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
