//! The miniport's keywords and attributes.

use std::ptr;

use ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_CONFIGURATION_OBJECT, NDIS_INTERFACE_TYPE, NDIS_MEDIA_CONNECT_STATE,
    NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM,
    NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND, NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK, NDIS_PHYSICAL_MEDIUM,
    NDIS_STATUS, NDIS_STRING, NDIS_SUPPORTED_PAUSE_FUNCTIONS, NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE,
    NET_IF_DIRECTION_TYPE, NdisCloseConfiguration, NdisMSetMiniportAttributes, NdisOpenConfigurationEx,
    NdisReadConfiguration, OID_GEN_STATISTICS, OID_GEN_VENDOR_ID,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, OID_NDK_SET_STATE, OID_NDK_STATISTICS,
    status::NDIS_STATUS_SUCCESS,
};

use super::with;

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

/// The attributes of a miniport that is not paused before it sleeps.
pub fn set_attributes_without_pause(handle: NDIS_HANDLE) -> NDIS_STATUS {
    let status = set_registration_with(handle, NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND);
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    let status = set_general(handle);
    if status == NDIS_STATUS_SUCCESS { set_ndk(handle) } else { status }
}

/// General attributes of an adapter for packets of IP, which has no address.
pub fn general_for_ip() -> NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
        MediaType: NDIS_MEDIUM::IP,
        PhysicalMediumType: NDIS_PHYSICAL_MEDIUM::UNSPECIFIED,
        MacAddressLength: 0,
        IfType: IF_TYPE_PROP_VIRTUAL,
        ..general()
    }
}

/// The attributes of such an adapter.
pub fn set_attributes_for_ip(handle: NDIS_HANDLE) -> NDIS_STATUS {
    let status = set_registration(handle);
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    let status = report(handle, &general_for_ip());
    if status == NDIS_STATUS_SUCCESS { set_ndk(handle) } else { status }
}

pub fn set_registration(handle: NDIS_HANDLE) -> NDIS_STATUS {
    set_registration_with(handle, 0)
}

fn set_registration_with(handle: NDIS_HANDLE, more: u32) -> NDIS_STATUS {
    let attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
        Header: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::HEADER,
        MiniportAdapterContext: ptr::null_mut(),
        AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK | NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM | more,
        CheckForHangTimeInSeconds: 0,
        InterfaceType: NDIS_INTERFACE_TYPE::INTERNAL,
    };
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisMSetMiniportAttributes(handle, (&raw const attributes).cast()) }
}

/// The type of an interface that is its vendor's own.
const IF_TYPE_PROP_VIRTUAL: u16 = 53;

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
