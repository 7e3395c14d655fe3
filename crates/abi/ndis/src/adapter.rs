//! An adapter of a miniport driver: what it is initialised with, the attributes it reports, pause, restart and plug and play.

use core::ffi::c_void;

use ndkpi::{BOOLEAN, NDIS_HANDLE, NDIS_OBJECT_HEADER, NET_PNP_EVENT_NOTIFICATION};

use crate::{DEVICE_OBJECT, NDIS_PORT_NUMBER, NDIS_STATUS, NET_IFINDEX, NET_LUID, header, layout, open_enum};

/// The bytes that a hardware address may have.
pub const NDIS_MAX_PHYS_ADDRESS_LENGTH: usize = 0x20;
/// The type of [`NDIS_MINIPORT_INIT_PARAMETERS`].
pub const NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS: u8 = 0x81;
/// The only revision of [`NDIS_MINIPORT_INIT_PARAMETERS`].
pub const NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1: u8 = 1;
/// The only revision of [`NDIS_MINIPORT_PAUSE_PARAMETERS`], which has the default type.
pub const NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1: u8 = 1;
/// The only revision of [`NDIS_MINIPORT_RESTART_PARAMETERS`], which has the default type.
pub const NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1: u8 = 1;
/// The only revision of [`NET_DEVICE_PNP_EVENT`], which has the default type.
pub const NET_DEVICE_PNP_EVENT_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_MINIPORT_PAUSE_PARAMETERS`].
pub const NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1: u16 = 0xC;
/// The bytes of [`NDIS_MINIPORT_RESTART_PARAMETERS`], which ends before the padding.
pub const NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1: u16 = 0x14;
/// The bytes of [`NET_DEVICE_PNP_EVENT`], which ends before the padding.
pub const NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1: u16 = 0x2C;
/// The adapter is paused for a reason of NDIS, such as a change of the bindings above it.
pub const NDIS_PAUSE_NDIS_INTERNAL: u32 = 1;
/// The adapter is paused because it is about to lose power.
pub const NDIS_PAUSE_LOW_POWER: u32 = 2;
/// The adapter is paused because its device is removed.
pub const NDIS_PAUSE_MINIPORT_DEVICE_REMOVE: u32 = 128;

/// What an adapter is initialised with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_INIT_PARAMETERS {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// Flags of NDIS.
    pub Flags: u32,
    /// Resources of the hardware; null without any.
    pub AllocatedResources: *mut c_void,
    /// For intermediate drivers.
    pub IMDeviceInstanceContext: NDIS_HANDLE,
    /// What the driver's `MiniportAddDevice` registered.
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    /// The interface's index, by which consumers of NDK open the adapter.
    pub IfIndex: NET_IFINDEX,
    /// The interface's identifier, by which addresses name it.
    pub NetLuid: NET_LUID,
    /// The state of authentication of new ports; may be null.
    pub DefaultPortAuthStates: *mut c_void,
    /// Properties of a PCI device; null without one.
    pub PciDeviceCustomProperties: *mut c_void,
}

layout!(NDIS_MINIPORT_INIT_PARAMETERS: size 0x40, align 8, {
    Header @ 0x00,
    Flags @ 0x04,
    AllocatedResources @ 0x08,
    IMDeviceInstanceContext @ 0x10,
    MiniportAddDeviceContext @ 0x18,
    IfIndex @ 0x20,
    NetLuid @ 0x28,
    DefaultPortAuthStates @ 0x30,
    PciDeviceCustomProperties @ 0x38,
});

/// Why an adapter is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_MINIPORT_PAUSE_PARAMETERS {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// The reason, one of `NDIS_PAUSE_`.
    pub PauseReason: u32,
}

layout!(NDIS_MINIPORT_PAUSE_PARAMETERS: size 0x0C, align 4, { Header @ 0x00, Flags @ 0x04, PauseReason @ 0x08 });

/// How an adapter is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_MINIPORT_RESTART_PARAMETERS {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// A list of attributes that the driver may look at; may be null.
    pub RestartAttributes: *mut c_void,
    /// Zero.
    pub Flags: u32,
}

layout!(NDIS_MINIPORT_RESTART_PARAMETERS: size 0x18, align 8, {
    Header @ 0x00,
    RestartAttributes @ 0x08,
    Flags @ 0x10,
});

/// The type of [`NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES`].
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES: u8 = 0x9E;
/// The type of [`NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`].
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES: u8 = 0x9F;
/// The revision of [`NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES`] from NDIS 6.30.
pub const NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: u8 = 2;
/// The bytes of that revision, which ends before the padding.
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: u16 = 0x1C;
/// The revision of [`NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`] from NDIS 6.20.
pub const NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: u8 = 2;
/// The bytes of that revision.
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: u16 = 0xE0;

/// The adapter is hardware.
pub const NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE: u32 = 1;
/// The driver also talks to other drivers as a WDM driver.
pub const NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM: u32 = 2;
/// The adapter can be removed by surprise.
pub const NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK: u32 = 4;
/// The adapter need not be halted when the system suspends.
pub const NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND: u32 = 0x20;
/// The adapter masters its bus.
pub const NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER: u32 = 0x40;
/// The adapter need not be paused when it loses power.
pub const NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND: u32 = 0x100;

open_enum! {
    /// The bus of an adapter.
    NDIS_INTERFACE_TYPE {
        /// No bus: a virtual adapter.
        INTERNAL = 0, "NdisInterfaceInternal";
        /// PCI.
        PCI = 5, "NdisInterfacePci";
    }
}

/// The first attributes that an adapter reports, with [`NdisMSetMiniportAttributes`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// The driver's context of the adapter, with which its handlers are called.
    pub MiniportAdapterContext: NDIS_HANDLE,
    /// A combination of `NDIS_MINIPORT_ATTRIBUTES_`.
    pub AttributeFlags: u32,
    /// Seconds between two checks for a hang; 0 for those of NDIS.
    pub CheckForHangTimeInSeconds: u32,
    /// The bus.
    pub InterfaceType: NDIS_INTERFACE_TYPE,
}

layout!(NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES: size 0x20, align 8, {
    Header @ 0x00,
    MiniportAdapterContext @ 0x08,
    AttributeFlags @ 0x10,
    CheckForHangTimeInSeconds @ 0x14,
    InterfaceType @ 0x18,
});

header!(NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES:
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
    NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2);

open_enum! {
    /// What an adapter looks like to protocols.
    NDIS_MEDIUM {
        /// Ethernet.
        ETHERNET = 0, "NdisMedium802_3";
        /// Native InfiniBand.
        INFINIBAND = 14, "NdisMediumInfiniBand";
        /// Packets of IP without a header below.
        IP = 19, "NdisMediumIP";
    }
}

open_enum! {
    /// What an adapter is.
    NDIS_PHYSICAL_MEDIUM {
        /// Not said.
        UNSPECIFIED = 0, "NdisPhysicalMediumUnspecified";
        /// InfiniBand.
        INFINIBAND = 11, "NdisPhysicalMediumInfiniband";
        /// Ethernet.
        ETHERNET = 14, "NdisPhysicalMedium802_3";
    }
}

open_enum! {
    /// The state of the link.
    NDIS_MEDIA_CONNECT_STATE {
        /// Not known.
        UNKNOWN = 0, "MediaConnectStateUnknown";
        /// Connected.
        CONNECTED = 1, "MediaConnectStateConnected";
        /// Disconnected.
        DISCONNECTED = 2, "MediaConnectStateDisconnected";
    }
}

open_enum! {
    /// The duplex state of the link.
    NDIS_MEDIA_DUPLEX_STATE {
        /// Not known.
        UNKNOWN = 0, "MediaDuplexStateUnknown";
        /// Half duplex.
        HALF = 1, "MediaDuplexStateHalf";
        /// Full duplex.
        FULL = 2, "MediaDuplexStateFull";
    }
}

open_enum! {
    /// How an interface reaches others.
    NET_IF_ACCESS_TYPE {
        /// Only itself.
        LOOPBACK = 1, "NET_IF_ACCESS_LOOPBACK";
        /// All stations of its medium.
        BROADCAST = 2, "NET_IF_ACCESS_BROADCAST";
        /// One other station.
        POINT_TO_POINT = 3, "NET_IF_ACCESS_POINT_TO_POINT";
        /// Many stations, one at a time.
        POINT_TO_MULTI_POINT = 4, "NET_IF_ACCESS_POINT_TO_MULTI_POINT";
    }
}

open_enum! {
    /// Which way frames go on an interface.
    NET_IF_DIRECTION_TYPE {
        /// Both.
        SEND_RECEIVE = 0, "NET_IF_DIRECTION_SENDRECEIVE";
        /// Out only.
        SEND_ONLY = 1, "NET_IF_DIRECTION_SENDONLY";
        /// In only.
        RECEIVE_ONLY = 2, "NET_IF_DIRECTION_RECEIVEONLY";
    }
}

open_enum! {
    /// When an interface is connected.
    NET_IF_CONNECTION_TYPE {
        /// Whenever there is a link.
        DEDICATED = 1, "NET_IF_CONNECTION_DEDICATED";
        /// When somebody connects to it.
        PASSIVE = 2, "NET_IF_CONNECTION_PASSIVE";
        /// On demand.
        DEMAND = 3, "NET_IF_CONNECTION_DEMAND";
    }
}

/// The interface type of Ethernet (`IF_TYPE_ETHERNET_CSMACD`).
pub const IF_TYPE_ETHERNET_CSMACD: u16 = 6;

/// Frames to the adapter's own address.
pub const NDIS_PACKET_TYPE_DIRECTED: u32 = 1;
/// Frames to addresses of the multicast list.
pub const NDIS_PACKET_TYPE_MULTICAST: u32 = 2;
/// Frames to any multicast address.
pub const NDIS_PACKET_TYPE_ALL_MULTICAST: u32 = 4;
/// Broadcast frames.
pub const NDIS_PACKET_TYPE_BROADCAST: u32 = 8;
/// Every frame.
pub const NDIS_PACKET_TYPE_PROMISCUOUS: u32 = 0x20;

/// Received bytes may be read in any way.
pub const NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA: u32 = 1;
/// Transfers do not pend.
pub const NDIS_MAC_OPTION_TRANSFERS_NOT_PEND: u32 = 4;
/// Frames that the adapter sends to itself do not come back.
pub const NDIS_MAC_OPTION_NO_LOOPBACK: u32 = 8;
/// The adapter carries the priority of 802.1Q.
pub const NDIS_MAC_OPTION_8021P_PRIORITY: u32 = 0x40;
/// The adapter carries the identifiers of virtual LANs.
pub const NDIS_MAC_OPTION_8021Q_VLAN: u32 = 0x200;

open_enum! {
    /// A state of power.
    NDIS_DEVICE_POWER_STATE {
        /// None.
        UNSPECIFIED = 0, "NdisDeviceStateUnspecified";
        /// Full power.
        D0 = 1, "NdisDeviceStateD0";
        /// Less than that.
        D1 = 2, "NdisDeviceStateD1";
        /// Less than that.
        D2 = 3, "NdisDeviceStateD2";
        /// Off.
        D3 = 4, "NdisDeviceStateD3";
    }
}

/// The revision of [`NDIS_PM_CAPABILITIES`] from NDIS 6.30.
pub const NDIS_PM_CAPABILITIES_REVISION_2: u8 = 2;

/// What an adapter can do to wake the machine. Zeroes and [`NDIS_DEVICE_POWER_STATE::UNSPECIFIED`] say: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_PM_CAPABILITIES {
    /// The default type, revision 2, all bytes.
    pub Header: NDIS_OBJECT_HEADER,
    /// Flags.
    pub Flags: u32,
    /// Kinds of wake-up patterns.
    pub SupportedWoLPacketPatterns: u32,
    /// The number of patterns.
    pub NumTotalWoLPatterns: u32,
    /// The bytes of a pattern.
    pub MaxWoLPatternSize: u32,
    /// The furthest place of a pattern in a frame.
    pub MaxWoLPatternOffset: u32,
    /// The bytes kept of the frame that woke the machine.
    pub MaxWoLPacketSaveBuffer: u32,
    /// Protocols answered while the machine sleeps.
    pub SupportedProtocolOffloads: u32,
    /// Addresses of ARP offload.
    pub NumArpOffloadIPv4Addresses: u32,
    /// Addresses of neighbour solicitation offload.
    pub NumNSOffloadIPv6Addresses: u32,
    /// The lowest state in which a magic packet wakes.
    pub MinMagicPacketWakeUp: NDIS_DEVICE_POWER_STATE,
    /// The lowest state in which a pattern wakes.
    pub MinPatternWakeUp: NDIS_DEVICE_POWER_STATE,
    /// The lowest state in which a change of the link wakes.
    pub MinLinkChangeWakeUp: NDIS_DEVICE_POWER_STATE,
    /// Events that wake.
    pub SupportedWakeUpEvents: u32,
    /// Events of the medium that wake.
    pub MediaSpecificWakeUpEvents: u32,
}

layout!(NDIS_PM_CAPABILITIES: size 0x3C, align 4, {
    Header @ 0x00,
    Flags @ 0x04,
    SupportedWoLPacketPatterns @ 0x08,
    NumTotalWoLPatterns @ 0x0C,
    MaxWoLPatternSize @ 0x10,
    MaxWoLPatternOffset @ 0x14,
    MaxWoLPacketSaveBuffer @ 0x18,
    SupportedProtocolOffloads @ 0x1C,
    NumArpOffloadIPv4Addresses @ 0x20,
    NumNSOffloadIPv6Addresses @ 0x24,
    MinMagicPacketWakeUp @ 0x28,
    MinPatternWakeUp @ 0x2C,
    MinLinkChangeWakeUp @ 0x30,
    SupportedWakeUpEvents @ 0x34,
    MediaSpecificWakeUpEvents @ 0x38,
});

header!(NDIS_PM_CAPABILITIES: ndkpi::NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES_REVISION_2, 0x3C);

/// What an adapter is to the system, reported after its registration attributes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// What it looks like to protocols.
    pub MediaType: NDIS_MEDIUM,
    /// What it is.
    pub PhysicalMediumType: NDIS_PHYSICAL_MEDIUM,
    /// Bytes of a frame without its link header.
    pub MtuSize: u32,
    /// Highest speed of sending, in bits per second.
    pub MaxXmitLinkSpeed: u64,
    /// Speed of sending, in bits per second.
    pub XmitLinkSpeed: u64,
    /// Highest speed of receiving, in bits per second.
    pub MaxRcvLinkSpeed: u64,
    /// Speed of receiving, in bits per second.
    pub RcvLinkSpeed: u64,
    /// The state of the link.
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    /// The duplex state.
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    /// Bytes of a frame that a protocol sees at once; the MTU.
    pub LookaheadSize: u32,
    /// Null; the later form is at the end.
    pub PowerManagementCapabilities: *mut c_void,
    /// A combination of `NDIS_MAC_OPTION_`.
    pub MacOptions: u32,
    /// A combination of `NDIS_PACKET_TYPE_`.
    pub SupportedPacketFilters: u32,
    /// The addresses that the multicast list may have.
    pub MaxMulticastListSize: u32,
    /// Bytes of the addresses below.
    pub MacAddressLength: u16,
    /// The address that the adapter was made with.
    pub PermanentMacAddress: [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    /// The address in use.
    pub CurrentMacAddress: [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    /// Receive side scaling; null without it.
    pub RecvScaleCapabilities: *mut c_void,
    /// How it reaches others.
    pub AccessType: NET_IF_ACCESS_TYPE,
    /// Which way frames go.
    pub DirectionType: NET_IF_DIRECTION_TYPE,
    /// When it is connected.
    pub ConnectionType: NET_IF_CONNECTION_TYPE,
    /// The type of the interface, [`IF_TYPE_ETHERNET_CSMACD`].
    pub IfType: u16,
    /// True if there is a connector to plug a cable in.
    pub IfConnectorPresent: BOOLEAN,
    /// The statistics it keeps, a combination of `NDIS_STATISTICS_..._SUPPORTED`.
    pub SupportedStatistics: u32,
    /// Flow control.
    pub SupportedPauseFunctions: u32,
    /// Bytes that the adapter wants free before the data of a send.
    pub DataBackFillSize: u32,
    /// Bytes that it wants in the context of a list.
    pub ContextBackFillSize: u32,
    /// The OIDs it answers.
    pub SupportedOidList: *const u32,
    /// The bytes of that list.
    pub SupportedOidListLength: u32,
    /// What of the link was negotiated.
    pub AutoNegotiationFlags: u32,
    /// How it wakes the machine.
    pub PowerManagementCapabilitiesEx: *const NDIS_PM_CAPABILITIES,
}

layout!(NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES: size 0xE0, align 8, {
    Header @ 0x00,
    Flags @ 0x04,
    MediaType @ 0x08,
    PhysicalMediumType @ 0x0C,
    MtuSize @ 0x10,
    MaxXmitLinkSpeed @ 0x18,
    XmitLinkSpeed @ 0x20,
    MaxRcvLinkSpeed @ 0x28,
    RcvLinkSpeed @ 0x30,
    MediaConnectState @ 0x38,
    MediaDuplexState @ 0x3C,
    LookaheadSize @ 0x40,
    PowerManagementCapabilities @ 0x48,
    MacOptions @ 0x50,
    SupportedPacketFilters @ 0x54,
    MaxMulticastListSize @ 0x58,
    MacAddressLength @ 0x5C,
    PermanentMacAddress @ 0x5E,
    CurrentMacAddress @ 0x7E,
    RecvScaleCapabilities @ 0xA0,
    AccessType @ 0xA8,
    DirectionType @ 0xAC,
    ConnectionType @ 0xB0,
    IfType @ 0xB4,
    IfConnectorPresent @ 0xB6,
    SupportedStatistics @ 0xB8,
    SupportedPauseFunctions @ 0xBC,
    DataBackFillSize @ 0xC0,
    ContextBackFillSize @ 0xC4,
    SupportedOidList @ 0xC8,
    SupportedOidListLength @ 0xD0,
    AutoNegotiationFlags @ 0xD4,
    PowerManagementCapabilitiesEx @ 0xD8,
});

header!(NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES:
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2);

open_enum! {
    /// A plug and play event of a device.
    NDIS_DEVICE_PNP_EVENT {
        /// May the device be removed?
        QUERY_REMOVED = 0, "NdisDevicePnPEventQueryRemoved";
        /// It is removed.
        REMOVED = 1, "NdisDevicePnPEventRemoved";
        /// It is gone.
        SURPRISE_REMOVED = 2, "NdisDevicePnPEventSurpriseRemoved";
        /// May it be stopped?
        QUERY_STOPPED = 3, "NdisDevicePnPEventQueryStopped";
        /// It is stopped.
        STOPPED = 4, "NdisDevicePnPEventStopped";
        /// The machine went on or off its battery.
        POWER_PROFILE_CHANGED = 5, "NdisDevicePnPEventPowerProfileChanged";
        /// The filters above the adapter changed.
        FILTER_LIST_CHANGED = 6, "NdisDevicePnPEventFilterListChanged";
    }
}

/// A plug and play event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_DEVICE_PNP_EVENT {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// The port.
    pub PortNumber: NDIS_PORT_NUMBER,
    /// The event.
    pub DevicePnPEvent: NDIS_DEVICE_PNP_EVENT,
    /// More about it.
    pub InformationBuffer: *mut c_void,
    /// The bytes of the buffer.
    pub InformationBufferLength: u32,
    /// Belongs to NDIS.
    pub NdisReserved: [u8; 16],
}

layout!(NET_DEVICE_PNP_EVENT: size 0x30, align 8, {
    Header @ 0x00,
    PortNumber @ 0x04,
    DevicePnPEvent @ 0x08,
    InformationBuffer @ 0x10,
    InformationBufferLength @ 0x18,
    NdisReserved @ 0x1C,
});

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Reports attributes: registration attributes first, then general ones, then those of NDK. The structure begins with a
    /// header that says which they are. IRQL: `PASSIVE_LEVEL`, from `MiniportInitializeEx`.
    pub fn NdisMSetMiniportAttributes(
        NdisMiniportHandle: NDIS_HANDLE,
        MiniportAttributes: *const NDIS_OBJECT_HEADER,
    ) -> NDIS_STATUS;

    /// The device objects of an adapter, which a framework's device is made of. Each place may be null. The resources are those
    /// of hardware (`CM_RESOURCE_LIST`). IRQL: `PASSIVE_LEVEL`.
    pub fn NdisMGetDeviceProperty(
        MiniportAdapterHandle: NDIS_HANDLE,
        PhysicalDeviceObject: *mut *mut DEVICE_OBJECT,
        FunctionalDeviceObject: *mut *mut DEVICE_OBJECT,
        NextDeviceObject: *mut *mut DEVICE_OBJECT,
        AllocatedResources: *mut *mut c_void,
        AllocatedResourcesTranslated: *mut *mut c_void,
    );

    /// Tells those above of a network event, for NDK that it is enabled or disabled (NDIS-NDK 5). The latter blocks until every
    /// consumer has closed the adapter. Not in an OID handler. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisMNetPnPEvent(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetPnPEventNotification: *mut NET_PNP_EVENT_NOTIFICATION,
    ) -> NDIS_STATUS;
}
