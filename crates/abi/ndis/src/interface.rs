//! The IP helper of the kernel: the table of network interfaces.

use ndkpi::{GUID, NtStatus};

use crate::{
    NDIS_MEDIUM, NDIS_PHYSICAL_MEDIUM, NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NET_IFINDEX,
    NET_LUID, layout, open_enum,
};

/// The most units that the name of an interface has, without the zero at its end.
pub const IF_MAX_STRING_SIZE: usize = 256;

open_enum! {
    /// The operational state of an interface: can it pass packets.
    IF_OPER_STATUS {
        /// It can.
        UP = 1, "IfOperStatusUp";
        /// It cannot.
        DOWN = 2, "IfOperStatusDown";
        /// It is being tested.
        TESTING = 3, "IfOperStatusTesting";
        /// Nobody knows.
        UNKNOWN = 4, "IfOperStatusUnknown";
        /// It waits for something outside.
        DORMANT = 5, "IfOperStatusDormant";
        /// Some component is missing.
        NOT_PRESENT = 6, "IfOperStatusNotPresent";
        /// What it stands on is down.
        LOWER_LAYER_DOWN = 7, "IfOperStatusLowerLayerDown";
    }
}

/// Of [`MIB_IF_ROW2::InterfaceAndOperStatusFlags`]: a filter over an interface, which has no addresses of its own.
pub const MIB_IF_ROW2_FILTER_INTERFACE: u8 = 1 << 1;

/// A network interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_IF_ROW2 {
    /// Its identifier; with it or the index a row is asked for.
    pub InterfaceLuid: NET_LUID,
    /// Its index.
    pub InterfaceIndex: NET_IFINDEX,
    /// Its identifier in the registry.
    pub InterfaceGuid: GUID,
    /// The name that people gave it, with a zero at its end.
    pub Alias: [u16; 257],
    /// What it is, with a zero at its end.
    pub Description: [u16; 257],
    /// Bytes of the link-layer addresses.
    pub PhysicalAddressLength: u32,
    /// The link-layer address in use.
    pub PhysicalAddress: [u8; 32],
    /// The link-layer address that it was made with.
    pub PermanentPhysicalAddress: [u8; 32],
    /// The largest packet, in bytes.
    pub Mtu: u32,
    /// Its type, 6 for Ethernet.
    pub Type: u32,
    /// What it tunnels (`TUNNEL_TYPE`); 0 is nothing.
    pub TunnelType: i32,
    /// Its medium.
    pub MediaType: NDIS_MEDIUM,
    /// Its physical medium.
    pub PhysicalMediumType: NDIS_PHYSICAL_MEDIUM,
    /// How many it reaches.
    pub AccessType: NET_IF_ACCESS_TYPE,
    /// Which way it passes packets.
    pub DirectionType: NET_IF_DIRECTION_TYPE,
    /// Eight flags, from hardware interface (bit 0) over [`MIB_IF_ROW2_FILTER_INTERFACE`] to end point (bit 7).
    pub InterfaceAndOperStatusFlags: u8,
    /// Its operational state: can it pass packets.
    pub OperStatus: IF_OPER_STATUS,
    /// Its administrative state (`NET_IF_ADMIN_STATUS`); 1 is enabled.
    pub AdminStatus: i32,
    /// The state of its medium (`NET_IF_MEDIA_CONNECT_STATE`); 1 is connected.
    pub MediaConnectState: i32,
    /// The network that it is connected to.
    pub NetworkGuid: GUID,
    /// How it is connected.
    pub ConnectionType: NET_IF_CONNECTION_TYPE,
    /// Bits per second outwards.
    pub TransmitLinkSpeed: u64,
    /// Bits per second inwards.
    pub ReceiveLinkSpeed: u64,
    /// Bytes received.
    pub InOctets: u64,
    /// Unicast packets received.
    pub InUcastPkts: u64,
    /// Other packets received.
    pub InNUcastPkts: u64,
    /// Received packets that were dropped without being wrong.
    pub InDiscards: u64,
    /// Received packets that were wrong.
    pub InErrors: u64,
    /// Received packets of protocols that nobody knows.
    pub InUnknownProtos: u64,
    /// Bytes of unicast packets received.
    pub InUcastOctets: u64,
    /// Bytes of multicast packets received.
    pub InMulticastOctets: u64,
    /// Bytes of broadcast packets received.
    pub InBroadcastOctets: u64,
    /// Bytes sent.
    pub OutOctets: u64,
    /// Unicast packets sent.
    pub OutUcastPkts: u64,
    /// Other packets sent.
    pub OutNUcastPkts: u64,
    /// Packets to send that were dropped without being wrong.
    pub OutDiscards: u64,
    /// Packets that could not be sent because they were wrong.
    pub OutErrors: u64,
    /// Bytes of unicast packets sent.
    pub OutUcastOctets: u64,
    /// Bytes of multicast packets sent.
    pub OutMulticastOctets: u64,
    /// Bytes of broadcast packets sent.
    pub OutBroadcastOctets: u64,
    /// Unused.
    pub OutQLen: u64,
}

layout!(MIB_IF_ROW2: size 0x548, align 8, {
    InterfaceLuid @ 0,
    InterfaceIndex @ 8,
    InterfaceGuid @ 12,
    Alias @ 28,
    Description @ 542,
    PhysicalAddressLength @ 1056,
    PhysicalAddress @ 1060,
    PermanentPhysicalAddress @ 1092,
    Mtu @ 1124,
    Type @ 1128,
    TunnelType @ 1132,
    MediaType @ 1136,
    PhysicalMediumType @ 1140,
    AccessType @ 1144,
    DirectionType @ 1148,
    InterfaceAndOperStatusFlags @ 1152,
    OperStatus @ 1156,
    AdminStatus @ 1160,
    MediaConnectState @ 1164,
    NetworkGuid @ 1168,
    ConnectionType @ 1184,
    TransmitLinkSpeed @ 1192,
    ReceiveLinkSpeed @ 1200,
    InOctets @ 1208,
    InUcastPkts @ 1216,
    InNUcastPkts @ 1224,
    InDiscards @ 1232,
    InErrors @ 1240,
    InUnknownProtos @ 1248,
    InUcastOctets @ 1256,
    InMulticastOctets @ 1264,
    InBroadcastOctets @ 1272,
    OutOctets @ 1280,
    OutUcastPkts @ 1288,
    OutNUcastPkts @ 1296,
    OutDiscards @ 1304,
    OutErrors @ 1312,
    OutUcastOctets @ 1320,
    OutMulticastOctets @ 1328,
    OutBroadcastOctets @ 1336,
    OutQLen @ 1344,
});

/// The network interfaces of the machine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_IF_TABLE2 {
    /// How many rows there are.
    pub NumEntries: u32,
    /// The first of them.
    pub Table: [MIB_IF_ROW2; 1],
}

layout!(MIB_IF_TABLE2: size 0x550, align 8, { NumEntries @ 0x00, Table @ 0x08 });

#[cfg_attr(windows, link(name = "netio.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// The interfaces of the machine, to be freed by [`FreeMibTable`](crate::FreeMibTable). IRQL: `PASSIVE_LEVEL`.
    pub fn GetIfTable2(Table: *mut *mut MIB_IF_TABLE2) -> NtStatus;

    /// The interface whose identifier or index is in the row. IRQL: `PASSIVE_LEVEL`.
    pub fn GetIfEntry2(Row: *mut MIB_IF_ROW2) -> NtStatus;
}
